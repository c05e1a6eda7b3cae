"""The transaction coordinators of the cluster model. Pure.

One registry holds all transactional ids, whichever broker coordinates them, because state moves with its coordinator.
Both kinds of transactions are here: V1, where a client adds partitions itself and keeps its epoch, and V2 (KIP-890),
where Produce and TxnOffsetCommit add them and each end raises the epoch.

State of a transactional id:

    Empty, CompleteCommit, CompleteAbort -> Ongoing          the first partition is added
    Ongoing -> PrepareCommit -> CompleteCommit               EndTxn; then the markers are written
    Ongoing -> PrepareAbort -> CompleteAbort                 EndTxn, a timeout, or another producer's InitProducerId
    Empty, Complete* -> PrepareAbort                         V2 alone: an abort of nothing raises the epoch too
    Empty, Complete* -> Empty                                InitProducerId

Source: TransactionCoordinator and TransactionMetadata of Kafka 4; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from aioproducer.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from aioproducer.testing.fake.partition_log import TransactionMarker

NO_ID = -1
NO_EPOCH = -1
LAST_EPOCH = 32_766
"""The last epoch a producer gets; the next one is only for fencing."""
MAX_TIMEOUT_MS = 900_000
"""Kafka's default of ``transaction.max.timeout.ms``."""

TopicPartition = tuple[str, int]


