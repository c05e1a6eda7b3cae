"""Flushes: who waits until all records that were there when they began have ended.

A flush covers the batches up to a serial number, that of the newest when it began. It is over when none of them lives
and their done callbacks were called. What it raises are the failures that it covers and that nobody looked at; the
``DeliveryLedger`` knows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery import DeliveryLedger
from aioproducer.deadline import Deadline
from aioproducer.errors import DeliveryErrors, FlushTimeoutError, KafkaError, ProducerClosedError
from aioproducer.failure_report import FailureReport
from aioproducer.metrics import ProducerMetrics


class Flushes:
    """The flushes of one producer, those of its transactions and of its close included.

    Args:
        on_begin: called when one has begun: batches that were open can go now.
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
    ) -> None:
        self.waiters: dict[asyncio.Future[None], int] = {}
        """The last serial number that each covers, by who waits for it."""
        self._cut_off: dict[asyncio.Future[None], int] = {}
        """Records that the producer has given up, by who waits for their ends."""
        self._loop = loop
        self._accumulator = accumulator
        self._ledger = ledger
        self._failures = failures
        self._metrics = metrics
        self._on_begin = on_begin

    async def flush(self, deadline: Deadline, *, closing: bool = False) -> None:
        """Send all that is there, and wait for the ends and the done callbacks of it.

        Args:
            closing: callbacks that wait are nothing to fail for, nor are records that were given up.
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
            self._failures.tell()  # on_error hears of them first, as when it is close() that raises
            raise DeliveryErrors.of(failures, total_records=sum(records for _, records in failures))

    def _not_ended(self, deadline: Deadline, last_serial: int) -> FlushTimeoutError:
        pending = self._accumulator.live_record_count(last_serial)
        told = f"{pending:,} records had not ended after {deadline.timeout} s; they go on"
        if not pending:
            told = (
                f"all records had ended after {deadline.timeout} s, but the memory of some that expired in "
                "flight was not back yet: it comes with the end of their requests (request_timeout_ms)"
            )
        return FlushTimeoutError(told, pending=pending, maybe_written=True)

    async def called_back(self, deadline: Deadline) -> int:
        """Wait until the done callbacks of all that has ended were called; returns how many were not, in time.

        The loop calls some hundred a turn, and those that are late too. A program that ends its loop after ``close()``
        or ``flush()`` would never see them called.
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
        """Let no turn of the loop go on calling done callbacks when the time to wait for them is over."""
        self._ledger.deadlines.append(deadline)
        try:
            yield
        finally:
            if deadline in self._ledger.deadlines:
                self._ledger.deadlines.remove(deadline)

    # --- who waits ----------------------------------------------------------------------------------------------------

    def begin(self, last_serial: int) -> asyncio.Future[None]:
        """Send what is there without lingering; a future of its end, which has to be forgotten after that."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self.waiters[waiter] = last_serial
        self._accumulator.close_all(self._now_ms())
        self._on_begin()
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Nobody waits for it any more."""
        self.waiters.pop(waiter, None)
        self._cut_off.pop(waiter, None)

    def progressed(self) -> None:
        """Batches have ended: let those go on who waited for that. Worth a call only where there are ``waiters``."""
        oldest = self._accumulator.oldest_live_serial()
        for waiter, last_serial in self.waiters.items():
            if (oldest < 0 or oldest > last_serial) and not waiter.done():
                waiter.set_result(None)

    def cut_off(self) -> None:
        """The producer gives up what has not ended, and whoever waits is to be told how much of it was his."""
        for waiter, last_serial in self.waiters.items():
            if pending := self._accumulator.live_record_count(last_serial):
                self._cut_off[waiter] = pending

    def _has_ended(self, last_serial: int) -> bool:
        """Whether no batch up to this one lives."""
        oldest = self._accumulator.oldest_live_serial()
        return oldest < 0 or oldest > last_serial

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
