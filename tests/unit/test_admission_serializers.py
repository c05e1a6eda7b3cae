"""Serializers on the compiled path: records take the slow path only if needed, and none is lost or changed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aioproducer import Producer, ProducerClosedError, Record, SendManyError, SerializationError
from aioproducer.cluster import ClusterChanges, ClusterTopic
from aioproducer.errors import BufferExhaustedError, MetadataUnavailableError, SerializerNotReadyError
from aioproducer.testing import FakeCluster

PATIENCE_S = 30


class Watched(Producer):
    """Counts the records that took the slow path."""

    slow = 0

    async def _submit_slow(self, *fields: Any) -> Any:
        self.slow += 1
        return await super()._submit_slow(*fields)

    def _submit_now_slow(self, *fields: Any) -> Any:
        self.slow += 1
        return super()._submit_now_slow(*fields)


def values(cluster: FakeCluster, topic: str = "orders") -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


def producer(cluster: FakeCluster, **configs: Any) -> Watched:
    return Watched(bootstrap_servers=cluster.bootstrap_servers, **configs)


async def send(sending: Producer, value: Any) -> None:
    await sending.send("orders", value)


async def send_in_all_ways(sending: Producer, value: Any, **fields: Any) -> None:
    await sending.send("orders", value, **fields)
    await sending.submit("orders", value, **fields)
    sending.submit_nowait("orders", value, **fields)
    await sending.send_many("orders", [Record(value, **fields), value])
    await sending.flush()


class Object:
    """A serializer that looks at topic and headers."""

    def serialize(self, topic: str, headers: Any, value: Any) -> str:
        return f"{topic} {headers} {value}"


@pytest.mark.parametrize(
    ("serializer", "expected"),
    [
        (lambda value: b"<%d>" % value, b"<7>"),
        (json.dumps, b"7"),
        (lambda value: None, None),
        (Object(), b"orders None 7"),
    ],
    ids=["bytes", "str", "null", "object"],
)
async def test_in_one_compiled_call(fake_kafka_cluster: FakeCluster, serializer: Any, expected: bytes | None) -> None:
    async with producer(fake_kafka_cluster, value_serializer=serializer) as sending:
        await sending.partitions_for("orders")
        await send_in_all_ways(sending, 7)
        assert sending.slow == 0
    assert values(fake_kafka_cluster) == [expected] * 5


async def test_all_fields(fake_kafka_cluster: FakeCluster) -> None:
    """Keys have their own serializer; null stays null; the rest of a record is unchanged."""
    fake_kafka_cluster.create_topic("orders", partitions=3)
    async with producer(fake_kafka_cluster, key_serializer=str, value_serializer=str) as sending:
        await sending.partitions_for("orders")
        fields: dict[str, Any] = {"key": 5, "partition": 2, "headers": {"h": b"1"}, "timestamp_ms": 9}
        await sending.send("orders", 7, **fields)
        await sending.send_many("orders", [Record(7, **fields), Record(None, 5), (None, 7)])
        await sending.send("orders", 7, headers=iter([("h", b"2")]))
        assert sending.slow == 0
        await sending.send_many("orders", [Record(7, headers=iter([("h", b"3")]))])
        assert sending.slow == 1  # an iterator could be read only once
    full = fake_kafka_cluster.records("orders", 2)[:2]
    assert [(each.key, each.value, each.timestamp_ms) for each in full] == [(b"5", b"7", 9)] * 2
    everywhere = [each for partition in range(3) for each in fake_kafka_cluster.records("orders", partition)]
    headers = [list(each.headers) for each in everywhere if each.headers]
    assert sorted(headers) == [[("h", number)] for number in (b"1", b"1", b"2", b"3")]


async def test_what_a_serializer_raises(fake_kafka_cluster: FakeCluster) -> None:
    """The error is raised once, with the topic; only that record fails."""
    calls = []

    def serializer(value: int) -> bytes:
        calls.append(value)
        return b"%d" % (100 // value)

    async with producer(fake_kafka_cluster, value_serializer=serializer) as sending:
        await sending.partitions_for("orders")
        for call in (sending.send, sending.submit):
            with pytest.raises(SerializationError, match="ZeroDivisionError for a record of topic 'orders'") as raised:
                await call("orders", 0)
            assert isinstance(raised.value.__cause__, ZeroDivisionError)
        with pytest.raises(SerializationError):
            sending.submit_nowait("orders", 0)
        with pytest.raises(SendManyError) as many:
            await sending.send_many("orders", [1, 0, 2])
        assert [index for index, _ in many.value.result.errors] == [1]
        assert sending.slow == 0
    assert calls == [0, 0, 0, 1, 0, 2]
    assert values(fake_kafka_cluster) == [b"100", b"50"]


@pytest.mark.parametrize("later", [False, True], ids=["looked at", "awaited"])
async def test_what_a_serializer_uses_was_cancelled(fake_kafka_cluster: FakeCluster, later: bool) -> None:
    """Its CancelledError is not the caller's: only that record fails, and nothing ends as if it had been cancelled."""
    lookup: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    lookup.cancel()

    async def awaiting(value: bytes) -> bytes:
        return await lookup if value == b"bad" else value

    def looking(value: bytes) -> bytes:
        return lookup.result() if value == b"bad" else value

    async with producer(fake_kafka_cluster, value_serializer=awaiting if later else looking) as sending:
        await sending.partitions_for("orders")
        for call in (sending.send, sending.submit):
            with pytest.raises(SerializationError, match="CancelledError for a record of topic 'orders'") as raised:
                await call("orders", b"bad")
            assert isinstance(raised.value.__cause__, asyncio.CancelledError)
        with pytest.raises(SendManyError) as many:
            await sending.send_many("orders", [b"1", b"bad", b"2"])
        assert [index for index, _ in many.value.result.errors] == [1]
    assert values(fake_kafka_cluster) == [b"1", b"2"]


