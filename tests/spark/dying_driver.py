"""A program whose driver is killed, or sleeps, while it commits a micro-batch.

    python -m tests.spark.dying_driver BOOTSTRAP TOPIC SOURCE WORK POINT

WORK is a directory; the checkpoint is in it. The Python process that Spark starts to commit kills the JVM at POINT; if
there are two pipes in WORK, it writes to the pipe ``asleep`` and waits for the pipe ``awake`` instead. ``written``
is a stream without transactions; all other points use transactions.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from aioproducer.spark import KafkaDataSource, driver, local_session
from aioproducer.spark.commit_log import CommitLog
from aioproducer.transactions import TransactionClient

POINTS = {
    "written": (driver, "commit", "before"),
    "prepared": (CommitLog, "record", "before"),
    "recorded": (CommitLog, "record", "after"),
    "between": (TransactionClient, "commit", "after"),
    "committed": (CommitLog, "finish", "after"),
}


def die(work: str) -> None:
    """Kill the driver and this process; or wait, like a process that is suspended for a while."""
    asleep, awake = Path(work) / "asleep", Path(work) / "awake"
    if asleep.exists():
        if awake.exists():
            asleep.write_text("asleep")
            awake.read_text()
            awake.unlink()
        return
    os.kill(int((Path(work) / "jvm").read_text()), signal.SIGKILL)
    os._exit(1)


def deadly(method: Callable[..., Any], when: str, work: str) -> Callable[..., Any]:
    """The same method, but the driver dies before or after it."""
    if inspect.iscoroutinefunction(method):
        first = asyncio.Lock()

        @functools.wraps(method)
        async def commit(*args: Any, **more: Any) -> None:
            async with first:
                await method(*args, **more)
                die(work)

        return commit

    @functools.wraps(method)
    def call(*args: Any, **more: Any) -> None:
        if when == "after":
            method(*args, **more)
        die(work)
        if when == "before":
            method(*args, **more)

    return call


class DyingSource(KafkaDataSource):
    """The data source, whose driver dies at a point of the commit."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        work, point = self.options.pop("work"), self.options.pop("point")
        if self._ends_a_batch:
            owner, name, when = POINTS[point]
            setattr(owner, name, deadly(getattr(owner, name), when, work))
        return super().streamWriter(schema, overwrite)


def main(bootstrap: str, topic: str, source: str, work: str, point: str) -> None:
    """Run the stream until it dies."""
    spark = local_session("dying", configs={"spark.sql.warehouse.dir": f"{work}/warehouse", "spark.log.level": "ERROR"})
    (Path(work) / "jvm").write_text(str(spark.sparkContext._gateway.proc.pid))
    spark.dataSource.register(DyingSource)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": topic,
        "checkpointLocation": f"{work}/checkpoint",
        "work": work,
        "point": point,
    }
    if point != "written":
        options["transactional.id.prefix"] = "dying"
    rows = spark.readStream.text(source).repartition(3).selectExpr("value", "spark_partition_id() AS partition")
    query = rows.writeStream.format("aioproducer").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    print("survived")


COMMAND = [sys.executable, "-m", "tests.spark.dying_driver"]


def run_dying_driver(*arguments: str) -> None:
    """Run the program, and check that it lost its driver."""
    ran = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=400, check=False)
    assert "survived" not in ran.stdout
    assert "Traceback" in ran.stderr, "the program did not lose its driver"


@contextmanager
def sleeping_driver(work: Path, *arguments: str) -> Iterator[Callable[[], str]]:
    """Run the program until its driver sleeps; yields a function that wakes it up and returns its whole output."""
    for name in ("asleep", "awake"):
        os.mkfifo(work / name)
    asleep = os.open(work / "asleep", os.O_RDONLY | os.O_NONBLOCK)
    program = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wake() -> str:
        (work / "awake").write_text("awake")
        return program.communicate(timeout=400)[0]

    try:
        assert select.select([asleep], [], [], 400)[0], "the driver never came to the point"
        yield wake
    finally:
        os.close(asleep)
        program.kill()
        program.communicate()


if __name__ == "__main__":
    from tests.spark.dying_driver import main as importable_main

    importable_main(*sys.argv[1:])
