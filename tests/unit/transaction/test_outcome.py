"""What a coordinator's answer says about a prepared transaction: every state, the same transaction or another one."""

from __future__ import annotations

import pickle

import pytest

from aioproducer.records import PreparedTransaction
from aioproducer.transaction.outcome import TransactionDescription, TransactionOutcome, outcome_after_end, outcome_of

O = TransactionOutcome  # noqa: E741
PREPARED = PreparedTransaction("sink-1", 4000, 7, transaction_version=2, started_ms=1_700_000)


def described(
    state: str, *, producer_id: int = 4000, epoch: int = 7, started_ms: int = 1_700_000
) -> TransactionDescription:
    return TransactionDescription("sink-1", state, producer_id, epoch, 60_000, started_ms, ())


@pytest.mark.parametrize("epoch", [7, 8, 9])
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("Ongoing", O.OPEN),
        ("PrepareCommit", O.COMMITTED),
        ("CompleteCommit", O.COMMITTED),
        ("PrepareAbort", O.ABORTED),
        ("CompleteAbort", O.ABORTED),
        ("PrepareEpochFence", O.ABORTED),
        ("Empty", O.UNKNOWN),
        ("Dead", O.UNKNOWN),
        ("SomethingNew", O.UNKNOWN),
    ],
)
def test_the_same_transaction(state: str, expected: TransactionOutcome, epoch: int) -> None:
    """It is recognized by its start time; the epoch grows at its end, or when it is fenced."""
    assert outcome_of(PREPARED, described(state, epoch=epoch)) is expected


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "CompleteCommit", "CompleteAbort", "Empty"])
@pytest.mark.parametrize("started_ms", [-1, 1_700_001])
def test_another_transaction(state: str, started_ms: int) -> None:
    """Its outcome says nothing about ours, even under the same epoch."""
    assert outcome_of(PREPARED, described(state, started_ms=started_ms)) is O.UNKNOWN


def test_the_outcome_of_a_forgotten_id_is_unknown() -> None:
    """The cluster no longer knows the id."""
    assert outcome_of(PREPARED, None) is O.UNKNOWN


def test_an_empty_transaction_stays_empty_even_if_its_id_is_forgotten() -> None:
    """Nothing was written, so there is no start time to compare."""
    assert outcome_of(PreparedTransaction("sink-1", 4000, 7, is_empty=True), None) is O.EMPTY


def test_without_a_beginning() -> None:
    """Without a start time from the brokers, only an open transaction of the same epoch is certainly ours."""
    old = PreparedTransaction("sink-1", 4000, 7)
    assert outcome_of(old, described("Ongoing")) is O.OPEN
    assert outcome_of(old, described("Ongoing", epoch=8)) is O.UNKNOWN
    assert outcome_of(old, described("Ongoing", producer_id=4001)) is O.UNKNOWN
    assert outcome_of(old, described("CompleteCommit")) is O.UNKNOWN


@pytest.mark.parametrize(
    ("state", "expected"),
    [("CompleteCommit", O.COMMITTED), ("PrepareAbort", O.ABORTED), ("CompleteAbort", O.ABORTED), ("Empty", O.UNKNOWN)],
)
def test_after_its_end(state: str, expected: TransactionOutcome) -> None:
    """The next epoch is that of the end of ours, any other one is another transaction's."""
    assert outcome_after_end(4000, 7, described(state, epoch=8)) is expected
    assert outcome_after_end(4000, 7, described(state, epoch=9)) is O.UNKNOWN
    assert outcome_after_end(4000, 7, described(state, epoch=8, producer_id=4001)) is O.UNKNOWN


def test_it_travels() -> None:
    """It can be pickled for another process."""
    assert pickle.loads(pickle.dumps(PREPARED)) == PREPARED
