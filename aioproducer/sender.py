"""Sender: drains batches to the brokers and decides how each of them ends.

Theory of operation. One task sleeps until something can have changed: a batch became ready, a deadline came, a broker
answered, a connection came or went. Then it makes one pass: expire what is too old, ask the accumulator which brokers
have something ready, and send one request after the other to those that can take it. Answers are handled where they are
read, in the turn of the loop that read them; they end batches, or queue them again, and wake the task.

    drain -> (seal in a worker) -> number -> send -> answer -> acknowledged | requeue | split | failed
                                                  `-> none, the connection ended: in doubt -> requeue | failed

A broker that is slow, throttled or away holds up nobody else: its partitions wait in its own ready queue.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from aioproducer._produce import PartitionProduceResponse, ProduceResponse, decode_produce_response, encode_produce_request
from aioproducer.backoff import ExponentialBackoff
from aioproducer.cluster import Broker
from aioproducer.compression import Codec, codec, codec_by_attribute
from aioproducer.errors import (
    BrokerError,
    DeliveryTimeoutError,
    KafkaError,
    ProtocolError,
    UnsupportedVersionError,
    broker_error,
    error_class,
)
from aioproducer.protocol.produce import ProduceRequest

if TYPE_CHECKING:
    from aioproducer._accumulator import ProducerBatch, RecordAccumulator
    from aioproducer.config import ProducerConfig
    from aioproducer.metadata import Metadata
    from aioproducer.metrics import ProducerMetrics
    from aioproducer.net.client import NetworkClient
    from aioproducer.net.connection import Connection
    from aioproducer.transaction_manager import TransactionManager

logger = logging.getLogger("aioproducer.sender")

NO_LEADER = -1
NO_TOPIC_ID = bytes(16)
HEADER_BYTES = 61
THROTTLE_SINCE_VERSION = 6
ZSTD_SINCE_VERSION = 7
TOPIC_IDS_SINCE_VERSION = 13

MESSAGE_TOO_LARGE = 10
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
UNKNOWN_PRODUCER_ID = 59
INVALID_RECORD = 87
HINTED = frozenset((6, 74))
"""Codes whose answer may name the new leader (KIP-951)."""
LOST_STATE = frozenset((OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID))


class ProduceCall:
    """One Produce request in flight: its batches, and where it went."""

    __slots__ = ("batches", "connection", "node_id", "sent_ms", "version")

    def __init__(self, batches: list[ProducerBatch], connection: Connection, version: int, sent_ms: int) -> None:
        self.batches = batches
        self.connection = connection
        self.node_id = connection.node_id
        self.version = version
        self.sent_ms = sent_ms


class Sender:
    """The sender task of one producer, on ``loop``.

    Args:
        on_progress: called after batches have ended or memory came back.
        on_fatal: gets an error after which the producer can do nothing more.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        accumulator: RecordAccumulator,
        transactions: TransactionManager,
        client: NetworkClient,
        metadata: Metadata,
        metrics: ProducerMetrics,
        rng: random.Random,
        on_progress: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
        request_producer_id: Callable[[], None],
    ) -> None:
        self._config = config
        self._loop = loop
        self._accumulator = accumulator
        self._transactions = transactions
        self._client = client
        self._metadata = metadata
        self._metrics = metrics
        self._rng = rng
        self._on_progress = on_progress
        self._on_fatal = on_fatal
        self._request_producer_id = request_producer_id
        self._codec: Codec = codec(config.compression_type)
        self._level = config.compression_level
        self._compresses = config.compression_type != "none"
        self._inline_limit = self._codec.inline_limit(self._level) if self._compresses else 0
        self._client_id = config.client_id.encode()
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._workers: ThreadPoolExecutor | None = None
        self._produce_calls: dict[int, int] = {}
        self._awake = False
        self._sleeper: asyncio.Future[None] | None = None
        accumulator.on_wake = self.wake
        client.on_change = self.wake

    # --- the task -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            while True:
                self._awake = False
                deadline_ms = self._pass(self._now_ms())
                await self._sleep(deadline_ms)
        finally:
            if self._workers is not None:
                self._workers.shutdown(wait=False, cancel_futures=True)

    def wake(self) -> None:
        """Make a pass in the next turn of the loop."""
        self._awake = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def _sleep(self, deadline_ms: int) -> None:
        """Until wake(), or until `deadline_ms` (-1: no deadline)."""
        if self._awake:
            await asyncio.sleep(0)
            return
        self._sleeper = self._loop.create_future()
        timer = None
        if deadline_ms >= 0:
            # A clock of whole milliseconds reaches the deadline only when the real one is past it.
            timer = self._loop.call_at((deadline_ms + 0.1) / 1000, self.wake)
        try:
            await self._sleeper
        finally:
            self._sleeper = None
            if timer is not None:
                timer.cancel()

    def _pass(self, now_ms: int) -> int:
        """Send everything that can go now; when to look again."""
        for batch in self._accumulator.expire(now_ms):
            self._expire(batch)
        nodes, deadline_ms = self._accumulator.ready(now_ms, self._produce_calls)
        if nodes and self._transactions.needs_producer_id:
            self._request_producer_id()
        for node_id in nodes:
            if node_id == NO_LEADER:
                self._metadata.request_update()
            elif self._client.node_ready(node_id, now_ms):
                self._send_all(node_id, now_ms)
            else:
                self._accumulator.node_stalled(node_id, now_ms)
                self._client.connect_soon(node_id)
                retry_ms = self._client.retry_at_ms(node_id, now_ms)
                if retry_ms is not None and retry_ms > now_ms and (deadline_ms < 0 or retry_ms < deadline_ms):
                    deadline_ms = retry_ms
        return deadline_ms

    def _send_all(self, node_id: int, now_ms: int) -> None:
        connection = self._client.connection(node_id)
        while connection is not None and self._client.node_ready(node_id, now_ms):
            batches, unsealed = self._accumulator.drain(
                node_id, self._config.max_request_size, now_ms, self._transactions.may_send, self._inline_limit
            )
            for batch in unsealed:
                self._seal_in_worker(batch)
            if not batches:
                return
            self._send(connection, batches, now_ms)

    # --- sealing ------------------------------------------------------------------------------------------------------

    def _seal_in_worker(self, batch: ProducerBatch) -> None:
        """Compress a large batch off the loop; the interpreter lock is released meanwhile."""
        if self._workers is None:
            self._workers = ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="aioproducer-compress")
        job = self._loop.run_in_executor(self._workers, self._codec.compress, batch.contents(), self._level)
        job.add_done_callback(lambda done: self._sealed(batch, done))

    def _sealed(self, batch: ProducerBatch, job: asyncio.Future[bytes]) -> None:
        if job.cancelled() or job.exception() is not None:
            # Uncompressed is always right; what went wrong is worth a line.
            if not job.cancelled():
                logger.error("%s failed to compress a batch, it goes out uncompressed", self._codec.name, exc_info=job.exception())
            self._accumulator.sealed(batch, None, 0)
        else:
            self._accumulator.sealed(batch, job.result(), self._codec.attribute)
        self._on_progress()

    # --- sending ------------------------------------------------------------------------------------------------------

    def _send(self, connection: Connection, batches: list[ProducerBatch], now_ms: int) -> None:
        """Number, seal and write one request; an error here concerns its batches alone."""
        for batch in batches:
            self._transactions.number(batch)
            if self._compresses and not batch.sealed:
                batch.seal(self._codec.compress(batch.contents(), self._level), self._codec.attribute)
        try:
            version = self._version(connection, batches)
        except UnsupportedVersionError as error:
            for batch in batches:
                self._fail(batch, error.__copy__())
            return
        call = ProduceCall(batches, connection, version, now_ms)
        correlation_id = connection.next_correlation_id()
        buffers = encode_produce_request(
            version, correlation_id, self._client_id, None, self._config.acks, self._config.request_timeout_ms, batches
        )
        for batch in batches:
            batch.attempts += 1
            self._metadata.touch(batch.topic, now_ms)
        acknowledges = self._config.acks != 0
        self._produce_calls[call.node_id] = self._produce_calls.get(call.node_id, 0) + 1
        connection.send_frame(
            buffers,
            correlation_id,
            ProduceRequest.API_KEY,
            self._config.request_timeout_ms,
            (lambda frame: self._answered(call, frame)) if acknowledges else None,
            lambda error: self._unanswered(call, error),
        )
        self._count_sent(call)
        if not acknowledges:
            self._call_ended(call)
            for batch in batches:
                self._acknowledge(batch, -1, -1)
            self._on_progress()

    def _count_sent(self, call: ProduceCall) -> None:
        metrics, now_ms = self._metrics, call.sent_ms
        metrics.record_produce_request(now_ms)
        metrics.record_request_sent(call.node_id, sum(batch.wire_bytes for batch in call.batches), now_ms)
        for batch in call.batches:
            metrics.record_batch_sent(
                batch.topic,
                records=batch.record_count,
                size_bytes=batch.wire_bytes,
                uncompressed_bytes=batch.size_bytes + HEADER_BYTES,
                largest_record_bytes=batch.largest_record_bytes,
                queue_time_ms=now_ms - batch.created_ms,
                now_ms=now_ms,
            )

    def _version(self, connection: Connection, batches: list[ProducerBatch]) -> int:
        version = connection.version(ProduceRequest)
        if self._config.compression_type == "zstd" and version < ZSTD_SINCE_VERSION:
            raise UnsupportedVersionError(
                f"compression_type=zstd needs Kafka 2.1 or newer, {connection} speaks Produce {version} at most"
            )
        if version >= TOPIC_IDS_SINCE_VERSION and any(batch.topic_id == NO_TOPIC_ID for batch in batches):
            return TOPIC_IDS_SINCE_VERSION - 1
        return version

    def _call_ended(self, call: ProduceCall) -> None:
        left = self._produce_calls[call.node_id] - 1
        if left:
            self._produce_calls[call.node_id] = left
        else:
            del self._produce_calls[call.node_id]

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answered(self, call: ProduceCall, frame: bytes) -> None:
        """End the batches of a request by its answer. A ProtocolError is raised before anything was done."""
        response = decode_produce_response(call.version, frame)
        answers = self._match(call, response)
        now_ms = self._now_ms()
        self._call_ended(call)
        self._metrics.record_response(call.node_id, len(frame), now_ms)
        self._metrics.record_request_latency(call.node_id, now_ms - call.sent_ms, now_ms)
        self._metrics.record_throttle(response.throttle_time_ms, now_ms)
        if response.throttle_time_ms > 0 and call.version >= THROTTLE_SINCE_VERSION:
            call.connection.throttle(now_ms + response.throttle_time_ms)
        for batch, answer in zip(call.batches, answers, strict=True):
            self._decide(batch, answer, response, call, now_ms)
        self._on_progress()
        self.wake()

    def _match(self, call: ProduceCall, response: ProduceResponse) -> list[PartitionProduceResponse]:
        """The answer of each batch, in the order of the request; the request's own topic ids count."""
        found = {(answer.topic, answer.partition): answer for answer in response.partitions}
        by_id = call.version >= TOPIC_IDS_SINCE_VERSION
        try:
            return [found[batch.topic_id if by_id else batch.topic, batch.partition] for batch in call.batches]
        except KeyError as missing:
            raise ProtocolError(f"{call.connection} did not answer for {missing.args[0]}") from None

    def _decide(
        self, batch: ProducerBatch, answer: PartitionProduceResponse, response: ProduceResponse, call: ProduceCall, now_ms: int
    ) -> None:
        code = answer.error_code
        if code in (0, DUPLICATE_SEQUENCE_NUMBER):
            offset = answer.base_offset if code == 0 else -1
            self._acknowledge(batch, offset, answer.log_append_time_ms)
            return
        error = self._error_of(batch, answer, call)
        if error.in_doubt:
            batch.maybe_written = True
        if error.refresh_metadata:
            self._refresh_metadata(batch, answer, response)
        if code == MESSAGE_TOO_LARGE and batch.record_count > 1 and not batch.expired:
            self._split(batch, now_ms)
        elif not batch.expired and self._may_retry(batch, error):
            self._retry(batch, error, now_ms)
        else:
            if error.in_doubt:
                self._transactions.unanswered(batch)
            self._fail(batch, error, answer.record_errors)
            if error.fatal:
                self._on_fatal(error)

    def _error_of(self, batch: ProducerBatch, answer: PartitionProduceResponse, call: ProduceCall) -> BrokerError:
        kind = error_class(answer.error_code)
        told = f": {answer.error_message}" if answer.error_message else ""
        return broker_error(
            answer.error_code,
            f"{batch.topic}-{batch.partition}: {call.connection} answered {kind.name} to a batch of "
            f"{batch.record_count:,} records (attempt {batch.attempts}){told}",
            maybe_written=batch.maybe_written,
        )

    def _refresh_metadata(
        self, batch: ProducerBatch, answer: PartitionProduceResponse, response: ProduceResponse
    ) -> None:
        if answer.error_code in HINTED and answer.leader_id >= 0 and answer.leader_epoch >= 0:
            self._metadata.apply_leader_hint(
                batch.topic,
                batch.partition,
                answer.leader_id,
                answer.leader_epoch,
                [Broker(*endpoint) for endpoint in response.node_endpoints],
            )
        self._metadata.request_update()

    def _unanswered(self, call: ProduceCall, error: KafkaError) -> None:
        """The connection ended before the answer: whatever was handed to it may have been written."""
        now_ms = self._now_ms()
        if self._config.acks == 0:
            return  # its batches ended when they were handed over
        self._call_ended(call)
        self._metadata.request_update()
        for batch in call.batches:
            batch.maybe_written = batch.maybe_written or error.maybe_written
            own = type(error)(f"{batch.topic}-{batch.partition}: {error}", maybe_written=batch.maybe_written)
            if not batch.expired and self._retries_left(batch):
                self._retry(batch, own, now_ms, unanswered=error.maybe_written)
            else:
                if error.maybe_written:
                    self._transactions.unanswered(batch)
                self._fail(batch, own)
        self._on_progress()
        self.wake()

    # --- the end of a batch -------------------------------------------------------------------------------------------

    def _acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        self._transactions.acknowledged(batch)
        if not batch.expired:
            batch.complete(base_offset, log_append_time_ms)
        self._accumulator.release(batch)

    def _fail(self, batch: ProducerBatch, error: KafkaError, record_errors: list[tuple[int, str | None]] | None = None) -> None:
        self._transactions.failed(batch, epoch_refused=error.code == INVALID_PRODUCER_EPOCH)
        if not batch.expired or not batch.in_flight:
            self._metrics.record_errors(batch.topic, batch.record_count, self._now_ms())
            batch.fail(error, _by_record(batch, error, record_errors))
        self._accumulator.release(batch)

    def _retries_left(self, batch: ProducerBatch) -> bool:
        return batch.attempts <= self._config.retries

    def _may_retry(self, batch: ProducerBatch, error: BrokerError) -> bool:
        if not self._retries_left(batch):
            return False
        return error.retriable or (batch.has_sequence and error.code in LOST_STATE)

    def _retry(self, batch: ProducerBatch, error: KafkaError, now_ms: int, *, unanswered: bool | None = None) -> None:
        """Queue the batch again, in the order of its partition, after a back-off."""
        batch.last_error = error
        self._metrics.record_retries(batch.topic, batch.record_count, now_ms)
        retry_at_ms = now_ms + self._backoff.delay_ms(batch.attempts - 1, self._rng)
        self._accumulator.requeue(batch, now_ms, retry_at_ms)
        if error.code in LOST_STATE:
            self._transactions.out_of_order(batch)
        elif error.in_doubt if unanswered is None else unanswered:
            self._transactions.unanswered(batch)
        else:
            self._transactions.settle(batch)

    def _split(self, batch: ProducerBatch, now_ms: int) -> None:
        """Cut a batch that the broker finds too large, and send the pieces in its place."""
        logger.info("%s-%d: the broker takes no batch of %s bytes, it is split", batch.topic, batch.partition, batch.wire_bytes)
        plain = batch.contents()
        if batch.compressed is not None:
            plain = codec_by_attribute(batch.attributes).decompress(batch.compressed, batch.size_bytes)
        pieces = self._accumulator.split(batch, plain, now_ms)
        self._metrics.record_batch_split(now_ms)
        self._transactions.split(batch, pieces)

    def _expire(self, batch: ProducerBatch) -> None:
        """The batch is past delivery_timeout_ms: its Deliveries fail now, whatever it is doing."""
        if batch.in_flight:
            batch.maybe_written = True
        cause = batch.last_error
        error = DeliveryTimeoutError(
            f"{batch.topic}-{batch.partition}: {batch.record_count:,} records were not acknowledged within "
            f"delivery_timeout_ms={self._config.delivery_timeout_ms} ({batch.attempts} attempts"
            + (f"; the last error was: {cause})" if cause is not None else ", no connection to the leader in time)")
            , maybe_written=batch.maybe_written,
        )
        error.__cause__ = cause
        if batch.in_flight:
            self._transactions.expired_in_flight(batch)
            self._metrics.record_errors(batch.topic, batch.record_count, self._now_ms())
            batch.fail(error)
        else:
            self._fail(batch, error)
        self._on_progress()

    def fail_all(self, error_of: Callable[[ProducerBatch], KafkaError], *, unobserved: bool) -> None:
        """End everything that has not ended, and every connection, for good."""
        batches = self._accumulator.take_all()
        for batch in batches:
            if batch.in_flight:
                batch.maybe_written = True
            self._metrics.record_errors(batch.topic, batch.record_count, self._now_ms())
            batch.fail(error_of(batch), None, unobserved)
        self._client.abort_all()  # gives back what is in flight
        for batch in batches:
            self._accumulator.release(batch)
        self._on_progress()


def _by_record(
    batch: ProducerBatch, error: KafkaError, record_errors: list[tuple[int, str | None]] | None
) -> dict[int, KafkaError] | None:
    """One error a record where the broker named some: theirs, and for the others that they shared the batch (KIP-467)."""
    if not record_errors:
        return None
    kind = type(error) if len(record_errors) == 1 else error_class(INVALID_RECORD)
    named = {
        index: kind(f"{batch.topic}-{batch.partition}: the broker refused the record: {text or kind.name}")
        for index, text in record_errors
    }
    shared = error_class(INVALID_RECORD)(
        f"{batch.topic}-{batch.partition}: part of a batch with invalid records; this one was not among them"
    )
    return {index: named.get(index, shared) for index in range(batch.record_count)}