async def test_callers_that_share_a_lookup(fake_kafka_cluster: FakeCluster) -> None:
    """If one is cancelled and cancels what both await, the other gets an error: its record was not sent either."""
    lookup: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    waiting = 0

    async def serializer(value: str) -> bytes:
        nonlocal waiting
        waiting += 1
        return await lookup

    async with asyncio.timeout(PATIENCE_S), producer(fake_kafka_cluster, value_serializer=serializer) as sending:
        cancelled, other = (asyncio.create_task(send(sending, "v")) for _ in range(2))
        while waiting < 2:
            await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(SerializationError, match="value_serializer raised CancelledError"):
            await other
    assert fake_kafka_cluster.records("orders") == []


@pytest.mark.parametrize("later", ["coroutine", "future", "sometimes"])
async def test_what_has_to_be_awaited(fake_kafka_cluster: FakeCluster, later: str) -> None:
    """From the first awaitable result on, all records take the slow path; their order does not change."""

    async def coroutine(value: int) -> bytes:
        return b"%d" % value

    def future(value: int) -> Any:
        waiting = asyncio.get_running_loop().create_future()
        waiting.set_result(b"%d" % value)
        return waiting

    def sometimes(value: int) -> Any:
        return coroutine(value) if value == 3 else b"%d" % value

    serializer: Callable[[int], Any] = {"coroutine": coroutine, "future": future, "sometimes": sometimes}[later]
    async with producer(fake_kafka_cluster, value_serializer=serializer) as sending:
        await sending.partitions_for("orders")
        for number in range(5):
            await sending.submit("orders", number)
        await sending.send_many("orders", range(5, 8))
        with pytest.raises(SerializerNotReadyError, match="asynchronous"):
            sending.submit_nowait("orders", 3)
        assert sending.slow == (6 if later == "sometimes" else 9)
    assert values(fake_kafka_cluster) == [b"%d" % number for number in range(8)]


async def test_other_bytes_like_results(fake_kafka_cluster: FakeCluster) -> None:
    async with producer(fake_kafka_cluster, value_serializer=lambda value: bytearray(b"x")) as sending:
        await sending.partitions_for("orders")
        await send_in_all_ways(sending, 7)
        assert sending.slow == 5
    assert values(fake_kafka_cluster) == [b"x"] * 5


