"""TransactionCalls: runs the transaction calls of a producer one after the other.

Theory of operation. Each call that has to ask a broker runs in a task of the producer. The caller waits for the task,
for at most ``max_block_ms``; if the caller is cancelled or out of time, the task goes on without it. The next call
first waits for that task, and if it is the same call again, it takes over the task's outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from aioproducer.client_logger import ClientLogger
from aioproducer.errors import KafkaError
from aioproducer.patient_timer import PatientTimeout

SHARED = frozenset({"prepare_transaction", "commit_transaction", "abort_transaction"})
"""Calls whose outcome the next call takes over if it is the same."""


class TransactionCalls:
    """The calls of one producer.

    Args:
        timed_out: makes the error, with its cause, for a call that has not ended in time, from its name and the time
            at which the wait began.
        cut_short: makes the error for a call whose task broke off.
        on_end: called when a task has ended, before its caller has its turn.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        timed_out: Callable[[str, int], KafkaError],
        cut_short: Callable[[str], KafkaError],
        on_end: Callable[[asyncio.Task[Any]], None],
        logger: ClientLogger,
    ) -> None:
        self._loop = loop
        self._timed_out = timed_out
        self._cut_short = cut_short
        self._on_end = on_end
        self._logger = logger
        self._latest: tuple[str, asyncio.Task[Any]] | None = None

    @property
    def latest(self) -> asyncio.Task[Any] | None:
        """The latest call, until its caller has its outcome or another call replaces it."""
        return self._latest[1] if self._latest is not None else None

    def forget_latest(self) -> None:
        """Forget the latest call: nobody wants its outcome any more."""
        self._latest = None

    async def turn(self, name: str, deadline_ms: int) -> asyncio.Task[Any] | None:
        """Wait for a call that was left behind or belongs to another task; returns its task if it is the same call.

        Raises:
            KafkaError: ``timed_out`` or ``cut_short``: the other call has not ended in time, or never will.
        """
        while self._latest is not None:
            left, task = self._latest
            is_same = left == name and name in SHARED
            if task.done() and not is_same:
                break
            try:
                await self._wait(left, task, deadline_ms, tells=is_same)
            except KafkaError as error:
                if not task.done() or broke_off(task):
                    raise  # the outcome is unknown
                if not is_same:
                    self._logger.info("%s(), which another call waited for, failed: %s", left, str(error))
            if is_same:
                return task
        return None

    async def run(self, name: str, work: Coroutine[Any, Any, Any], deadline_ms: int) -> Any:
        """Make a call whose turn has come; returns its result, or raises its error."""
        return await self._wait(name, self.start(name, work), deadline_ms, tells=True)

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a call whose turn has come; the next call waits for it."""
        task = self._loop.create_task(work, name=f"aioproducer {name}")
        task.add_done_callback(self._on_end)
        self._latest = name, task
        return task

    async def wait_for_latest(self, deadline_ms: int) -> None:
        """Wait for the latest call in place of its caller, and for those that had their turn before this one.

        Raises:
            KafkaError: that of the last of them, or ``timed_out``.
        """
        while self._latest is not None:
            name, task = self._latest
            try:
                await self._wait(name, task, deadline_ms, tells=True)
            except KafkaError:
                if self._latest is None or not task.done():
                    raise

    async def _wait(self, name: str, task: asyncio.Task[Any], deadline_ms: int, *, tells: bool) -> Any:
        """Wait for a call and return its outcome; if out of time or cancelled, leave the call behind.

        Args:
            tells: whether the outcome goes to the caller that made this call, or made it again.
        """
        began_ms = self._now_ms()
        with suppress(TimeoutError):
            async with PatientTimeout(self._loop, deadline_ms):
                await asyncio.wait([task])
        if not task.done():
            raise self._timed_out(name, began_ms)
        if tells and self._latest is not None and self._latest[1] is task:
            self._latest = None
        if broke_off(task):
            raise self._cut_short(name)
        return task.result()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


def broke_off(task: asyncio.Task[Any]) -> bool:
    """Whether a task has ended in the middle of its work: cancelled, or because of a bug.

    It also keeps asyncio from logging an error that nobody awaited because the call was cancelled.
    """
    return task.cancelled() or not isinstance(task.exception(), KafkaError | None)
