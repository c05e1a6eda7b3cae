"""FailureReport: reports records that failed while nobody looked at their Deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer.client_logger import ClientLogger
from aioproducer.errors import KafkaError
from aioproducer.log_limit import LogLimit

LOG_FAILURES_EVERY_MS = 10_000
FAILURES = "failures"
"""The lines about failures; those about ``on_error`` have a limit of their own."""


class FailureReport:
    """Gives each unobserved failure to ``on_error``, and some to the log.

    A program may keep a Delivery for as long as it likes, and the Delivery refers to this through its ledger. So this
    holds no reference to the engine, which holds the producer's connections and memory.

    Args:
        ledger: the producer's; its ``on_failure`` is set here.
    """

    def __init__(
        self,
        ledger: DeliveryLedger,
        on_error: Callable[[KafkaError, int], object] | None,
        logger: ClientLogger,
    ) -> None:
        self._ledger = ledger
        self._on_error = on_error
        self._logger = logger
        self._log_limit = LogLimit(LOG_FAILURES_EVERY_MS)
        self._unlogged = 0
        self._last_error = ""
        self._timer: asyncio.TimerHandle | None = None
        """Logs what the limit has held back, if no later failure does."""
        self._is_over = False
        ledger.on_failure = self._failures_waiting

    def _failures_waiting(self) -> None:
        """Called where the last reference to a Delivery went away."""
        if not self._ledger.loop.is_closed():
            self._ledger.loop.call_soon_threadsafe(self.tell)

    def tell(self) -> None:
        """Report the failures since the last call, in the context of ``start()``.

        The context of the code that flushed or dropped a Delivery has nothing to do with the owner of the records.
        """
        self._ledger.context.copy().run(self._tell)

    def _tell(self) -> None:
        for error, records in _by_error(self._ledger.take_fresh()):
            self._log(error, records)
            if self._on_error is not None:
                try:
                    self._on_error(error, records)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException:  # a CancelledError of its own would end the flush or close that tells it
                    if self._may_log("on_error"):
                        self._logger.exception("on_error raised")

    def end(self) -> None:
        """The producer is closed: log what the limit has held back, as nobody may be left to do so later."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unlogged:
            self._write_line()

    def _log(self, error: KafkaError, records: int) -> None:
        self._unlogged += records
        self._last_error = str(error)
        self._write_soon()

    def _write_soon(self) -> None:
        if self._may_log(FAILURES):
            self._write_line()
        elif self._timer is None and not self._is_over:
            at_ms = self._log_limit.again_at_ms(FAILURES)
            self._timer = self._ledger.loop.call_at((at_ms + 1) / 1000, self._limit_is_over)

    def _limit_is_over(self) -> None:
        self._timer = None
        if self._unlogged:
            self._write_soon()

    def _write_line(self) -> None:
        self._logger.error(
            "%d records failed and nobody looked at their Deliveries; the last error: %s",
            self._unlogged,
            self._last_error,
        )
        self._unlogged = 0

    def _may_log(self, what: str) -> bool:
        return self._log_limit.allows(int(self._ledger.loop.time() * 1000), what)


def _by_error(failures: list[tuple[KafkaError, int]]) -> list[tuple[KafkaError, int]]:
    """One entry per error: a batch whose Deliveries are dropped one by one is one failure."""
    counts: dict[int, tuple[KafkaError, int]] = {}
    for error, records in failures:
        counts[id(error)] = (error, counts.get(id(error), (error, 0))[1] + records)
    return list(counts.values())
