"""aiokafka's batches, filled by the program."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

BATCH_HEADER_BYTES = 61


class AppendedRecord(NamedTuple):
    """One record of a batch."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...]


class AppendedMetadata(NamedTuple):
    """Result of ``append`` for a record that fits."""

    offset: int
    """Within the batch, from 0."""
    size: int
    """Bytes, before compression."""
    timestamp: int
    crc: None = None
    """Only batches have one, in aiokafka too."""


class BatchBuilder:
    """Takes records up to ``max_batch_size`` bytes before compression."""

    def __init__(
        self,
        max_bytes: float,
        key_serializer: Callable[[Any], bytes] | None,
        value_serializer: Callable[[Any], bytes] | None,
    ) -> None:
        self._max_bytes = max_bytes
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._size = BATCH_HEADER_BYTES
        self._closed = False
        self.records: list[AppendedRecord] = []

    def append(
        self, *, timestamp: float | None, key: Any, value: Any, headers: Sequence[tuple[str, bytes]] | None = None
    ) -> AppendedMetadata | None:
        """Add a record; None if the batch is full, which closes it. The first record always fits.

        Raises:
            TypeError, ValueError: a field is none that a record can have; the batch is as before.
        """
        if self._closed:
            return None
        if self._key_serializer is not None:
            key = self._key_serializer(key)
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        timestamp_ms = time.time_ns() // 1_000_000 if timestamp is None else operator.index(whole(timestamp))
        if timestamp_ms < 0:
            raise ValueError(f"timestamp={timestamp_ms} is before 1970")
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        record = AppendedRecord(_bytes_now(key), _bytes_now(value), timestamp_ms, tuple(map(_header_now, pairs)))
        size = self._bytes_of(record)
        if self.records and self._size + size > self._max_bytes:
            self.close()
            return None
        self.records.append(record)
        self._size += size
        return AppendedMetadata(len(self.records) - 1, size, timestamp_ms)

    def close(self) -> None:
        """Take no more."""
        self._closed = True

    def closed(self) -> bool:
        """Whether it takes no more."""
        return self._closed

    def record_count(self) -> int:
        """How many records it holds."""
        return len(self.records)

    def size(self) -> int:
        """Bytes before compression."""
        return self._size

    def _bytes_of(self, record: AppendedRecord) -> int:
        first = self.records[0].timestamp if self.records else record.timestamp
        body = 1 + _varint_bytes(record.timestamp - first) + _varint_bytes(len(self.records))
        body += _field_bytes(record.key) + _field_bytes(record.value) + _varint_bytes(len(record.headers))
        for name, value in record.headers:
            body += _field_bytes(name.encode()) + _field_bytes(value)
        return _varint_bytes(body) + body


def whole(number: Any) -> Any:
    """Truncate a float, which aiokafka accepts for any number; anything else is unchanged."""
    return int(number) if isinstance(number, float) and math.isfinite(number) else number


def _bytes_now(field: Any) -> bytes | None:
    """Copy the current content: the program may reuse its buffer before the batch is sent."""
    if field is None or type(field) is bytes:
        return field
    return field.encode() if isinstance(field, str) else bytes(memoryview(field))


def _header_now(pair: tuple[str, Any]) -> tuple[str, Any]:
    name, value = pair
    if not isinstance(name, str) or isinstance(value, str):
        raise TypeError(f"a header is (str, bytes or None), not ({type(name).__name__}, {type(value).__name__})")
    return name, _bytes_now(value)


def _field_bytes(field: bytes | None) -> int:
    return _varint_bytes(-1) if field is None else _varint_bytes(len(field)) + len(field)


def _varint_bytes(number: int) -> int:
    """Bytes of a zigzag varint."""
    zigzag = 2 * number if number >= 0 else -2 * number - 1
    return max(1, (zigzag.bit_length() + 6) // 7)
