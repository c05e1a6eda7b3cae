"""Random records of every shape, written with each codec and read back by another client and by Kafka's own tool."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from aioproducer import Delivery
from aioproducer.testing import KafkaCluster, LogDump
from tests.broker.fixtures import new_topic, producer_of
from tests.broker.readers import read

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

RECORDS = 20_000
PARTITIONS = 3
LARGEST = 1_000_000
"""With its key and headers a record of this size is still within max_request_size."""

ALPHABETS = ("abcdefghij ", "äöüßéñ", "Ω≈ç√∫", "日本語文字", "😀🎉\U0001f9d1\u200d", "\x00\x01\x7f", "\ufeff\u2028")


@dataclass(frozen=True, slots=True)
class Sent:
    """One record as it is given to ``submit``."""

    key: bytes | str | None
    value: bytes | str | None
    partition: int | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


class RecordMaker:
    """Records of all shapes from one seed: mostly small, some empty or null, a few as large as they can be."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._number = 0

    def records(self, count: int) -> Iterator[Sent]:
        """The same records for the same seed."""
        for self._number in range(count):
            yield Sent(self._key(), self._value(), self._partition(), self._headers(), self._timestamp_ms())

    def _key(self) -> bytes | str | None:
        rng = self._rng
        kind = rng.random()
        if kind < 0.4:
            return None
        if kind < 0.5:
            return rng.choice([b"", ""])
        if kind < 0.7:
            return self._text(rng.randrange(1, 40))
        return rng.randbytes(rng.randrange(1, 5_000 if kind > 0.999 else 60))

    def _value(self) -> bytes | str | None:
        rng = self._rng
        if self._number % 5_000 == 17:
            return rng.randbytes(rng.randrange(900_000, LARGEST))
        if self._number % 5_000 == 2_517:
            return self._bytes_that_compress(rng.randrange(900_000, LARGEST))
        kind = rng.random()
        if kind < 0.05:
            return None
        if kind < 0.1:
            return rng.choice([b"", ""])
        if kind < 0.4:
            return self._text(rng.randrange(1, 300))
        if kind < 0.7:
            return self._bytes_that_compress(rng.randrange(1, 1_000))
        return rng.randbytes(rng.randrange(1, 100_000 if kind > 0.999 else 600))

    def _text(self, length: int) -> str:
        return "".join(self._rng.choices(self._rng.choice(ALPHABETS), k=length))

    def _bytes_that_compress(self, size: int) -> bytes:
        word = self._rng.randbytes(self._rng.randrange(1, 30))
        return (word * (size // len(word) + 1))[:size]

    def _partition(self) -> int | None:
        return self._rng.randrange(PARTITIONS) if self._rng.random() < 0.3 else None

    def _headers(self) -> tuple[tuple[str, bytes | None], ...]:
        rng = self._rng
        count = rng.choice([0, 0, 0, 1, 2, 3]) if rng.random() < 0.98 else rng.randrange(51)
        return tuple(
            # librdkafka reads names up to the first zero byte.
            (
                rng.choice(["", "trace", "ключ", self._text(5).replace("\0", "")]),
                rng.choice([None, b"", rng.randbytes(rng.randrange(200))]),
            )
            for _ in range(count)
        )

    def _timestamp_ms(self) -> int | None:
        rng = self._rng
        now_ms = time.time_ns() // 1_000_000
        return rng.choice([None, None, 0, 1, rng.randrange(2**40), now_ms + rng.randrange(-(10**9), 3_000_000)])


def as_bytes(data: bytes | str | None) -> bytes | None:
    """What a key or value becomes in the log."""
    return data.encode() if isinstance(data, str) else data


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_random_records_come_back_as_they_were(kafka: KafkaCluster, codec: str) -> None:
    """Content, order of admission in each partition, and Kafka's own opinion about each batch."""
    topic = await new_topic(kafka, PARTITIONS, max_message_bytes=2_000_000)
    sent: dict[Delivery, Sent] = {}
    async with producer_of(kafka, compression_type=codec, buffer_memory=8 << 20, linger_ms=5) as producer:
        for record in RecordMaker(seed=20_250_101).records(RECORDS):
            delivery = await producer.submit(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
            )
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


def check_dump(dump: LogDump, codec: str, records: int) -> None:
    """Every batch is valid, of the codec or as small without it, and the sequences have no gap."""
    assert not dump.problems
    assert dump.record_count == records
    codecs = {batch.codec for batch in dump.batches}
    assert codec in codecs
    assert codecs <= {codec, "none"}
    if codec != "none":
        compressed = sum(batch.count for batch in dump.batches if batch.codec == codec)
        assert compressed > 0.9 * records
    assert {(batch.magic, batch.producer_epoch) for batch in dump.batches} == {(2, 0)}
    assert len({batch.producer_id for batch in dump.batches}) == 1
    sequence = 0
    for batch in dump.batches:
        assert batch.base_offset == batch.base_sequence == sequence
        assert batch.last_sequence == sequence + batch.count - 1
        sequence += batch.count


async def test_one_record_of_each_shape_is_alone_in_its_batch(kafka: KafkaCluster) -> None:
    """The same with batches of one record, with no idempotence, and with awaited sends."""
    topic = await new_topic(kafka, PARTITIONS, max_message_bytes=2_000_000)
    records = [*RecordMaker(seed=7).records(300)]
    async with producer_of(kafka, batch_size=0, enable_idempotence=False, compression_type="zstd") as producer:
        found = [
            await producer.send(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
    stored = await read(kafka, topic)
    for metadata, record in zip(found, records, strict=True):
        one = stored[metadata.partition][metadata.offset]
        assert (one.key, one.value, one.headers) == (as_bytes(record.key), as_bytes(record.value), record.headers)
        assert one.timestamp_ms == metadata.timestamp_ms
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert not dump.problems
    assert {batch.count for batch in dump.batches} == {1}
    assert {(batch.producer_id, batch.base_sequence) for batch in dump.batches} == {(-1, -1)}
