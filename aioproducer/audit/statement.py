"""Statement: what a producer reports about its records in a topic once it knows how they ended; JSON lines.

A reader sees what is in the topic, not what should be there. Gaps between sequence numbers reveal losses; only the
sender knows that more followed the last one, which numbers failed, and in which partition a lost record was
acknowledged. A line covers the sequence numbers from ``first`` up to ``next`` (exclusive), all of which have ended,
and the lines of a producer and topic follow each other without gaps:

    {"producer": "orders-5f0c27a1", "topic": "orders", "first": 0, "next": 5,
     "runs": [[0, 1, 1767225600, 3], [2, 2, 1767225600, -1], [3, 4, 1767225601, 0]],
     "acked": [[3, 1767225600, 2], [0, 1767225601, 2]],
     "failed": [[2, 2, 1767225600]],
     "latency_ms": [[3, 1767225600, 5, 2], [0, 1767225601, 17, 2]]}

runs        [first, last, second, partition]: neighbours of the same second and partition; the partition is -1 for
            records that failed, null where it is not known record by record
acked       [partition, second, records]
failed      [first, last, second]: the program got an error, so a reader does not expect them
latency_ms  [partition, second, ms, records]: from the program's call to the acknowledgement, to two digits

``{"producer": "orders-5f0c27a1", "closed": true}`` is the last line of a producer that was closed and knows how all its
records ended. Seconds are those since the epoch at which the records were given to the producer.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

FAILED = -1
"""Stands in place of a partition."""

Run = list[int | None]


class TopicStatement:
    """Collects how one producer's records in one topic ended.

    Args:
        first: the next sequence number.
    """

    def __init__(self, producer: str, topic: str, first: int = 0) -> None:
        self._producer = producer
        self._topic = topic
        self._first = first
        self.next: int = first
        self._runs: list[Run] = []
        self._acked: Counter[tuple[int, int]] = Counter()
        self._latency: Counter[tuple[int, int, int]] = Counter()

    @property
    def runs(self) -> int:
        """Number of runs, which determines a line's size."""
        return len(self._runs)

    def ended(self, second: int, partition: int | None, records: int = 1) -> None:
        """The next records have ended.

        Args:
            partition: FAILED, or that of the acknowledgement; None if ``acked`` counts it.
        """
        last = self.next + records - 1
        if self._runs and self._runs[-1][2:] == [second, partition]:
            self._runs[-1][1] = last
        else:
            self._runs.append([self.next, last, second, partition])
        self.next = last + 1
        if partition is not None and partition != FAILED:
            self.acked(partition, second, records)

    def acked(self, partition: int, second: int, records: int) -> None:
        """Count records of a second acknowledged in a partition."""
        self._acked[partition, second] += records

    def latency(self, partition: int, second: int, ms: int) -> None:
        """Count a record's time until its acknowledgement."""
        self._latency[partition, second, two_digits(ms)] += 1

    def take(self) -> dict[str, Any] | None:
        """The fields of a line for everything since the last call; None if there is nothing."""
        if self.next == self._first:
            return None
        line: dict[str, Any] = {
            "producer": self._producer,
            "topic": self._topic,
            "first": self._first,
            "next": self.next,
            "runs": self._runs,
            "acked": [[*cell, count] for cell, count in self._acked.items()],
            "failed": [run[:3] for run in self._runs if run[3] == FAILED],
            "latency_ms": [[*cell, count] for cell, count in self._latency.items()],
        }
        self._first, self._runs, self._acked, self._latency = self.next, [], Counter(), Counter()
        return line


def two_digits(ms: int) -> int:
    """Milliseconds, rounded down to two digits from 100 on, to have few distinct values; 0 if negative."""
    step = 1
    while ms >= 100 * step:
        step *= 10
    return max(0, ms // step * step)


def closing(producer: str) -> dict[str, Any]:
    """A producer's last line."""
    return {"producer": producer, "closed": True}


def as_text(lines: list[dict[str, Any]]) -> str:
    """The lines in file format."""
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
