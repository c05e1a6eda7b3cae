"""Full buffers, large records, and how long calls wait for memory and metadata."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from aioproducer import (
    BufferExhaustedError,
    Delivery,
    MetadataTimeoutError,
    Producer,
    RecordTooLargeError,
)
from aioproducer.errors import RecordListTooLargeError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_name, new_topic, producer_of, until
from tests.broker.readers import read, read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

SMALL: dict[str, Any] = {"buffer_memory": 200_000, "max_request_size": 150_000, "batch_size": 16_384}


async def fill(producer: Producer, topic: str, value: bytes = bytes(10_000)) -> list[Delivery]:
    """Submit until there is no memory left."""
    await producer.partitions_for(topic)
    deliveries = []
    while True:
        try:
            deliveries.append(producer.submit_nowait(topic, value))
        except BufferExhaustedError:
            return deliveries


def waiting(producer: Producer) -> float:
    """The number of calls that wait for memory."""
    count: float = producer.metrics()["producer-metrics"]["waiting-threads"]
    return count


# --- a full buffer ----------------------------------------------------------------------------------------------------


async def test_submit_nowait_raises_when_the_buffer_is_full(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, **SMALL) as producer:
        await producer.send(topic, b"warm")
        fragile_kafka.pause(1)
        deliveries = await fill(producer, topic)
        assert 10 <= len(deliveries) <= 20
        with pytest.raises(BufferExhaustedError, match="buffer_memory=200,000") as caught:
            producer.submit_nowait(topic, bytes(10_000))
        assert isinstance(caught.value, BufferError)
        assert not any(delivery.done() for delivery in deliveries)
        fragile_kafka.resume(1)
        await producer.flush()
        producer.submit_nowait(topic, bytes(10_000))


async def test_submit_waits_for_memory_for_at_most_max_block_ms(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, max_block_ms=500, **SMALL) as producer:
        await producer.send(topic, b"warm")
        fragile_kafka.pause(1)
        await fill(producer, topic)
        for call in (producer.submit, producer.send):
            began = time.monotonic()
            with pytest.raises(BufferExhaustedError, match="max_block_ms=500"):
                await call(topic, bytes(10_000))
            assert 0.49 <= time.monotonic() - began < 5 * 0.5
        began = time.monotonic()
        with pytest.raises(BufferExhaustedError, match="max_block_ms=500"):
            await producer.ready()
        assert 0.49 <= time.monotonic() - began < 5 * 0.5
        assert waiting(producer) == 0
        fragile_kafka.resume(1)
        await producer.submit(topic, bytes(10_000))


async def test_who_waits_for_memory_is_served_in_order(fragile_kafka: KafkaCluster) -> None:
    """Small records queue behind large ones, although they would fit first."""
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, **SMALL) as producer:
        await producer.send(topic, b"warm")
        fragile_kafka.pause(1)
        filled = await fill(producer, topic)
        tasks = []
        for number in range(30):
            value = b"%06d" % number * (15_000 if number % 3 == 0 else 1)
            tasks.append(asyncio.create_task(_submit(producer, topic, value)))
            await asyncio.sleep(0)
        assert waiting(producer) == 30
        with pytest.raises(BufferExhaustedError):
            producer.submit_nowait(topic, b"small")  # another call is waiting
        assert not any(task.done() for task in tasks)
        fragile_kafka.resume(1)
        await asyncio.gather(*tasks)
    values = await read_values(fragile_kafka, topic)
    assert [int((value or b"")[:6]) for value in values[1 + len(filled) :]] == list(range(30))


async def test_a_record_that_had_to_wait_is_complete(fragile_kafka: KafkaCluster) -> None:
    """Even if its headers are an iterator, which can be read only once."""
    topic = await new_topic(fragile_kafka)
    headers = [("a", b"1"), ("b", None), ("a", b"2")]
    async with producer_of(fragile_kafka, **SMALL) as producer:
        await producer.send(topic, b"warm")
        fragile_kafka.pause(1)
        await fill(producer, topic)
        with pytest.raises(BufferExhaustedError):
            producer.submit_nowait(topic, bytes(10_000), headers=iter(headers))
        value = bytearray(b"value" * 2_000)
        sending = asyncio.create_task(producer.send(topic, value, key="key", headers=iter(headers), timestamp_ms=7))
        await until(lambda: waiting(producer) == 1, "it waits")
        fragile_kafka.resume(1)
        metadata = await sending
        assert metadata.serialized_value_size == 10_000
    stored = (await read(fragile_kafka, topic))[0][metadata.offset]
    assert (stored.key, stored.value, stored.timestamp_ms) == (b"key", bytes(value), 7)
    assert stored.headers == tuple(headers)


async def test_a_waiter_that_is_cancelled_leaves_the_queue(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, **SMALL) as producer:
        await producer.send(topic, b"warm")
        fragile_kafka.pause(1)
        filled = await fill(producer, topic)
        tasks = []
        for number in range(10):
            tasks.append(asyncio.create_task(_submit(producer, topic, b"%d" % number * 10_000)))
            await asyncio.sleep(0)
        for number in (0, 4, 9):
            tasks[number].cancel()
        await asyncio.wait([tasks[number] for number in (0, 4, 9)])
        assert waiting(producer) == 7
        fragile_kafka.resume(1)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [task.cancelled() for task in tasks] == [number in (0, 4, 9) for number in range(10)]
    values = await read_values(fragile_kafka, topic)
    assert [int((value or b"")[:1]) for value in values[1 + len(filled) :]] == [1, 2, 3, 5, 6, 7, 8]


async def _submit(producer: Producer, topic: str, value: bytes) -> Delivery:
    return await producer.submit(topic, value)


async def test_cancelling_everybody_who_waits_gives_the_memory_to_the_next(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, **SMALL) as producer:
        await producer.send(topic, b"warm")
        fragile_kafka.pause(1)
        await fill(producer, topic)
        tasks = [asyncio.create_task(_submit(producer, topic, bytes(100_000))) for _ in range(5)]
        await until(lambda: waiting(producer) == 5, "all wait")
        fragile_kafka.resume(1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert waiting(producer) == 0
        await producer.submit(topic, bytes(100_000))
        await producer.flush()
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"] == 200_000


async def test_ready_waits_until_there_is_room(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, **SMALL) as producer:
        await producer.send(topic, b"warm")
        fragile_kafka.pause(1)
        await fill(producer, topic)
        calls = [asyncio.create_task(producer.ready()) for _ in range(3)]
        await until(lambda: waiting(producer) == 3, "all wait")
        fragile_kafka.resume(1)
        await asyncio.gather(*calls)
        producer.submit_nowait(topic, b"value")


async def test_many_tasks_share_a_small_buffer_fairly(kafka: KafkaCluster) -> None:
    """No task starves: they progress at the same rate."""
    topic = await new_topic(kafka)
    counts = [0] * 20
    furthest = 0
    async with producer_of(kafka, **SMALL) as producer:
        await producer.partitions_for(topic)

        async def work(number: int) -> None:
            nonlocal furthest
            for _ in range(50):
                await producer.submit(topic, b"%02d" % number * 5_000)
                counts[number] += 1
                furthest = max(furthest, max(counts) - min(counts))

        await asyncio.gather(*(work(number) for number in range(20)))
    assert furthest <= 20
    values = await read_values(kafka, topic)
    assert len(values) == 1_000


async def test_memory_in_use_never_passes_buffer_memory(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 5)
    async with producer_of(kafka, **SMALL) as producer:
        least = 200_000.0
        for i in range(500):
            await producer.submit(topic, bytes(i * 37 % 20_000))
            least = min(least, producer.metrics()["producer-metrics"]["buffer-available-bytes"])
        assert 0 <= least < 100_000
        await producer.flush()
        assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 200_000


# --- metadata ---------------------------------------------------------------------------------------------------------


async def test_an_unknown_topic_times_out_with_its_cause(strict_kafka: KafkaCluster) -> None:
    async with producer_of(strict_kafka, max_block_ms=300) as producer:
        for call in (producer.submit, producer.send):
            began = time.monotonic()
            with pytest.raises(MetadataTimeoutError, match=r"no-such-topic.*max_block_ms=300") as caught:
                await call("no-such-topic", b"value")
            assert 0.29 <= time.monotonic() - began < 5 * 0.3
            assert isinstance(caught.value, TimeoutError)
            assert "UNKNOWN_TOPIC_OR_PARTITION" in str(caught.value.__cause__)
        with pytest.raises(MetadataTimeoutError, match="no-such-topic"):
            await producer.partitions_for("no-such-topic")


async def test_a_topic_made_meanwhile_is_found(strict_kafka: KafkaCluster) -> None:
    topic = new_name()
    async with producer_of(strict_kafka) as producer:
        sending = asyncio.create_task(_submit(producer, topic, b"value"))
        done, _ = await asyncio.wait([sending], timeout=0.1)
        assert not done
        await asyncio.to_thread(strict_kafka.create_topic, topic)
        delivery = await asyncio.wait_for(sending, 10)
        assert (await delivery).offset == 0


async def test_an_unknown_topic_does_not_hold_others_up(strict_kafka: KafkaCluster) -> None:
    topic = await new_topic(strict_kafka)
    async with producer_of(strict_kafka, max_block_ms=1_000) as producer:
        unknown = asyncio.create_task(_submit(producer, "no-such-topic", b"value"))
        await asyncio.sleep(0)
        for i in range(20):
            assert (await producer.send(topic, b"value")).offset == i
        assert not unknown.done()
        with pytest.raises(MetadataTimeoutError):
            await unknown


async def test_a_partition_beyond_the_count_waits_and_then_fails(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 2)
    async with producer_of(kafka, max_block_ms=300) as producer:
        await producer.send(topic, b"value")
        began = time.monotonic()
        with pytest.raises(MetadataTimeoutError, match=r"2 partitions.*partition 2"):
            await producer.send(topic, b"value", partition=2)
        assert 0.29 <= time.monotonic() - began < 5 * 0.3
        assert (await producer.send(topic, b"value", partition=1)).partition == 1


async def test_a_partition_added_meanwhile_is_found(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 2)
    async with producer_of(kafka) as producer:
        await producer.send(topic, b"value")
        sending = asyncio.create_task(_send_to(producer, topic, 4))
        done, _ = await asyncio.wait([sending], timeout=0.1)
        assert not done
        await asyncio.to_thread(kafka.add_partitions, topic, 5)
        await asyncio.wait_for(sending, 10)
        assert [one.partition for one in await producer.partitions_for(topic)] == list(range(5))


async def _send_to(producer: Producer, topic: str, partition: int) -> None:
    assert (await producer.send(topic, b"value", partition=partition)).partition == partition


async def test_the_users_own_time_does_not_count(fragile_kafka: KafkaCluster) -> None:
    """max_block_ms limits the waits for metadata and memory together, but not the serializer's time."""
    topic = await new_topic(fragile_kafka)
    slow = asyncio.Event()

    async def serializer(value: bytes) -> bytes:
        await slow.wait()
        return value

    async with producer_of(fragile_kafka, max_block_ms=300, value_serializer=serializer) as producer:
        sending = asyncio.create_task(_submit(producer, topic, b"value"))
        done, _ = await asyncio.wait([sending], timeout=0.6)
        assert not done
        slow.set()
        assert (await (await sending)).offset == 0


