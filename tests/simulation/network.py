"""The simulated network: names, addresses, connections, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from aioproducer.testing.fake.session import Session
from tests.simulation.link import Conditions, Link
from tests.simulation.loop import WALL_EPOCH_S, SimulatedLoop
from tests.simulation.story import Story
from tests.simulation.transport import MemoryTransport

if TYPE_CHECKING:
    from aioproducer.testing.fake.frames import RequestFrame
    from aioproducer.testing.fake.model import ClusterModel
    from aioproducer.testing.fake.session import Answer

Address = tuple[str, int]


class SimulatedNetwork:
    """Connects one producer to the brokers of one model.

    Args:
        broken: called with violated invariants, as a template and its arguments.
        acknowledged: whether the broker answers everything; otherwise the number of requests in flight is unknown here.
        keeps_views: see MemoryTransport.
        on_request: called with each request that a broker has read, and its link.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        model: ClusterModel,
        story: Story,
        broken: Callable[..., None],
        *,
        keeps_views: bool,
        max_in_flight: int,
        acknowledged: bool,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.model = model
        self.story = story
        self.broken = broken
        self.conditions = Conditions()
        self.hosts: dict[str, list[str]] = {}
        self.listeners: dict[Address, int] = {}
        self.silent_addresses: dict[str, None] = {}
        self.refusing: dict[int, None] = {}
        self.no_names = False
        self.links: list[Link] = []
        self.transports: list[MemoryTransport] = []
        self.connects = 0
        self.requests = 0
        self.on_request: Callable[[Link, RequestFrame], None] = lambda link, request: None
        self.on_answer: Callable[[Link, RequestFrame], None] = lambda link, request: None
        self._frozen: dict[int, None] = {}
        self._dead: dict[str, int] = {}
        self._keeps_views = keeps_views
        self._max_in_flight = max_in_flight
        self._acknowledged = acknowledged
        self._addresses = 0
        for node_id, broker in model.brokers.items():
            self.place(node_id, broker.host, broker.port)

    def model_now_ms(self) -> int:
        """The brokers' time; their clocks are right."""
        return int((WALL_EPOCH_S + self.loop.time()) * 1000)

    # --- names and addresses ------------------------------------------------------------------------------------------

    def place(self, node_id: int, host: str, port: int) -> None:
        """Move a broker to a new address, to which only this name resolves."""
        self._addresses += 1
        address = f"10.0.{node_id}.{self._addresses}"
        self.listeners = {place: node for place, node in self.listeners.items() if node != node_id}
        self.listeners[address, port] = node_id
        self.hosts[host] = [address]

    def point(self, host: str, node_id: int) -> None:
        """Let another name resolve to a broker too."""
        self.hosts.setdefault(host, [])
        addresses = [address for (address, _), node in self.listeners.items() if node == node_id]
        known = [address for (address, _) in self.listeners]
        self.hosts[host] = [one for one in self.hosts[host] if one in known and one not in addresses] + addresses

    async def resolve(self, host: str) -> list[str]:
        await asyncio.sleep(self.rng.uniform(0.0001, 0.002))
        if self.no_names or host not in self.hosts:
            self.story.tell("net: no name %s", host)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.hosts[host]

    async def connect(self, protocol: asyncio.BaseProtocol, host: str, port: int) -> MemoryTransport:
        self.connects += 1
        await asyncio.sleep(self.rng.uniform(*self.conditions.latency_s))
        if host in self.silent_addresses:
            self.story.tell("net: %s:%d does not react to a connection attempt", host, port)
            await asyncio.sleep(130)
            raise TimeoutError(110, "Connection timed out")
        node_id = self.listeners.get((host, port))
        if node_id is None or node_id in self.refusing or not self.model.brokers[node_id].up:
            self.story.tell("net: %s:%d (%s) refuses a connection", host, port, node_id)
            raise ConnectionRefusedError(111, f"Connect call failed ('{host}', {port})")
        link = Link(self, self.connects, node_id, Session(self.model, node_id))
        transport = link.attach(protocol, (host, port), keeps_views=self._keeps_views)
        self.links.append(link)
        self.transports.append(transport)
        self.story.tell("net: link #%d to broker %d", link.number, node_id)
        protocol.connection_made(transport)
        return transport

    # --- what links tell ----------------------------------------------------------------------------------------------

    def left(self, link: Link) -> None:
        """The client has closed its end."""
        self.story.tell("net: #%d let go", link.number)
        assert link.transport is not None
        self.transports.remove(link.transport)

    def forget(self, link: Link) -> None:
        """The broker is done with it."""
        if link in self.links:
            self.links.remove(link)

    def request_arrived(self, link: Link, request: RequestFrame, waiting: int) -> None:
        """A broker has read a request."""
        self.requests += 1
        link.client_id = request.client_id
        self.story.tell("  -> #%d %s v%d c%d", link.number, request.api_name, request.version, request.correlation_id)
        if self._acknowledged and waiting > self._max_in_flight:
            self.broken("%s: %d requests in flight, max_in_flight=%d", link, waiting, self._max_in_flight)
        self.on_request(link, request)

    def applied(self, link: Link, request: RequestFrame, answer: Answer) -> int:
        """A broker has acted on a request; returns for how many ms the client must be quiet once it has the answer."""
        self.story.tell(
            "  <- #%d c%d %s%s",
            link.number,
            request.correlation_id,
            "nothing" if answer.frame is None else f"{len(answer.frame)} bytes in {answer.delay_ms} ms",
            " and the end" if answer.close else "",
        )
        if request.message is None:
            return 0  # the answer to an unknown version of ApiVersions has version 0, which has no throttle time
        muted_until_ms: int = link.session._muted_until_ms
        return max(muted_until_ms - self.model_now_ms() - answer.delay_ms, 0)

    # --- what goes wrong ----------------------------------------------------------------------------------------------

    def is_frozen(self, node_id: int) -> bool:
        """Whether a broker is frozen."""
        return node_id in self._frozen

    def freeze(self, node_id: int) -> None:
        """Freeze a broker as SIGSTOP does: it neither reads nor answers, and continues later."""
        self._frozen[node_id] = None

    def thaw(self, node_id: int) -> None:
        """Let a frozen broker continue."""
        self._frozen.pop(node_id, None)
        for link in self.links_of(node_id):
            link.read()

    def links_of(self, node_id: int) -> list[Link]:
        """The connections of a broker, oldest first."""
        return [link for link in self.links if link.node_id == node_id]

    def kill(self, client_id: str) -> None:
        """End a client as by kill -9: it sends and receives nothing more; bytes in transit may still arrive."""
        self._dead[client_id] = self.connects
        for link in list(self.links):
            if link.client_id == client_id:
                link.swallows_up = link.swallows_down = True

    def is_ghost(self, link: Link, client_id: str | None) -> bool:
        """Whether a connection was made for a client that had already been killed."""
        return client_id is not None and link.number > self._dead.get(client_id, link.number)

    def reset(self, node_id: int) -> None:
        """Break all connections to a broker."""
        for link in self.links_of(node_id):
            link.reset()

    def heal(self) -> None:
        """Let everything work from now on."""
        self.conditions = Conditions()
        self.silent_addresses.clear()
        self.refusing.clear()
        self.no_names = False
        for node_id in list(self._frozen):
            self.thaw(node_id)
        for link in list(self.links):
            if link.swallows_up or link.swallows_down or link.swaps:
                link.reset()
            elif link.stalled:
                link.stalled = False
                link.read()
