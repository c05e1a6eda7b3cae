"""Producer id, epoch and sequences: they let a broker recognise a batch that it already has.

Theory of operation. A batch gets (producer id, epoch, base sequence) when it is first drained and keeps them over
retries, so a leader that already has the batch answers with success and writes nothing. Sequences count records, per
partition and epoch, and must not have gaps. A gap opens when a batch with a sequence fails: the broker then refuses
everything after it (OUT_OF_ORDER_SEQUENCE_NUMBER) until the partition restarts at 0 under the next epoch. That is
called the bump.

    in order --a batch with a sequence fails, or expires in flight--> gap: no new sequences here
    gap --a later batch is acknowledged (so the failed one was written)--> in order
    gap --every numbered batch is off the wire and surely not in the log--> bump: next epoch, sequences from 0

The bump waits for certainty, unlike in the Java client (KIP-360): Java renumbers every batch in flight, including one
that the broker wrote and whose answer was lost, and so writes it twice. Here a batch in doubt keeps its number and is
sent again until the broker's answer settles it: success if it has the batch, OUT_OF_ORDER if not. That answer is
certain because, from the oldest unresolved batch of a partition on, at most five have numbers, and a broker remembers
five. And once one batch is surely not in the log, neither is any batch numbered after it, until it is sent again: then
what is left of those on an abandoned connection may be written, so they are in doubt again.

A broker that has restarted remembers only the last batch in its log. So if the first batch in doubt is refused, those
behind it in doubt follow it when it is sent again, though they may be out of order. If one of them is acknowledged,
those before it are in the log, too, as sequences have no gaps, and a refusal only means that the broker has forgotten
them. If all are refused, none of them is, unless one behind them has ended in doubt: that may be the one that the
broker remembers. Then nobody can tell, and they fail.

A copy may still arrive after such a refusal: a broker that froze reads its connections in any order, including the rest
of an abandoned one, which holds an older batch and this one behind it. So a batch in doubt counts as ruled out only
after it was sent again a second after its first refusal and was refused again; until then it keeps its number.

A leader that is cut off from its cluster goes on as one, and a client that reaches nobody else believes it in the end.
It lacks what was written at its successor, so it refuses what follows, which may be in the log of the successor. So no
refusal counts of a leader whose epoch is older than one that batches were sent to before.

Books are kept as long as the producer lives, even for a topic that is forgotten because nobody uses it: if numbers
restarted at 0 under the same epoch, a broker would take new batches for duplicates of old ones, and acknowledge them
without writing them.

A topic that is deleted and recreated has an empty log, whose leader accepts any first sequence. The numbers go on
there, for the reason above, but nothing else known about the former log holds: the producer has to be introduced again,
and what was ruled out before may be written now. From Kafka 4.5 on (KAFKA-15591) only 0 is accepted there; the refusal
is then taken for lost state, and a bump or a new epoch follows.

If another cluster has taken the place of the former one, everything starts over with a producer id of that cluster:
each cluster counts its producer ids from 0, so the same one may be in use there.

The new epoch is local: a broker accepts a higher epoch from an idempotent producer without being asked. After 32767 a
new producer id is fetched instead. Other partitions go on under their old epoch and move once none of their batches is
unresolved.

A transaction has no local bump: a gap spoils the transaction, and the coordinator gives the next epoch, with the end of
the transaction (KIP-890) or through InitProducerId. Before V2, a batch in doubt is still sent again, so that no copy of
it can appear in the log after the transaction has ended.

Source: KIP-98, KIP-360; org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aioproducer._sequences import PartitionSequences, SequenceBooks
from aioproducer.records import TopicPartition
from aioproducer.transaction.partitions import LAST_PRODUCE_V1

if TYPE_CHECKING:
    from aioproducer._producer_batch import ProducerBatch

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_SEQUENCE = -1
MAX_EPOCH = 32767
NOT_REFUSED = -1
LATE_COPY_MS = 1_000
"""How long after a broker refused a batch in doubt another copy of it may still arrive there."""


def is_identity(producer_id: int, epoch: int) -> bool:
    """Whether batches can be written under this id and epoch; negative values mean none, in batches too."""
    return producer_id >= 0 and epoch >= 0


class TransactionManager(SequenceBooks):
    """Hands out producer state and decides about gaps; does no I/O and reads no clock."""

    @property
    def needs_producer_id(self) -> bool:
        """Whether nothing new can be sent before InitProducerId is answered."""
        return self.idempotent and self.producer_id == NO_PRODUCER_ID

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        """Adopt the answer of InitProducerId; a partition moves to it once its numbered batches have ended."""
        self.producer_id: int = producer_id
        self.epoch: int = epoch

    def produce_version(self, version: int) -> int:
        """The version of Produce to use with a broker that speaks this one."""
        if self.transaction_partitions is not None and self.transaction_partitions.version < 2:
            return min(version, LAST_PRODUCE_V1)
        return version

    def request_ended(self, batches: Sequence[ProducerBatch]) -> None:
        """A Produce request with these batches has been answered, or never will be."""
        if self.transaction_partitions is not None:
            self.transaction_partitions.request_ended(TopicPartition(each.topic, each.partition) for each in batches)

    # --- after the answer ---------------------------------------------------------------------------------------------

    def cures(self, batch: ProducerBatch) -> bool:
        """Whether a batch that the broker found out of order may be in order when sent again.

        Outside transactions at the latest after a bump, unless it may be in the log for good; inside one only behind
        another unresolved batch, or if the broker decides nothing.
        """
        if not batch.has_sequence:
            return False
        books = self._books_of(batch)
        if _is_refused_for_good(batch) and not books.leaves_in_doubt(batch) and books.is_beyond_proof(batch):
            return False
        return self.transaction_partitions is None or books.numbered[0] is not batch or books.leaves_in_doubt(batch)

    def unanswered(self, batch: ProducerBatch) -> None:
        """An attempt ended without an answer that shows whether the batch is in the log."""
        if batch.has_sequence:
            books = self._books_of(batch)
            if books.absent is None or batch.order < books.absent:
                batch.begin_doubt()
            self._bump_if_settled(books)

    def out_of_order(self, batch: ProducerBatch, now_ms: int) -> None:
        """The broker has neither the batch nor the one it expects before it; the batch is about to be queued again.

        If an older batch is unresolved, that is the reason, and resending both in order is the cure. If this is the
        oldest numbered batch, the broker has lost its state, and only a bump helps.
        """
        if not batch.has_sequence:
            return
        books = self._books_of(batch)
        if books.leaves_in_doubt(batch):
            return
        if not batch.in_doubt:
            books.rule_out(batch)
        elif batch.refused_ms == NOT_REFUSED:
            batch.refused_ms = now_ms
        elif _is_refused_for_good(batch):
            books.refused_for_good(batch)
        if books.numbered[0] is batch:
            books.open_gap(batch)
        self._bump_if_settled(books)

    def shows_loss(self, batch: ProducerBatch) -> bool:
        """Whether a leader that finds this batch out of order lost what it had acknowledged, or forgot the producer."""
        if not batch.has_sequence:
            return False
        books = self._books_of(batch)
        is_next = books.numbered[0] is batch and not batch.in_doubt and books.gap is None
        return is_next and books.is_known()

    def settle(self, batch: ProducerBatch) -> None:
        """A queued batch is off the wire: a bump that waits for it may follow."""
        if batch.has_sequence:
            self._bump_if_settled(self._books_of(batch))

    def expired_in_flight(self, batch: ProducerBatch) -> None:
        """The batch's Deliveries failed before its answer came: no new sequences until it comes."""
        if batch.has_sequence:
            self._books_of(batch).open_gap(batch)

    def failed(self, batch: ProducerBatch, *, number_refused: bool = False) -> None:
        """The batch ended without an acknowledgement and will not be sent again.

        Args:
            number_refused: the broker expects another epoch or sequence, and would refuse the next batch that gets this
                one's number, too.
        """
        if not batch.has_sequence:
            return
        books = self._books_of(batch)
        was_last = books.numbered[-1] is batch
        if not batch.in_doubt:
            books.rule_out(batch)
        else:
            books.unsettled = max(books.unsettled, batch.order)
        books.strike(batch)
        if was_last and not batch.in_doubt and not batch.maybe_written and books.gap is None and not number_refused:
            books.next = batch.base_sequence  # no broker will see the number: the next batch reuses it
            if books.absent == batch.order:  # else an older batch is absent, which others may be behind
                books.absent = None
        else:
            books.open_gap(batch)
        self._bump_if_settled(books)

    def split(self, batch: ProducerBatch, pieces: Sequence[ProducerBatch]) -> None:
        """The pieces take over the sequences of the batch that was refused as too large."""
        if batch.has_sequence:
            books = self._books_of(batch)
            books.replace(batch, pieces)
            self._bump_if_settled(books)

    # --- the bump -----------------------------------------------------------------------------------------------------

    def _bump_if_settled(self, books: PartitionSequences) -> None:
        """Restart the partition under a new epoch, once that can't write anything twice."""
        if books.gap is None or self.transaction_partitions is not None or not books.is_settled():
            return
        if self._is_current(books):
            if self.epoch < MAX_EPOCH:
                self.epoch += 1
            else:
                self.producer_id = NO_PRODUCER_ID
        self._take_numbers_back(books)

    def start_over(self) -> None:
        """Another cluster has taken the place of the one that gave the producer id; nothing is in flight.

        There the id may be another producer's, and batches under it would pass for repeats of that one's. The batches
        that have numbers are surely not in the logs of the new cluster, whatever became of them at the former one.
        """
        self.set_producer_id(NO_PRODUCER_ID, NO_EPOCH)
        for books in self.all_books():
            for batch in books.numbered:
                batch.in_doubt = False
            self._take_numbers_back(books)
            books.known_producer_id = NO_PRODUCER_ID
            books.former = ()
            books.leader_epoch = NO_EPOCH

    def _take_numbers_back(self, books: PartitionSequences) -> None:
        """The partition starts again at 0, under whichever producer id and epoch come next."""
        for batch in books.numbered:
            batch.set_producer_state(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)
        books.numbered = []
        books.gap = books.absent = None
        books.unsettled = ()
        books.producer_id, books.epoch = NO_PRODUCER_ID, NO_EPOCH


def _is_refused_for_good(batch: ProducerBatch) -> bool:
    """Whether a batch in doubt was sent again when no copy of it could arrive late any more, and is refused again."""
    return batch.in_doubt and batch.refused_ms != NOT_REFUSED and batch.drained_ms - batch.refused_ms >= LATE_COPY_MS
