"""Chunks: rows passed to the producer in one call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import pyarrow
from pyarrow import compute
from pyspark.sql import Row

from aioproducer._arrow_source import ArrowSource
from aioproducer.bulk import DEFAULT_COLUMNS
from aioproducer.producer import Producer
from aioproducer.producer_internals import bulk_of
from aioproducer.records import BatchResult, Record
from aioproducer.spark.columns import Columns
from aioproducer.spark.marking import TaskAudit
from aioproducer.spark.rows import payload_bytes, records_of

CHUNK_ROWS = 1_000
"""Rows per chunk of the row writer, and where each bad row must be known: one call reports at most this many."""

BYTES = pyarrow.large_binary()

READABLE: Mapping[str, pyarrow.DataType] = {
    "key": BYTES,
    "value": BYTES,
    "topic": BYTES,
    "partition": pyarrow.int32(),
    "headers": pyarrow.list_(pyarrow.struct([("key", BYTES), ("value", BYTES)])),
    "timestamp": pyarrow.int64(),
}
"""Types that convert to Python for every value: Spark's strings may not be UTF-8, its times may be past year 9999."""


class Chunk(Protocol):
    """Some rows, sent with one call."""

    second: int
    """The second in their audit marks; 0 without marks."""

    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int:
        """Bytes of keys and values."""
        ...

    async def send(
        self, producer: Producer, topic: str | None, admitted: Callable[[], object], missing: dict[str, int]
    ) -> BatchResult:
        """Send all rows; calls ``admitted`` when they are in the buffer.

        Args:
            missing: shared by all chunks of a task, which so wait only once for partitions that a topic does not have.
        """
        ...

    def record(self, index: int) -> Record:
        """One row as a record."""
        ...


class RowChunk:
    """Records made from rows."""

    def __init__(self, records: Sequence[Record], second: int = 0) -> None:
        self._records = records
        self.second = second

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self._records)

    @property
    def bytes(self) -> int:
        """Bytes of keys and values."""
        return payload_bytes(self._records)

    async def send(
        self, producer: Producer, topic: str | None, admitted: Callable[[], object], missing: dict[str, int]
    ) -> BatchResult:
        """Send them; calls ``admitted`` when they are in the buffer."""
        # Like send_many, which would not say when the next chunk may follow.
        bulk = bulk_of(producer, "a write from Spark", topic, admitted, missing=missing)
        return await bulk.send(self._records, raise_on_error=False)

    def record(self, index: int) -> Record:
        """One record."""
        return self._records[index]


class ArrowChunk:
    """Columns, passed to the producer unconverted.

    Args:
        batch: has exactly the columns to write.
    """

    def __init__(self, batch: pyarrow.RecordBatch, second: int = 0) -> None:
        self._batch = batch
        self.second = second

    @property
    def rows(self) -> int:
        """Number of rows."""
        count: int = self._batch.num_rows
        return count

    @property
    def bytes(self) -> int:
        """Bytes of keys and values."""
        columns = (self._batch.column(name) for name in ("key", "value") if name in self._batch.schema.names)
        return sum(compute.sum(compute.binary_length(column)).as_py() or 0 for column in columns)

    async def send(
        self, producer: Producer, topic: str | None, admitted: Callable[[], object], missing: dict[str, int]
    ) -> BatchResult:
        """Send them; calls ``admitted`` when they are in the buffer."""
        bulk = bulk_of(producer, "a write from Spark", topic, admitted, missing=missing)
        # Taken over in this thread: pyarrow only hands out pointers, which is cheaper than a worker thread.
        return await bulk.send_arrow(ArrowSource(self._batch), DEFAULT_COLUMNS, None, raise_on_error=False)

    def record(self, index: int) -> Record:
        """One record."""
        row = {name: column[index].as_py() for name, column in self._readable.items()}
        headers, time_us = row.get("headers"), row.get("timestamp")
        return Record(
            row["value"],
            row.get("key"),
            topic=_text(row.get("topic"), "surrogateescape"),
            partition=row.get("partition"),
            headers=None if headers is None else [_pair(header) for header in headers],
            timestamp_ms=None if time_us is None else time_us // 1000,
        )

    @cached_property
    def _readable(self) -> dict[str, Any]:
        return {name: self._batch.column(name).cast(READABLE[name]) for name in self._batch.schema.names}


def _text(name: bytes | None, errors: str) -> str | None:
    return None if name is None else name.decode(errors=errors)


def _pair(header: Mapping[str, bytes | None] | None) -> tuple[Any, bytes | None]:
    """A header as a pair, like `headers_of`."""
    return (None, None) if header is None else (_text(header["key"], "replace"), header["value"])


def arrow_chunks(
    batches: Iterable[pyarrow.RecordBatch], columns: Columns, most: int | None, audit: TaskAudit | None = None
) -> Iterator[ArrowChunk]:
    """The batches of a task in chunks.

    Args:
        most: rows per chunk; None for whole batches.
        audit: marks the rows; None for no marks.
    """
    second = 0
    for batch in batches:
        counting = batch.select([name for name in batch.schema.names if columns.has(name)])
        if audit is not None:
            counting, second = audit.mark_batch(counting)
        for first in range(0, batch.num_rows, most or batch.num_rows or 1):
            yield ArrowChunk(counting.slice(first, most) if most else counting, second)


def row_chunks(rows: Iterable[Row], columns: Columns, audit: TaskAudit | None = None) -> Iterator[RowChunk]:
    """The rows of a task in chunks.

    Args:
        audit: marks the rows; None for no marks.
    """
    records = records_of(rows, columns)
    second = 0
    while chunk := list(itertools.islice(records, CHUNK_ROWS)):
        if audit is not None:
            chunk, second = audit.mark_records(chunk)
        yield RowChunk(chunk, second)
