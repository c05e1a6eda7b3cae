"""The outcome of a transaction, derived from what its coordinator says about the transactional id.

The coordinator knows only the latest transaction of an id, and when it began by the coordinator's clock. That start
time identifies a prepared transaction: if it is the same, the state is that of this transaction; if not, the id has
moved on, so ours has ended, one way or the other.

    described state                                      the transaction is
    ---------------------------------------------------  ------------------
    Ongoing                                              OPEN
    PrepareCommit, CompleteCommit                        COMMITTED
    PrepareAbort, CompleteAbort, PrepareEpochFence       ABORTED
    another start time, Empty, Dead, or no such id       UNKNOWN

Source: org.apache.kafka.coordinator.transaction.TransactionState; KIP-664.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from aioproducer.records import PreparedTransaction, TopicPartition


class TransactionOutcome(enum.Enum):
    """The outcome of a prepared transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    EMPTY = "empty"
    """Nothing was written, so there is nothing to end."""
    UNKNOWN = "unknown"
    """It has ended, but how can no longer be known: its transactional id has moved on, or is forgotten."""


_BY_STATE = {
    "Ongoing": TransactionOutcome.OPEN,
    "PrepareCommit": TransactionOutcome.COMMITTED,
    "CompleteCommit": TransactionOutcome.COMMITTED,
    "PrepareAbort": TransactionOutcome.ABORTED,
    "CompleteAbort": TransactionOutcome.ABORTED,
    "PrepareEpochFence": TransactionOutcome.ABORTED,
}


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id in a list.

    Args:
        state: as Kafka names it, e.g. ``Ongoing``, ``CompleteCommit``, ``Empty``.
        coordinator: node id of the broker that reported it.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """One transactional id as its coordinator knows it.

    Args:
        state: as Kafka names it, e.g. ``Ongoing``, ``CompleteCommit``, ``Empty``.
        timeout_ms: the producer's ``transaction_timeout_ms``.
        started_ms: when the latest transaction began, by the coordinator's clock; -1 if there was none.
        partitions: those of an open transaction.
    """

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]


def outcome_of(prepared: PreparedTransaction, described: TransactionDescription | None) -> TransactionOutcome:
    """The outcome of a prepared transaction.

    Args:
        described: None if the coordinator knows no such id.
    """
    if prepared.is_empty:
        return TransactionOutcome.EMPTY
    if described is None or not _is_same(prepared, described):
        return TransactionOutcome.UNKNOWN
    return _BY_STATE.get(described.state, TransactionOutcome.UNKNOWN)


def outcome_after_end(producer_id: int, epoch: int, described: TransactionDescription) -> TransactionOutcome:
    """The outcome of an ended V2 transaction with this producer id and epoch.

    Each end gives the next epoch, so this is the latest transaction of the id as long as there is no newer epoch.
    """
    if (described.producer_id, described.epoch) != (producer_id, epoch + 1):
        return TransactionOutcome.UNKNOWN
    return _BY_STATE.get(described.state, TransactionOutcome.UNKNOWN)


def _is_same(prepared: PreparedTransaction, described: TransactionDescription) -> bool:
    if prepared.started_ms >= 0:
        return described.started_ms == prepared.started_ms
    # The broker did not report the start when it was prepared, but does now: an open one of this epoch must be ours.
    same_epoch = (described.producer_id, described.epoch) == (prepared.producer_id, prepared.epoch)
    return same_epoch and described.state == "Ongoing"
