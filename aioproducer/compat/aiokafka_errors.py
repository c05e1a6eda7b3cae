"""Errors that both libraries' ``except`` clauses catch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aioproducer.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerError,
    BufferExhaustedError,
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidProducerEpochError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortedError,
    TransactionStateError,
    TransactionTimeoutError,
)

NAMES: tuple[tuple[type[KafkaError], tuple[str, ...]], ...] = (
    (BufferExhaustedError, ("KafkaTimeoutError",)),
    (MetadataTimeoutError, ("KafkaTimeoutError", "UnknownTopicOrPartitionError")),
    (DeliveryTimeoutError, ("KafkaTimeoutError",)),
    (TransactionTimeoutError, ("KafkaTimeoutError",)),
    (RecordTooLargeError, ("MessageSizeTooLargeError",)),
    (ProducerFencedError, ("ProducerFenced",)),
    (InvalidProducerEpochError, ("ProducerFenced",)),
    (TransactionStateError, ("IllegalOperation",)),
    # For aiokafka a broker that refuses the login or the certificate is just one that can't be reached.
    (AuthenticationError, ("AuthenticationFailedError", "KafkaConnectionError", "NodeNotReadyError")),
    (BootstrapError, ("KafkaConnectionError",)),
    (ConnectionLostError, ("KafkaConnectionError", "NodeNotReadyError")),
    (ProducerClosedError, ("ProducerClosed",)),
)
"""Their names for errors of ours: the first match counts. Those of brokers are also of the class of their code."""


def familiar(error: BaseException) -> BaseException:
    """The error as an aiokafka error as well, if the program has imported that library; itself if there is no match.

    A record that timed out is also of the classes of its last error, which aiokafka raises in that case. If a
    transaction outlived its time limit, its records and its end are ProducerFenced too, as there.
    """
    if not isinstance(error, KafkaError):
        return error
    theirs = sys.modules.get("aiokafka.errors")
    if theirs is None or isinstance(error, theirs.KafkaError):
        return error
    try:
        twin = _as(_both(type(error), _theirs(theirs, error)), error)
    except TypeError:  # the two can't be combined in this version of theirs
        return error
    twin.__traceback__ = error.__traceback__
    return twin


@contextmanager
def raising_familiar() -> Iterator[None]:
    """Convert exceptions raised inside with ``familiar``."""
    try:
        yield
    except KafkaError as error:
        raise familiar(error) from error.__cause__


def _as(kind: type[KafkaError], error: KafkaError) -> KafkaError:
    """The same error, in another class."""
    twin = kind.__new__(kind, *error.args)
    twin.args = error.args
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin


def _reduced(twin: KafkaError) -> tuple[Any, ...]:
    """For pickle and copy: reduce to this library's own class; it becomes familiar again on arrival."""
    return familiar, (_as(type(twin).__bases__[0], twin),)


def _theirs(module: Any, error: KafkaError) -> tuple[type[BaseException], ...]:
    found, cause = _classes(module, error), error.__cause__
    # Other errors that spoil a transaction belong to one record: aiokafka does not raise them for the others.
    outlived = isinstance(error, TransactionAbortedError) and isinstance(cause, InvalidProducerEpochError)
    if outlived or isinstance(error, DeliveryTimeoutError):
        found |= _classes(module, cause)
    if not found and isinstance(error, BrokerError):
        return (module.UnknownError,)  # as there, for a code that it does not know
    return tuple(found) or (module.KafkaError,)


def _classes(module: Any, error: BaseException | None) -> dict[type[BaseException], None]:
    """Their classes for one error, without its cause, each once."""
    found = []
    # Brokers never send the code of a lost connection, and aiokafka has another error for the number.
    if isinstance(error, BrokerError) and not isinstance(error, ConnectionLostError):
        found.append(module.for_code(error.code))
    names = next((names for ours, names in NAMES if isinstance(error, ours)), ())
    found += [getattr(module, name) for name in names if hasattr(module, name)]
    return dict.fromkeys(each for each in found if each is not module.UnknownError)


def _both(ours: type[KafkaError], theirs: tuple[type[BaseException], ...]) -> type[KafkaError]:
    kind = _KINDS.get((ours, *theirs))
    if kind is None:
        members = {"__str__": ours.__str__, "__reduce__": _reduced, "__module__": __name__, "name": ours.name}
        # Theirs is the broker's code. The errno of Python's TimeoutError, which some of ours are, would hide it.
        if codes := [each.errno for each in theirs if hasattr(each, "errno")]:
            members["errno"] = codes[0]
        kind = _KINDS[ours, *theirs] = type(ours.__name__, (ours, *theirs), members)
    return kind


_KINDS: dict[tuple[type, ...], type[KafkaError]] = {}
