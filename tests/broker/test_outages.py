"""Brokers that do not answer, for a shorter or longer time than the producer waits."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aioproducer import (
    BufferExhaustedError,
    Delivery,
    DeliveryErrors,
    DeliveryTimeoutError,
    KafkaError,
    Producer,
)
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_topic, producer_of, until
from tests.broker.load import check_exactly_once, check_log, load_on, outcome
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

HASTY: dict[str, Any] = {"request_timeout_ms": 300, "delivery_timeout_ms": 1_000, "linger_ms": 0}
DELIVERY_TIMEOUT_S = 1.0


def used_bytes(producer: Producer) -> float:
    """How many bytes of the buffer are in use."""
    metrics = producer.metrics()["producer-metrics"]
    used: float = metrics["buffer-total-bytes"] - metrics["buffer-available-bytes"]
    return used


async def in_flight(producer: Producer) -> None:
    """Wait until a request is on the wire."""
    await until(lambda: producer.metrics()["producer-metrics"]["requests-in-flight"] > 0, "a request is on the wire")


async def test_every_delivery_ends_in_time_and_the_producer_goes_on(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, batch_size=1_000, **HASTY) as producer:
        await producer.send(topic, b"before")
        fragile_kafka.pause(1)
        deliveries: list[Delivery] = []
        began: list[float] = []
        ended: list[float] = []
        for i in range(100):
            delivery = producer.submit_nowait(topic, b"%0100d" % i)
            delivery.add_done_callback(lambda _: ended.append(time.monotonic()))
            deliveries.append(delivery)
            began.append(time.monotonic())
            if i % 10 == 9:
                await asyncio.sleep(0.01)
        flushing = asyncio.create_task(producer.flush())
        errors = [await outcome(delivery) for delivery in deliveries]
        await asyncio.wait_for(flushing, 5)
        assert used_bytes(producer) == 0
        await until(lambda: len(ended) == 100, "all callbacks were called")
        # A batch expires as a whole, by the age of its first record, and holds fewer than ten of these.
        assert all(ended[i + 10] - began[i] >= DELIVERY_TIMEOUT_S - 0.01 for i in range(90))
        assert all(ended[i] - began[i] < 5 * DELIVERY_TIMEOUT_S for i in range(100))
        for error in errors:
            assert type(error) is DeliveryTimeoutError
            assert isinstance(error, TimeoutError)
            assert topic in str(error)
            assert "delivery_timeout_ms=1000" in str(error)
        fragile_kafka.resume(1)
        assert (await _patiently(producer, topic, b"after")) is None
        for i in range(100):
            assert (await outcome(await producer.submit(topic, b"later %d" % i))) is None
    values = await read_values(fragile_kafka, topic)
    written = [value for value in values if value is not None and value[0] in b"0"]
    maybe = [b"%0100d" % i for i, error in enumerate(errors) if error is not None and error.maybe_written]
    assert [value for value in maybe if value in written] == written  # each at most once, in order
    rest = [value for value in values if value not in written]
    first_after = rest.index(b"later 0")
    assert rest[:first_after] == [b"before", *[b"after"] * (first_after - 1)]
    assert rest[first_after:] == [b"later %d" % i for i in range(100)]
    await check_log(fragile_kafka, topic)


async def _patiently(producer: Producer, topic: str, value: bytes) -> KafkaError | None:
    """Send until it succeeds: a broker that has just woken up may take longer than the short delivery timeout."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            error = await outcome(await producer.submit(topic, value))
            if error is None:
                return None


