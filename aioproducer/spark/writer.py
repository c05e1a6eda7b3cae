"""The writers that Spark calls: in tasks to write rows, on the driver to commit or abort what the tasks have written.

Spark pickles them; all they hold is the options and the columns.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyspark.sql.datasource as api
from pyspark import TaskContext

from aioproducer.spark.background import Background, background
from aioproducer.spark.chunks import CHUNK_ROWS, Chunk, arrow_chunks, row_chunks
from aioproducer.spark.columns import Columns
from aioproducer.spark.options import SinkOptions
from aioproducer.spark.outcome import Outcome, TaskMessage, total
from aioproducer.spark.sending import TaskSend
from aioproducer.spark.totals import count_in

logger = logging.getLogger("aioproducer.spark")

HAS_STREAM_ARROW = hasattr(api, "DataSourceStreamArrowWriter")
"""PySpark 4.1 and newer."""


@dataclass(frozen=True, slots=True)
class Sink:
    """One query's way to Kafka."""

    options: SinkOptions
    columns: Columns

    def write_batches(self, batches: Iterator[Any]) -> TaskMessage:
        """Write Arrow batches in a task."""
        most = None if self.options.dead_letter_topic is None else CHUNK_ROWS
        return self._write(arrow_chunks(batches, self.columns, most))

    def write_rows(self, rows: Iterator[Any]) -> TaskMessage:
        """Write rows in a task."""
        return self._write(row_chunks(rows, self.columns))

    def _write(self, chunks: Iterable[Chunk]) -> TaskMessage:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        there = background()
        idle_s = self.options.idle_timeout_ms / 1000
        with there.inside(there.producers.borrow(self.options.producer, idle_s)) as producer:
            outcome = _send_all(there, TaskSend(producer, self.options, partition), chunks)
        count_in(self.options.totals, outcome)
        return TaskMessage(outcome, partition)

    def committed(self, messages: Sequence[object], what: str) -> None:
        """Log what the tasks have written."""
        _log_on_driver().info("%s: %s", what, total(messages))

    def aborted(self, messages: Sequence[object], what: str) -> None:
        """Log what stands in the topics of a write that failed."""
        done = total(messages)
        if done.records or done.dead_letters:
            _log_on_driver().warning("%s failed; its tasks that ended well have written %s", what, done)


def _send_all(there: Background, send: TaskSend, chunks: Iterable[Chunk]) -> Outcome:
    """Hand the chunks over while Spark makes the next ones."""
    handed_over: Future[None] | None = None
    try:
        for chunk in chunks:
            if handed_over is not None:
                handed_over.result()
            handed_over = there.start(send.put(chunk))
        if handed_over is not None:
            handed_over.result()
        return there.run(send.finish())
    except BaseException:
        there.run(send.cancel())
        raise


def _log_on_driver() -> logging.Logger:
    """The logger; Spark commits in a Python process of its own, in which nobody has set up logging."""
    if not logging.getLogger().handlers and not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    return logger


class _Batch:
    """Commit and abort of a batch write."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def commit(self, messages: list[api.WriterCommitMessage | None]) -> None:
        """Called by Spark on the driver when all tasks have written."""
        self.sink.committed(messages, "batch write")

    def abort(self, messages: list[api.WriterCommitMessage | None]) -> None:
        """Called by Spark on the driver when a task has failed for good."""
        self.sink.aborted(messages, "batch write")


class _Stream:
    """Commit and abort of a micro-batch."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def commit(self, messages: list[api.WriterCommitMessage | None], batchId: int) -> None:
        """Called by Spark on the driver when all tasks of a micro-batch have written."""
        self.sink.committed(messages, f"micro-batch {batchId}")

    def abort(self, messages: list[api.WriterCommitMessage | None], batchId: int) -> None:
        """Called by Spark on the driver when a task of a micro-batch has failed for good."""
        self.sink.aborted(messages, f"micro-batch {batchId}")


class BatchArrowWriter(_Batch, api.DataSourceArrowWriter):
    """Writes a DataFrame, columns as they are."""

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        """Called by Spark once a task."""
        return self.sink.write_batches(iterator)


class BatchRowWriter(_Batch, api.DataSourceWriter):
    """Writes a DataFrame row by row."""

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        """Called by Spark once a task."""
        return self.sink.write_rows(iterator)


class StreamRowWriter(_Stream, api.DataSourceStreamWriter):
    """Writes a micro-batch row by row."""

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        """Called by Spark once a task."""
        return self.sink.write_rows(iterator)


if HAS_STREAM_ARROW:

    class StreamArrowWriter(_Stream, api.DataSourceStreamArrowWriter):
        """Writes a micro-batch, columns as they are."""

        def write(self, iterator: Iterator[Any]) -> TaskMessage:
            """Called by Spark once a task."""
            return self.sink.write_batches(iterator)


def batch_writer(sink: Sink) -> api.DataSourceWriter:
    """The writer of a batch query."""
    return BatchArrowWriter(sink) if sink.options.arrow else BatchRowWriter(sink)


def stream_writer(sink: Sink) -> api.DataSourceStreamWriter:
    """The writer of a streaming query; before PySpark 4.1 there is only the one by rows."""
    return StreamArrowWriter(sink) if sink.options.arrow and HAS_STREAM_ARROW else StreamRowWriter(sink)
