"""Kafka itself: the jars of one version, fetched once and then found in the cache."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aioproducer.testing.cache import Progress, locked, write_whole
from aioproducer.testing.errors import ClusterError, DownloadError


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
        """The full name of one of Kafka's tool classes; they moved from the package kafka.tools over the versions."""
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


def find_jars(version: str, cache: Path, progress: Progress, environ: Mapping[str, str]) -> KafkaJars:
    """The jars of a Kafka version: from the cache, else downloaded into it.

    Any number of processes may call this at once. A first call downloads about 46 MB, later ones need no network.

    Raises:
        DownloadError: a jar can't be had; the message has the last cause and names the repository setting.
    """
    found = _read_list(version, cache)
    if found is None:
        with locked(cache, progress):
            # Another process may have fetched them while we waited.
            found = _read_list(version, cache) or _fetch(version, cache, progress, environ)
    return found


def _list_path(version: str, cache: Path) -> Path:
    return cache / f"kafka-{version}.json"


def _read_list(version: str, cache: Path) -> KafkaJars | None:
    """What an earlier resolve found, if every file is still there in its size."""
    try:
        listed = json.loads(_list_path(version, cache).read_bytes())
        jars = [(cache / one["path"], one["size"]) for one in listed["jars"]]
        if all(path.stat().st_size == size for path, size in jars):
            return KafkaJars(version, tuple(path for path, _ in jars))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _fetch(version: str, cache: Path, progress: Progress, environ: Mapping[str, str]) -> KafkaJars:
    paths = _run_resolver(version, cache / "maven", progress, environ)
    listed = [{"path": str(path.relative_to(cache)), "size": path.stat().st_size} for path in paths]
    write_whole(_list_path(version, cache), json.dumps({"version": version, "jars": listed}, indent=1).encode())
    return KafkaJars(version, tuple(paths))


def _run_resolver(version: str, repository: Path, progress: Progress, environ: Mapping[str, str]) -> list[Path]:
    """Let a process of its own do it: jgo and its HTTP stay out of the tests' process and its warning filters."""
    if importlib.util.find_spec("jgo") is None:
        raise DownloadError("Kafka's jars are fetched by the package jgo: pip install 'aioproducer[testing]'")
    task = {"version": version, "repository": str(repository), "url": environ.get("AIOPRODUCER_MAVEN_URL")}
    script = Path(__file__).with_name("_resolve.py")
    # -P keeps the script's own directory from the import path: its files would hide packages of the same name.
    command = [sys.executable, "-P", "-W", "ignore", str(script), json.dumps(task)]
    tail: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(environ)
    ) as process:
        try:
            assert process.stdout
            for line in process.stdout:
                message = _message(line)
                if "jars" in message:
                    return [Path(path) for path in message["jars"]]
                if "progress" in message:
                    progress(message["progress"])
                else:
                    tail.append(message.get("error", line.strip()))
        except BaseException:
            process.kill()
            raise
    raise DownloadError(
        f"Kafka {version} could not be downloaded: {' | '.join(tail[-5:]) or 'no answer'}. The jars come from Maven "
        f"Central, or from the repository that AIOPRODUCER_MAVEN_URL names, and are kept in {repository.parent}."
    )


def _message(line: str) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
