"""TransactionRecords: a producer's records, as its transactions see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer._producer_batch import ProducerBatch
from aioproducer.batch_outcomes import BatchOutcomes
from aioproducer.errors import KafkaError, TransactionAbortedError
from aioproducer.flushes import Flushes
from aioproducer.metrics import ProducerMetrics
from aioproducer.transaction.state import aborted


class TransactionRecords:
    """The ``Records`` of a ``TransactionRunner``: passes each of its calls to the part that carries it out.

    Args:
        admit: admit records, or refuse them and those that wait to be admitted.
        on_progress: called after batches ended or memory came back.
        on_fatal: called when the producer can do nothing more.
        on_broken_off: called when a task has ended in the middle of its work.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        accumulator: RecordAccumulator,
        ledger: DeliveryLedger,
        flushes: Flushes,
        outcomes: BatchOutcomes,
        metrics: ProducerMetrics,
        admit: Callable[[bool], None],
        on_progress: Callable[[], None],
        on_fatal: Callable[[KafkaError], None],
        on_broken_off: Callable[[asyncio.Task[Any]], None],
        wake_sender: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._accumulator = accumulator
        self._ledger = ledger
        self._flushes = flushes
        self._outcomes = outcomes
        self._metrics = metrics
        self._admit = admit
        self._on_progress = on_progress
        self._on_fatal = on_fatal
        self._on_broken_off = on_broken_off
        self._wake_sender = wake_sender

    def admit(self, admits: bool) -> None:
        self._admit(admits)

    def ended(self) -> asyncio.Future[None]:
        return self._flushes.begin(self._accumulator.last_serial)

    def forget(self, waiter: asyncio.Future[None]) -> None:
        self._flushes.forget(waiter)

    def drop_unsent(self, cause: KafkaError | None, *, also_in_doubt: bool) -> None:
        def error_of(batch: ProducerBatch) -> KafkaError:
            where = f"{batch.topic}-{batch.partition}: the transaction"
            if cause is None:
                return TransactionAbortedError(f"{where} was aborted", maybe_written=batch.maybe_written)
            return aborted(f"{where} can only be aborted", cause, batch.maybe_written)

        self._outcomes.drop_unsent(error_of, self._now_ms(), also_in_doubt=also_in_doubt)
        self._on_progress()

    def observed(self) -> None:
        self._ledger.end_flush(self._ledger.start_flush(), self._accumulator.last_serial)

    def wake_sender(self) -> None:
        self._wake_sender()

    def failed(self, error: KafkaError) -> None:
        self._on_fatal(error)

    def broke_off(self, task: asyncio.Task[Any]) -> None:
        self._on_broken_off(task)

    def timed(self, call: str, elapsed_ms: int) -> None:
        self._metrics.record_transaction_call(call, elapsed_ms, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
