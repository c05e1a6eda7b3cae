"""The bytes of a file, a pipe or a terminal, line by line, with an interruptible read."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from io import BytesIO, FileIO
from types import TracebackType
from typing import NamedTuple, Self

from aioproducer.cli.outcome import CommandError

CHUNK_BYTES = 256 * 1024
"""Most bytes per read; a pipe gives what it has."""
LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""A file with no line end for this long is not made of lines."""


class Line(NamedTuple):
    """One line: its number, counted from 1, and its bytes with the line end."""

    number: int
    raw: bytes


class Stopped(Exception):
    """``stop`` was called: there may be more to read, but it is not wanted."""


class LineSource:
    """Lines of an open file, read by one thread and stopped by any other.

    Args:
        file: unbuffered, so that a waiting read holds no Python lock. It is closed with this object.
    """

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._stop_read, self._stop_write = os.pipe()
        self.is_stopped = False
        self.bytes_read = 0
        self.size_bytes = os.fstat(file.fileno()).st_size or None
        """The size of a regular file; None for anything else."""

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they arrive.

        Raises:
            Stopped: at the next read, or during one that waits.
            OSError: reading failed.
        """
        while True:
            ready, _, _ = select.select([self._file.fileno(), self._stop_read], [], [])
            if self._stop_read in ready:
                raise Stopped
            chunk = self._file.read(CHUNK_BYTES)
            if not chunk:
                return
            self.bytes_read += len(chunk)
            yield chunk

    def stop(self) -> None:
        """End reading; a second call has no effect."""
        if not self._file.closed:
            self.is_stopped = True
            os.write(self._stop_write, b"x")

    def close(self) -> None:
        """Close the file."""
        if not self._file.closed:
            os.close(self._stop_read)
            os.close(self._stop_write)
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def split_lines(chunks: Iterator[bytes]) -> Iterator[Line]:
    r"""Split bytes at every ``\n``; the rest after the last one is a line too.

    Raises:
        CommandError: a line has no end within 64 MiB.
    """
    number, pieces, held_bytes = 1, [], 0
    for chunk in chunks:
        # BytesIO splits only at \n; bytes.splitlines would also split at a lone \r.
        for piece in BytesIO(chunk):
            pieces.append(piece)
            held_bytes += len(piece)
            if piece.endswith(b"\n"):
                yield Line(number, b"".join(pieces))
                number, pieces, held_bytes = number + 1, [], 0
        if held_bytes > LONGEST_LINE_BYTES:
            raise CommandError(f"line {number} is longer than {LONGEST_LINE_BYTES:,} bytes; is this a file of lines?")
    if pieces:
        yield Line(number, b"".join(pieces))
