"""A receiver of client metrics as a plug-in for real brokers, and what it has received.

Kafka comes with none, so `java/MetricsReceiver.java` is compiled here, by a compiler that needs no more than the Java
that runs Kafka: Eclipse's.
"""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aioproducer.testing.artifacts import Artifacts, find_artifacts
from aioproducer.testing.cache import cache_directory
from aioproducer.testing.cluster import DEFAULT_VERSION
from aioproducer.testing.jars import find_jars
from aioproducer.testing.java import find_java

SOURCE = Path(__file__).with_name("java") / "MetricsReceiver.java"
COMPILER = Artifacts(
    name="the Eclipse compiler", key="ecj-3.40.0", coordinates=("org.eclipse.jdt:ecj:3.40.0",), dependencies=False
)
COMPILER_S = 120


def compile_receiver(directory: Path) -> None:
    """Compile the class into a directory."""
    cache = cache_directory(os.environ)
    (compiler,) = find_artifacts(COMPILER, cache, print, os.environ)
    kafka = find_jars(DEFAULT_VERSION, cache, print, os.environ)
    java = find_java(os.environ)
    options = ["-17", "-nowarn", "-proc:none", "-cp", kafka.class_path, "-d", str(directory), str(SOURCE)]
    subprocess.run([java.path, "-jar", compiler, *options], check=True, timeout=COMPILER_S)


def properties(file: Path) -> dict[str, object]:
    """Broker configs with which the brokers write what they receive to a file."""
    return {"metric.reporters": "MetricsReceiver", "metrics.receiver.file": str(file)}


@dataclass(frozen=True, slots=True)
class Received:
    """One push, as a broker gave it to its plug-in."""

    client_instance_id: str
    terminating: bool
    content_type: str
    metrics: MetricsData

    def values(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """The values of one metric, by its attributes."""
        return {
            frozenset((one.key, one.value.string_value) for one in point.attributes): point.as_double
            for resource in self.metrics.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in (metric.gauge.data_points or metric.sum.data_points)
        }

    @property
    def names(self) -> set[str]:
        """The names of all metrics."""
        return {
            metric.name
            for resource in self.metrics.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def received(file: Path) -> list[Received]:
    """What the brokers have received until now."""
    parts = _parts(file.read_bytes() if file.exists() else b"")
    return [
        Received(client.decode(), last == b"true", kind.decode(), MetricsData.FromString(metrics))
        for client, last, kind, metrics in zip(parts, parts, parts, parts, strict=False)
    ]


def _parts(data: bytes) -> Iterator[bytes]:
    """Sizes and the bytes that follow them; the end may be cut off if a broker is still writing it."""
    at = 0
    while at + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if at + 4 + size > len(data):
            return
        yield data[at + 4 : at + 4 + size]
        at += 4 + size
