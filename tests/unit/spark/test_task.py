"""What a task does with rows whose batch was committed before."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from aioproducer.spark import task
from aioproducer.spark.columns import Columns
from aioproducer.spark.options import SinkOptions
from aioproducer.spark.outcome import Outcome, TaskMessage
from aioproducer.spark.task import Sink

OPTIONS = SinkOptions.parse(
    {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        "transactional.id.prefix": "p",
        "transactionLog": "/log",
    }
)


class Context:
    """Spark's TaskContext of the fourth task of micro-batch 7."""

    def partitionId(self) -> int:
        return 3

    def getLocalProperty(self, name: str) -> str:
        return {task.QUERY_ID: "query", task.BATCH_ID: "7"}[name]


@pytest.fixture(autouse=True)
def context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", Context)


@pytest.mark.parametrize("way", ["arrow", "rows"])
@pytest.mark.parametrize(("is_stream", "batch"), [(True, "query:7"), (False, "job:x")])
def test_rows_that_are_not_written_again_are_counted(way: str, is_stream: bool, batch: str) -> None:
    sink = Sink(
        OPTIONS,
        Columns(frozenset({"value"})),
        is_stream=is_stream,
        batch="" if is_stream else batch,
        claim="claim",
        committed=frozenset({batch}),
    )
    if way == "arrow":
        columns = [pa.record_batch({"value": [b"a"] * rows}) for rows in (2, 0, 3)]
        message = sink.write_batches(iter(columns))
    else:
        rows: list[dict[str, Any]] = [{"value": b"a"}] * 5
        message = sink.write_rows(iter(rows))
    assert message == TaskMessage(Outcome(), 3, batch, "claim", skipped=5)
