"""Mark: what the header of an audited record says, and its form on the wire.

One header and not three, because a record of 100 bytes would double. It is text, so that any tool shows it:
``orders-service-5f0c27a1;0;1207;1767225600123``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

HEADER = "aioproducer.audit"
"""Name of the header. Of several, in a record that was read from one topic and sent to another, the last counts."""

PRODUCER_NAME = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,99}")
"""Also the name of a file: one that begins with a dot or an underscore is hidden, and Spark reads none of these."""

PATTERN = rf"{PRODUCER_NAME.pattern};[A-Za-z0-9._-]{{0,99}};[0-9]{{1,15}};[0-9]{{1,13}}"
"""All of a header's value, for Python and Java. What anybody may write into a topic is shown on a terminal and added
up, so no character controls the one, and no number is beyond what a producer can send or a date can be."""

_MARK = re.compile(PATTERN.encode())


class Mark(NamedTuple):
    """Which record this is.

    Args:
        producer: instance; its records of a topic have the sequence numbers 0, 1, 2, ...
        attempt: of the same records, where they may be sent again: after an abort, or by another task of Spark. Each
            attempt keeps an order of its own.
        sequence: number among the producer's records of this topic.
        time_ms: when the record was given to the producer, ms since the epoch.
    """

    producer: str
    attempt: str
    sequence: int
    time_ms: int

    def encode(self) -> bytes:
        """The header's value."""
        return f"{self.producer};{self.attempt};{self.sequence};{self.time_ms}".encode()


def read_mark(value: bytes | None) -> Mark | None:
    """What a header's value says; None if it is none of ours."""
    if value is None or not _MARK.fullmatch(value):
        return None
    producer, attempt, sequence, time_ms = value.decode().split(";")
    return Mark(producer, attempt, int(sequence), int(time_ms))


def without_mark(pairs: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers that are not ours."""
    return [pair for pair in pairs if pair[0] != HEADER]
