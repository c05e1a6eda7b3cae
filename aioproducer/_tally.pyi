"""Tally: how the records of one send_many or send_arrow ended; Share: which records of one batch are its."""

import asyncio
from typing import final

from aioproducer._delivery import DeliveryLedger
from aioproducer.errors import KafkaError
from aioproducer.records import MAX_ERRORS, BatchResult

@final
class Tally:
    """Counts, offsets and errors of one call; the batches that hold its records tell it how they ended.

    Args:
        topic: the call's own; offsets in it are told by partition, others by TopicPartition.
        most_errors: in the result, those of the first rows; at least 1.
    """

    def __init__(self, topic: str | None, most_errors: int = MAX_ERRORS) -> None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def rows(self) -> int:
        """Records that came from the caller, admitted or refused."""

    @property
    def admitted(self) -> int: ...
    @property
    def acked(self) -> int: ...
    @property
    def failed(self) -> int:
        """Refused, or admitted and not acknowledged."""

    @property
    def pending(self) -> int:
        """Admitted, and not ended yet."""

    @property
    def abandoned(self) -> bool: ...
    def refuse(self, error: Exception) -> None:
        """Book the next row as failed without having been admitted."""

    def ended(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """A future that is done once all that was admitted has ended; nothing may be admitted after."""

    def abandon(self, ledger: DeliveryLedger) -> None:
        """Nobody waits for the result any more: failures, past and to come, are unobserved."""

    def failed_batches(self) -> list[tuple[KafkaError, int]]:
        """(error, records) for each failed batch and each refused record, in the order of their ends."""

    def result(self) -> BatchResult:
        """What is known now."""

@final
class Share:
    """The records of one batch that belong to one Tally."""
