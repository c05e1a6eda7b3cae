"""Closing: the end of a producer, step by step, within one deadline that later calls may bring forward.

    a start under way is ended -> what was admitted is sent, or fails when the time is over -> the open transaction is
    aborted -> tasks and connections end -> failures are reported, done callbacks called -> serializers and
    interceptors are closed

Each step gets what is left of the time. Three get a little in any case: the end of tasks, callbacks, and the ``close``
of serializers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from aioproducer._producer_batch import ProducerBatch
from aioproducer.deadline import Deadline
from aioproducer.engine import Engine
from aioproducer.errors import FlushTimeoutError, KafkaError, ProducerClosedError
from aioproducer.record_preparation import RecordPreparation
from aioproducer.refusals import closed

logger: logging.Logger = logging.getLogger("aioproducer.producer")

LAST_CALLBACKS_S = 0.05
"""What the done callbacks of what ``close`` has failed have when the time is over."""

LAST_TASKS_S = 0.05
"""What the tasks of the producer have to end then."""

LAST_SERIALIZERS_S = 0.02
"""What serializers have to close then, and again when they are cancelled."""


class Closing:
    """The end of one producer, which begins when this is made, in a task of its own.

    Args:
        engine: None if the producer was never started, or its loop has ended.
        starting: the task of its ``start``.
        on_end: called when all of it is over.
    """

    def __init__(
        self,
        engine: Engine | None,
        preparation: RecordPreparation,
        deadline: Deadline,
        *,
        starting: asyncio.Task[None] | None,
        on_end: Callable[[], object],
    ) -> None:
        self._engine = engine
        self._preparation = preparation
        self._deadline = deadline
        self._starting = starting
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name="aioproducer close")
        self._task.add_done_callback(_retrieve)
        self._task.add_done_callback(lambda _: on_end())

    @property
    def is_over(self) -> bool:
        """Whether nothing of the producer runs any more."""
        return self._task.done()

    @property
    def was_cut_off(self) -> bool:
        """Whether its loop was closed in the middle of it."""
        return self._loop.is_closed() and not self._task.done()

    def bring_forward(self, timeout: float | None) -> None:
        """Have it end ``timeout`` seconds from now, unless it ends earlier in any case."""
        self._deadline.bring_forward(timeout)

    async def wait(self) -> None:
        """Wait for its end; cancelled, let it end as one without any time would.

        Raises:
            DeliveryErrors: records failed and nobody had looked at their Deliveries.
        """
        try:
            with self._callbacks_until(self._deadline), self._as_closer():
                await asyncio.wait([self._task])
            self._task.result()
        except asyncio.CancelledError:
            if self._engine is not None:
                self._engine.fail_all(closed_too_early, unobserved=False)
                if self._engine.transaction is not None:
                    self._engine.transaction.cut_short()
            self._deadline.bring_forward(0)
            raise

    @contextmanager
    def _as_closer(self) -> Iterator[None]:
        """Have the engine know of a task that waits: the records of a send_many may come from code that closes."""
        closers = set() if self._engine is None else self._engine.closers
        task = asyncio.current_task()
        closers.add(task)
        try:
            yield
        finally:
            closers.discard(task)

    async def _run(self) -> None:
        try:
            if self._engine is not None:
                await self._end_start(self._deadline)
                with self._callbacks_until(self._deadline):
                    await self._end(self._engine, self._deadline)
        finally:
            # Where the loop is closed it is the garbage collector that ends this; another close() does the rest.
            if not self._loop.is_closed():
                try:
                    await self._close_serializers(self._deadline)
                finally:
                    if not self._loop.is_closed():
                        self._preparation.close()

    async def _end_start(self, deadline: Deadline) -> None:
        """End a start that is under way, with its connection, of which nobody else knows yet."""
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            deadline.leave(LAST_TASKS_S)
            if not await deadline.bound(asyncio.wait([self._starting])):
                logger.warning(
                    "close(timeout=%s): start() had not ended; does the token provider ignore its cancellation?",
                    deadline.timeout,
                )

    async def _end(self, engine: Engine, deadline: Deadline) -> None:
        engine.turn_away(closed())
        try:
            await self._finish(engine, deadline)
        finally:
            deadline.leave(LAST_TASKS_S)
            # Callbacks that are late by now are called one a turn, and so leave the time to the tasks.
            with self._callbacks_until(Deadline(self._loop, 0)):
                await engine.stop(deadline)
            engine.failures.tell()
            deadline.leave(LAST_CALLBACKS_S)
            waiting = await engine.flushes.called_back(deadline)
            if waiting:
                logger.warning(
                    "close(timeout=%s): %d done callbacks have not been called yet; the event loop calls them if it "
                    "keeps running", deadline.timeout, waiting,
                )  # fmt: skip

    async def _finish(self, engine: Engine, deadline: Deadline) -> None:
        """Wait until every record has ended and left, or fail what has not in time."""
        try:
            await engine.flushes.flush(deadline, closing=True)
        except FlushTimeoutError as error:
            if error.pending:  # else it is the memory of records that expired in flight, of which all is told
                logger.warning(
                    "close(timeout=%s): %d records failed, as they had not ended", deadline.timeout, error.pending
                )
            engine.fail_all(closed_too_early, unobserved=False)
        finally:
            transaction = engine.transaction
            if transaction is not None and not await deadline.bound(transaction.close(deadline.left_s)):
                logger.warning("close(timeout=%s): the open transaction could not be aborted", deadline.timeout)
                transaction.cut_short()
            await deadline.bound(engine.telemetry.close(deadline.left_s))
            await deadline.bound(engine.written(deadline.left_s))

    def _callbacks_until(self, deadline: Deadline) -> AbstractContextManager[None]:
        return nullcontext() if self._engine is None else self._engine.flushes.callbacks_until(deadline)

    async def _close_serializers(self, deadline: Deadline) -> None:
        """Close all side by side; those that take longer are cancelled, and left alone if that does not help."""
        tasks = {
            self._loop.create_task(closing, name=f"aioproducer close {name}"): name
            for name, closing in self._preparation.closing_serializers().items()
        }
        if not tasks:
            return
        deadline.leave(LAST_SERIALIZERS_S)
        # Callbacks that are late by now are called one a turn, and so leave the time to the serializers.
        with self._callbacks_until(Deadline(self._loop, 0)):
            if await deadline.bound(asyncio.wait(tasks)):
                return
            for task in [task for task in tasks if not task.done()]:
                logger.warning("%s.close had not ended after timeout=%s: cancelled", tasks[task], deadline.timeout)
                task.cancel()
            await asyncio.wait(tasks, timeout=LAST_SERIALIZERS_S)


def closed_too_early(batch: ProducerBatch) -> KafkaError:
    """What the records of a batch get that ``close`` did not wait for."""
    return ProducerClosedError(
        f"{batch.topic}-{batch.partition}: the producer was closed before the record was acknowledged",
        maybe_written=batch.maybe_written,
    )


def _retrieve(task: asyncio.Task[None]) -> None:
    """Keep asyncio from logging an error that nobody waited for because close() was cancelled."""
    if not task.cancelled():
        task.exception()
