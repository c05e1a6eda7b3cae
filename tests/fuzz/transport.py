"""Transports without a socket."""

from __future__ import annotations

import asyncio
import struct
from typing import Any


class SilentTransport(asyncio.Transport):
    """Accepts all writes, and reports them as sent."""

    def __init__(self) -> None:
        super().__init__()
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    abort = close


class AnsweringTransport(SilentTransport):
    """Answers each write with the next of the given frames, and closes the connection when none is left."""

    def __init__(self, reader: asyncio.StreamReader, answers: bytes) -> None:
        super().__init__()
        self._reader = reader
        self._left = answers
        self._hung_up = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._hung_up:
            return
        size = struct.unpack_from(">i", self._left)[0] if len(self._left) >= 4 else -1
        whole = 0 <= size <= len(self._left) - 4
        frame = self._left[: 4 + size] if whole else self._left
        self._left = self._left[len(frame) :]
        self._reader.feed_data(frame)
        if not whole:
            self._hang_up()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        super().close()
        self._hang_up()

    abort = close

    def _hang_up(self) -> None:
        self._hung_up = True
        self._reader.feed_eof()
