"""send_arrow on a real broker, read back by another client."""

from __future__ import annotations

import random
from typing import Any

import polars
import pyarrow as pa
import pytest

from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic, producer_of
from tests.broker.readers import StoredRecord, read, read_topic
from tests.broker.test_examples import records_of, run

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

ROWS = 20_000
PARTITIONS = 3
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def random_rows(seed: int) -> dict[str, list[Any]]:
    rng = random.Random(seed)

    def text(most: int) -> bytes | None:
        return None if rng.random() < 0.1 else rng.randbytes(rng.randrange(most))

    return {
        "key": [text(30) or b"never null" for _ in range(ROWS)],
        "value": [text(300) for _ in range(ROWS)],
        "timestamp": [rng.randrange(1_700_000_000_000) for _ in range(ROWS)],
        "partition": [rng.choice([None, 0, 1, 2]) for _ in range(ROWS)],
        "headers": [
            None if rng.random() < 0.5 else [{"key": f"h{n}", "value": text(9)} for n in range(rng.randrange(4))]
            for _ in range(ROWS)
        ],
    }


def plain(records: list[StoredRecord]) -> list[tuple[Any, ...]]:
    return [(one.key, one.value, one.headers, one.timestamp_ms) for one in records]


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_the_log_is_that_of_single_sends(kafka: KafkaCluster, codec: str) -> None:
    """Compared by partition: order, murmur2 of the keys, nulls, headers, timestamps, offsets."""
    many, single = [await new_topic(kafka, PARTITIONS) for _ in range(2)]
    rows = random_rows(11)
    table = pa.table({**rows, "headers": pa.array(rows["headers"], HEADERS)})
    async with producer_of(kafka, compression_type=codec, buffer_memory=1 << 20) as producer:
        result = await producer.send_arrow(many, table)
        for key, value, timestamp_ms, partition, headers in zip(*rows.values(), strict=True):
            pairs = headers and [(one["key"], one["value"]) for one in headers]
            await producer.submit(single, value, key=key, partition=partition, headers=pairs, timestamp_ms=timestamp_ms)
    assert (result.acked, result.failed) == (ROWS, 0)
    stored, expected = await read(kafka, many), await read(kafka, single)
    for partition, records in stored.items():
        assert result.offsets[partition] == [(0, len(records) - 1)]
        assert plain(records) == plain(expected[partition])


async def test_rows_of_several_topics(kafka: KafkaCluster) -> None:
    """A data frame whose rows name their topics."""
    topics = [await new_topic(kafka, 1) for _ in range(3)]
    frame = polars.DataFrame({"value": [f"{n}" for n in range(3_000)], "topic": topics * 1_000})
    async with producer_of(kafka) as producer:
        result = await producer.send_arrow(None, frame)
    assert result.acked == 3_000
    for number, topic in enumerate(topics):
        stored = records_of(await read(kafka, topic))
        assert [one.value for one in stored] == [b"%d" % n for n in range(number, 3_000, 3)]


def test_the_example(kafka: KafkaCluster) -> None:
    assert run(kafka, "send_arrow.py", "20000").startswith("20,000 rows acknowledged in ")
    records = records_of(read_topic(kafka, "readings"))
    assert sorted(one.timestamp_ms for one in records) == [1_000 * number for number in range(20_000)]
    assert {one.key for one in records} == {b"sensor-%d" % number for number in range(100)}
