"""Random records of every shape, written with each codec and read back by another client and by Kafka's own tool."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from aioproducer import Delivery
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic, producer_of
from tests.broker.random_records import PARTITIONS, RecordMaker, Sent, as_bytes, check_dump
from tests.broker.readers import read

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

RECORDS = 8_000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_random_records_come_back_as_they_were(kafka: KafkaCluster, codec: str) -> None:
    """Content, order of admission in each partition, and each batch checked by Kafka's own tool."""
    topic = await new_topic(kafka, PARTITIONS, max_message_bytes=2_000_000)
    sent: dict[Delivery, Sent] = {}
    async with producer_of(kafka, compression_type=codec, buffer_memory=8 << 20, linger_ms=5) as producer:
        for record in RecordMaker(seed=20_250_101).records(RECORDS):
            delivery = await producer.submit(topic, record.value, **record.options)
            sent[delivery] = record
        await producer.flush()
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    by_partition: defaultdict[int, list[tuple[Delivery, Sent]]] = defaultdict(list)
    for delivery, record in sent.items():
        by_partition[delivery.result().partition].append((delivery, record))

    stored = await read(kafka, topic)
    assert sum(map(len, stored.values())) == RECORDS
    for partition, expected in by_partition.items():
        assert len(stored[partition]) == len(expected)
        for found, (delivery, record) in zip(stored[partition], expected, strict=True):
            metadata = delivery.result()
            key, value = as_bytes(record.key), as_bytes(record.value)
            assert (found.key, found.value, found.headers) == (key, value, record.headers)
            assert (found.offset, found.timestamp_ms) == (metadata.offset, metadata.timestamp_ms)
            assert record.partition in (None, partition)
            assert record.timestamp_ms in (None, metadata.timestamp_ms)
            assert metadata.serialized_key_size == (-1 if key is None else len(key))
            assert metadata.serialized_value_size == (-1 if value is None else len(value))
    for partition in range(PARTITIONS):
        check_dump(await asyncio.to_thread(kafka.dump_log_segments, topic, partition), codec, len(stored[partition]))


async def test_one_record_of_each_shape_is_alone_in_its_batch(kafka: KafkaCluster) -> None:
    """The same with batches of one record, without idempotence, and with awaited sends."""
    topic = await new_topic(kafka, PARTITIONS, max_message_bytes=2_000_000)
    records = [*RecordMaker(seed=7).records(300)]
    async with producer_of(kafka, batch_size=0, enable_idempotence=False, compression_type="zstd") as producer:
        found = [await producer.send(topic, record.value, **record.options) for record in records]
    stored = await read(kafka, topic)
    for metadata, record in zip(found, records, strict=True):
        one = stored[metadata.partition][metadata.offset]
        assert (one.key, one.value, one.headers) == (as_bytes(record.key), as_bytes(record.value), record.headers)
        assert one.timestamp_ms == metadata.timestamp_ms
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert not dump.problems
    assert {batch.count for batch in dump.batches} == {1}
    assert {(batch.producer_id, batch.base_sequence) for batch in dump.batches} == {(-1, -1)}
