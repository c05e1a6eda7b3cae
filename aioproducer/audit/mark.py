"""Mark: the content of an audited record's header, and its wire format.

One header instead of three, because a record of 100 bytes would double. It is text, so that any tool can show it:
``orders-service-5f0c27a1;0;1207;1767225600123``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

HEADER = "aioproducer.audit"
"""Name of the header. If a record has several (read from one topic, sent to another), the last one counts."""

PRODUCER_NAME = re.compile(r"[A-Za-z0-9-][A-Za-z0-9._-]{0,99}")
"""Also a file name: names that begin with a dot or an underscore are hidden, and Spark skips them."""

PATTERN = rf"{PRODUCER_NAME.pattern};[A-Za-z0-9._-]{{0,99}};[0-9]{{1,15}};[0-9]{{1,13}}"
"""A whole header value, in Python and Java. Untrusted values are shown on a terminal and added up, so control
characters, numbers beyond what a producer can send, and impossible dates are excluded."""

_MARK = re.compile(PATTERN.encode())


class Mark(NamedTuple):
    """Which record this is.

    Args:
        producer: instance; its records in a topic are numbered 0, 1, 2, ...
        attempt: distinguishes repeated sends of the same records: after an abort, or by another Spark task. Each
            attempt has its own order.
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
    """Parse a header value; None if it is not ours."""
    if value is None or not _MARK.fullmatch(value):
        return None
    producer, attempt, sequence, time_ms = value.decode().split(";")
    return Mark(producer, attempt, int(sequence), int(time_ms))


def without_mark(pairs: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers except ours."""
    return [pair for pair in pairs if pair[0] != HEADER]
