"""Random records of every shape, the same for the same seed, and what Kafka's own tool must say about their log."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aioproducer.testing import LogDump

PARTITIONS = 3
LARGEST = 1_000_000
"""A value of this size is within max_request_size even with its key and headers."""

ALPHABETS = ("abcdefghij ", "äöüßéñ", "Ω≈ç√∫", "日本語文字", "😀🎉\U0001f9d1\u200d", "\x00\x01\x7f", "\ufeff\u2028")


@dataclass(frozen=True, slots=True)
class Sent:
    """One record as it is passed to ``submit``."""

    key: bytes | str | None
    value: bytes | str | None
    partition: int | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the value, as keyword arguments of the calls."""
        return {
            "key": self.key,
            "partition": self.partition,
            "headers": self.headers,
            "timestamp_ms": self.timestamp_ms,
        }


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
    """A key or value as it is in the log."""
    return data.encode() if isinstance(data, str) else data


def check_dump(dump: LogDump, codec: str, records: int) -> None:
    """Every batch is valid, has the codec or is no larger without it, and the sequences have no gap."""
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
