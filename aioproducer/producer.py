"""Producer: the public calls. The fast path of sending is compiled, in its base class; this is all that may wait."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
import weakref
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from aioproducer._admission import Admission, check_partition, encodable_headers
from aioproducer._delivery import Delivery, watch
from aioproducer._producer_batch import ProducerBatch
from aioproducer.bulk import BulkSend
from aioproducer.config import ProducerConfig
from aioproducer.engine import Engine
from aioproducer.errors import (
    AlreadyStartedError,
    BufferExhaustedError,
    FlushTimeoutError,
    KafkaError,
    MetadataUnavailableError,
    NotStartedError,
    ProducerClosedError,
    ProducerFailedError,
    SerializationError,
    WrongLoopError,
)
from aioproducer.record_preparation import RecordPreparation
from aioproducer.records import BatchResult, Headers, PartitionInfo, Record

logger = logging.getLogger("aioproducer.producer")

_started: weakref.WeakSet[Producer] = weakref.WeakSet()


class Producer(Admission):
    """Publishes records to an Apache Kafka cluster from one asyncio event loop.

    Making one does no I/O and needs no running loop. ``async with`` starts and closes it; all calls belong to the loop
    in which it was started.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send("orders", b"value", key=b"key")

    Args:
        configs: the Java producer's configs with ``_`` for ``.``; see docs/configuration.md.
    Raises:
        ConfigError: a config is unknown, out of range, or contradicts another.
    """

    def __init__(self, **configs: Any) -> None:
        self._configure(ProducerConfig.parse(configs))

    @classmethod
    def from_config(cls, configs: Mapping[str, Any]) -> Self:
        """Make a producer from configs with Java's own dotted names, e.g. ``{"bootstrap.servers": ...}``."""
        producer = cls.__new__(cls)
        producer._configure(ProducerConfig.parse_dotted(configs))
        return producer

    @classmethod
    def from_properties(cls, path: str | os.PathLike[str]) -> Self:
        """Make a producer from a Java ``.properties`` file; names that only a JVM can use are ignored with a log line.

        Raises:
            ConfigError: as the constructor; also for key stores that are not PEM, with the command that converts them.
        """
        producer = cls.__new__(cls)
        producer._configure(ProducerConfig.parse_properties(Path(path)))
        return producer

    def _configure(self, config: ProducerConfig) -> None:
        self._config = config
        self._refusal: Callable[[], KafkaError] = _not_started
        self._closing: asyncio.Task[None] | None = None
        self._engine: Engine | None = None
        self._preparation = RecordPreparation(
            interceptors=config.interceptor_classes,
            key_serializer=config.key_serializer,
            value_serializer=config.value_serializer,
            partitioner=config.partitioner_class if callable(config.partitioner_class) else None,
        )

    # --- starting and ending ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster; at most ``max_block_ms``.

        Raises:
            BootstrapError: no bootstrap server could be used; it holds each address with its cause. ``start`` may be
                called again.
            AuthenticationError: a broker and this client do not accept each other.
            AlreadyStartedError, ProducerClosedError: called in the wrong order.
        """
        if self._engine is not None or self._closing is not None:
            if self._refusal is not _not_started:
                raise self._refusal()
            raise AlreadyStartedError("the producer was started already; one start() is enough")
        loop = asyncio.get_running_loop()
        engine = self._engine = Engine(self._config, loop, weakref.WeakMethod(self._engine_ended))
        try:
            await engine.start()
        except BaseException:
            self._engine = None
            await engine.stop()
            raise
        _started.add(self)
        _watch_forks()
        self._open_admission(
            engine.accumulator,
            loop,
            direct=self._preparation.is_trivial,
            max_record_bytes=min(self._config.max_request_size, self._config.buffer_memory),
            clocks=engine.clocks,
        )
        engine.attach(self)

    async def close(self, timeout: float | None = None) -> None:
        """Stop admission, send what was admitted, and end everything.

        Waits until every admitted record is acknowledged or failed; with ``timeout`` (seconds) for at most so long,
        then fails the rest. Idempotent. Cancelled, it ends as ``close(0)`` would.

        Raises:
            DeliveryErrors: records failed and nobody had looked at their Deliveries; the producer is closed anyway.
        """
        if self._refusal is _in_fork:
            raise self._refusal()
        loop = asyncio.get_running_loop()
        if self._engine is not None and self._engine.loop is not loop:
            raise WrongLoopError("this producer was started in another event loop; close it there")
        if self._closing is None:
            self._refusal = _closed
            self._close_admission()
            self._closing = loop.create_task(self._close(timeout), name="aioproducer close")
            self._closing.add_done_callback(_retrieve)
        elif self._closing.done():
            return  # what it had to raise, it has raised
        try:
            await asyncio.shield(self._closing)
        except asyncio.CancelledError:
            if self._engine is not None:
                self._engine.fail_all(_closed_too_early, unobserved=False)
            raise

    async def _close(self, timeout: float | None) -> None:
        engine = self._engine
        if engine is None:
            self._preparation.close()
            return
        engine.turn_away(_closed())
        try:
            await self._finish(engine, timeout)
        finally:
            _started.discard(self)
            await engine.stop()
            engine.report_failures()
            self._preparation.close()

    async def _finish(self, engine: Engine, timeout: float | None) -> None:
        """Wait until every record has ended and left, or fail what has not in time."""
        began_ms = engine.now_ms()
        try:
            await engine.flush(None if timeout is None else max(0.0, timeout))
        except FlushTimeoutError as error:
            logger.warning("close(timeout=%s): %d records had not ended and failed", timeout, error.pending)
            engine.fail_all(_closed_too_early, unobserved=False)
        finally:
            await engine.written(None if timeout is None else timeout - (engine.now_ms() - began_ms) / 1000)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except KafkaError as failure:
            if error is None:
                raise
            error.add_note(f"closing the producer failed too: {failure}")

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and self._closing is None and self._refusal is _not_started:
            warnings.warn(
                f"{self!r} was never closed; use async with, or await close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
            engine.abandon()

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._config.bootstrap_servers)
        return f"<Producer {self._config.client_id} of {servers}>"

    # --- many records at once -----------------------------------------------------------------------------------------

    async def send_many(
        self, topic: str, records: Iterable[Any] | AsyncIterable[Any], *, raise_on_error: bool = True
    ) -> BatchResult:
        """Send any number of records and wait until each is acknowledged or has failed.

        The records are taken one after the other and appended in that order, as fast as the buffer has room; the event
        loop gets a turn at least every millisecond or 256 KiB. A bad record fails alone. If the iterable raises, or
        memory or the topic's metadata stays away for ``max_block_ms``, no further record is taken; what was admitted
        goes on to its end, and so it does when the call is cancelled.

        Args:
            topic: of records that name none.
            records: an iterable or async iterable of values, exact 2-tuples ``(key, value)`` and ``Record``s; anything
                else is a value for the serializer.
            raise_on_error: False returns a result that has failures. A call that stopped early raises in any case.
        Raises:
            SendManyError: not everything was delivered; ``result`` is the BatchResult, the cause what stopped the call.
            NotStartedError, ProducerClosedError, WrongLoopError: called too early, too late or from elsewhere.
            TypeError: ``records`` is no iterable, or is itself a value.
        """
        self._check_admitting()
        if isinstance(records, (str, bytes, bytearray, memoryview)) or not (
            isinstance(records, (Iterable, AsyncIterable)) or hasattr(records, "__getitem__")
        ):
            raise TypeError(f"records is a {type(records).__name__}; an iterable of records is needed")
        bulk = self._bulk("send_many", _checked_topic(topic))
        if self._preparation.is_trivial:
            return await bulk.send(records, raise_on_error=raise_on_error)
        return await bulk.send_slowly(records, self._submit_slow, raise_on_error=raise_on_error)

    def _bulk(self, name: str, topic: str | None) -> BulkSend:
        return BulkSend(
            name,
            topic,
            engine=self._running_engine(),
            admission=self,
            check=self._check_admitting,
            max_block_ms=self._config.max_block_ms,
        )

    # --- sending: the slow path ---------------------------------------------------------------------------------------

    async def _submit_slow(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
        awaited: bool,
    ) -> Delivery:
        """Admit a record that has to wait for metadata or memory, or that code of the user's has to see first."""
        self._check_admitting()
        engine = self._running_engine()
        record = self._preparation.intercept(
            Record(value, key, topic=topic, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
        )
        try:
            return await self._admit_prepared(engine, record, awaited)
        except KafkaError as error:
            self._preparation.ended(None, error, record.headers)
            raise

    async def _admit_prepared(self, engine: Engine, record: Record, awaited: bool) -> Delivery:
        deadline_ms = engine.now_ms() + self._config.max_block_ms
        topic = _topic_of(record)
        check_partition(record.partition, topic)
        headers = encodable_headers(record.headers, topic)  # once: an interceptor may have put an iterator there
        await engine.wait_for_topic(topic, record.partition, deadline_ms)
        began_ms = engine.now_ms()
        key, value = await self._preparation.serialize(record)
        partition = self._preparation.choose_partition(record, key, value, engine.partitions_of(topic))
        deadline_ms += engine.now_ms() - began_ms  # the user's own time does not count

        def admit(queued: bool = False) -> Delivery | None:
            self._check_admitting()
            delivery = self._admit(topic, value, key, partition, headers, record.timestamp_ms, awaited, queued=queued)
            return None if delivery is None else self._watched(delivery, record)

        delivery = admit()
        while delivery is None:
            if not engine.is_known(topic, partition):  # not any more: it changed while the user's code ran
                await engine.wait_for_topic(topic, partition, deadline_ms)
                delivery = admit()
                continue
            delivery = await engine.wait_for_memory(lambda: admit(queued=True), deadline_ms)
            if delivery is None and engine.is_known(topic, partition):
                raise BufferExhaustedError(
                    f"no memory for a record for topic {topic!r} within max_block_ms={self._config.max_block_ms}: "
                    f"{engine.used_bytes:,} of buffer_memory={self._config.buffer_memory:,} bytes are in use"
                )
        return delivery

    def _submit_now_slow(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        """Admit a record that code of the user's has to see first, or raise what it would have to wait for."""
        self._check_admitting()
        engine = self._running_engine()
        record = self._preparation.intercept(
            Record(value, key, topic=topic, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
        )
        try:
            delivery = self._admit_prepared_now(engine, record)
        except KafkaError as error:
            self._preparation.ended(None, error, record.headers)
            raise
        return self._watched(delivery, record)

    def _admit_prepared_now(self, engine: Engine, record: Record) -> Delivery:
        topic = _topic_of(record)
        check_partition(record.partition, topic)
        if not engine.is_known(topic, record.partition):
            engine.want_topic(topic)
            raise MetadataUnavailableError(
                f"topic {topic!r}"
                + ("" if record.partition is None else f", partition {record.partition}")
                + " is not known yet; await submit() or partitions_for() once, they wait for it"
            )
        if not self._preparation.is_trivial:
            key, value = self._preparation.serialize_nowait(record)
            partition = self._preparation.choose_partition(record, key, value, engine.partitions_of(topic))
            delivery = self._admit(topic, value, key, partition, record.headers, record.timestamp_ms, False)
            if delivery is not None:
                return delivery
        engine.refused_for_memory()
        raise BufferExhaustedError(
            f"no memory for a record for topic {topic!r}: {engine.used_bytes:,} of "
            f"buffer_memory={self._config.buffer_memory:,} bytes are in use, {len(engine.memory_queue)} callers wait; "
            "await ready()"
        )

    def _watched(self, delivery: Delivery, record: Record) -> Delivery:
        """Let the interceptors hear of the record's end, which does not count as somebody looking at it."""
        if self._preparation.intercepts:
            headers = record.headers

            def ended(delivery: Delivery) -> None:
                error = delivery.peek_exception()
                metadata = None if error is not None else delivery.result()
                self._preparation.ended(metadata, error, headers)

            watch(delivery, ended)
        return delivery

    async def ready(self) -> None:
        """Wait for room in the buffer, first come, first served, and give the loop a turn.

        The full-speed pattern is ``submit_nowait`` until BufferExhaustedError, then ``await ready()``. Room means
        1 MiB, or a quarter of ``buffer_memory`` if that is less, so that the pattern does not stop for every block.

        Raises:
            BufferExhaustedError: there was none within ``max_block_ms``.
        """
        self._check_admitting()
        engine = self._running_engine()
        if not len(engine.memory_queue) and engine.has_room():
            await asyncio.sleep(0)
            self._look_again()
            return

        def attempt() -> bool | None:
            self._check_admitting()
            return True if engine.has_room() else None

        if not await engine.wait_for_memory(attempt, engine.now_ms() + self._config.max_block_ms):
            raise BufferExhaustedError(
                f"no room within max_block_ms={self._config.max_block_ms}: {engine.used_bytes:,} of "
                f"buffer_memory={self._config.buffer_memory:,} bytes are in use"
            )

    # --- the rest of the public calls ---------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Send every record admitted before the call without waiting for linger, and wait for their ends.

        Later records can't hold it up. When it returns, the done callbacks of all it covered are scheduled.

        Args:
            timeout: seconds; None waits as long as it takes, which ``delivery_timeout_ms`` bounds.
        Raises:
            FlushTimeoutError: the time was not enough; ``pending`` records go on, nothing is dropped.
            DeliveryErrors: records it covers failed and nobody had looked at their Deliveries.
        """
        self._check_admitting()
        await self._running_engine().flush(timeout)

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic by number; waits for its metadata.

        Raises:
            MetadataTimeoutError: not known within ``max_block_ms``.
            InvalidTopicError: there can't be such a topic.
        """
        self._check_admitting()
        engine = self._running_engine()
        await engine.wait_for_topic(topic, None, engine.now_ms() + self._config.max_block_ms)
        return engine.partitions_of(topic)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """A snapshot of all metrics under Kafka's names: ``{group: {name: value}}``, topic and node groups nested."""
        return {} if self._engine is None else self._engine.metrics_snapshot()

    # --- refusing -----------------------------------------------------------------------------------------------------

    def _check_admitting(self) -> None:
        """Raise what a call deserves that comes too early, too late, or from elsewhere."""
        if not self._is_admitting:
            raise self._refusal()
        if self._running_engine().loop is not _running_loop():
            raise WrongLoopError(
                "this producer was started in another event loop; use it from coroutines and callbacks of that loop, "
                "or start a producer of its own for each loop"
            )

    def _refuse(self) -> NoReturn:
        """Called by the compiled path when it does not admit."""
        if not self._is_admitting:
            raise self._refusal()
        raise WrongLoopError(
            "this producer was started in another thread; hand the record over with "
            "loop.call_soon_threadsafe(producer.submit_nowait, ...) or "
            "asyncio.run_coroutine_threadsafe(producer.send(...), loop), where loop is the event loop of that thread"
        )

    def _running_engine(self) -> Engine:
        if self._engine is None:
            raise self._refusal()
        return self._engine

    def _engine_ended(self, error: KafkaError) -> None:
        """Something ended that must not: refuse everything from now on, with the reason."""
        if self._refusal is _not_started:
            self._refusal = lambda: ProducerFailedError(f"the producer has failed: {error}", cause=error)
            self._close_admission()

    def _forked(self) -> None:
        self._refusal = _in_fork
        self._close_admission()


def _retrieve(task: asyncio.Task[None]) -> None:
    """Keep asyncio from logging an error that nobody waited for because close() was cancelled."""
    if not task.cancelled():
        task.exception()


def _topic_of(record: Record) -> str:
    return _checked_topic(record.topic)


def _checked_topic(topic: object) -> str:
    if not isinstance(topic, str):
        raise SerializationError(f"the topic is a {type(topic).__name__}; str is needed")
    return str.__str__(topic)  # a plain one, also of an enumeration's member


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _not_started() -> KafkaError:
    return NotStartedError("the producer was not started; use async with, or await start()")


def _closed() -> KafkaError:
    return ProducerClosedError("the producer was closed")


def _closed_too_early(batch: ProducerBatch) -> KafkaError:
    return ProducerClosedError(
        f"{batch.topic}-{batch.partition}: the producer was closed before the record was acknowledged",
        maybe_written=batch.maybe_written,
    )


def _in_fork() -> KafkaError:
    return WrongLoopError("this process was forked from the one that started the producer; start a new one here")


def _after_fork() -> None:
    for producer in list(_started):
        producer._forked()


_forks_watched = False


def _watch_forks() -> None:
    """Have producers refuse in forked children; done with the first start, as import must have no side effects."""
    global _forks_watched
    if not _forks_watched and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
        _forks_watched = True
