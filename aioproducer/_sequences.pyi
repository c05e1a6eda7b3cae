"""SequenceBooks: which batch of a partition may go next, with which sequence, and what an acknowledgement changes."""

from collections.abc import Sequence
from typing import Final, final

from aioproducer._producer_batch import ProducerBatch
from aioproducer.transaction.partitions import TransactionPartitions

MAX_UNRESOLVED: Final[int]
"""Most numbered batches of a partition from the oldest unresolved one on, ended or not: what a broker remembers."""
KNOWN_FOR_MS: Final[int]
"""A leader that got nothing from the producer for this long may have forgotten it (``producer.id.expiration.ms``)."""

def next_sequence(sequence: int, records: int) -> int:
    """The sequence after ``records`` more; wraps from 2147483647 to 0."""

@final
class PartitionSequences:
    """Numbering of one partition; an order is a batch's place in it (``ProducerBatch.order``)."""

    producer_id: int
    epoch: int
    next: int
    """The sequence of the next record."""
    known_producer_id: int
    """The producer id under which the leader has acknowledged something lately."""
    heard_ms: int
    """When the last batch that the leader acknowledged was sent."""
    topic_id: bytes
    """Of the topic whose log gets the next attempt; a recreated topic has another."""
    former: tuple[int, ...]
    """Order of the last batch that may have been sent to a topic with another id."""
    leader_epoch: int
    """The newest epoch of the leaders that this log's batches were sent to."""
    numbered: list[ProducerBatch]
    """Batches that have a sequence and have not ended, in order."""
    count: int
    """How many batches were ever numbered."""
    gap: tuple[int, ...] | None
    """Order of the last batch that failed; None while the sequence has no gap."""
    absent: tuple[int, ...] | None
    """Order of a batch that is surely not in the log; batches numbered after it are not there either."""
    unsettled: tuple[int, ...]
    """Order of the last batch that ended in doubt; empty if none did."""

    def strike(self, batch: ProducerBatch) -> None:
        """The batch has ended."""

    def replace(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """The pieces take the batch's place."""

    def is_settled(self) -> bool:
        """Whether nothing is on the wire, and nothing numbered can be in the log."""

    def is_known(self) -> bool:
        """Whether the leader knows the producer. One that does not accepts any sequence as the first."""

    def leaves_in_doubt(self, batch: ProducerBatch) -> bool:
        """Whether a refusal decides nothing: the batch is in doubt, and was last sent to a former leader.

        Some batch of the partition was sent to a successor of that before.
        """

    def open_gap(self, batch: ProducerBatch) -> None:
        """A numbered batch failed."""

    def is_beyond_proof(self, batch: ProducerBatch) -> bool:
        """Whether no answer can show any more if a batch in doubt, refused for good, is in the log."""

    def refused_for_good(self, batch: ProducerBatch) -> None:
        """A batch in doubt was refused as out of order, and no copy of it can arrive late any more.

        It may still be in the log, as a restarted broker remembers only the last batch. So all in doubt are ruled out
        together, once each was refused.
        """

    def rule_out(self, batch: ProducerBatch) -> None:
        """The batch is surely not in the log, nor is anything numbered after it."""

class SequenceBooks:
    """The books of all partitions.

    Args:
        idempotent: False turns every method into a no-op: batches go out unnumbered.
        transaction_partitions: those of a transactional producer's transactions; None for other producers.
    """

    producer_id: int
    """-1 before InitProducerId is answered."""
    epoch: int

    def __init__(self, *, idempotent: bool, transaction_partitions: TransactionPartitions | None = None) -> None: ...
    @property
    def idempotent(self) -> bool: ...
    @property
    def transaction_partitions(self) -> TransactionPartitions | None: ...
    @property
    def has_gap(self) -> bool:
        """Whether a partition can't continue under its current epoch."""

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the batch may be drained now without breaking the order of its partition."""

    def drop_all(self) -> None:
        """Forget the numbered batches: all have failed, and nothing will be sent any more."""

    def all_books(self) -> list[PartitionSequences]:
        """Those of every partition that was ever sent to."""

    def number_all(self, batches: list[ProducerBatch]) -> None:
        """Give each of these drained batches its sequence unless it has one."""

    def _books_of(self, batch: ProducerBatch) -> PartitionSequences: ...
    def _is_current(self, books: PartitionSequences) -> bool: ...
    def _bump_if_settled(self, books: PartitionSequences) -> None:
        """In the subclass: restart the partition under a new epoch once that can't write anything twice."""
