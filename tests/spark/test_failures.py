"""Tasks, workers and brokers that fail while rows are written: with at-least-once, every row is there in the end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow
import pytest
from pyspark.errors import PySparkException

from aioproducer.spark import WriteTotals
from aioproducer.testing import KafkaCluster
from tests.spark.readers import values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]


def breaking(rows: DataFrame, mark: Path, how: str) -> DataFrame:
    """The same rows, but the first task that comes to the 5,000th fails there, once."""
    path = str(mark)

    def pass_on(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        seen = 0
        for batch in batches:
            seen += batch.num_rows
            if seen > 5_000 and not os.path.exists(path):
                Path(path).touch()
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("the task fails")
            yield batch

    return rows.mapInArrow(pass_on, rows.schema)


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_task_that_fails_is_done_again(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, how: str
) -> None:
    """By an exception, or because its Python worker is killed."""
    name = topic()
    totals = WriteTotals(spark)
    rows = breaking(spark.range(0, 30_000, 1, 2).selectExpr("CAST(id AS STRING) AS value"), tmp_path / "mark", how)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, **totals.options}
    rows.write.format("aioproducer").options(**options).mode("append").save()
    assert (tmp_path / "mark").exists()
    assert {int(value or b"") for value in values(kafka, name)} == set(range(30_000))
    assert totals.value.records == 30_000


def test_a_cluster_that_is_not_there_is_named(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("v",)], "value string")
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "500", "topic": "t"}
    with pytest.raises(PySparkException, match=r"(?s)BootstrapError.*127\.0\.0\.1:1"):
        rows.write.format("aioproducer").options(**options).mode("append").save()
