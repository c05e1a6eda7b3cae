"""The connections of a producer, by node id: opened on demand, closed when idle, retried with back-off.

Apart from the bootstrap, the client sends no requests of its own. A caller that wants to send asks for a
``free_connection``, calls ``connect_soon`` if there is none, and asks again after ``on_change`` or at ``retry_at_ms``;
a caller that can wait awaits ``ready_connection`` or ``any_ready_connection``.

A connection that is no longer wanted but has requests in flight is retired: it takes no more and ends when they are
answered. No new connection to its node is made before that, so a broker never has more of our requests than allowed.

``Nodes`` decides which nodes there are, which to ask and which to connect to next; its module also says when a node
gets a second connection, which ``connect_somewhere`` makes.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping

from aioproducer.client_logger import ClientLogger
from aioproducer.cluster import Broker
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import (
    AuthenticationError,
    ConnectionLostError,
    KafkaError,
    ProducerClosedError,
    RequestTimedOutError,
    ThrottlingQuotaExceededError,
)
from aioproducer.log_limit import WARN_EVERY_MS, LogLimit
from aioproducer.metrics import ProducerMetrics
from aioproducer.net.bootstrap import Bootstrap
from aioproducer.net.connection import Connection, not_written
from aioproducer.net.dialer import Dialer, Limit
from aioproducer.net.features import FinalizedFeatures
from aioproducer.net.idle import IdleTimer
from aioproducer.net.line import Line
from aioproducer.net.node import Node, ReconnectPolicy
from aioproducer.net.nodes import Nodes, held_up
from aioproducer.net.tls import Tls
from aioproducer.protocol.metadata import MetadataResponse

logger: logging.Logger = logging.getLogger("aioproducer.client")

LAST_ANSWERS_MS = 1_000
"""How long the end waits for answers that were not expected."""


def _nothing(*_: object) -> None:
    pass


class NetworkClient:
    """All connections of one producer. Everything runs on ``loop``; times are its monotonic milliseconds.

    Args:
        rng: source of the back-off jitter and of the choice between equal nodes.
        on_internal_error: gets errors that must not happen; the owner ends.
        authenticate: the step between TLS and API versions, see ``open_connection``.
        metrics: counts connections, requests and logins.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        on_internal_error: Callable[[BaseException], None],
        authenticate: Callable[[Connection], Awaitable[None]] | None = None,
        metrics: ProducerMetrics | None = None,
    ) -> None:
        self.on_change: Callable[[], None] = _nothing
        """Called when a node became ready, failed or has room again, and when no waiter takes precedence any more."""
        self.on_disconnect: Callable[[int, KafkaError], None] = _nothing
        """Called with the node id and error when a connection was lost or could not be made."""
        self.on_open: Callable[[Connection], None] = _nothing
        """Called for each connection that came up."""
        self._logger = ClientLogger(logger, config.client_id)
        self._config = config
        self._loop = loop
        self._on_internal_error = on_internal_error
        self._metrics = metrics or ProducerMetrics()
        self._dialer = Dialer(
            config,
            loop=loop,
            on_close=self._connection_closed,
            on_capacity=self._capacity_freed,
            on_internal_error=on_internal_error,
            tls=Tls(config, loop) if config.uses_tls else None,
            authenticate=authenticate,
            metrics=self._metrics,
        )
        self._checks = config.metadata_cluster_check_enable and config.metadata_recovery_strategy == "rebootstrap"
        self._cluster_id: str | None = None
        self._brokers_check = False
        """Whether the latest broker that was connected can tell whether it is the right one."""
        self._nodes = Nodes(ReconnectPolicy(config, rng), rng)
        self._features = FinalizedFeatures()
        self._open: dict[Connection, None] = {}
        self._idle_timer = IdleTimer(loop, config.connections_max_idle_ms, self._open)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._alive: dict[Connection, None] = {}
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._line_for_any = Line()
        """The callers of ``any_ready_connection`` that wait: they come before all others."""
        self._lines_for: dict[int, Line] = {}
        """The callers of ``ready_connection`` that wait, by node id; no line is empty."""
        self._warnings = LogLimit(WARN_EVERY_MS)
        self._warned_ms: dict[int, int] = {}
        """When the log first warned of each node that has not been connected since, by node id."""
        self._closed = False

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._open)

    @property
    def unreachable(self) -> KafkaError | None:
        """Why no broker can be reached; None while one is connected or at rest, or no failure is known.

        The bootstrap connection does not count: its address may not accept records.
        """
        return self._nodes.unreachable

    @property
    def refused(self) -> bool:
        """Whether a broker and this client do not accept each other, once that has lasted for some seconds."""
        return self._nodes.refused

    @property
    def bootstrapped(self) -> bool:
        """Whether the bootstrap connection still stands in for the brokers."""
        return self._nodes.bootstrap is not None

    @property
    def in_flight_count(self) -> int:
        """Requests in flight on all connections. Any thread may ask."""
        return sum(connection.in_flight_count for connection in list(self._open))

    # --- one node -----------------------------------------------------------------------------------------------------

    def free_connection(self, node_id: int, now_ms: int) -> Connection | None:
        """The connection to a node, if a request may go out now: open, not throttled, fewer in flight than allowed.

        None while ``any_ready_connection`` waits, or ``ready_connection`` for this node: those waiters get the next
        free place.
        """
        return None if self._reserved(node_id) else self._free(node_id, now_ms)

    def _reserved(self, node_id: int) -> bool:
        """Whether the next free place on the connection to a node is for a caller that waits in line."""
        return bool(self._line_for_any) or node_id in self._lines_for

    def _free(self, node_id: int, now_ms: int) -> Connection | None:
        node = self._nodes.by_id.get(node_id)
        connection = node.connection if node is not None else None
        return connection if connection is not None and connection.can_send(now_ms) else None

    def knows(self, node_id: int) -> bool:
        """Whether the cluster lists a node."""
        node = self._nodes.by_id.get(node_id)
        return node is not None and not node.gone

    def knows_at(self, node_id: int, host: str, port: int) -> bool:
        """Whether the cluster lists a node, and at this address."""
        return self.knows(node_id) and self._nodes.by_id[node_id].is_at(host, port)

    def feature(self, name: str) -> int:
        """The finalized level of a cluster feature, as last reported by a broker that knows it; 0 if there is none.

        Source: KIP-584.
        """
        return self._features.levels.get(name, 0)

    def connect_soon(self, node_id: int) -> None:
        """Start connecting to a node, unless it is connected, connecting, backing off or unknown.

        ``on_change`` is called when the attempt ends, in success or failure.
        """
        node = self._nodes.by_id.get(node_id)
        now_ms = self._now_ms()
        if node is not None and not self._closed and node.connectable(now_ms):
            self._start(node, now_ms)

    def retry_at_ms(self, node_id: int, now_ms: int) -> int | None:
        """When to check a node again: the end of its throttling or back-off, or now.

        None if only an event can change anything: ``on_change``, or the answer to a request.
        """
        node = self._nodes.by_id.get(node_id)
        if node is None or node.gone or node.connecting:
            return None
        if node.connection is None:
            return max(node.retry_at_ms, now_ms)
        if node.connection.can_send(now_ms):
            return None if self._reserved(node_id) else now_ms
        throttled_until_ms = node.connection.throttled_until_ms
        return throttled_until_ms if throttled_until_ms > now_ms else None

    def authentication_error(self, node_id: int) -> AuthenticationError | None:
        """Why a node and this client do not accept each other, once that has lasted for some seconds."""
        node = self._nodes.by_id.get(node_id)
        return node.authentication_error if node is not None else None

    def error_of(self, node_id: int) -> KafkaError | None:
        """Why nothing goes to a node: the end of the latest attempt or connection, or throttling; else None."""
        node = self._nodes.by_id.get(node_id)
        if node is None or node.connection is None:
            return node.error if node is not None else None
        left_ms = node.connection.throttled_until_ms - self._now_ms()
        if left_ms <= 0:
            return None
        told = f"{node} throttles this client for another {left_ms / 1000:.0f} s, as a quota of the cluster is exceeded"
        return not_written(ThrottlingQuotaExceededError(told))

    async def ready_connection(self, node_id: int, deadline_ms: int) -> Connection:
        """Wait until a node can take a request, connecting to it as often as its back-off allows.

        Takes precedence over callers of ``free_connection``, so that a full load of records does not delay it; among
        themselves, callers are served in order of arrival. The caller must send in the same turn of the loop, or the
        place may be taken.

        Raises:
            AuthenticationError: the broker and this client do not accept each other.
            ConnectionLostError: the deadline has passed, or the cluster does not list the node.
            ProducerClosedError: the client was closed.
        """
        self._check_open()
        connection = self._free(node_id, self._now_ms()) if node_id not in self._lines_for else None
        if connection is not None:
            return connection
        line = self._lines_for.setdefault(node_id, Line())
        try:
            async with line.turn(deadline_ms):
                return await self._node_free(node_id, deadline_ms)
        finally:
            if not line:
                del self._lines_for[node_id]
                self._loop.call_soon(self._changed_now)  # after the caller has sent, the others may go on

    async def _node_free(self, node_id: int, deadline_ms: int) -> Connection:
        while True:
            now_ms = self._now_ms()
            self._check_open()
            node = self._nodes.by_id.get(node_id)
            if node is None or node.gone:
                raise not_written(ConnectionLostError(f"the cluster has no node {node_id}"))
            connection = self._free(node_id, now_ms)
            if connection is not None:
                return connection
            if now_ms >= deadline_ms:
                raise not_written(ConnectionLostError(f"{node} was not ready in time")) from node.error
            self.connect_soon(node_id)
            if node.authentication_error is not None and not node.connecting:
                raise copy.copy(node.authentication_error)
            await self._changed(now_ms, deadline_ms, self.retry_at_ms(node_id, now_ms))

    # --- any node -----------------------------------------------------------------------------------------------------

    def least_loaded(self, now_ms: int, *, but_not: Collection[Connection] = ()) -> Connection | None:
        """The connection that can take a request and has the fewest in flight; None if there is none.

        A held-up connection comes after the others. Among equals, the bootstrap connection comes last if it belongs to
        no node.
        """
        return self._nodes.least_loaded(now_ms, but_not=but_not)

    def connect_somewhere(self, now_ms: int) -> asyncio.Task[None] | None:
        """Start connecting to one more node: the one left alone for longest among those that may be tried now.

        If there is none, make a second connection to a node whose own is held up. Does nothing while another attempt
        is recent enough to wait for.

        Returns:
            The attempt's task; it ends without an error when the attempt ends.
        """
        node = None if self._closed else self._nodes.to_connect(now_ms)
        return self._start(node, now_ms) if node is not None else None

    @property
    def all_failed(self) -> bool:
        """Whether no broker is connected, and all are out of reach, even if they are being tried again."""
        return self._nodes.all_failed

    async def any_ready_connection(self, deadline_ms: int) -> Connection:
        """Wait until some node can take a request, and return the least loaded such connection.

        Takes precedence over callers of ``free_connection``, so metadata can be fetched under throttling and full load;
        among themselves, callers are served in order of arrival. The caller must send in the same turn of the loop, or
        the place may be taken.

        Raises:
            ConnectionLostError: the deadline has passed; or, at once, no broker is connected or may be tried now, with
                the newest failure as the cause.
            AuthenticationError: the same, if that failure is one.
            ProducerClosedError: the client was closed.
        """
        now_ms = self._now_ms()
        connection = self._nodes.least_loaded(now_ms) if not self._line_for_any else None
        if connection is not None:
            return connection
        try:
            async with self._line_for_any.turn(deadline_ms):
                return await self._first_free(deadline_ms)
        finally:
            if not self._line_for_any:
                self._loop.call_soon(self._changed_now)  # after the caller has sent, the others may go on

    async def _first_free(self, deadline_ms: int) -> Connection:
        while True:
            now_ms = self._now_ms()
            self._check_open()
            connection = self._nodes.least_loaded(now_ms)
            if connection is not None:
                return connection
            if self._nodes.exhausted(now_ms):
                raise self._nodes.newest_failure()
            if now_ms >= deadline_ms:
                raise not_written(ConnectionLostError("no broker was ready in time")) from self._nodes.newest_failure()
            self.connect_somewhere(now_ms)
            await self._changed(now_ms, deadline_ms, self._nodes.next_look_ms(now_ms))

    def serving(self, api_key: int, *, rather: int | None = None) -> Connection | None:
        """A connection to a broker that knows an API: preferably that of node ``rather``, else the one with the fewest
        requests in flight, busy or not; None if no open one does. Makes no new connection.
        """
        return self._nodes.serving(api_key, rather=rather)

    async def when_free(self, connection: Connection, deadline_ms: int) -> Connection:
        """Wait until a connection can take a request; if it is lost meanwhile, use its node's next one.

        The caller must send in the same turn of the loop, or the place may be taken.

        Raises:
            KafkaError: as for ``ready_connection``.
        """
        while not connection.can_send(now_ms := self._now_ms()):
            if self.knows(connection.node_id):
                return await self.ready_connection(connection.node_id, deadline_ms)
            self._check_open()
            if connection.closed or now_ms >= deadline_ms:
                raise not_written(ConnectionLostError(f"{connection} was not ready in time"))
            throttled_until_ms = connection.throttled_until_ms
            await self._changed(now_ms, deadline_ms, throttled_until_ms if throttled_until_ms > now_ms else None)
        return connection

    # --- which nodes there are ----------------------------------------------------------------------------------------

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        """Adopt the cluster's list of brokers: new ones, changed addresses, and those that are gone."""
        self._nodes.update(brokers)
        self._tell_who_is_back()  # by the bootstrap connection, or no longer one of them

    async def bootstrap(self, deadline_ms: int | None = None, *, stops_at_refusal: bool = True) -> MetadataResponse:
        """Try ``bootstrap_servers`` in order until one lists the brokers; returns that answer, without topics.

        Each address has min(``request_timeout_ms``, ``socket_connection_setup_timeout_ms``) to become ready for
        requests. The connection stays open; a node takes it over if ``set_brokers`` names one at its address.

        Args:
            deadline_ms: for all addresses together.
            stops_at_refusal: whether no other address is tried after one that does not accept this client.
        Raises:
            BootstrapError: none did; it lists each address with its cause.
            AuthenticationError: one of them and this client do not accept each other, and no other did better.
            ProducerClosedError: the client was closed.
        """
        connection, response = await Bootstrap(
            self._config, self._dialer, self._loop, deadline_ms, stops_at_refusal=stops_at_refusal
        ).run()
        if not connection.ended:  # it may have ended right after its answer, before it was ours
            self._register(connection)
        if self._closed:
            connection.abort()
            await connection.wait_closed()
        self._check_open()
        self._nodes.replace_bootstrap(None if connection.ended else connection)
        self._changed_now()
        return response

    async def rebootstrap(self) -> MetadataResponse:
        """Close every connection and bootstrap again. What is known of the nodes stays until ``set_brokers``.

        A broker that does not accept this client may just have started, or not be one of the cluster any more: then the
        other addresses are tried.

        Raises:
            BootstrapError, AuthenticationError, ProducerClosedError: as for ``bootstrap``.
        """
        self.abort_all(ConnectionLostError("the connection was closed to start again from bootstrap_servers"))
        return await self.bootstrap(stops_at_refusal=False)

    def leave_brokers(self, error: KafkaError) -> None:
        """The bootstrap connection leads to another cluster: end all other connections, and forget the features."""
        self._nodes.cancel_attempts()
        self._features = FinalizedFeatures()
        for connection in list(self._open):
            if connection is self._nodes.bootstrap:
                self._features.take(connection.api_versions)
            else:
                connection.abort(error)

    def name_cluster(self, cluster_id: str) -> None:
        """From now on, brokers that can tell refuse connections that are meant for another one, or another cluster.

        Source: KIP-1242.
        """
        self._cluster_id = cluster_id

    # --- connections come and go --------------------------------------------------------------------------------------

    def _start(self, node: Node, now_ms: int) -> asyncio.Task[None]:
        task = self._loop.create_task(self._connect(node), name=f"aioproducer connect to {node}")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._attempt_ended(done, node))
        if not task.done():
            node.attempted(task, now_ms)
        return task

    def _attempt_ended(self, task: asyncio.Task[None], node: Node) -> None:
        """If the program cancelled it, perhaps before its first step, the node must not go on counting as connecting.

        An attempt that this client has cancelled is no longer the node's.
        """
        self._tasks.pop(task, None)
        if task.cancelled() and node.task is task:
            node.failed(ConnectionLostError(f"{node}: the attempt to connect was cancelled"), self._now_ms())
            self._changed_now()

    async def _connect(self, node: Node) -> None:
        """One attempt. If the node moves or disappears, it is cancelled and then does not touch the node."""
        task = asyncio.current_task()
        if node.task is None and task is not None:  # an eager task runs before its creator can set it on the node
            node.attempted(task, self._now_ms())
        try:
            connection = await self._dialer.dial(
                node.host,
                node.port,
                node_id=node.node_id,
                limit=Limit(node.limit_ms()),
                after=node.last_address,
                cluster_id=self._cluster_id if self._brokers_check else None,
            )
        except KafkaError as error:
            if node.task is not asyncio.current_task():
                return  # given up meanwhile, and another attempt may be under way
            node.failed(error, self._now_ms())
            if self._nodes.by_id.get(node.node_id) is node:  # a second connection says nothing about the first
                self._warn(node, error)
                self.on_disconnect(node.node_id, error)
        except Exception as error:
            self._on_internal_error(error)
            node.failed(ConnectionLostError(f"{node}: {error!r}"), self._now_ms())
        else:
            if node.task is not asyncio.current_task():
                # Given up, but something on the way ignored the cancellation, such as a token provider.
                connection.abort()
                await connection.wait_closed()
                return
            self._register(connection)
            node.connected(connection)
            self._tell_who_is_back()
            self._nodes.retire_bootstrap()
        self._changed_now()

    def _register(self, connection: Connection) -> None:
        self._features.take(connection.api_versions)
        self._brokers_check = self._checks and connection.knows_who_it_is
        self._open[connection] = self._alive[connection] = None
        self._metrics.record_connection_opened(self._now_ms())
        connection.add_ended_callback(lambda: self._alive.pop(connection, None))
        self._idle_timer.watch()
        self.on_open(connection)

    def _connection_closed(self, connection: Connection, error: KafkaError | None) -> None:
        if connection in self._open:
            del self._open[connection]
            self._metrics.record_connection_closed(self._now_ms())
        on_purpose = error is None or connection.retiring
        node = self._nodes.disconnected(connection, None if on_purpose else error, self._now_ms())
        if node is not None and isinstance(error, RequestTimedOutError):
            self._warn(node, error)
        if error is not None:
            self.on_disconnect(connection.node_id, error)
        self._changed_now()

    def _warn(self, node: Node, error: KafkaError) -> None:
        """Warn of a broker that is unreachable or silent: its records report it only when they time out.

        A connection that a broker ends is not worth a warning, as each restart does that; a failed reconnect is.
        """
        now_ms = self._now_ms()
        if self._warnings.allows(now_ms, str(node)):
            self._warned_ms.setdefault(node.node_id, now_ms)
            self._logger.warning("node %d: %s", node.node_id, str(error))

    def _tell_who_is_back(self) -> None:
        """Whoever reads the warnings later wants to know when the trouble was over."""
        for node_id, since_ms in list(self._warned_ms.items()):
            node = self._nodes.by_id.get(node_id)
            if node is not None and node.connection is not None:
                self._logger.info("node %d: connected again, after %d s", node_id, (self._now_ms() - since_ms) // 1000)
            if node is None or node.connection is not None:
                del self._warned_ms[node_id]

    def _capacity_freed(self, connection: Connection) -> None:
        aside = self._nodes.asides.get(connection.node_id)
        if aside is not None and aside.connection is not connection and not held_up(connection, self._now_ms()):
            self._nodes.end_aside(connection.node_id)
        self._changed_now()

    def abort_all(self, error: KafkaError | None = None) -> None:
        """End every connection and every attempt now; requests in flight get the error."""
        self._nodes.cancel_attempts()
        for connection in list(self._open):
            connection.abort(error)

    async def written(self, deadline_ms: int) -> None:
        """Wait until every request that expects no answer has left the process, or the deadline has passed.

        Some brokers answer such requests too. Wait for these answers as well, for a while: a connection that ends with
        unread bytes is reset by the system, and the broker loses what it has not read.
        """
        while any(connection.is_writing for connection in self._open) and (now_ms := self._now_ms()) < deadline_ms:
            await self._changed(now_ms, deadline_ms, None)
        deadline_ms = min(deadline_ms, self._now_ms() + LAST_ANSWERS_MS)
        while any(each.unexpected_is_due for each in self._open) and (now_ms := self._now_ms()) < deadline_ms:
            await self._changed(now_ms, deadline_ms, None)

    async def close(self) -> None:
        """End everything for good: connections, attempts, waits, timers. Idempotent."""
        self.drop()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for connection in list(self._alive):
            await connection.wait_closed()

    def drop(self) -> None:
        """Like ``close``, without waiting for tasks to end."""
        self._closed = True
        self._idle_timer.end()
        self.abort_all()
        for task in self._tasks:
            task.cancel()
        self._changed_now()

    def _check_open(self) -> None:
        if self._closed:
            raise ProducerClosedError("the producer was closed")

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _changed_now(self) -> None:
        for waiter in self._waiters:
            _wake(waiter)
        self.on_change()

    async def _changed(self, now_ms: int, deadline_ms: int, look_again_ms: int | None) -> None:
        """Wait for a change, the next look or the deadline."""
        until_ms = deadline_ms if look_again_ms is None else min(deadline_ms, max(look_again_ms, now_ms))
        waiter = self._loop.create_future()
        self._waiters[waiter] = None
        timer = self._loop.call_at((until_ms + 1) / 1000, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            del self._waiters[waiter]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
