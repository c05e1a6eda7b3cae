"""What becomes of a recorded batch, in every state that its transactions can be in."""

from __future__ import annotations

import itertools

import pytest

from aioproducer.spark.commit_log import Winner, Winners
from aioproducer.spark.recovery import Seen, Standing, Verdict, plan, standing_of

WINNER = Winner("id-0", 1000, 3, 2)


@pytest.mark.parametrize(
    ("seen", "standing"),
    [
        (Seen("Ongoing", 1000, 3), Standing.OPEN),
        (Seen("PrepareCommit", 1000, 4), Standing.COMMITTED),
        (Seen("CompleteCommit", 1000, 3), Standing.COMMITTED),
        (Seen("CompleteCommit", 1000, 4), Standing.COMMITTED),
        (Seen("CompleteCommit", 2000, 0), Standing.COMMITTED),
        (Seen("Ongoing", 1000, 4), Standing.GONE),
        (Seen("Ongoing", 2000, 3), Standing.GONE),
        (Seen("Empty", 1000, 4), Standing.GONE),
        (Seen("PrepareAbort", 1000, 3), Standing.GONE),
        (Seen("CompleteAbort", 1000, 4), Standing.GONE),
        (Seen("PrepareEpochFence", 1000, 3), Standing.GONE),
        (Seen("Dead", -1, -1), Standing.GONE),
        (None, Standing.GONE),
    ],
    ids=str,
)
def test_where_a_transaction_stands(seen: Seen | None, standing: Standing) -> None:
    assert standing_of(WINNER, seen) is standing


STATES = {
    Standing.OPEN: Seen("Ongoing", 1000, 3),
    Standing.COMMITTED: Seen("CompleteCommit", 1000, 4),
    Standing.GONE: Seen("CompleteAbort", 1000, 4),
}


@pytest.mark.parametrize(
    "standings", [*itertools.product(Standing, repeat=3)], ids=lambda s: "-".join(x.value for x in s)
)
def test_all_or_none(standings: tuple[Standing, ...]) -> None:
    """Of three winners in any mixture of states: all are committed in the end, or none is, or somebody hears of it."""
    winners = Winners("0", tuple(Winner(f"id-{number}", 1000, 3) for number in range(3)))
    found = plan(winners, {f"id-{number}": STATES[standing] for number, standing in enumerate(standings)})
    by_standing = {Standing.OPEN: found.open, Standing.COMMITTED: found.committed, Standing.GONE: found.gone}
    for standing, there in by_standing.items():
        assert there == tuple(one for one, its in zip(winners.transactions, standings, strict=True) if its is standing)
    if found.verdict is Verdict.COMMIT:
        assert len(found.open) + len(found.committed) == 3
    elif found.verdict is Verdict.WITHDRAW:
        assert found.committed == ()
        assert found.gone
    else:
        assert found.committed
        assert found.gone


def test_a_batch_without_transactions_is_done() -> None:
    assert plan(Winners("0", ()), {}).verdict is Verdict.COMMIT
