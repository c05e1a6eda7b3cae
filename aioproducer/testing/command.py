"""The command lines that run Kafka's classes. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aioproducer.testing.jars import KafkaJars
from aioproducer.testing.java import Java

# Java reads options and class paths from these too. What runs must not depend on the shell that started the tests.
_NOT_PASSED_ON = ("CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

_LOG_LEVELS = {
    "org.slf4j.simpleLogger.defaultLogLevel": "info",
    "org.slf4j.simpleLogger.showDateTime": "true",
    "org.slf4j.simpleLogger.dateTimeFormat": "HH:mm:ss.SSS",
    "org.slf4j.simpleLogger.showThreadName": "false",
    "org.slf4j.simpleLogger.showShortLogName": "true",
    # Hundreds of lines per broker that repeat server.properties.
    "org.slf4j.simpleLogger.log.kafka.server.KafkaConfig": "warn",
    "org.slf4j.simpleLogger.log.kafka.utils.Log4jControllerRegistration$": "warn",
    "org.slf4j.simpleLogger.log.org.apache.kafka.common.config.AbstractConfig": "warn",
    "org.slf4j.simpleLogger.log.org.apache.kafka.common.utils.AppInfoParser": "warn",
    "org.slf4j.simpleLogger.log.org.apache.kafka.common.metrics": "warn",
    "org.slf4j.simpleLogger.log.org.apache.kafka.storage.internals.log.UnifiedLog": "warn",
    "org.slf4j.simpleLogger.log.org.apache.zookeeper": "warn",
}


@dataclass(frozen=True, slots=True)
class Runtime:
    """A Java, a Kafka, and the class archive that speeds up their start, if there is one."""

    java: Java
    jars: KafkaJars
    archive: Path | None = None
    class_path: tuple[Path, ...] = ()
    """Entries after Kafka's own."""

    def command(
        self, main_class: str, arguments: Sequence[str], *, options: Sequence[str], temporary: Path
    ) -> list[str]:
        """The command that runs one of Kafka's classes.

        Args:
            options: JVM options; they come last and so override ours.
            temporary: where Kafka's libraries unpack their native code.
        """
        return [
            str(self.java.path),
            *start_options(self.java),
            *self._archive_options(),
            *(f"-D{name}={value}" for name, value in _LOG_LEVELS.items()),
            f"-Djava.io.tmpdir={temporary}",
            *options,
            "-cp",
            os.pathsep.join((self.jars.class_path, *map(str, self.class_path))),
            main_class,
            *arguments,
        ]

    def _archive_options(self) -> list[str]:
        if self.archive is None:
            return []
        return [f"-XX:AOTCache={self.archive}" if has_aot_cache(self.java) else f"-XX:SharedArchiveFile={self.archive}"]


def start_options(java: Java) -> list[str]:
    """Options that make a small broker start fast and log little."""
    options = [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        # Else every killed JVM leaves a file in the system's temporary directory.
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        # Notes about the class archive; the JVM runs without it too. Fatal errors are not logged this way.
        "-Xlog:disable",
        "-Xlog:all=error:stderr",
    ]
    if java.feature >= 24:
        # Java 24 and newer warn of what Kafka's compression libraries and buffers do.
        options += ["--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow"]
    return options


def has_aot_cache(java: Java) -> bool:
    """Whether this Java creates an ahead-of-time cache in one run (JEP 514); older ones have class-data sharing."""
    return java.feature >= 25


def training_option(java: Java, archive: Path) -> str:
    """The option that makes a run write a class archive on exit."""
    return f"-XX:AOTCacheOutput={archive}" if has_aot_cache(java) else f"-XX:ArchiveClassesAtExit={archive}"


def heap_options(heap_mb: int) -> list[str]:
    """The heap size; memory is allocated as it is used."""
    return [f"-Xmx{heap_mb}m", f"-Xms{min(heap_mb, 64)}m"]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a JVM."""
    return {name: value for name, value in environ.items() if name not in _NOT_PASSED_ON}
