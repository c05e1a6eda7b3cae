"""Tally: how the records of one send_many or send_arrow ended; Share: the records of one batch that belong to it."""

import asyncio
from typing import final

from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer.errors import KafkaError
from aioproducer.records import MAX_ERRORS, BatchResult

@final
class Tally:
    """Counts, offsets and errors of one call; the batches that hold its records tell it how they ended.

    Args:
        topic: the call's own; its offsets are keyed by partition, those of other topics by TopicPartition.
        most_errors: errors in the result, at least 1: of rows that a broker refused, then of the first failed rows.
    """

    def __init__(self, topic: str | None, most_errors: int = MAX_ERRORS) -> None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def rows(self) -> int:
        """Records received from the caller, admitted or refused."""

    @property
    def admitted(self) -> int: ...
    @property
    def acked(self) -> int: ...
    @property
    def failed(self) -> int:
        """Refused, or admitted and failed."""

    @property
    def pending(self) -> int:
        """Admitted and not yet ended."""

    @property
    def abandoned(self) -> bool: ...
    def refuse(self, error: KafkaError, topic: object = None) -> None:
        """Book the next row, of this topic, as failed, never admitted."""

    def ended(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """A future that is done once all admitted records have ended; no record may be admitted after this call."""

    def abandon(self, ledger: DeliveryLedger) -> None:
        """Nobody waits for the result any longer: failures, past and future, are unobserved."""

    def failed_batches(self) -> list[tuple[KafkaError, int]]:
        """(error, records) for each failed batch and each refused record, in the order of their ends."""

    def result(self) -> BatchResult:
        """The result so far."""

@final
class Share:
    """The records of one batch that belong to one Tally."""
