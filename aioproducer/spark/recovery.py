"""What to do with a batch whose winners are recorded, by the state of their transactions. Pure.

    all open                        commit them: the ordinary case
    some or all committed already   commit the others: a driver died between two commits
    some aborted, none committed    withdraw the record: nothing was visible, and the batch is written again
    some aborted, some committed    torn: nothing can make it whole
    some unknown                    torn too, unless nobody can have committed anything yet

The broker aborts a transaction after ``transaction.timeout.ms``; an administrator may abort it too.
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
        open: to be committed, or aborted if the record is withdrawn.
        committed: can't be undone.
        lost: aborted, or of unknown outcome.
    """

    verdict: Verdict
    open: Prepared = ()
    committed: Prepared = ()
    lost: Prepared = ()


def plan(transactions: Prepared, outcomes: Sequence[TransactionOutcome], *, untouched: bool) -> Plan:
    """What to do with a batch whose winners are recorded.

    Args:
        outcomes: the outcome of each transaction.
        untouched: whether certainly nobody has begun to commit them.
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
