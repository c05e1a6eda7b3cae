"""Outcome: what a task or a whole write has put into Kafka; and the commit message that carries it to the driver."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from aioproducer.records import PreparedTransaction, TopicPartition

Ranges = list[tuple[int, int]]
"""Ascending ranges of (first, last) offset."""

MOST_RANGES = 32
"""The most ranges kept for a partition. If others write to it too, or each transaction leaves a marker in it, there are
as many as batches or micro-batches: each task's message has them all, and a stream's totals would grow for ever."""

SHOWN_RANGES = 3
SHOWN_PARTITIONS = 20
"""How many a line of the log has."""


@dataclass(slots=True)
class Outcome:
    """Counts and places of acknowledged records; outcomes of several tasks can be added.

    Args:
        records: acknowledged records, without dead letters.
        bytes: of their keys and values, before compression.
        dead_letters: rows that went to the dead-letter topic instead.
        offsets: offset ranges of the records by partition, dead letters included. Of more than MOST_RANGES in a
            partition, those with the smallest gaps are joined, so they may then contain offsets of other records.
    """

    records: int = 0
    bytes: int = 0
    dead_letters: int = 0
    offsets: dict[TopicPartition, Ranges] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Add another outcome; the lists of both stay as they are."""
        self.records += other.records
        self.bytes += other.bytes
        self.dead_letters += other.dead_letters
        for partition, ranges in other.offsets.items():
            self.offsets[partition] = extended([*self.offsets.get(partition, ())], ranges)

    def add_offsets(self, topic: str, offsets: Mapping[Any, Ranges]) -> None:
        """Add a BatchResult's ranges for calls to ``topic``; there, other topics have TopicPartition keys."""
        for key, ranges in offsets.items():
            partition = key if isinstance(key, TopicPartition) else TopicPartition(topic, key)
            self.offsets[partition] = extended(self.offsets.get(partition, []), ranges)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for logs and files."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "dead_letters": self.dead_letters,
            "offsets": {str(partition): ranges for partition, ranges in sorted(self.offsets.items())},
        }

    def __str__(self) -> str:
        shown = heapq.nsmallest(SHOWN_PARTITIONS, self.offsets.items())
        places = "; ".join(f"{partition} {_shown(ranges)}" for partition, ranges in shown)
        if (more := len(self.offsets) - SHOWN_PARTITIONS) > 0:
            places += f"; {more:,} more partitions"
        letters = f", {self.dead_letters:,} dead letters" if self.dead_letters else ""
        return f"{self.records:,} records, {self.bytes:,} bytes{letters}: {places or 'nothing'}"


def extended(ranges: Ranges, more: Ranges) -> Ranges:
    """Join ranges with more ranges, at most MOST_RANGES; may change and return the first list."""
    for first, last in more:
        if ranges and first <= ranges[-1][1]:
            ranges = joined([*ranges, *more])
            break
        if ranges and first == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    return ranges if len(ranges) <= MOST_RANGES else coarse(ranges)


def coarse(ranges: Ranges) -> Ranges:
    """Half of MOST_RANGES, with the widest of the gaps: half, so that it need not be done again for the next range."""
    places = range(1, len(ranges))
    widest = sorted(places, key=lambda place: ranges[place - 1][1] - ranges[place][0])[: MOST_RANGES // 2 - 1]
    edges = [0, *sorted(widest), len(ranges)]
    return [(ranges[begin][0], ranges[end - 1][1]) for begin, end in pairwise(edges)]


def _shown(ranges: Ranges) -> str:
    shown = [f"{first}-{last}" for first, last in ranges]
    if len(ranges) > SHOWN_RANGES:
        shown[SHOWN_RANGES - 1 : -1] = [f"{len(ranges) - SHOWN_RANGES} more"]
    return ", ".join(shown)


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The same offsets in as few ascending ranges as possible."""
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


@dataclass(frozen=True, slots=True)
class TaskStatement:
    """A task's part of the audit statement.

    Args:
        write: names the batch write or micro-batch.
        lines: lines of the statement.
    """

    write: str
    lines: list[dict[str, Any]]


@dataclass(slots=True)
class TaskMessage(WriterCommitMessage):
    """A task's message to the driver once all its rows are in Kafka."""

    outcome: Outcome
    partition: int
    """Partition of the DataFrame, not of a topic."""
    batch: str = ""
    """Name of the batch it belongs to, see batch_names; empty without transactions."""
    claim: str = ""
    """Claim of its driver; empty without transactions."""
    prepared: PreparedTransaction | None = None
    """What the driver needs to commit the rows; None without transactions, or for a task without rows."""
    statement: TaskStatement | None = None
    """Set with an audit, for a task that had rows."""
    skipped: int = 0
    """Rows that were not written, because their batch had been committed before."""


def total(messages: Iterable[object]) -> Outcome:
    """The sum over all tasks that succeeded; None stands for one that did not."""
    whole = Outcome()
    for message in messages:
        if isinstance(message, TaskMessage):
            whole.add(message.outcome)
    return whole
