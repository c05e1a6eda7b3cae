"""The producer with old brokers: it uses the versions that they support.

2.8 is the oldest release that runs without ZooKeeper, in an early form without producer ids; older ones are
covered by golden bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aioproducer import KafkaError, MetadataTimeoutError, ProducerFailedError, RecordTooLargeError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic, producer_of
from tests.broker.load import check_exactly_once, check_log, load_on
from tests.broker.random_records import PARTITIONS, RecordMaker, as_bytes, check_dump
from tests.broker.readers import LOG_APPEND_TIME, read, read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


@pytest.fixture(scope="module", params=["3.9.1", "3.0.2"])
def old_kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """One broker of an older release."""
    with KafkaCluster(version=request.param, properties={"auto.create.topics.enable": False}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_2_8() -> Iterator[KafkaCluster]:
    """One broker of the oldest release that runs here."""
    with KafkaCluster(version="2.8.2") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_3_9() -> Iterator[KafkaCluster]:
    """One broker of the last release before 4.0, for tests that restart it."""
    with KafkaCluster(version="3.9.1") as cluster:
        yield cluster


async def test_records_are_stored_in_order_with_headers_and_time(old_kafka: KafkaCluster) -> None:
    topic = await new_topic(old_kafka, 3)
    async with producer_of(old_kafka, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        metadata = await producer.send(topic, b"0", key="k", headers=[("h", b"1")], partition=0, timestamp_ms=77)
        assert (metadata.offset, metadata.timestamp_ms) == (0, 77)
        delivery = await producer.submit(topic, b"1", partition=0)
        await producer.flush()
        assert delivery.result().offset == 1
        found = await asyncio.gather(*(producer.send(topic, b"%d" % i, partition=1) for i in range(200)))
        assert [one.offset for one in found] == list(range(200))
        assert [one.partition for one in await producer.partitions_for(topic)] == [0, 1, 2]
    assert (await read(old_kafka, topic))[0][0].headers == (("h", b"1"),)
    await check_log(old_kafka, topic, 2)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_random_records(old_kafka: KafkaCluster, codec: str) -> None:
    topic = await new_topic(old_kafka, PARTITIONS, max_message_bytes=2_000_000)
    records = [*RecordMaker(seed=39).records(3_000)]
    async with producer_of(old_kafka, compression_type=codec) as producer:
        deliveries = [await producer.submit(topic, record.value, **record.options) for record in records]
    stored = await read(old_kafka, topic)
    assert sum(map(len, stored.values())) == len(records)
    for record, delivery in zip(records, deliveries, strict=True):
        metadata = delivery.result()
        one = stored[metadata.partition][metadata.offset]
        assert (one.key, one.value, one.headers) == (as_bytes(record.key), as_bytes(record.value), record.headers)
        assert one.timestamp_ms == metadata.timestamp_ms
    check_dump(await asyncio.to_thread(old_kafka.dump_log_segments, topic, 0), codec, len(stored[0]))


@pytest.mark.parametrize("acks", [0, 1])
async def test_fewer_acks(old_kafka: KafkaCluster, acks: int) -> None:
    topic = await new_topic(old_kafka)
    async with producer_of(old_kafka, acks=acks) as producer:
        found = await asyncio.gather(*(producer.send(topic, b"%d" % i) for i in range(500)))
    assert [one.offset for one in found] == ([-1] * 500 if acks == 0 else list(range(500)))
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(old_kafka.end_offsets, topic))[0] < 500:
            await asyncio.sleep(0.01)
    assert await read_values(old_kafka, topic) == [b"%d" % i for i in range(500)]


async def test_log_append_time(old_kafka: KafkaCluster) -> None:
    topic = await new_topic(old_kafka, message_timestamp_type="LogAppendTime")
    async with producer_of(old_kafka) as producer:
        metadata = await producer.send(topic, b"value", timestamp_ms=77)
    stored = (await read(old_kafka, topic))[0][0]
    assert (stored.timestamp_type, stored.timestamp_ms) == (LOG_APPEND_TIME, metadata.timestamp_ms)


async def test_refused_records_fail_and_the_others_leave_no_gap(old_kafka: KafkaCluster) -> None:
    limited = await new_topic(old_kafka, max_message_bytes=1_000)
    compacted = await new_topic(old_kafka, cleanup_policy="compact")
    async with producer_of(old_kafka, batch_size=600, linger_ms=0, max_block_ms=500) as producer:
        with pytest.raises(RecordTooLargeError):
            await producer.send(limited, bytes(2_000))
        with pytest.raises(KafkaError) as caught:
            await producer.send(compacted, b"no key")
        assert caught.value.code == 87
        with pytest.raises(MetadataTimeoutError):
            await producer.send("no-such-topic", b"value")
        deliveries = [await producer.submit(limited, bytes(1_500 if i % 50 == 25 else 100)) for i in range(500)]
        await asyncio.gather(*deliveries, return_exceptions=True)
        acknowledged = [delivery.result().offset for delivery in deliveries if delivery.exception() is None]
    assert acknowledged == list(range(490))


async def test_a_batch_that_is_too_large_is_split(old_kafka: KafkaCluster) -> None:
    topic = await new_topic(old_kafka, max_message_bytes=5_000)
    values = [b"%04d" % i * 100 for i in range(300)]
    async with producer_of(old_kafka, batch_size=50_000, linger_ms=1_000) as producer:
        for value in values:
            await producer.submit(topic, value)
    assert await read_values(old_kafka, topic) == values


async def test_a_deleted_topic_that_is_made_again(old_kafka: KafkaCluster) -> None:
    topic = await new_topic(old_kafka)
    async with producer_of(old_kafka, linger_ms=0) as producer:
        await producer.send(topic, b"old")
        await asyncio.to_thread(old_kafka.delete_topic, topic)
        delivery = await producer.submit(topic, b"new")
        await asyncio.to_thread(old_kafka.create_topic, topic)
        assert (await delivery).offset == 0
    assert await read_values(old_kafka, topic) == [b"new"]


async def test_a_restart_under_load(kafka_3_9: KafkaCluster) -> None:
    topic = await new_topic(kafka_3_9, 3)
    async with producer_of(kafka_3_9) as producer, load_on(producer, topic) as load:
        await load.advance()
        await asyncio.to_thread(kafka_3_9.restart, 1)
        await load.advance()
    await check_exactly_once(kafka_3_9, topic, load)
    await check_log(kafka_3_9, topic, 3)


async def test_a_freeze_under_load(kafka_3_9: KafkaCluster) -> None:
    topic = await new_topic(kafka_3_9, 3)
    async with (
        producer_of(kafka_3_9, request_timeout_ms=300, linger_ms=0) as producer,
        load_on(producer, topic) as load,
    ):
        await load.advance()
        kafka_3_9.pause(1)
        await load.struggle()
        kafka_3_9.resume(1)
        await load.advance()
    await check_exactly_once(kafka_3_9, topic, load)
    await check_log(kafka_3_9, topic, 3)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_random_records_without_idempotence(kafka_2_8: KafkaCluster, codec: str) -> None:
    topic = await new_topic(kafka_2_8, PARTITIONS, max_message_bytes=2_000_000)
    records = [*RecordMaker(seed=28).records(2_000)]
    async with producer_of(kafka_2_8, compression_type=codec, enable_idempotence=False) as producer:
        deliveries = [await producer.submit(topic, record.value, **record.options) for record in records]
    stored = await read(kafka_2_8, topic)
    for record, delivery in zip(records, deliveries, strict=True):
        metadata = delivery.result()
        one = stored[metadata.partition][metadata.offset]
        assert (one.key, one.value, one.headers) == (as_bytes(record.key), as_bytes(record.value), record.headers)
    assert not (await asyncio.to_thread(kafka_2_8.dump_log_segments, topic)).problems


async def test_a_broker_without_producer_ids_says_what_to_do(kafka_2_8: KafkaCluster) -> None:
    producer = producer_of(kafka_2_8)
    with pytest.raises(ProducerFailedError, match=r"InitProducerId.*enable_idempotence=False"):
        await producer.start()
    with pytest.raises(ProducerFailedError, match=r"InitProducerId.*enable_idempotence=False"):
        await producer.send("orders", b"value")
    await producer.close()
