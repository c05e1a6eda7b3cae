"""Where Kafka's jars are kept between sessions, and how concurrent sessions share them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aioproducer.testing.errors import DownloadError

try:
    import fcntl
except ImportError:  # Windows, where KafkaCluster does not run
    fcntl = None  # type: ignore[assignment]

Progress = Callable[[str], None]
"""Takes one line about a slow step in progress."""


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Where everything is that survives a session: ``AIOPRODUCER_CACHE``, else ``aioproducer`` in the user's cache.

    Raises:
        DownloadError: neither is set, and the user has no home directory, as is common in containers.
    """
    chosen = environ.get("AIOPRODUCER_CACHE")
    base = environ.get("XDG_CACHE_HOME")
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        # The XDG specification wants relative paths ignored.
        root = Path(base) if base and os.path.isabs(base) else Path(environ.get("HOME") or Path.home()) / ".cache"
    except RuntimeError as error:
        raise DownloadError(
            f"no directory to keep downloads in: {error} AIOPRODUCER_CACHE names one by its full path."
        ) from error
    return root / "aioproducer"


@contextmanager
def locked(directory: Path, progress: Progress) -> Iterator[None]:
    """Lock the cache during the ``with`` block; the system releases the lock if this process dies.

    On Windows nobody waits: two processes may then download the same.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    with (directory / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that fills {directory}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_whole(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write a file so that a reader sees all of it or none, whoever else writes it at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not by a process id: two containers may share the cache, and two threads a process.
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        part.write_bytes(data)
        if mode is not None:
            part.chmod(mode)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
