"""Deadline: a time limit for several steps, which may be shortened during a step."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable

from aioproducer.patient_timer import PatientTimeout

LONGEST_S = 1e9
"""Seconds that count as no limit: more than a loop can handle."""
SECONDS_OR_NONE = "seconds or None are needed"
"""For arguments where None means no limit."""


class Deadline:
    """Ends ``timeout`` seconds from now; None means no limit.

    Raises:
        TypeError, ValueError: ``timeout`` is not a number; nothing has changed.
    Attributes:
        at: seconds on the loop's clock; infinite without a limit.
        timeout: the value that set it, for messages.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float | None) -> None:
        self.at = math.inf
        self.timeout: float | None = None
        self._loop = loop
        self._least_s = 0.0
        self._step: PatientTimeout | None = None
        self.bring_forward(timeout)

    @property
    def left_s(self) -> float | None:
        """Seconds left; None without a limit."""
        return None if self.at == math.inf else max(0.0, self.at - self._loop.time())

    def bring_forward(self, timeout: float | None) -> None:
        """End it ``timeout`` seconds from now, unless it ends earlier anyway.

        Raises:
            TypeError, ValueError: as for the constructor.
        """
        seconds = LONGEST_S if timeout is None else in_seconds(timeout, "timeout", SECONDS_OR_NONE)
        if seconds == LONGEST_S:
            return
        at = self._loop.time() + max(seconds, self._least_s)
        if at < self.at:
            self.at, self.timeout = at, timeout
            if self._step is not None:
                self._step.reschedule(at * 1000)

    def leave(self, seconds: float) -> None:
        """Give the remaining steps at least this long, whatever is left."""
        self._least_s = seconds
        self.at = max(self.at, self._loop.time() + seconds)

    async def bound(self, step: Awaitable[object]) -> bool:
        """Wait for a step; False if time ran out first and the step was cancelled. One at a time."""
        scope = self._step = PatientTimeout(self._loop, None if self.at == math.inf else self.at * 1000)
        try:
            async with scope:
                await step
        except TimeoutError:
            if not scope.expired():
                raise
            return False
        finally:
            self._step = None
        return True


def in_seconds(value: float, name: str, needed: str = "seconds are needed") -> float:
    """A time as a float of at most LONGEST_S; if it is no number, raises a TypeError or ValueError that names it."""
    try:
        seconds = float(max(min(value, LONGEST_S), -LONGEST_S))  # NaN stays
    except TypeError:
        raise TypeError(f"{name} is a {type(value).__name__}; {needed}") from None
    if math.isnan(seconds):
        raise ValueError(f"{name} is not a number; {needed}")
    return seconds
