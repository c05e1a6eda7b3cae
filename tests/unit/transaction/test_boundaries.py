"""Calls that began in one transaction and had to wait do not add records to the next one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pyarrow as pa
import pytest

from aioproducer import Producer, SendManyError, TransactionStateError
from aioproducer.testing import FakeCluster

TOPIC = "orders"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as running:
        running.create_topic(TOPIC)
        yield running


class Gate:
    """Makes a caller's source wait until the next transaction has begun."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self._opened_for_threads = threading.Event()
        self._loop = asyncio.get_running_loop()

    async def wait(self) -> None:
        self.reached.set()
        await self.opened.wait()

    def wait_in_thread(self) -> None:
        self._loop.call_soon_threadsafe(self.reached.set)
        assert self._opened_for_threads.wait(30)

    def open(self) -> None:
        self.opened.set()
        self._opened_for_threads.set()


Sending = Callable[[Producer, Gate], Awaitable[object]]


def plain(value: bytes) -> bytes:
    return value


async def many_for_an_unknown_topic(producer: Producer, gate: Gate) -> object:
    gate.reached.set()
    return await producer.send_many(TOPIC, [b"1", b"2"])


async def many_from_a_slow_iterator(producer: Producer, gate: Gate) -> object:
    await producer.partitions_for(TOPIC)

    async def records() -> AsyncIterator[bytes]:
        await gate.wait()
        yield b"1"
        yield b"2"

    return await producer.send_many(TOPIC, records())


async def rows_of_a_slow_source(producer: Producer, gate: Gate) -> object:
    await producer.partitions_for(TOPIC)

    class Source:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            gate.wait_in_thread()
            return pa.table({"value": [b"1", b"2"]}).__arrow_c_stream__()

    return await producer.send_arrow(TOPIC, Source())


async def rows_that_come_slowly(producer: Producer, gate: Gate) -> object:
    await producer.partitions_for(TOPIC)
    schema = pa.schema({"value": pa.binary()})

    def batches() -> Iterator[pa.RecordBatch]:
        gate.wait_in_thread()
        yield pa.record_batch({"value": pa.array([b"1", b"2"])})

    return await producer.send_arrow(TOPIC, pa.RecordBatchReader.from_batches(schema, batches()))


SENDINGS: tuple[Sending, ...] = (
    many_for_an_unknown_topic,
    many_from_a_slow_iterator,
    rows_of_a_slow_source,
    rows_that_come_slowly,
)


@pytest.mark.parametrize("serializes", [False, True], ids=["plain", "serializer"])
@pytest.mark.parametrize("sending", SENDINGS, ids=lambda each: each.__name__)
async def test_bulk_that_waits(cluster: FakeCluster, sending: Sending, serializes: bool) -> None:
    """Neither send_many nor send_arrow continue, whatever they wait for; the error says so."""
    serializer = {"value_serializer": plain} if serializes else {}
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id="t", max_block_ms=10_000, **serializer
    ) as producer:
        gate = Gate()
        await producer.begin_transaction()
        late = asyncio.create_task(sending(producer, gate))  # type: ignore[arg-type]
        await gate.reached.wait()
        await producer.abort_transaction()
        async with producer.transaction():
            gate.open()
            with pytest.raises((SendManyError, TransactionStateError)) as raised:
                await late
            await producer.send(TOPIC, b"mine")
    error = raised.value
    cause = error.__cause__ if isinstance(error, SendManyError) else error
    assert isinstance(cause, TransactionStateError)
    assert "not added to the next" in str(cause)
    assert "the call began in a transaction that has ended since" in str(cause)
    assert [record.value for record in cluster.records(TOPIC, read_committed=True)] == [b"mine"]
