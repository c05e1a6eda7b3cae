"""Closing: the end of a producer, step by step, within one deadline that later calls may bring forward.

    a start under way is ended -> admitted records are sent, or fail when the time is over -> the open transaction is
    aborted -> tasks and connections end -> failures are reported, done callbacks called -> serializers and
    interceptors are closed

Each step gets the time that is left. Three steps always get a little: the end of tasks, the callbacks, and the
``close`` of serializers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from aioproducer._producer_batch import ProducerBatch
from aioproducer.client_logger import ClientLogger
from aioproducer.deadline import Deadline
from aioproducer.engine import Engine
from aioproducer.errors import FlushTimeoutError, KafkaError, ProducerClosedError
from aioproducer.record_preparation import RecordPreparation
from aioproducer.refusals import closed

TOLD_AFTER_S = 5.0
"""A wait for records that lasts as long is told of: the process may be killed before it is over, and then nothing else
would tell of these records."""

LAST_CALLBACKS_S = 0.05
"""Time for the done callbacks of records that ``close`` failed, once the deadline has passed."""

LAST_TASKS_S = 0.05
"""Time for the producer's tasks to end then."""

LAST_SERIALIZERS_S = 0.02
"""Time for serializers to close then, and again after they are cancelled."""


class Closing:
    """The end of one producer; it begins at construction, in a task of its own.

    Args:
        engine: None if the producer was never started, or its loop has ended.
        starting: the task that runs ``start``.
        on_end: called when everything is over.
    """

    def __init__(
        self,
        engine: Engine | None,
        preparation: RecordPreparation,
        deadline: Deadline,
        *,
        starting: asyncio.Task[None] | None,
        on_end: Callable[[], object],
        logger: ClientLogger,
    ) -> None:
        self._logger = logger
        self._engine = engine
        self._preparation = preparation
        self._deadline = deadline
        self._starting = starting
        self._loop = asyncio.get_running_loop()
        self._has_begun = False
        # Not by create_task: an eager one would turn callers away before `wait` has registered its own.
        self._task = asyncio.Task(self._run(), loop=self._loop, name="aioproducer close")
        self._task.add_done_callback(self._ended)
        self._task.add_done_callback(lambda _: on_end())

    @property
    def is_over(self) -> bool:
        """Whether no part of the producer runs any more."""
        return self._task.done()

    @property
    def was_cut_off(self) -> bool:
        """Whether the loop was closed halfway through."""
        return self._loop.is_closed() and not self._task.done()

    def bring_forward(self, timeout: float | None) -> None:
        """End it ``timeout`` seconds from now, unless it ends earlier anyway."""
        self._deadline.bring_forward(timeout)

    async def wait(self) -> None:
        """Wait for the end; if cancelled, it ends as ``close(0)`` would.

        Raises:
            DeliveryErrors: records failed and nobody looked at their Deliveries.
        """
        try:
            with self._callbacks_until(self._deadline), self._as_closer():
                await asyncio.wait([self._task])
            self._task.result()
        except asyncio.CancelledError:
            if self._engine is not None:
                self._give_up(self._engine, "close() was cancelled", self._engine.pending)
                if self._engine.transaction is not None:
                    self._engine.transaction.cut_short()
            self._deadline.bring_forward(0)
            raise

    def _give_up(self, engine: Engine, why: str, pending: int) -> None:
        """Fail what has not ended, and say so: nobody may be left who looks at the Deliveries."""
        if pending:
            self._logger.warning("%s: %d records failed, as they had not ended%s", why, pending, engine.unreachable_too)
        engine.fail_all(closed_too_early, unobserved=False)

    @contextmanager
    def _as_closer(self) -> Iterator[None]:
        """Register the waiting task with the engine: the code that yields a send_many's records may call close()."""
        closers = set() if self._engine is None else self._engine.closers
        task = asyncio.current_task()
        closers.add(task)
        try:
            yield
        finally:
            closers.discard(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # else asyncio would log an error that nobody awaited because close() was cancelled
        elif not self._has_begun:
            # Cancelled in the turn of the call: no step has run.
            if self._starting is not None:
                self._starting.cancel()
            if self._engine is not None:
                self._engine.turn_away(closed())
                self._give_up(self._engine, "close() was cancelled", self._engine.pending)
                self._engine.drop()
            self._preparation.close()

    async def _run(self) -> None:
        self._has_begun = True
        try:
            if self._engine is not None:
                await self._end_start()
                with self._callbacks_until(self._deadline):
                    await self._end(self._engine)
        finally:
            # If the loop is closed, the garbage collector ends this; another close() does the rest.
            if not self._loop.is_closed():
                try:
                    await self._close_serializers()
                finally:
                    if not self._loop.is_closed():
                        self._preparation.close()

    async def _end_start(self) -> None:
        """End a start that is under way, and its connection, which nothing else knows of yet."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            self._deadline.leave(LAST_TASKS_S)
            if not await self._deadline.bound(asyncio.wait([self._starting])):
                self._logger.warning(
                    "close(timeout=%s): start() had not ended; does the token provider ignore its cancellation?",
                    self._deadline.timeout,
                )

    async def _end(self, engine: Engine) -> None:
        engine.turn_away(closed())
        try:
            await self._finish(engine)
        finally:
            self._deadline.leave(LAST_TASKS_S)
            # Callbacks that are late by now run one a turn, which leaves the time to the tasks.
            with self._callbacks_until(Deadline(self._loop, 0)):
                await engine.stop(self._deadline)
            engine.failures.tell()
            engine.failures.end()
            self._deadline.leave(LAST_CALLBACKS_S)
            waiting = await engine.flushes.called_back(self._deadline)
            if waiting:
                self._logger.warning(
                    "close(timeout=%s): %d done callbacks have not been called yet; the event loop calls them if it "
                    "keeps running", self._deadline.timeout, waiting,
                )  # fmt: skip

    async def _finish(self, engine: Engine) -> None:
        """Wait until every record has ended and left the process; fail those that have not in time."""
        telling = self._loop.call_later(TOLD_AFTER_S, self._tell_of_wait, engine)
        try:
            await engine.flushes.flush(self._deadline, closing=True)
        except FlushTimeoutError as error:
            # If none is pending, only memory of records that expired in flight is missing; those were reported.
            self._give_up(engine, f"close(timeout={self._deadline.timeout})", error.pending)
        finally:
            telling.cancel()
            transaction = engine.transaction
            if transaction is not None and not await self._deadline.bound(transaction.close(self._deadline.left_s)):
                self._logger.warning(
                    "close(timeout=%s): the open transaction could not be aborted", self._deadline.timeout
                )
                transaction.cut_short()
            await self._deadline.bound(engine.telemetry.close(self._deadline.left_s))
            await self._deadline.bound(engine.written(self._deadline.left_s))

    def _tell_of_wait(self, engine: Engine) -> None:
        if pending := engine.pending:
            self._logger.warning(
                "close(timeout=%s) waits for %d records that have not ended%s",
                self._deadline.timeout, pending, engine.unreachable_too,
            )  # fmt: skip

    def _callbacks_until(self, deadline: Deadline) -> AbstractContextManager[None]:
        return nullcontext() if self._engine is None else self._engine.flushes.callbacks_until(deadline)

    async def _close_serializers(self) -> None:
        """Close all concurrently; cancel those that take too long, and leave those that ignore the cancellation."""
        tasks = {
            self._loop.create_task(closing, name=f"aioproducer close {name}"): name
            for name, closing in self._preparation.closing_serializers().items()
        }
        if not tasks:
            return
        self._deadline.leave(LAST_SERIALIZERS_S)
        # Callbacks that are late by now run one a turn, which leaves the time to the serializers.
        with self._callbacks_until(Deadline(self._loop, 0)):
            if await self._deadline.bound(asyncio.wait(tasks)):
                return
            for task in [task for task in tasks if not task.done()]:
                timeout = self._deadline.timeout
                self._logger.warning("%s.close had not ended after timeout=%s: cancelled", tasks[task], timeout)
                task.cancel()
            await asyncio.wait(tasks, timeout=LAST_SERIALIZERS_S)


def closed_too_early(batch: ProducerBatch) -> KafkaError:
    """The error for the records of a batch that ``close`` did not wait for."""
    return ProducerClosedError(
        f"{batch.topic}-{batch.partition}: the producer was closed before the record was acknowledged",
        maybe_written=batch.maybe_written,
    )
