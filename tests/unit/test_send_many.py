"""send_many against a scripted broker on the loopback."""

from __future__ import annotations

import array
import asyncio
import contextlib
import enum
import gc
import inspect
import itertools
import sys
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer import (
    BatchResult,
    BufferExhaustedError,
    DeliveryErrors,
    MetadataTimeoutError,
    NotStartedError,
    Producer,
    ProducerClosedError,
    ProducerState,
    Record,
    RecordTooLargeError,
    SendManyError,
    SerializationError,
    TopicPartition,
    WrongLoopError,
)
from aioproducer.errors import TopicAuthorizationFailedError
from aioproducer.records import MAX_ERRORS
from tests.eager import make_tasks_eager
from tests.reference.record_batch import PlainRecord
from tests.unit.producing_broker import ProducingBroker
from tests.unit.waiting import turns, until

PATIENCE_S = 60
NOW = 1 << 62
"""Stands for the time of the call."""


@pytest.fixture
async def broker() -> AsyncIterator[ProducingBroker]:
    async with ProducingBroker() as broker:
        yield broker


def producer_of(broker: ProducingBroker, **configs: Any) -> Producer:
    return Producer(bootstrap_servers=broker.bootstrap_servers, **configs)


async def asynchronously(records: Iterable[Any]) -> AsyncIterator[Any]:
    for record in records:
        yield record


class Topic(enum.StrEnum):
    ORDERS = "orders"
    AUDIT = "audit"


class SomeIterable:
    """Has nothing but __iter__."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)


FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "generator": lambda records: (record for record in records),
    "iterable": SomeIterable,
    "asynchronous": asynchronously,
}

each_form = pytest.mark.parametrize("form", FORMS)

USER_CODE: dict[str, dict[str, Any]] = {"compiled": {}, "with user code": {"value_serializer": lambda value: value}}
each_path = pytest.mark.parametrize("configs", USER_CODE.values(), ids=USER_CODE)


# --- what it takes ----------------------------------------------------------------------------------------------------


@each_form
@each_path
async def test_values_pairs_and_records(broker: ProducingBroker, form: str, configs: dict[str, Any]) -> None:
    """Every form of record in every form of iterable, in order."""
    broker.topics = {"orders": 2, "audit": 1}
    records: list[Any] = [
        b"value",
        "täxt",
        None,
        bytearray(b"array"),
        (b"key", b"pair"),
        ("k", None),
        Record(b"v", b"k", partition=1, headers={"h": b"1"}, timestamp_ms=7),
        Record(b"elsewhere", topic="audit", headers=iter([("i", None)])),
    ]
    async with producer_of(broker, **configs) as producer:
        result = await producer.send_many("orders", FORMS[form](records))
        single = [
            await producer.send("orders", b"value"),
            await producer.send("orders", b"pair", key=b"key"),
            await producer.send("orders", None, key="k"),
        ]
    assert (result.acked, result.failed, result.errors) == (8, 0, [])
    assert sum(last - first + 1 for ranges in result.offsets.values() for first, last in ranges) == 8
    assert result.offsets[TopicPartition("audit", 0)] == [(0, 0)]
    stored = {
        (record.key, record.value, record.headers): (partition, record.timestamp_ms)
        for (topic, partition), log in broker.log.items()
        if topic == "orders"
        for record in log
    }
    assert stored[b"k", b"v", (("h", b"1"),)] == (1, 7)
    assert {value for _, value, _ in stored} == {b"value", "täxt".encode(), None, b"array", b"pair", b"v"}
    assert stored[b"key", b"pair", ()][0] == single[1].partition
    assert stored[b"k", None, ()][0] == single[2].partition
    (elsewhere,) = broker.log["audit", 0]
    assert (elsewhere.value, elsewhere.headers) == (b"elsewhere", (("i", None),))


@each_form
@each_path
async def test_no_records(broker: ProducingBroker, form: str, configs: dict[str, Any]) -> None:
    """The result is empty, and the topic need not even exist."""
    async with producer_of(broker, **configs) as producer:
        assert await producer.send_many("nowhere", FORMS[form]([])) == BatchResult(0, 0, {}, [])


@each_path
async def test_pairs_are_exact(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Lists, longer tuples and subclasses of tuple are values, which fail without a serializer."""
    pair = type("Pair", (tuple,), {})
    async with producer_of(broker, **configs) as producer:
        result = await producer.send_many(
            "orders", [[b"k", b"v"], (b"k", b"v", b"x"), pair((b"k", b"v")), (b"k", b"v")], raise_on_error=False
        )
    assert (result.acked, result.failed) == (1, 3)
    assert [(row, type(error)) for row, error in result.errors] == [(row, SerializationError) for row in range(3)]


async def test_anything_else_goes_to_the_serializer(broker: ProducingBroker) -> None:
    """Tuples of two still are pairs."""
    seen: list[Any] = []

    def serializer(value: Any) -> bytes:
        seen.append(value)
        return repr(value).encode()

    async with producer_of(broker, value_serializer=serializer) as producer:
        await producer.send_many("orders", [1, [2], (b"k", 3), (4, 5, 6), None, Record({"a": 7})])
    assert seen == [1, [2], 3, (4, 5, 6), {"a": 7}]
    assert broker.values() == [b"1", b"[2]", b"3", b"(4, 5, 6)", None, b"{'a': 7}"]


