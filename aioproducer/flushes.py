"""Flushes: callers that wait until all records present when they began have ended.

A flush covers the batches up to the serial number of the newest one when it began. It is over when none of them lives
and their done callbacks were called. It raises the failures it covers that nobody looked at; the ``DeliveryLedger``
keeps those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer.deadline import Deadline
from aioproducer.errors import DeliveryErrors, FlushTimeoutError, KafkaError, ProducerClosedError
from aioproducer.failure_report import FailureReport
from aioproducer.metrics import ProducerMetrics


class Flushes:
    """The flushes of one producer, including those of its transactions and its close.

    Args:
        on_begin: called when one has begun: open batches can go now.
        unreachable_too: returns the end of a message about records that can't leave.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        accumulator: RecordAccumulator,
        ledger: DeliveryLedger,
        failures: FailureReport,
        metrics: ProducerMetrics,
        on_begin: Callable[[], None],
        unreachable_too: Callable[[], str],
    ) -> None:
        self.waiters: dict[asyncio.Future[None], int] = {}
        """The last serial number that each flush waits for, by its waiter. They began in this order, so it grows."""
        self._cut_off: dict[asyncio.Future[None], int] = {}
        """Number of records that the producer has given up, by the waiter that covers them."""
        self._loop = loop
        self._accumulator = accumulator
        self._ledger = ledger
        self._failures = failures
        self._metrics = metrics
        self._on_begin = on_begin
        self._unreachable_too = unreachable_too

    async def flush(self, deadline: Deadline, *, closing: bool = False) -> None:
        """Send everything present, and wait until it has ended and its done callbacks were called.

        Args:
            closing: neither callbacks still waiting nor records given up make it fail.
        """
        began_ms = self._now_ms()
        last_serial = self._accumulator.last_serial
        token = self._ledger.start_flush()
        waiter = self.begin(last_serial)
        failures: list[tuple[KafkaError, int]] = []
        finished = False
        try:
            with self.callbacks_until(deadline):
                await deadline.bound(waiter)
                ended = self._has_ended(last_serial)
                waiting = await self.called_back(deadline) if ended else 0
            if not ended:
                raise self._not_ended(deadline, last_serial)
            if waiter in self._cut_off and not closing:
                raise ProducerClosedError(
                    f"the producer was closed before {self._cut_off[waiter]:,} records that the flush covers had ended",
                    maybe_written=True,
                )
            if waiting and not closing:
                raise FlushTimeoutError(
                    f"all records had ended after {deadline.timeout} s, but {waiting:,} done callbacks were not called "
                    "yet; they go on",
                    pending=0,
                    maybe_written=True,
                )
            finished = True
        finally:
            self.forget(waiter)
            self._metrics.record_flush(self._now_ms() - began_ms, self._now_ms())
            failures = self._ledger.end_flush(token, last_serial, finished)
        if failures:
            self._failures.tell()  # on_error gets them first, as when close() raises
            raise DeliveryErrors.of(failures, total_records=sum(records for _, records in failures))

    def _not_ended(self, deadline: Deadline, last_serial: int) -> FlushTimeoutError:
        pending = self._accumulator.live_record_count(last_serial)
        told = f"{pending:,} records had not ended after {deadline.timeout} s; they go on{self._unreachable_too()}"
        if not pending:
            told = (
                f"all records had ended after {deadline.timeout} s, but the memory of some that expired in "
                "flight was not back yet: it comes with the end of their requests (request_timeout_ms)"
            )
        return FlushTimeoutError(told, pending=pending, maybe_written=True)

    async def called_back(self, deadline: Deadline) -> int:
        """Wait for the done callbacks of everything that has ended; returns how many were not called in time.

        The loop calls some hundred a turn, late ones included. If the program ended its loop right after ``close()`` or
        ``flush()``, they would never be called.
        """
        ledger = self._ledger
        last = ledger.callbacks_called + ledger.callbacks_waiting

        async def called() -> None:
            while ledger.callbacks_called < last:  # noqa: ASYNC110 - each turn calls some
                await asyncio.sleep(0)

        await deadline.bound(called())
        return max(0, last - ledger.callbacks_called)

    @contextmanager
    def callbacks_until(self, deadline: Deadline) -> Iterator[None]:
        """Stop a turn of the loop from calling more done callbacks once the time to wait for them is over."""
        waiter = object()  # several may have the same deadline
        self._ledger.deadlines[waiter] = deadline
        try:
            yield
        finally:
            self._ledger.deadlines.pop(waiter, None)

    # --- waiters ------------------------------------------------------------------------------------------------------

    def begin(self, last_serial: int) -> asyncio.Future[None]:
        """Send what is present without lingering; returns a future for its end, to pass to ``forget`` afterwards."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self.waiters[waiter] = last_serial
        self._accumulator.close_all()
        self._on_begin()
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Drop a waiter that nobody waits for any more."""
        self.waiters.pop(waiter, None)
        self._cut_off.pop(waiter, None)

    def progressed(self) -> None:
        """Batches have ended: wake the flushes that waited for them. Only worth a call if there are ``waiters``."""
        oldest = self._accumulator.oldest_live_serial()
        over: list[asyncio.Future[None]] = []
        for waiter, last_serial in self.waiters.items():
            if 0 <= oldest <= last_serial:
                break
            over.append(waiter)
        for waiter in over:
            del self.waiters[waiter]
            if not waiter.done():
                waiter.set_result(None)

    def cut_off(self) -> None:
        """The producer gives up what has not ended: note how many of those records each waiter covers."""
        for waiter, last_serial in self.waiters.items():
            if pending := self._accumulator.live_record_count(last_serial):
                self._cut_off[waiter] = pending

    def _has_ended(self, last_serial: int) -> bool:
        """Whether all batches up to this one have ended."""
        oldest = self._accumulator.oldest_live_serial()
        return oldest < 0 or oldest > last_serial

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
