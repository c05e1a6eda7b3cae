"""Tasks, workers, brokers and drivers that fail while rows are written: with at-least-once, every row is there in the
end: the second table in docs/spark.md."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from aioproducer.spark import WriteTotals
from aioproducer.testing import KafkaCluster
from tests.spark.dying_driver import run_dying_driver
from tests.spark.failing import PATIENCE_S, breaking, killing_source, wait_for_records, waiting
from tests.spark.readers import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_task_that_fails_is_done_again(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, how: str
) -> None:
    """It fails by an exception, or because the Python worker that produces its rows is killed."""
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


def test_the_worker_that_writes_is_killed(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """Rows that it has written stay in the topic, and are written again by the next attempt."""
    name = topic()
    spark.dataSource.register(killing_source(tmp_path / "mark", kafka.bootstrap_servers, name))
    totals = WriteTotals(spark)
    rows = spark.range(0, 60_000, 1, 1).selectExpr("CAST(id AS STRING) AS value")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, **totals.options}
    rows.write.format("killing").options(**options).mode("append").save()
    assert (tmp_path / "mark").exists()
    found = [int(value or b"") for value in values(kafka, name)]
    assert set(found) == set(range(60_000))
    assert len(found) > 60_000
    assert totals.value.records == 60_000


def test_a_task_that_fails_too_often_fails_the_write(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """What the other tasks have written stays."""
    name = topic()
    # Two tasks each: Spark would make one task of a union of single ones.
    good = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    bad = spark.range(100, 30_000, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    written = (kafka.bootstrap_servers, name)
    rows = good.union(breaking(bad, tmp_path / "mark", "always", once_written=written))
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name}
    with pytest.raises(PySparkException, match="the task fails"):
        rows.write.format("aioproducer").options(**options).mode("append").save()
    found = {int(value or b"") for value in values(kafka, name)}
    assert found
    assert found < set(range(30_000))


def test_a_broker_that_dies_and_comes_back(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """The producer waits for it; there are no duplicates."""
    name = topic()
    reached, go_on = tmp_path / "reached", tmp_path / "go on"
    rows = waiting(spark.range(0, 60_000, 1, 1).selectExpr("CAST(id AS STRING) AS value"), reached, go_on)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name}

    def strike() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        wait_for_records(kafka.bootstrap_servers, name)
        (broker,) = kafka.running
        kafka.kill(broker)
        go_on.touch()
        kafka.start_broker(broker)

    striking = threading.Thread(target=strike)
    striking.start()
    try:
        rows.write.format("aioproducer").options(**options).mode("append").save()
    finally:
        striking.join()
    assert [int(value or b"") for value in values(kafka, name)] == list(range(60_000))


@pytest.mark.slow
def test_a_driver_that_dies_does_the_micro_batch_again(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """When its tasks have written but Spark has not noted it, the next driver writes the rows a second time."""
    name, source = topic(3), tmp_path / "source"
    source.mkdir()
    (source / "part-0.txt").write_text("\n".join(map(str, range(3_000))))
    run_dying_driver(kafka.bootstrap_servers, name, str(source), str(tmp_path), "written")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name}
    stream = spark.readStream.text(str(source)).writeStream.format("aioproducer").options(**options)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination(120)
    assert sorted(int(value or b"") for value in values(kafka, name)) == sorted([*range(3_000), *range(3_000)])
