"""FailureReport: reports records that failed while nobody looked at their Deliveries."""

from __future__ import annotations

from collections.abc import Callable

from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer.client_logger import ClientLogger
from aioproducer.errors import KafkaError
from aioproducer.log_limit import LogLimit

LOG_FAILURES_EVERY_MS = 10_000


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

    def _log(self, error: KafkaError, records: int) -> None:
        self._unlogged += records
        if self._may_log("failures"):
            self._logger.error(
                "%d records failed and nobody looked at their Deliveries; the last error: %s",
                self._unlogged,
                str(error),
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
