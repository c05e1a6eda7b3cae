"""Errors that are of aiokafka's classes too."""

from __future__ import annotations

import copy
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.compat.aiokafka_errors import familiar
from aioproducer.error_codes import Code
from aioproducer.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidProducerEpochError,
    KafkaError,
    MessageTooLargeError,
    ProducerFencedError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    TlsError,
    TransactionAbortedError,
    broker_error,
)

errors = pytest.importorskip("aiokafka.errors")

OTHER_NAMES = {
    "NOT_LEADER_FOR_PARTITION": "NOT_LEADER_OR_FOLLOWER",
    "MESSAGE_SIZE_TOO_LARGE": "MESSAGE_TOO_LARGE",
    "INVALID_TOPIC": "INVALID_TOPIC_EXCEPTION",
    "INVALID_REPLICATION_ASSIGNMENT": "INVALID_REPLICA_ASSIGNMENT",
}
"""aiokafka's names of codes where they differ from Kafka's."""


def theirs(error: BaseException) -> set[str]:
    """aiokafka's classes that an ``except`` clause could name."""
    return {kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "aiokafka.errors"}


def because_of(cause: BaseException, error: KafkaError) -> BaseException:
    error.__cause__ = cause
    return familiar(error)


def timed_out(cause: BaseException) -> BaseException:
    """What a record fails with whose last attempt ended with ``cause``."""
    return because_of(cause, DeliveryTimeoutError("orders-0: 1 records were not acknowledged"))


@pytest.mark.parametrize("code", Code)
def test_no_code_is_taken_for_another(code: Code) -> None:
    """An ``except`` clause or a look at ``errno`` never matches an error that was not meant."""
    error = familiar(broker_error(code))
    assert isinstance(error, errors.KafkaError)
    if isinstance(error, errors.BrokerResponseError) and not isinstance(error, errors.UnknownError):
        assert error.errno == code
        assert OTHER_NAMES.get(error.message, error.message) == code.name


@pytest.mark.parametrize("code", [Code.UNKNOWN_SERVER_ERROR, Code.INVALID_RECORD, Code.TRANSACTION_ABORTABLE])
def test_a_code_that_aiokafka_does_not_know(code: Code) -> None:
    """It raises UnknownError for these, a BrokerResponseError."""
    error: Any = familiar(broker_error(code))
    assert theirs(error) == {"UnknownError", "BrokerResponseError", "KafkaError"}
    assert error.errno == errors.UnknownError.errno
    assert error.code == code


def test_a_lost_connection() -> None:
    """aiokafka raises either class, depending on when the connection was lost."""
    for error in (familiar(ConnectionLostError("node 1 closed the connection")), timed_out(ConnectionLostError())):
        assert isinstance(error, errors.KafkaConnectionError)
        assert isinstance(error, errors.NodeNotReadyError)
        assert not isinstance(error, errors.BrokerResponseError)


@pytest.mark.parametrize("refused", [AuthenticationError(), TlsError(), SaslAuthenticationFailedError()])
def test_a_refused_login(refused: KafkaError) -> None:
    """The clause around aiokafka's start catches it, and so does one that names the login."""
    for error in (familiar(refused), timed_out(refused)):
        assert isinstance(error, errors.AuthenticationFailedError)
        assert isinstance(error, errors.KafkaConnectionError)
        assert isinstance(error, errors.NodeNotReadyError)


def test_a_record_that_timed_out() -> None:
    """It is of the class for that, and of those of its last error, with the code of that."""
    assert theirs(timed_out(ConnectionLostError())) == {
        "KafkaTimeoutError", "KafkaConnectionError", "NodeNotReadyError", "KafkaError"
    }  # fmt: skip
    error: Any = timed_out(RequestTimedOutError())
    assert theirs(error) == {"KafkaTimeoutError", "RequestTimedOutError", "BrokerResponseError", "KafkaError"}
    assert error.errno == 7
    assert theirs(timed_out(BrokerError())) == {"KafkaTimeoutError", "KafkaError"}
    assert theirs(familiar(DeliveryTimeoutError())) == {"KafkaTimeoutError", "KafkaError"}


def test_an_error_says_the_same_in_both_libraries() -> None:
    cause = ConnectionLostError("lost")
    try:
        raise DeliveryTimeoutError("orders-0: too late", maybe_written=True) from cause
    except DeliveryTimeoutError as caught:
        error = caught
    twin = familiar(error)
    assert isinstance(twin, DeliveryTimeoutError)
    assert twin is not error
    assert (str(twin), twin.args, twin.maybe_written) == (str(error), error.args, True)
    assert (twin.__cause__, twin.__traceback__) == (cause, error.__traceback__)
    assert familiar(twin) is twin
    for copied in (copy.copy(twin), pickle.loads(pickle.dumps(twin))):
        assert isinstance(copied, errors.KafkaTimeoutError)
        assert (str(copied), copied.maybe_written) == (str(error), True)


def test_errors_that_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of others, and all of them in a program that has never imported aiokafka's."""
    foreign, own = ValueError("theirs"), DeliveryTimeoutError()
    assert familiar(foreign) is foreign
    monkeypatch.delitem(sys.modules, "aiokafka.errors")
    assert familiar(own) is own


def test_classes_that_cannot_be_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of aiokafka may build its classes differently; the error matters more than its twin."""

    class Theirs(int):
        """As an exception group, or an OSError, it has a memory layout of its own."""

    monkeypatch.setitem(sys.modules, "aiokafka.errors", SimpleNamespace(KafkaError=Theirs))
    error = KafkaError("for example")
    assert familiar(error) is error


def test_an_error_without_a_twin() -> None:
    assert theirs(familiar(KafkaError())) == {"KafkaError"}


def test_a_fenced_producer() -> None:
    assert theirs(familiar(ProducerFencedError())) == {"ProducerFenced", "KafkaError"}


def test_a_transaction_that_outlived_its_time_limit() -> None:
    """For aiokafka it is the same as fencing, in the calls of the transaction and for its records."""
    error = familiar(InvalidProducerEpochError())
    assert theirs(error) == {"ProducerFenced", "InvalidProducerEpoch", "BrokerResponseError", "KafkaError"}
    assert isinstance(because_of(InvalidProducerEpochError(), TransactionAbortedError()), errors.ProducerFenced)


def test_records_of_a_transaction_that_another_record_spoiled() -> None:
    """They do not look as if the broker had refused them."""
    assert theirs(because_of(MessageTooLargeError(), TransactionAbortedError())) == {"KafkaError"}
    assert theirs(familiar(TransactionAbortedError())) == {"KafkaError"}
