"""What a partition of the cluster model remembers of producers, and of batches that a coordinator is asked about."""

from __future__ import annotations

import pytest

from aioproducer.errors import OutOfOrderSequenceNumberError
from aioproducer.testing.fake.batches import Batch, BatchRecord
from aioproducer.testing.fake.producer_state import ProducerStates
from aioproducer.testing.fake.versions import kafka_version

PRODUCER = 7


def batch(sequence: int, *, epoch: int = 0, producer_id: int = PRODUCER) -> Batch:
    return Batch(100, 0, 0, 0, producer_id, epoch, sequence, [BatchRecord(0, None, b"v", ())])


def overtakes(states: ProducerStates, sequence: int, *, epoch: int = 0) -> bool:
    """Whether a batch is refused because an earlier one has been tried."""
    try:
        states.check(batch(sequence, epoch=epoch))
    except OutOfOrderSequenceNumberError as error:
        return "before" in str(error)
    return False


def test_the_lowest_sequence_that_was_tried_comes_first() -> None:
    states = ProducerStates()
    for sequence in (5, 3, 4):
        states.verify(PRODUCER, 0, sequence, adds=False)
    assert [overtakes(states, sequence) for sequence in (3, 4, 5)] == [False, True, True]


def test_only_the_newest_epoch_that_was_tried_counts() -> None:
    states = ProducerStates()
    for epoch, sequence in ((0, 0), (1, 7), (0, 0)):
        states.verify(PRODUCER, epoch, sequence, adds=False)
    assert [overtakes(states, sequence, epoch=1) for sequence in (7, 8)] == [False, True]


@pytest.mark.parametrize(
    ("adds", "marker_epoch", "still_asked"),
    [(True, 1, True), (True, 0, False), (False, 1, False), (True, None, False)],
)
def test_a_v2_transaction_stays_open_when_the_one_before_ends(
    adds: bool, marker_epoch: int | None, still_asked: bool
) -> None:
    """The marker of the one before has the epoch in which the next one begins."""
    states = ProducerStates()
    states.verify(PRODUCER, 1, 0, adds=adds)
    states.verified(PRODUCER, marker_epoch=marker_epoch)
    assert overtakes(states, 1, epoch=1) == still_asked


def test_one_producer_is_forgotten_alone() -> None:
    states = ProducerStates()
    for producer_id in (PRODUCER, 8, 9):
        states.update(batch(0, producer_id=producer_id), 0, 0)
    states.forget(PRODUCER)
    assert [states.entry(producer_id) is None for producer_id in (PRODUCER, 8, 9)] == [True, False, False]
    states.forget(keep=[9])
    assert [states.entry(producer_id) is None for producer_id in (PRODUCER, 8, 9)] == [True, True, False]


@pytest.mark.parametrize(("version", "remembered"), [("4.3", 5), ("2.1", 5), ("0.11", 1)])
def test_how_many_batches_are_recognised_when_they_are_repeated(version: str, remembered: int) -> None:
    states = ProducerStates(remembered_batches=kafka_version(version).remembered_batches)
    for sequence in range(7):
        states.update(batch(sequence), sequence, 0)
    found = [states.duplicate_of(batch(sequence)) for sequence in range(7)]
    assert [one.base_offset for one in found if one is not None] == list(range(7 - remembered, 7))


@pytest.mark.parametrize(
    ("reloaded_at", "known"), [(0, [2, 3, 4, 5, 6]), (3, [2, 3, 4, 5, 6]), (5, [4, 5, 6]), (7, [6])]
)
def test_what_a_broker_recognises_that_has_restarted(reloaded_at: int, known: list[int]) -> None:
    states = ProducerStates()
    for sequence in range(7):
        if sequence == reloaded_at:
            states.reload()
        states.update(batch(sequence), sequence, 0)
    if reloaded_at == 7:
        states.reload()
    found = [states.duplicate_of(batch(sequence)) for sequence in range(7)]
    assert [one.base_offset for one in found if one is not None] == known
