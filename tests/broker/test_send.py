"""send, submit, submit_nowait, ready and Delivery with a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any

import pytest

from aioproducer import (
    BufferExhaustedError,
    Delivery,
    KafkaError,
    MetadataUnavailableError,
    Producer,
    RecordMetadata,
)
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic, producer_of, until
from tests.broker.readers import LOG_APPEND_TIME, read, read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

LONG_LINGER: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
"""Nothing is sent because of linger while a test runs."""


def produce_requests(producer: Producer) -> float:
    """How many Produce requests the producer has written."""
    return producer.metrics()["producer-metrics"]["request-total"]


async def soon(awaitable: Awaitable[Any], limit_s: float = 5.0) -> Any:
    """The result of an awaitable that must not wait for the long linger."""
    async with asyncio.timeout(limit_s):
        return await awaitable


# --- send -------------------------------------------------------------------------------------------------------------


async def test_send_returns_where_the_record_stands(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 3)
    async with producer_of(kafka) as producer:
        first = await producer.send(
            topic, b"value", key=b"key", partition=1, headers=[("trace", b"1")], timestamp_ms=1_700_000_000_123
        )
        second = await producer.send(topic, b"", partition=1, timestamp_ms=0)
        third = await producer.send(topic, None, key="schlüssel", partition=1, timestamp_ms=5)
    assert first == RecordMetadata(topic, 1, 0, 1_700_000_000_123, 3, 5)
    assert second == RecordMetadata(topic, 1, 1, 0, -1, 0)
    assert third == RecordMetadata(topic, 1, 2, 5, 10, -1)
    stored = (await read(kafka, topic))[1]
    assert [(one.key, one.value, one.headers, one.timestamp_ms) for one in stored] == [
        (b"key", b"value", (("trace", b"1"),), 1_700_000_000_123),
        (None, b"", (), 0),
        ("schlüssel".encode(), None, (), 5),
    ]


async def test_a_record_without_timestamp_gets_the_time_of_the_call(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka) as producer:
        before = time.time_ns() // 1_000_000
        metadata = await producer.send(topic, b"value")
        after = time.time_ns() // 1_000_000
    assert before <= metadata.timestamp_ms <= after
    assert (await read(kafka, topic))[0][0].timestamp_ms == metadata.timestamp_ms


async def test_under_log_append_time_the_timestamp_is_the_brokers(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, message_timestamp_type="LogAppendTime")
    async with producer_of(kafka) as producer:
        deliveries = [await producer.submit(topic, b"value", timestamp_ms=1_000 + i) for i in range(3)]
        found = [await delivery for delivery in deliveries]
    stored = (await read(kafka, topic))[0]
    assert {one.timestamp_type for one in stored} == {LOG_APPEND_TIME}
    assert [one.timestamp_ms for one in found] == [one.timestamp_ms for one in stored]
    assert found[0].timestamp_ms > 1_000_000_000_000


async def test_every_form_of_value_and_header(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    values = [b"bytes", bytearray(b"bytearray"), memoryview(b"a memoryview")[2:], "täxt", "", b"", None]
    async with producer_of(kafka) as producer:
        for value in values:
            await producer.submit(topic, value, key=value, partition=0)
        await producer.send(topic, b"", headers={"a": b"1", "b": None})
        await producer.send(topic, b"", headers=(pair for pair in [("a", b"1"), ("ä", b""), ("a", None)]))
        await producer.send(topic, b"", headers=[])
    stored = (await read(kafka, topic))[0]
    expected = [b"bytes", b"bytearray", b"memoryview", "täxt".encode(), b"", b"", None]
    assert [one.value for one in stored[: len(values)]] == expected
    assert [one.key for one in stored[: len(values)]] == expected
    assert [one.headers for one in stored[len(values) :]] == [
        (("a", b"1"), ("b", None)),
        (("a", b"1"), ("ä", b""), ("a", None)),
        (),
    ]


async def test_a_lone_send_does_not_wait_for_linger(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        for i in range(3):
            assert (await soon(producer.send(topic, b"value"))).offset == i


async def test_send_takes_the_submitted_records_of_its_batch_along(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        delivery = await producer.submit(topic, b"first")
        assert (await soon(producer.send(topic, b"second"))).offset == 1
        assert delivery.result().offset == 0


async def test_submit_waits_for_linger_where_send_does_not(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 2)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        waiting = await producer.submit(topic, b"waits", partition=0)
        await soon(producer.send(topic, b"goes", partition=1))
        await soon(producer.send(topic, b"goes", partition=1))
        assert not waiting.done()


async def test_200_gathered_sends_make_few_batches(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        await producer.send(topic, b"warm")
        before = produce_requests(producer)
        found = await soon(asyncio.gather(*(producer.send(topic, b"%d" % i) for i in range(200))))
        assert [one.offset for one in found] == list(range(1, 201))
        assert produce_requests(producer) - before <= 3
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert len(dump.batches) <= 4


async def test_sends_while_a_request_is_in_flight_share_the_next_batch(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        await producer.send(topic, b"warm")
        before = produce_requests(producer)
        sends = []
        for i in range(100):
            sends.append(asyncio.create_task(producer.send(topic, b"%d" % i)))
            await asyncio.sleep(0)  # each send in its own turn of the loop
        await soon(asyncio.gather(*sends))
        assert produce_requests(producer) - before <= 50
    assert await read_values(kafka, topic) == [b"warm", *(b"%d" % i for i in range(100))]


async def test_send_cancelled_in_the_buffer_is_delivered_all_the_same(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka) as producer:
        await producer.partitions_for(topic)
        task = asyncio.create_task(producer.send(topic, b"value"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await read_values(kafka, topic) == [b"value"]


async def test_send_cancelled_before_the_buffer_is_not_sent(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka) as producer:
        task = asyncio.create_task(producer.send(topic, b"waits for metadata"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        fresh = asyncio.create_task(producer.send(topic, b"never started"))
        fresh.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fresh
        await producer.send(topic, b"sent")
    assert await read_values(kafka, topic) == [b"sent"]


async def test_what_the_calls_return_goes_wherever_a_coroutine_does(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka) as producer:
        assert (await asyncio.create_task(producer.send(topic, b"0"))).offset == 0
        async with asyncio.TaskGroup() as group:
            task = group.create_task(producer.send(topic, b"1"))
        assert task.result().offset == 1
        assert (await asyncio.gather(producer.send(topic, b"2")))[0].offset == 2
        assert (await asyncio.wait_for(producer.send(topic, b"3"), PATIENCE_S)).offset == 3
        assert (await asyncio.shield(producer.send(topic, b"4"))).offset == 4
        delivery = await asyncio.wait_for(producer.submit(topic, b"5"), PATIENCE_S)
        assert (await asyncio.wait_for(delivery, PATIENCE_S)).offset == 5
        assert [one.offset for one in await asyncio.gather(delivery, delivery)] == [5, 5]
        assert (await asyncio.create_task(_awaiting(delivery))).offset == 5


async def _awaiting(delivery: Delivery) -> RecordMetadata:
    return await delivery


@pytest.mark.parametrize("call", ["send", "submit"])
async def test_never_awaited_is_never_sent_and_warns(kafka: KafkaCluster, call: str) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka) as producer:
        await producer.partitions_for(topic)
        with pytest.warns(RuntimeWarning, match=f"Producer.{call}' was never awaited"):
            getattr(producer, call)(topic, b"lost")
        await producer.send(topic, b"sent")
    assert await read_values(kafka, topic) == [b"sent"]


# --- submit -----------------------------------------------------------------------------------------------------------


async def test_submit_does_not_wait_for_an_ack(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        delivery = await soon(producer.submit(topic, b"value"))
        assert not delivery.done()
        await producer.flush()
        assert delivery.result().offset == 0


async def test_records_of_one_task_stand_in_call_order(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka) as producer:
        tasks = []
        for i in range(1_000):  # most of them before the topic's metadata has arrived
            match i % 3:
                case 0:
                    await producer.submit(topic, b"%d" % i)
                case 1:
                    await producer.submit(topic, b"%d" % i, key=b"k")
                case 2:
                    tasks.append(producer.submit_nowait(topic, b"%d" % i))
    assert await read_values(kafka, topic) == [b"%d" % i for i in range(1_000)]


async def test_a_record_is_copied_before_submit_returns(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        for prepare in (True, False):
            if not prepare:
                await producer.partitions_for(topic)
            buffer = bytearray(b"before")
            header = bytearray(b"header")
            await producer.submit(topic, buffer, key=memoryview(buffer), headers=[("h", header)])  # type: ignore[list-item]
            buffer[:] = b"after!"
            header[:] = b"after!"
        await producer.flush()
    stored = [(one.key, one.value, one.headers) for one in (await read(kafka, topic))[0]]
    assert stored == [(b"before", b"before", (("h", b"header"),))] * 2


async def test_a_loop_of_submits_gives_the_event_loop_turns(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    value = bytes(1_000)
    async with producer_of(kafka, buffer_memory=256 << 20) as producer:
        await producer.partitions_for(topic)
        turns = 0
        going = True

        def count() -> None:
            nonlocal turns
            turns += 1
            if going:
                asyncio.get_running_loop().call_soon(count)

        count()
        for _ in range(10_000):
            await producer.submit(topic, value)
        going = False
        assert turns >= 10_000 * 1_000 // (256 << 10)


# --- submit_nowait and ready ------------------------------------------------------------------------------------------


async def test_submit_nowait_raises_at_once_for_an_unknown_topic_and_asks_for_it(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka) as producer:
        with pytest.raises(MetadataUnavailableError, match=topic):
            producer.submit_nowait(topic, b"value")
        delivery = await _submit_once_known(producer, topic)
        assert (await delivery).offset == 0


async def _submit_once_known(producer: Producer, topic: str) -> Delivery:
    found: list[Delivery] = []

    def attempt() -> bool:
        try:
            found.append(producer.submit_nowait(topic, b"value"))
        except MetadataUnavailableError:
            return False
        return True

    async with asyncio.timeout(PATIENCE_S):
        while not attempt():
            await asyncio.sleep(0.001)
    return found[0]


async def test_the_full_speed_pattern(kafka: KafkaCluster) -> None:
    """submit_nowait until BufferExhaustedError, then await ready(): everything arrives, in order."""
    topic = await new_topic(kafka)
    async with producer_of(kafka, buffer_memory=1 << 20) as producer:
        await producer.partitions_for(topic)
        full = 0
        for i in range(40_000):
            value = b"%0100d" % i
            while True:
                try:
                    producer.submit_nowait(topic, value)
                    break
                except BufferExhaustedError:
                    full += 1
                    await producer.ready()
        assert 0 < full < 1_000
    assert await read_values(kafka, topic) == [b"%0100d" % i for i in range(40_000)]


async def test_ready_gives_the_loop_a_turn(kafka: KafkaCluster) -> None:
    async with producer_of(kafka) as producer:
        turned: list[bool] = []
        asyncio.get_running_loop().call_soon(turned.append, True)
        await producer.ready()
        assert turned


# --- Delivery ---------------------------------------------------------------------------------------------------------


async def test_a_delivery_can_be_awaited_by_many_before_and_after_its_end(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        delivery = await producer.submit(topic, b"value")
        waiting = [asyncio.create_task(_awaiting(delivery)) for _ in range(5)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await producer.flush()
        with pytest.raises(asyncio.CancelledError):
            await waiting[0]
        found = [await task for task in waiting[1:]]
        assert found == [await delivery] * 4
        assert await delivery == delivery.result()


async def test_what_a_delivery_tells(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, **LONG_LINGER) as producer:
        delivery = await producer.submit(topic, b"value")
        assert not delivery.done()
        for ask in (delivery.result, delivery.exception):
            with pytest.raises(asyncio.InvalidStateError):
                ask()
        assert delivery.cancel() is False
        assert delivery.cancelled() is False
        assert bool(delivery)
        assert {delivery: 1}[delivery] == 1
        await producer.flush()
        assert delivery.done()
        assert delivery.exception() is None
        assert delivery.result().offset == 0
        assert delivery.cancel() is False
        assert delivery.cancelled() is False


async def test_callbacks_run_in_admission_order_on_the_loop(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    loop = asyncio.get_running_loop()
    called: list[int] = []
    async with producer_of(kafka, **LONG_LINGER) as producer:
        numbers: dict[Delivery, int] = {}

        def ended(delivery: Delivery) -> None:
            assert asyncio.get_running_loop() is loop
            assert delivery.done()
            called.append(numbers[delivery])

        deliveries = [await producer.submit(topic, b"%d" % i) for i in range(2_000)]
        numbers.update((delivery, i) for i, delivery in enumerate(deliveries))
        for delivery in reversed(deliveries):
            delivery.add_done_callback(ended)
        await producer.flush()
        await until(lambda: len(called) == 2_000, "all callbacks were called")
        assert called == list(range(2_000))
        late: list[Delivery] = []
        deliveries[7].add_done_callback(late.append)
        assert not late
        await asyncio.sleep(0)
        assert late == [deliveries[7]]


async def test_a_callback_that_raises_disturbs_nobody(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    reports: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    called: list[Delivery] = []

    def wrong(_: Delivery) -> None:
        raise ValueError("mine")

    async with producer_of(kafka) as producer:
        first = await producer.submit(topic, b"1")
        second = await producer.submit(topic, b"2")
        first.add_done_callback(wrong)
        first.add_done_callback(called.append)
        second.add_done_callback(called.append)
        await producer.flush()
        await until(lambda: len(called) == 2, "the other callbacks were called")
    loop.set_exception_handler(handler)
    assert [str(report["exception"]) for report in reports] == ["mine"]


async def test_when_flush_returns_the_callbacks_of_what_it_covered_are_scheduled(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    called: list[Delivery] = []
    async with producer_of(kafka, **LONG_LINGER) as producer:
        for i in range(10):
            (await producer.submit(topic, b"%d" % i)).add_done_callback(called.append)
        await producer.flush()
        await asyncio.sleep(0)
        assert len(called) == 10


# --- acks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", ["0", "1", "all", 0, 1, -1])
async def test_every_kind_of_acks(kafka: KafkaCluster, acks: object) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, acks=acks) as producer:
        found = [await producer.send(topic, b"0", timestamp_ms=77)]
        found += await asyncio.gather(*(producer.send(topic, b"%d" % i, timestamp_ms=77) for i in range(1, 500)))
    expected = [-1] * 500 if acks in ("0", 0) else list(range(500))
    assert [one.offset for one in found] == expected
    assert {one.timestamp_ms for one in found} == {77}
    await _wait_for_end(kafka, topic, 500)
    assert await read_values(kafka, topic) == [b"%d" % i for i in range(500)]


async def _wait_for_end(kafka: KafkaCluster, topic: str, end: int) -> None:
    """With acks=0 the broker may still be processing the last request when the producer is closed."""
    async with asyncio.timeout(PATIENCE_S):
        while (await asyncio.to_thread(kafka.end_offsets, topic))[0] < end:
            await asyncio.sleep(0.01)


async def test_topics_make_themselves_where_the_broker_allows_it(kafka: KafkaCluster) -> None:
    topic = new_name()
    async with producer_of(kafka) as producer:
        assert (await producer.send(topic, b"value")).offset == 0
    assert await read_values(kafka, topic) == [b"value"]


async def test_many_topics_at_once(kafka: KafkaCluster) -> None:
    topics = [new_name() for _ in range(20)]
    async with producer_of(kafka) as producer:
        await asyncio.gather(*(producer.send(topic, b"%d" % i) for i in range(20) for topic in topics))
    for topic in topics[::7]:
        assert sorted(map(int, await read_values(kafka, topic))) == list(range(20))  # type: ignore[arg-type]


async def test_the_memory_is_back_when_everything_has_ended(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 3)
    async with producer_of(kafka, compression_type="lz4") as producer:
        for i in range(5_000):
            await producer.submit(topic, b"%0500d" % i)
        await producer.flush()
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"] == 32 << 20


async def test_an_error_of_the_broker_is_raised_by_send(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, cleanup_policy="compact")
    async with producer_of(kafka) as producer:
        with pytest.raises(KafkaError, match=f"{topic}-0") as caught:
            await producer.send(topic, b"a compacted topic takes no record without a key")
        assert caught.value.code == 87
        assert caught.value.name == "INVALID_RECORD"
        assert not caught.value.maybe_written
        assert (await producer.send(topic, b"value", key=b"key")).offset == 0
