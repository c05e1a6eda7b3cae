"""Sequences, gaps and epoch bumps, state by state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aioproducer._outcomes import acknowledge
from aioproducer._producer_batch import ProducerBatch
from aioproducer._sequences import KNOWN_FOR_MS, MAX_UNRESOLVED, next_sequence
from aioproducer.records import TopicPartition
from aioproducer.transaction.manager import (
    LATE_COPY_MS,
    MAX_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TransactionManager,
    is_identity,
)
from aioproducer.transaction.partitions import TransactionPartitions
from tests.unit.core import TOPIC_ID, add_topic, drain, drain_all, make_accumulator, put

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors.json").read_text())
PID = 4000
MAX_SEQUENCE = 2**31 - 1


def number(batch: ProducerBatch) -> tuple[int, int, int]:
    return batch.producer_id, batch.producer_epoch, batch.base_sequence


class Partition:
    """One partition's batches, moved as by Sender and BatchOutcomes."""

    def __init__(self, sequences: TransactionManager, partition: int = 0, topic: str = "orders") -> None:
        self.sequences = sequences
        self.partition = partition
        self.accumulator = make_accumulator()
        self.topic = add_topic(self.accumulator, topic, leaders=[1] * (partition + 1))

    def batch(self, records: int = 10) -> ProducerBatch:
        """A batch that waits to be sent."""
        for _ in range(records):
            put(self.accumulator, self.topic, partition=self.partition)
        *waiting, batch = drain_all(self.accumulator)
        self.requeue(*waiting, batch)
        return batch

    def requeue(self, *batches: ProducerBatch) -> None:
        for batch in batches:
            self.accumulator.requeue(batch, 0, 0)

    def take(self, batch: ProducerBatch, now_ms: int = 0) -> None:
        """Take a queued batch, whatever waits before it."""
        before = []
        while not batch.in_flight:
            before += [each for each in drain(self.accumulator, now_ms=now_ms) if each is not batch]
        self.requeue(*before)

    def may_send(self, batch: ProducerBatch) -> bool:
        return self.sequences.may_send(batch)

    def send(self, batch: ProducerBatch | None = None, *, records: int = 10, now_ms: int = 0) -> ProducerBatch:
        """Give a batch its sequence and send it."""
        batch = self.batch(records) if batch is None else batch
        assert self.may_send(batch)
        self.take(batch, now_ms)
        self.sequences.number_all([batch])
        return batch

    def ack(self, batch: ProducerBatch) -> None:
        self.take(batch)
        self.sequences.request_ended([batch])
        acknowledge(self.sequences, self.accumulator, batch, 0, -1)

    def lose(self, batch: ProducerBatch) -> None:
        """The answer is lost, and the batch is requeued."""
        self.sequences.request_ended([batch])
        batch.maybe_written = True
        self.requeue(batch)
        self.sequences.unanswered(batch)

    def retry(self, batch: ProducerBatch) -> None:
        """An answer that says that it was not written; the batch is requeued."""
        self.requeue(batch)
        self.sequences.settle(batch)

    def out_of_order(self, batch: ProducerBatch, now_ms: int = 0) -> None:
        """An OUT_OF_ORDER answer at this time; the batch is requeued."""
        self.requeue(batch)
        self.sequences.out_of_order(batch, now_ms)

    def fail(self, batch: ProducerBatch, *, number_refused: bool = False) -> None:
        """A final error for the batch, or its expiry in the queue."""
        self.sequences.failed(batch, number_refused=number_refused)
        self.end(batch)

    def end(self, batch: ProducerBatch) -> None:
        self.take(batch)
        self.accumulator.release(batch)

    def fail_in_doubt(self, batch: ProducerBatch) -> None:
        """Its answer is lost, and it has expired."""
        self.sequences.unanswered(batch)
        self.fail(batch)

    def expire_in_flight(self, batch: ProducerBatch) -> None:
        self.sequences.expired_in_flight(batch)

    def halve(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Split a batch that was refused as too large."""
        pieces = self.accumulator.split(batch, bytes(batch.contents()), 0)
        self.sequences.split(batch, pieces)
        assert len(pieces) == 2
        return pieces


def go_on_at(partition: Partition, sequence: int) -> None:
    """Set the next sequence, as after billions of records."""
    partition.sequences._books_of(partition.batch()).next = sequence


def known(partition: Partition) -> Partition:
    """Have a batch acknowledged, and start at sequence 0 again."""
    partition.ack(partition.send())
    go_on_at(partition, 0)
    return partition


@pytest.fixture
def sequences() -> TransactionManager:
    sequences = TransactionManager(idempotent=True)
    sequences.set_producer_id(PID, 0)
    return sequences


@pytest.fixture
def one(sequences: TransactionManager) -> Partition:
    """One partition whose leader knows the producer."""
    return known(Partition(sequences))


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS["sequence_increment"], ids=str)
def test_sequences_as_kafkas(vector: dict[str, int]) -> None:
    """Sequences wrap from 2147483647 to 0, as DefaultRecordBatch.incrementSequence does."""
    assert next_sequence(vector["sequence"], vector["increment"]) == vector["result"]


def test_sequences_count_records(one: Partition) -> None:
    """Each batch's sequences begin where the previous one's ended."""
    sent = [one.send(records=count) for count in (1, 5, 100)]
    assert [number(batch) for batch in sent] == [(PID, 0, 0), (PID, 0, 1), (PID, 0, 6)]
    for batch in sent:
        one.ack(batch)
    assert one.send().base_sequence == 106


def test_sequences_count_by_partition(sequences: TransactionManager) -> None:
    """Each partition of each topic has its own sequences."""
    partitions = [known(Partition(sequences, number)) for number in range(3)]
    assert [partition.send().base_sequence for partition in partitions] == [0, 0, 0]
    assert [partition.send().base_sequence for partition in partitions] == [10, 10, 10]
    assert Partition(sequences, topic="audit").send().base_sequence == 0


def test_sequences_wrap(one: Partition) -> None:
    """A batch may lie across the wraparound."""
    go_on_at(one, MAX_SEQUENCE - 2)
    across = one.send(records=10)
    assert across.base_sequence == MAX_SEQUENCE - 2
    after = one.send()
    assert after.base_sequence == 7
    one.ack(across)
    one.fail(after)
    assert one.send().base_sequence == 7


def test_a_number_survives_retries(one: Partition) -> None:
    """However often a batch is sent, it keeps its sequence."""
    batch = one.send()
    for outcome in one.lose, one.retry, one.lose:
        before = number(batch)
        outcome(batch)
        assert number(one.send(batch)) == before


def test_no_number_before_the_producer_id() -> None:
    """Batches wait until InitProducerId has answered."""
    sequences = TransactionManager(idempotent=True)
    one = Partition(sequences)
    batch = one.batch()
    assert sequences.needs_producer_id
    assert not one.may_send(batch)
    sequences.set_producer_id(PID, 7)
    assert not sequences.needs_producer_id
    assert number(one.send(batch)) == (PID, 7, 0)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "valid"), [(0, 0, True), (-1, 0, False), (0, -1, False), (-1, -1, False)]
)
def test_an_identity_has_both_numbers(producer_id: int, epoch: int, valid: bool) -> None:
    assert is_identity(producer_id, epoch) is valid


def test_not_idempotent() -> None:
    """Without idempotence every batch may be sent, and none has a sequence."""
    sequences = TransactionManager(idempotent=False)
    one = Partition(sequences)
    assert not sequences.needs_producer_id
    sent = [one.send() for _ in range(20)]
    assert all(number(batch) == (NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE) for batch in sent)
    for outcome in one.ack, one.lose, one.retry, one.out_of_order, one.fail, one.expire_in_flight:
        outcome(sent.pop())
    sequences.split(sent[0], [])
    assert one.may_send(one.batch())
    assert (sequences.producer_id, sequences.epoch) == (NO_PRODUCER_ID, NO_EPOCH)


# --- what may go ------------------------------------------------------------------------------------------------------


def test_five_unresolved(one: Partition) -> None:
    """A partition has at most as many unresolved batches as a broker remembers."""
    sent = [one.send() for _ in range(MAX_UNRESOLVED)]
    assert MAX_UNRESOLVED == 5
    waiting = one.batch()
    assert not one.may_send(waiting)
    one.lose(sent[0])
    assert not one.may_send(waiting), "in doubt is not resolved"
    one.ack(one.send(sent[0]))
    assert one.may_send(waiting)


def test_acknowledged_batches_count_behind_an_unresolved_one(one: Partition) -> None:
    """A broker forgets a batch once five later ones are in the log, whether or not their answers have arrived.

    A batch is written, and answered with a code that leaves that open. Were six written before it is sent again, the
    broker would no longer know it, answer OUT_OF_ORDER, and have it written a second time after the bump.
    """
    first = one.send()
    for _ in range(4):
        one.ack(one.send())
    one.lose(first)
    one.send(first)
    assert not one.may_send(one.batch())
    one.ack(first)
    assert one.may_send(one.batch())


def test_one_at_a_time_until_the_leader_knows_the_producer(sequences: TransactionManager) -> None:
    """A leader that does not know the producer accepts any first sequence, so no second batch is sent until it has one.

    Otherwise the first could be refused temporarily, the second be written, and the first after it.
    """
    sequences.set_producer_id(PID, MAX_EPOCH)
    one = Partition(sequences)
    first = one.send()
    assert not one.may_send(one.batch())
    one.retry(first)
    one.ack(one.send(first))
    second = one.send()
    assert one.may_send(one.batch())
    one.fail_in_doubt(second)
    sequences.set_producer_id(PID + 1, 0)
    one.send()
    assert not one.may_send(one.batch()), "another producer id, which it does not know"


def test_a_known_producer_needs_no_introduction_after_a_bump(one: Partition, sequences: TransactionManager) -> None:
    """Under a new epoch of a known producer a leader accepts only sequence 0."""
    one.ack(one.send())
    one.fail_in_doubt(one.send())
    assert sequences.epoch == 1
    assert number(one.send()) == (PID, 1, 0)
    assert one.may_send(one.batch())


def test_a_recreated_topic(one: Partition) -> None:
    """Its leader knows the producer only from a batch that was sent since; then several may be in flight again."""
    before = one.send()
    one.accumulator.update_topic("orders", bytes(range(1, 17)), [(1, 0)])
    waiting = one.batch()
    assert not one.may_send(waiting)
    one.ack(before)
    first = one.send(waiting)
    assert not one.may_send(one.batch()), "the answer was that of the former log"
    one.ack(first)
    one.send()
    one.send()


@pytest.mark.parametrize("pause_ms", [KNOWN_FOR_MS - 1, KNOWN_FOR_MS])
def test_after_a_pause_the_leader_may_have_forgotten_the_producer(one: Partition, pause_ms: int) -> None:
    """It then accepts any first sequence again: one batch has to be acknowledged before more are sent."""
    one.ack(one.send(now_ms=5))
    first = one.send(now_ms=5 + pause_ms)
    assert one.may_send(one.batch()) is (pause_ms < KNOWN_FOR_MS)
    one.ack(first)
    one.send(now_ms=5 + pause_ms)
    assert one.may_send(one.batch())


def test_a_topic_made_again_does_not_know_the_producer(one: Partition, sequences: TransactionManager) -> None:
    """Its log is empty and accepts any first sequence, so one batch has to be acknowledged before more are sent."""
    one.ack(one.send())
    one.accumulator.update_topic("orders", bytes(16), [(1, 0)])
    first, second = one.batch(), one.batch()
    one.send(first)
    assert not one.may_send(second)
    one.ack(first)
    one.send(second)
    assert one.may_send(one.batch())
    assert number(second) == (PID, 0, 20), "the numbers go on: under the same epoch none is given twice"


def test_only_the_first_is_repeated(one: Partition) -> None:
    """After a lost connection the batches are resent one by one: one that overtook others would be out of order."""
    first, second, third = (one.send() for _ in range(3))
    for batch in first, second, third:
        one.lose(batch)
    assert [one.may_send(batch) for batch in (first, second, third)] == [True, False, False]
    one.ack(one.send(first))
    assert [one.may_send(batch) for batch in (second, third)] == [True, False]


def test_a_full_partition_does_not_hold_up_another(sequences: TransactionManager) -> None:
    """Limits apply per partition."""
    full, free = known(Partition(sequences, 0)), known(Partition(sequences, 1))
    for _ in range(MAX_UNRESOLVED):
        full.send()
    assert not full.may_send(full.batch())
    assert free.may_send(free.batch())


# --- failures without a gap -------------------------------------------------------------------------------------------


def test_the_next_batch_reuses_the_sequence_of_one_that_is_not_in_the_log(
    one: Partition, sequences: TransactionManager
) -> None:
    """If the last numbered batch is certainly not in the log, the next one gets its sequence: no gap, no bump."""
    one.ack(one.send())
    failed = one.send(records=7)
    one.fail(failed)
    follower = one.send()
    assert number(follower) == (PID, 0, 10)
    assert sequences.epoch == 0


def test_rewind_of_several(one: Partition) -> None:
    """Several that fail from the last to the first rewind to the first."""
    sent = [one.send() for _ in range(3)]
    for batch in reversed(sent):
        one.fail(batch)
    assert number(one.send()) == (PID, 0, 0)


def test_expiry_before_the_wire(one: Partition, sequences: TransactionManager) -> None:
    """A batch that fails before it has a sequence leaves no trace."""
    one.fail(one.batch())
    one.ack(one.batch())
    assert number(one.send()) == (PID, 0, 0)
    assert sequences.epoch == 0


# --- gap and bump -----------------------------------------------------------------------------------------------------


def test_gap_stops_the_partition(one: Partition) -> None:
    """When a batch with later ones in flight fails, no new batch gets a sequence."""
    first, second = one.send(), one.send()
    one.fail(first)
    assert not one.may_send(one.batch())
    assert number(second) == (PID, 0, 10)


def test_bump_when_the_last_answer_is_there(one: Partition, sequences: TransactionManager) -> None:
    """Once nothing is in flight, and nothing can be in the log, the rest starts at 0 under the next epoch."""
    first, second, third = (one.send() for _ in range(3))
    one.fail(first)
    one.out_of_order(second)
    assert sequences.epoch == 0
    one.out_of_order(third)
    assert sequences.epoch == 1
    assert not second.has_sequence
    assert [number(one.send(batch)) for batch in (second, third)] == [(PID, 1, 0), (PID, 1, 10)]
    assert number(one.send()) == (PID, 1, 20)


def test_bump_when_the_last_one_is_queued_again(one: Partition, sequences: TransactionManager) -> None:
    """Whole or in pieces: its number would only be refused."""
    for epoch, queue in ((1, one.retry), (2, one.halve)):
        first, second = one.send(), one.send()
        one.fail(first)
        assert sequences.epoch == epoch - 1
        waiting = queue(second) or [second]
        assert sequences.epoch == epoch
        assert [number(one.send(batch))[1] for batch in waiting] == [epoch] * len(waiting)
        for batch in waiting:
            one.ack(batch)


def test_bump_at_once_when_nothing_is_out(one: Partition, sequences: TransactionManager) -> None:
    """If a batch in doubt fails, with nothing behind it, its partition starts a new epoch at once."""
    one.fail_in_doubt(one.send())
    assert sequences.epoch == 1
    assert number(one.send()) == (PID, 1, 0)


def test_gap_closed_by_a_later_acknowledgement(one: Partition, sequences: TransactionManager) -> None:
    """If a later batch is in the log, the one in doubt is, too: no gap, no bump."""
    first, second = one.send(), one.send()
    one.fail_in_doubt(first)
    assert not one.may_send(one.batch())
    one.ack(second)
    assert sequences.epoch == 0
    assert number(one.send()) == (PID, 0, 20)


def test_gap_not_closed_by_an_earlier_acknowledgement(one: Partition, sequences: TransactionManager) -> None:
    """An acknowledgement of an earlier batch says nothing about the failed one."""
    first, second, third = (one.send() for _ in range(3))
    one.fail_in_doubt(second)
    one.ack(first)
    assert not one.may_send(one.batch())
    assert sequences.epoch == 0
    one.ack(third)
    assert number(one.send()) == (PID, 0, 30)


def test_the_last_of_several_gaps_has_to_be_closed(one: Partition, sequences: TransactionManager) -> None:
    """Batches may fail in any order; an acknowledgement says nothing about those behind its batch."""
    first, second, third, fourth = (one.send() for _ in range(4))
    one.fail_in_doubt(third)
    one.fail_in_doubt(first)
    one.ack(second)
    assert sequences.has_gap
    assert not one.may_send(one.batch())
    one.ack(fourth)
    assert number(one.send()) == (PID, 0, 40)


def test_batch_in_doubt_holds_up_the_bump(one: Partition, sequences: TransactionManager) -> None:
    """A batch in doubt keeps its sequence and is resolved first: renumbered, it could be written twice."""
    first, second = one.send(), one.send()
    one.fail_in_doubt(first)
    one.lose(second)
    assert second.in_doubt
    assert sequences.epoch == 0
    for drained_ms in (4_999, 5_001, 5_000 + LATE_COPY_MS - 1):
        assert number(one.send(second, now_ms=drained_ms)) == (PID, 0, 10)
        one.out_of_order(second, drained_ms + 1)
        assert second.in_doubt, "what is left of the former connection may still be read"
        assert not one.may_send(one.batch())
    assert sequences.epoch == 0
    one.out_of_order(one.send(second, now_ms=5_000 + LATE_COPY_MS), 9_000)
    assert not second.in_doubt
    assert sequences.epoch == 1
    assert number(one.send(second)) == (PID, 1, 0)


def refuse_all(one: Partition, *batches: ProducerBatch, at_ms: int) -> None:
    """Send the batches again, one right behind the other; all are out of order."""
    for batch in batches:
        one.send(batch, now_ms=at_ms)
    for batch in batches:
        one.out_of_order(batch, at_ms)


@pytest.mark.parametrize("later", [0, LATE_COPY_MS])
def test_a_restarted_broker_remembers_the_last_batch_only(
    one: Partition, sequences: TransactionManager, later: int
) -> None:
    """It refuses those before it as out of order, and they are in the log: so those behind a refused one follow it."""
    first, second, third, fourth = (one.send() for _ in range(4))
    for batch in first, second, third, fourth:
        one.lose(batch)
    one.out_of_order(one.send(first, now_ms=5_000), 5_000)
    for batch in first, second, third, fourth:
        one.send(batch, now_ms=5_000 + later)
    for batch in first, second:
        one.out_of_order(batch, 5_000 + later)
    one.ack(third)
    one.out_of_order(fourth, 5_000 + later)
    assert first.followed
    assert second.followed
    assert not fourth.followed
    for batch in first, second, fourth:
        one.ack(one.send(batch))
    assert sequences.epoch == 0
    assert number(one.send()) == (PID, 0, 40)


def test_the_batches_before_an_acknowledged_one(one: Partition) -> None:
    """The leader would not have taken it without them."""
    first, second, third = one.send(), one.send(), one.send()
    one.lose(first)
    one.ack(second)
    assert first.followed
    assert not third.followed


def test_the_refusal_of_a_later_one_does_not_rule_out_what_is_before_an_acknowledged_one(one: Partition) -> None:
    first, second, third = (one.send() for _ in range(3))
    for batch in first, second, third:
        one.lose(batch)
    one.out_of_order(one.send(first, now_ms=5_000), 5_000)
    refuse_all(one, first, second, third, at_ms=6_000)
    for batch in first, second, third:
        one.send(batch, now_ms=7_000)
    one.out_of_order(first, 7_000)
    one.ack(second)
    one.out_of_order(third, 7_000)
    assert first.in_doubt
    assert not third.in_doubt


def test_the_log_of_a_topic_made_again_does_not_hold_what_the_former_one_did(one: Partition) -> None:
    first, second, third = one.send(), one.send(), one.send()
    one.lose(first)
    one.ack(second)
    one.accumulator.update_topic("orders", b"another topic id", [(1, 0)])
    assert one.may_send(first)
    assert not first.followed
    one.ack(third)
    assert not first.followed, "that was acknowledged by the former leader"


def test_under_a_new_number_nothing_is_in_the_log(one: Partition, sequences: TransactionManager) -> None:
    first, second = one.send(), one.send()
    one.lose(first)
    one.ack(second)
    sequences.start_over()
    sequences.set_producer_id(PID, 0)
    one.send(first)
    assert not first.followed


def test_none_is_ruled_out_before_each_was_refused(one: Partition, sequences: TransactionManager) -> None:
    """The last one written may be among those that the broker was not asked about."""
    first, second, third = (one.send() for _ in range(3))
    for batch in first, second, third:
        one.lose(batch)
    for at_ms in 5_000, 5_000 + LATE_COPY_MS:
        one.out_of_order(one.send(first, now_ms=at_ms), at_ms)
    assert first.in_doubt
    refuse_all(one, first, second, third, at_ms=7_000)
    assert sequences.epoch == 0
    refuse_all(one, first, second, third, at_ms=7_000 + LATE_COPY_MS)
    assert sequences.epoch == 1
    assert [number(one.send(batch)) for batch in (first, second)] == [(PID, 1, 0), (PID, 1, 10)]


def test_what_nobody_can_tell_any_more_is_not_sent_under_a_new_number(
    one: Partition, sequences: TransactionManager
) -> None:
    """The last batch that was written, which is all that a restarted broker remembers, may have ended in doubt."""
    first, second, third = (one.send() for _ in range(3))
    for batch in first, second:
        one.lose(batch)
    one.fail_in_doubt(third)
    one.out_of_order(one.send(first, now_ms=5_000), 5_000)
    one.send(first, now_ms=5_000 + LATE_COPY_MS)
    one.send(second, now_ms=5_000 + LATE_COPY_MS)
    assert sequences.cures(first), "the next one may prove it"
    one.out_of_order(first, 5_000 + LATE_COPY_MS)
    one.out_of_order(second, 5_000 + LATE_COPY_MS)
    for batch in first, second:
        one.send(batch, now_ms=8_000)
    one.out_of_order(first, 8_000)
    assert not sequences.cures(second)
    one.fail(second, number_refused=True)
    one.send(first, now_ms=9_000)
    assert not sequences.cures(first)
    one.fail(first, number_refused=True)
    assert number(one.send()) == (PID, 1, 0)


def test_a_batch_that_ended_in_doubt_before_says_nothing(one: Partition, sequences: TransactionManager) -> None:
    first, second = one.send(), one.send()
    one.fail_in_doubt(first)
    one.lose(second)
    one.out_of_order(one.send(second, now_ms=5_000), 5_000)
    one.send(second, now_ms=5_000 + LATE_COPY_MS)
    assert sequences.cures(second)


@pytest.mark.parametrize("is_another", [True, False])
def test_what_ended_in_doubt_says_nothing_of_another_topic(
    one: Partition, sequences: TransactionManager, is_another: bool
) -> None:
    first, second = one.send(), one.send()
    one.lose(first)
    one.fail_in_doubt(second)
    if is_another:
        one.accumulator.update_topic("orders", bytes(16), [(1, 0)])
    one.out_of_order(one.send(first, now_ms=5_000), 5_000)
    one.send(first, now_ms=5_000 + LATE_COPY_MS)
    assert sequences.cures(first) == is_another


def test_none_is_ruled_out_while_one_is_on_its_way(one: Partition, sequences: TransactionManager) -> None:
    """Not even one that was sent for the first time, to a former leader that has not answered."""
    first, second, third = (one.send() for _ in range(3))
    one.lose(first)
    one.lose(second)
    refuse_all(one, first, at_ms=4_000)
    for at_ms in 5_000, 7_000, 9_000:
        refuse_all(one, first, second, at_ms=at_ms)
    assert first.in_doubt
    one.ack(third)
    assert first.followed
    assert second.followed
    assert number(one.send()) == (PID, 0, 30)


def test_what_follows_goes_to_the_same_leader(one: Partition) -> None:
    """Two leaders answer in any order."""
    first, second = one.send(), one.send()
    one.lose(first)
    one.lose(second)
    one.out_of_order(one.send(first), 5_000)
    one.send(first)
    assert one.may_send(second)
    one.accumulator.update_topic("orders", TOPIC_ID, [(2, 1)])
    assert not one.may_send(second)


def test_a_leader_that_may_know_nothing_gets_one_batch_at_a_time(one: Partition, sequences: TransactionManager) -> None:
    """It would accept what follows a refused batch."""
    first, second = one.send(), one.send()
    one.lose(first)
    one.lose(second)
    one.accumulator.update_topic("orders", bytes(16), [(1, 0)])
    one.out_of_order(one.send(first, now_ms=5_000), 5_000)
    one.send(first, now_ms=5_000 + LATE_COPY_MS)
    assert not one.may_send(second)
    one.out_of_order(first, 5_000 + LATE_COPY_MS)
    assert sequences.epoch == 1, "no leader that refuses it can have the second one"


def test_late_copy_of_a_batch_in_doubt(one: Partition, sequences: TransactionManager) -> None:
    """Refused at first, then written by a copy on the abandoned connection: the next retry is a duplicate."""
    first, second = one.send(), one.send()
    one.fail_in_doubt(first)
    one.lose(second)
    one.out_of_order(one.send(second), 5_000)
    one.ack(one.send(second))
    assert sequences.epoch == 0
    assert number(one.send()) == (PID, 0, 20)


def refused_twice(one: Partition, batch: ProducerBatch) -> None:
    """So late that it counts, if the leader's refusal counts."""
    for sent_ms in (5_000, 5_000 + LATE_COPY_MS):
        one.out_of_order(one.send(batch, now_ms=sent_ms), sent_ms)


def test_a_leader_of_the_past_decides_nothing(one: Partition, sequences: TransactionManager) -> None:
    """Nobody but a leader that is cut off is reachable: it lacks what its successor has written, which may be all."""
    one.accumulator.update_topic("orders", TOPIC_ID, [(1, 5)])
    first, second = one.send(), one.send()
    one.lose(first)
    one.lose(second)
    one.accumulator.update_topic("orders", TOPIC_ID, [(1, 4)])
    refused_twice(one, first)
    assert (sequences.epoch, sequences.has_gap) == (0, False)
    assert first.in_doubt
    one.accumulator.update_topic("orders", TOPIC_ID, [(1, 5)])
    one.ack(one.send(first))
    one.ack(one.send(second))
    assert number(one.send()) == (PID, 0, 20)


@pytest.mark.parametrize("forget", ["the topic is another one", "the cluster is another one", "nothing"])
def test_who_is_a_leader_of_the_past(one: Partition, sequences: TransactionManager, forget: str) -> None:
    """The epochs of a topic that is made again count from 0, and so may those of another cluster."""
    one.accumulator.update_topic("orders", TOPIC_ID, [(1, 5)])
    one.ack(one.send())
    if forget == "the cluster is another one":
        sequences.start_over()
        sequences.set_producer_id(PID, 0)
    topic_id = bytes(16) if forget == "the topic is another one" else TOPIC_ID
    one.accumulator.update_topic("orders", topic_id, [(1, 0)])
    batch = one.send()
    one.lose(batch)
    refused_twice(one, batch)
    assert sequences.epoch == (0 if forget == "nothing" else 1)


def test_each_lost_answer_leaves_another_copy(one: Partition, sequences: TransactionManager) -> None:
    """The time after the first refusal starts again once another attempt is not answered."""
    first, second = one.send(), one.send()
    one.fail_in_doubt(first)
    one.lose(second)
    one.out_of_order(one.send(second, now_ms=4_990), 5_000)
    one.lose(one.send(second))
    one.out_of_order(one.send(second, now_ms=6_990), 7_000)
    assert second.in_doubt
    one.out_of_order(one.send(second, now_ms=8_000), 8_010)
    assert sequences.epoch == 1


def test_what_is_not_in_doubt_is_ruled_out_at_once(one: Partition, sequences: TransactionManager) -> None:
    """If all attempts of a batch were answered, no copy can arrive late."""
    first, second = one.send(), one.send()
    one.fail(first)
    one.out_of_order(second, 5_000)
    assert sequences.epoch == 1


def test_batch_in_doubt_turns_out_to_be_written(one: Partition, sequences: TransactionManager) -> None:
    """If the broker has it, the failed batch before it was written as well."""
    first, second = one.send(), one.send()
    one.fail_in_doubt(first)
    one.lose(second)
    one.ack(one.send(second))
    assert sequences.epoch == 0
    assert number(one.send()) == (PID, 0, 20)


def test_nothing_after_an_absent_batch_is_in_doubt(one: Partition, sequences: TransactionManager) -> None:
    """Batches numbered after one that is certainly not in the log can't be there either, answered or not."""
    first, second, third = (one.send() for _ in range(3))
    one.lose(third)
    assert third.in_doubt
    one.fail(first)
    assert not third.in_doubt
    one.lose(second)
    assert not second.in_doubt
    assert sequences.epoch == 1, "all is settled"


def test_absent_until_it_is_sent_again(one: Partition) -> None:
    """That is no longer certain once the absent batch is sent again."""
    first, second = one.send(), one.send()
    one.retry(first)
    one.out_of_order(second)
    one.send(first)
    one.lose(first)
    assert first.in_doubt
    one.ack(one.send(first))
    one.lose(one.send(second))
    assert second.in_doubt


def test_copies_behind_an_absent_batch_that_waits(one: Partition, sequences: TransactionManager) -> None:
    """They may be on an abandoned connection, and would pass for the batch that gets their number."""
    first, second, third = (one.send() for _ in range(3))
    one.retry(first)
    one.out_of_order(second)
    one.lose(third)
    one.fail(third)
    assert sequences.epoch == 1


def test_copies_behind_an_absent_batch_that_is_sent_again(one: Partition, sequences: TransactionManager) -> None:
    """Then they may be written, too: their batch keeps its number, and no other gets it."""
    first, second, third = (one.send() for _ in range(3))
    one.retry(first)
    one.out_of_order(second)
    one.lose(third)
    assert not third.in_doubt
    one.ack(one.send(first))
    assert (second.in_doubt, third.in_doubt) == (False, True)
    one.ack(one.send(second))
    one.fail(third)
    assert number(one.send()) == (PID, 1, 0)


def test_copies_behind_an_absent_batch_that_fails_in_doubt(one: Partition, sequences: TransactionManager) -> None:
    """They may have been written behind it: no bump before that is known."""
    first, second, third = (one.send() for _ in range(3))
    one.retry(first)
    one.out_of_order(second)
    one.lose(third)
    one.ack(one.send(first))
    one.fail_in_doubt(one.send(second))
    assert sequences.epoch == 0
    for drained_ms in (5_000, 5_000 + LATE_COPY_MS):
        one.out_of_order(one.send(third, now_ms=drained_ms), drained_ms)
    assert sequences.epoch == 1


def test_nothing_is_absent_once_a_later_batch_is_written(one: Partition) -> None:
    """A leader that has lost its state takes what follows a batch that has failed: nothing is certain any more."""
    failed, second = one.send(), one.send()
    one.fail(failed)
    one.ack(second)
    third = one.send()
    one.lose(third)
    assert third.in_doubt


def test_copies_behind_a_leader_that_knows_nothing(one: Partition) -> None:
    """One that has lost its state takes what follows a batch that has failed, and then what is behind that, too."""
    failed, second, third = (one.send() for _ in range(3))
    one.fail(failed)
    one.lose(third)
    assert not third.in_doubt
    one.ack(second)
    assert third.in_doubt


def test_absent_behind_a_batch_that_expires_and_is_written(one: Partition) -> None:
    """The end of the gap says nothing of what is behind it: that is absent until it is sent again."""
    first, second, third = (one.send() for _ in range(3))
    one.expire_in_flight(first)
    one.out_of_order(second)
    one.lose(third)
    one.ack(first)
    assert (second.in_doubt, third.in_doubt) == (False, False)
    one.send(second)
    assert third.in_doubt


def test_copies_behind_an_absent_batch_when_the_topic_seems_to_be_another(one: Partition) -> None:
    """It need not be, as brokers before 2.8 tell no ids; and if it is, its log may get the copies, too."""
    first, second, third = (one.send() for _ in range(3))
    one.retry(first)
    one.out_of_order(second)
    one.lose(third)
    one.accumulator.update_topic("orders", bytes(16), [(1, 0)])
    one.send(first)
    assert third.in_doubt


def test_copies_behind_a_batch_that_is_refused_when_the_topic_seems_to_be_another(
    one: Partition, sequences: TransactionManager
) -> None:
    """The answer comes from the leader that got the batches before, and the log may be the same one."""
    first, second, third, fourth = (one.send() for _ in range(4))
    one.lose(third)
    one.lose(fourth)
    one.retry(first)
    one.accumulator.update_topic("orders", bytes(16), [(1, 0)])
    one.send(first)
    one.out_of_order(second)
    one.ack(first)
    one.ack(one.send(second))
    one.fail(third)
    assert fourth.in_doubt
    assert sequences.epoch == 0


def test_a_batch_behind_an_absent_one_that_is_sent_to_another_topic(one: Partition) -> None:
    """A log that does not know the producer takes it, although the one before it is not there."""
    first, second, _ = (one.send() for _ in range(3))
    one.retry(first)
    one.retry(second)
    one.accumulator.update_topic("orders", bytes(16), [(1, 0)])
    assert not one.may_send(second)
    one.fail(first)
    one.lose(one.send(second))
    assert second.in_doubt


def test_absent_before_a_batch_that_gives_its_number_back(one: Partition, sequences: TransactionManager) -> None:
    """It was sent to another leader, which refused it for good; the rest still depends on the absent batch."""
    first, second, third, last = (one.send() for _ in range(4))
    one.retry(first)
    one.out_of_order(second)
    one.lose(third)
    one.fail(last)
    assert sequences.epoch == 0
    one.ack(one.send(first))
    assert third.in_doubt


def test_out_of_order_behind_a_repeated_batch(one: Partition, sequences: TransactionManager) -> None:
    """OUT_OF_ORDER follows from an older batch that has to be retried: both are sent again, no bump."""
    first, second = one.send(), one.send()
    one.retry(first)
    one.out_of_order(second)
    assert sequences.epoch == 0
    one.ack(one.send(first))
    assert number(one.send(second)) == (PID, 0, 10)


def test_out_of_order_of_the_first(one: Partition, sequences: TransactionManager) -> None:
    """For the oldest unresolved batch it means that the broker has lost its state, so an epoch bump is needed."""
    one.ack(one.send())
    first, second = one.send(), one.send()
    one.out_of_order(first)
    assert sequences.epoch == 0, "the second is out"
    assert not one.may_send(one.batch())
    one.out_of_order(second)
    assert sequences.epoch == 1
    assert [number(one.send(batch)) for batch in (first, second)] == [(PID, 1, 0), (PID, 1, 10)]


def test_another_cluster_knows_none_of_the_numbers(one: Partition, sequences: TransactionManager) -> None:
    """It may give the same producer id, and to others has given it already."""
    one.ack(one.send())
    lost, refused, retried = one.send(), one.send(), one.send()
    one.lose(lost)
    one.out_of_order(refused)
    one.retry(retried)
    sequences.start_over()
    assert sequences.needs_producer_id
    assert not one.may_send(lost)
    sequences.set_producer_id(PID, 0)
    assert number(one.send(lost)) == (PID, 0, 0)
    assert not lost.in_doubt
    assert not one.may_send(refused), "the leader does not know the producer"
    one.ack(lost)
    assert [number(one.send(batch)) for batch in (refused, retried)] == [(PID, 0, 10), (PID, 0, 20)]


def test_another_cluster_has_no_gap(one: Partition, sequences: TransactionManager) -> None:
    one.ack(one.send())
    failed, later = one.send(), one.send()
    one.fail_in_doubt(failed)
    one.lose(later)
    assert sequences.has_gap
    sequences.start_over()
    assert not sequences.has_gap
    sequences.set_producer_id(PID + 1, 3)
    assert number(one.send(later)) == (PID + 1, 3, 0)


def test_refused_number(one: Partition, sequences: TransactionManager) -> None:
    """A refused epoch or sequence requires an epoch bump, although the failed batch was the last."""
    one.ack(one.send())
    one.fail(one.send(), number_refused=True)
    assert sequences.epoch == 1
    assert number(one.send()) == (PID, 1, 0)


def test_expired_in_flight_and_written(one: Partition, sequences: TransactionManager) -> None:
    """While an expired batch is in flight, no new batch gets a sequence; its own answer may settle that."""
    first = one.send()
    one.expire_in_flight(first)
    assert not one.may_send(one.batch())
    one.ack(first)
    assert sequences.epoch == 0
    assert number(one.send()) == (PID, 0, 10)


def test_expired_in_flight_and_unknown(one: Partition, sequences: TransactionManager) -> None:
    """If its connection ends, an epoch bump follows: it is not sent again."""
    first = one.send()
    one.expire_in_flight(first)
    one.fail_in_doubt(first)
    assert sequences.epoch == 1
    assert number(one.send()) == (PID, 1, 0)


def test_expired_in_flight_and_refused(one: Partition, sequences: TransactionManager) -> None:
    """If the broker says that it was not written, the partition starts a new epoch as well."""
    first = one.send()
    one.expire_in_flight(first)
    one.fail(first)
    assert number(one.send()) == (PID, 1, 0)
    assert sequences.epoch == 1


def test_expiry_itself_does_not_bump(one: Partition, sequences: TransactionManager) -> None:
    """With others in flight, an expired batch changes nothing yet."""
    first, second = one.send(), one.send()
    one.expire_in_flight(first)
    assert sequences.epoch == 0
    assert (number(first), number(second)) == ((PID, 0, 0), (PID, 0, 10))
    one.ack(first)
    one.ack(second)
    assert number(one.send()) == (PID, 0, 20)


def test_queued_batch_with_a_number_expires(one: Partition, sequences: TransactionManager) -> None:
    """A batch that was sent once, answered as not written, and expires while it backs off, leaves no doubt."""
    first, second = one.send(), one.send()
    one.retry(first)
    one.fail(first)
    one.out_of_order(second)
    assert sequences.epoch == 1
    assert number(one.send(second)) == (PID, 1, 0)


def test_queued_batch_in_doubt_expires(one: Partition, sequences: TransactionManager) -> None:
    """One whose answer was lost and that expires before it was resolved leaves a gap until the next is resolved."""
    first, second = one.send(), one.send()
    one.lose(first)
    one.lose(second)
    one.fail(first)
    assert sequences.epoch == 0
    assert second.in_doubt
    one.ack(one.send(second))
    assert number(one.send()) == (PID, 0, 20)


# --- epochs -----------------------------------------------------------------------------------------------------------


def test_other_partitions_finish_on_the_old_epoch(sequences: TransactionManager) -> None:
    """A bump affects the partition that needs it; others follow when they have no unresolved batches."""
    asking, other, idle = (known(Partition(sequences, number)) for number in range(3))
    idle.ack(idle.send())
    first, second = other.send(), other.send()
    asking.fail_in_doubt(asking.send())
    assert sequences.epoch == 1
    assert not other.may_send(other.batch())
    other.lose(first)
    other.out_of_order(second)
    assert number(other.send(first)) == (PID, 0, 0)
    other.ack(first)
    assert number(other.send(second)) == (PID, 0, 10)
    other.ack(second)
    assert number(other.send()) == (PID, 1, 0)
    assert number(idle.send()) == (PID, 1, 0)


def test_gap_on_an_old_epoch_needs_no_bump(sequences: TransactionManager) -> None:
    """A partition that has a gap under an old epoch starts at 0 under the current one."""
    asking, other = known(Partition(sequences, 0)), known(Partition(sequences, 1))
    first, second = other.send(), other.send()
    asking.fail_in_doubt(asking.send())
    other.fail(first)
    other.out_of_order(second)
    assert sequences.epoch == 1
    assert number(other.send(second)) == (PID, 1, 0)


def test_rewind_on_an_old_epoch(sequences: TransactionManager) -> None:
    """Nor does a failed last batch there need a bump."""
    asking, other = Partition(sequences, 0), Partition(sequences, 1)
    last = other.send()
    asking.fail_in_doubt(asking.send())
    other.fail(last)
    assert number(other.send()) == (PID, 1, 0)


def test_many_bumps(one: Partition, sequences: TransactionManager) -> None:
    """Epochs go up to 32767; then a new producer id is requested, and batches wait for it."""
    sequences.set_producer_id(PID, MAX_EPOCH - 1)
    one.fail_in_doubt(one.send())
    assert (sequences.producer_id, sequences.epoch) == (PID, MAX_EPOCH)
    first, second = one.send(), one.send()
    assert number(second) == (PID, MAX_EPOCH, 10)
    one.fail(first)
    one.out_of_order(second)
    assert sequences.needs_producer_id
    assert not one.may_send(second)
    sequences.set_producer_id(PID + 1, 0)
    assert number(one.send(second)) == (PID + 1, 0, 0)


def test_others_finish_on_the_old_producer_id(sequences: TransactionManager) -> None:
    """Numbered batches of other partitions may be retried during and after the request for a new id."""
    sequences.set_producer_id(PID, MAX_EPOCH)
    asking, other = Partition(sequences, 0), Partition(sequences, 1)
    batch = other.send()
    asking.fail_in_doubt(asking.send())
    assert sequences.needs_producer_id
    other.lose(batch)
    assert number(other.send(batch)) == (PID, MAX_EPOCH, 0)
    assert not other.may_send(other.batch())
    sequences.set_producer_id(PID + 1, 3)
    assert not other.may_send(other.batch())
    other.ack(batch)
    assert number(other.send()) == (PID + 1, 3, 0)


# --- split ------------------------------------------------------------------------------------------------------------


def test_pieces_take_the_place_of_their_batch(one: Partition) -> None:
    """They are sent one after the other, before what was numbered later."""
    first, second, third = (one.send() for _ in range(3))
    one.ack(first)
    pieces = one.halve(second)
    one.out_of_order(third)
    assert [one.may_send(batch) for batch in (*pieces, third)] == [True, False, False]
    for batch, sequence in zip((*pieces, third), (10, 15, 20), strict=True):
        assert one.send(batch).base_sequence == sequence
        one.ack(batch)
    assert one.send().base_sequence == 30


def test_failed_piece(one: Partition, sequences: TransactionManager) -> None:
    """A piece that fails leaves a gap like any batch."""
    batch = one.send()
    first, second = one.halve(batch)
    one.fail(one.send(first))
    assert sequences.epoch == 1
    assert number(one.send(second)) == (PID, 1, 0)


def test_unnumbered_split() -> None:
    """Pieces of a batch without a sequence have none."""
    sequences = TransactionManager(idempotent=True)
    one = Partition(sequences)
    batch = one.batch()
    one.take(batch)
    pieces = one.halve(batch)
    sequences.set_producer_id(PID, 0)
    assert one.send(pieces[0]).base_sequence == 0


# --- transactions -----------------------------------------------------------------------------------------------------


def in_transaction(version: int) -> TransactionManager:
    transaction = TransactionPartitions()
    transaction.begin(version)
    if version < 2:
        transaction.added([TopicPartition("orders", 0)])
    sequences = TransactionManager(idempotent=True, transaction_partitions=transaction)
    sequences.set_producer_id(PID, 0)
    return sequences


def test_produce_adds_partitions_with_v2_alone(sequences: TransactionManager) -> None:
    """From version 12 on a Produce would begin a transaction, which before V2 the coordinator would not know."""
    versions = 9, 11, 12, 13
    assert [sequences.produce_version(version) for version in versions] == [9, 11, 12, 13]
    assert [in_transaction(1).produce_version(version) for version in versions] == [9, 11, 11, 11]
    assert [in_transaction(2).produce_version(version) for version in versions] == [9, 11, 12, 13]


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_out_of_order_in_a_transaction(version: int) -> None:
    """Behind an unresolved batch it is retried; for the partition's first one that fails, as no bump is allowed."""
    sequences = in_transaction(version)
    one = known(Partition(sequences))
    first, second = one.send(), one.send()
    one.lose(first)
    assert not sequences.cures(first)
    assert sequences.cures(second)
    one.ack(one.send(first))
    assert not sequences.cures(second)
    assert not sequences.cures(one.batch()), "it has no number"


@pytest.mark.parametrize("version", [1, 2])
def test_a_leader_of_the_past_spoils_no_transaction(version: int) -> None:
    """The batch is sent again, and so resolved before the transaction ends, unless a newer leader refuses it, too."""
    sequences = in_transaction(version)
    one = known(Partition(sequences))
    one.accumulator.update_topic("orders", TOPIC_ID, [(1, 5)])
    batch = one.send()
    one.lose(batch)
    one.accumulator.update_topic("orders", TOPIC_ID, [(1, 4)])
    one.send(batch)
    assert sequences.cures(batch)
    one.out_of_order(batch)
    assert not sequences.has_gap
    one.accumulator.update_topic("orders", TOPIC_ID, [(1, 6)])
    one.send(batch)
    assert not sequences.cures(batch)


def test_a_number_refused_in_a_transaction_is_not_used_again() -> None:
    """The next batch would be refused as well, so the partition waits for an epoch from the coordinator."""
    sequences = in_transaction(1)
    one = known(Partition(sequences))
    one.fail(one.send(), number_refused=True)
    assert sequences.has_gap
    sequences.set_producer_id(PID, 1)
    assert not sequences.has_gap
    assert number(one.send()) == (PID, 1, 0)


def test_what_is_out_of_order_outside_of_transactions(one: Partition, sequences: TransactionManager) -> None:
    """If the batch has a sequence, an epoch bump helps at the latest."""
    first, second = one.send(), one.send()
    assert sequences.cures(first)
    assert sequences.cures(second)
    assert not sequences.cures(one.batch())


def test_an_answer_from_the_log_of_a_deleted_topic_tells_nothing_of_the_next_one(one: Partition) -> None:
    """Two batches could follow each other there only after its own leader has acknowledged one."""
    first = one.send()
    one.accumulator.update_topic("orders", b"another topic id", [(1, 0)])
    second, third = one.batch(), one.batch()
    assert not one.may_send(second)
    one.ack(first)
    one.send(second)
    assert not one.may_send(third)
    one.ack(second)
    assert one.may_send(third)
