"""Each row once, whatever fails, as another client's read_committed consumer sees it: the table in docs/spark.md."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from aioproducer import transactions
from aioproducer.testing import KafkaCluster
from tests.spark import speculating
from tests.spark.dying_driver import run_dying_driver, sleeping_driver
from tests.spark.failing import breaking, killing_source
from tests.spark.readers import values, visible_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeTopic = Callable[..., str]
ROWS = 30_000


def options(kafka: KafkaCluster, topic: str, prefix: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "transactional.id.prefix": prefix,
        **more,
    }


def numbers(kafka: KafkaCluster, topic: str) -> list[int]:
    return sorted(int(value or b"") for value in values(kafka, topic))


async def open_transactions(kafka: KafkaCluster, prefix: str) -> list[str]:
    found = await transactions.list_transactions(prefix, states=["Ongoing"], bootstrap_servers=kafka.bootstrap_servers)
    return [one.transactional_id for one in found]


def rows_of(spark: SparkSession, count: int = ROWS) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr("CAST(id AS STRING) AS value")


@pytest.mark.parametrize("way", ["arrow", "rows"])
async def test_a_batch(spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, way: str) -> None:
    name = topic(2)
    given = options(kafka, name, f"batch-{way}", transactionLog=str(tmp_path), writer=way)
    rows_of(spark).write.format("aioproducer").options(**given).mode("append").save()
    assert numbers(kafka, name) == list(range(ROWS))
    assert await open_transactions(kafka, f"batch-{way}") == []


def test_a_job_is_not_done_twice(spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path) -> None:
    name = topic(2)
    given = options(kafka, name, "job", transactionLog=str(tmp_path), jobId="2013-01-01")
    for _ in range(2):
        rows_of(spark, 100).write.format("aioproducer").options(**given).mode("append").save()
    assert numbers(kafka, name) == list(range(100))
    rows_of(spark, 100).write.format("aioproducer").options(**given).option("jobId", "other").mode("append").save()
    assert len(numbers(kafka, name)) == 200


@pytest.mark.parametrize("how", ["raise", "kill"])
async def test_a_task_that_fails_is_done_again(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, how: str
) -> None:
    """What the first attempt has written never becomes visible; if killed, it can't even abort."""
    name = topic(2)
    given = options(kafka, name, f"task-{how}", transactionLog=str(tmp_path / "log"))
    rows = breaking(rows_of(spark), tmp_path / "mark", how)
    rows.write.format("aioproducer").options(**given).mode("append").save()
    assert (tmp_path / "mark").exists()
    assert numbers(kafka, name) == list(range(ROWS))
    assert await open_transactions(kafka, f"task-{how}") == []


async def test_the_worker_that_writes_is_killed(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """The rows that it has written are in the log, in a transaction that is never committed."""
    name = topic()
    spark.dataSource.register(killing_source(tmp_path / "mark", kafka.bootstrap_servers, name))
    given = options(kafka, name, "writer", transactionLog=str(tmp_path / "log"))
    rows_of(spark, 60_000).coalesce(1).write.format("killing").options(**given).mode("append").save()
    assert (tmp_path / "mark").exists()
    assert numbers(kafka, name) == list(range(60_000))
    assert len(values(kafka, name, committed=False)) > 60_000
    assert await open_transactions(kafka, "writer") == []


@pytest.mark.slow
async def test_a_task_is_done_twice_at_once(kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path) -> None:
    """Speculation: both attempts write without disturbing each other, and only the winner's rows become visible."""
    name = topic()
    command = [sys.executable, "-m", "tests.spark.speculating", kafka.bootstrap_servers, name, str(tmp_path)]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=400, check=False)
    assert "WRITTEN" in ran.stdout, ran.stderr[-3000:]
    assert (tmp_path / "second").exists()
    assert numbers(kafka, name) == list(range(speculating.ROWS))
    assert len(values(kafka, name, committed=False)) > speculating.ROWS
    assert await open_transactions(kafka, "speculating") == []


async def test_a_query_that_fails_leaves_nothing(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """Neither rows nor open transactions that would block consumers, even of tasks that succeeded."""
    name = topic(2)
    given = options(kafka, name, "fails", transactionLog=str(tmp_path / "log"))
    rows = rows_of(spark, 100).union(breaking(rows_of(spark), tmp_path / "mark", "always"))
    with pytest.raises(PySparkException, match="the task fails"):
        rows.write.format("aioproducer").options(**given).mode("append").save()
    assert numbers(kafka, name) == []
    assert await open_transactions(kafka, "fails") == []


def test_bad_rows_and_dead_letters_are_of_one_transaction(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    name, dead = topic(), topic()
    given = options(kafka, name, "dead", transactionLog=str(tmp_path), deadLetterTopic=dead)
    rows = spark.range(0, 2_000, 1, 1).selectExpr("repeat('x', IF(id = 1007, 2000000, 1)) AS value")
    rows.write.format("aioproducer").options(**given).mode("append").save()
    assert len(values(kafka, name)) == 1_999
    assert len(values(kafka, dead)) == 1


# --- streams ----------------------------------------------------------------------------------------------------------


def add_file(directory: Path, number: int, rows: int) -> None:
    directory.mkdir(exist_ok=True)
    text = "\n".join(str(row) for row in range(number * rows, (number + 1) * rows))
    (directory / f"part-{number}.txt").write_text(text)


def run_stream(spark: SparkSession, given: dict[str, str], source: Path, checkpoint: Path) -> None:
    """Write all available rows, one file per micro-batch."""
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source)).repartition(3)
    stream = rows.writeStream.format("aioproducer").options(**given).option("checkpointLocation", str(checkpoint))
    stream.trigger(availableNow=True).start().awaitTermination(120)


