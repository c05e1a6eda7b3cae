"""HeadStart: for how long a request that brings new partitions to a transaction goes before the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioproducer.transaction.partitions import BROKER_WAITS_MS


class HeadStart:
    """The head start of the latest such request.

    Args:
        over: called at the end of a head start if somebody has asked for it; perhaps once too often.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, over: Callable[[], None]) -> None:
        self._loop = loop
        self._over = over
        self._ends_s = loop.time()
        self._timer: asyncio.TimerHandle | None = None

    def give(self) -> None:
        """A request begins."""
        self._ends_s = self._loop.time() + BROKER_WAITS_MS / 1000

    def is_over(self) -> bool:
        """Whether it has passed; if not, ``over`` will be called when it has."""
        if self._loop.time() >= self._ends_s:
            return True
        if self._timer is None:
            self._timer = self._loop.call_at(self._ends_s, self._timer_fired)
        return False

    def _timer_fired(self) -> None:
        self._timer = None
        self._over()
