"""Small files that survive the driver, on any file system that pyarrow knows."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from urllib.parse import urlparse

from pyarrow import fs

from aioproducer.errors import ConfigError

LOCAL_URI = re.compile(r"^file:(//[^/]*)?", re.IGNORECASE)
"""What stands before the path in the URI of a local file."""


class Storage:
    """The files of one directory, each written once and whole.

    Args:
        location: a path, or a URI such as ``file:/...``, ``hdfs://...``, ``s3://...``; the directory need not exist.
        option: that names it, for errors.
    Raises:
        ConfigError: there is no such file system.
    """

    def __init__(self, location: str, option: str = "transactionLog") -> None:
        self._fs, self._directory = _file_system(location, option)
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)

    def names(self) -> list[str]:
        """The files that are there whole, sorted."""
        selector = fs.FileSelector(self._directory, allow_not_found=True)
        found = [info.base_name for info in self._fs.get_file_info(selector) if info.type == fs.FileType.File]
        return sorted(name for name in found if not name.endswith(".part"))

    def read(self, name: str) -> bytes:
        """All of a file.

        Raises:
            FileNotFoundError: it is not there.
        """
        with self._fs.open_input_stream(self.path(name)) as stream:
            return bytes(stream.readall())

    def write(self, name: str, data: bytes) -> None:
        """Write a file; when this returns it outlives a crash of the machine, and nobody ever sees a part of it."""
        self._fs.create_dir(self._directory, recursive=True)
        part = self.path(f"{name}.{uuid.uuid4().hex}.part")
        if self._is_local:
            with open(part, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self.path(name))
            self._sync_directory()
        else:
            with self._fs.open_output_stream(part) as stream:
                stream.write(data)
            self._fs.move(part, self.path(name))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            self._fs.delete_file(self.path(name))
        except FileNotFoundError:
            return
        if self._is_local:
            self._sync_directory()

    def path(self, name: str) -> str:
        """Where a file of this name is."""
        return f"{self._directory}/{name}"

    def _sync_directory(self) -> None:
        # A renamed or removed file is durable when its directory is.
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _file_system(location: str, option: str) -> tuple[fs.FileSystem, str]:
    # Hadoop writes file:/path, with one slash, which pyarrow does not take; ?, # and % are letters of a name to it.
    path = LOCAL_URI.sub("", location)
    if not urlparse(path).scheme:
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        found, path = fs.FileSystem.from_uri(location)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{location} can't be used: {error}; option {option}") from error
    return found, path.rstrip("/")
