"""MemoryQueue: who waits for room in the buffer, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class MemoryQueue:
    """Lets the callers that found the buffer full try again one after the other, in the order of their arrival.

    Only the first in the queue tries, whenever memory has come back; the others wait for it to leave, served, timed out
    or cancelled. So a large record can't starve: what is freed adds up until its turn succeeds, because nobody
    else takes any meanwhile.

    Args:
        on_change: called with whether anybody waits, when that changes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[bool], None]) -> None:
        self._loop = loop
        self._on_change = on_change
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._refusal: BaseException | None = None

    def __len__(self) -> int:
        return len(self._waiters)

    async def take_turn(self, attempt: Callable[[], T | None], deadline_ms: float) -> T | None:
        """Queue up, then repeat ``attempt`` as memory comes back until it returns something else than None.

        Returns None if that has not happened by ``deadline_ms`` of the loop's clock. Cancelled: leaves the queue.
        """
        ticket = self._join()
        timer = self._loop.call_at(deadline_ms / 1000, _give_up, ticket)
        try:
            while True:
                await ticket
                if self._refusal is not None:
                    raise self._refusal
                # Whoever times out behind others must not help himself before them.
                result = attempt() if self._waiters[0] is ticket else None
                if result is not None or self._loop.time() * 1000 >= deadline_ms:
                    return result
                ticket = self._renew(ticket)
                timer.cancel()
                timer = self._loop.call_at(deadline_ms / 1000, _give_up, ticket)
        finally:
            timer.cancel()
            self._leave(ticket)

    def memory_freed(self) -> None:
        """Let the first in the queue try."""
        if self._waiters and not self._waiters[0].done():
            self._waiters[0].set_result(None)

    def refuse_all(self, error: BaseException) -> None:
        """End every wait, now and later, with an error."""
        self._refusal = error
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _join(self) -> asyncio.Future[None]:
        ticket = self._loop.create_future()
        if self._refusal is not None:
            ticket.set_result(None)
        self._waiters.append(ticket)
        if len(self._waiters) == 1:
            self._on_change(True)
        return ticket

    def _renew(self, ticket: asyncio.Future[None]) -> asyncio.Future[None]:
        """A fresh future in the place of one that has fired."""
        at = self._waiters.index(ticket)
        self._waiters[at] = self._loop.create_future()
        return self._waiters[at]

    def _leave(self, ticket: asyncio.Future[None]) -> None:
        was_first = self._waiters[0] is ticket
        self._waiters.remove(ticket)
        if not self._waiters:
            self._on_change(False)
        elif was_first:
            self.memory_freed()


def _give_up(ticket: asyncio.Future[None]) -> None:
    if not ticket.done():
        ticket.set_result(None)