# --- large records ----------------------------------------------------------------------------------------------------


async def test_a_record_above_max_request_size_is_refused(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, max_message_bytes=10_000_000)
    async with producer_of(kafka) as producer:
        await producer.partitions_for(topic)
        with pytest.raises(RecordTooLargeError, match=r"1,048,576.*max_request_size"):
            producer.submit_nowait(topic, bytes(1_100_000))
        for call in (producer.submit, producer.send):
            with pytest.raises(RecordTooLargeError, match=r"1,048,576.*max_request_size") as caught:
                await call(topic, bytes(1_100_000))
            assert isinstance(caught.value, ValueError)
            assert not caught.value.maybe_written
        assert (await producer.send(topic, bytes(1_048_000))).offset == 0


async def test_a_record_above_buffer_memory_is_refused_at_once(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, buffer_memory=100_000) as producer:
        with pytest.raises(RecordTooLargeError, match="buffer_memory"):
            await asyncio.wait_for(producer.submit(topic, bytes(110_000)), 10)
        await producer.send(topic, bytes(60_000))


async def test_a_record_larger_than_a_batch_goes_alone(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, max_message_bytes=10_000_000)
    values = [bytes([i]) * size for i, size in enumerate((10, 100_000, 10, 5_000_000, 10))]
    async with producer_of(kafka, max_request_size=6_000_000, batch_size=16_384) as producer:
        for value in values:
            await producer.submit(topic, value)
    assert await read_values(kafka, topic) == values


