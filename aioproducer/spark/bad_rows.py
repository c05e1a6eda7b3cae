"""Rows that can't be written, whatever the state of the cluster, and the dead letters that they become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aioproducer.audit.mark import without_mark
from aioproducer.errors import (
    BrokerError,
    InvalidTopicError,
    MetadataTimeoutError,
    RecordTooLargeError,
    SerializationError,
)
from aioproducer.records import Record

REFUSED_BY_THE_PRODUCER = (RecordTooLargeError, SerializationError, InvalidTopicError, MetadataTimeoutError)
"""MetadataTimeoutError only of a partition that the topic does not have: without the topic the whole call ends."""

REFUSED_BY_THE_BROKER = frozenset({10, 18, 32, 44, 87})
"""MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, POLICY_VIOLATION, INVALID_RECORD."""

ERROR_HEADER = "aioproducer.error"
MESSAGE_HEADER = "aioproducer.error.message"
TOPIC_HEADER = "aioproducer.topic"
PARTITION_HEADER = "aioproducer.partition"
TIMESTAMP_HEADER = "aioproducer.timestamp"
ROW_HEADER = "aioproducer.row"
BYTES_HEADER = "aioproducer.bytes"

REASONS = frozenset({ERROR_HEADER, MESSAGE_HEADER, TOPIC_HEADER, PARTITION_HEADER, TIMESTAMP_HEADER, ROW_HEADER})
"""What a dead letter keeps that is cut."""

NAMELESS_HEADER = "aioproducer.header"
"""What a header of a row is called that has no name."""

SHORT_VALUE_BYTES = 65_536
SHORT_KEY_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class RowPlace:
    """Where a row stands in its DataFrame.

    Args:
        partition: of the DataFrame, not of a topic.
        row: in that partition, counted from 0.
    """

    partition: int
    row: int

    def __str__(self) -> str:
        return f"row {self.row} of partition {self.partition}"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was not written, as a record, and why."""

    place: RowPlace
    record: Record
    error: Exception


def is_bad_row(error: Exception) -> bool:
    """Whether the error is of this very record, so that the next one may well be written."""
    if getattr(error, "maybe_written", False):
        return False
    return isinstance(error, REFUSED_BY_THE_PRODUCER) or was_refused_by_broker(error)


def was_refused_by_broker(error: Exception) -> bool:
    """Whether the broker refused a batch, in which other records may have been at fault."""
    return isinstance(error, BrokerError) and error.code in REFUSED_BY_THE_BROKER


def by_column(error: Exception, record: Record, topic: str | None) -> Exception:
    """The error in words of the DataFrame, where the producer's own is about arguments that nobody there has given.

    Args:
        topic: option ``topic``.
    """
    if isinstance(error, SerializationError):
        named = record.topic if topic is None else topic
        if named is None:
            return SerializationError("column topic is null, and there is no option topic, which is for all rows")
        if any(name is None for name, _ in _pairs(record)):
            return SerializationError(
                f"column headers: a header of a record for topic {named!r} is null or has no name"
            )
    return error


def dead_letter(record: Record, error: Exception, place: RowPlace) -> Record:
    """The record for the dead-letter topic: key, value and headers as they were, and why it is there as headers.

    Marks of an audit are left out, also one from the topic that a row was read from: they count records of that one.
    Its timestamp is the time of writing: with one of long ago or far ahead the topic might delete it, or refuse it too.
    """
    own = [(NAMELESS_HEADER if name is None else name, value) for name, value in without_mark(_pairs(record))]
    reason: list[tuple[str, bytes | None]] = [
        (ERROR_HEADER, type(error).__name__.encode()),
        (MESSAGE_HEADER, str(error).encode()),
        (ROW_HEADER, f"{place.partition}:{place.row}".encode()),
    ]
    if record.topic is not None:
        reason.append((TOPIC_HEADER, record.topic.encode(errors="surrogateescape")))
    if record.partition is not None:
        reason.append((PARTITION_HEADER, str(record.partition).encode()))
    if record.timestamp_ms is not None:
        reason.append((TIMESTAMP_HEADER, str(record.timestamp_ms).encode()))
    return Record(record.value, record.key, headers=[*own, *reason])


def shortened(letter: Record) -> Record:
    """A dead letter that is too large itself: the beginning of key and value, and how many bytes they had."""
    reasons = [(name, value) for name, value in _pairs(letter) if name in REASONS]
    sizes = f"{_size(letter.key)}:{_size(letter.value)}".encode()
    return Record(
        _cut(letter.value, SHORT_VALUE_BYTES),
        _cut(letter.key, SHORT_KEY_BYTES),
        headers=[*reasons, (BYTES_HEADER, sizes)],
    )


def _pairs(record: Record) -> Iterable[tuple[str, bytes | None]]:
    return record.headers.items() if isinstance(record.headers, Mapping) else record.headers or ()


def _size(payload: bytes | None) -> int:
    return -1 if payload is None else len(payload)


def _cut(payload: bytes | None, limit: int) -> bytes | None:
    return None if payload is None else payload[:limit]
