"""User code that runs in the middle of a call: finalizers, signal handlers, log handlers that send.

The sender is woken from within an append, and failures are reported from within the end of a batch; the garbage
collector may run wherever an object is created that it tracks. Such code may submit, and drop Deliveries. Headers,
interceptors, serializers and partitioners run between the check of the producer's state and the append, and a task that
they create may start at once (``asyncio.eager_task_factory``).
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from aioproducer import Producer, Record
from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery import Delivery, watch
from aioproducer.errors import KafkaError, ProducerClosedError, SendManyError, TransactionStateError
from aioproducer.testing import FakeCluster
from tests.unit.core import add_topic, drain_all, end, filled, make_accumulator, numbers, put, read

ERROR = KafkaError("no")
LATER = sys.version_info >= (3, 12)
"""From Python 3.12 on, the collector runs only between instructions of Python code, never within a compiled call."""


@pytest.fixture
def accumulator() -> RecordAccumulator:
    return make_accumulator()


@pytest.fixture
def collected() -> Iterator[None]:
    """Makes the collector run at a place that the test chooses."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.disable()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()


class Finalized:
    """Garbage that only the collector finds, with a finalizer."""

    def __init__(self, last_words: Callable[[], object]) -> None:
        self.me = self
        self.last_words = last_words

    def __del__(self) -> None:
        self.last_words()


def once(act: Callable[[], object]) -> Callable[[], None]:
    """A function that does nothing when called recursively."""
    left = [act]

    def call() -> None:
        if left:
            left.pop()()

    return call


@pytest.mark.parametrize("size", [20, 1500])
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_record_that_is_submitted_while_the_sender_is_woken(
    accumulator: RecordAccumulator, size: int, awaited: bool, is_first: bool
) -> None:
    """It does not take memory reserved for the other record, and each Delivery belongs to its record."""
    topic = add_topic(accumulator)
    deliveries: dict[bytes, Delivery] = {}
    values = {b"first": b"1" * 10, b"inner": b"i" * size, b"outer": b"o" * 2_000}

    def submit(name: bytes, *, awaited: bool = False, timestamp_ms: int = 1) -> None:
        deliveries[name] = put(accumulator, topic, values[name], awaited=awaited, timestamp_ms=timestamp_ms)

    if not is_first:
        submit(b"first")
        accumulator.ready(0)
    accumulator.on_wake = once(lambda: submit(b"inner", timestamp_ms=1_000_000))
    submit(b"outer", awaited=awaited)
    accumulator.on_wake = None
    woken = is_first or awaited
    assert (b"inner" in deliveries) is woken
    offsets = {}
    for batch in drain_all(accumulator):
        records = read(batch)
        assert batch.record_count == batch.result.record_count == len(records)
        for record in records:
            offsets[record.value] = len(offsets)
        batch.complete(len(offsets) - len(records), -1)
        accumulator.release(batch)
    assert offsets == {values[name]: delivery.result().offset for name, delivery in deliveries.items()}


def test_a_record_that_is_submitted_while_a_full_batch_closes(accumulator: RecordAccumulator) -> None:
    topic = add_topic(accumulator)
    put(accumulator, topic, bytes(16_000))
    accumulator.ready(0)
    accumulator.on_wake = once(lambda: put(accumulator, topic, b"inner"))
    put(accumulator, topic, b"o" * 2_000)
    first, second = drain_all(accumulator)
    assert [record.value for record in read(second)] == [b"inner", b"o" * 2_000]
    assert first.serial < second.serial


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("allocations", range(6))
def test_a_finalizer_that_submits_to_the_same_partition(accumulator: RecordAccumulator, allocations: int) -> None:
    """Whenever the collector runs: the batches are in the order of their sequences, even after a retry."""
    topic = add_topic(accumulator)
    put(accumulator, topic, bytes(16_000))  # the next record closes its batch, which makes objects that are tracked
    inner: list[Delivery] = []
    Finalized(lambda: inner.append(put(accumulator, topic, b"inner")))
    gc.set_threshold(gc.get_count()[0] + allocations, 1, 1_000)
    gc.enable()
    put(accumulator, topic, b"o" * 2_000)
    gc.disable()
    assert inner or allocations or LATER
    gc.collect()
    batches = drain_all(accumulator)
    assert numbers(batches) == sorted(numbers(batches))
    for batch in reversed(batches):
        accumulator.requeue(batch, 0, 0)
    assert drain_all(accumulator) == batches
    values = [record.value or b"" for batch in batches for record in read(batch)]
    assert sorted(values) == [bytes(16_000), b"inner", b"o" * 2_000]


