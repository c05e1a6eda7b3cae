"""The client's end of a simulated connection, as asyncio's own transports behave."""

from __future__ import annotations

import asyncio
from asyncio import transports
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

Data = bytes | bytearray | memoryview


class Wire(Protocol):
    """What a transport writes its bytes to."""

    def take(self, data: Data) -> int:
        """Copy as many bytes as there is room for; returns their number."""
        ...

    def client_ended(self) -> None:
        """The client has closed the connection."""
        ...


class MemoryTransport(transports._FlowControlMixin, asyncio.Transport):  # type: ignore[misc,name-defined]
    """Keeps bytes for which the wire has no room, and pauses its protocol meanwhile.

    Args:
        keeps_views: unsent data of ``writelines`` stays in the caller's memory, as from Python 3.12 on and in
            uvloop; otherwise it is copied, as before.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: Any, wire: Wire, peer: tuple[str, int], *, keeps_views: bool
    ) -> None:
        super().__init__({"peername": peer}, loop)
        self._protocol = protocol
        self._wire = wire
        self._keeps_views = keeps_views
        self._buffer: deque[memoryview] = deque()
        self._closing = False
        self._lost = False
        self._paused = False
        self._arrived: deque[Callable[[], None]] = deque()
        self.on_write: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<MemoryTransport to {self.get_extra_info('peername')}>"

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    # --- writing ------------------------------------------------------------------------------------------------------

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._buffer))

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: Data) -> None:
        self._write([memoryview(bytes(data))])

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        if self._keeps_views:
            self._write([memoryview(data) for data in list_of_data])
        else:
            self.write(b"".join(list_of_data))

    def _write(self, pieces: list[memoryview]) -> None:
        if self._closing:
            return
        self.on_write()
        self._buffer.extend(piece for piece in pieces if len(piece))
        self._hand_over()
        self._maybe_pause_protocol()

    def _hand_over(self) -> None:
        while self._buffer:
            piece = self._buffer[0]
            taken = self._wire.take(piece)
            if taken < len(piece):
                if taken:
                    self._buffer[0] = piece[taken:]
                return
            self._buffer.popleft()

    def has_room(self) -> None:
        """The wire accepts bytes again."""
        if self._lost or not self._buffer:
            return
        self._hand_over()
        self._maybe_resume_protocol()
        if self._closing and not self._buffer:
            self._end(None)

    # --- reading ------------------------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return not self._paused and not self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._deliver)

    def arrived(self, data: bytes) -> None:
        """Bytes came from the other end."""
        self._arrived.append(lambda: self._protocol.data_received(data))
        self._deliver()

    def ended(self) -> None:
        """The other end sends no more."""

        def end() -> None:
            if not self._protocol.eof_received():
                self.close()

        self._arrived.append(end)
        self._deliver()

    def _deliver(self) -> None:
        while self._arrived and not self._paused and not self._closing:
            self._arrived.popleft()()

    # --- the end ------------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._buffer:
                self._end(None)

    def abort(self) -> None:
        self._end(None)

    def reset(self) -> None:
        """The connection broke."""
        self._end(ConnectionResetError(104, "Connection reset by peer"))

    def _end(self, error: Exception | None) -> None:
        self._closing = True
        if self._lost:
            return
        self._lost = True
        self._buffer.clear()
        self._arrived.clear()
        self._wire.client_ended()
        self._loop.call_soon(self._protocol.connection_lost, error)
