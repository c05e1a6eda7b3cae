"""The states of a transactional producer, walked in full: every state, every call, every error."""

from __future__ import annotations

import itertools

import pytest

from aioproducer.errors import (
    KafkaError,
    MessageTooLargeError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionStateError,
)
from aioproducer.transaction.state import CALLS, MOVES, TransactionState, TransactionStates

S = TransactionState

# The table from the other side: where the program's calls, progress and errors lead from each state.
FROM = {
    S.UNINITIALIZED: {S.INITIALIZING},
    S.INITIALIZING: {S.READY},
    S.READY: {S.IN_TRANSACTION, S.INITIALIZING},
    S.IN_TRANSACTION: {S.PREPARING, S.COMMITTING, S.ABORTING, S.ABORTABLE_ERROR},
    S.PREPARING: {S.PREPARED, S.ABORTABLE_ERROR},
    S.PREPARED: {S.COMMITTING, S.ABORTING},
    S.COMMITTING: {S.READY, S.ABORTABLE_ERROR},
    S.ABORTING: {S.READY},
    S.ABORTABLE_ERROR: {S.ABORTING, S.ABORTABLE_ERROR},
    S.FATAL_ERROR: set(),
}


def at(state: TransactionState) -> TransactionStates:
    states = TransactionStates()
    states.state = state
    if state is S.ABORTABLE_ERROR:
        states.error = MessageTooLargeError("too large").marked(abortable=True)
    if state is S.FATAL_ERROR:
        states.error = ProducerFencedError("fenced")
    return states


@pytest.mark.parametrize(("start", "to"), list(itertools.product(S, S)), ids=lambda state: state.name)
def test_every_move(start: TransactionState, to: TransactionState) -> None:
    """Allowed moves lead where they should, all others are refused and change nothing."""
    states = at(start)
    if to in FROM[start] or to is S.FATAL_ERROR:
        states.move(to)
        assert states.state is to
    else:
        with pytest.raises(AssertionError, match=to.name):
            states.move(to)
        assert states.state is start
    assert (start in MOVES[to]) == (to in FROM[start] or to is S.FATAL_ERROR)


@pytest.mark.parametrize(("start", "name"), list(itertools.product(S, CALLS)))
def test_every_call(start: TransactionState, name: str) -> None:
    """A call leads on, or raises and changes nothing: with the state's error if it has one, or for a wrong state."""
    states = at(start)
    if CALLS[name] in FROM[start]:
        states.call(name)
        assert states.state is CALLS[name]
        assert states.error is None
        return
    expected: type[KafkaError] = TransactionStateError
    if start is S.ABORTABLE_ERROR:
        expected = MessageTooLargeError
    if start is S.FATAL_ERROR:
        expected = ProducerFencedError
    with pytest.raises(expected):
        states.call(name)
    assert states.state is start


@pytest.mark.parametrize("start", S)
def test_records_and_offsets_are_accepted_only_inside_a_transaction(start: TransactionState) -> None:
    states = at(start)
    assert states.admits == (start is S.IN_TRANSACTION)
    if states.admits:
        states.check("send_offsets_to_transaction")
        states.check_record()
        return
    with pytest.raises(KafkaError):
        states.check("send_offsets_to_transaction")
    expected: type[KafkaError] = TransactionStateError
    if start is S.ABORTABLE_ERROR:
        expected = TransactionAbortedError
    if start is S.FATAL_ERROR:
        expected = ProducerFencedError
    with pytest.raises(expected) as refused:
        states.check_record()
    assert not refused.value.maybe_written
    if start is S.ABORTABLE_ERROR:
        assert isinstance(refused.value.__cause__, MessageTooLargeError)
        assert refused.value.abortable


@pytest.mark.parametrize(
    ("start", "name"), [(start, name) for start in S for name in (*CALLS, "send") if at(start).error is None]
)
def test_what_has_to_be_done_first(start: TransactionState, name: str) -> None:
    """A call that comes too early or too late names the producer's state, and the calls that are possible."""
    states = at(start)
    if states.admits if name == "send" else CALLS[name] in FROM[start]:
        return
    remedy = ""
    if start is S.READY:
        remedy = "; await begin_transaction() first, or use async with producer.transaction()"
    elif start is S.IN_TRANSACTION:
        assert name == "begin_transaction"
        remedy = "; commit or abort it first, one producer has one transaction at a time"
    elif start is S.PREPARED:
        remedy = "; commit or abort it first, or have another process do that"
    with pytest.raises(TransactionStateError) as refused:
        states.check_record() if name == "send" else states.check(name)
    assert str(refused.value).endswith(f"the producer {start.value}{remedy}")


@pytest.mark.parametrize("start", S)
def test_abortable_error(start: TransactionState) -> None:
    """It counts while a transaction can still fail; the first one is kept; in other states it is ignored."""
    states = at(start)
    before = states.error
    news = states.fail(KafkaError("first"))
    assert news == (start in (S.IN_TRANSACTION, S.PREPARING, S.COMMITTING))
    assert states.state is (S.ABORTABLE_ERROR if news else start)
    assert not states.fail(KafkaError("second"))
    assert str(states.error) == "first" if news else states.error is before


@pytest.mark.parametrize("start", S)
def test_fatal_error(start: TransactionState) -> None:
    """It counts in every state; the first one is kept."""
    states = at(start)
    assert states.fail_fatally(KafkaError("first")) == (start is not S.FATAL_ERROR)
    assert states.state is S.FATAL_ERROR
    assert not states.fail_fatally(KafkaError("second"))
    assert not states.fail(KafkaError("third"))
    assert str(states.error) == ("first" if start is not S.FATAL_ERROR else "fenced")


def test_errors_say_what_to_do() -> None:
    """The error that made a transaction abortable has the flag to branch on, even if its class does not."""
    states = at(S.IN_TRANSACTION)
    states.fail(MessageTooLargeError("too large"))
    with pytest.raises(MessageTooLargeError) as caught:
        states.call("commit_transaction")
    assert caught.value.abortable
    assert not MessageTooLargeError.abortable
    states.call("abort_transaction")
    states.fail_fatally(KafkaError("no"))
    with pytest.raises(KafkaError) as fatal:
        states.call("begin_transaction")
    assert fatal.value.fatal
    assert not fatal.value.abortable


def test_records_of_a_failed_producer_were_not_written() -> None:
    """A record refused because the producer has failed is not in the log, unlike perhaps the one that made it fail."""
    states = at(S.IN_TRANSACTION)
    states.fail_fatally(ProducerFencedError("fenced", maybe_written=True))
    with pytest.raises(ProducerFencedError) as refused:
        states.check_record()
    assert not refused.value.maybe_written


def test_each_raise_is_a_copy() -> None:
    """Tasks that raise the same error do not share its traceback."""
    states = at(S.ABORTABLE_ERROR)
    caught = []
    for _ in range(2):
        with pytest.raises(MessageTooLargeError) as info:
            states.check("send")
        caught.append(info.value)
    assert caught[0] is not caught[1]