async def test_asynchronous_serializers_keep_the_order(broker: ProducingBroker) -> None:
    async def serializer(value: int) -> bytes:
        for _ in range(5 - value):
            await asyncio.sleep(0)
        return b"%d" % value

    async with producer_of(broker, value_serializer=serializer) as producer:
        result = await producer.send_many("orders", range(5))
    assert result == BatchResult(5, 0, {0: [(0, 4)]}, [])
    assert broker.values() == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize(
    "records", ["text", b"bytes", bytearray(b"x"), memoryview(b"x"), Record(b"v"), 5, None, {"k": "v"}]
)
async def test_what_is_no_iterable_of_records(broker: ProducingBroker, records: Any) -> None:
    """A single value by mistake is an error, and not iterated over."""
    async with producer_of(broker) as producer:
        with pytest.raises(TypeError, match=f"{type(records).__name__}.*iterable"):
            await producer.send_many("orders", records)
    assert not broker.log


async def test_the_topic_is_text(broker: ProducingBroker) -> None:
    async with producer_of(broker) as producer:
        with pytest.raises(SerializationError, match="topic is a int"):
            await producer.send_many(5, [b"v"])  # type: ignore[arg-type]


plain = st.one_of(st.none(), st.binary(max_size=50), st.text(max_size=20).filter(lambda text: text.isprintable()))
keyed = st.tuples(plain.filter(lambda key: key is not None), plain)
records = st.one_of(
    plain,
    st.tuples(plain, plain),
    st.builds(
        Record,
        plain,
        plain,
        partition=st.one_of(st.none(), st.integers(0, 2)),
        headers=st.one_of(st.none(), st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)))),
        timestamp_ms=st.integers(0, 1 << 40),
    ),
)


@given(
    st.lists(records, max_size=40) | st.lists(keyed, max_size=40),
    st.sampled_from(sorted(FORMS)),
    st.sampled_from(sorted(USER_CODE)),
)
def test_same_as_one_by_one(rows: list[Any], form: str, path: str) -> None:
    """The log is the same as after single sends: partition by key, headers, nulls, timestamps."""

    async def logs() -> list[dict[tuple[str, int], list[PlainRecord]]]:
        found = []
        for many in True, False:
            configs = {"linger_ms": 0, **USER_CODE[path]}
            if not said:
                configs["partitioner_class"] = "round_robin"
            async with ProducingBroker({"orders": 3}) as broker, producer_of(broker, **configs) as producer:
                if many:
                    await producer.send_many("orders", FORMS[form](rows))
                else:
                    for row in rows:
                        await one(producer, row)
                    await producer.flush()
                found.append(broker.log)
        return found

    # Where every record says where it goes, by itself or by its key, it has to go there; the others go round.
    said = all(
        row.key is not None or row.partition is not None
        if isinstance(row, Record)
        else isinstance(row, tuple) and row[0] is not None
        for row in rows
    )

    async def one(producer: Producer, row: Any) -> None:
        if isinstance(row, Record):
            await producer.submit(
                "orders",
                row.value,
                key=row.key,
                partition=row.partition,
                headers=row.headers,
                timestamp_ms=row.timestamp_ms,
            )
        else:
            key, value = row if isinstance(row, tuple) else (None, row)
            await producer.submit("orders", value, key=key)

    def without_own_time(log: dict[tuple[str, int], list[PlainRecord]]) -> Any:
        return {
            place: [one if one.timestamp_ms < 1 << 40 else one._replace(timestamp_ms=NOW) for one in records]
            for place, records in log.items()
        }

    many, single = asyncio.run(logs())
    assert without_own_time(many) == without_own_time(single)


# --- backpressure and turns -------------------------------------------------------------------------------------------


@each_form
@each_path
async def test_more_than_the_buffer_holds(broker: ProducingBroker, form: str, configs: dict[str, Any]) -> None:
    """The buffer fills and empties; order and counts are right, and the memory is free."""
    values = [b"%06d" % number + bytes(400) for number in range(2_000)]
    async with producer_of(broker, buffer_memory=65_536, batch_size=16_384, **configs) as producer:
        result = await producer.send_many("orders", FORMS[form](values))
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["buffer-available-bytes"] == 65_536
        assert metrics["record-send-total"] == 2_000
    assert result == BatchResult(2_000, 0, {0: [(0, 1_999)]}, [])
    assert broker.values() == values


async def test_several_at_once_share_the_buffer(broker: ProducingBroker) -> None:
    """Each gets its own offsets, which together are all offsets."""
    async with producer_of(broker, buffer_memory=131_072, batch_size=16_384) as producer:
        results = await asyncio.gather(
            *(producer.send_many("orders", [b"%d" % name + bytes(300)] * 500) for name in range(8))
        )
    told = {}
    for name, result in enumerate(results):
        assert (result.acked, result.failed) == (500, 0)
        told.update({at: b"%d" % name for first, last in result.offsets[0] for at in range(first, last + 1)})
    assert [told[at] for at in range(4_000)] == [(value or b"")[:1] for value in broker.values()]


