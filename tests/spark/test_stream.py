"""Streams into topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from aioproducer.spark import WriteTotals
from aioproducer.testing import KafkaCluster
from tests.spark.readers import values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

MakeTopic = Callable[..., str]
PATIENCE_S = 120.0


@pytest.fixture(params=["arrow", "rows"])
def way(request: pytest.FixtureRequest) -> str:
    """How rows are written: by columns, or row by row."""
    return request.param


def lines(spark: SparkSession, directory: Path) -> DataFrame:
    """A stream of text files, one per micro-batch."""
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(directory))


def add_file(directory: Path, number: int, rows: int) -> None:
    text = "\n".join(str(row) for row in range(number * rows, (number + 1) * rows))
    (directory / f"part-{number}.txt").write_text(text)


def writer(
    rows: DataFrame, kafka: KafkaCluster, checkpoint: Path, way: str = "arrow", **options: str
) -> DataStreamWriter:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    return (
        rows.writeStream.format("aioproducer")
        .options(writer=way, **servers, **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )


def test_micro_batches_arrive_and_go_on_after_a_restart(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, way: str, tmp_path: Path
) -> None:
    name, source = topic(), tmp_path / "source"
    source.mkdir()
    totals = WriteTotals(spark)
    for number in range(2):
        add_file(source, number, 500)
    for run in (1, 2):
        query = writer(lines(spark, source), kafka, tmp_path / "checkpoint", way, topic=name, **totals.options).start()
        query.awaitTermination(120)
        assert sorted(int(value or b"") for value in values(kafka, name)) == list(range(1_000 if run == 1 else 1_500))
        assert totals.value.records == (1_000 if run == 1 else 1_500)
        add_file(source, 2, 500)


def test_what_is_wrong_with_a_stream_is_said_before_it_writes(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    name, source = topic(), tmp_path / "source"
    source.mkdir()
    add_file(source, 0, 10)
    rows = lines(spark, source).selectExpr("length(value) AS value")
    query = writer(rows, kafka, tmp_path / "checkpoint", topic=name).start()
    with pytest.raises(StreamingQueryException, match="column value must be string or binary, not int"):
        query.awaitTermination(120)
    assert values(kafka, name) == []


@pytest.mark.parametrize("options", [{}, {"transactional.id.prefix": "continuous"}], ids=["at least once", "once"])
def test_a_continuous_stream_does_not_pass_its_rows(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, options: dict[str, str]
) -> None:
    """Spark has no Python writers for the continuous trigger: it would silently record the rows as written."""
    rows = spark.readStream.format("rate").load().selectExpr("CAST(value AS STRING) AS value")
    stream = writer(rows, kafka, tmp_path / "checkpoint", topic=topic(), **options)
    query = stream.trigger(continuous="100 milliseconds").start()
    try:
        deadline_s = time.monotonic() + PATIENCE_S
        while not (tmp_path / "checkpoint" / "offsets" / "20").exists():
            assert time.monotonic() < deadline_s, "no more epochs"
            time.sleep(0.1)
    finally:
        query.stop()
    assert list((tmp_path / "checkpoint" / "commits").iterdir()) == []
