"""Lookups: at most one per key at a time, shared by all callers that wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from typing import Any, Generic, TypeVar

from aioproducer.errors import SerializationError
from aioproducer.patient_timer import PatientTimeout

Found = TypeVar("Found")


class LookupsClosedError(SerializationError):
    """The lookup was cancelled because the last producer it was for has closed."""


class Lookups(Generic[Found]):
    """Runs lookups as separate tasks, so that one caller's cancellation does not affect the others.

    A lookup belongs to the loop it was begun in; a caller in another loop begins its own. A failure is remembered for
    a while and raised at once, so that a thousand records with a refused schema ask only once.

    Args:
        failure_hold_s: how long a failure is remembered.
    """

    def __init__(self, failure_hold_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._failure_hold_s = failure_hold_s
        self._clock = clock
        self._tasks: dict[tuple[asyncio.AbstractEventLoop, Hashable], asyncio.Task[Found]] = {}
        self._failures: dict[Hashable, tuple[float, BaseException]] = {}

    def failure(self, key: Hashable) -> BaseException | None:
        """Why the last lookup failed, if that was recent."""
        held = self._failures.get(key)
        if held is None:
            return None
        until, error = held
        if self._clock() >= until:
            del self._failures[key]
            return None
        return error

    def begin(self, key: Hashable, look_up: Callable[[], Coroutine[Any, Any, Found]]) -> asyncio.Task[Found]:
        """The running loop's lookup in progress, or a new one."""
        loop = asyncio.get_running_loop()
        for left in [other for other in self._tasks if other[0].is_closed()]:
            del self._tasks[left]  # its loop ended during the lookup
        task = self._tasks.get((loop, key))
        if task is None:
            task = loop.create_task(look_up(), name="aioproducer schema lookup")
            self._tasks[loop, key] = task
            task.add_done_callback(lambda done: self._ended(loop, key, done))
        return task

    def _ended(self, loop: asyncio.AbstractEventLoop, key: Hashable, task: asyncio.Task[Found]) -> None:
        self._tasks.pop((loop, key), None)
        # Reading the exception also keeps asyncio from reporting it when nobody waits any more.
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._failures.pop(key, None)
        else:
            now = self._clock()
            for other in [other for other, (until, _) in self._failures.items() if now >= until]:
                del self._failures[other]  # it may never be asked for again
            self._failures[key] = now + self._failure_hold_s, error

    async def wait(
        self, key: Hashable, look_up: Callable[[], Coroutine[Any, Any, Found]], timeout_s: float
    ) -> Found | None:
        """The result of the lookup; None if it has not ended in time (it continues).

        Raises:
            LookupsClosedError: it was cancelled.
            Exception: what it raised, now or recently. All waiters get the same object: wrap it in a new error.
        """
        error = self.failure(key)
        if error is not None:
            raise error
        task = self.begin(key, look_up)
        loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            async with PatientTimeout(loop, (loop.time() + timeout_s) * 1000):
                await asyncio.wait((task,))
        if not task.done():
            return None
        if task.cancelled():
            raise LookupsClosedError("given up, because the producer was closed")
        return task.result()

    async def cancel(self) -> None:
        """Cancel the lookups of the running loop."""
        loop = asyncio.get_running_loop()
        tasks = [task for (its_loop, _), task in self._tasks.items() if its_loop is loop]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