async def test_a_record_above_the_topics_limit_fails_alone(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, max_message_bytes=50_000)
    async with producer_of(kafka, batch_size=16_384) as producer:
        before = [await producer.submit(topic, b"%d" % i) for i in range(3)]
        large = await producer.submit(topic, bytes(60_000))
        after = [await producer.submit(topic, b"%d" % i) for i in range(3, 6)]
        error = await _error_of(large)
        assert isinstance(error, RecordTooLargeError)
        assert error.code == 10
        assert not error.maybe_written
        assert [(await delivery).offset for delivery in [*before, *after]] == list(range(6))
    assert await read_values(kafka, topic) == [b"%d" % i for i in range(6)]


@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_what_a_topic_takes_is_learned(kafka: KafkaCluster, codec: str) -> None:
    """A limit far below batch_size causes some refusals at first, and none later."""
    topic = await new_topic(kafka, max_message_bytes=20_000)
    values = [random.Random(i).randbytes(400) for i in range(4_000)]
    async with producer_of(kafka, batch_size=520_192, linger_ms=1_000, compression_type=codec) as producer:
        refused = []
        for _ in range(3):
            for value in values:
                await producer.submit(topic, value)
            await producer.flush()
            refused.append(producer.metrics()["producer-metrics"]["batch-split-total"])
    assert refused[0] >= 4
    assert refused[1:] == [refused[0]] * 2
    assert await read_values(kafka, topic) == values * 3