class State(Enum):
    """State of a transactional id, by its name in DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
OPEN = (State.ONGOING, *PREPARED)


@dataclass(slots=True)
class Transaction:
    """A coordinator's state of one transactional id."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    state: State = State.EMPTY
    partitions: dict[TopicPartition, TransactionMarker | None] = field(default_factory=dict)
    """In the order added, with the marker that was written last."""
    started_ms: int = -1
    markers_due_ms: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether this producer id has no epochs left."""
        return self.epoch >= LAST_EPOCH


Markers = Callable[[Transaction, bool], bool]
"""Writes the markers of a transaction (committed or not) to its partitions, and removes those written; returns whether
all were. The others, which have no leader now, know a newer epoch or wait for their replicas, are tried again."""


class Transactions:
    """See the module.

    Args:
        new_producer_id: returns a new, unique id.
        write_markers: see Markers.
        v2: whether the cluster uses transactions V2.
        marker_delay_ms: how long after EndTxn the markers are written. Until then the next transaction is answered
            with CONCURRENT_TRANSACTIONS, as on a real cluster that is busy.
    """

    def __init__(self, new_producer_id: Callable[[], int], write_markers: Markers, *, v2: bool) -> None:
        self.marker_delay_ms = 0
        self._new_producer_id = new_producer_id
        self._write_markers = write_markers
        self._v2 = v2
        self._known: dict[str, Transaction] = {}

    def get(self, transactional_id: str) -> Transaction | None:
        """The state of a transactional id."""
        return self._known.get(transactional_id)

    def all(self) -> list[Transaction]:
        """Every transactional id, in order of first use."""
        return list(self._known.values())

    def forget(self, transactional_id: str) -> None:
        """Drop a transactional id, as after ``transactional.id.expiration.ms``; one with an open transaction stays."""
        known = self._known.get(transactional_id)
        if known is not None and known.state not in OPEN:
            del self._known[transactional_id]

    # --- time

    def advance(self, now_ms: int) -> None:
        """Write due markers, and abort transactions that timed out."""
        for one in self._known.values():
            if one.state in PREPARED and one.markers_due_ms <= now_ms:
                self._complete(one)
            elif one.state is State.ONGOING and now_ms > one.started_ms + one.timeout_ms:
                self._fence(one, now_ms)

    # --- requests

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int, now_ms: int
    ) -> tuple[int, int]:
        """Fence older producers and return producer id and epoch.

        Args:
            producer_id, epoch: the client's current ones (KIP-360); -1 and -1 for a new client.
        Raises:
            BrokerError: the answer to the client.
        """
        if not transactional_id:
            raise InvalidRequestError("an empty transactional id")
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            raise InvalidTransactionTimeoutError(f"{timeout_ms} ms, transaction.max.timeout.ms is {MAX_TIMEOUT_MS}")
        known = self._known.get(transactional_id)
        if known is None:
            known = self._known[transactional_id] = Transaction(transactional_id, self._new_producer_id(), timeout_ms)
        has_id = producer_id != NO_ID
        if has_id and not self._may_go_on(known, producer_id, epoch):
            raise ProducerFencedError()
        if known.state in PREPARED:
            raise ConcurrentTransactionsError()
        if known.state is State.ONGOING:
            self._fence(known, now_ms)
            raise ConcurrentTransactionsError()
        if known.exhausted and (not has_id or epoch == known.epoch):
            known.previous_producer_id, known.producer_id = known.producer_id, self._new_producer_id()
            known.last_epoch, known.epoch = (known.epoch if has_id else NO_EPOCH), 0
        else:
            self._raise_epoch(known, epoch if has_id else None)
        known.timeout_ms, known.state, known.started_ms = timeout_ms, State.EMPTY, -1
        return known.producer_id, known.epoch

    def add_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Iterable[TopicPartition], now_ms: int
    ) -> None:
        """Add partitions to the transaction; the first one begins it.

        Raises:
            BrokerError: the answer to the client.
        """
        known = self._of(transactional_id, producer_id)
        if known.epoch != epoch:
            raise ProducerFencedError()
        if known.state in PREPARED:
            raise ConcurrentTransactionsError()
        if known.state is not State.ONGOING:
            known.started_ms = now_ms
            known.state = State.ONGOING
        known.partitions.update(dict.fromkeys(partitions))

    def verify(self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition) -> None:
        """Check that a partition is part of the transaction, as a leader asks before it writes.

        Raises:
            BrokerError: the answer to the leader.
        """
        known = self._of(transactional_id, producer_id)
        if known.epoch != epoch:
            raise ProducerFencedError()
        if known.state in PREPARED:
            raise ConcurrentTransactionsError()
        if partition not in known.partitions:
            raise TransactionAbortableError()

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, *, committed: bool, bump: bool, now_ms: int
    ) -> tuple[int, int]:
        """Commit or abort, and return the producer id and epoch of the next transaction.

        Args:
            bump: the client speaks V2, so the epoch is raised.
        Raises:
            BrokerError: the answer to the client.
        """
        if not transactional_id:
            raise InvalidRequestError("an empty transactional id")
        known = self._known.get(transactional_id)
        if known is None:
            raise InvalidProducerIdMappingError()
        if bump:
            return self._end_v2(known, producer_id, epoch, committed, now_ms)
        if known.producer_id != producer_id:
            raise InvalidProducerIdMappingError()
        if known.epoch != epoch:
            raise ProducerFencedError()
        if known.state in PREPARED:
            if committed == (known.state is State.PREPARE_COMMIT):
                raise ConcurrentTransactionsError()
            raise InvalidTxnStateError()
        if known.state is State.ONGOING:
            self._prepare(known, committed, now_ms)
        elif known.state is not (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT):
            raise InvalidTxnStateError()
        return NO_ID, NO_EPOCH

    # ---

    def _end_v2(
        self, known: Transaction, producer_id: int, epoch: int, committed: bool, now_ms: int
    ) -> tuple[int, int]:
        overflowed = known.previous_producer_id == producer_id and epoch == LAST_EPOCH and known.epoch == 0
        repeated = known.epoch == epoch + 1 or overflowed
        if known.producer_id != producer_id and not overflowed:
            raise InvalidProducerIdMappingError()
        if known.state in (State.ONGOING, State.EMPTY):
            valid = epoch == known.epoch
        elif known.state in PREPARED:
            valid = known.epoch == epoch + 1
        else:
            valid = repeated or epoch == known.epoch
        if not valid:
            raise ProducerFencedError()
        if known.state in PREPARED:
            if committed == (known.state is State.PREPARE_COMMIT):
                raise ConcurrentTransactionsError()
            raise InvalidTxnStateError()
        if known.state is not State.ONGOING:
            if repeated and known.state is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT):
                return known.producer_id, known.epoch
            if repeated or committed:
                raise InvalidTxnStateError()
            known.started_ms = now_ms
        if known.exhausted:
            known.next_producer_id = self._new_producer_id()
        known.last_epoch, known.epoch = known.epoch, known.epoch + 1
        answer = (known.next_producer_id, 0) if known.next_producer_id != NO_ID else (known.producer_id, known.epoch)
        self._prepare(known, committed, now_ms)
        return answer

    def _of(self, transactional_id: str, producer_id: int) -> Transaction:
        if not transactional_id:
            raise InvalidRequestError("an empty transactional id")
        known = self._known.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            raise InvalidProducerIdMappingError()
        return known

    def _may_go_on(self, known: Transaction, producer_id: int, epoch: int) -> bool:
        return (
            known.epoch == NO_EPOCH
            or producer_id == known.producer_id
            or (producer_id == known.previous_producer_id and epoch >= LAST_EPOCH)
        )

    def _raise_epoch(self, known: Transaction, expected: int | None) -> None:
        if expected is None:
            known.last_epoch, known.epoch = NO_EPOCH, known.epoch + 1
        elif known.epoch in (NO_EPOCH, expected):
            known.last_epoch, known.epoch = known.epoch, known.epoch + 1
        elif expected != known.last_epoch:
            raise ProducerFencedError()

    def _fence(self, known: Transaction, now_ms: int) -> None:
        """Abort the ongoing transaction, with an epoch its producer does not have."""
        # In V2 the producer finds out and continues with the next epoch, or id; in V1 its epoch is invalid for good.
        if self._v2 and known.exhausted:
            known.next_producer_id = self._new_producer_id()
        known.last_epoch, known.epoch = known.epoch if self._v2 else NO_EPOCH, known.epoch + 1
        self._prepare(known, False, now_ms)

    def _prepare(self, known: Transaction, committed: bool, now_ms: int) -> None:
        known.state = State.PREPARE_COMMIT if committed else State.PREPARE_ABORT
        known.markers_due_ms = now_ms + self.marker_delay_ms
        if not self.marker_delay_ms:
            self._complete(known)

    def _complete(self, known: Transaction) -> None:
        committed = known.state is State.PREPARE_COMMIT
        if not self._write_markers(known, committed):
            return
        known.state = State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT
        if known.next_producer_id != NO_ID:
            known.previous_producer_id, known.producer_id = known.producer_id, known.next_producer_id
            known.next_producer_id, known.epoch = NO_ID, 0
