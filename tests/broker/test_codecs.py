"""Each codec and its levels, judged by Kafka and by another client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import ConfigError, Producer
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic, producer_of
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

VALUES = [b'{"number": %d, "name": "a value as programs write them", "flag": true}' % i for i in range(3_000)]
"""200 KB: with large batches one of them is compressed off the loop."""

LEVELS: list[tuple[str, dict[str, Any]]] = [
    ("gzip", {"compression_gzip_level": 1}),
    ("gzip", {"compression_gzip_level": 9}),
    ("gzip", {"compression_gzip_level": -1}),
    ("lz4", {"compression_lz4_level": 1}),
    ("lz4", {"compression_lz4_level": 9}),
    ("lz4", {"compression_lz4_level": 17}),
    ("zstd", {"compression_zstd_level": -7}),
    ("zstd", {"compression_zstd_level": 1}),
    ("zstd", {"compression_zstd_level": 19}),
    ("snappy", {}),
]


@pytest.mark.parametrize(("codec", "configs"), LEVELS, ids=lambda value: str(value))
async def test_every_level_is_read_by_kafka(kafka: KafkaCluster, codec: str, configs: dict[str, Any]) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, compression_type=codec, batch_size=300_000, linger_ms=100, **configs) as producer:
        for value in VALUES:
            await producer.submit(topic, value)
    assert await read_values(kafka, topic) == VALUES
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert not dump.problems
    assert {batch.codec for batch in dump.batches} == {codec}
    assert sum(batch.size for batch in dump.batches) < 0.5 * sum(map(len, VALUES))


async def test_a_higher_level_compresses_better(kafka: KafkaCluster) -> None:
    sizes = []
    for level in (1, 9):
        topic = await new_topic(kafka)
        async with producer_of(
            kafka, compression_type="gzip", compression_gzip_level=level, batch_size=300_000, linger_ms=100
        ) as producer:
            for value in VALUES:
                await producer.submit(topic, value)
        dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
        sizes.append(sum(batch.size for batch in dump.batches))
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches_fill_batch_size(kafka: KafkaCluster, codec: str) -> None:
    """A batch takes more records than would fit uncompressed, once the ratio is known."""
    topic = await new_topic(kafka)
    async with producer_of(kafka, compression_type=codec, batch_size=16_384, linger_ms=50) as producer:
        for _ in range(15):
            for value in VALUES:
                await producer.submit(topic, value)
            await producer.flush()
        metrics = producer.metrics()
        assert metrics["producer-topic-metrics"][topic]["compression-rate"] < 0.5
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert max(batch.size for batch in dump.batches) <= 1.2 * 16_384
    assert max(batch.count for batch in dump.batches) * len(VALUES[0]) > 2 * 16_384


async def test_what_does_not_compress_goes_as_it_is(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, compression_type="gzip") as producer:
        await producer.send(topic, b"x")
    assert await read_values(kafka, topic) == [b"x"]
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert [batch.codec for batch in dump.batches] == ["none"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_a_topic_with_a_codec_of_its_own_takes_any_other(kafka: KafkaCluster, codec: str) -> None:
    """The broker decompresses and recompresses the batches, and assigns the offsets itself."""
    topic = await new_topic(kafka, compression_type="zstd" if codec != "zstd" else "lz4")
    async with producer_of(kafka, compression_type=codec) as producer:
        deliveries = [await producer.submit(topic, value) for value in VALUES]
        assert [(await delivery).offset for delivery in deliveries] == list(range(len(VALUES)))
    assert await read_values(kafka, topic) == VALUES


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"compression_type.*zst.*gzip.*snappy.*lz4.*zstd"):
        Producer(bootstrap_servers="localhost:9092", compression_type="zst")


def test_a_level_outside_its_range_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"compression_gzip_level"):
        Producer(bootstrap_servers="localhost:9092", compression_type="gzip", compression_gzip_level=10)
