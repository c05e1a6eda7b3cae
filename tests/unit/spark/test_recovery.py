"""The outcome of a recorded batch, for every combination of its transactions' states."""

from __future__ import annotations

import itertools

import pytest

from aioproducer.records import PreparedTransaction
from aioproducer.spark.recovery import Verdict, plan
from aioproducer.transaction.outcome import TransactionOutcome

OPEN, COMMITTED, ABORTED, UNKNOWN = (
    TransactionOutcome.OPEN,
    TransactionOutcome.COMMITTED,
    TransactionOutcome.ABORTED,
    TransactionOutcome.UNKNOWN,
)
Mixture = tuple[TransactionOutcome, ...]
MIXTURES = [*itertools.product((OPEN, COMMITTED, ABORTED, UNKNOWN), repeat=3)]
WINNERS = tuple(PreparedTransaction(f"id-{number}", 1000, 3, 2) for number in range(3))


@pytest.mark.parametrize("untouched", [False, True])
@pytest.mark.parametrize("mixture", MIXTURES, ids=lambda three: "-".join(one.value for one in three))
def test_all_or_none(mixture: Mixture, untouched: bool) -> None:
    """Three winners: in the end all are committed, or certainly none, or an error reports the rest."""
    found = plan(WINNERS, mixture, untouched=untouched)
    by_state = {OPEN: found.open, COMMITTED: found.committed}
    for state, there in by_state.items():
        assert there == tuple(one for one, its in zip(WINNERS, mixture, strict=True) if its is state)
    assert len(found.open) + len(found.committed) + len(found.lost) == 3
    if found.verdict is Verdict.COMMIT:
        assert found.lost == ()
    elif found.verdict is Verdict.WITHDRAW:
        assert found.lost
        assert found.committed == ()
        assert untouched or UNKNOWN not in mixture
    else:
        assert found.lost
        assert found.committed or UNKNOWN in mixture


def test_a_batch_without_transactions_is_done() -> None:
    assert plan((), (), untouched=True).verdict is Verdict.COMMIT
