"""WriteBuffer: bytes written to a connection that have not gone to the system.

A request that gets no answer (``acks=0``) is in flight until the transport has no bytes left. A task waits for that
while there is such a request. Where no event reports it, the task polls: with TLS, for the transport below; and after
``writelines`` in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1, whose transports don't count as full then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioproducer.net.deadlines import Deadlines

LOOK_AGAIN_S = 0.005
"""How often to check whether a transport is empty of which no event reports that."""


def _nothing() -> None:
    pass


class WriteBuffer:
    """The buffers of a connection's transports, and the requests that wait for them to be empty.

    Args:
        transport: the socket's own; with TLS the writer has another one above it.
        on_empty: called when everything has been written.
        on_cancelled: called if somebody cancels the polling task.
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
        """The number of requests without an answer that may not have left the process."""
        self.task: asyncio.Task[None] | None = None
        self._loop = loop
        self._writer = writer
        self._transport = transport
        self._deadlines = deadlines
        self._on_empty = on_empty
        self._on_cancelled = on_cancelled
        self._ended = False
        # With limit 0 the transport counts as full whenever it holds anything, so drain() waits until it is empty.
        writer.transport.set_write_buffer_limits(0)

    @property
    def _unsent_bytes(self) -> int:
        """Bytes that have not gone to the system; TLS passes encrypted bytes on to the socket's transport."""
        unsent = self._writer.transport.get_write_buffer_size()
        if self._writer.transport is not self._transport:
            unsent += self._transport.get_write_buffer_size()
        return unsent

    def count_until_empty(self, deadline_ms: int, connection: object) -> None:
        """A request that gets no answer was written: count it, unless it has already gone to the system.

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
            self.task.add_done_callback(lambda task: self._on_cancelled() if task.cancelled() else None)

    def end(self) -> None:
        """The connection ends, and its bytes with it: forget the requests, and release the owner."""
        self._ended = True
        self.requests = 0
        self._on_empty = self._on_cancelled = _nothing

    async def _drain(self) -> None:
        turns: list[None] = []
        try:
            while not self._ended and self._unsent_bytes:
                turns.clear()
                self._loop.call_soon(turns.append, None)
                await self._writer.drain()
                if not turns:  # it returned at once, although there are bytes left
                    await asyncio.sleep(LOOK_AGAIN_S)
        except OSError:
            return  # the reader sees the same end and reports it
        if not self._ended:
            self.requests = 0
            self._deadlines.writing_ms = None
            self._on_empty()
