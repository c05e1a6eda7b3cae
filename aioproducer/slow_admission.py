"""SlowAdmission: admits the records that have to wait, or that user code has to see first.

Its base class, the compiled fast path, hands a record over if it has to wait for the topic or memory, or if an
interceptor, serializer or partitioner has to run that it can't call itself. The steps are the same for every record:
interceptors, metadata of the topic, serializers, partitioner, memory. ``submit_nowait`` takes them without waiting, and
raises an error that names what it would have to wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NoReturn

from aioproducer._admission import Admission
from aioproducer._arguments import check_partition, checked_topic, encodable_headers
from aioproducer._delivery import Delivery, watch
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.engine import Engine
from aioproducer.errors import (
    BufferExhaustedError,
    KafkaError,
    MetadataUnavailableError,
    TransactionStateError,
)
from aioproducer.record_preparation import RecordPreparation
from aioproducer.records import Headers, Key_contra, Record, Value_contra
from aioproducer.refusals import in_other_loop, in_other_thread, not_started, still_starting


class SlowAdmission(Admission[Key_contra, Value_contra]):
    """The part of a Producer that may wait before it admits a record, and that says why it refuses one."""

    # In slots: from Python 3.12 on, a method of an object with a filled __dict__ is looked up anew at each call.
    __slots__ = ("_config", "_engine", "_preparation", "_refusal", "_refused_bytes")

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._engine: Engine | None = None
        """Set from ``start`` on."""
        self._refusal: Callable[[], KafkaError] = not_started
        """Makes the error for a call while nothing is admitted."""
        self._preparation = RecordPreparation(
            interceptors=config.interceptor_classes,
            key_serializer=config.key_serializer,
            value_serializer=config.value_serializer,
            partitioner=config.partitioner_class if callable(config.partitioner_class) else None,
            max_block_ms=config.max_block_ms,
            max_record_bytes=config.max_record_bytes,
            client_id=config.client_id,
        )
        self._refused_bytes = 0
        """Size of the last record that submit_nowait() refused; ready() waits for that much room, once."""

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
        """Admit a record that has to wait for metadata or memory, or that user code has to see first."""
        self._check_admitting()
        engine = self._running_engine()
        record = self._preparation.intercept(
            Record(value, key, topic=topic, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
        )
        admitted: list[Delivery] = []
        try:
            return await self._admit_prepared(engine, record, awaited, admitted)
        except BaseException as error:
            if not admitted:  # else the record has yet to end, and only its caller is gone
                self._not_admitted(record, error)
            raise

    async def _admit_prepared(
        self, engine: Engine, record: Record, awaited: bool, admitted: list[Delivery]
    ) -> Delivery:
        deadline_ms = engine.now_ms() + self._config.max_block_ms
        topic = checked_topic(record.topic)
        given = check_partition(record.partition, topic)
        transaction = engine.transaction_number
        headers = encodable_headers(record.headers, topic, self._config.max_record_bytes)  # before any wait
        await engine.wait_for_topic(topic, given, deadline_ms)
        began_ms = engine.now_ms()
        to_serialize = record
        if self._preparation.adds_headers:
            headers = headers or []
            to_serialize = replace(record, headers=headers)  # interceptors are told of the end with their own headers
        key, value = await self._preparation.serialize(to_serialize)
        deadline_ms += engine.now_ms() - began_ms  # time in user code does not count

        async def place() -> int | None:
            if not engine.is_known(topic, given):  # no longer: it changed while user code ran
                await engine.wait_for_topic(topic, given, deadline_ms)
            if given is not None:
                return given
            return self._preparation.choose_partition(record, key, value, engine.partitions_of)

        def admit(queued: bool = False) -> Delivery | None:
            self._check_admitting(transaction)
            delivery = self._admit(topic, value, key, partition, headers, record.timestamp_ms, awaited, queued=queued)
            if delivery is not None:
                admitted.append(self._watched(delivery, record))
            return delivery

        def attempt() -> Delivery | Literal[False] | None:
            """False: the topic, or its partition, is gone, and others must not wait until it is back."""
            return admit(queued=True) or (None if engine.is_known(topic, partition) else False)

        partition = await place()
        delivery = admit()
        while delivery is None:
            if not engine.is_known(topic, partition):
                partition = await place()
                delivery = admit()
                continue
            served: Delivery | Literal[False] | None = await engine.wait_for_memory(attempt, deadline_ms)
            if served is None and engine.is_known(topic, partition):
                raise BufferExhaustedError(
                    f"no memory for a record for topic {topic!r} within max_block_ms={self._config.max_block_ms}: "
                    f"{self._in_use(engine)}{engine.unreachable_too}"
                )
            delivery = served or None
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
        """Admit a record that user code has to see first; raise an error if it would have to wait."""
        self._check_admitting()
        engine = self._running_engine()
        record = self._preparation.intercept(
            Record(value, key, topic=topic, partition=partition, headers=headers, timestamp_ms=timestamp_ms)
        )
        try:
            delivery = self._admit_prepared_now(engine, record)
        except BaseException as error:
            self._not_admitted(record, error)
            raise
        return self._watched(delivery, record)

    def _not_admitted(self, record: Record, error: BaseException) -> None:
        """Tell the interceptors that a record was not admitted; the error may be a cancellation or the user's."""
        told = error if isinstance(error, KafkaError) else KafkaError("given up before it was in the buffer")
        told._is_about(record.topic)
        self._preparation.ended(None, told, record.headers)

    def _admit_prepared_now(self, engine: Engine, record: Record) -> Delivery:
        topic = checked_topic(record.topic)
        partition = check_partition(record.partition, topic)
        _check_known(engine, topic, partition)
        if not self._preparation.is_trivial:
            if self._preparation.adds_headers:
                headers = encodable_headers(record.headers, topic, self._config.max_record_bytes)
                record = replace(record, headers=headers or [])
            key, value = self._preparation.serialize_nowait(record)
            _check_known(engine, topic, partition)  # it may have changed meanwhile
            partition = self._preparation.choose_partition(record, key, value, engine.partitions_of)
            delivery = self._admit(topic, value, key, partition, record.headers, record.timestamp_ms, False)
            if delivery is not None:
                return delivery
            self._check_admitting()  # user code may have closed the producer, or ended the transaction
        engine.refused_for_memory()
        self._refused_bytes = self._wanted_bytes
        raise BufferExhaustedError(
            f"no memory for a record for topic {topic!r}: {self._in_use(engine)}, "
            f"{len(engine.memory_queue)} callers wait; await ready(){engine.unreachable_too}"
        )

    def _in_use(self, engine: Engine) -> str:
        return f"{engine.used_bytes:,} of buffer_memory={self._config.buffer_memory:,} bytes are in use"

    def _watched(self, delivery: Delivery, record: Record) -> Delivery:
        """Tell the interceptors the record's end, which does not count as somebody looking at it."""
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
        512 KiB, or a quarter of ``buffer_memory`` if that is less, so that the pattern does not stop for every block;
        but at least the size of the last record that ``submit_nowait`` refused since the previous ``ready``.

        Raises:
            BufferExhaustedError: there was no room within ``max_block_ms``.
            NotStartedError, ProducerClosedError, WrongLoopError: called too early, too late or from elsewhere.
        """
        self._check_open()
        engine = self._running_engine()
        wanted, self._refused_bytes = self._refused_bytes, 0
        if not len(engine.memory_queue) and engine.has_room(wanted):
            await asyncio.sleep(0)
            self._look_again()
            return

        def attempt() -> bool | None:
            self._check_open()
            return True if engine.has_room(wanted) else None

        if not await engine.wait_for_memory(attempt, engine.now_ms() + self._config.max_block_ms):
            record = f" for a record of up to {wanted:,} bytes" if wanted else ""
            raise BufferExhaustedError(
                f"no room{record} within max_block_ms={self._config.max_block_ms}: "
                f"{self._in_use(engine)}{engine.unreachable_too}"
            )

    # --- refusing -----------------------------------------------------------------------------------------------------

    def _check_admitting(self, transaction: int | None = None) -> None:
        """Raise the error for a record sent too early, too late, or from elsewhere.

        Args:
            transaction: number of the transaction in which its call began, if that was earlier.
        """
        self._check_open()
        runner = self._running_engine().transaction
        if runner is not None:
            runner.states.check_record()
            if transaction is not None and transaction != runner.number:
                raise TransactionStateError(
                    "the call began in a transaction that has ended since; the record was not added to the next one"
                )

    def _check_open(self) -> None:
        """Raise the error for a call before the start, after the end, or from elsewhere."""
        if not self._is_open:
            raise self._not_open()
        if self._running_engine().loop is not _running_loop():
            raise in_other_loop()

    def _refuse(self) -> NoReturn:
        """Called by the compiled path when it does not admit a record."""
        if not self._is_open:
            raise self._not_open()
        if not self._is_admitting:
            self._check_admitting()
        raise in_other_thread()

    def _not_open(self) -> KafkaError:
        is_starting = self._refusal is not_started and self._engine is not None
        return still_starting() if is_starting else self._refusal()

    def _running_engine(self) -> Engine:
        if self._engine is None:
            raise self._refusal()
        return self._engine


def _check_known(engine: Engine, topic: str, partition: int | None) -> None:
    if not engine.is_known(topic, partition):
        engine.want_topic(topic)
        known = engine.accumulator.topic(topic)
        if partition is not None and known is not None and known.partitions:
            raise MetadataUnavailableError(
                f"topic {topic!r} has {known.partitions} partitions and no partition {partition}, as far as is known; "
                "await submit(), which waits for it"
            )
        raise MetadataUnavailableError(
            f"topic {topic!r}"
            + ("" if partition is None else f", partition {partition}")
            + " is not known yet; await submit() or partitions_for() once, they wait for it"
        )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
