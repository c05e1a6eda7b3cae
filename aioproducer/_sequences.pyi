"""SequenceBooks: which batch of a partition may go next, under which number, and what an acknowledgement changes."""

from collections.abc import Sequence
from typing import Final, final

from aioproducer._producer_batch import ProducerBatch
from aioproducer.transaction.partitions import TransactionPartitions

MAX_UNRESOLVED: Final[int]
"""Numbered batches of a partition from the oldest unresolved one on, ended or not: as many as a broker remembers."""

def next_sequence(sequence: int, records: int) -> int:
    """The sequence after ``records`` more; wraps from 2147483647 to 0."""

@final
class PartitionSequences:
    """Numbering of one partition; an order is a batch's place in it, see ``ProducerBatch.order``."""

    producer_id: int
    epoch: int
    next: int
    """The sequence of the next record."""
    known_producer_id: int
    """The producer id under which the leader has acknowledged something."""
    topic_id: bytes
    """Of the topic whose log the next attempt goes to; one that was made again has another."""
    former: tuple[int, ...]
    """Order of the last batch that may have been sent to a topic of another id."""
    numbered: list[ProducerBatch]
    """Those that have a sequence and have not ended, in order."""
    count: int
    """How many batches were ever numbered."""
    gap: tuple[int, ...] | None
    """Order of the last batch that failed; None while the sequence has no gap."""
    absent: tuple[int, ...] | None
    """Order of a batch that is surely not in the log; what was numbered after it is not there either."""

    def add(self, batch: ProducerBatch) -> None:
        """The batch has got its number."""

    def strike(self, batch: ProducerBatch) -> None:
        """The batch has ended."""

    def replace(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """The pieces stand where the batch stood."""

    def has_room(self) -> bool:
        """Whether a broker that is sent one more still remembers the oldest unresolved one."""

    def is_settled(self) -> bool:
        """Whether nothing is on the wire, and nothing numbered can be in the log."""

    def open_gap(self, batch: ProducerBatch) -> None:
        """The batch, which had a number, failed."""

    def rule_out(self, batch: ProducerBatch) -> None:
        """The batch is surely not in the log, and so is nothing numbered after it."""

class SequenceBooks:
    """The books of all partitions.

    Args:
        idempotent: False makes every method a formality: batches go out unnumbered.
        transaction: of a transactional producer, what belongs to its open transaction.
    """

    producer_id: int
    """-1 before InitProducerId has answered."""
    epoch: int

    def __init__(self, *, idempotent: bool, transaction: TransactionPartitions | None = None) -> None: ...
    @property
    def idempotent(self) -> bool: ...
    @property
    def transaction(self) -> TransactionPartitions | None: ...
    @property
    def has_gap(self) -> bool:
        """Whether a partition can't go on under its present epoch."""

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the batch may be drained now without breaking the order of its partition."""

    def number(self, batch: ProducerBatch) -> None:
        """Give a drained batch its sequence, unless it has one."""

    def number_all(self, batches: list[ProducerBatch]) -> None:
        """``number`` for each."""

    def acknowledged(self, batch: ProducerBatch) -> None:
        """The batch is in the log, and so is everything that was numbered before it."""

    def _books_of(self, batch: ProducerBatch) -> PartitionSequences: ...
    def _is_current(self, books: PartitionSequences) -> bool: ...
    def _bump_if_settled(self, books: PartitionSequences) -> None:
        """The subclass's: start the partition again under a new epoch, once that can't write anything twice."""
