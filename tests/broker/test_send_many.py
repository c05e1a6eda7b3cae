"""send_many on a real broker, read back by another client."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from aioproducer import Record, SendManyError
from aioproducer.errors import MessageTooLargeError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic, producer_of
from tests.broker.random_records import PARTITIONS, RecordMaker, as_bytes
from tests.broker.readers import read
from tests.broker.test_examples import records_of, run

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


@pytest.mark.parametrize("codec", ["none", "lz4"])
async def test_records_of_every_shape(kafka: KafkaCluster, codec: str) -> None:
    """The log has the same records as after single sends, at the offsets of the result."""
    many, single = [await new_topic(kafka, PARTITIONS, max_message_bytes=2_000_000) for _ in range(2)]
    sent = [
        one for one in islice(RecordMaker(5).records(3_000), 3_000) if one.key is not None or one.partition is not None
    ]
    async with producer_of(kafka, compression_type=codec) as producer:
        result = await producer.send_many(many, (Record(one.value, **one.options) for one in sent))
        for one in sent:
            await producer.submit(single, one.value, **one.options)
    assert (result.acked, result.failed) == (len(sent), 0)
    stored, expected = await read(kafka, many), await read(kafka, single)
    for partition, records in stored.items():
        assert result.offsets[partition] == [(0, len(records) - 1)]
        assert [(one.key, one.value, one.headers) for one in records] == [
            (one.key, one.value, one.headers) for one in expected[partition]
        ]
    assert sorted((one.key or b"", one.value or b"") for one in records_of(stored)) == sorted(
        (as_bytes(one.key) or b"", as_bytes(one.value) or b"") for one in sent
    )


async def test_what_the_broker_refuses(kafka: KafkaCluster) -> None:
    """Records above the topic's limit fail with its error; the indexes and offsets of the others are right."""
    topic = await new_topic(kafka, 1, max_message_bytes=5_000)
    values = [bytes(8_000) if number % 50 == 49 else b"%d" % number for number in range(500)]
    async with producer_of(kafka) as producer:
        with pytest.raises(SendManyError) as caught:
            await producer.send_many(topic, values)
    result = caught.value.result
    assert (result.acked, result.failed) == (490, 10)
    assert [row for row, _ in result.errors] == list(range(49, 500, 50))
    assert all(isinstance(error, MessageTooLargeError) for _, error in result.errors)
    assert result.offsets == {0: [(0, 489)]}
    assert [one.value for one in records_of(await read(kafka, topic))] == [one for one in values if len(one) < 10]


def test_the_example(kafka: KafkaCluster, tmp_path: Path) -> None:
    """Each line is a record; the output counts them."""
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"word{number % 7} number {number}\n" for number in range(5_000)))
    assert run(kafka, "send_many.py", str(file)).startswith(
        "5,000 lines acknowledged, 0 failed\n  partition 0: offsets "
    )
