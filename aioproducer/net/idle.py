"""IdleTimer: ends connections unused for ``connections_max_idle_ms``."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from aioproducer.net.connection import Connection


class IdleTimer:
    """One timer for all connections; it runs while there are any.

    Args:
        max_idle_ms: how long a connection may be idle; negative means forever.
        connections: a live view of the open ones.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_idle_ms: int, connections: Collection[Connection]) -> None:
        self._loop = loop
        self._max_idle_ms = max_idle_ms
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False

    def watch(self) -> None:
        """Set the timer for the first connection that may become idle for too long; call it for each new one."""
        if self._max_idle_ms >= 0 and self._timer is None and self._connections and not self._ended:
            oldest_ms = min(connection.last_used_ms for connection in self._connections)
            self._timer = self._loop.call_at((oldest_ms + self._max_idle_ms + 1) / 1000, self._close_idle)

    def end(self) -> None:
        """Stop watching."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def _close_idle(self) -> None:
        self._timer = None
        limit_ms = self._now_ms() - self._max_idle_ms
        for connection in list(self._connections):
            if connection.last_used_ms <= limit_ms:
                if connection.in_flight_count:
                    connection.last_used_ms = self._now_ms()  # it waits for an answer, so it is in use
                else:
                    connection.abort()
        self.watch()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
