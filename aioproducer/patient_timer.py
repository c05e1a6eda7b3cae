"""PatientTimer and PatientTimeout: time limits that blame nobody else for the time in which the loop was held up.

After the loop was blocked, or the process stopped, a timer may fire before what came meanwhile has been read: a loop
runs its timers before it polls the sockets, or in the turn that polls them, while the readers have their turn only
after that. So a timer that fires late looks again a moment later before anybody is told that time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

LATE_MS = 100
"""A timer that fires this much too late was held up by the loop; it fires again after the same time, once."""


class PatientTimer:
    """Calls ``callback`` once ``at_ms`` on the loop's clock has passed; LATE_MS later if the loop was held up then.

    Attributes:
        at_ms: when it fires next, in milliseconds; not before it was made.
    """

    __slots__ = ("_callback", "_handle", "_loop", "at_ms")

    def __init__(self, loop: asyncio.AbstractEventLoop, at_ms: float, callback: Callable[[], None]) -> None:
        self.at_ms = max(at_ms, int(loop.time() * 1000))
        self._loop = loop
        self._callback = callback
        self._handle = self._handle_for(self._check)

    def cancel(self) -> None:
        """Never call back, unless that has happened."""
        self._handle.cancel()

    def _handle_for(self, callback: Callable[[], None]) -> asyncio.TimerHandle:
        # A millisecond later, so that rounding can't fire it before the time has passed.
        return self._loop.call_at((self.at_ms + 1) / 1000, callback)

    def _check(self) -> None:
        now_ms = int(self._loop.time() * 1000)
        if now_ms < self.at_ms + LATE_MS:
            self._callback()
        else:
            self.at_ms = now_ms + LATE_MS
            self._handle = self._handle_for(self._callback)


class PatientTimeout:
    """Like ``asyncio.timeout_at``; it ends the block LATE_MS later if the loop was held up.

    Args:
        at_ms: on the loop's clock; None means no limit.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, at_ms: float | None) -> None:
        self._loop = loop
        self._at_ms = at_ms
        self._scope = asyncio.timeout(None)
        self._timer: PatientTimer | None = None

    def expired(self) -> bool:
        """Whether a TimeoutError out of the block is this one's."""
        return self._scope.expired()

    def reschedule(self, at_ms: float) -> None:
        """End the block at another time; without effect if it is being ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = PatientTimer(self._loop, at_ms, self._expire)

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()
        if self._at_ms is not None:
            self.reschedule(self._at_ms)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # it refers to this
        await self._scope.__aexit__(kind, error, traceback)

    def _expire(self) -> None:
        if not self._scope.expired():
            self._scope.reschedule(self._loop.time())
