"""MemoryQueue: the callers that wait for room in the buffer, first come, first served."""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from aioproducer.patient_timer import PatientTimer

T = TypeVar("T")

SERVED_A_TURN = 500
"""Attempts per turn of the loop; each appends a record, so together they hold the loop for about a millisecond."""


class _Waiter:
    """One caller: its attempt, the future it waits for, and whether it is in the queue."""

    __slots__ = ("attempt", "queued", "served")

    def __init__(self, attempt: Callable[[], Any], served: asyncio.Future[Any]) -> None:
        self.attempt = attempt
        self.served = served
        self.queued = False


class MemoryQueue:
    """Serves the callers that found the buffer full one by one, in order of arrival.

    When memory comes back, only the first in the queue is tried; if it still can't have what it wants, all keep
    waiting. So a large record can't starve: nobody else takes memory, and what is freed adds up until its attempt
    succeeds.

    The queue makes the attempts in its own callback, for all callers that can be served, before any of them runs again.
    If each caller were woken to try by itself, those already served would return with their next record, behind callers
    that are still queued: a few busy callers would keep the queue going forever, at one record a turn of the loop, with
    the buffer empty.

    Args:
        on_change: called with whether anybody waits, when that changes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_change: Callable[[bool], None]) -> None:
        self._loop = loop
        self._on_change = on_change
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        """In order of arrival. Any of thousands may leave at any time, as when a web server's clients disconnect."""
        self._refusal: BaseException | None = None
        self._serving = False

    def __len__(self) -> int:
        return len(self._waiters)

    async def take_turn(self, attempt: Callable[[], T | None], deadline_ms: float) -> T | None:
        """Queue, and repeat ``attempt`` as memory comes back until it returns something other than None.

        Returns None if that has not happened by ``deadline_ms`` on the loop's clock. If cancelled, it leaves the queue;
        what was done by then stays done.
        """
        waiter = _Waiter(attempt, self._loop.create_future())
        self._join(waiter)
        timer = PatientTimer(self._loop, deadline_ms, partial(self._time_out, waiter))
        try:
            result: T | None = (await waiter.served)()
        finally:
            timer.cancel()
            self._leave(waiter)
        return result

    def memory_freed(self) -> None:
        """Serve the first in the queue in the next turn of the loop."""
        if self._waiters and not self._serving:
            self._serving = True
            self._loop.call_soon(self._serve)

    def refuse_all(self, error: BaseException) -> None:
        """End every wait, now and later, each with an error of its own."""
        self._refusal = error
        while self._waiters:
            self._end(self._first, _raising(copy.copy(error)))

    # --- serving ------------------------------------------------------------------------------------------------------

    @property
    def _first(self) -> _Waiter:
        return next(iter(self._waiters))

    def _serve(self) -> None:
        """Serve waiters in order until one has to keep waiting."""
        self._serving = False
        for _ in range(SERVED_A_TURN):
            if not self._waiters or not self._try(self._first):
                return
        self.memory_freed()

    def _try(self, waiter: _Waiter) -> bool:
        """Try one waiter; returns whether it has left the queue."""
        if waiter.served.done():  # cancelled, but has not run yet
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
        """A last try if it is first; a waiter that times out behind others must not be served before them."""
        if waiter.served.done() or (waiter is self._first and self._try(waiter)):
            return
        self._end(waiter, lambda: None)
        self.memory_freed()  # for the next one, which may want less

    # --- joining and leaving ------------------------------------------------------------------------------------------

    def _join(self, waiter: _Waiter) -> None:
        if self._refusal is not None:
            waiter.served.set_result(_raising(copy.copy(self._refusal)))
            return
        self._waiters[waiter] = None
        waiter.queued = True
        if len(self._waiters) == 1:
            self._on_change(True)

    def _end(self, waiter: _Waiter, outcome: Callable[[], Any]) -> None:
        """Take a waiter out of the queue and wake it; the waiter itself calls ``outcome``."""
        self._remove(waiter)
        if not waiter.served.done():
            waiter.served.set_result(outcome)

    def _leave(self, waiter: _Waiter) -> None:
        """The caller leaves, served or cancelled in the queue."""
        if waiter.queued:
            self._remove(waiter)
            self.memory_freed()

    def _remove(self, waiter: _Waiter) -> None:
        del self._waiters[waiter]
        waiter.queued = False
        if not self._waiters:
            self._on_change(False)


def _raising(error: BaseException) -> Callable[[], Any]:
    def outcome() -> Any:
        raise copy.copy(error)  # each caller's own: raising adds to the traceback

    return outcome
