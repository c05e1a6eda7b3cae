"""DataFrames whose tasks fail, and a data source whose Python workers are killed while they write."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceWriter
from pyspark.sql.types import StructType

from aioproducer.spark import KafkaDataSource
from aioproducer.spark.writer import BatchArrowWriter

PATIENCE_S = 120


def wait_for_records(bootstrap: str, topic: str) -> None:
    """Wait until partition 0 of a topic has a record, even one of an open transaction."""
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": "read_uncommitted"})
    deadline = time.monotonic() + PATIENCE_S
    while reader.get_watermark_offsets(TopicPartition(topic, 0))[1] == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    reader.close()


def breaking(
    rows: DataFrame, mark: Path, how: str, at: int = 5_000, *, once_written: tuple[str, str] | None = None
) -> DataFrame:
    """The same rows, but a task fails after ``at`` of them: by an exception, or because its worker is killed.

    Args:
        mark: a file that exists once this has happened.
        how: ``raise`` or ``kill``, in one attempt; ``always`` raises in every attempt.
        once_written: servers and topic; the task fails when partition 0 of the topic has a record.
    """
    path = str(mark)

    def pass_on(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        seen = 0
        for batch in batches:
            seen += batch.num_rows
            if seen > at and (how == "always" or not os.path.exists(path)):
                Path(path).touch()
                if once_written is not None:
                    wait_for_records(*once_written)
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("the task fails")
            yield batch

    return rows.mapInArrow(pass_on, rows.schema)


def waiting(rows: DataFrame, reached: Path, go_on: Path) -> DataFrame:
    """The same rows, but each task stops after its third batch, creates a file, and waits for another file."""
    marks = str(reached), str(go_on)

    def pass_on(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 3:
                Path(marks[0]).touch()
                deadline = time.monotonic() + PATIENCE_S
                while not os.path.exists(marks[1]) and time.monotonic() < deadline:
                    time.sleep(0.01)
            yield batch

    return rows.mapInArrow(pass_on, rows.schema)


def killing_source(mark: Path, bootstrap: str, topic: str) -> type[DataSource]:
    """The data source under the name ``killing``; one writing worker is killed once rows are in the topic."""
    path = str(mark)

    class KillingWriter(BatchArrowWriter):
        def write(self, iterator: Iterator[Any]) -> Any:
            def batches() -> Iterator[Any]:
                for number, batch in enumerate(iterator):
                    # The first chunks are in the producer's buffer by then, because they are handed over one by one.
                    if number == 3 and not os.path.exists(path):
                        Path(path).touch()
                        wait_for_records(bootstrap, topic)
                        os.kill(os.getpid(), signal.SIGKILL)
                    yield batch

            return super().write(batches())

    class KillingSource(KafkaDataSource):
        @classmethod
        def name(cls) -> str:
            return "killing"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            made = super().writer(schema, overwrite)
            assert isinstance(made, BatchArrowWriter)
            return KillingWriter(made.sink)

    return KillingSource
