"""Sender: drains batches to the brokers and handles their answers.

Theory of operation. One task sleeps until something may have changed: a batch became ready, a deadline passed, a broker
answered, a connection came or went. Then it makes one pass: expire what is too old, ask the accumulator which brokers
have ready batches, and send one request after the other to those that can take them. Answers are handled in the turn of
the loop that reads them: batch_outcomes.py ends their batches or queues them again, and the task wakes.

    drain -> (seal in a worker) -> number -> send -> answer -> acknowledged | requeue | split | failed
                                                  `-> none, the connection ended: in doubt -> requeue | failed

A slow, throttled or unreachable broker holds up no other: its partitions wait in its own ready queue, and what would go
next is compressed meanwhile. Only partitions that are new to a transaction wait for each other
(transaction/partitions.py).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from aioproducer._produce import (
    PartitionProduceResponse,
    all_have_topic_ids,
    decode_produce_response,
    encode_produce_request,
    fixed_bytes,
    match_answers,
    topic_names,
)
from aioproducer.batch_outcomes import of_batch
from aioproducer.cluster import NO_LEADER, Broker, LeaderHint
from aioproducer.error_codes import Code
from aioproducer.errors import KafkaError, ProtocolError, UnsupportedVersionError
from aioproducer.net.apis import throttled_by_client
from aioproducer.protocol.produce import ProduceRequest

if TYPE_CHECKING:
    from aioproducer._accumulator import RecordAccumulator
    from aioproducer._producer_batch import ProducerBatch
    from aioproducer.batch_outcomes import BatchOutcomes
    from aioproducer.config.producer_config import ProducerConfig
    from aioproducer.metadata import Metadata
    from aioproducer.metrics import ProducerMetrics
    from aioproducer.net.client import NetworkClient
    from aioproducer.net.connection import Connection
    from aioproducer.sealer import Sealer
    from aioproducer.transaction.manager import TransactionManager

ZSTD_SINCE_VERSION = 7
TOPIC_IDS_SINCE_VERSION = 13
TOUCHES = 5
"""How often Metadata hears that a topic is in use within ``metadata_max_idle_ms``, after which it forgets it."""

WRITTEN_A_TURN = 1_000_000
"""After this many bytes to one broker the loop gets its turn, even if more requests may go: copying takes 0.3 ms. A
request of two full batches has more."""

HINTED = frozenset((Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH))
"""Codes with which an answer may name the new leader (KIP-951)."""


class ProduceCall:
    """One Produce request in flight: its batches, its broker, and the name or id by which the answer lists each topic.

    A topic recreated while the request is in flight gets a new id; the answer still has the old one.
    """

    __slots__ = ("batches", "connection", "names", "node_id", "sent_ms", "version")

    def __init__(
        self,
        batches: list[ProducerBatch],
        connection: Connection,
        version: int,
        sent_ms: int,
    ) -> None:
        self.batches = batches
        self.connection = connection
        self.node_id = connection.node_id
        self.version = version
        self.sent_ms = sent_ms
        self.names = topic_names(batches, version)


class Sender:
    """The sender task of one producer, on ``loop``.

    Args:
        on_progress: called after batches ended or memory came back.
        on_fatal: gets an error after which the producer can do nothing more.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        accumulator: RecordAccumulator,
        sequences: TransactionManager,
        client: NetworkClient,
        metadata: Metadata,
        metrics: ProducerMetrics,
        sealer: Sealer,
        outcomes: BatchOutcomes,
        on_progress: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
        request_producer_id: Callable[[], None],
    ) -> None:
        self._config = config
        self._loop = loop
        self._accumulator = accumulator
        self._sequences = sequences
        self._client = client
        self._metadata = metadata
        self._metrics = metrics
        self._sealer = sealer
        self._outcomes = outcomes
        self._on_progress = on_progress
        self._on_fatal = on_fatal
        self._request_producer_id = request_producer_id
        self._client_id = config.client_id.encode()
        self._transactional_id = config.transactional_id.encode() if config.transactional_id is not None else None
        self._topics_bytes = config.max_request_size - fixed_bytes(self._client_id, self._transactional_id)
        self._touch_every_ms = config.metadata_max_idle_ms // TOUCHES
        self._produce_calls: dict[int, int] = {}
        self._awake = False
        self._sleeper: asyncio.Future[None] | None = None
        accumulator.on_wake = self.wake
        client.on_change = self.wake

    # --- the task -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            self._awake = False
            deadline_ms = self._pass(self._now_ms())
            await self._sleep(deadline_ms)

    def wake(self) -> None:
        """Make a pass in the next turn of the loop."""
        self._awake = True
        # Taken first: a signal handler or finalizer that runs in between may also wake the task.
        sleeper, self._sleeper = self._sleeper, None
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def _sleep(self, deadline_ms: int) -> None:
        """Until wake(), or until `deadline_ms` (-1: no deadline)."""
        sleeper = self._sleeper = self._loop.create_future()
        if self._awake:  # checked last: from here on wake() finds the future
            self._sleeper = None
            await asyncio.sleep(0)
            return
        timer = None
        if deadline_ms >= 0:
            # A clock in whole milliseconds reaches the deadline only after the real clock has passed it.
            timer = self._loop.call_at((deadline_ms + 0.1) / 1000, self.wake)
        try:
            await sleeper
        finally:
            self._sleeper = None
            if timer is not None:
                timer.cancel()

    def _pass(self, now_ms: int) -> int:
        """Send everything that can go now; returns when to look again."""
        if self._outcomes.expire(now_ms):
            self._on_progress()
        nodes, deadline_ms = self._accumulator.ready(now_ms, self._produce_calls)
        if nodes and self._sequences.needs_producer_id:
            self._request_producer_id()
        for node_id in nodes:
            if node_id == NO_LEADER:
                self._metadata.request_update()
            elif (connection := self._client.free_connection(node_id, now_ms)) is not None:
                self._send_all(connection, now_ms)
            else:
                self._accumulator.node_stalled(node_id, now_ms)
                self._client.connect_soon(node_id)
                retry_ms = self._client.retry_at_ms(node_id, now_ms)
                if retry_ms is not None:  # else a connection attempt is under way, and may succeed now
                    self._fail_refused(node_id, now_ms)
                if retry_ms is not None and retry_ms > now_ms and (deadline_ms < 0 or retry_ms < deadline_ms):
                    deadline_ms = retry_ms
                self._seal_ahead(node_id, now_ms)
        return deadline_ms

    def _fail_refused(self, node_id: int, now_ms: int) -> None:
        """Fail what is ready for a broker that does not accept this client: waiting would not help."""
        refusal = self._client.authentication_error(node_id)
        if refusal is None:
            return
        failed = False
        while True:
            batches, _ = self._accumulator.drain(
                node_id, self._topics_bytes, now_ms, self._sequences.may_send, sys.maxsize
            )
            for batch in batches:
                self._outcomes.fail(batch, of_batch(refusal, batch), now_ms)
            if not batches:
                break
            failed = True
        if failed:
            self._on_progress()

    def _send_all(self, connection: Connection, now_ms: int) -> None:
        """Send requests while there are batches and the connection takes them, at most WRITTEN_A_TURN in this turn."""
        node_id, written_bytes = connection.node_id, 0
        while written_bytes < WRITTEN_A_TURN:
            batches, unsealed = self._accumulator.drain(
                node_id, self._topics_bytes, now_ms, self._sequences.may_send, self._sealer.inline_bytes
            )
            if unsealed:
                self._sealer.seal_in_workers(unsealed)
            if not batches:
                return
            written_bytes += self._send(connection, batches, now_ms)
            if self._client.free_connection(node_id, now_ms) is not connection:
                self._seal_ahead(node_id, now_ms)
                return
        self.wake()  # the rest in the next turn

    def _seal_ahead(self, node_id: int, now_ms: int) -> None:
        """Have compressed what waits for a broker that takes no request, so that it fills the next ones at once."""
        if self._sealer.inline_bytes:
            unsealed = self._accumulator.take_unsealed(
                node_id, now_ms, self._sequences.may_send, self._sealer.inline_bytes
            )
            if unsealed:
                self._sealer.seal_in_workers(unsealed)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send(self, connection: Connection, batches: list[ProducerBatch], now_ms: int) -> int:
        """Number, seal and write one request; returns its size in bytes. An error here concerns only its batches."""
        self._sequences.number_all(batches)
        self._sealer.seal_all(batches)
        try:
            version = self._version(connection, batches)
        except UnsupportedVersionError as error:
            for batch in batches:
                self._outcomes.fail(batch, of_batch(error, batch), now_ms)
            self._on_progress()
            return 0
        correlation_id = connection.next_correlation_id()
        buffers = encode_produce_request(
            version,
            correlation_id,
            self._client_id,
            self._transactional_id,
            self._config.acks,
            self._config.request_timeout_ms,
            batches,
        )
        call = ProduceCall(batches, connection, version, now_ms)  # now that encoding has put them in their order
        for topic in self._accumulator.handed_over(batches, now_ms, self._touch_every_ms):
            self._metadata.touch(topic, now_ms)
        acknowledges = self._config.acks != 0
        self._produce_calls[call.node_id] = self._produce_calls.get(call.node_id, 0) + 1
        size_bytes = connection.send_frame(
            buffers,
            correlation_id,
            ProduceRequest.API_KEY,
            self._config.request_timeout_ms,
            (lambda frame: self._answered(call, frame)) if acknowledges else None,
            lambda error: self._unanswered(call, error),
            lambda: self._latest_ms(call),
        )
        self._metrics.record_batches_sent(batches, now_ms)
        if not acknowledges:
            self._call_ended(call)
            for batch in batches:
                self._outcomes.acknowledge(batch, -1, -1)
            self._on_progress()
        return size_bytes

    def _latest_ms(self, call: ProduceCall) -> int:
        """The latest time of an answer that still frees the memory of meanwhile expired batches in time."""
        oldest_ms = min(batch.created_ms for batch in call.batches)
        return oldest_ms + self._config.delivery_timeout_ms + self._config.request_timeout_ms

    def _version(self, connection: Connection, batches: list[ProducerBatch]) -> int:
        version = self._sequences.produce_version(connection.version(ProduceRequest))
        if self._config.compression_type == "zstd" and version < ZSTD_SINCE_VERSION:
            raise UnsupportedVersionError(
                f"compression_type=zstd needs Kafka 2.1 or newer, {connection} speaks Produce {version} at most"
            )
        if version >= TOPIC_IDS_SINCE_VERSION and not all_have_topic_ids(batches):
            return TOPIC_IDS_SINCE_VERSION - 1
        return version

    def _call_ended(self, call: ProduceCall) -> None:
        self._sequences.request_ended(call.batches)
        left = self._produce_calls[call.node_id] - 1
        if left:
            self._produce_calls[call.node_id] = left
        else:
            del self._produce_calls[call.node_id]

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answered(self, call: ProduceCall, frame: bytes) -> None:
        """End the batches of a request according to its answer. A ProtocolError is raised before anything is done."""
        response = decode_produce_response(call.version, frame)
        try:
            answers = match_answers(response.partitions, call.batches, call.names)
        except KeyError:
            raise ProtocolError(f"{call.connection} left a partition out of its answer to Produce") from None
        now_ms = self._now_ms()
        self._call_ended(call)
        self._metrics.record_answer(call.connection.traffic, now_ms - call.sent_ms, response.throttle_time_ms, now_ms)
        if response.throttle_time_ms > 0 and throttled_by_client(ProduceRequest.API_KEY, call.version):
            call.connection.throttle(now_ms + response.throttle_time_ms)
        fatal: KafkaError | None = None
        is_stale = False
        hints: list[LeaderHint] = []
        refused = self._outcomes.acknowledge_good(call.batches, answers)
        if len(refused) < len(answers):
            call.connection.in_charge = True
        for batch, answer in refused:
            error = self._outcomes.answered(batch, answer, call.connection, now_ms)
            if answer.error_code == Code.NOT_LEADER_OR_FOLLOWER:
                call.connection.doubt(batch.attempts)
            if error is not None and error.refresh_metadata:
                is_stale = True
                hints += _hints(batch, answer)
            if error is not None and error.fatal:
                fatal = error
        if hints:
            brokers = [Broker.told(*endpoint) for endpoint in response.node_endpoints]
            self._metadata.apply_leader_hints(hints, brokers)
        if is_stale:
            self._metadata.request_update()
        if fatal is not None:
            self._on_fatal(fatal)  # last, as it fails everything that has not ended
        self._on_progress()
        self.wake()

    def _unanswered(self, call: ProduceCall, error: KafkaError) -> None:
        """The connection ended before the answer: everything handed to it may have been written."""
        if self._config.acks == 0:
            return  # its batches ended when they were handed over
        now_ms = self._now_ms()
        self._call_ended(call)
        self._metadata.request_update()
        for batch in call.batches:
            self._outcomes.unanswered(batch, error, now_ms)
        self._on_progress()
        self.wake()

    def fail_all(self, error_of: Callable[[ProducerBatch], KafkaError], *, unobserved: bool) -> None:
        """End everything that has not ended, and every connection, for good."""
        release = self._outcomes.fail_all(error_of, self._now_ms(), unobserved=unobserved)
        self._client.abort_all()
        release()
        self._on_progress()


def _hints(batch: ProducerBatch, answer: PartitionProduceResponse) -> list[LeaderHint]:
    """The leader that the answer names, if it names one, and is about this topic and not its predecessor."""
    if answer.error_code not in HINTED or answer.topic not in (batch.topic_id, batch.topic):
        return []
    if answer.leader_id < 0 or answer.leader_epoch < 0:
        return []
    return [LeaderHint(batch.topic, batch.partition, answer.leader_id, answer.leader_epoch)]
