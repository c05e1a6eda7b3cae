"""What to do with a batch whose winners are on record, by what has become of their transactions. Pure.

    all open                        commit them: the ordinary case
    some or all committed already   commit the others: a driver died between two commits
    some aborted, none committed    withdraw the record: nothing was visible, and the batch is written again
    some aborted, some committed    torn: nothing can make it whole
    of some nobody knows            torn too, unless nobody can have committed anything yet

A transaction is aborted by the broker after ``transaction.timeout.ms``, or by somebody's hand.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from aioproducer.records import PreparedTransaction
from aioproducer.transaction.outcome import TransactionOutcome

Prepared = tuple[PreparedTransaction, ...]


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
        committed: beyond anybody's reach.
        lost: aborted, or of an outcome that nobody knows any more.
    """

    verdict: Verdict
    open: Prepared = ()
    committed: Prepared = ()
    lost: Prepared = ()


def plan(transactions: Prepared, outcomes: Sequence[TransactionOutcome], *, untouched: bool) -> Plan:
    """What to do with a batch whose winners are on record.

    Args:
        outcomes: what has become of each of the transactions.
        untouched: whether it is sure that nobody has begun to commit them.
    """
    kinds: dict[TransactionOutcome, list[PreparedTransaction]] = {outcome: [] for outcome in TransactionOutcome}
    for transaction, outcome in zip(transactions, outcomes, strict=True):
        kinds[outcome].append(transaction)
    still_open, committed = kinds[TransactionOutcome.OPEN], kinds[TransactionOutcome.COMMITTED]
    lost = kinds[TransactionOutcome.ABORTED] + kinds[TransactionOutcome.UNKNOWN]
    if not lost:
        verdict = Verdict.COMMIT
    elif committed or (kinds[TransactionOutcome.UNKNOWN] and not untouched):
        verdict = Verdict.TORN
    else:
        verdict = Verdict.WITHDRAW
    return Plan(verdict, tuple(still_open), tuple(committed), tuple(lost))
