"""Converts Spark rows, as Python objects, to records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from pyspark import TaskContext
from pyspark.sql import Row

from aioproducer.records import Record
from aioproducer.spark.columns import Columns
from aioproducer.spark.errors import SparkWriteError


def encoded(value: Any) -> bytes | None:
    """A column's string or binary as bytes; Spark gives binary as ``bytes`` or ``bytearray``."""
    if value is None or type(value) is bytes:
        return value
    return value.encode() if isinstance(value, str) else bytes(value)


def timestamp_ms_of(moment: datetime | None) -> int | None:
    """Milliseconds since the epoch, rounded down, of a Spark timestamp in Python: local time, no zone."""
    if moment is None:
        return None
    whole = moment.replace(microsecond=0)
    try:
        seconds = whole.timestamp()
    except (ValueError, OverflowError):
        # Python looks a day to either side, which fails on the first and last day of its calendar.
        inwards = timedelta(days=2 if whole.year == 1 else -2)
        seconds = (whole + inwards).timestamp() - inwards.total_seconds()
    return int(seconds) * 1000 + moment.microsecond // 1000


def headers_of(headers: Iterable[Any] | None) -> list[tuple[Any, bytes | None]] | None:
    """The pairs in a ``headers`` column; a null header gets no name, which the producer refuses."""
    return None if headers is None else [_pair(one) for one in headers]


def _pair(header: Any) -> tuple[Any, bytes | None]:
    return (None, None) if header is None else (header[0], encoded(header[1]))


def records_of(rows: Iterable[Row], columns: Columns) -> Iterator[Record]:
    """Each row as a record.

    Raises:
        SparkWriteError: PySpark can't convert the rows to Python objects, and names neither row nor column.
    """
    has_key, has_topic, has_partition, has_headers, has_timestamp = map(
        columns.has, ("key", "topic", "partition", "headers", "timestamp")
    )
    for row in _made(rows):
        yield Record(
            encoded(row["value"]),
            encoded(row["key"]) if has_key else None,
            topic=row["topic"] if has_topic else None,
            partition=row["partition"] if has_partition else None,
            headers=headers_of(row["headers"]) if has_headers else None,
            timestamp_ms=timestamp_ms_of(row["timestamp"]) if has_timestamp else None,
        )


def _made(rows: Iterable[Row]) -> Iterator[Row]:
    count = 0
    try:
        for row in rows:
            yield row
            count += 1
    except (ValueError, OverflowError) as error:
        # A string that is not UTF-8, or a time outside Python's calendar: raised while PySpark converts an Arrow batch,
        # column by column, before it yields the first row.
        task = TaskContext.get()
        place = "" if task is None else f"partition {task.partitionId()}, "
        raise SparkWriteError(
            f"{place}from row {count} on: PySpark can't turn the rows into Python objects; writer=arrow takes "
            f"columns as they are: {type(error).__name__}: {error}"
        ) from error


def payload_bytes(records: Iterable[Record]) -> int:
    """Bytes of keys and values."""
    return sum(len(record.value or b"") + len(record.key or b"") for record in records)
