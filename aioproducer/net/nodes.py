"""Nodes: the brokers of the cluster by id, the connections to them, which to ask and which to connect to next.

A broker answers the requests of a connection in order, so a Produce that it can't answer yet holds up later requests.
If no other broker is left to ask, the node gets a second connection besides its own. It is for callers that accept any
connection, never for records, and ends once the first is no longer held up.

The bootstrap connection becomes that of the node at its address, if there is one; until then it can be used in place of
any, and it is closed once some node is connected.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Collection, Iterator, Mapping
from operator import itemgetter

from aioproducer.cluster import Broker
from aioproducer.errors import AuthenticationError, ConnectionLostError, KafkaError
from aioproducer.net.connection import Connection, not_written
from aioproducer.net.node import Node, ReconnectPolicy

SLOW_MS = 1_000
"""After this long without a result, a connection attempt or metadata request no longer keeps us from asking another
broker concurrently: a broker that hangs must not hold up what others could answer."""


def held_up(connection: Connection, now_ms: int) -> bool:
    """Whether the oldest request of a connection has waited too long for others to queue behind it.

    Not while the broker throttles: it then delays answers on purpose, also those to later requests.
    """
    since_ms = connection.unanswered_since_ms
    return since_ms is not None and since_ms + SLOW_MS <= now_ms and connection.throttled_until_ms <= now_ms


class Nodes:
    """The nodes of one client. It starts no attempts itself; its owner reports each connection that ended.

    Args:
        policy: shared by all nodes.
        rng: source of the choice between equal nodes.
    """

    def __init__(self, policy: ReconnectPolicy, rng: random.Random) -> None:
        self.by_id: dict[int, Node] = {}
        """Nodes that the cluster lists, and unlisted ones whose connection has not ended."""
        self.asides: dict[int, Node] = {}
        """Second connections to nodes whose own is held up, by the same ids."""
        self.bootstrap: Connection | None = None
        """The bootstrap connection, while it belongs to no node."""
        self._policy = policy
        self._rng = rng

    # --- which nodes there are ----------------------------------------------------------------------------------------

    def update(self, brokers: Mapping[int, Broker]) -> None:
        """Adopt the cluster's list of brokers: new ones, changed addresses, and those that are gone."""
        for node_id, broker in brokers.items():
            node = self.by_id.get(node_id)
            if node is None:
                self.by_id[node_id] = Node(broker, self._policy)
            else:
                node.gone = False
                if not node.is_at(broker.host, broker.port):
                    node.moved(broker)
                    self._give_up(node)
        for node in list(self.by_id.values()):
            if node.node_id not in brokers:
                node.gone = True
                self._give_up(node)
                self._forget_if_gone(node)
        self._adopt_bootstrap()

    def disconnected(self, connection: Connection, error: KafkaError | None, now_ms: int) -> Node | None:
        """A connection ended; without an error it was on purpose.

        Returns:
            The node whose own connection it was.
        """
        if self.bootstrap is connection:
            self.bootstrap = None
        node, aside = self.by_id.get(connection.node_id), self.asides.get(connection.node_id)
        if aside is not None and aside.connection is connection:
            aside.disconnected(error, now_ms)
        elif node is not None and node.connection is connection:
            node.disconnected(error, now_ms)
            self.end_aside(node.node_id)
            self._forget_if_gone(node)
            return node
        return None

    def replace_bootstrap(self, connection: Connection | None) -> None:
        """Replace the bootstrap connection by another one, or by none if it is no longer needed."""
        previous, self.bootstrap = self.bootstrap, connection
        if previous is not None:
            previous.close_when_idle()

    def retire_bootstrap(self) -> None:
        """Close the bootstrap connection once a node is connected."""
        if self.bootstrap is not None and any(node.connection is not None for node in self.by_id.values()):
            self.replace_bootstrap(None)

    def end_aside(self, node_id: int) -> None:
        """Send nothing more over a node's second connection; requests in flight there are still answered."""
        aside = self.asides.pop(node_id, None)
        if aside is not None:
            aside.give_up()

    def cancel_attempts(self) -> None:
        """End every attempt now. Second connections take no more requests."""
        for node_id in list(self.asides):
            self.end_aside(node_id)
        for node in self.by_id.values():
            node.cancel_attempt()

    def _adopt_bootstrap(self) -> None:
        """Give the bootstrap connection to the node at its address; else it is closed once a node is connected."""
        connection = self.bootstrap
        if connection is None:
            return
        for node in self.by_id.values():
            if node.is_at(connection.host, connection.port) and node.connectable(node.retry_at_ms):
                self.bootstrap = None
                connection.belongs_to(node.node_id)
                node.connected(connection)
                return

    def _give_up(self, node: Node) -> None:
        """End the connections to the node's former address, and its second connection."""
        self.end_aside(node.node_id)
        node.give_up()

    def _forget_if_gone(self, node: Node) -> None:
        if node.gone and node.connection is None:
            self.by_id.pop(node.node_id, None)  # giving up an idle connection ends it, and comes here too

    # --- which node to ask --------------------------------------------------------------------------------------------

    def least_loaded(self, now_ms: int, *, but_not: Collection[Connection] = ()) -> Connection | None:
        """The connection that can take a request and has the fewest in flight; None if there is none.

        A held-up connection comes after the others. Among equals, the bootstrap connection comes last if it belongs to
        no node.
        """
        best: Connection | None = None
        best_load = (False, 0)
        for connection in self._candidates():
            if connection not in but_not and connection.can_send(now_ms):
                if not connection.in_flight_count:
                    return connection
                load = (held_up(connection, now_ms), connection.in_flight_count)
                if best is None or load < best_load:
                    best, best_load = connection, load
        return best

    def serving(self, api_key: int, *, rather: int | None = None) -> Connection | None:
        """A connection to a broker that knows an API: preferably that of node ``rather``, else the one with the fewest
        requests in flight, busy or not; None if no open one does.
        """
        serving = [
            connection
            for connection in self._candidates()
            if not connection.closed and not connection.retiring and connection.api_range(api_key) is not None
        ]
        same = [connection for connection in serving if connection.node_id == rather]
        return min(same or serving, key=lambda connection: connection.in_flight_count, default=None)

    def _candidates(self) -> Iterator[Connection]:
        for node in self._in_random_order():
            if node.connection is not None:
                yield node.connection
        for aside in self.asides.values():
            if aside.connection is not None:
                yield aside.connection
        if self.bootstrap is not None:
            yield self.bootstrap

    def _in_random_order(self) -> list[Node]:
        nodes = list(self.by_id.values())
        start = self._rng.randrange(len(nodes)) if len(nodes) > 1 else 0
        return nodes[start:] + nodes[:start]

    # --- which node to connect to -------------------------------------------------------------------------------------

    def to_connect(self, now_ms: int) -> Node | None:
        """The node to connect to next: the one left alone for longest among those that may be tried now.

        If there is none, a second connection to a node whose own is held up. Also None while another attempt is recent
        enough to wait for.
        """
        attempts = [*self.by_id.values(), *self.asides.values()]
        if any(node.connecting and node.attempted_ms + SLOW_MS > now_ms for node in attempts):
            return None
        free = [node for node in self._in_random_order() if node.connectable(now_ms)]
        free = free or [aside for aside in self._asides_of_held_up(now_ms) if aside.connectable(now_ms)]
        return min(free, key=lambda node: node.attempted_ms, default=None)

    def _asides_of_held_up(self, now_ms: int) -> list[Node]:
        for node in self._in_random_order():
            connection = node.connection
            if connection is not None and not connection.closed and held_up(connection, now_ms):
                self.asides.setdefault(node.node_id, Node(Broker(node.node_id, node.host, node.port), self._policy))
        return list(self.asides.values())

    def exhausted(self, now_ms: int) -> bool:
        """Whether no broker is connected or connecting, and none may be tried now."""
        if self.bootstrap is not None and not self.bootstrap.closed:
            return False
        return not any(
            node.connection is not None or node.connecting or node.connectable(now_ms) for node in self.by_id.values()
        )

    @property
    def all_failed(self) -> bool:
        """Whether no broker is connected, and all are out of reach, even if they are being tried again.

        Where packets to all of them are dropped, attempts last for seconds and pauses for milliseconds, so there is
        hardly a moment when none is connecting.
        """
        if self.bootstrap is not None and not self.bootstrap.closed:
            return False
        return all(node.connection is None and node.out_of_reach for node in self.by_id.values())

    @property
    def refused(self) -> bool:
        """Whether a broker and this client do not accept each other, once that has lasted for some seconds."""
        return any(node.authentication_error is not None for node in self.by_id.values())

    def next_look_ms(self, now_ms: int) -> int | None:
        """When another node becomes usable, or worth trying, just by the passing of time."""
        candidates, nodes = list(self._candidates()), [*self.by_id.values(), *self.asides.values()]
        times = [connection.throttled_until_ms for connection in candidates]
        unanswered = [connection.unanswered_since_ms for connection in candidates]
        times += [since_ms + SLOW_MS for since_ms in unanswered if since_ms is not None]
        times += [node.retry_at_ms for node in nodes if node.connection is None and not node.connecting]
        times += [node.attempted_ms + SLOW_MS for node in nodes if node.connecting]
        return min((time_ms for time_ms in times if time_ms > now_ms), default=None)

    # --- why none can be reached --------------------------------------------------------------------------------------

    @property
    def unreachable(self) -> KafkaError | None:
        """Why no broker can be reached; None while one is connected or at rest, or no failure is known.

        The bootstrap connection does not count: its address may not accept records. Any thread may ask.
        """
        nodes = list(self.by_id.values())  # a copy, as others may come meanwhile
        if any(node.connection is not None or node.rests for node in nodes):
            return None
        if all(node.error is None for node in nodes):
            return None
        return self.newest_failure()

    def newest_failure(self) -> KafkaError:
        """The error of the node tried last, among those that failed."""
        nodes = list(self.by_id.values())
        failed = [(node.attempted_ms, error) for node in nodes if (error := node.error) is not None]
        if not failed:
            return not_written(ConnectionLostError("no broker is known"))
        _, error = max(failed, key=itemgetter(0))
        if isinstance(error, AuthenticationError):
            return copy.copy(error)
        lost = not_written(ConnectionLostError(f"no broker can be reached: {error}"))
        lost.__cause__ = error
        return lost
