"""BulkSend: one send_many or send_arrow call, from its first record until its last has ended."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
)
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

from aioproducer._admission import Admission
from aioproducer._arguments import check_partition
from aioproducer._arrow import ArrowFeed
from aioproducer._arrow_source import ArrowSource
from aioproducer._delivery import Delivery, count_in
from aioproducer._feed import FEED_BLOCKED, FEED_BROKEN, FEED_CLOSED, FEED_DONE, FEED_EMPTY, FEED_TURN, RecordFeed
from aioproducer._tally import Tally
from aioproducer.engine import Engine
from aioproducer.errors import (
    AuthenticationError,
    BufferExhaustedError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    SchemaRegistryUnavailableError,
    SendManyError,
    SerializationError,
    TransactionAbortedError,
    TransactionStateError,
    WrongLoopError,
)
from aioproducer.net.cancellation import is_own_cancellation
from aioproducer.records import MAX_ERRORS, BatchResult, Record

E = TypeVar("E", bound=Exception)

SubmitSlow = Callable[[Any, Any, Any, int | None, Any, int | None, bool], Awaitable[Delivery]]

STOPPING = (
    AuthenticationError,
    BufferExhaustedError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    SchemaRegistryUnavailableError,
    TransactionAbortedError,
    TransactionStateError,
    WrongLoopError,
)
"""Errors that the next record would meet as well; all others concern one record."""


GATHERING_S = 0.001
"""How long to wait for more rows of an Arrow stream once there are some: small batches are costly to wait for."""

DEFAULT_COLUMNS = {
    "key": "key",
    "value": "value",
    "headers": "headers",
    "partition": "partition",
    "timestamp": "timestamp",
    "topic_column": "topic",
}
"""The defaults of ``Producer.send_arrow``, by argument."""


class Feed(Protocol):
    """Hands records to the compiled core: `RecordFeed` or `ArrowFeed`."""

    @property
    def error(self) -> Exception | None: ...
    @property
    def holds_record(self) -> bool: ...
    @property
    def wanted(self) -> tuple[str, int | None]: ...
    def run(self) -> int: ...
    def try_now(self) -> bool: ...
    def refuse(self, error: Exception) -> None: ...


class _Stopped(Exception):
    """Admission ends before all of the caller's records are admitted."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