@pytest.mark.parametrize("way", ["arrow", "rows"])
async def test_a_stream_goes_on_after_a_restart(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, way: str
) -> None:
    name = topic(2)
    given = options(kafka, name, f"stream-{way}", writer=way)
    for number in range(3):
        add_file(tmp_path / "source", number, 300)
        if number:
            run_stream(spark, given, tmp_path / "source", tmp_path / "checkpoint")
            assert numbers(kafka, name) == list(range((number + 1) * 300))
    assert await open_transactions(kafka, f"stream-{way}") == []


def test_a_micro_batch_that_spark_repeats_is_not_written_again(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """The driver dies after the commit and before Spark has noted it."""
    name = topic(2)
    given = options(kafka, name, "repeat")
    add_file(tmp_path / "source", 0, 300)
    run_stream(spark, given, tmp_path / "source", tmp_path / "checkpoint")
    commits = tmp_path / "checkpoint" / "commits"
    for file in (commits / "0", commits / ".0.crc"):
        file.unlink()
    add_file(tmp_path / "source", 1, 300)
    run_stream(spark, given, tmp_path / "source", tmp_path / "checkpoint")
    assert numbers(kafka, name) == list(range(600))


def test_batch_writes_of_a_micro_batch_are_batches_of_their_own(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """``foreachBatch`` with the jobId that the docs advise: Spark repeats a micro-batch, and all rows are there once.

    Another query with the same log, which counts from 0 again, writes its own.
    """
    first, second = topic(), topic()
    given = options(kafka, "", "each", transactionLog=str(tmp_path / "log"), audit="true")
    given["auditStatements"] = str(tmp_path / "said")
    add_file(tmp_path / "source", 0, 100)

    def write_both(rows: DataFrame, number: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        for name, job in ((first, f"{query}-{number}"), (second, f"{query}-{number}-second")):
            rows.write.format("aioproducer").options(**given).options(topic=name, jobId=job).mode("append").save()

    def run(checkpoint: str = "checkpoint") -> None:
        stream = spark.readStream.text(str(tmp_path / "source")).writeStream.foreachBatch(write_both)
        stream = stream.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True)
        stream.start().awaitTermination(120)

    run()
    commits = tmp_path / "checkpoint" / "commits"
    for file in (commits / "0", commits / ".0.crc"):
        file.unlink()
    run()
    assert numbers(kafka, first) == numbers(kafka, second) == list(range(100))
    assert len(list((tmp_path / "said").iterdir())) == 2
    run("new checkpoint")
    assert numbers(kafka, first) == numbers(kafka, second) == sorted([*range(100)] * 2)


def test_a_new_checkpoint_begins_a_query_of_its_own(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path
) -> None:
    """Its micro-batches count from 0 again, in a log that already has these numbers."""
    name = topic()
    given = options(kafka, name, "anew", transactionLog=str(tmp_path / "log"))
    for number in range(2):
        add_file(tmp_path / f"source-{number}", number, 100)
        run_stream(spark, given, tmp_path / f"source-{number}", tmp_path / f"checkpoint-{number}")
    assert numbers(kafka, name) == list(range(200))


@pytest.mark.parametrize(
    ("point", "seen"),
    [
        pytest.param("prepared", 0, marks=pytest.mark.slow),
        pytest.param("recorded", 0, marks=pytest.mark.slow),
        ("between", 1_000),
        pytest.param("committed", 3_000, marks=pytest.mark.slow),
    ],
)
async def test_the_driver_is_killed(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, point: str, seen: int
) -> None:
    """While it commits a micro-batch; another driver continues from the checkpoint."""
    name, source = topic(3), tmp_path / "source"
    add_file(source, 0, 3_000)
    await asyncio.to_thread(run_dying_driver, kafka.bootstrap_servers, name, str(source), str(tmp_path), point)
    assert len(visible_values(kafka, name)) == seen
    given = options(kafka, name, "dying")
    add_file(source, 1, 3_000)
    run_stream(spark, given, source, tmp_path / "checkpoint")
    assert numbers(kafka, name) == list(range(6_000))
    assert await open_transactions(kafka, "dying") == []


@pytest.mark.parametrize(
    ("point", "end"),
    [
        ("prepared", "another driver has begun to write with this transaction log"),
        # It commits what the other one has already committed; then Spark itself detects the other query.
        pytest.param("between", "Multiple streaming jobs detected", marks=pytest.mark.slow),
    ],
)
async def test_the_driver_was_taken_for_dead(
    spark: SparkSession, kafka: KafkaCluster, topic: MakeTopic, tmp_path: Path, point: str, end: str
) -> None:
    """It sleeps while it commits a micro-batch, another driver continues from the checkpoint, and it wakes up."""
    name, source = topic(3), tmp_path / "source"
    add_file(source, 0, 3_000)
    with sleeping_driver(tmp_path, kafka.bootstrap_servers, name, str(source), str(tmp_path), point) as wake:
        given = options(kafka, name, "dying")
        run_stream(spark, given, source, tmp_path / "checkpoint")
        assert numbers(kafka, name) == list(range(3_000))
        assert end in await asyncio.to_thread(wake)
    add_file(source, 1, 3_000)
    run_stream(spark, given, source, tmp_path / "checkpoint")
    assert numbers(kafka, name) == list(range(6_000))
    assert await open_transactions(kafka, "dying") == []
