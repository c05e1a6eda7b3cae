"""What to do with a batch whose winners are on record, by what the brokers say of their transactions. Pure.

    all open                       commit them: the ordinary case
    some or all committed already  commit the others: a driver died between two commits
    some gone, none committed      withdraw the record: nothing was visible, and the batch is written again
    some gone, some committed      torn: nothing can make it whole; raised, with the names of both

A transaction is gone when it was aborted: by the broker, after ``transaction.timeout.ms``, or by somebody's hand.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from aioproducer.spark.commit_log import Winner, Winners


class Standing(enum.Enum):
    """Where a winner's transaction stands."""

    OPEN = "open"
    COMMITTED = "committed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a broker says of a transactional id.

    Args:
        state: Kafka's word: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, Dead, ...
        producer_id, epoch: that it belongs to now.
    """

    state: str
    producer_id: int
    epoch: int


class Verdict(enum.Enum):
    """What to do with a recorded batch."""

    COMMIT = "commit"
    WITHDRAW = "withdraw"
    TORN = "torn"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, and with which transactions.

    Args:
        open: to be committed, or aborted where the record is withdrawn.
        committed, gone: beyond anybody's reach.
    """

    verdict: Verdict
    open: tuple[Winner, ...] = ()
    committed: tuple[Winner, ...] = ()
    gone: tuple[Winner, ...] = ()


def standing_of(winner: Winner, seen: Seen | None) -> Standing:
    """Where a winner's transaction stands.

    No other transaction uses the id before the record is finished or withdrawn, so a commit that the id has seen last
    is the winner's own, whichever epoch stands there (transactions V2 give a new one with each end).

    Args:
        seen: None if the broker does not know the id.
    """
    if seen is None:
        return Standing.GONE
    if seen.state in ("PrepareCommit", "CompleteCommit"):
        return Standing.COMMITTED
    is_winners = (seen.producer_id, seen.epoch) == (winner.producer_id, winner.epoch)
    return Standing.OPEN if seen.state == "Ongoing" and is_winners else Standing.GONE


def plan(winners: Winners, seen: Mapping[str, Seen]) -> Plan:
    """What to do with a batch whose winners are on record.

    Args:
        seen: what brokers say, by transactional id.
    """
    found: dict[Standing, list[Winner]] = {standing: [] for standing in Standing}
    for winner in winners.transactions:
        found[standing_of(winner, seen.get(winner.transactional_id))].append(winner)
    committed, gone = found[Standing.COMMITTED], found[Standing.GONE]
    of_a_loss = Verdict.TORN if committed else Verdict.WITHDRAW
    return Plan(of_a_loss if gone else Verdict.COMMIT, tuple(found[Standing.OPEN]), tuple(committed), tuple(gone))
