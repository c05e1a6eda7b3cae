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
    DeliveryTimeoutError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerFencedError,
    RecordTooLargeError,
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
    (TransactionStateError, ("IllegalOperation",)),
    (AuthenticationError, ("AuthenticationFailedError",)),
    (BootstrapError, ("KafkaConnectionError",)),
    (ProducerClosedError, ("ProducerClosed",)),
)
"""Where no code of a broker says it: the first that fits."""


def familiar(error: BaseException) -> BaseException:
    """The error as one of aiokafka's as well, if the program knows that library; else, or if it has none, itself.

    A record that ran out of time is also of the class of the answer it got last, which aiokafka raises then.
    """
    if not isinstance(error, KafkaError):
        return error
    theirs = sys.modules.get("aiokafka.errors")
    if theirs is None or isinstance(error, theirs.KafkaError):
        return error
    try:
        twin = _as(_both(type(error), _theirs(theirs, error)), error)
    except TypeError:  # the two can't be one, as with groups of exceptions
        return error
    twin.__traceback__ = error.__traceback__
    return twin


@contextmanager
def raising_familiar() -> Iterator[None]:
    """What is raised inside comes out as ``familiar`` makes it."""
    try:
        yield
    except KafkaError as error:
        raise familiar(error) from error.__cause__


def _as(kind: type[KafkaError], error: KafkaError) -> KafkaError:
    """The same error, as one of another class."""
    twin = kind.__new__(kind, *error.args)
    twin.args = error.args
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin


def _reduced(twin: KafkaError) -> tuple[Any, ...]:
    """For pickles and copies: as one of this library's own, which becomes familiar again where it arrives."""
    return familiar, (_as(type(twin).__bases__[0], twin),)


def _theirs(module: Any, error: KafkaError) -> tuple[type[BaseException], ...]:
    names = next((names for ours, names in NAMES if isinstance(error, ours)), ())
    found = [getattr(module, name) for name in names if hasattr(module, name)]
    said = error.__cause__ if isinstance(error, DeliveryTimeoutError) else error if not found else None
    if isinstance(said, BrokerError) and module.for_code(said.code) is not module.UnknownError:
        found.append(module.for_code(said.code))
    return tuple(found) or (module.KafkaError,)


def _both(ours: type[KafkaError], theirs: tuple[type[BaseException], ...]) -> type[KafkaError]:
    kind = _KINDS.get((ours, *theirs))
    if kind is None:
        members = {"__str__": ours.__str__, "__reduce__": _reduced, "__module__": __name__, "name": ours.name}
        kind = _KINDS[ours, *theirs] = type(ours.__name__, (ours, *theirs), members)
    return kind


_KINDS: dict[tuple[type, ...], type[KafkaError]] = {}