async def _error_of(delivery: Delivery) -> BaseException | None:
    try:
        await delivery
    except RecordTooLargeError as error:
        return error
    return None


async def test_a_batch_above_a_segment_of_the_log_is_split(kafka: KafkaCluster) -> None:
    """A batch within the topic's limit still has to fit in one segment: it is sent in pieces, in order."""
    topic = await new_topic(kafka, max_message_bytes=3_000_000, segment_bytes=1_048_576)
    limits: dict[str, Any] = {"batch_size": 3_000_000, "max_request_size": 3_000_000, "linger_ms": 1_000}
    async with producer_of(kafka, **limits) as producer:
        deliveries = [await producer.submit(topic, bytes(100_000)) for _ in range(20)]
        await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(20))
        assert producer.metrics()["producer-metrics"]["batch-split-total"] >= 1
        with pytest.raises(RecordTooLargeError) as alone:
            await producer.send(topic, bytes(2_000_000))
        assert isinstance(alone.value, RecordListTooLargeError)
        assert not alone.value.maybe_written
        assert (await producer.send(topic, b"the next")).offset == 20


@pytest.mark.parametrize("codec", ["none", "gzip"])
async def test_a_batch_above_the_topics_limit_is_split(kafka: KafkaCluster, codec: str) -> None:
    """The broker refuses a batch of this size: it is sent in pieces, in order, and each record gets its own result."""
    topic = await new_topic(kafka, max_message_bytes=5_000)
    values = [b"%04d" % i * 100 for i in range(400)]
    if codec == "gzip":
        values = [random.Random(i).randbytes(400) for i in range(400)]  # incompressible
    async with producer_of(kafka, batch_size=100_000, linger_ms=1_000, compression_type=codec) as producer:
        deliveries = [await producer.submit(topic, value) for value in values]
        await producer.flush()
        assert [delivery.result().offset for delivery in deliveries] == list(range(400))
        assert producer.metrics()["producer-metrics"]["batch-split-total"] >= 1
    assert await read_values(kafka, topic) == values
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert not dump.problems
    assert max(batch.size for batch in dump.batches) <= 5_000


async def test_batch_size_0_sends_each_record_alone(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, batch_size=0) as producer:
        for i in range(50):
            await producer.submit(topic, b"%d" % i)
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert [batch.count for batch in dump.batches] == [1] * 50
    assert await read_values(kafka, topic) == [b"%d" % i for i in range(50)]


async def test_batches_keep_to_batch_size(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, batch_size=10_000, linger_ms=1_000) as producer:
        for i in range(1_000):
            await producer.submit(topic, b"%0100d" % i)
        await producer.flush()
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert max(batch.size for batch in dump.batches) <= 10_000
    assert sum(batch.size for batch in dump.batches) / len(dump.batches) > 8_000


async def test_linger_ends_by_itself(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, linger_ms=50) as producer:
        await producer.send(topic, b"warm")
        began = time.monotonic()
        deliveries = [await producer.submit(topic, b"value") for _ in range(10)]
        await asyncio.wait_for(deliveries[-1], 5)
        assert time.monotonic() - began >= 0.049
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert [batch.count for batch in dump.batches] == [1, 10]


async def test_a_full_buffer_cuts_linger(kafka: KafkaCluster) -> None:
    """The batch that fills it is sent although it is neither full nor old enough, and although nothing is in flight."""
    topic = await new_topic(kafka, 2)
    async with producer_of(kafka, linger_ms=60_000, buffer_memory=50_000, batch_size=100_000) as producer:
        for number in range(10):
            await asyncio.wait_for(producer.submit(topic, bytes(40_000), partition=number % 2), 10)
