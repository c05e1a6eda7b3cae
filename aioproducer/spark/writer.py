"""The writers that Spark calls: in tasks to write rows, on the driver to commit or abort what the tasks wrote.

Spark pickles them; they hold only the Sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyspark.sql.datasource as api

from aioproducer.spark import driver
from aioproducer.spark.outcome import TaskMessage
from aioproducer.spark.task import Sink

HAS_STREAM_ARROW = hasattr(api, "DataSourceStreamArrowWriter")
"""PySpark 4.1 and newer."""


class _Batch:
    """Commit and abort of a batch write."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def commit(self, messages: list[api.WriterCommitMessage | None]) -> None:
        """Called by Spark on the driver when all tasks have written."""
        driver.commit(self.sink, messages, "batch write")

    def abort(self, messages: list[api.WriterCommitMessage | None]) -> None:
        """Called by Spark on the driver when a task has failed for good."""
        driver.abort(self.sink, messages, "batch write")


class _Stream:
    """Commit and abort of a micro-batch."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def commit(self, messages: list[api.WriterCommitMessage | None], batchId: int) -> None:
        """Called by Spark on the driver when all tasks of a micro-batch have written."""
        driver.commit(self.sink, messages, f"micro-batch {batchId}")

    def abort(self, messages: list[api.WriterCommitMessage | None], batchId: int) -> None:
        """Called by Spark on the driver when a task of a micro-batch has failed for good."""
        driver.abort(self.sink, messages, f"micro-batch {batchId}")


class BatchArrowWriter(_Batch, api.DataSourceArrowWriter):
    """Writes a DataFrame as Arrow columns."""

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        """Called by Spark once per task."""
        return self.sink.write_batches(iterator)


class BatchRowWriter(_Batch, api.DataSourceWriter):
    """Writes a DataFrame row by row."""

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        """Called by Spark once per task."""
        return self.sink.write_rows(iterator)


class StreamRowWriter(_Stream, api.DataSourceStreamWriter):
    """Writes a micro-batch row by row."""

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        """Called by Spark once per task."""
        return self.sink.write_rows(iterator)


if HAS_STREAM_ARROW:

    class StreamArrowWriter(_Stream, api.DataSourceStreamArrowWriter):
        """Writes a micro-batch as Arrow columns."""

        def write(self, iterator: Iterator[Any]) -> TaskMessage:
            """Called by Spark once per task."""
            return self.sink.write_batches(iterator)


def batch_writer(sink: Sink) -> api.DataSourceWriter:
    """The writer of a batch query."""
    return BatchArrowWriter(sink) if sink.options.arrow else BatchRowWriter(sink)


def stream_writer(sink: Sink) -> api.DataSourceStreamWriter:
    """The writer of a streaming query; before PySpark 4.1 there is only the row writer."""
    return StreamArrowWriter(sink) if sink.options.arrow and HAS_STREAM_ARROW else StreamRowWriter(sink)