def test_a_batch_that_is_filled_while_the_sender_is_woken_for_another(accumulator: RecordAccumulator) -> None:
    """Closing all batches closes it once; a second time would orphan the open batch that has taken its place."""
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, b"first")
    put(accumulator, topic, bytes(16_000), partition=1)
    accumulator.ready(0)
    accumulator.on_wake = once(lambda: put(accumulator, topic, b"i" * 2_000, partition=1))
    accumulator.close_all()
    batches = drain_all(accumulator)
    assert sum(len(read(batch)) for batch in batches) == 3
    for batch in batches:
        end(accumulator, batch)
    accumulator.ready(0)
    woken: list[bool] = []
    accumulator.on_wake = lambda: woken.append(True)
    put(accumulator, topic, b"the first of the next batch")
    assert woken


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("allocations", range(6))
def test_a_finalizer_that_submits_to_a_broker_seen_for_the_first_time(
    accumulator: RecordAccumulator, allocations: int
) -> None:
    """Whatever became ready meanwhile is in the broker's queue, and there once."""
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, b"outer")
    put(accumulator, topic, bytes(16_000), partition=1)
    inner: list[Delivery] = []
    Finalized(lambda: inner.append(put(accumulator, topic, b"i" * 2_000, partition=1)))
    gc.set_threshold(gc.get_count()[0] + allocations, 1, 1_000)
    gc.enable()
    accumulator.close_all()
    gc.disable()
    assert inner or allocations or LATER
    gc.collect()
    assert sum(len(read(batch)) for batch in drain_all(accumulator)) == 3


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("allocations", range(6))
def test_a_finalizer_that_looks_topics_up_while_their_index_grows(
    accumulator: RecordAccumulator, allocations: int
) -> None:
    names = [f"topic{number}" for number in range(33)]
    for name in names[:-1]:
        add_topic(accumulator, name)
    looked: list[list[Any]] = []
    Finalized(lambda: looked.append([accumulator.topic(name) for name in names]))
    kept: list[list[None]] = [[] for _ in range(200)]  # no list that was freed is left to be used again
    gc.set_threshold(gc.get_count()[0] + allocations, 1, 1_000)
    gc.enable()
    add_topic(accumulator, names[-1])
    gc.disable()
    assert looked or allocations or LATER
    gc.collect()
    topics = [accumulator.topic(name) for name in names]
    assert [topic.name for topic in topics if topic is not None] == names
    assert len(kept) == 200


def dropped_by_the_collector(delivery: Delivery) -> None:
    """Let the next collection free it."""
    Finalized(delivery.done)


@pytest.mark.usefixtures("collected")
def test_a_delivery_that_goes_while_its_failure_is_told_of(accumulator: RecordAccumulator) -> None:
    ledger = accumulator.ledger
    ledger.on_failure = gc.collect
    topic = add_topic(accumulator)
    put(accumulator, topic)
    dropped_by_the_collector(put(accumulator, topic))
    (batch,) = drain_all(accumulator)
    flush = ledger.start_flush()
    batch.fail(ERROR)
    assert ledger.end_flush(flush, accumulator.last_serial) == [(ERROR, 2)]
    assert ledger.unobserved_count == 2


@pytest.mark.usefixtures("collected")
def test_a_delivery_that_goes_while_a_flush_tells_of_another(accumulator: RecordAccumulator) -> None:
    ledger = accumulator.ledger
    ledger.on_failure = gc.collect
    topic = add_topic(accumulator)
    held = put(accumulator, topic)
    batches = drain_all(accumulator)
    dropped_by_the_collector(put(accumulator, topic))
    batches += drain_all(accumulator)
    flush = ledger.start_flush()
    for batch in batches:
        batch.fail(ERROR)
    assert sum(records for _, records in ledger.end_flush(flush, accumulator.last_serial)) == 2
    assert ledger.end_flush(ledger.start_flush(), accumulator.last_serial) == []
    assert held.exception() is not None


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("allocations", range(12))
def test_a_finalizer_that_adds_a_callback_to_the_same_batch(allocations: int, is_split: bool) -> None:
    """Neither its own callback gets lost, nor the one that was being added or handed on to a piece."""
    called: list[str] = []
    loop = asyncio.new_event_loop()
    accumulator = make_accumulator(loop=loop)
    batch, deliveries = filled(accumulator, 4, size=2_000)
    if is_split:
        watch(deliveries[0], lambda _: called.append("outer"))
    Finalized(lambda: watch(deliveries[1], lambda _: called.append("inner")))
    kept: list[dict[str, str]] = [{} for _ in range(200)]  # no dict that was freed is left to be used again
    plain = bytes(batch.contents())
    gc.set_threshold(gc.get_count()[0] + allocations, 1, 1_000)
    gc.enable()
    if is_split:
        batches = accumulator.split(batch, plain, 0)
    else:
        watch(deliveries[0], lambda _: called.append("outer"))
        batches = [batch]
    gc.disable()
    gc.collect()
    for each in batches:
        end(accumulator, each)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert sorted(called) == ["inner", "outer"]
    assert len(kept) == 200


def test_a_view_that_goes_with_an_exception(accumulator: RecordAccumulator) -> None:
    """The exception propagates, and calls that wait for the memory are notified."""
    told: list[int] = []

    class Waiting:
        def memory_is_back(self) -> None:
            told.append(accumulator.pool.used_bytes)

    waiting = Waiting()
    accumulator.pool.call_on_late_return(waiting.memory_is_back)
    put(accumulator, add_topic(accumulator))
    (batch,) = drain_all(accumulator)
    views = batch.payload()
    end(accumulator, batch)
    with pytest.raises(TypeError, match="memoryview"):
        chr(views.pop())  # type: ignore[arg-type]  # which drops it while its own TypeError is on its way
    assert told == [0]


