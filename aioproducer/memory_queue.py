"""MemoryQueue: the callers that wait for room in the buffer, first come, first served."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

SERVED_A_TURN = 500
"""Attempts a turn of the loop; each appends a record, so these hold it for about a millisecond."""


class _Waiter:
    """One caller: what it wants, the future that it waits for, and whether it stands in the queue."""

    __slots__ = ("attempt", "queued", "served")

    def __init__(self, attempt: Callable[[], Any], served: asyncio.Future[Any]) -> None:
        self.attempt = attempt
        self.served = served
        self.queued = False


class MemoryQueue:
    """Gives the callers that found the buffer full what they want one after the other, in the order of their arrival.

    Only the first in the queue is tried, whenever memory has come back; if it still can't have what it wants, all wait
    on. So a large record can't starve: what is freed adds up until its turn succeeds, because nobody else takes any
    meanwhile.

    The queue tries in its own callback, for all that can be served, and before any of them runs again. Were each caller
    woken to try by itself, those already served would be back with their next record, behind callers that still stand
    here: several that go on and on would keep a queue that never ends, one record a turn of the loop, with the buffer
    empty.

    Args:
        on_change: called with whether anybody waits, when that changes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[bool], None]) -> None:
        self._loop = loop
        self._on_change = on_change
        self._waiters: deque[_Waiter] = deque()
        self._refusal: BaseException | None = None
        self._serving = False

    def __len__(self) -> int:
        return len(self._waiters)

    async def take_turn(self, attempt: Callable[[], T | None], deadline_ms: float) -> T | None:
        """Queue up, and have ``attempt`` repeated as memory comes back until it returns something else than None.

        Returns None if that has not happened by ``deadline_ms`` of the loop's clock. Cancelled: leaves the queue; what
        has been done by then stays done.
        """
        waiter = _Waiter(attempt, self._loop.create_future())
        self._join(waiter)
        timer = self._loop.call_at(deadline_ms / 1000, self._time_out, waiter)
        try:
            result: T | None = (await waiter.served)()
        finally:
            timer.cancel()
            self._leave(waiter)
        return result

    def memory_freed(self) -> None:
        """Let the first in the queue have what they want, in the next turn of the loop."""
        if self._waiters and not self._serving:
            self._serving = True
            self._loop.call_soon(self._serve)

    def refuse_all(self, error: BaseException) -> None:
        """End every wait, now and later, each with an error of its own."""
        self._refusal = error
        while self._waiters:
            self._end(self._waiters[0], _raising(copy.copy(error)))

    # --- serving ------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Try for one after the other until one has to wait on."""
        self._serving = False
        for _ in range(SERVED_A_TURN):
            if not self._waiters or not self._try(self._waiters[0]):
                return
        self.memory_freed()

    def _try(self, waiter: _Waiter) -> bool:
        """Whether the waiter is out of the queue now."""
        if waiter.served.done():  # cancelled, and has not run yet
            self._remove(waiter)
            return True
        try:
            result = waiter.attempt()
        except Exception as error:  # the caller's own; the others go on
            self._end(waiter, _raising(error))
            return True
        if result is None:
            return False
        self._end(waiter, lambda: result)
        return True

    def _time_out(self, waiter: _Waiter) -> None:
        """A last try for the first; whoever times out behind others must not be served before them."""
        if waiter.served.done() or (waiter is self._waiters[0] and self._try(waiter)):
            return
        self._end(waiter, lambda: None)
        self.memory_freed()  # for the next one, which may want less

    # --- in and out ---------------------------------------------------------------------------------------------------

    def _join(self, waiter: _Waiter) -> None:
        if self._refusal is not None:
            waiter.served.set_result(_raising(copy.copy(self._refusal)))
            return
        self._waiters.append(waiter)
        waiter.queued = True
        if len(self._waiters) == 1:
            self._on_change(True)

    def _end(self, waiter: _Waiter, outcome: Callable[[], Any]) -> None:
        """Take a waiter out of the queue and let it go on; an outcome is called by the waiter itself."""
        self._remove(waiter)
        if not waiter.served.done():
            waiter.served.set_result(outcome)

    def _leave(self, waiter: _Waiter) -> None:
        """The caller goes: served, or cancelled in the queue."""
        if waiter.queued:
            self._remove(waiter)
            self.memory_freed()

    def _remove(self, waiter: _Waiter) -> None:
        self._waiters.remove(waiter)
        waiter.queued = False
        if not self._waiters:
            self._on_change(False)


def _raising(error: BaseException) -> Callable[[], Any]:
    def outcome() -> Any:
        raise copy.copy(error)  # each caller's own: raising adds to the traceback

    return outcome
