"""Rows that can't be written whatever the state of the cluster, and the dead letters they become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aioproducer.audit.mark import without_mark
from aioproducer.error_codes import Code
from aioproducer.errors import (
    BrokerError,
    InvalidTopicError,
    MetadataTimeoutError,
    RecordTooLargeError,
    SerializationError,
)
from aioproducer.records import Record

REFUSED_BY_THE_PRODUCER = (RecordTooLargeError, SerializationError, InvalidTopicError, MetadataTimeoutError)
"""MetadataTimeoutError only for a partition the topic does not have: a missing topic ends the whole call."""

REFUSED_BY_THE_BROKER = frozenset(
    (
        Code.MESSAGE_TOO_LARGE,
        Code.RECORD_LIST_TOO_LARGE,
        Code.INVALID_TIMESTAMP,
        Code.POLICY_VIOLATION,
        Code.INVALID_RECORD,
    )
)

ERROR_HEADER = "aioproducer.error"
MESSAGE_HEADER = "aioproducer.error.message"
TOPIC_HEADER = "aioproducer.topic"
PARTITION_HEADER = "aioproducer.partition"
TIMESTAMP_HEADER = "aioproducer.timestamp"
ROW_HEADER = "aioproducer.row"
BYTES_HEADER = "aioproducer.bytes"

REASONS = frozenset({ERROR_HEADER, MESSAGE_HEADER, TOPIC_HEADER, PARTITION_HEADER, TIMESTAMP_HEADER, ROW_HEADER})
"""Headers that a shortened dead letter keeps."""

NAMELESS_HEADER = "aioproducer.header"
"""Name given to a row's header that has none."""

SHORT_VALUE_BYTES = 65_536
SHORT_KEY_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class RowPlace:
    """A row's place in its DataFrame.

    Args:
        partition: partition of the DataFrame, not of a topic.
        row: number in that partition, from 0.
    """

    partition: int
    row: int

    def __str__(self) -> str:
        return f"row {self.row} of partition {self.partition}"


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was not written, as a record, and its error."""

    place: RowPlace
    record: Record
    error: Exception


def is_bad_row(error: Exception) -> bool:
    """Whether only this record is at fault, so that the next one may be written."""
    if getattr(error, "maybe_written", False):
        return False
    return isinstance(error, REFUSED_BY_THE_PRODUCER) or was_refused_by_broker(error)


def was_refused_by_broker(error: Exception) -> bool:
    """Whether the broker refused the batch, so another record may be at fault."""
    return isinstance(error, BrokerError) and error.code in REFUSED_BY_THE_BROKER


def by_column(error: Exception, record: Record, topic: str | None) -> Exception:
    """The error in terms of the DataFrame, where the producer's own names arguments the user never gave.

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
    """The record for the dead-letter topic: key, value and headers unchanged, plus the reason as headers.

    Audit marks are left out, including one from the topic the row was read from: they count records of that topic.
    The timestamp is the time of writing: the topic might delete or refuse a record with one long past or far ahead.
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
    """Shorten a dead letter that is itself too large: the start of key and value, and their sizes in bytes."""
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