class Meddler:
    """User code of all kinds that acts once in the middle of a call."""

    def __init__(self) -> None:
        self.act: Callable[[], object] = lambda: None

    def acts(self) -> None:
        act, self.act = self.act, lambda: None
        act()

    def headers(self) -> Iterator[tuple[str, bytes]]:
        self.acts()
        yield "name", b"value"

    def on_send(self, record: Record) -> Record:
        self.acts()
        return record

    def serialize(self, topic: str, headers: Any, value: Any) -> Any:
        self.acts()
        return value

    def partition(self, *_: Any) -> int:
        self.acts()
        return 0


def begun(call: Coroutine[Any, Any, None]) -> None:
    """Take the first step of a call, as an eager task would, and leave it there."""
    call.send(None)
    call.close()


MEDDLING: dict[str, Callable[[Meddler], dict[str, Any]]] = {
    "headers": lambda _: {},
    "interceptor": lambda meddler: {"interceptor_classes": [meddler]},
    "serializer": lambda meddler: {"value_serializer": meddler},
    "partitioner": lambda meddler: {"partitioner_class": meddler.partition},
}
SENDING: dict[str, Callable[[Producer, Any], Any]] = {
    "send": lambda producer, headers: producer.send("orders", b"late", headers=headers),
    "submit": lambda producer, headers: producer.submit("orders", b"late", headers=headers),
    "send_many": lambda producer, headers: producer.send_many("orders", [Record(b"late", headers=headers)]),
}


async def send_late(producer: Producer, call: str, meddler: Meddler, where: str) -> None:
    """Send a record during whose call the meddler acts; send_many raises the error that stopped it."""
    headers = meddler.headers() if where == "headers" else None
    if call == "submit_nowait":
        producer.submit_nowait("orders", b"late", headers=headers)
        return
    try:
        await SENDING[call](producer, headers)
    except SendManyError as error:
        raise error.__cause__ or error from None


@pytest.mark.parametrize("call", ["submit_nowait", *SENDING])
@pytest.mark.parametrize("where", MEDDLING)
async def test_a_record_whose_own_code_closes_the_producer(
    fake_kafka_cluster: FakeCluster, where: str, call: str
) -> None:
    """The record is refused: close may already have collected what it has to wait for."""
    meddler = Meddler()
    producer = Producer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers, **MEDDLING[where](meddler))
    async with producer:
        await producer.send("orders", b"before")
        meddler.act = lambda: begun(producer.close())
        with pytest.raises(ProducerClosedError):
            await send_late(producer, call, meddler, where)
    assert [record.value for record in fake_kafka_cluster.records("orders")] == [b"before"]


@pytest.mark.parametrize("call", ["submit_nowait", *SENDING])
@pytest.mark.parametrize("where", MEDDLING)
async def test_a_record_whose_own_code_commits_the_transaction(
    fake_kafka_cluster: FakeCluster, where: str, call: str
) -> None:
    """The record is refused: the commit may have been requested, or the next transaction would get it."""
    meddler = Meddler()
    producer = Producer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, transactional_id="orders", **MEDDLING[where](meddler)
    )
    async with producer:
        await producer.begin_transaction()
        await producer.send("orders", b"before")
        meddler.act = lambda: begun(producer.commit_transaction())
        with pytest.raises(TransactionStateError):
            await send_late(producer, call, meddler, where)
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("orders", b"after")
    committed = fake_kafka_cluster.records("orders", read_committed=True)
    assert [record.value for record in committed] == [b"before", b"after"]


class LastWords(str):
    """A header's name that is freed with the list that its record was encoded from."""

    __slots__ = ("act",)
    act: Callable[[], object]

    def __del__(self) -> None:
        self.act()


class Pair:
    """A header that makes its name as it is read."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __iter__(self) -> Iterator[Any]:
        name = LastWords("name")
        name.act = self.act
        yield name
        del name
        yield b"value"


async def test_a_record_that_a_header_submits_as_it_goes(fake_kafka_cluster: FakeCluster) -> None:
    """It comes behind the header's own record, and each Delivery and result tells of its own record."""
    async with Producer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers, linger_ms=50) as producer:
        await producer.send("orders", b"before")
        inner: list[Delivery] = []
        pair: Any = Pair(once(lambda: inner.append(producer.submit_nowait("orders", b"inner"))))
        outer = producer.submit_nowait("orders", b"outer", headers=[pair])
        assert ((await outer).offset, (await inner[0]).offset) == (1, 2)
        pair = Pair(once(lambda: inner.append(producer.submit_nowait("orders", b"inner"))))
        result = await producer.send_many("orders", [Record(b"outer", headers=[pair])])
        assert (result.offsets, (await inner[1]).offset) == ({0: [(3, 3)]}, 4)
    values = [record.value for record in fake_kafka_cluster.records("orders")]
    assert values == [b"before", b"outer", b"inner", b"outer", b"inner"]
