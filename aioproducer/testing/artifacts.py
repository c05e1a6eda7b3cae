"""Jars from a Maven repository, without Maven: fetched once and then found in the cache."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aioproducer.testing.cache import Progress, locked, write_whole
from aioproducer.testing.errors import DownloadError


@dataclass(frozen=True, slots=True)
class Artifacts:
    """Jars that belong together.

    Args:
        name: display name, such as ``Kafka 4.3.1``.
        key: names their list in the cache; must change with any other field.
        coordinates: ``group:artifact:version`` of each.
        dependencies: whether to fetch their dependencies too.
        left_out: ``group:artifact`` of unneeded dependencies.
        logger: whether to add the simplest back-end of slf4j, in the version that the jars use.
    """

    name: str
    key: str
    coordinates: tuple[str, ...]
    dependencies: bool = True
    left_out: tuple[str, ...] = ()
    logger: bool = False


def find_artifacts(wanted: Artifacts, cache: Path, progress: Progress, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The paths of the jars: from the cache, else downloaded into it.

    Any number of processes may call this at once.

    Raises:
        DownloadError: a jar can't be fetched or kept; the message has the last cause and names the setting of the
            repository or the cache.
    """
    found = _read_list(wanted, cache)
    if found is None:
        try:
            with locked(cache, progress):
                # Another process may have fetched them while we waited.
                found = _read_list(wanted, cache) or _fetch(wanted, cache, progress, environ)
        except OSError as error:
            raise DownloadError(
                f"{wanted.name} can't be kept in {cache}: {error}. AIOPRODUCER_CACHE names another directory."
            ) from error
    return found


def _list_path(wanted: Artifacts, cache: Path) -> Path:
    return cache / f"{wanted.key}.json"


def _read_list(wanted: Artifacts, cache: Path) -> tuple[Path, ...] | None:
    """The result of an earlier resolve, if every file is still there with its size."""
    listed = _listed(wanted, cache)
    return tuple(listed) if listed and all(map(_has_size, listed, listed.values())) else None


def _listed(wanted: Artifacts, cache: Path) -> dict[Path, int]:
    """The files of an earlier resolve with their sizes; empty if there was none."""
    try:
        listed = json.loads(_list_path(wanted, cache).read_bytes())
        return {cache / one["path"]: int(one["size"]) for one in listed["jars"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _fetch(wanted: Artifacts, cache: Path, progress: Progress, environ: Mapping[str, str]) -> tuple[Path, ...]:
    # jgo takes any file that exists, so a damaged one would stay, and its size would then be listed as the right one.
    for path, size in _listed(wanted, cache).items():
        if not _has_size(path, size):
            path.unlink(missing_ok=True)
    paths = _run_resolver(wanted, cache / "maven", progress, environ)
    listed = [{"path": str(path.relative_to(cache)), "size": path.stat().st_size} for path in paths]
    write_whole(_list_path(wanted, cache), json.dumps({"name": wanted.name, "jars": listed}, indent=1).encode())
    return tuple(paths)


def _run_resolver(wanted: Artifacts, repository: Path, progress: Progress, environ: Mapping[str, str]) -> list[Path]:
    """Resolve in a separate process: jgo and its HTTP stay out of the tests' process and its warning filters."""
    if importlib.util.find_spec("jgo") is None:
        raise DownloadError(
            f"the jars of {wanted.name} are fetched by the package jgo: pip install 'aioproducer[testing]'"
        )
    task = {**asdict(wanted), "repository": str(repository), "url": environ.get("AIOPRODUCER_MAVEN_URL")}
    script = Path(__file__).with_name("_resolve.py")
    # -P keeps the script's own directory off the import path: its files would shadow packages of the same name.
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
        f"{wanted.name} could not be downloaded: {' | '.join(tail[-5:]) or 'no answer'}. The jars come from Maven "
        f"Central, or from the repository that AIOPRODUCER_MAVEN_URL names, and are kept in {repository.parent}."
    )


def _message(line: str) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
