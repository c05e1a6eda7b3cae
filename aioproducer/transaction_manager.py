"""Producer id, epoch and sequences: what lets a broker recognise a batch that it has already.

Theory of operation. A batch gets (producer id, epoch, base sequence) when it is first drained and keeps them over
retries, so a leader that has it already answers with success and writes nothing. Sequences count records, a partition
and an epoch, and must not have gaps. A gap opens when a batch that had a sequence fails: the broker then refuses
everything after it (OUT_OF_ORDER_SEQUENCE_NUMBER), until the partition starts at 0 again under the next epoch, which is
called the bump.

    in order --a batch with a sequence fails, or expires in flight--> gap: no new sequences here
    gap --a later batch is acknowledged (so the failed one was written)--> in order
    gap --every numbered batch is off the wire and surely not in the log--> bump: next epoch, sequences from 0

The bump waits for certainty, which is where this differs from the Java client (KIP-360): Java renumbers every batch in
flight, also one that the broker wrote and whose answer was lost, and so writes it twice. Here a batch in doubt keeps
its number and is sent again until the broker tells: success if it has it, OUT_OF_ORDER if not. That answer is certain
because from the oldest unresolved batch of a partition on at most five have numbers, as many as a broker remembers. And
once one batch is surely not in the log, neither is any that was numbered after it.

Books are kept for as long as the producer lives, also of a topic that is forgotten because nobody uses it: from 0 again
under the same epoch, a broker would take new batches for repetitions of old ones, and acknowledge them unwritten.

A topic that is deleted and made again has an empty log, whose leader takes any sequence for the first. The numbers go
on there, for the reason above, but nothing else that is known of the former log holds: the producer has to be
introduced again, and what was ruled out before may be written now.

The new epoch is local: a broker takes a higher epoch from an idempotent producer without being asked. After 32767 a new
producer id is fetched instead. Other partitions go on under their old epoch and move when nothing of theirs is
unresolved.

In a transaction there is no bump of our own: a gap spoils the transaction, and the coordinator gives the next epoch,
with the end of the transaction (KIP-890) or by InitProducerId. A batch in doubt is sent again all the same before V2,
so that no copy of it can turn up in the log after the transaction has ended.

Source: KIP-98, KIP-360; org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioproducer.records import TopicPartition
from aioproducer.transaction_partitions import LAST_PRODUCE_V1, TransactionPartitions

if TYPE_CHECKING:
    from aioproducer._producer_batch import ProducerBatch

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_SEQUENCE = -1
MAX_EPOCH = 32767
SEQUENCE_MASK = 0x7FFFFFFF
MAX_UNRESOLVED = 5
"""Numbered batches of a partition from the oldest unresolved one on, ended or not: as many as a broker remembers."""


def next_sequence(sequence: int, records: int) -> int:
    """The sequence after ``records`` more; wraps from 2147483647 to 0."""
    return (sequence + records) & SEQUENCE_MASK


def _partition_of(batch: ProducerBatch) -> TopicPartition:
    return TopicPartition(batch.topic, batch.partition)


@dataclass(slots=True, eq=False)
class PartitionSequences:
    """Numbering of one partition; ``numbered`` holds the batches that have a sequence and have not ended, in order."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    next: int = 0
    known_producer_id: int = NO_PRODUCER_ID
    """The producer id under which the leader has acknowledged something."""
    topic_id: bytes = b""
    """Of the topic whose log the next attempt goes to; one that was made again has another."""
    former: tuple[int, ...] = ()
    """Order of the last batch that may have been sent to a topic of another id."""
    numbered: list[ProducerBatch] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """Of each in ``numbered``: how many batches had been numbered before it."""
    count: int = 0
    gap: tuple[int, ...] | None = None
    """Order of the last batch that failed; None while the sequence has no gap."""
    absent: tuple[int, ...] | None = None
    """Order of a batch that is surely not in the log; what was numbered after it is not there either."""

    def add(self, batch: ProducerBatch) -> None:
        self.numbered.append(batch)
        self.places.append(self.count)
        self.count += 1

    def strike(self, batch: ProducerBatch) -> None:
        self.replace(batch, ())

    def replace(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        at = self.numbered.index(batch)
        self.numbered[at : at + 1] = pieces
        self.places[at : at + 1] = [self.places[at]] * len(pieces)

    def turn_to(self, topic_id: bytes) -> None:
        """Note which topic the next attempt is for: what is known of the log of another one does not hold for it."""
        if topic_id != self.topic_id:
            self.topic_id = topic_id
            self.former = self.numbered[-1].order if self.numbered else ()
            self.known_producer_id = NO_PRODUCER_ID
            self.absent = None

    def has_room(self) -> bool:
        """Whether a broker that is sent one more still remembers the oldest unresolved one."""
        return self.count - self.places[0] < MAX_UNRESOLVED

    def is_settled(self) -> bool:
        """Whether nothing is on the wire, and nothing numbered can be in the log."""
        return not any(batch.in_flight or batch.in_doubt for batch in self.numbered)

    def open_gap(self, batch: ProducerBatch) -> None:
        self.gap = batch.order if self.gap is None else max(self.gap, batch.order)

    def rule_out(self, batch: ProducerBatch) -> None:
        """The batch is surely not in the log, and so is nothing numbered after it."""
        self.absent = batch.order if self.absent is None else min(self.absent, batch.order)
        for other in self.numbered:
            if other.order >= batch.order:
                other.in_doubt = False


class TransactionManager:
    """Hands out producer state and decides about gaps; does no I/O and reads no clock.

    Args:
        idempotent: False makes every method a formality: batches go out unnumbered.
        transaction: of a transactional producer, what belongs to its open transaction.
    """

    def __init__(self, *, idempotent: bool, transaction: TransactionPartitions | None = None) -> None:
        self.idempotent = idempotent
        self.transaction = transaction
        self.producer_id = NO_PRODUCER_ID
        self.epoch = NO_EPOCH
        self._partitions: dict[tuple[str, int], PartitionSequences] = {}

    @property
    def needs_producer_id(self) -> bool:
        """Whether nothing new can be sent before InitProducerId has answered."""
        return self.idempotent and self.producer_id == NO_PRODUCER_ID

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        """Take what InitProducerId answered; a partition moves to it when its numbered batches have ended."""
        self.producer_id = producer_id
        self.epoch = epoch

    def produce_version(self, version: int) -> int:
        """The version of Produce to use where the broker speaks this one."""
        if self.transaction is not None and self.transaction.version < 2:
            return min(version, LAST_PRODUCE_V1)
        return version

    # --- before the wire ----------------------------------------------------------------------------------------------

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether the batch may be drained now without breaking the order of its partition."""
        if not self.idempotent:
            return True
        entry = self._entry(batch)
        entry.turn_to(batch.topic_id)
        if batch.has_sequence:
            # A repeated batch goes only as the first of its partition; whatever overtakes another is out of order.
            return entry.numbered[0] is batch
        if self.producer_id == NO_PRODUCER_ID:
            return False
        if self.transaction is not None and not self.transaction.may_send(_partition_of(batch)):
            return False
        if not entry.numbered:
            return True
        # A leader that does not know the producer yet takes any sequence for the first (KIP-360), so until it has
        # acknowledged one batch, a second one could be written in the place of the first. That of a topic that was
        # made again knows nobody.
        is_known = entry.known_producer_id == entry.producer_id
        return is_known and entry.gap is None and self._is_current(entry) and entry.has_room()

    def number(self, batch: ProducerBatch) -> None:
        """Give a drained batch its sequence, unless it has one."""
        if not self.idempotent:
            return
        entry = self._entry(batch)
        if batch.has_sequence:
            if entry.absent is not None and batch.order <= entry.absent:
                entry.absent = None  # it goes to the wire again, so it may be written now
            return
        if not entry.numbered and not self._is_current(entry):
            entry.producer_id, entry.epoch, entry.next = self.producer_id, self.epoch, 0
            entry.gap = entry.absent = None
        if self.transaction is not None:
            self.transaction.sent()
        batch.set_producer_state(entry.producer_id, entry.epoch, entry.next, self.transaction is not None)
        entry.next = next_sequence(entry.next, batch.record_count)
        entry.add(batch)

    # --- after the answer ---------------------------------------------------------------------------------------------

    def cures(self, batch: ProducerBatch) -> bool:
        """Whether a batch that the broker found out of order may be in order when it is sent again.

        Outside of transactions always, at the latest by a bump; inside only behind another unresolved batch.
        """
        if not batch.has_sequence:
            return False
        return self.transaction is None or self._entry(batch).numbered[0] is not batch

    def acknowledged(self, batch: ProducerBatch) -> None:
        """The batch is in the log, and so is everything that was numbered before it."""
        if not batch.has_sequence:
            return
        entry = self._entry(batch)
        entry.strike(batch)
        if batch.order > entry.former:
            entry.known_producer_id = batch.producer_id
        if entry.gap is not None and batch.order >= entry.gap:
            entry.gap = None
        self._bump_if_settled(entry)

    def unanswered(self, batch: ProducerBatch) -> None:
        """An attempt ended without an answer that tells whether the batch is in the log."""
        if batch.has_sequence:
            entry = self._entry(batch)
            batch.in_doubt = entry.absent is None or batch.order < entry.absent
            self._bump_if_settled(entry)

    def out_of_order(self, batch: ProducerBatch) -> None:
        """The broker has neither the batch nor what it expects before it; the batch is about to be queued again.

        With an older batch unresolved that is the reason, and sending both again in order is the cure. The first of
        the numbered batches has no such excuse: the broker has lost its state, and only a bump helps.
        """
        if batch.has_sequence:
            entry = self._entry(batch)
            entry.rule_out(batch)
            if entry.numbered[0] is batch:
                entry.open_gap(batch)
            self._bump_if_settled(entry)

    def settle(self, batch: ProducerBatch) -> None:
        """A queued batch is off the wire: the bump that waits for it may follow."""
        if batch.has_sequence:
            self._bump_if_settled(self._entry(batch))

    def expired_in_flight(self, batch: ProducerBatch) -> None:
        """Its Deliveries have failed while the answer is still to come: no new sequences until it has."""
        if batch.has_sequence:
            self._entry(batch).open_gap(batch)

    def failed(self, batch: ProducerBatch, *, epoch_refused: bool = False) -> None:
        """The batch has ended without an acknowledgement and will not be sent again.

        Args:
            epoch_refused: the broker knows a newer epoch, so the next batch needs a bump in any case.
        """
        if not batch.has_sequence:
            return
        entry = self._entry(batch)
        was_last = entry.numbered[-1] is batch
        if not batch.in_doubt:
            entry.rule_out(batch)
        entry.strike(batch)
        if was_last and not batch.in_doubt and entry.gap is None and not epoch_refused:
            entry.next = batch.base_sequence  # nobody has seen the number: the next batch takes it
            entry.absent = None
        else:
            entry.open_gap(batch)
        self._bump_if_settled(entry)

    def split(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """The pieces continue the sequences of the batch that was refused as too large."""
        if batch.has_sequence:
            entry = self._entry(batch)
            entry.replace(batch, pieces)
            self._bump_if_settled(entry)

    @property
    def has_gap(self) -> bool:
        """Whether a partition can't go on under its present epoch."""
        return any(entry.gap is not None and self._is_current(entry) for entry in self._partitions.values())

    # --- the bump -----------------------------------------------------------------------------------------------------

    def _entry(self, batch: ProducerBatch) -> PartitionSequences:
        key = (batch.topic, batch.partition)
        entry = self._partitions.get(key)
        if entry is None:
            entry = self._partitions[key] = PartitionSequences()
        return entry

    def _is_current(self, entry: PartitionSequences) -> bool:
        return entry.producer_id == self.producer_id and entry.epoch == self.epoch

    def _bump_if_settled(self, entry: PartitionSequences) -> None:
        """Start the partition again under a new epoch, once that can't write anything twice."""
        if entry.gap is None or self.transaction is not None or not entry.is_settled():
            return
        if self._is_current(entry):
            if self.epoch < MAX_EPOCH:
                self.epoch += 1
            else:
                self.producer_id = NO_PRODUCER_ID
        for batch in entry.numbered:
            batch.set_producer_state(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)
        entry.numbered, entry.places = [], []
        entry.gap = entry.absent = None
        entry.producer_id, entry.epoch = NO_PRODUCER_ID, NO_EPOCH
