"""Rows of Spark, as Python objects, to records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from pyspark.sql import Row

from aioproducer.records import Record
from aioproducer.spark.columns import Columns


def encoded(value: Any) -> bytes | None:
    """A column's string or binary as bytes; Spark gives binary as ``bytes`` or ``bytearray``."""
    if value is None or type(value) is bytes:
        return value
    return value.encode() if isinstance(value, str) else bytes(value)


def timestamp_ms_of(moment: datetime | None) -> int | None:
    """Milliseconds since the epoch, rounded down, of a timestamp as Spark has it in Python: local time, no zone."""
    if moment is None:
        return None
    seconds = moment.replace(microsecond=0).timestamp()
    return int(seconds) * 1000 + moment.microsecond // 1000


def headers_of(headers: Iterable[Any] | None) -> list[tuple[Any, bytes | None]] | None:
    """The pairs in a column ``headers``; one that is null has no name, which the producer refuses."""
    return None if headers is None else [_pair(one) for one in headers]


def _pair(header: Any) -> tuple[Any, bytes | None]:
    return (None, None) if header is None else (header[0], encoded(header[1]))


def records_of(rows: Iterable[Row], columns: Columns) -> Iterator[Record]:
    """Each row as a record."""
    has_key, has_topic, has_partition, has_headers, has_timestamp = map(
        columns.has, ("key", "topic", "partition", "headers", "timestamp")
    )
    for row in rows:
        yield Record(
            encoded(row["value"]),
            encoded(row["key"]) if has_key else None,
            topic=row["topic"] if has_topic else None,
            partition=row["partition"] if has_partition else None,
            headers=headers_of(row["headers"]) if has_headers else None,
            timestamp_ms=timestamp_ms_of(row["timestamp"]) if has_timestamp else None,
        )


def payload_bytes(records: Iterable[Record]) -> int:
    """The bytes of keys and values."""
    return sum(len(record.value or b"") + len(record.key or b"") for record in records)