@each_path
async def test_the_loop_gets_turns(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Even if nothing has to be awaited: another task keeps running meanwhile."""
    turns = 0
    done = False

    async def count() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    async with producer_of(broker, **configs) as producer:
        await producer.partitions_for("orders")
        counter = asyncio.create_task(count())
        await producer.send_many("orders", [bytes(1_000)] * 5_000)
        done = True
        await counter
    assert turns >= 5_000 * 1_000 // 262_144


async def test_a_slow_iterable_keeps_the_loop_for_one_record_only(broker: ProducingBroker) -> None:
    """A record that took long to arrive is followed by a turn of the loop."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    def slow() -> Iterator[bytes]:
        for number in range(20):
            until = time.perf_counter() + 0.002
            while time.perf_counter() < until:
                pass
            seen.append(ticks)
            yield b"%d" % number

    seen: list[int] = []
    async with producer_of(broker) as producer:
        await producer.partitions_for("orders")
        ticker = asyncio.create_task(tick())
        await producer.send_many("orders", slow())
        ticker.cancel()
    assert all(later > earlier for earlier, later in itertools.pairwise(seen))


# --- what goes wrong --------------------------------------------------------------------------------------------------


@each_form
@each_path
async def test_a_bad_record_fails_alone(broker: ProducingBroker, form: str, configs: dict[str, Any]) -> None:
    """Whatever is bad about it; the others are sent, and the errors name their rows."""

    def broken() -> Iterator[Any]:
        raise ZeroDivisionError
        yield

    def records() -> Any:
        return FORMS[form](
            [
                b"0",
                5,
                b"2",
                bytes(2 << 20),
                Record(b"4", headers=[("name", 4)]),  # type: ignore[list-item]
                Record(b"5", timestamp_ms=-1),
                Record(b"6", partition="x"),  # type: ignore[arg-type]
                (array.array("d"), "\udcff"),
                Record(b"8", headers=broken()),
                Record(b"9", topic="no such/name"),
                b"10",
            ]
        )

    async with producer_of(broker, **configs) as producer:
        result = await producer.send_many("orders", records(), raise_on_error=False)
        with pytest.raises(SendManyError, match=r"send_many to topic 'orders': 8 of 11 records") as caught:
            await producer.send_many("orders", records())
    assert (result.acked, result.failed, result.offsets) == (3, 8, {0: [(0, 2)]})
    assert [row for row, _ in result.errors] == [1, 3, 4, 5, 6, 7, 8, 9]
    kinds = {row: type(error) for row, error in result.errors}
    assert kinds[3] is RecordTooLargeError
    assert {kinds[row] for row in (1, 4, 5, 6, 7, 8)} == {SerializationError}
    assert kinds[9].__name__ == "InvalidTopicError"
    assert broker.values()[:3] == [b"0", b"2", b"10"]
    assert isinstance(caught.value, DeliveryErrors)
    assert caught.value.result.failed == caught.value.record_count == len(caught.value.exceptions) == 8
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("partition", ["x", True, 1 << 31])
@pytest.mark.parametrize("form", ["list", "asynchronous"])
@each_path
async def test_a_bad_partition_fails_alone_before_the_topic_is_known(
    broker: ProducingBroker, form: str, configs: dict[str, Any], partition: Any
) -> None:
    """No topic can have this partition, so there is no wait."""
    async with producer_of(broker, **configs) as producer:
        records = FORMS[form]([Record(b"0", partition=partition), b"1"])
        sending = producer.send_many("orders", records, raise_on_error=False)
        result = await asyncio.wait_for(sending, PATIENCE_S)
    ((row, error),) = result.errors
    assert (row, type(error)) == (0, SerializationError)
    assert "partition" in str(error)
    assert broker.values() == [b"1"]


@each_path
async def test_a_failed_batch(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """There is one error per failed batch, with its records; flush and close do not raise it again."""
    broker.error_code = 29
    async with producer_of(broker, batch_size=1_000, **configs) as producer:
        with pytest.raises(SendManyError) as caught:
            await producer.send_many("orders", [bytes(90)] * 100)
        await producer.flush()
        result = await producer.send_many("orders", [bytes(90)] * 100, raise_on_error=False)
    assert result.failed == caught.value.record_count == 100
    assert all(isinstance(error, TopicAuthorizationFailedError) for error in caught.value.exceptions)
    assert sum(error.record_count for error in caught.value.exceptions) == 100  # type: ignore[attr-defined]
    assert [row for row, _ in result.errors] == list(range(100))


@each_path
async def test_only_the_first_errors_are_told(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """A thousand errors are kept, as documented; all are counted."""
    async with producer_of(broker, **configs) as producer:
        result = await producer.send_many("orders", [5] * (MAX_ERRORS + 2), raise_on_error=False)
    assert result.failed == MAX_ERRORS + 2
    assert [row for row, _ in result.errors] == list(range(MAX_ERRORS)) == list(range(1_000))


@pytest.mark.parametrize("form", ["generator", "asynchronous"])
@each_path
async def test_an_iterable_that_raises(broker: ProducingBroker, form: str, configs: dict[str, Any]) -> None:
    """Earlier records are sent; the error says what happened and holds the result."""

    def some() -> Iterator[bytes]:
        yield b"1"
        yield b"2"
        raise ZeroDivisionError("by the caller")

    records: Any = asynchronously(some()) if form == "asynchronous" else some()
    async with producer_of(broker, **configs) as producer:
        with pytest.raises(SendManyError, match="stopped after 2 records: ZeroDivisionError") as caught:
            await producer.send_many("orders", records, raise_on_error=False)
        assert await producer.send("orders", b"3")
    assert caught.value.result == BatchResult(2, 0, {0: [(0, 1)]}, [])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.exceptions == (caught.value.__cause__,)
    assert broker.values() == [b"1", b"2", b"3"]


@pytest.mark.parametrize("form", ["generator", "asynchronous"])
@each_path
async def test_an_iterable_that_looks_at_what_was_cancelled(
    broker: ProducingBroker, form: str, configs: dict[str, Any]
) -> None:
    """It raises CancelledError, but nobody cancelled the call: that is a failure like any other."""

    def some() -> Iterator[bytes]:
        yield b"1"
        raise asyncio.CancelledError

    records: Any = asynchronously(some()) if form == "asynchronous" else some()
    async with producer_of(broker, **configs) as producer:
        with pytest.raises(SendManyError, match=r"stopped after 1 records: .* the records raised Cancelled") as caught:
            await producer.send_many("orders", records)
    assert caught.value.result == BatchResult(1, 0, {0: [(0, 0)]}, [])
    assert caught.value.__cause__ is not None
    assert isinstance(caught.value.__cause__.__cause__, asyncio.CancelledError)
    assert caught.value.exceptions == (caught.value.__cause__,)
    assert broker.values() == [b"1"]


@each_path
async def test_an_iterable_that_raises_at_once(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """It raises before its first record; the error is the same."""

    class Broken:
        def __iter__(self) -> Iterator[Any]:
            raise ZeroDivisionError("by the caller")

    async with producer_of(broker, **configs) as producer:
        with pytest.raises(SendManyError, match="stopped after 0 records: ZeroDivisionError") as caught:
            await producer.send_many("orders", Broken())
    assert caught.value.result == BatchResult(0, 0, {}, [])


@each_path
async def test_a_topic_that_stays_unknown(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Admission stops if there is no metadata for max_block_ms; admitted records are acknowledged."""
    records = [b"1", Record(b"2", topic="nowhere"), b"3"]
    async with producer_of(broker, max_block_ms=500, **configs) as producer:
        await producer.partitions_for("orders")
        with pytest.raises(SendManyError, match=r"stopped after 2 records: MetadataTimeoutError.*nowhere") as caught:
            await producer.send_many("orders", records)
    ((row, error),) = caught.value.result.errors
    assert (row, type(error)) == (1, MetadataTimeoutError)
    assert caught.value.__cause__ is error
    assert len(caught.value.exceptions) == 1
    assert caught.value.result.acked == 1
    assert broker.values() == [b"1"]


@each_path
async def test_partitions_that_are_not_there_fail_alone(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """The first waits max_block_ms for its partition; later ones do not wait again."""
    records = [Record(b"%d" % number, partition=number % 2 * 7) for number in range(200)]
    async with producer_of(broker, max_block_ms=500, **configs) as producer:
        await producer.partitions_for("orders")
        result = await asyncio.wait_for(producer.send_many("orders", records, raise_on_error=False), PATIENCE_S)
    assert (result.acked, result.failed) == (100, 100)
    assert [row for row, _ in result.errors] == list(range(1, 200, 2))
    assert "has 1 partitions and no partition 7" in str(result.errors[0][1])


@each_path
async def test_topics_that_are_no_plain_str(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """An enum member names a topic, as in single sends; an int is an error, as there."""
    broker.topics = {"orders": 1, "audit": 1}
    records = [Record(b"1", topic=Topic.AUDIT), Record(b"2", topic=5), Record(b"3", topic=Topic.ORDERS)]  # type: ignore[arg-type]
    async with producer_of(broker, **configs) as producer:
        result = await asyncio.wait_for(producer.send_many("orders", records, raise_on_error=False), PATIENCE_S)
    assert result.offsets == {0: [(0, 0)], TopicPartition("audit", 0): [(0, 0)]}
    assert [(row, str(error)) for row, error in result.errors] == [(1, "the topic is a int; str is needed")]


@each_path
async def test_what_can_be_no_partition_is_told_so(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Also after a wait for a missing partition, and whatever it is."""
    records = [Record(b"v", partition=partition) for partition in (7, 2**31, "1", 1.5, True, -1)]  # type: ignore[arg-type]
    async with producer_of(broker, max_block_ms=500, **configs) as producer:
        await producer.partitions_for("orders")
        result = await asyncio.wait_for(producer.send_many("orders", records, raise_on_error=False), PATIENCE_S)
    assert [type(error) for _, error in result.errors] == [MetadataTimeoutError] + 5 * [SerializationError]
    assert all("partition" in str(error) for _, error in result.errors)


@each_path
async def test_headers_that_can_be_read_once_outlast_a_wait_for_memory(
    broker: ProducingBroker, configs: dict[str, Any]
) -> None:
    """A record that has to wait is tried again."""
    records = [Record(bytes(1_000), headers=iter([("row", b"%d" % row)])) for row in range(200)]
    async with producer_of(broker, buffer_memory=32_768, batch_size=16_384, **configs) as producer:
        assert (await producer.send_many("orders", records)).acked == 200
    assert [one.headers for one in broker.log["orders", 0]] == [(("row", b"%d" % row),) for row in range(200)]


@each_path
async def test_memory_that_stays_away(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Admission stops if there is no memory for max_block_ms; admitted records go on."""
    broker.holding = True
    async with producer_of(broker, max_block_ms=500, buffer_memory=32_768, batch_size=16_384, **configs) as producer:
        await producer.partitions_for("orders")
        call = asyncio.create_task(producer.send_many("orders", (b"%d" % n + bytes(1_000) for n in range(10_000))))
        await broker.holds()
        await until(lambda: producer.metrics()["producer-metrics"]["buffer-exhausted-total"])
        assert not call.done()
        broker.release()
        with pytest.raises(SendManyError, match=r"stopped after .*BufferExhaustedError") as caught:
            await call
    assert isinstance(caught.value.__cause__, BufferExhaustedError)
    result = caught.value.result
    assert result.failed == 1
    assert [row for row, _ in result.errors] == [result.acked]
    assert len(broker.values()) == result.acked > 10


@each_path
async def test_a_cancelled_call_admits_no_more_and_loses_nothing_admitted(
    broker: ProducingBroker, configs: dict[str, Any]
) -> None:
    """Admission stops, admitted records go on, and nothing else is affected."""
    broker.holding = True
    async with producer_of(broker, buffer_memory=32_768, batch_size=16_384, **configs) as producer:
        call = asyncio.create_task(producer.send_many("orders", (b"%d" % n + bytes(1_000) for n in range(10_000))))
        await broker.holds()
        while producer.metrics()["producer-metrics"]["waiting-threads"] < 1:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        broker.release()
        await producer.flush()
        count = len(broker.values())
        assert 10 < count < 100
        assert (await producer.send("orders", b"next")).offset == count
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 32_768


@each_path
async def test_failures_of_a_cancelled_call_are_not_silent(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Its result is lost, so flush raises them."""
    broker.holding = True
    broker.error_code = 29
    told: list[int] = []
    async with producer_of(broker, on_error=lambda _, count: told.append(count), **configs) as producer:
        call = asyncio.create_task(producer.send_many("orders", [b"v"] * 10))
        await broker.holds()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        broker.release()
        with pytest.raises(DeliveryErrors) as caught:
            await producer.flush()
        await asyncio.sleep(0)
    assert caught.value.record_count == 10
    assert sum(told) == 10


class Rows:
    """A generator of more records than fit into memory, with a cleanup that may fail."""

    def __init__(self, failure: BaseException | None = None) -> None:
        self.failure = failure
        self.open = 0
        self.cleaned = 0

    def _clean(self) -> None:
        self.cleaned += 1
        if self.failure is not None:
            raise self.failure

    def plain(self) -> Iterator[bytes]:
        self.open += 1
        try:
            for number in range(10_000):
                yield b"%d" % number + bytes(1_000)
        finally:
            self._clean()

    async def asynchronous(self) -> AsyncIterator[bytes]:
        self.open += 1
        try:
            for number in range(10_000):
                yield b"%d" % number + bytes(1_000)
        finally:
            await asyncio.sleep(0)  # as when returning a connection to a pool
            self._clean()

    def check_notes(self, error: BaseException | None) -> None:
        """Exceptions of the cleanup are in the error's notes, and nothing else is."""
        text = f"closing the generator of the records failed too: {self.failure!r}"
        assert getattr(error, "__notes__", []) == ([] if self.failure is None else [text])


each_generator = pytest.mark.parametrize("kind", ["plain", "asynchronous"])
each_failure = pytest.mark.parametrize("failure", [None, ZeroDivisionError("in cleanup")], ids=["cleans", "fails"])


@each_generator
@each_failure
@each_path
async def test_a_generator_is_closed_when_the_call_is_cancelled(
    broker: ProducingBroker, configs: dict[str, Any], kind: str, failure: Exception | None
) -> None:
    """In the calling task, before it ends, as by contextlib.aclosing; not by the garbage collector."""
    broker.holding = True
    rows = Rows(failure)
    async with producer_of(broker, buffer_memory=32_768, batch_size=16_384, **configs) as producer:
        records = getattr(rows, kind)()
        call = asyncio.create_task(producer.send_many("orders", records))
        await broker.holds()
        while producer.metrics()["producer-metrics"]["waiting-threads"] < 1:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await call
        found = rows.open, rows.cleaned
        broker.release()
        await producer.flush()
    assert found == (1, 1)
    rows.check_notes(caught.value)


@each_generator
@pytest.mark.parametrize(
    "failure",
    [None, ZeroDivisionError("in cleanup"), asyncio.CancelledError("of a task that the cleanup awaits")],
    ids=["cleans", "fails", "cancelled"],
)
@each_path
async def test_a_generator_is_closed_when_admission_stops(
    broker: ProducingBroker, configs: dict[str, Any], kind: str, failure: BaseException | None
) -> None:
    """At once, while admitted records go on; its cleanup's exception is noted on the error that stopped the call."""
    broker.holding = True
    rows = Rows(failure)
    async with producer_of(broker, max_block_ms=500, buffer_memory=32_768, batch_size=16_384, **configs) as producer:
        await producer.partitions_for("orders")
        records = getattr(rows, kind)()
        call = asyncio.create_task(producer.send_many("orders", records))
        while producer.metrics()["producer-metrics"]["buffer-exhausted-total"] < 1:
            await asyncio.sleep(0)  # turn by turn: the generator is to be closed within a few
        await turns()  # the generator's own, and those of the tasks
        found = rows.open, rows.cleaned, call.done()
        broker.release()
        with pytest.raises(SendManyError, match=r"stopped after .*BufferExhaustedError") as caught:
            await call
    assert isinstance(caught.value.__cause__, BufferExhaustedError)
    assert found == (1, 1, False)
    rows.check_notes(caught.value.__cause__)


async def test_what_is_no_generator_is_not_closed(broker: ProducingBroker) -> None:
    """Files and custom iterators have a close() too; the caller may continue to use them."""

    class Lines:
        def __init__(self) -> None:
            self.lines = iter([b"1", Record(b"2", topic=5), b"3"])  # type: ignore[arg-type]
            self.closed = False

        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            line = next(self.lines)
            if line == b"3":
                raise ZeroDivisionError
            return line

        def close(self) -> None:
            self.closed = True

    lines = Lines()
    async with producer_of(broker) as producer:
        with pytest.raises(SendManyError):
            await producer.send_many("orders", lines)
    assert not lines.closed


async def test_a_dropped_call_does_not_wait_for_a_generator(broker: ProducingBroker) -> None:
    """A coroutine that is being closed can't await anything; a plain generator is closed then."""
    broker.holding = True
    for kind, cleaned in ("plain", 1), ("asynchronous", 0):
        rows = Rows()
        async with producer_of(broker, buffer_memory=32_768, batch_size=16_384) as producer:
            await producer.partitions_for("orders")
            records = getattr(rows, kind)()
            call = producer.send_many("orders", records)
            while call.send(None) is None:
                pass
            call.close()
            found = rows.open, rows.cleaned
            await producer.close(0)
        assert found == (1, cleaned)
        if kind == "asynchronous":
            await records.aclose()


async def test_a_call_that_is_dropped_before_its_end(broker: ProducingBroker) -> None:
    """Closing the coroutine has the same effect as cancelling it."""
    async with producer_of(broker) as producer:
        await producer.partitions_for("orders")
        call = producer.send_many("orders", [b"v"] * 10)
        while call.send(None) is None:  # a turn of the loop, until it waits for the acknowledgement
            pass
        call.close()
        await producer.flush()
    assert broker.values() == [b"v"] * 10


async def test_closed_meanwhile(broker: ProducingBroker) -> None:
    """close stops admission, and waits for admitted records as usual, but not for the iterable."""
    producer = producer_of(broker)
    await producer.start()
    gate = asyncio.Event()

    async def records() -> AsyncIterator[bytes]:
        yield b"1"
        while not gate.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
        yield b"2"

    call = asyncio.create_task(producer.send_many("orders", records()))
    while not broker.values():
        await asyncio.sleep(0)
    await producer.close()
    gate.set()
    with pytest.raises(SendManyError, match="ProducerClosedError") as caught:
        await call
    assert isinstance(caught.value.__cause__, ProducerClosedError)
    assert (caught.value.result.acked, caught.value.result.failed) == (1, 1)


class Quiet:
    """Yields records, then waits forever; `then` is what it does when that wait is cancelled."""

    def __init__(self, then: str = "ends") -> None:
        self.then = then
        self.waits = asyncio.Event()
        self.cleaned = 0

    async def records(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"1"
            self.waits.set()
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if self.then == "raises":
                    raise ZeroDivisionError from None
                if self.then == "goes on":
                    yield b"2"
                if self.then == "ends":
                    raise
        finally:
            await asyncio.sleep(0)  # as when returning a connection to a pool
            self.cleaned += 1


@each_path
@pytest.mark.parametrize("then", ["ends", "returns", "goes on", "raises"])
async def test_closed_while_it_waits_for_records(broker: ProducingBroker, configs: dict[str, Any], then: str) -> None:
    """The wait for the next record ends too; whatever the generator does then, the error is that of the close."""
    quiet = Quiet(then)
    producer = producer_of(broker, **configs)
    await producer.start()
    call = asyncio.create_task(producer.send_many("orders", quiet.records()))
    await quiet.waits.wait()
    await asyncio.wait_for(producer.close(), PATIENCE_S)
    with pytest.raises(SendManyError, match=r"stopped after") as caught:
        await asyncio.wait_for(call, PATIENCE_S)
    stopped_by = ZeroDivisionError if then == "raises" else ProducerClosedError
    assert isinstance(caught.value.__cause__, stopped_by)
    assert (caught.value.result.acked, caught.value.result.failed) == (1, then == "goes on")
    assert quiet.cleaned == 1
    assert not call.cancelling()


@each_path
async def test_closed_while_it_waits_for_the_first_record(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    waits = asyncio.Event()

    async def records() -> AsyncIterator[bytes]:
        waits.set()
        await asyncio.get_running_loop().create_future()
        yield b"never"

    producer = producer_of(broker, **configs)
    await producer.start()
    call = asyncio.create_task(producer.send_many("orders", records()))
    await waits.wait()
    await asyncio.wait_for(producer.close(), PATIENCE_S)
    with pytest.raises(SendManyError, match="stopped after 0 records: ProducerClosedError"):
        await asyncio.wait_for(call, PATIENCE_S)


async def test_closed_before_it_waits_for_records(broker: ProducingBroker) -> None:
    """The same if close is called while interceptors handle a record, or while the call waits for its turn."""
    quiet = Quiet()
    entered, gate = asyncio.Event(), asyncio.Event()

    async def serialize(value: bytes) -> bytes:
        entered.set()
        await gate.wait()
        return value

    producer = producer_of(broker, value_serializer=serialize)
    await producer.start()
    call = asyncio.create_task(producer.send_many("orders", quiet.records()))
    await entered.wait()
    await producer.close()
    gate.set()
    with pytest.raises(SendManyError, match="ProducerClosedError") as caught:
        await asyncio.wait_for(call, PATIENCE_S)
    assert (caught.value.result.acked, caught.value.result.failed) == (0, 1)
    assert quiet.cleaned == 1


async def test_failed_while_it_waits_for_records(broker: ProducingBroker) -> None:
    """A failed producer accepts no more records either."""
    quiet = Quiet()
    async with producer_of(broker) as producer:
        call = asyncio.create_task(producer.send_many("orders", quiet.records()))
        await quiet.waits.wait()
        for task in asyncio.all_tasks():
            if task.get_name() == "aioproducer sender":
                task.cancel()
        with pytest.raises(SendManyError, match="ProducerFailedError"):
            await asyncio.wait_for(call, PATIENCE_S)
        assert quiet.cleaned == 1


async def test_failed_while_it_waits_for_its_turn(broker: ProducingBroker) -> None:
    """The previous record is admitted by then; the wait for the next one is not started."""
    quiet = Quiet()

    async def records() -> AsyncIterator[bytes]:
        async with contextlib.aclosing(quiet.records()) as rest:
            async for record in rest:
                until = time.perf_counter() + 0.003
                while time.perf_counter() < until:
                    pass
                assert producer._engine is not None
                asyncio.get_running_loop().call_soon(producer._engine._internal_error, ZeroDivisionError())
                yield record

    async with producer_of(broker, value_serializer=lambda value: value) as producer:
        await producer.partitions_for("orders")
        with pytest.raises(SendManyError, match="stopped after 1 records: ProducerFailedError"):
            await asyncio.wait_for(producer.send_many("orders", records()), PATIENCE_S)
    assert quiet.cleaned == 1


@pytest.mark.parametrize("turns", range(6))
async def test_cancelled_and_closed_while_it_waits_for_records(broker: ProducingBroker, turns: int) -> None:
    """A cancelled call ends as cancelled, whatever close has done before.

    If the first record was acknowledged before, which is chance, close may have ended the call in the fifth turn.
    """
    quiet = Quiet()
    producer = producer_of(broker)
    await producer.start()
    call = asyncio.create_task(producer.send_many("orders", quiet.records()))
    await quiet.waits.wait()
    closing = asyncio.create_task(producer.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    cancelled = call.cancel()
    assert cancelled or turns == 5
    with pytest.raises(asyncio.CancelledError if cancelled else SendManyError):
        await call
    await closing


async def test_closed_when_the_records_are_at_their_end(broker: ProducingBroker) -> None:
    """close is called in the last turn for which the call waits: no record is left to be refused."""
    producer = producer_of(broker, value_serializer=lambda value: value)
    await producer.start()
    await producer.partitions_for("orders")
    closing: list[asyncio.Task[None]] = []

    async def records() -> AsyncIterator[bytes]:
        until = time.perf_counter() + 0.003
        while time.perf_counter() < until:
            pass
        closing.append(asyncio.create_task(producer.close()))
        yield b"1"

    result = await producer.send_many("orders", records())
    assert (result.acked, result.failed) == (1, 0)
    await closing[0]


@each_path
@pytest.mark.parametrize(
    "eager",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
        ),
    ],
)
async def test_closed_by_the_records_themselves(
    broker: ProducingBroker, configs: dict[str, Any], *, eager: bool
) -> None:
    """A generator closes the producer when its source ends: close waits for admitted records, as usual."""
    if eager:
        make_tasks_eager(asyncio.get_running_loop())
    broker.holding = True
    producer = producer_of(broker, **configs)
    await producer.start()

    async def records() -> AsyncIterator[bytes]:
        yield b"1"
        await producer.close()

    call = asyncio.create_task(producer.send_many("orders", records()))
    await broker.holds()
    while producer.health().state is not ProducerState.CLOSING:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    broker.release()
    result = await call
    assert (result.acked, result.failed) == (1, 0)


async def test_closed_in_the_turn_before_a_record_is_admitted(broker: ProducingBroker) -> None:
    """A record taken from the iterable is in the result, even if the producer was closed before its admission."""
    producer = producer_of(broker)
    await producer.start()
    await producer.partitions_for("orders")
    taken = 0
    closing: list[asyncio.Task[None]] = []

    def slow() -> Iterator[bytes]:
        nonlocal taken
        for number in range(10):
            if number == 3:
                closing.append(asyncio.create_task(producer.close()))
            until = time.perf_counter() + 0.002
            while time.perf_counter() < until:
                pass
            taken += 1
            yield b"%d" % number

    with pytest.raises(SendManyError, match="ProducerClosedError") as caught:
        await producer.send_many("orders", slow())
    await closing[0]
    assert taken == 4
    assert (caught.value.result.acked, caught.value.result.failed) == (3, 1)


async def test_flush_covers_it(broker: ProducingBroker) -> None:
    """flush sends and awaits the records that the call has admitted, which linger without it."""
    async with producer_of(broker, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        await producer.partitions_for("orders")
        call = asyncio.create_task(producer.send_many("orders", [b"v"] * 10))
        await turns()
        assert broker.values() == []
        await producer.flush()
        assert broker.values() == [b"v"] * 10
        assert (await call).acked == 10


async def test_interceptors_hear_of_every_record(broker: ProducingBroker) -> None:
    """on_send changes each, on_acknowledgement gets each outcome."""

    class Interceptor:
        def __init__(self) -> None:
            self.ended: list[tuple[int | None, str | None]] = []

        def on_send(self, record: Record) -> Record:
            return Record(record.value * 2, topic=record.topic)

        def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
            self.ended.append((metadata and metadata.offset, error and type(error).__name__))

    interceptor = Interceptor()
    async with producer_of(broker, interceptor_classes=[interceptor]) as producer:
        result = await producer.send_many("orders", [b"1", 2, b"3"], raise_on_error=False)
        await producer.flush()
        await asyncio.sleep(0)
    assert (result.acked, result.failed) == (2, 1)
    assert broker.values() == [b"11", b"33"]
    assert sorted(interceptor.ended, key=str) == [(0, None), (1, None), (None, "SerializationError")]


# --- calling it -------------------------------------------------------------------------------------------------------


async def test_before_start_and_after_close(broker: ProducingBroker) -> None:
    producer = producer_of(broker)
    with pytest.raises(NotStartedError):
        await producer.send_many("orders", [b"v"])
    async with producer:
        pass
    with pytest.raises(ProducerClosedError):
        await producer.send_many("orders", [b"v"])


async def test_in_another_loop(broker: ProducingBroker) -> None:
    async with producer_of(broker) as producer:
        with pytest.raises(WrongLoopError):
            await asyncio.to_thread(asyncio.run, as_coroutine(producer.send_many("orders", [b"v"])))


def test_in_a_loop_that_runs_in_another_thread_now() -> None:
    """It is the producer's loop, but the compiled path belongs to the thread in which it was started."""
    loop = asyncio.new_event_loop()
    broker = ProducingBroker({"orders": 1})
    loop.run_until_complete(broker.start())
    producer = producer_of(broker)
    loop.run_until_complete(producer.start())

    def elsewhere() -> None:
        call = asyncio.wait_for(as_coroutine(producer.send_many("orders", [b"v"])), PATIENCE_S)
        with pytest.raises(SendManyError, match="started in another thread") as caught:
            loop.run_until_complete(call)
        assert isinstance(caught.value.__cause__, WrongLoopError)
        assert (caught.value.result.acked, caught.value.result.failed) == (0, 1)

    try:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(elsewhere).result()
        loop.run_until_complete(producer.close())
        loop.run_until_complete(broker.stop())
    finally:
        loop.close()


async def as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async def test_everything_that_takes_a_coroutine(broker: ProducingBroker) -> None:
    """Tasks, groups, gather, wait_for and shield; nothing happens before the first step."""
    async with producer_of(broker) as producer:
        await producer.partitions_for("orders")
        calls = [producer.send_many("orders", [b"v"] * 3) for _ in range(5)]
        assert all(inspect.iscoroutine(call) for call in calls)
        await producer.flush()
        assert not broker.log
        results = [await asyncio.create_task(calls[0])]
        async with asyncio.TaskGroup() as group:
            task = group.create_task(calls[1])
        results += [task.result(), *await asyncio.gather(calls[2])]
        results += [await asyncio.wait_for(calls[3], PATIENCE_S), await asyncio.shield(calls[4])]
    assert [result.acked for result in results] == [3] * 5
    assert len(broker.values()) == 15


async def test_never_awaited(broker: ProducingBroker) -> None:
    """It is not sent, and there is a warning."""
    async with producer_of(broker) as producer:
        with pytest.warns(RuntimeWarning, match="send_many.*never awaited"):
            producer.send_many("orders", [b"v"])  # type: ignore[unused-coroutine]
    assert not broker.log


class CountedValue(bytes):
    alive = 0
    most = 0

    def __new__(cls, data: bytes) -> CountedValue:
        CountedValue.alive += 1
        CountedValue.most = max(CountedValue.most, CountedValue.alive)
        return super().__new__(cls, data)

    def __del__(self) -> None:
        CountedValue.alive -= 1


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[CountedValue]]:
    """Without the help of the garbage collector."""
    gc.collect()
    monkeypatch.setattr(CountedValue, "alive", 0)
    monkeypatch.setattr(CountedValue, "most", 0)
    gc.disable()
    yield CountedValue
    gc.enable()


async def test_nothing_is_kept(broker: ProducingBroker, counted: type[CountedValue]) -> None:
    """Records are freed once they are in the buffer, the result once it is dropped."""
    async with producer_of(broker) as producer:
        result = await producer.send_many("orders", (counted(b"%d" % number) for number in range(1_000)))
    assert result.acked == 1_000
    assert counted.alive == 0


class NoInterceptor:
    def on_send(self, record: Record) -> Record:
        return record


REFUSING: dict[str, dict[str, Any]] = {
    "none": {},
    "interceptor": {"interceptor_classes": [NoInterceptor()]},
    "partitioner": {"partitioner_class": lambda *_: 0},
}


@pytest.mark.parametrize("configs", REFUSING.values(), ids=REFUSING)
@pytest.mark.parametrize("kind", [iter, asynchronously])
async def test_no_refused_record_is_kept(
    configs: dict[str, Any], kind: Callable[[Any], Any], broker: ProducingBroker, counted: type[CountedValue]
) -> None:
    """Not while the call runs and not by its result: they may be larger than all of buffer_memory."""
    async with producer_of(broker, max_request_size=1_000, **configs) as producer:
        records = kind(counted(bytes(2_000)) for _ in range(500))
        result = await producer.send_many("orders", records, raise_on_error=False)
        assert (result.failed, len(result.errors)) == (500, 500)
        assert isinstance(result.errors[0][1], RecordTooLargeError)
        assert counted.most <= 3
        assert counted.alive == 0


def refusing(value: bytes) -> bytes:
    raise ValueError(len(value))


async def refusing_async(value: bytes) -> bytes:
    raise ValueError(len(value))


@pytest.mark.parametrize("serializer", [refusing, refusing_async])
async def test_a_serializer_s_error_keeps_the_program_s_frames(
    serializer: Callable[[bytes], Any], broker: ProducingBroker, counted: type[CountedValue]
) -> None:
    """They tell what went wrong, until the result is dropped, which frees them at once."""
    async with producer_of(broker, value_serializer=serializer) as producer:
        result = await producer.send_many("orders", map(counted, [b"v"] * 500), raise_on_error=False)
        cause = result.errors[0][1].__cause__
        assert isinstance(cause, ValueError)
        assert traceback.extract_tb(cause.__traceback__)[-1].name == serializer.__name__
        del result, cause
        assert counted.alive == 0


async def test_tasks_of_many_calls_do_not_starve_each_other(broker: ProducingBroker) -> None:
    """A short call among endless ones finishes."""
    stop = False

    def endless() -> Iterator[bytes]:
        while not stop:
            yield bytes(500)

    async with producer_of(broker) as producer:
        await producer.partitions_for("orders")
        calls = [asyncio.create_task(producer.send_many("orders", endless())) for _ in range(4)]
        short = await asyncio.wait_for(producer.send_many("orders", [b"s"] * 10_000), PATIENCE_S)
        assert not any(call.done() for call in calls)
        stop = True
        results = await asyncio.gather(*calls)
    assert short.acked == 10_000
    assert all(result.acked > 0 for result in results)
