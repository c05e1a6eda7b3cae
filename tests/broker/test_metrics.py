"""metrics(): Kafka's names, and values that agree with what was sent."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from aioproducer import DeliveryErrors, Producer
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_name, new_topic, producer_of, until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

JAVAS_NAMES = """
    batch-size-avg batch-size-max batch-split-rate batch-split-total buffer-available-bytes
    buffer-exhausted-rate buffer-exhausted-total buffer-total-bytes bufferpool-wait-ratio
    bufferpool-wait-time-ns-total compression-rate-avg connection-close-rate connection-close-total
    connection-count connection-creation-rate connection-creation-total flush-time-ns-total incoming-byte-rate
    incoming-byte-total metadata-age metadata-wait-time-ns-total outgoing-byte-rate outgoing-byte-total
    produce-throttle-time-avg produce-throttle-time-max record-error-rate record-error-total
    record-queue-time-avg record-queue-time-max record-retry-rate record-retry-total record-send-rate
    record-send-total record-size-avg record-size-max records-per-request-avg request-latency-avg
    request-latency-max request-rate request-size-avg request-size-max request-total requests-in-flight
    response-rate response-total waiting-threads
"""
TOPIC_NAMES = """
    byte-rate byte-total compression-rate record-error-rate record-error-total record-retry-rate
    record-retry-total record-send-rate record-send-total
"""
NODE_NAMES = """
    incoming-byte-rate incoming-byte-total outgoing-byte-rate outgoing-byte-total request-latency-avg
    request-latency-max request-rate request-size-avg request-size-max request-total response-rate
    response-total
