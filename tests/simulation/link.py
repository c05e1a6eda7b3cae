"""One simulated connection: bytes in transit in both directions, and the broker that reads and answers them."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.transport import Data, MemoryTransport

if TYPE_CHECKING:
    from aioproducer.testing.fake.frames import RequestFrame
    from aioproducer.testing.fake.session import Answer, Session
    from tests.simulation.network import SimulatedNetwork


REPLICAS_S = 0.005
"""How often a broker looks whether replicas have what a request waits for."""
TICK_S = 1e-6
"""The time between two events of a connection that must stay in order: timers for the same time have no order."""


@dataclass(slots=True)
class Conditions:
    """The current state of the network, for all connections.

    Attributes:
        latency_s: (least, most) for one direction.
        cuts: how bytes arrive: ``whole``, in ``pieces`` of random size, or as ``bytes``: the first ones one by one.
        room: how many bytes a connection holds in transit to a broker; more have to wait in the client.
        work_s: (least, most) time until a broker acts on a request that it has read.
    """

    latency_s: tuple[float, float] = (0.0002, 0.001)
    cuts: str = "whole"
    room: int = 1 << 20
    work_s: tuple[float, float] = (0.0001, 0.001)


class Link:
    """One connection, see the module's docstring. As with a real broker, answers come one at a time, in order.

    Attributes:
        swallows_up, swallows_down: bytes to the broker, or from it, are lost.
        stalled: the broker does not read.
        swaps: the next answer waits until the one after it has been sent.
    """

    def __init__(self, network: SimulatedNetwork, number: int, node_id: int, session: Session) -> None:
        self.number = number
        self.node_id = node_id
        self.session = session
        self.transport: MemoryTransport | None = None
        self.client_id: str | None = None
        """The client id of its latest request."""
        self.client_gone = False
        self.swallows_up = False
        self.swallows_down = False
        self.stalled = False
        self.swaps = False
        self.quiet_from_s = 0.0
        self.quiet_until_ms = 0
        self._network = network
        self._loop = network.loop
        self._rng: random.Random = network.rng
        self._on_the_way = 0
        self._up_s = 0.0
        self._down_s = 0.0
        self._inbox: deque[bytes] = deque()
        self._requests: deque[RequestFrame] = deque()
        self._unanswered = 0
        self._busy = False
        self._dead = False
        self._loses_rest = False
        self._kept: tuple[RequestFrame, bytes, int] | None = None

    def __str__(self) -> str:
        return f"#{self.number} to {self.node_id}"

    @property
    def is_held(self) -> bool:
        """Whether the client still holds it; bytes written before it lets go may arrive later."""
        return self.transport is not None and not self.transport.is_closing()

    def attach(self, protocol: asyncio.BaseProtocol, peer: tuple[str, int], *, keeps_views: bool) -> MemoryTransport:
        """Create the client's end."""
        self.transport = MemoryTransport(self._loop, protocol, self, peer, keeps_views=keeps_views)
        self.transport.on_write = self._client_writes
        return self.transport

    def _client_writes(self) -> None:
        if self.quiet_from_s < self._loop.time() and self._loop.now_ms < self.quiet_until_ms - 1:
            self._network.broken(
                "%s was written to %d ms before its throttle ends", self, self.quiet_until_ms - self._loop.now_ms
            )

    # --- to the broker ------------------------------------------------------------------------------------------------

    def take(self, data: Data) -> int:
        taken = min(len(data), max(self._network.conditions.room - self._on_the_way, 0))
        if not taken:
            return 0
        self._on_the_way += taken
        if not self.swallows_up:
            for piece in self._cut(bytes(data[:taken])):
                self._up_s = max(self._up_s + TICK_S, self._loop.time() + self._latency())
                self._loop.call_at(self._up_s, self._reached_broker, piece)
        return taken

    def client_ended(self) -> None:
        self._network.left(self)
        self._loses_rest = self._rng.random() < 0.3
        self._up_s = max(self._up_s + TICK_S, self._loop.time() + self._latency())
        self._loop.call_at(self._up_s, self._client_gone)

    def _client_gone(self) -> None:
        self.client_gone = True
        if not self._requests and not self._inbox and not self._busy:
            self.end()

    def _reached_broker(self, piece: bytes) -> None:
        if self._dead or self._loses_rest:
            return
        self._inbox.append(piece)
        self.read()

    def read(self) -> None:
        """Let the broker read the bytes that have arrived, unless it is frozen."""
        while self._inbox and not self._dead and not self.stalled and not self._network.is_frozen(self.node_id):
            piece = self._inbox.popleft()
            self._on_the_way -= len(piece)
            for request in self.session.feed(piece):
                if self._network.is_ghost(self, request.client_id):
                    self.reset()
                    return
                self._requests.append(request)
                self._unanswered += 1
                self._network.request_arrived(self, request, self._unanswered)
            if self.session.broken is not None and not self._loses_rest:
                self._network.broken("%s: the broker can't read what the client sent: %s", self, self.session.broken)
                self.reset()
                return
            self._loop.call_soon(self.make_room)
        self.work()

    def make_room(self) -> None:
        """Accept bytes that wait in the client."""
        if self.transport is not None and not self.client_gone:
            self.transport.has_room()

    def work(self) -> None:
        """Let the broker handle the next request, unless it is frozen or busy."""
        if self._requests and not self._busy and not self._dead and not self._network.is_frozen(self.node_id):
            self._busy = True
            self._loop.call_later(self._rng.uniform(*self._network.conditions.work_s), self._apply)

    def _apply(self) -> None:
        if self._dead:
            return
        if self._network.is_frozen(self.node_id):
            self._busy = False
            return
        request = self._requests.popleft()
        self._has_applied(request, self.session.apply(request, self._network.model_now_ms()))

    def _look_again(self, request: RequestFrame) -> None:
        if self._dead:
            return
        if self._network.is_frozen(self.node_id):
            self._loop.call_later(REPLICAS_S, self._look_again, request)
        else:
            self._has_applied(request, self.session.decided(self._network.model_now_ms()))

    def _has_applied(self, request: RequestFrame, answer: Answer) -> None:
        if answer.waits:
            self._loop.call_later(REPLICAS_S, self._look_again, request)
            return
        throttle_ms = self._network.applied(self, request, answer)
        if answer.delay_ms:
            self._loop.call_later(answer.delay_ms / 1000, self._answer, request, answer, throttle_ms)
        else:
            self._answer(request, answer, throttle_ms)

    # --- to the client ------------------------------------------------------------------------------------------------

    def _answer(self, request: RequestFrame, answer: Answer, throttle_ms: int) -> None:
        self._busy = False
        self._unanswered -= 1
        if self._dead:
            return
        if answer.frame is not None and not self.swallows_down:
            if self.swaps and self._kept is None:
                self._kept = request, answer.frame, throttle_ms
            else:
                self._send(request, answer.frame, throttle_ms)
                if self._kept is not None:
                    kept, self._kept, self.swaps = self._kept, None, False
                    self._send(*kept)
        if answer.close:
            self._loop.call_at(max(self._down_s + TICK_S, self._loop.time()), self._fin)
            self._dead = True
            return
        if self.client_gone and not self._requests and not self._inbox:
            self.end()
            return
        self.work()

    def _send(self, request: RequestFrame, frame: bytes, throttle_ms: int) -> None:
        for piece in self._cut(frame):
            self._down_s = max(self._down_s + TICK_S, self._loop.time() + self._latency())
            self._loop.call_at(self._down_s, self._reached_client, piece)
        self._down_s += TICK_S
        self._loop.call_at(self._down_s, self._answer_complete, request, throttle_ms)

    def _reached_client(self, piece: bytes) -> None:
        if self.transport is not None:
            self.transport.arrived(piece)

    def _answer_complete(self, request: RequestFrame, throttle_ms: int) -> None:
        if not self.is_held:
            return
        self._network.on_answer(self, request)
        if throttle_ms:
            self.quiet_from_s = self._loop.time() + 0.001
            self.quiet_until_ms = max(self.quiet_until_ms, self._loop.now_ms + throttle_ms)

    def _fin(self) -> None:
        if self.transport is not None:
            self.transport.ended()
        self.end()

    # --- both ---------------------------------------------------------------------------------------------------------

    def _latency(self) -> float:
        return self._rng.uniform(*self._network.conditions.latency_s)

    def _cut(self, data: bytes) -> list[bytes]:
        cuts = self._network.conditions.cuts
        if cuts == "whole" or len(data) < 2:
            return [data]
        if cuts == "bytes":
            single = self._rng.randint(1, min(len(data), 12))
            return [data[at : at + 1] for at in range(single)] + ([data[single:]] if len(data) > single else [])
        places = sorted(self._rng.randrange(1, len(data)) for _ in range(self._rng.randint(1, 3)))
        return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True) if end > start]

    def end(self) -> None:
        """Close the broker's side."""
        self._dead = True
        self.session.close()
        self._network.forget(self)

    def break_off(self) -> None:
        """The client loses the connection, as if something in between had reset it; the broker reads what came."""
        if self.transport is not None:
            self.transport.reset()

    def reset(self) -> None:
        """Both sides lose the connection, and all bytes in transit."""
        self.end()
        if self.transport is not None:
            self.transport.reset()
