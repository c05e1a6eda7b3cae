"""Arguments of a record, as bytes and numbers."""

from typing import Any, SupportsIndex

from aioproducer.records import Headers

def checked_topic(topic: object) -> str:
    """The topic as a plain str, also for an enum member.

    Raises:
        SerializationError: it is not a str.
    """

def bytes_of(data: Any, what: str, topic: str | None, limit: int) -> bytes:
    """The content of a bytes-like object in index order, whatever its memory layout.

    Args:
        what: ``key`` or ``value``, for messages.
        limit: the most bytes of a record.
    Raises:
        RecordTooLargeError: it has more than that; nothing is copied then.
        SerializationError: ``data`` is not bytes-like, holds Python objects (a numpy array of dtype object, say), or
            does not give its bytes.
    """

def encodable_headers(headers: Headers | None, topic: str, limit: int) -> list[tuple[str, bytes | None]] | None:
    """Headers as a list of (str, bytes or None); None for no headers.

    Args:
        limit: the most bytes of a record.
    Raises:
        RecordTooLargeError: they take more than that; the rest of an iterator is left.
        SerializationError: not such pairs, or unreadable.
    """

def check_partition(partition: SupportsIndex | None, topic: str) -> int | None:
    """A partition's number as an int; None for None.

    Raises:
        SerializationError: it can't be a partition number.
    """