class BulkSend:
    """Admits the records of one call, waiting where needed, and reports how they ended.

    Args:
        name: the call's name, for messages.
        topic: for records that name none.
        check: raises if the producer does not admit records.
        on_admitted: called when admission is over and the wait for the records' ends begins.
        most_errors: the most errors in the result.
        missing: topics of which a call has waited in vain for a partition, with the number of partitions that they
            had; calls that share it wait once.
    """

    def __init__(
        self,
        name: str,
        topic: str | None,
        *,
        engine: Engine,
        admission: Admission,
        check: Callable[[], None],
        max_block_ms: int,
        on_admitted: Callable[[], object] | None = None,
        most_errors: int = MAX_ERRORS,
        missing: dict[str, int] | None = None,
    ) -> None:
        self._on_admitted = on_admitted
        self._name = name if topic is None else f"{name} to topic {topic!r}"
        self._engine = engine
        self._admission = admission
        self._check = check
        self._max_block_ms = max_block_ms
        self._missing = {} if missing is None else missing
        self._patience: asyncio.Timeout | None = None
        """Only for an async iterator, which may take any time to yield the next record."""
        self._waits_for_record = False
        self._refusal: KafkaError | None = None
        self._fetching: asyncio.Future[None] | None = None
        """A thread's job, which gets the next batches of an Arrow stream."""
        self._arrival: asyncio.Future[None] | None = None
        """Done when there are rows, or it has ended."""
        self.tally = Tally(topic, most_errors)

    # --- entry points -------------------------------------------------------------------------------------------------

    async def send(self, records: Iterable[Any] | AsyncIterable[Any], *, raise_on_error: bool) -> BatchResult:
        """Send records that no user code has to see first."""
        return await self._run(_closing(records, _stopping(self._take_all(records))), raise_on_error=raise_on_error)

    async def send_arrow(
        self, data: Any, columns: Mapping[str, str], submit: SubmitSlow | None, *, raise_on_error: bool
    ) -> BatchResult:
        """Send the rows of Arrow data.

        Args:
            data: converted in a worker thread, unless it is an ArrowSource already.
            columns: column names by purpose.
            submit: for producers whose records user code has to see.
        """
        # The other library's work here, and when rows are fetched, may take as long as a query.
        source = data
        if not isinstance(data, ArrowSource):
            source = await self._engine.loop.run_in_executor(None, _take_over, data, columns)
        feed = ArrowFeed(self._admission, self.tally, source, **columns)
        self._check()
        for argument, column in columns.items():
            if column not in feed.names and column != DEFAULT_COLUMNS[argument]:
                self._engine.warn_of_column(argument, column)
        try:
            if submit is None:
                rows = self._until_turned_away(self._go_on(feed, feed.run))
                return await self._run(rows, raise_on_error=raise_on_error)
            return await self.send_slowly(self._rows(feed), submit, raise_on_error=raise_on_error)
        finally:
            feed.stop()

    async def _rows(self, feed: ArrowFeed) -> AsyncIterator[Record]:
        while True:
            while (row := feed.next_record()) is not None:
                if isinstance(row, Record):
                    yield row
                else:
                    self.tally.refuse(row)
            if feed.has_ended:
                return
            await self._fetch(feed)

    async def _fetch(self, feed: ArrowFeed) -> None:
        """Wait for rows. The other library makes them in a thread, where it goes on while these are sent."""
        arrival = self._arrival = self._engine.loop.create_future()
        if not feed.await_rows():
            return
        if self._fetching is None or self._fetching.done():
            loop = self._engine.loop
            soon = partial(loop.call_soon_threadsafe, loop.call_later, GATHERING_S, self._arrived)
            self._fetching = loop.run_in_executor(None, feed.fetch, soon)
            self._fetching.add_done_callback(self._arrived)
        self._waits_for_record = True
        await arrival
        self._waits_for_record = False
        if self._fetching.done():
            self._fetching.result()

    def _arrived(self, *_: object) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def send_slowly(
        self, records: Iterable[Any] | AsyncIterable[Any], submit: SubmitSlow, *, raise_on_error: bool
    ) -> BatchResult:
        """Send one by one the records that interceptors, serializers or a partitioner have to see."""
        admission = _closing(records, _stopping(self._submit_all(records, submit)))
        return await self._run(admission, raise_on_error=raise_on_error)

    # --- all of them --------------------------------------------------------------------------------------------------

    async def _run(self, admission: Awaitable[None], *, raise_on_error: bool) -> BatchResult:
        stopped_by: Exception | None = None
        tally = self.tally
        try:
            try:
                await admission
            except _Stopped as stop:
                stopped_by = stop.cause
            if self._on_admitted is not None:
                self._on_admitted()
            await tally.ended(self._engine.loop)
        except BaseException:
            tally.abandon(self._engine.accumulator.ledger)
            raise
        finally:
            del self.tally  # an error's traceback may refer to this call, and with it to all other errors
        result: BatchResult | None = None
        try:
            result = tally.result()
            if stopped_by is not None or (result.failed and raise_on_error):
                raise SendManyError.of_result(self._name, result, tally.failed_batches(), stopped_by)
            return result
        finally:
            del tally, result  # from Python 3.12 on, the frames below it refer to this one

    async def _take_all(self, records: Iterable[Any] | AsyncIterable[Any]) -> None:
        if isinstance(records, AsyncIterable):
            await self._until_turned_away(self._offer_all(RecordFeed(self._admission, self.tally), records))
        else:
            feed = RecordFeed(self._admission, self.tally, records)
            await self._go_on(feed, feed.run)

    async def _offer_all(self, feed: RecordFeed, records: AsyncIterable[Any]) -> None:
        self._waits_for_record = True
        async for record in records:
            self._waits_for_record = False
            self._check_taken()
            state = feed.offer(record)
            if state != FEED_DONE:
                await self._go_on(feed, lambda state=state: state)  # type: ignore[misc]
            self._waits_for_record = True

    async def _until_turned_away(self, taking: Awaitable[None]) -> None:
        """Take from an async iterator, or a stream, while the producer admits records; the next may never come."""
        patience = self._patience = asyncio.timeout(None)
        try:
            async with patience:
                with self._engine.telling_who_is_turned_away(self._turned_away):
                    await taking
        except TimeoutError:
            if not patience.expired():
                raise
        finally:
            self._patience = None  # it refers to the task, and so to what this call raises
        if patience.expired():
            assert self._refusal is not None
            raise _Stopped(self._refusal)

    def _turned_away(self, error: KafkaError) -> None:
        """The producer admits nothing more: end the wait for a record. The other waits notice by themselves."""
        self._refusal = copy.copy(error)
        if self._waits_for_record and self._patience is not None:
            self._waits_for_record = False  # once is enough
            self._patience.reschedule(self._engine.loop.time())

    async def _go_on(self, feed: Feed, first: Callable[[], int]) -> None:
        """Run the feed until it is done, waiting for what it needs."""
        ticket: int | None = None
        rows = -1
        state = first()
        while state != FEED_DONE:
            if state == FEED_TURN:
                # No progress since the last turn: others used it up, so keep the place in the queue.
                ticket = await self._engine.turns.next(ticket if rows == self.tally.rows else None)
                rows = self.tally.rows
            elif state == FEED_BLOCKED:
                await self._unblock(feed)
            elif state == FEED_CLOSED:
                self._refused(feed)
            elif state == FEED_BROKEN:
                assert feed.error is not None
                raise _Stopped(feed.error)
            elif state == FEED_EMPTY:
                assert isinstance(feed, ArrowFeed)
                await self._fetch(feed)
            self._check_again(feed.refuse if feed.holds_record else None)
            state = feed.run()

    def _check_again(self, refuse: Callable[[KafkaError], object] | None) -> None:
        """Check again after a wait: the state may have changed since the call began, above all the open transaction.

        Args:
            refuse: for a record already taken from the caller, so that it appears in the result.
        """
        try:
            self._check()
        except KafkaError as error:
            if refuse is not None:
                refuse(_without_own_frames(error))
            raise _Stopped(error) from error

    def _check_taken(self) -> None:
        """Check again before a record is admitted, as taking it from the caller may have waited."""
        if self._engine.transaction is not None:
            self._check_again(self.tally.refuse)

    def _refused(self, feed: Feed) -> NoReturn:
        try:
            self._admission._refuse()
        except KafkaError as error:
            feed.refuse(_without_own_frames(error))
            raise _Stopped(error) from error

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def _unblock(self, feed: Feed) -> None:
        """Wait for what the feed's next record needs, or refuse it."""
        topic: str | None = None
        try:
            topic, partition = feed.wanted
            if self._engine.is_known(topic, partition):
                await self._wait_for_memory(feed, topic, partition)
            else:
                await self._wait_for_topic(topic, partition)
        except KafkaError as error:
            if feed.holds_record:
                feed.refuse(_without_own_frames(error))
            if self._stops(error, topic):
                raise _Stopped(error) from error

    async def _wait_for_topic(self, topic: str, partition: int | None) -> None:
        now_ms = self._engine.now_ms()
        waited = self._waited_in_vain(topic, partition)
        await self._engine.wait_for_topic(topic, partition, now_ms if waited else now_ms + self._max_block_ms)

    def _waited_in_vain(self, topic: str | None, partition: int | None) -> bool:
        """Whether there was already a wait in vain for a partition of this topic: a thousand such records wait once."""
        known = None if topic is None else self._engine.accumulator.topic(topic)
        number = None if known is None else check_partition(partition, known.name)
        if known is None or number is None or number < known.partitions:
            return False
        return self._missing.get(known.name) == known.partitions

    def _stops(self, error: KafkaError, topic: str | None) -> bool:
        """Whether to stop admission, rather than try the next record."""
        known = None if topic is None else self._engine.accumulator.topic(topic)
        if isinstance(error, MetadataTimeoutError) and known is not None and known.partitions:
            self._missing[known.name] = known.partitions
            return False  # the topic is there, only the partition is not
        return isinstance(error, STOPPING)

    async def _wait_for_memory(self, feed: Feed, topic: str, partition: int | None) -> None:
        engine = self._engine

        def attempt() -> bool | None:
            self._check()
            if not engine.is_known(topic, partition):
                return True  # memory no longer blocks it: something else does
            return True if engine.has_room() and feed.try_now() else None

        if not await engine.wait_for_memory(attempt, engine.now_ms() + self._max_block_ms):
            raise BufferExhaustedError(
                f"no memory for a record for topic {topic!r} within max_block_ms={self._max_block_ms}: "
                f"{engine.used_bytes:,} of buffer_memory={engine.accumulator.pool.total_bytes:,} bytes are in use"
            )

    # --- the slow path ------------------------------------------------------------------------------------------------

    async def _submit_all(self, records: Iterable[Any] | AsyncIterable[Any], submit: SubmitSlow) -> None:
        if isinstance(records, AsyncIterable):
            await self._until_turned_away(self._submit_each(records, submit))
        else:
            for record in records:
                await self._submit(record, submit)

    async def _submit_each(self, records: AsyncIterable[Any], submit: SubmitSlow) -> None:
        self._waits_for_record = True
        async for record in records:
            self._waits_for_record = False
            await self._submit(record, submit)
            self._waits_for_record = True
            if self._refusal is not None:  # it arrived in the turn after the record was admitted
                self._turned_away(self._refusal)

    async def _submit(self, item: Any, submit: SubmitSlow) -> None:
        record = item if isinstance(item, Record) else Record(item)
        if type(item) is tuple and len(item) == 2:
            record = Record(item[1], item[0])
        topic = self.tally.topic if record.topic is None else record.topic
        name = str.__str__(topic) if isinstance(topic, str) else None  # a plain str, also for an enum member
        self._check_taken()
        try:
            if name is not None and self._waited_in_vain(name, record.partition):
                await self._wait_for_topic(name, record.partition)  # raises what it raised before
            fields = topic, record.value, record.key, record.partition, record.headers, record.timestamp_ms
            delivery = self._admission._admit_serialized(*fields)
            if delivery is None:
                delivery = await submit(*fields, False)
        except KafkaError as error:
            self.tally.refuse(_without_own_frames(error), topic)
            if self._stops(error, name):
                raise _Stopped(error) from error
        except Exception as error:
            refused = SerializationError(f"a record for topic {topic!r} can't be read: {type(error).__name__}")
            refused.__cause__ = _without_own_frames(error)
            self.tally.refuse(refused, topic)
        else:
            count_in(delivery, self.tally)
        if self._admission._turn_is_due:
            await self._engine.turns.next()