async def test_no_memory(fake_kafka_cluster: FakeCluster) -> None:
    """Calls without memory wait in the queue, and every record is sent once, in order."""
    async with producer(
        fake_kafka_cluster, value_serializer=lambda value: b"%05d" % value + bytes(5_000),
        buffer_memory=65_536, batch_size=16_384, max_request_size=65_536,
    ) as sending:  # fmt: skip
        await sending.partitions_for("orders")
        full = 0
        number = 0
        while number < 200:
            try:
                sending.submit_nowait("orders", number)
                number += 1
            except BufferExhaustedError:
                full += 1
                await sending.ready()
        for number in range(200, 300):
            await sending.submit("orders", number)
        await sending.send_many("orders", range(300, 400))
        assert full
        assert sending.slow > full
    assert [value[:5] for value in values(fake_kafka_cluster) if value] == [b"%05d" % number for number in range(400)]


async def test_a_serializer_that_sends(fake_kafka_cluster: FakeCluster) -> None:
    """It sends its own records, to another topic."""

    def serializer(value: Any) -> bytes:
        if value == "order":
            sending.submit_nowait("audit", "seen")
        return str(value).encode()

    async with producer(fake_kafka_cluster, value_serializer=serializer) as sending:
        for topic in ("orders", "audit"):
            await sending.partitions_for(topic)
        await send_in_all_ways(sending, "order")
        assert sending.slow == 0
    assert values(fake_kafka_cluster) == [b"order"] * 5
    assert values(fake_kafka_cluster, "audit") == [b"seen"] * 5


async def test_a_serializer_that_closes_the_producer(fake_kafka_cluster: FakeCluster) -> None:
    """Its record is no longer admitted."""

    def serializer(value: Any) -> bytes:
        sending._close_admission()
        sending._refusal = lambda: ProducerClosedError("closed meanwhile")
        return b"late"

    sending = producer(fake_kafka_cluster, value_serializer=serializer)
    async with sending:
        await sending.partitions_for("orders")
        with pytest.raises(ProducerClosedError, match="meanwhile"):
            await sending.send("orders", 7)
    assert fake_kafka_cluster.records("orders") == []


async def test_an_unknown_topic(fake_kafka_cluster: FakeCluster) -> None:
    """User code runs only once the topic is known, and only once."""
    calls = []

    def serializer(value: int) -> bytes:
        calls.append(value)
        return b"%d" % value

    async with producer(fake_kafka_cluster, value_serializer=serializer) as sending:
        await sending.send("orders", 7)
        assert sending.slow == 1
    assert calls == [7]


class Vanishing:
    """A partitioner, and a serializer whose first call is when the topic loses its partitions."""

    def __init__(self) -> None:
        self.given: list[int] = []
        self.producer: Producer | None = None

    def serialize(self, topic: str, headers: Any, value: Any) -> bytes:
        if self.producer is not None and self.producer._engine is not None:
            gone = ClusterTopic(topic, bytes(16), (), error_code=3)
            metadata = self.producer._engine._metadata
            self.producer = None
            metadata._take(ClusterChanges(metadata.cluster.brokers, {topic: gone}))
        return bytes(value)

    def partition(self, topic: str, key: Any, value: Any, partitions: Sequence[Any]) -> int:
        self.given.append(len(partitions))
        return len(partitions) - 1


async def test_a_partitioner_waits_for_a_topic_that_vanished_meanwhile(fake_kafka_cluster: FakeCluster) -> None:
    """It is never asked to choose among no partitions."""
    fake_kafka_cluster.create_topic("orders", partitions=3)
    user = Vanishing()
    async with producer(fake_kafka_cluster, value_serializer=user, partitioner=user.partition) as sending:
        await sending.partitions_for("orders")
        user.producer = sending
        with pytest.raises(MetadataUnavailableError, match="'orders' is not known yet"):
            sending.submit_nowait("orders", b"not now")
        await sending.partitions_for("orders")
        user.producer = sending
        assert (await sending.send("orders", b"later")).partition == 2
    assert user.given == [3]
    assert [record.value for record in fake_kafka_cluster.records("orders", 2)] == [b"later"]
