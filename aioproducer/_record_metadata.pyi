"""RecordMetadata: where an acknowledged record stands in the log."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

@final
@dataclass(frozen=True)
class RecordMetadata:
    """Where an acknowledged record stands in the log; unpacks in the order of its fields."""

    topic: str
    partition: int
    offset: int
    """-1 with ``acks=0``, or if the broker did not report it."""
    timestamp_ms: int
    """The record's own, or the broker's if the topic uses LogAppendTime."""
    serialized_key_size: int
    """Bytes before compression; -1 for a null key."""
    serialized_value_size: int
    """Bytes before compression; -1 for a null value."""

    def __iter__(self) -> Iterator[Any]: ...