async def test_maybe_written_tells_what_was_on_the_wire(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(
        fragile_kafka,
        max_in_flight_requests_per_connection=1,
        request_timeout_ms=10_000,
        delivery_timeout_ms=10_100,
        linger_ms=0,
    ) as producer:
        await producer.send(topic, b"before")
        fragile_kafka.pause(1)
        sent = await producer.submit(topic, b"sent")
        await in_flight(producer)
        queued = await producer.submit(topic, b"queued")
        await producer.close(timeout=0)
        error = await outcome(sent)
        assert error is not None
        assert error.maybe_written
        error = await outcome(queued)
        assert error is not None
        assert not error.maybe_written
    fragile_kafka.resume(1)
    async with asyncio.timeout(PATIENCE_S):
        while (await asyncio.to_thread(fragile_kafka.end_offsets, topic))[0] < 2:
            await asyncio.sleep(0.01)
    assert await read_values(fragile_kafka, topic) == [b"before", b"sent"]


async def test_a_record_that_never_left_is_surely_not_written(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, **HASTY) as producer:
        await producer.send(topic, b"before")
        await asyncio.to_thread(fragile_kafka.kill, 1)
        await until(lambda: producer.metrics()["producer-metrics"]["connection-count"] == 0, "the connection is gone")
        error = await outcome(await producer.submit(topic, b"never left"))
        assert type(error) is DeliveryTimeoutError
        assert not error.maybe_written
        await asyncio.to_thread(fragile_kafka.start_broker, 1)
        assert (await _patiently(producer, topic, b"after")) is None
    values = await read_values(fragile_kafka, topic)
    assert set(values) == {b"before", b"after"}


async def test_a_freeze_shorter_than_the_delivery_timeout_loses_nothing(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, request_timeout_ms=300, linger_ms=0) as producer:
        await producer.send(topic, b"0")
        fragile_kafka.pause(1)
        deliveries = [await producer.submit(topic, b"%d" % i) for i in range(1, 50)]
        await until(lambda: producer.metrics()["producer-metrics"]["record-retry-total"] > 0, "a request has timed out")
        fragile_kafka.resume(1)
        assert [(await delivery).offset for delivery in deliveries] == list(range(1, 50))
    assert await read_values(fragile_kafka, topic) == [b"%d" % i for i in range(50)]
    await check_log(fragile_kafka, topic)


async def test_failures_of_an_outage_are_raised_by_flush(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    failed: list[tuple[KafkaError, int]] = []

    def on_error(error: KafkaError, records: int) -> None:
        failed.append((error, records))

    async with producer_of(fragile_kafka, on_error=on_error, **HASTY) as producer:
        await producer.send(topic, b"before")
        fragile_kafka.pause(1)
        for _ in range(10):
            await producer.submit(topic, b"value")
        with pytest.raises(DeliveryErrors) as caught:
            await asyncio.wait_for(producer.flush(), 5 * DELIVERY_TIMEOUT_S)
        assert caught.value.record_count == 10
        assert caught.value.maybe_written
        assert {type(error) for error in caught.value.exceptions} == {DeliveryTimeoutError}
        await until(lambda: sum(records for _, records in failed) == 10, "on_error was told")
        assert used_bytes(producer) == 0


async def test_a_buffer_that_was_full_serves_again_after_an_outage(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, buffer_memory=100_000, max_request_size=50_000, **HASTY) as producer:
        await producer.send(topic, b"before")
        fragile_kafka.pause(1)
        deliveries = []
        while True:
            try:
                deliveries.append(producer.submit_nowait(topic, bytes(5_000)))
            except BufferExhaustedError:
                break
        waiting = [asyncio.create_task(_submitted(producer, topic)) for _ in range(5)]
        errors = [await outcome(delivery) for delivery in deliveries]
        assert all(isinstance(error, DeliveryTimeoutError) for error in errors)
        # The memory of the failed records is free again, so waiting records are admitted.
        late = await asyncio.wait_for(asyncio.gather(*waiting), 5 * DELIVERY_TIMEOUT_S)
        fragile_kafka.resume(1)
        await asyncio.gather(*(outcome(delivery) for delivery in late))
        assert (await _patiently(producer, topic, b"after")) is None


async def _submitted(producer: Producer, topic: str) -> Delivery:
    return await producer.submit(topic, bytes(5_000))


async def test_expired_records_in_the_midst_of_load(fragile_kafka: KafkaCluster) -> None:
    """Records expire while others are in flight; acknowledged ones are in the log once and in order."""
    topic = await new_topic(fragile_kafka, 2)
    async with producer_of(fragile_kafka, **HASTY) as producer:
        async with load_on(producer, topic) as load:
            for _ in range(2):
                await load.advance()
                fragile_kafka.pause(1)
                before = len(load.deliveries)
                await until(lambda before=before: len(load.deliveries) > before, "the frozen broker is sent more")
                await outcome(load.deliveries[before])
                fragile_kafka.resume(1)
            await load.advance()
        await producer.flush()
        assert used_bytes(producer) == 0
    failed = sum(delivery.exception() is not None for delivery in load.deliveries)
    assert failed > 0
    values = {
        partition: [int((one or b"").split()[0]) for one in await read_values(fragile_kafka, topic, partition)]
        for partition in (0, 1)
    }
    for partition, numbers in values.items():
        assert len(numbers) == len(set(numbers)), "nothing stands there twice"
        acknowledged = [
            number
            for number, delivery in enumerate(load.deliveries)
            if delivery.exception() is None and delivery.result().partition == partition
        ]
        found = set(acknowledged)
        assert [number for number in numbers if number in found] == acknowledged
    unsure = {
        number
        for number, delivery in enumerate(load.deliveries)
        if (error := delivery.exception()) is not None and getattr(error, "maybe_written", False)
    }
    written = {number for numbers in values.values() for number in numbers}
    acked = {number for number, delivery in enumerate(load.deliveries) if delivery.exception() is None}
    assert acked <= written
    assert written - acked <= unsure


async def test_a_deleted_topic_that_is_made_again(strict_kafka: KafkaCluster) -> None:
    """The new topic has another id; records sent afterwards go there."""
    topic = await new_topic(strict_kafka)
    async with producer_of(strict_kafka, linger_ms=0) as producer:
        for i in range(5):
            await producer.send(topic, b"old %d" % i)
        await asyncio.to_thread(strict_kafka.delete_topic, topic)
        deliveries = [await producer.submit(topic, b"meanwhile %d" % i) for i in range(3)]
        await asyncio.to_thread(strict_kafka.create_topic, topic)
        assert [(await delivery).offset for delivery in deliveries] == [0, 1, 2]
        assert (await producer.send(topic, b"new")).offset == 3
    assert await read_values(strict_kafka, topic) == [*(b"meanwhile %d" % i for i in range(3)), b"new"]


async def test_a_deleted_topic_times_out_with_its_cause(strict_kafka: KafkaCluster) -> None:
    topic = await new_topic(strict_kafka)
    async with producer_of(strict_kafka, **HASTY) as producer:
        await producer.send(topic, b"value")
        await asyncio.to_thread(strict_kafka.delete_topic, topic)
        delivery = await producer.submit(topic, b"value")
        error = await outcome(delivery)
        assert isinstance(error, DeliveryTimeoutError)
        assert error.__cause__ is not None
        assert used_bytes(producer) == 0


async def test_a_program_that_blocks_the_loop_loses_no_record(fragile_kafka: KafkaCluster) -> None:
    """The program blocks the loop for longer than request_timeout_ms: answers that arrived meanwhile still count."""
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, request_timeout_ms=200, linger_ms=0) as producer:
        await producer.send(topic, b"0")
        async with load_on(producer, topic) as load:
            for _ in range(3):
                await load.advance(100)
                _block_the_loop(0.4)
    assert not any(delivery.exception() for delivery in load.deliveries)
    stored = await read_values(fragile_kafka, topic)
    assert [int((value or b"").split()[0]) for value in stored[1:]] == list(range(len(load.deliveries)))


def _block_the_loop(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def test_the_broker_is_gone_when_the_producer_closes(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    producer = producer_of(fragile_kafka, **HASTY)
    await producer.start()
    await producer.send(topic, b"value")
    await asyncio.to_thread(fragile_kafka.kill, 1)
    delivery = await producer.submit(topic, b"value")
    with pytest.raises(DeliveryErrors) as caught:
        await asyncio.wait_for(producer.close(), 5 * DELIVERY_TIMEOUT_S)
    assert caught.value.record_count == 1
    assert isinstance(delivery.exception(), DeliveryTimeoutError)


async def test_an_idle_connection_is_opened_again(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, connections_max_idle_ms=200) as producer:
        for i in range(3):
            assert (await producer.send(topic, b"value")).offset == i
            await until(
                lambda: producer.metrics()["producer-metrics"]["connection-count"] == 0, "the connection was closed"
            )


@pytest.mark.slow
async def test_a_load_survives_everything_at_once(fragile_kafka: KafkaCluster) -> None:
    """A freeze, a kill and a restart, with small requests, compression and headers in between."""
    topic = await new_topic(fragile_kafka, 4)
    async with (
        producer_of(
            fragile_kafka, request_timeout_ms=500, linger_ms=1, batch_size=3_000, compression_type="zstd"
        ) as producer,
        load_on(producer, topic) as load,
    ):
        await load.advance()
        fragile_kafka.pause(1)
        await load.struggle()
        await asyncio.to_thread(fragile_kafka.kill, 1)
        await asyncio.to_thread(fragile_kafka.start_broker, 1)
        await load.advance()
        await asyncio.to_thread(fragile_kafka.restart, 1)
        await load.advance()
    await check_exactly_once(fragile_kafka, topic, load)
    await check_log(fragile_kafka, topic, 4)
