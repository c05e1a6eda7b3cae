"""in_turn: a call to the cluster for each of maybe thousands of transactions, a few at a time.

A broker is sent only a few requests of a connection at once, so more calls would not end sooner. They would wait for
each other, each against a time limit that has begun already; with enough of them, none would end within it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from aioproducer.errors import TransactionTimeoutError

A = TypeVar("A")
T = TypeVar("T")

AT_ONCE = 16
"""Calls at once: enough for a handful of brokers, and few enough that one slow broker serves each in under a second."""


async def in_turn(call: Callable[[A], Awaitable[T]], of: Sequence[A]) -> list[T | Exception]:
    """Make a call for each of them, in order, AT_ONCE at a time; returns what each returned or raised.

    Once a call has run out of time, those that have not begun get its error: if each had to find out by itself that
    the cluster can't be reached, thousands would take hours.
    """
    ends: dict[int, T | Exception] = {}
    too_late: TransactionTimeoutError | None = None
    waiting = iter(enumerate(of))

    async def work() -> None:
        nonlocal too_late
        for place, one in waiting:  # each worker takes the next one
            if too_late is not None:
                ends[place] = too_late
                continue
            try:
                ends[place] = await call(one)
            except Exception as error:
                ends[place] = error
                if isinstance(error, TransactionTimeoutError):
                    too_late = error

    for died in await asyncio.gather(*(work() for _ in range(AT_ONCE)), return_exceptions=True):
        if died is not None:
            raise died
    return [ends[place] for place in range(len(of))]


async def all_in_turn(call: Callable[[A], Awaitable[T]], of: Sequence[A]) -> list[T]:
    """The same; raises the first error, once all have ended."""
    found: list[T] = []
    for end in await in_turn(call, of):
        if isinstance(end, Exception):
            raise end
        found.append(end)
    return found