"""


def own(producer: Producer) -> dict[str, float]:
    """The metrics of the producer as a whole."""
    found: dict[str, float] = producer.metrics()["producer-metrics"]
    return found


async def test_kafkas_names_in_plain_dicts(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    producer = producer_of(kafka)
    assert producer.metrics() == {}
    async with producer:
        await producer.send(topic, b"value")
        metrics = producer.metrics()
        assert type(metrics) is dict
        assert set(JAVAS_NAMES.split()) <= set(metrics["producer-metrics"])
        assert set(metrics["producer-topic-metrics"]) == {topic}
        assert set(TOPIC_NAMES.split()) <= set(metrics["producer-topic-metrics"][topic])
        own_metrics = metrics["producer-metrics"]
        assert own_metrics["record-size-avg"] == own_metrics["record-size-max"] == len("value") + 7
        assert "node-1" in metrics["producer-node-metrics"]
        assert set(NODE_NAMES.split()) <= set(metrics["producer-node-metrics"]["node-1"])
        assert {type(number) for number in _numbers(metrics)} == {float}
    assert producer.metrics()["producer-metrics"]["record-send-total"] == 1  # metrics can still be read after close()


def _numbers(metrics: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for value in metrics.values():
        found += _numbers(value) if isinstance(value, dict) else [value]
    return found


async def test_how_long_a_topic_was_waited_for(kafka: KafkaCluster) -> None:
    """One that the broker has to create: its first answer has no leader. Times are counted in whole milliseconds."""
    async with producer_of(kafka) as producer:
        await producer.send(new_name(), b"value")
        assert own(producer)["metadata-wait-time-ns-total"] >= 1e6


async def test_the_numbers_agree_with_what_was_done(kafka: KafkaCluster) -> None:
    one, other = await new_topic(kafka), await new_topic(kafka)
    async with producer_of(kafka, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        for i in range(100):
            await producer.submit(one, b"%0100d" % i)
        for i in range(50):
            await producer.submit(other, b"%0200d" % i)
        await producer.flush()
        metrics = own(producer)
        assert metrics["record-send-total"] == 150
        assert metrics["record-error-total"] == 0
        assert metrics["record-retry-total"] == 0
        assert metrics["records-per-request-avg"] in (75, 150)
        sizes = [dump.batches[0].size for dump in (await _dump(kafka, one), await _dump(kafka, other))]
        assert metrics["batch-size-max"] == max(sizes)
        assert metrics["batch-size-avg"] == sum(sizes) / 2
        assert 200 < metrics["record-size-avg"] * 1.5 < metrics["record-size-max"] * 1.5 < 330
        assert metrics["compression-rate-avg"] == 1
        assert metrics["record-queue-time-max"] >= metrics["record-queue-time-avg"] >= 0
        assert metrics["request-latency-max"] >= metrics["request-latency-avg"] >= 0
        assert metrics["record-send-rate"] > 0
        assert metrics["flush-time-ns-total"] > 0
        assert metrics["bufferpool-wait-time-ns-total"] == 0
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"] == 32 << 20
        assert metrics["connection-count"] == metrics["connection-creation-total"] - metrics["connection-close-total"]
        assert metrics["connection-count"] in (1, 2)
        assert metrics["requests-in-flight"] == 0
        assert metrics["request-total"] == metrics["response-total"] >= 1
        assert metrics["outgoing-byte-total"] >= sum(sizes)
        assert metrics["metadata-age"] < 60
        topics = producer.metrics()["producer-topic-metrics"]
        assert {name: topics[name]["record-send-total"] for name in topics} == {one: 100, other: 50}
        assert {name: topics[name]["byte-total"] for name in topics} == {one: sizes[0], other: sizes[1]}


async def _dump(kafka: KafkaCluster, topic: str) -> Any:
    return await asyncio.to_thread(kafka.dump_log_segments, topic)


async def test_averages_of_nothing_are_nan(kafka: KafkaCluster) -> None:
    async with producer_of(kafka) as producer:
        metrics = own(producer)
        assert math.isnan(metrics["batch-size-avg"])
        assert math.isnan(metrics["record-queue-time-max"])
        assert metrics["record-send-total"] == 0


async def test_compression_is_measured(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, compression_type="gzip", linger_ms=100) as producer:
        for _ in range(1_000):
            await producer.submit(topic, b"the same all the time " * 5)
        await producer.flush()
        assert 0 < own(producer)["compression-rate-avg"] < 0.2
        assert 0 < producer.metrics()["producer-topic-metrics"][topic]["compression-rate"] < 0.2


async def test_failures_are_counted(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, cleanup_policy="compact")
    async with producer_of(kafka, linger_ms=100) as producer:
        for _ in range(7):
            await producer.submit(topic, b"a compacted topic takes no record without a key")
        with pytest.raises(DeliveryErrors):
            await producer.flush()
        assert own(producer)["record-error-total"] == 7
        assert producer.metrics()["producer-topic-metrics"][topic]["record-error-total"] == 7


async def test_waits_for_memory_are_counted(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, buffer_memory=100_000, request_timeout_ms=60_000) as producer:
        await producer.send(topic, b"value")
        fragile_kafka.pause(1)
        tasks = [asyncio.create_task(_submit(producer, topic)) for _ in range(15)]
        await until(lambda: own(producer)["waiting-threads"] > 0, "somebody waits")
        assert 1 <= own(producer)["waiting-threads"] < 15
        assert own(producer)["buffer-available-bytes"] < 20_000
        await until(lambda: own(producer)["requests-in-flight"] > 0, "a request is on the wire")
        fragile_kafka.resume(1)
        await asyncio.gather(*tasks)
        await producer.flush()
        metrics = own(producer)
        assert metrics["waiting-threads"] == 0
        assert metrics["bufferpool-wait-time-ns-total"] > 0
        assert metrics["bufferpool-wait-ratio"] > 0


async def _submit(producer: Producer, topic: str) -> None:
    await producer.submit(topic, bytes(10_000))


async def test_connections_and_retries_are_counted(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, request_timeout_ms=300, linger_ms=0) as producer:
        await producer.send(topic, b"value")
        fragile_kafka.pause(1)
        delivery = await producer.submit(topic, b"value")
        await until(lambda: own(producer)["connection-close-total"] >= 1, "the connection is given up")
        assert own(producer)["record-retry-total"] >= 1
        fragile_kafka.resume(1)
        await delivery
        metrics = own(producer)
        assert metrics["connection-creation-total"] >= 2
        assert metrics["connection-count"] == metrics["connection-creation-total"] - metrics["connection-close-total"]
        assert metrics["record-send-total"] == 3  # every attempt counts, as in Java
        assert metrics["record-error-total"] == 0
