"""The rejects file: every row not certainly in Kafka, with the reason, as JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from aioproducer.cli.outcome import CommandError
from aioproducer.cli.produce.rows import Row

STDOUT = Path("-")


class Rejects:
    """Writes the failed rows of one run.

    An object has ``line_number``, ``error``, and ``line``, the original text (``line_base64`` if it is not UTF-8);
    ``maybe_written`` is true if the record may still be in Kafka, so sending it again could duplicate it.

    The file belongs to this run: an existing one is replaced, and it is removed at the end if nothing failed. ``-``
    means standard output.

    Raises:
        CommandError: the file can't be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.problem: str | None = None
        """Why rows are missing in the file; None if none are."""
        try:
            standard = _standard_stream(path)
            self._is_own = standard is None
            self._file = standard or path.open("w", encoding="utf-8")
        except OSError as error:
            raise CommandError(f"the rejects file {path} can't be written: {error.strerror}") from error

    def write(self, row: Row, error: str, *, maybe_written: bool = False) -> None:
        """Add a row. A full disk does not end the run: good rows still go to Kafka."""
        self._write({"line_number": row.line_number, "error": error, **_original(row.original)}, maybe_written)

    def write_row(self, number: int, error: str, *, maybe_written: bool = False) -> None:
        """Add a row of a file without lines, by its number, counted from 1."""
        self._write({"row_number": number, "error": error}, maybe_written)

    def _write(self, entry: dict[str, Any], maybe_written: bool) -> None:
        self.count += 1
        if maybe_written:
            entry["maybe_written"] = True
        with self._noting_problems():
            self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def close(self) -> None:
        """Complete the file, or remove it if nothing failed. A second call has no effect."""
        with self._noting_problems():
            self._file.close()
        # /dev/stderr and the like stay: they are links, perhaps to a file.
        if self._is_own and not self.count and self.path.is_file() and not self.path.is_symlink():
            with suppress(OSError):  # an empty file in a directory that may not be changed does not make a run fail
                self.path.unlink()

    @contextmanager
    def _noting_problems(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.problem = error.strerror

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _standard_stream(path: Path) -> TextIO | None:
    """Standard output or error, if the path means it: opened anew, a file behind it would lose what it has."""
    for number in (1, 2):
        with suppress(OSError):
            if path == STDOUT or os.path.samestat(os.fstat(number), path.stat()):
                return os.fdopen(os.dup(number), "w", encoding="utf-8")
    return None


def _original(line: bytes) -> dict[str, str]:
    try:
        return {"line": line.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"line_base64": b64encode(line).decode()}
