"""A program whose driver is killed while it ends a micro-batch.

    python -m tests.spark.dying_driver BOOTSTRAP TOPIC SOURCE WORK POINT

WORK is a directory; the checkpoint is in it. The Python process that Spark starts to commit kills the JVM at POINT.
``written`` is a stream without transactions; all others have some.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

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


def die(work: str) -> Never:
    """Kill the driver, and this process with it."""
    os.kill(int((Path(work) / "jvm").read_text()), signal.SIGKILL)
    os._exit(1)


def deadly(method: Callable[..., Any], when: str, work: str) -> Callable[..., Any]:
    """The same method, but its caller dies before or after it."""
    if asyncio.iscoroutinefunction(method):
        first = asyncio.Lock()

        @functools.wraps(method)
        async def commit(*args: Any, **more: Any) -> Never:
            async with first:
                await method(*args, **more)
                die(work)

        return commit

    @functools.wraps(method)
    def call(*args: Any, **more: Any) -> Never:
        if when == "after":
            method(*args, **more)
        die(work)

    return call


class DyingSource(KafkaDataSource):
    """The data source, of which the driver dies at a point of the commit."""

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


def run_dying_driver(*arguments: str) -> None:
    """Run the program, and see that it lost its driver."""
    command = [sys.executable, "-m", "tests.spark.dying_driver", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert "survived" not in ran.stdout
    assert "Traceback" in ran.stderr, "the program did not lose its driver"


if __name__ == "__main__":
    from tests.spark.dying_driver import main as importable_main

    importable_main(*sys.argv[1:])