async def _stopping(admission: Awaitable[None]) -> None:
    """Stop admission for whatever the caller's iterable raises."""
    try:
        try:
            await admission
        except asyncio.CancelledError as error:
            if is_own_cancellation(error):
                raise
            # The result is an exception group, which takes no CancelledError.
            raise RuntimeError("the iterable of the records raised CancelledError") from error
    except _Stopped:
        raise
    except Exception as error:
        raise _Stopped(error) from error


async def _closing(records: Iterable[Any] | AsyncIterable[Any], admission: Awaitable[None]) -> None:
    """Close the records' generator as soon as admission fails; an error from closing becomes a note on the failure.

    Otherwise the loop would close an async generator in a task of its own, and both kinds would stay open until the
    last traceback that refers to them is gone. Other iterators are for their owner to close.
    Source: PEP 525; contextlib.aclosing.
    """
    try:
        await admission
    except BaseException as error:
        first = error.cause if isinstance(error, _Stopped) else error
        try:
            if isinstance(records, Generator):
                records.close()
            elif isinstance(records, AsyncGenerator) and not isinstance(error, GeneratorExit):  # no await then
                await records.aclose()
        except (Exception, asyncio.CancelledError) as failure:
            if is_own_cancellation(failure):
                raise
            first.add_note(f"closing the generator of the records failed too: {failure!r}")
        raise


