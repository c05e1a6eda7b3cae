"""The tasks' messages to the driver about a batch."""

from __future__ import annotations

import pytest

from aioproducer.spark import driver
from aioproducer.spark.columns import Columns
from aioproducer.spark.errors import SparkWriteError
from aioproducer.spark.options import SinkOptions
from aioproducer.spark.outcome import Outcome, TaskMessage
from aioproducer.spark.task import Sink

SINK = Sink(SinkOptions({"bootstrap.servers": "127.0.0.1:1"}), Columns(frozenset({"value"})))


@pytest.mark.parametrize("others", [[], [TaskMessage(Outcome(), 0)]])
def test_a_batch_is_not_committed_if_a_task_has_told_nothing(others: list[TaskMessage]) -> None:
    """The task was not called, so its rows are missing, but Spark would record them as written."""
    with pytest.raises(SparkWriteError, match=r"micro-batch 7: .*the continuous trigger"):
        driver.commit(SINK, [*others, None], "micro-batch 7")
