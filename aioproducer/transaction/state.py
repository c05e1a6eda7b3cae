"""The states of a transactional producer, and every move between them, as one table.

Theory of operation. A producer has at most one transaction. The program's calls move it along the upper line; the
brokers' answers can move it down, to ABORTABLE_ERROR, which only an abort leaves, or to FATAL_ERROR, which nothing
leaves.

    UNINITIALIZED -> INITIALIZING -> READY -> IN_TRANSACTION -> COMMITTING -> READY
                          ^            |       |   |  |    `--> ABORTING ---> READY
                          `--(new -----'       |   |  v              ^
                              epoch)           |   | PREPARING -> PREPARED -> COMMITTING | ABORTING
                                               v   v      |
                                          ABORTABLE_ERROR <-- COMMITTING before EndTxn was sent
                                               `------------------> ABORTING

A wrong call raises TransactionStateError and leaves the state unchanged. An abortable error while ABORTING changes
nothing. A fatal one is accepted in every state, and the first one stays.

Source: org.apache.kafka.clients.producer.internals.TransactionManager.State; KIP-98. PREPARING and PREPARED are this
producer's own, for transactions that another process ends.
"""

from __future__ import annotations

import copy
import enum

from aioproducer.errors import KafkaError, TransactionAbortedError, TransactionStateError


class TransactionState(enum.Enum):
    """The state of a transactional producer; the value completes a sentence that starts with "the producer"."""

    UNINITIALIZED = "has not been started"
    INITIALIZING = "is getting its epoch from the coordinator"
    READY = "has no open transaction"
    IN_TRANSACTION = "has an open transaction"
    PREPARING = "is preparing its transaction"
    PREPARED = "has a prepared transaction"
    COMMITTING = "is committing its transaction"
    ABORTING = "is aborting its transaction"
    ABORTABLE_ERROR = "has a transaction that can only be aborted"
    FATAL_ERROR = "has failed"


S = TransactionState

MOVES: dict[TransactionState, frozenset[TransactionState]] = {
    S.UNINITIALIZED: frozenset(),
    S.INITIALIZING: frozenset({S.UNINITIALIZED, S.READY}),
    S.READY: frozenset({S.INITIALIZING, S.COMMITTING, S.ABORTING}),
    S.IN_TRANSACTION: frozenset({S.READY}),
    S.PREPARING: frozenset({S.IN_TRANSACTION}),
    S.PREPARED: frozenset({S.PREPARING}),
    S.COMMITTING: frozenset({S.IN_TRANSACTION, S.PREPARED}),
    S.ABORTING: frozenset({S.IN_TRANSACTION, S.PREPARED, S.ABORTABLE_ERROR}),
    S.ABORTABLE_ERROR: frozenset({S.IN_TRANSACTION, S.PREPARING, S.COMMITTING, S.ABORTABLE_ERROR}),
    S.FATAL_ERROR: frozenset(S),
}
"""For each state, the states that lead to it."""

CALLS: dict[str, TransactionState] = {
    "begin_transaction": S.IN_TRANSACTION,
    "prepare_transaction": S.PREPARING,
    "commit_transaction": S.COMMITTING,
    "abort_transaction": S.ABORTING,
}
"""The first state that each call leads to."""

ADMITTING = frozenset({S.IN_TRANSACTION})
"""States in which records and offsets are accepted."""


class TransactionStates:
    """The state, and the error that caused it, if one did."""

    def __init__(self) -> None:
        self.state: TransactionState = TransactionState.UNINITIALIZED
        self.error: KafkaError | None = None
        """The error behind ABORTABLE_ERROR or FATAL_ERROR; None in all other states."""

    @property
    def admits(self) -> bool:
        """Whether a record may be added to a transaction now."""
        return self.state in ADMITTING

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that this producer has to end."""
        return self.state in (S.IN_TRANSACTION, S.PREPARING, S.ABORTABLE_ERROR)

    def call(self, name: str) -> None:
        """Make the move that a call requires.

        Raises:
            TransactionStateError: the state does not allow it, and is unchanged.
            KafkaError: the error that caused the state: the transaction can only be aborted, or nothing helps.
        """
        self.check(name)
        self.move(CALLS[name])

    def allows(self, name: str) -> bool:
        """Whether the state allows a call; names that are not in CALLS add records."""
        return self.state in (ADMITTING if name not in CALLS else MOVES[CALLS[name]])

    def check(self, name: str) -> None:
        """Raise the error for a call that the state does not allow."""
        if self.allows(name):
            return
        if self.error is not None:
            raise copy.copy(self.error)
        raise TransactionStateError(
            f"{name}() can't be called now: the producer {self.state.value}{self._remedy(name)}"
        )

    def check_record(self) -> None:
        """Raise the reason why a record can't be added to a transaction now, if there is one.

        Raises:
            TransactionStateError: there is no transaction.
            TransactionAbortedError: it can only be aborted; the cause is what spoilt it.
        """
        if self.state is S.ABORTABLE_ERROR and self.error is not None:
            raise aborted("the record was not added to the transaction, which can only be aborted", self.error)
        if self.state is S.FATAL_ERROR and self.error is not None:
            error = copy.copy(self.error)
            error.maybe_written = False
            raise error
        if not self.admits:
            raise TransactionStateError(
                f"a record of a transactional producer belongs to a transaction, and the producer {self.state.value}"
                f"{self._remedy('send')}"
            )

    def _remedy(self, name: str) -> str:
        if self.state is S.READY:
            return "; await begin_transaction() first, or use async with producer.transaction()"
        if self.state is S.IN_TRANSACTION and name == "begin_transaction":
            return "; commit or abort it first, one producer has one transaction at a time"
        if self.state is S.PREPARED:
            return "; commit or abort it first, or have another process do that"
        return ""

    def move(self, to: TransactionState) -> None:
        """Move to another state on the producer's own initiative; a move missing from the table is a bug."""
        if self.state not in MOVES[to]:
            raise AssertionError(f"no way from {self.state.name} to {to.name}")
        self.state = to
        if to not in (S.ABORTABLE_ERROR, S.FATAL_ERROR):
            self.error = None

    def fail(self, error: KafkaError) -> bool:
        """Record an abortable error; returns whether it is the first. The first one stays."""
        if self.state is S.ABORTABLE_ERROR or self.state not in MOVES[S.ABORTABLE_ERROR]:
            return False
        self.error = error.marked(abortable=True)
        self.move(S.ABORTABLE_ERROR)
        return True

    def fail_fatally(self, error: KafkaError) -> bool:
        """Record a fatal error; returns whether it is the first. The first one stays."""
        if self.state is S.FATAL_ERROR:
            return False
        self.error = error.marked(fatal=True)
        self.move(S.FATAL_ERROR)
        return True


def aborted(what: str, cause: KafkaError, maybe_written: bool = False) -> TransactionAbortedError:
    """The error for a record that was aborted with its transaction, because of ``cause``."""
    error = TransactionAbortedError(f"{what}: {cause}", maybe_written=maybe_written)
    error.__cause__ = cause
    return error
