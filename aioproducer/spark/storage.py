"""Small files that outlive the driver, on any file system that pyarrow supports."""

from __future__ import annotations

import copy
import os
import re
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlparse

from pyarrow import fs

from aioproducer.errors import ConfigError

LOCAL_URI = re.compile(r"^file:(//[^/]*)?", re.IGNORECASE)
"""The part before the path in a local file's URI."""


SECRETS = re.compile(r"[a-z0-9+.-]+://(?:[^:]*:(.*)@)?[^?]*(?:\?(.*))?", re.IGNORECASE | re.DOTALL)
"""In a URI, what may be secret: the password before an @, and the options after a ?, such as a token."""

HADOOP_SCHEMES = ("hdfs:", "viewfs:")
HADOOP_HINT = (
    ". pyarrow uses Hadoop's own client: the driver's environment needs JAVA_HOME, HADOOP_HOME (or ARROW_LIBHDFS_DIR, "
    "where libhdfs.so is), and in CLASSPATH what `hadoop classpath --glob` prints"
)

HADOOP_CONFIGS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Where Spark looks for core-site.xml, in its order; each may be several directories. The first file counts.
Source: AbstractCommandBuilder.buildClassPath."""

DEFAULT_FILE_SYSTEM = ("fs.defaultFS", "fs.default.name")
"""The property, and its old name, which Hadoop still takes."""


class Storage:
    """The files of one directory, each written once, atomically.

    Args:
        location: a path, or a URI such as ``file:/...``, ``hdfs://...``, ``s3://...``; the directory need not exist.
        option: the option that gave it, for errors.
    Raises:
        ConfigError: there is no such file system.
    """

    def __init__(self, location: str, option: str = "transactionLog") -> None:
        self._fs, self._directory = _file_system(location, option)
        self._option = option
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)

    def names(self) -> list[str]:
        """The complete files, sorted; none if the directory does not exist."""
        # If a missing directory is allowed, pyarrow takes one of HDFS that it can't list for missing: claims and
        # records would be overlooked. If it is not, Google's object store has no error of its own for it.
        selector = fs.FileSelector(self._directory, allow_not_found=self._fs.type_name != "hdfs")
        try:
            infos = self._fs.get_file_info(selector)
        except FileNotFoundError:
            return []
        found = [info.base_name for info in infos if info.type == fs.FileType.File]
        return sorted(name for name in found if not _is_part(name))

    def under(self, path: str) -> Self:
        """The files of a directory in this one; they are not among this one's names."""
        inner = copy.copy(self)
        inner._directory = self.path(path)
        return inner

    def read(self, name: str) -> bytes:
        """A file's content.

        Raises:
            FileNotFoundError: it is not there.
        """
        with self._fs.open_input_stream(self.path(name)) as stream:
            return bytes(stream.readall())

    def write(self, name: str, data: bytes) -> None:
        """Write a file; when this returns it survives a crash of the machine, and nobody ever sees part of it.

        Raises:
            ConfigError: files can't be renamed there.
        """
        self._make_directory()
        part = self.path(f".{name}.{uuid.uuid4().hex}.part")
        try:
            self._write_and_rename(part, self.path(name), data)
        except (OSError, ConfigError):
            with suppress(OSError):
                self._fs.delete_file(part)
            raise

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        try:
            self._fs.delete_file(self.path(name))
        except OSError:
            # HDFS and Google's object store don't raise FileNotFoundError for a missing file.
            if name in self.names():
                raise
            return
        if self._is_local:
            self._sync_directory()

    def path(self, name: str) -> str:
        """The location of a file of this name."""
        return f"{self._directory}/{name}"

    def _make_directory(self) -> None:
        if not self._is_local:
            self._fs.create_dir(self._directory, recursive=True)
            return
        directory = Path(self._directory)
        new = [one for one in (directory, *directory.parents) if not one.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        for one in new:
            _sync(one.parent)

    def _write_and_rename(self, part: str, path: str, data: bytes) -> None:
        if self._is_local:
            with open(part, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
            self._sync_directory()
        else:
            with self._fs.open_output_stream(part) as stream:
                stream.write(data)
            self._move(part, path)

    def _move(self, part: str, path: str) -> None:
        try:
            self._fs.move(part, path)
        except NotImplementedError as error:
            raise ConfigError(f"{self._directory} can't be used: {error}; option {self._option}") from error

    def _sync_directory(self) -> None:
        _sync(Path(self._directory))


def _sync(directory: Path) -> None:
    """Sync a directory: only then is a file created, renamed or removed in it durably so."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def resolved(location: str, option: str) -> str:
    """A location with one meaning in every process of a query: an absolute local path, or a URI.

    Without a scheme it is where Spark would look: on the default file system of Hadoop's configs, if the environment
    says where these are.

    Raises:
        ConfigError: its file system is unknown.
    """
    path = LOCAL_URI.sub("", location)
    if _has_scheme(path, option):
        return path.rstrip("/")
    default = None if path != location else _default_file_system()
    if default is None or LOCAL_URI.match(default):
        return str(Path(path).absolute())
    if not path.startswith("/"):
        raise ConfigError(f"{location} is relative, and the default file system is {default}: option {option}")
    return default.rstrip("/") + path.rstrip("/")


def _has_scheme(location: str, option: str) -> bool:
    try:
        return bool(urlparse(location).scheme)
    except ValueError as error:
        raise _unusable(location, str(error), option) from None


def _unusable(location: str, why: str, option: str, hint: str = "") -> ConfigError:
    """The error for a location. Its cause would tell the secrets in it."""
    text = f"{location} can't be used: {why}; option {option}{hint}"
    found = SECRETS.fullmatch(location)
    if found is not None:
        for secret, shown in ((f":{found[1]}@", ":***@"), (f"?{found[2]}", "?***")):
            text = text.replace(secret, shown).replace(secret.replace("#", "%23"), shown)
    return ConfigError(text)


def _default_file_system() -> str | None:
    for variable in HADOOP_CONFIGS:
        for directory in os.environ.get(variable, "").split(os.pathsep):
            if directory and (file := Path(directory) / "core-site.xml").is_file():
                return _property(file, DEFAULT_FILE_SYSTEM)
    return None


def _property(file: Path, names: Collection[str]) -> str | None:
    """The value of a property; that of the last one, if it occurs again."""
    try:
        properties = ElementTree.parse(file).getroot().iter("property")
    except ElementTree.ParseError as error:
        raise ConfigError(f"{file} can't be read: {error}") from error
    found = [one.findtext("value", "").strip() for one in properties if one.findtext("name", "").strip() in names]
    return found[-1] if found else None


def _is_part(name: str) -> bool:
    """Whether it is a partial file that a crash may have left; Spark ignores files whose name begins with a dot."""
    return name.startswith(".") and name.endswith(".part")


def _file_system(location: str, option: str) -> tuple[fs.FileSystem, str]:
    # Hadoop writes file:/path, with one slash, which pyarrow rejects; to Hadoop ?, # and % are ordinary characters.
    path = LOCAL_URI.sub("", location)
    if not _has_scheme(path, option):
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        # pyarrow would cut the path at a #, an ordinary character to Hadoop; options after a ? are for pyarrow.
        found, path = fs.FileSystem.from_uri(location.replace("#", "%23"))
    except (ValueError, OSError) as error:
        why = str(error).partition("\n")[0]  # then comes a list of dozens of places
        hint = HADOOP_HINT if location.lower().startswith(HADOOP_SCHEMES) else ""
        raise _unusable(location, why, option, hint) from None
    return found, path.rstrip("/")
