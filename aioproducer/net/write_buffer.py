"""WriteBuffer: what was written to a connection and has not gone to the system.

A request that gets no answer (``acks=0``) is in flight until the transport has no bytes left. No event tells that of
the transport under TLS, so a task looks, while there is such a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioproducer.net.deadlines import Deadlines

LOOK_AGAIN_S = 0.005
"""How often to look whether the transport under TLS is empty, which no event tells."""


def _nothing() -> None:
    pass


class WriteBuffer:
    """The buffers of a connection's transports, and the requests that wait for them to be empty.

    Args:
        transport: the socket's own; under TLS the writer has another one above it.
        on_empty: called when all of it has been written.
        on_cancelled: called if somebody cancels the task that looks.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        writer: asyncio.StreamWriter,
        transport: asyncio.WriteTransport,
        *,
        deadlines: Deadlines,
        on_empty: Callable[[], None],
        on_cancelled: Callable[[], None],
    ) -> None:
        self.requests = 0
        """Those without an answer that may not have left the process."""
        self.task: asyncio.Task[None] | None = None
        self._loop = loop
        self._writer = writer
        self._transport = transport
        self._deadlines = deadlines
        self._on_empty = on_empty
        self._on_cancelled = on_cancelled
        self._ended = False
        # With no slack the transport calls itself full whenever it holds anything, so drain() tells when it is empty.
        writer.transport.set_write_buffer_limits(0)

    @property
    def _unsent_bytes(self) -> int:
        """What has not gone to the system; TLS passes on to the socket's transport what it has encrypted."""
        unsent = self._writer.transport.get_write_buffer_size()
        if self._writer.transport is not self._transport:
            unsent += self._transport.get_write_buffer_size()
        return unsent

    def count_until_empty(self, deadline_ms: int, connection: object) -> None:
        """A request that gets no answer was written: count it, unless it has gone to the system already.

        Args:
            connection: names the task.
        """
        if not self._unsent_bytes:
            return
        if not self.requests:
            self._deadlines.writing_ms = deadline_ms
            self._deadlines.watch(deadline_ms)
        self.requests += 1
        if self.task is None or self.task.done():
            self.task = self._loop.create_task(self._drain(), name=f"aioproducer drain of {connection}")

    def end(self) -> None:
        """The connection ends, and what it holds goes with it; lets go of whom it is for."""
        self._ended = True
        self.requests = 0
        self._on_empty = self._on_cancelled = _nothing

    async def _drain(self) -> None:
        try:
            while not self._ended and self._unsent_bytes:
                await self._writer.drain()
                # Frames may have been added since the transport ran dry. Transports differ in when they call
                # themselves full, so never go round without giving the loop a turn.
                await asyncio.sleep(LOOK_AGAIN_S if self._writer.transport is not self._transport else 0)
        except OSError:
            return  # the reader meets the same end and tells everybody
        except asyncio.CancelledError:
            self._on_cancelled()
            raise
        if not self._ended:
            self.requests = 0
            self._deadlines.writing_ms = None
            self._on_empty()
