"""A program whose Spark starts a second attempt of a slow task while the first one still runs.

    python -m tests.spark.speculating BOOTSTRAP TOPIC WORK

Spark never speculates on the same host or in ``local`` mode: this is a cluster of a master and two workers, which use
two of the machine's own addresses as hosts. WORK is a directory.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame

from aioproducer.spark import java_home, local_session

HOSTS = ("127.0.0.1", "127.0.0.2")
TASKS, ROWS = 4, 120_000
PATIENCE_S = 120


def slow(rows: DataFrame, work: str) -> DataFrame:
    """The same rows, but the first attempt of the last task stops halfway until the second one has read them all."""

    def pass_on(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        last = context.partitionId() == TASKS - 1
        attempt = context.attemptNumber()
        second = Path(work) / "second"
        for number, batch in enumerate(batches):
            if last and attempt == 0 and number == 2:
                deadline = time.monotonic() + PATIENCE_S
                while not second.exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
            yield batch
        if last and attempt == 1:
            second.touch()

    return rows.mapInArrow(pass_on, rows.schema)


@contextlib.contextmanager
def cluster(work: Path) -> Iterator[str]:
    """Start Spark's own master and workers, one on each host; yields the master's address."""
    home = Path(pyspark.__file__).parent
    environ = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    environ |= {"SPARK_WORKER_DIR": str(work / "workers"), "SPARK_LOCAL_DIRS": str(work / "local")}
    base = "org.apache.spark.deploy"
    with contextlib.ExitStack() as running:

        def start(log: Path, *arguments: str) -> None:
            with log.open("wb") as file:
                command = [str(home / "bin" / "spark-class"), *arguments]
                process = subprocess.Popen(command, env=environ, stdout=file, stderr=file, cwd=work)
            running.callback(process.wait)
            running.callback(process.kill)

        start(work / "master.log", f"{base}.master.Master", "--host", HOSTS[0], "--port", "0", "--webui-port", "0")
        master = found_in(work / "master.log", r"Starting Spark master at (spark://\S+)")
        for number, host in enumerate(HOSTS):
            options = ("--host", host, "--cores", "2", "--memory", "1g", "--webui-port", "0")
            start(work / f"worker-{number}.log", f"{base}.worker.Worker", *options, master)
        for number, _ in enumerate(HOSTS):
            found_in(work / f"worker-{number}.log", "Successfully registered with (master)")
        yield master


def found_in(log: Path, pattern: str) -> str:
    """Wait until a log contains a line."""
    deadline = time.monotonic() + PATIENCE_S
    while (match := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.05)
    return match[1]


def main(bootstrap: str, topic: str, work: str) -> None:
    """Write rows in such a cluster."""
    with cluster(Path(work)) as master:
        configs = {
            "spark.master": master,
            "spark.executor.memory": "512m",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
            "spark.sql.execution.arrow.maxRecordsPerBatch": 2_000,
            "spark.sql.warehouse.dir": f"{work}/warehouse",
            "spark.log.level": "ERROR",
            "spark.speculation": True,
            "spark.speculation.quantile": 0.5,
            "spark.speculation.multiplier": 1.1,
            "spark.speculation.minTaskRuntime": "1ms",
        }
        spark = local_session("speculating", configs=configs)
        options = {
            "kafka.bootstrap.servers": bootstrap,
            "topic": topic,
            "transactional.id.prefix": "speculating",
            "transactionLog": f"{work}/log",
        }
        rows = spark.range(0, ROWS, 1, TASKS).selectExpr("CAST(id AS STRING) AS value")
        slow(rows, work).write.format("aioproducer").options(**options).mode("append").save()
        spark.stop()
    print("WRITTEN")


if __name__ == "__main__":
    from tests.spark.speculating import main as importable_main

    importable_main(*sys.argv[1:])
