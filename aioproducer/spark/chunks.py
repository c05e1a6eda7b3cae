"""Chunks: rows that are handed to the producer with one call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow
from pyspark.sql import Row

from aioproducer.producer import Producer
from aioproducer.records import BatchResult, Record
from aioproducer.spark.columns import Columns
from aioproducer.spark.rows import encoded, payload_bytes, records_of

CHUNK_ROWS = 1_000
"""Of the row writer; and as many errors of single rows does a call tell."""


class Chunk(Protocol):
    """Some rows that are sent with one call."""

    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int:
        """Of keys and values."""
        ...

    async def send(self, producer: Producer, topic: str | None, admitted: Callable[[], object]) -> BatchResult:
        """Send all rows; ``admitted`` is called when they are in the buffer."""
        ...

    def record(self, index: int) -> Record:
        """One of them as a record."""
        ...


class RowChunk:
    """Records that were made from rows."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    @property
    def rows(self) -> int:
        """How many."""
        return len(self._records)

    @property
    def bytes(self) -> int:
        """Of keys and values."""
        return payload_bytes(self._records)

    async def send(self, producer: Producer, topic: str | None, admitted: Callable[[], object]) -> BatchResult:
        """Send them; ``admitted`` is called when they are in the buffer."""
        # As send_many, which would not tell when the next chunk's turn has come.
        return await producer._bulk("a write from Spark", topic, admitted).send(self._records, raise_on_error=False)

    def record(self, index: int) -> Record:
        """One of them."""
        return self._records[index]


class ArrowChunk(RowChunk):
    """A batch of columns."""

    def __init__(self, batch: pyarrow.RecordBatch, columns: Columns) -> None:
        super().__init__(list(_records_of_batch(batch, columns)))


def _records_of_batch(batch: pyarrow.RecordBatch, columns: Columns) -> Iterator[Record]:
    def column(name: str) -> Iterable[Any]:
        return batch.column(name).to_pylist() if columns.has(name) else itertools.repeat(None, batch.num_rows)

    timestamps = column("timestamp")
    if columns.has("timestamp"):
        moments = batch.column("timestamp")
        timestamps = moments.cast(pyarrow.timestamp("ms", moments.type.tz), safe=False).cast("int64").to_pylist()
    headers = (one and [(header["key"], encoded(header["value"])) for header in one] for one in column("headers"))
    parts = (column("value"), column("key"), column("topic"), column("partition"), headers, timestamps)
    for value, key, topic, partition, pairs, timestamp_ms in zip(*parts, strict=True):
        yield Record(
            encoded(value),
            encoded(key),
            topic=topic,
            partition=partition,
            headers=pairs,
            timestamp_ms=timestamp_ms,
        )


def arrow_chunks(batches: Iterable[pyarrow.RecordBatch], columns: Columns) -> Iterator[ArrowChunk]:
    """The batches of a task in chunks."""
    for batch in batches:
        for first in range(0, batch.num_rows, CHUNK_ROWS):
            yield ArrowChunk(batch.slice(first, CHUNK_ROWS), columns)


def row_chunks(rows: Iterable[Row], columns: Columns) -> Iterator[RowChunk]:
    """The rows of a task in chunks."""
    records = records_of(rows, columns)
    while chunk := list(itertools.islice(records, CHUNK_ROWS)):
        yield RowChunk(chunk)
