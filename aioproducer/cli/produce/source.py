"""The bytes of a file, a pipe or a terminal, line by line, with a read that can be stopped."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from io import BytesIO, FileIO
from types import TracebackType
from typing import NamedTuple, Self

from aioproducer.cli.outcome import CommandError

CHUNK_BYTES = 256 * 1024
"""How much one read takes at most; a pipe gives what it has."""
LONGEST_LINE_BYTES = 64 * 1024 * 1024
"""A file that has no line end for so long is not made of lines."""


class Line(NamedTuple):
    """One line: its number, counted from 1, and its bytes with the line end."""

    number: int
    raw: bytes


class Stopped(Exception):
    """``stop`` was called: there may be more to read, but nobody wants it."""


class LineSource:
    """Lines of an open file, read by one thread and stopped by any other.

    Args:
        file: unbuffered, so that no lock of Python's is held while a read waits. It is closed with this object.
    """

    def __init__(self, file: FileIO) -> None:
        self._file = file
        self._stop_read, self._stop_write = os.pipe()
        self.bytes_read = 0
        self.size_bytes = os.fstat(file.fileno()).st_size or None
        """The size of a regular file, None for whatever has none."""

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they come.

        Raises:
            Stopped: at the next read, or in the middle of one that waits.
            OSError: the file can't be read on.
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
        """End the reading; a second call does nothing more."""
        if not self._file.closed:
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
    r"""Cut bytes at every ``\n``; what stands after the last one is a line too.

    Raises:
        CommandError: a line has no end within 64 MiB.
    """
    number, pieces, held_bytes = 1, [], 0
    for chunk in chunks:
        # BytesIO cuts at \n alone; bytes.splitlines would at a lone \r too.
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
