"""The command lines that run Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.testing import command
from aioproducer.testing.command import Runtime
from aioproducer.testing.jars import KafkaJars
from aioproducer.testing.java import Java

JARS = KafkaJars("4.3.1", (Path("/jars/kafka.jar"), Path("/jars/other.jar")))
JAVA_17, JAVA_24, JAVA_25 = (Java(Path("/java"), version) for version in [(17, 0, 1), (24,), (25, 0, 2)])


def line(runtime: Runtime, *options: str) -> list[str]:
    return runtime.command("kafka.Kafka", ["server.properties"], options=options, temporary=Path("/tmp/broker"))


def test_a_command_is_java_options_class_path_class_and_arguments() -> None:
    found = line(Runtime(JAVA_25, JARS), "-Xmx1g")
    assert found[0] == "/java"
    assert found[-5:] == ["-Xmx1g", "-cp", "/jars/kafka.jar:/jars/other.jar", "kafka.Kafka", "server.properties"]
    assert "-Djava.io.tmpdir=/tmp/broker" in found


def test_the_callers_options_come_after_ours_and_so_win() -> None:
    found = line(Runtime(JAVA_25, JARS), "-XX:TieredStopAtLevel=4")
    assert found.index("-XX:TieredStopAtLevel=1") < found.index("-XX:TieredStopAtLevel=4")


@pytest.mark.parametrize(
    ("java", "use", "training"),
    [
        (JAVA_25, "-XX:AOTCache=/archive", "-XX:AOTCacheOutput=/archive"),
        (JAVA_24, "-XX:SharedArchiveFile=/archive", "-XX:ArchiveClassesAtExit=/archive"),
        (JAVA_17, "-XX:SharedArchiveFile=/archive", "-XX:ArchiveClassesAtExit=/archive"),
    ],
)
def test_each_java_has_its_kind_of_archive(java: Java, use: str, training: str) -> None:
    assert use in line(Runtime(java, JARS, Path("/archive")))
    assert command.training_option(java, Path("/archive")) == training
    assert not any("archive" in option.lower() for option in line(Runtime(java, JARS)))


def test_options_that_an_older_java_does_not_know_are_left_out() -> None:
    assert "--sun-misc-unsafe-memory-access=allow" in line(Runtime(JAVA_24, JARS))
    assert "--sun-misc-unsafe-memory-access=allow" not in line(Runtime(JAVA_17, JARS))


@pytest.mark.parametrize(("heap_mb", "options"), [(512, ["-Xmx512m", "-Xms64m"]), (32, ["-Xmx32m", "-Xms32m"])])
def test_the_heap_starts_small(heap_mb: int, options: list[str]) -> None:
    assert command.heap_options(heap_mb) == options


def test_the_shells_java_settings_are_not_passed_on() -> None:
    environ = {"PATH": "/bin", "CLASSPATH": "/x", "JAVA_TOOL_OPTIONS": "-Xmx1m", "JDK_JAVA_OPTIONS": "-Xmx1m"}
    assert command.environment(environ) == {"PATH": "/bin"}
