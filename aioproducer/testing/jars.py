"""Kafka itself: the jars of one version, fetched once and then cached."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aioproducer.testing.artifacts import Artifacts, find_artifacts
from aioproducer.testing.cache import Progress
from aioproducer.testing.errors import ClusterError

# Kafka Connect is half of the download, and brokers never load it. The logger is ours, see _resolve.logger_of.
NOT_NEEDED = (
    "org.apache.kafka:connect-runtime",
    "org.apache.kafka:connect-api",
    "org.apache.kafka:connect-json",
    "org.slf4j:slf4j-log4j12",
    "org.slf4j:slf4j-reload4j",
)


@dataclass(frozen=True, slots=True)
class KafkaJars:
    """One version of Kafka on this machine."""

    version: str
    jars: tuple[Path, ...]

    @property
    def class_path(self) -> str:
        """The jars as Java's ``-cp`` takes them."""
        return os.pathsep.join(map(str, self.jars))

    def tool(self, name: str) -> str:
        """The full name of one of Kafka's tool classes; later versions moved them out of the package kafka.tools."""
        for package in ("org.apache.kafka.tools", "kafka.tools"):
            if self._has_class(f"{package}.{name}"):
                return f"{package}.{name}"
        raise ClusterError(f"Kafka {self.version} has no tool {name}")

    def _has_class(self, name: str) -> bool:
        entry = name.replace(".", "/") + ".class"
        for jar in self.jars:
            if jar.name.startswith("kafka"):
                with zipfile.ZipFile(jar) as archive:
                    if entry in archive.namelist():
                        return True
        return False


def kafka_artifacts(version: str) -> Artifacts:
    """The jars of a broker and its tools; the rest are their dependencies."""
    return Artifacts(
        name=f"Kafka {version}",
        key=f"kafka-{version}",
        coordinates=(f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}"),
        left_out=NOT_NEEDED,
        logger=True,
    )


def find_jars(version: str, cache: Path, progress: Progress, environ: Mapping[str, str]) -> KafkaJars:
    """The jars of a Kafka version: from the cache, else downloaded into it.

    Any number of processes may call this at once. A first call downloads about 46 MB, later ones need no network.

    Raises:
        DownloadError: a jar can't be fetched; the message has the last cause and names the repository setting.
    """
    return KafkaJars(version, find_artifacts(kafka_artifacts(version), cache, progress, environ))