def _without_own_frames(error: E) -> E:
    """The error of a record that is refused; its traceback begins where it enters the program's own code, if it does.

    The producer's frames hold the record and this call: the result, which has a thousand errors, would keep as many
    records alive, and only the garbage collector would find it.
    """
    at = error.__traceback__
    while at is not None and str(at.tb_frame.f_globals.get("__name__")).startswith("aioproducer."):
        at = at.tb_next
    return error.with_traceback(at)


def _take_over(data: Any, columns: Mapping[str, str]) -> ArrowSource:
    """The other library's errors have to pass through a future, which refuses StopIteration."""
    try:
        _check_no_objects(data, columns)
        return ArrowSource(data)
    except StopIteration as error:
        raise RuntimeError("the Arrow data raised StopIteration") from error


def _check_no_objects(data: Any, columns: Mapping[str, str]) -> None:
    """Refuse columns of Python objects: polars exports their addresses, as fixed_size_binary[8]."""
    if not hasattr(data, "__arrow_c_stream__"):
        return  # it is refused anyway; asking a LazyFrame for its schema may read files, and gives a warning
    types = getattr(data, "schema", None)
    if not isinstance(types, Mapping):
        return
    for name in columns.values():
        if str(types.get(name)) == "Object":
            raise SerializationError(
                f"column {name!r} holds Python objects, of which Arrow would have the addresses; make it one of "
                "binary or string"
            )
