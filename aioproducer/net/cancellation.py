"""Tells the cancellation of the running task from that of something its code looked at."""

from __future__ import annotations

import asyncio


def is_own_cancellation(error: BaseException) -> bool:
    """Whether an error is a CancelledError because the running task itself was cancelled.

    Otherwise it comes from a future or task that somebody else cancelled, and that code of the program awaited or asked
    for its result. That is a failure of this code like any other: passed on, it would end calls without a trace, as a
    TaskGroup, for one, ignores it.
    """
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
