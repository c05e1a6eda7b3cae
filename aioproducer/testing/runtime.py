"""Prepares what a cluster runs on: Java, Kafka's jars, and the class archive that makes them start fast.

The JVM writes the archive in a first run. Measured with Kafka 4.3.1 on Java 25 and two cores: a broker is ready in
0.55 s instead of 1.3 s, a tool in 0.25 s instead of 0.6 s. It takes 6 s and 64 MB, once per pair of Java and Kafka.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aioproducer.testing.cache import Progress, cache_directory, locked
from aioproducer.testing.command import Runtime
from aioproducer.testing.errors import ClusterError
from aioproducer.testing.jars import find_jars
from aioproducer.testing.java import find_java

Train = Callable[[Runtime, Path], None]
"""Runs a broker so that its JVM writes an archive to the path."""

_log = logging.getLogger("aioproducer.testing")


def prepare(version: str, progress: Progress, train: Train) -> Runtime:
    """The runtime of a Kafka version; downloads and creates missing parts.

    Raises:
        DownloadError, JavaNotFoundError: a part is missing and can't be obtained.
    """
    cache = cache_directory(os.environ)
    runtime = Runtime(find_java(os.environ), find_jars(version, cache, progress, os.environ))
    try:
        return replace(runtime, archive=_archive(cache, runtime, progress, train))
    except (OSError, ClusterError) as error:
        # Such as a read-only cache in an image, made with another Java. Brokers start without it, only more slowly; a
        # real obstacle shows again, with a better message, when the cluster itself starts.
        _log.warning("no class archive for Kafka %s: %s", version, str(error))
        return runtime


def _archive(cache: Path, runtime: Runtime, progress: Progress, train: Train) -> Path | None:
    """The archive of these two, made if it is missing; None if this Java can't create one."""
    version = runtime.jars.version
    archive = cache / "archives" / f"kafka-{version}-{runtime.java.key}.archive"
    if not archive.exists():
        with locked(cache, progress):
            if not archive.exists():
                progress(f"Kafka {version}: preparing a fast start on Java {runtime.java.feature}")
                _make(archive, runtime, train)
    # An empty file marks that this Java can't create one.
    return archive if archive.stat().st_size else None


def _make(archive: Path, runtime: Runtime, train: Train) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_name(f"{archive.name}.{os.getpid()}.part")
    try:
        train(runtime, part)
        # Only now: a broker that was killed may leave half an archive, and if it leaves none, that is not due to Java.
        if part.exists():
            part.replace(archive)
        else:
            archive.touch()
    finally:
        part.unlink(missing_ok=True)
