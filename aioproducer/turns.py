"""Turns: lets bulk calls share the event loop with everything else, and with each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

WOKEN_A_TURN = 16
"""The most waiting calls that go on in one turn; any more would find its millisecond used up."""


class Turns:
    """Makes calls that admit many records wait for the loop's next turn.

    Together they have a millisecond of each turn. A call that finds it used up keeps its place in the queue, so none
    starves.

    Args:
        begun: called when a turn begins, before any call goes on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, begun: Callable[[], None]) -> None:
        self._loop = loop
        self._begun = begun
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._last_ticket = 0
        self._coming = False

    async def next(self, ticket: int | None = None) -> int:
        """Wait for the next turn; returns a ticket.

        Args:
            ticket: the one of the last wait, if nothing could be done after it.
        """
        if ticket is None:
            self._last_ticket += 1
            ticket = self._last_ticket
        if not self._coming:
            self._coming = True
            try:
                await asyncio.sleep(0)  # alone: the cheapest way
            except BaseException:
                self._begin()
                raise
            if not self._waiting:
                self._begin()
                return ticket
            self._loop.call_soon(self._begin)  # no longer alone: in the order of the tickets
        waiter: asyncio.Future[None] = self._loop.create_future()
        heappush(self._waiting, (ticket, waiter))
        await waiter
        return ticket

    def _begin(self) -> None:
        self._coming = False
        self._begun()
        for _ in range(min(len(self._waiting), WOKEN_A_TURN)):
            _, waiter = heappop(self._waiting)
            if not waiter.done():
                waiter.set_result(None)
        if self._waiting:
            self._coming = True
            self._loop.call_soon(self._begin)
