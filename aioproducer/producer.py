"""Producer: the public calls. Its base classes admit single records; the path that never waits is compiled."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import warnings
import weakref
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Literal, NoReturn, Self, TypeAlias, Unpack

from aioproducer._arguments import checked_topic
from aioproducer.bare_errors import raises_bare
from aioproducer.bulk import BulkSend
from aioproducer.client_logger import ClientLogger
from aioproducer.closing import Closing, closed_too_early
from aioproducer.compression import codec
from aioproducer.config.keywords import ProducerConfigs
from aioproducer.config.librdkafka import translate as translate_librdkafka
from aioproducer.config.producer_config import ProducerConfig, read_properties, underscored
from aioproducer.deadline import Deadline
from aioproducer.engine import Engine
from aioproducer.errors import (
    AlreadyStartedError,
    ConfigError,
    DeliveryErrors,
    KafkaError,
    ProducerFailedError,
    TransactionStateError,
    WrongLoopError,
)
from aioproducer.forks import ForkWatch
from aioproducer.health import ProducerHealth, ProducerState
from aioproducer.message_text import host_port
from aioproducer.net.cancellation import is_own_cancellation
from aioproducer.records import (
    MAX_ERRORS,
    ArrowData,
    BatchResult,
    ConsumerGroupMetadata,
    Key_contra,
    OffsetAndMetadata,
    PartitionInfo,
    PreparedTransaction,
    Record,
    TopicPartition,
    Value_contra,
)
from aioproducer.refusals import closed, in_fork, in_no_loop, not_started
from aioproducer.slow_admission import SlowAdmission
from aioproducer.start_count import StartCount
from aioproducer.transaction.block import Transaction
from aioproducer.transaction.group_offsets import checked_group, checked_offsets
from aioproducer.transaction.runner import TransactionRunner

logger: logging.Logger = logging.getLogger("aioproducer.producer")

Sendable: TypeAlias = tuple[Key_contra | None, Value_contra | None] | Value_contra | Record | None
"""What ``send_many`` accepts as one record."""

_started: ForkWatch[Producer] = ForkWatch(lambda producer: producer._forked())
_starts = StartCount()


class Producer(SlowAdmission[Key_contra, Value_contra]):
    """Publishes records to an Apache Kafka cluster from one asyncio event loop.

    The constructor does no I/O and needs no running loop. ``async with`` starts and closes the producer; all calls
    belong to the loop in which it was started.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            metadata = await producer.send("orders", b"value", key=b"key")

    Args:
        configs: the Java producer's configs with ``_`` for ``.``, as Python values or Java's strings; see
            docs/configuration.md. Type checkers infer the key and value types from the serializers; without
            serializers, or if they are untyped, any are accepted.
    Raises:
        ConfigError: a config is unknown, out of range, or contradicts another, or needs a package that is not
            installed.
    """

    __slots__ = ("__dict__", "__weakref__", "_closing", "_logger", "_starting")  # the dict is for users' own attributes

    _is_counted: ClassVar[bool] = True
    """Whether StartCount counts it, as a program needs only one; False in a class of which a program needs many."""

    @raises_bare(ConfigError)
    def __init__(self, /, **configs: Unpack[ProducerConfigs[Key_contra, Value_contra]]) -> None:
        config = ProducerConfig.parse(configs)
        codec(config.compression_type)  # raises now if a package is not installed
        super().__init__(config)
        self._starting: asyncio.Task[None] | None = None
        self._closing: Closing | None = None
        self._logger = ClientLogger(logger, self._config.client_id)

    @classmethod
    @raises_bare(ConfigError)
    def from_config(cls, configs: Mapping[str, Any]) -> Self:
        """Make a producer from configs with Java's dotted names, e.g. ``{"bootstrap.servers": ...}``."""
        return cls(**underscored(configs))

    @classmethod
    @raises_bare(ConfigError)
    def from_properties(cls, path: str | os.PathLike[str]) -> Self:
        """Make a producer from a Java ``.properties`` file; names that only a JVM can use are ignored with a log line.

        Raises:
            OSError: the file can't be read.
            ConfigError: as for the constructor; also for JKS stores, with the command that converts them.
        """
        return cls(**underscored(read_properties(path)))

    @classmethod
    @raises_bare(ConfigError)
    def from_librdkafka_config(cls, configs: Mapping[str, Any]) -> Self:
        """Make a producer from configs with librdkafka's names, as confluent-kafka's producers take them.

        Keys go to the same partitions as with librdkafka, including its default, ``consistent_random``. Configs that
        are not given keep this producer's defaults. docs/from-confluent-kafka.md says what each name becomes. PEM
        files of a client certificate and key are read immediately.

        Raises:
            ConfigError: as for the constructor; also for configs that an application relies on and that this producer
                replaces by something else.
        """
        return cls(**translate_librdkafka(configs))

    # --- starting and ending ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster; at most ``max_block_ms``.

        Each bootstrap server is tried once, in the given order; one that has not accepted the connection after 1.5 s
        gets the rest of its time after the others.

        With a ``transactional_id``, it also fences older producers of that id, and ends what they left open.

        Raises:
            BootstrapError: no bootstrap server could be used; it lists each address with its cause. ``start`` may be
                called again.
            TransactionTimeoutError: the coordinator of the ``transactional_id`` did not answer in time.
            AuthenticationError: a broker and this client do not accept each other.
            AlreadyStartedError: it was started already, or a failed ``start`` is still cleaning up.
            WrongLoopError: no event loop of asyncio runs here, as under trio.
            ProducerFailedError: the cluster gives out no producer ids, an internal error, or the producer's tasks were
                cancelled; once the producer had begun to run, it stays failed.
            ProducerClosedError: the producer was closed, before or during the call.
        """
        if self._refusal is not not_started:
            raise self._refusal()
        if self._engine is not None:
            raise AlreadyStartedError("the producer was started already; one start() is enough")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise in_no_loop() from None
        engine = self._engine = self._make_engine(loop)
        self._starting = loop.create_task(engine.start(), name="aioproducer start")
        try:
            await self._engine_started(self._starting)
        except BaseException:
            try:
                await engine.stop()
            finally:
                self._engine = None  # not before: close() has to wait for what still runs
            raise
        _started.add(self)
        if self._is_counted:
            _starts.started(engine.now_ms(), len(_started))
        self._open_to_records(engine)

    def _open_to_records(self, engine: Engine) -> None:
        """The engine runs: connect interceptors and the compiled path to it, and admit records."""
        self._preparation.started(self._config.client_id)
        engine.tell_cluster_id(self._preparation.cluster_known)
        self._open_admission(
            engine.accumulator,
            engine.loop,
            direct=self._preparation.is_trivial,
            serializers=None if self._preparation.is_trivial else self._preparation.serializers_at_once,
            max_record_bytes=self._config.max_record_bytes,
            clocks=engine.clocks,
        )
        self._admit_records(engine.transaction is None)
        if engine.transaction is not None and self._preparation.intercepts:
            engine.transaction.on_begin = self._preparation.transaction_began
            engine.transaction.on_end = self._preparation.transaction_ended
        engine.attach(self)

    async def _engine_started(self, starting: asyncio.Task[None]) -> None:
        """Wait for the engine, until somebody closes the producer or it fails.

        Either may also happen after the engine is up and before this coroutine has its turn: nobody would then close
        what is opened.
        """
        try:
            await starting
        except asyncio.CancelledError as error:
            if is_own_cancellation(error):
                raise
            if self._closing is None:
                raise ProducerFailedError("the task of start() was cancelled from outside") from error
        if self._refusal is not not_started:
            raise self._refusal()

    def _make_engine(self, loop: asyncio.AbstractEventLoop) -> Engine:
        """The parts that ``start`` brings up; the source of randomness is chosen here."""
        return Engine(self._config, loop, weakref.WeakMethod(self._engine_ended), rng=random.Random())

    async def close(self, timeout: float | None = None) -> None:
        """Stop admission, send what was admitted, and end everything.

        Waits until every admitted record is acknowledged or failed; with ``timeout`` (seconds), at most that long,
        then fails the rest. It does not raise for those: ``health().given_up`` and a warning in the log give their
        number. When it returns, all done callbacks have been called. If the timeout leaves no time for them, the loop
        goes on calling them, and a warning in the log says how many are left; a serializer whose ``close`` does not
        end is cancelled, with a warning. An open transaction that is not prepared is aborted.

        May be called any number of times, also concurrently: the earliest deadline holds for all calls. If cancelled,
        it ends as ``close(0)`` would. Once the loop in which the producer was started is closed, any other loop may
        close it: pending records fail.

        Raises:
            DeliveryErrors: records failed and nobody looked at their Deliveries; the producer is closed anyway.
            WrongLoopError: called from another loop while the producer's own is not closed, or in a forked process.
            TypeError, ValueError: ``timeout`` is not a number; nothing was done.
        """
        if self._refusal is in_fork:
            raise self._refusal()
        loop = asyncio.get_running_loop()
        if self._engine is not None and self._engine.loop is not loop:
            if not self._engine.loop.is_closed():
                raise WrongLoopError("this producer was started in another event loop; close it there")
            self._outlive_loop(self._engine)
        if self._closing is not None and self._closing.was_cut_off:
            self._closing = None  # its loop was closed halfway through
        if self._closing is None:
            deadline = Deadline(loop, timeout)
            self._refusal = closed
            self._close_admission()
            self._closing = Closing(
                self._engine,
                self._preparation,
                deadline,
                starting=self._starting,
                on_end=lambda: _started.discard(self),
                logger=self._logger,
            )
        elif self._closing.is_over:
            return  # it has already raised its error
        else:
            self._closing.bring_forward(timeout)
        await self._closing.wait()

    def _outlive_loop(self, engine: Engine) -> None:
        """Tasks and connections could end only in that loop: drop them as they are, and fail what is pending."""
        self._engine = None
        _started.discard(self)
        pending = engine.fail_after_loop(closed_too_early)
        if pending:
            self._logger.warning(
                "close(): %d records failed, as they had not ended when their event loop was closed", pending
            )

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
            first = failure.exceptions[0] if isinstance(failure, DeliveryErrors) else None
            more = "" if first is None else f"; the first is {type(first).__name__}: {first}"
            error.add_note(f"closing the producer failed too: {failure}{more}")

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and self._closing is None and self._refusal is not in_fork:
            warnings.warn(
                f"{self!r} was never closed; use async with, or await close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )
            engine.abandon()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Producer can't be copied or pickled; make one from its configs where it is used, one for each event loop"
        )

    def __repr__(self) -> str:
        servers = ",".join(host_port(host, port) for host, port in self._config.bootstrap_servers)
        return f"<Producer {self._config.client_id} of {servers}>"

    # --- many records at once -----------------------------------------------------------------------------------------

    async def send_many(
        self,
        topic: str,
        records: Iterable[Sendable[Key_contra, Value_contra]] | AsyncIterable[Sendable[Key_contra, Value_contra]],
        *,
        raise_on_error: bool = True,
    ) -> BatchResult:
        """Send any number of records and wait until each is acknowledged or has failed.

        Records are taken one by one and appended in that order, as fast as the buffer has room; the event loop gets a
        turn at least every millisecond or 256 KiB. A bad record fails alone; but one that only a broker refuses fails
        its whole batch, and its own error has ``record_refused``. If the iterable raises, or there is no memory or
        topic metadata for ``max_block_ms``, no further records are taken; admitted records are still delivered, also if
        the call is cancelled. A generator, asynchronous or not, is then closed before this returns; if that raises, it
        becomes a note on the error. Any other iterable is left as it is. Once the producer is closed or has failed, an
        asynchronous iterable is not waited for: it sees a cancellation, as by ``asyncio.timeout``.

        Args:
            topic: for records that name none.
            records: an iterable or async iterable of values, exact 2-tuples ``(key, value)`` and ``Record``s; anything
                else is a value for the serializer.
            raise_on_error: False returns a result even if it has failures. A call that stopped early raises in any
                case.
        Raises:
            SendManyError: not everything was delivered; ``result`` is the BatchResult, the cause what stopped the call.
            TransactionStateError, TransactionAbortedError: as for ``submit``; no record was taken.
            SerializationError: the topic is not a str.
            NotStartedError, ProducerClosedError, WrongLoopError: called too early, too late or from elsewhere.
            TypeError: ``records`` is not an iterable, is itself a value, or is a mapping, whose keys alone would go.
        """
        self._check_admitting()
        if isinstance(records, Mapping):
            raise TypeError(
                f"records is a {type(records).__name__}; an iterable of records is needed, such as its items(): pairs "
                "of key and value"
            )
        if isinstance(records, (str, bytes, bytearray, memoryview)) or not (
            isinstance(records, (Iterable, AsyncIterable)) or hasattr(records, "__getitem__")
        ):
            raise TypeError(f"records is a {type(records).__name__}; an iterable of records is needed")
        bulk = self._bulk("send_many", checked_topic(topic))
        if self._preparation.is_trivial:
            return await bulk.send(records, raise_on_error=raise_on_error)
        return await self._told(topic, bulk.send_slowly(records, self._submit_slow, raise_on_error=raise_on_error))

    async def _told(self, topic: str | None, bulk: Coroutine[Any, Any, BatchResult]) -> BatchResult:
        """Tell interceptors of a bulk call, in the task that makes it."""
        self._preparation.bulk_began(topic)
        try:
            result = await bulk
        except BaseException as error:
            self._preparation.bulk_ended(getattr(error, "result", None), error)
            raise
        try:
            self._preparation.bulk_ended(result, None)
            return result
        finally:
            del result  # as in BulkSend: the traceback of an error in it may refer to this call

    async def send_arrow(
        self,
        topic: str | None,
        data: ArrowData,
        *,
        key: str = "key",
        value: str = "value",
        headers: str = "headers",
        partition: str = "partition",
        timestamp: str = "timestamp",
        topic_column: str = "topic",
        raise_on_error: bool = True,
    ) -> BatchResult:
        """Send each row of Arrow data as a record, and wait until each is acknowledged or has failed.

        Works like ``send_many``, but straight from Arrow's buffers, without a Python object per row. The library that
        holds the data is called in a worker thread, because a stream may be a running query. If interceptors,
        serializers or a partitioner are configured, they see each row as a record, with str for text columns and bytes
        for binary ones; the cost is then that of ``send_many``.

        Args:
            topic: for rows whose topic column is null or missing; None if every row names its topic.
            data: an object with the Arrow PyCapsule interface: a table or record batch of pyarrow, a data frame of
                polars or pandas, a relation of DuckDB, a stream of record batches.
            key, value: columns of binary, string, their large and view forms, or fixed_size_binary, also
                dictionary-encoded; null is a null key or value. The ``value`` column is required.
            headers: a column of lists, or a map, of struct<key: string, value: binary>.
            partition: a column of integers of any width; null leaves the choice to the partitioner.
            timestamp: a column of timestamps of any unit, floored to milliseconds, or of integers, which are
                milliseconds since the epoch; null means the time of the row's admission.
            topic_column: a column of the types of ``key``, holding UTF-8.

                A name that no column has is allowed, but for ``value``, and logged if it is not the default.
            raise_on_error: as for ``send_many``.
        Raises:
            SendManyError: as for ``send_many``; errors number the rows from 0, over all batches of a stream.
            TransactionStateError, TransactionAbortedError: as for ``send_many``.
            NotStartedError, ProducerClosedError, WrongLoopError: as for ``send_many``.
            SerializationError: the topic is neither a str nor None, the value column is missing, or a column has an
                unsuitable type; nothing was sent. Columns of other names are ignored.
            TypeError: ``data`` has no such interface, or no columns.
        Source: the Arrow PyCapsule interface.
        """
        columns = {
            "key": key,
            "value": value,
            "headers": headers,
            "partition": partition,
            "timestamp": timestamp,
            "topic_column": topic_column,
        }
        return await self._send_columns(topic, data, columns, raise_on_error=raise_on_error)

    async def _send_columns(
        self,
        topic: str | None,
        data: ArrowData,
        columns: Mapping[str, str],
        *,
        raise_on_error: bool,
        most_errors: int = MAX_ERRORS,
    ) -> BatchResult:
        """``send_arrow`` that can report every failed row, at the cost of memory."""
        self._check_admitting()
        bulk = self._bulk("send_arrow", None if topic is None else checked_topic(topic), most_errors=most_errors)
        if self._preparation.is_trivial:
            return await bulk.send_arrow(data, columns, None, raise_on_error=raise_on_error)
        return await self._told(topic, bulk.send_arrow(data, columns, self._submit_slow, raise_on_error=raise_on_error))

    def _bulk(
        self,
        name: str,
        topic: str | None,
        on_admitted: Callable[[], object] | None = None,
        *,
        most_errors: int = MAX_ERRORS,
        missing: dict[str, int] | None = None,
    ) -> BulkSend:
        engine = self._running_engine()
        transaction = engine.transaction_number
        return BulkSend(
            name,
            topic,
            engine=engine,
            admission=self,
            check=lambda: self._check_admitting(transaction),
            max_block_ms=self._config.max_block_ms,
            on_admitted=on_admitted,
            most_errors=most_errors,
            missing=missing,
        )

    # --- transactions -------------------------------------------------------------------------------------------------

    async def begin_transaction(self) -> None:
        """Open a transaction; all records sent from now on belong to it, whichever task sends them.

        Waits for an earlier transaction call that is still running, at most ``max_block_ms``.

        Raises:
            TransactionStateError: one is open or prepared, or the producer has no ``transactional_id``.
            KafkaError: the error of the previous transaction, if it failed and was not aborted yet; or the producer's
                own, if it has failed.
            TransactionTimeoutError: an earlier call, or the coordinator, took too long; no transaction was begun. Call
                it again.
            ProducerClosedError: the producer was closed, perhaps meanwhile; no transaction was begun. With
                ``maybe_written`` an earlier one may have been committed.
            NotStartedError, WrongLoopError: called too early, or from elsewhere.
        """
        await self._transactions().begin()

    async def commit_transaction(self) -> None:
        """Make everything sent in the open transaction visible at once: flush, then commit; at most ``max_block_ms``.

        Runs in a task of the producer: if the call is cancelled or times out, the commit goes on. The next transaction
        call waits for its end; if that is commit_transaction() again, it returns the outcome. A requested commit is
        never turned into an abort. But one that waits for another call, such as offsets that hang, has not begun; if it
        is cancelled or times out then, it does nothing.

        Raises:
            KafkaError: the error of a record or offset that failed. If ``abortable``, call abort_transaction(); if
                ``fatal``, the producer can't go on. Nothing of the transaction is visible then.
            TransactionTimeoutError: the commit has not ended, and goes on; or the call that it waits for, which the
                message names, has not ended. Call it again.
            ProducerClosedError: cut short by close(), or called after it; with ``maybe_written`` the transaction may
                have been committed.
            TransactionStateError: there is no transaction.
            NotStartedError, WrongLoopError: called too early, or from elsewhere.
        Source: KafkaProducer.commitTransaction; KIP-98, KIP-890.
        """
        await self._transactions().commit()

    async def abort_transaction(self) -> None:
        """Abort the open transaction: nothing sent in it ever becomes visible; at most ``max_block_ms``.

        Deliveries of records that were not sent yet raise TransactionAbortedError. Runs in a task of the producer: if
        the call is cancelled or times out, the abort goes on, also if it has yet to wait for another call. The next
        transaction call waits for its end.

        Raises:
            KafkaError: the producer has failed; nothing of the transaction is visible, or will be, unless
                ``maybe_written`` says that a commit may have come before.
            TransactionTimeoutError: the abort has not ended, and goes on; call it again.
            ProducerClosedError: cut short by close(), or called after it; ``maybe_written`` as above. The coordinator
                aborts the transaction after ``transaction_timeout_ms``, if nobody else does.
            TransactionStateError: there is no transaction, or a commit was under way and has succeeded.
            NotStartedError, WrongLoopError: called too early, or from elsewhere.
        """
        await self._transactions().abort()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: ConsumerGroupMetadata
    ) -> None:
        """Commit a consumer group's positions as part of the open transaction; at most ``max_block_ms``.

        They take effect only if the transaction is committed. The consumer must not commit by itself.

        Args:
            offsets: the offset of the next record to be consumed, by partition; ``aioproducer.consumers`` takes them
                from confluent-kafka and aiokafka.
            group_metadata: with generation and member, a consumer that is no longer in the group is refused (KIP-447,
                Kafka 2.5); with the group's id alone, it is not.
        Raises:
            KafkaError: the transaction can only be aborted (``abortable``), for instance because the group has moved on
                (IllegalGenerationError, UnknownMemberIdError), or the producer has failed (``fatal``).
            TransactionTimeoutError: the call has not ended, and goes on; commit_transaction() waits for it.
            ProducerClosedError: cut short by close(), or called after it; the transaction is not committed.
            TransactionStateError: there is no transaction.
            NotStartedError, WrongLoopError: called too early, or from elsewhere.
            TypeError, ValueError: an argument is not as above; nothing was done.
        Source: KafkaProducer.sendOffsetsToTransaction; KIP-98, KIP-447.
        """
        await self._transactions().send_offsets(checked_offsets(offsets), checked_group(group_metadata))

    async def prepare_transaction(self) -> PreparedTransaction:
        """Flush the open transaction and return what another process needs to end it; at most ``max_block_ms``.

        Afterwards this producer takes no records. It can still commit or abort the transaction itself, or be closed,
        which leaves the transaction open for ``aioproducer.transactions.commit`` or ``abort``, until the coordinator
        aborts it after ``transaction_timeout_ms``.

        Raises:
            KafkaError, TransactionTimeoutError, ProducerClosedError, TransactionStateError, NotStartedError,
                WrongLoopError: as for commit_transaction(); nothing was committed.
        """
        return await self._transactions().prepare()

    def transaction(self) -> Transaction:
        """``async with producer.transaction():`` begins a transaction, and commits it, or aborts it if the body raises.

        Cancellation of the body counts as raising. A transaction that the body itself committed, aborted or prepared is
        left as it is; but a commit or preparation that the body has left behind, or that another task waits for, is
        waited for. If the commit fails, the transaction is aborted and the error raised; also if the commit can't begin
        within ``max_block_ms``, because a call for offsets that the body has left behind still waits.

        Raises:
            TransactionAbortedError: at the end of the body, if the commit could not begin.
            TransactionStateError: the producer has no ``transactional_id``.
            ProducerClosedError, NotStartedError, WrongLoopError: called too late, too early or from elsewhere.
            KafkaError: on entry, the errors of begin_transaction(); at the end of a body that raises nothing, those of
                commit_transaction(). An error of the body leaves as it is; a failed abort adds a note to it.
        """
        return Transaction(self._transactions())

    def _transactions(self) -> TransactionRunner:
        if self._config.transactional_id is None:
            raise TransactionStateError("transactions need a transactional_id, which this producer does not have")
        self._check_open()
        runner = self._running_engine().transaction
        assert runner is not None
        return runner

    # --- the rest of the public calls ---------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Send every record admitted before the call, without waiting for linger, and wait until all have ended.

        Later records can't hold it up. When it returns, the done callbacks of all records it covers have been called.

        Args:
            timeout: seconds; None waits as long as it takes, at most ``delivery_timeout_ms`` and, for the memory of
                records that expired in flight, ``request_timeout_ms``.
        Raises:
            FlushTimeoutError: the time was not enough; ``pending`` records go on, nothing is dropped. If ``pending`` is
                0, either done callbacks took too long, which the loop goes on calling, or the memory of records that
                expired in flight did.
            DeliveryErrors: records it covers failed and nobody looked at their Deliveries.
            ProducerClosedError: called too late, or ``close`` gave up records it covers in the meantime.
            NotStartedError, WrongLoopError: called too early, or from elsewhere.
            TypeError, ValueError: ``timeout`` is not a number.
        """
        self._check_open()
        engine = self._running_engine()
        await engine.flushes.flush(Deadline(engine.loop, timeout))

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic by number; waits for its metadata.

        Raises:
            MetadataTimeoutError: not known within ``max_block_ms``.
            InvalidTopicError, TopicAuthorizationFailedError: the name is invalid, or the user may not see the topic.
            AuthenticationError: no broker accepts this client.
            SerializationError: the topic is not a str.
            NotStartedError, ProducerClosedError, WrongLoopError: called too early, too late or from elsewhere.
        """
        self._check_open()
        engine = self._running_engine()
        topic = checked_topic(topic)
        await engine.wait_for_topic(topic, None, engine.now_ms() + self._config.max_block_ms)
        return engine.partitions_of(topic)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """A snapshot of all metrics under Kafka's names: ``{group: {name: value}}``; topic and node groups nest.

        It may be called in any thread.
        """
        engine = self._engine
        return {} if engine is None else engine.metrics_snapshot()

    async def client_instance_id(self, timeout: float) -> str | None:
        """The id that the cluster assigned to this producer and its metrics (KIP-714).

        None if there is none within ``timeout`` seconds, for instance because no broker accepts metrics.

        Raises:
            ConfigError: ``enable_metrics_push`` is False.
            TypeError, ValueError: ``timeout`` is not a number, or less than 0.
            NotStartedError, ProducerClosedError, WrongLoopError: called too early, too late or from elsewhere.
        Source: KafkaProducer.clientInstanceId.
        """
        self._check_open()
        return await self._running_engine().telemetry.client_instance_id(timeout)

    def register_metric_for_subscription(
        self,
        name: str,
        read: Callable[[], float],
        *,
        kind: Literal["gauge", "sum"] = "gauge",
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Push a metric of the program to the cluster too, if it asks for that (KIP-1076), from the next push on.

        It replaces the metric of this name and these attributes. With ``enable_metrics_push=False`` nothing is pushed.

        Args:
            name: as subscriptions name it, such as ``com.example.orders.waiting``; without a prefix of Kafka's.
            read: returns the value, at each push, on the event loop. NaN is no value; what it raises is logged the
                first time.
            kind: "gauge" for a value that comes and goes, "sum" for a total that only grows, of which the cluster may
                ask for the increase.
            attributes: tell metrics of one name apart, which are all of one kind.
        Raises:
            ValueError: the name is the producer's own, or not one that OpenTelemetry allows; or the kind is unknown or
                not that of others of this name.
            TypeError: an argument has another type, or ``read`` is async.
            NotStartedError, ProducerClosedError, WrongLoopError: called too early, too late or from elsewhere.
        Source: KafkaProducer.registerMetricForSubscription.
        """
        self._check_open()
        self._running_engine().telemetry.application.register(name, read, kind, attributes)

    def unregister_metric_from_subscription(self, name: str, *, attributes: Mapping[str, str] | None = None) -> None:
        """Push the metric of this name and these attributes no more; if there is none, nothing happens.

        Raises:
            TypeError, ValueError, NotStartedError, ProducerClosedError, WrongLoopError: as for
                ``register_metric_for_subscription``.
        Source: KafkaProducer.unregisterMetricFromSubscription.
        """
        self._check_open()
        self._running_engine().telemetry.application.unregister(name, attributes)

    @property
    def client_id(self) -> str:
        """The name that brokers use for this producer in logs, metrics and quotas."""
        return self._config.client_id

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster (KIP-78); None before ``start``, and if the cluster has none."""
        engine = self._engine
        return None if engine is None else engine.cluster_id

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which the producer was started; None before that."""
        engine = self._engine
        return None if engine is None else engine.loop

    def health(self) -> ProducerHealth:
        """What the producer is doing, and what keeps it from sending; waits for nothing, and works in any thread.

        ``ready`` says whether a record could be sent at once, ``live`` whether this producer can still recover.
        ``pending`` counts the records that have not ended, ``given_up`` those that failed because of ``close(timeout)``
        or because the producer failed.
        """
        state, engine, waiting = self._state(), self._engine, 0
        error = self._refusal() if state is ProducerState.FAILED else None
        if engine is None:
            return ProducerHealth(state, error)
        if state is ProducerState.RUNNING:
            error, waiting = engine.unreachable, len(engine.memory_queue)
        return ProducerHealth(state, error, waiting, engine.pending, engine.given_up)

    def _state(self) -> ProducerState:
        if self._closing is not None:
            return ProducerState.CLOSED if self._closing.is_over else ProducerState.CLOSING
        if self._refusal is not not_started:
            return ProducerState.FAILED
        if self._engine is None:
            return ProducerState.NEW
        return ProducerState.RUNNING if self._is_open else ProducerState.STARTING

    def _engine_ended(self, error: KafkaError) -> None:
        """A part ended that never should: refuse everything from now on, with the reason."""
        engine = self._engine
        if self._refusal is not_started and engine is not None:
            self._refusal = lambda: engine.failure_of(error)
            self._close_admission()

    def _forked(self) -> None:
        self._refusal = in_fork
        self._close_admission()
