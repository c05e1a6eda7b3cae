"""DeliveryLedger: what the Deliveries of one producer have in common: unobserved failures, and done callbacks."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Protocol, final

from aioproducer.errors import KafkaError

class Deadline(Protocol):
    """A time by the loop's clock, in seconds, which may change."""

    @property
    def at(self) -> float: ...

@final
class DeliveryLedger:
    """What the Deliveries of one producer share: its loop, and the failures that nobody observed.

    A failure is kept until a flush that covers it has raised it. Overlapping flushes all raise it; later ones do not.
    """

    loop: asyncio.AbstractEventLoop
    on_failure: Callable[[], object] | None
    """Called when the first failure since the last ``take_fresh`` is booked, in whatever code books it."""

    @property
    def unobserved_count(self) -> int:
        """Records that failed unobserved, since the start."""

    @property
    def context(self) -> Context:
        """The context of ``start()``, which made it. Calls that no task of the program asked for run in a copy."""

    @property
    def callbacks_waiting(self) -> int:
        """Done callbacks of ended records that still wait for a turn of the loop."""

    @property
    def callbacks_called(self) -> int:
        """Done callbacks called since the start."""

    @property
    def deadlines(self) -> dict[object, Deadline]:
        """Of each waiter for done callbacks: no turn of the loop goes on calling callbacks past the first of these."""

    def book(self, serial: int, error: KafkaError, records: int) -> None:
        """Count records of the batch ``serial`` as failed and unobserved."""

    def take_fresh(self) -> list[tuple[KafkaError, int]]:
        """The failures booked since the last call as (error, records), oldest first."""

    def start_flush(self) -> int:
        """Note that a flush begins; returns its token for ``end_flush``."""

    def end_flush(self, token: int, last_serial: int, report: bool = True) -> list[tuple[KafkaError, int]]:
        """End a flush; returns the unobserved failures it has to raise as (error, records), oldest first.

        Args:
            last_serial: it covers the batches up to this one. Their failed records with live, unobserved Deliveries
                count as unobserved from now on.
            report: False, for a flush that did not finish, leaves everything to other flushes.
        """

def run_callbacks(ledger: DeliveryLedger) -> None:
    """Call the next done callbacks in order: a few hundred per turn of the loop, more if they pile up."""
