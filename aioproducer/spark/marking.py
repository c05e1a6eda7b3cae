"""TaskAudit: marks the rows of a task, by column or by record, and states how they ended.

See docs/audit.md. The producer instance is a partition of a write, not an attempt at it: rows that a second attempt
writes again have the same numbers, so an audit finds them as duplicates.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow
from pyarrow import compute

from aioproducer.audit.mark import HEADER, Mark, read_mark
from aioproducer.audit.statement import FAILED, TopicStatement, closing
from aioproducer.records import Record, TopicPartition

NAME_DIGITS = 12

OURS = pyarrow.list_(
    pyarrow.struct([("key", pyarrow.dictionary(pyarrow.int8(), pyarrow.string())), ("value", pyarrow.binary())])
)
PLAIN = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))

_counting = pyarrow.array([], pyarrow.int64())


def write_name(*what: str) -> str:
    """A short, stable name for a write or a query."""
    return f"spark-{hashlib.sha256(chr(0).join(what).encode()).hexdigest()[:NAME_DIGITS]}"


class TaskAudit:
    """The marks of one attempt of a task.

    Args:
        producer: instance name for the numbering.
        attempt: unique to this attempt.
        topic: of all rows; None if they have a column for it.
        clock: seconds since the epoch.
    """

    def __init__(
        self, producer: str, attempt: str, topic: str | None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._producer = producer
        self._attempt = attempt
        self._topic = topic
        self._clock = clock
        self._next: Counter[str] = Counter()
        self._given: list[tuple[str, int, int]] = []
        """Topic, second and count, in order."""
        self._acked: Counter[tuple[str, int, int]] = Counter()
        self._failed: set[tuple[str, int]] = set()

    # --- marking ------------------------------------------------------------------------------------------------------

    def mark_batch(self, batch: pyarrow.RecordBatch) -> tuple[pyarrow.RecordBatch, int]:
        """The same rows with marks appended to their headers, and the second in the marks."""
        time_ms = int(self._clock() * 1000)
        numbers = self._numbers(batch, time_ms // 1000)
        text = compute.binary_join_element_wise(
            f"{self._producer};{self._attempt};", compute.cast(numbers, pyarrow.string()), f";{time_ms}", ""
        )
        values = text.cast(pyarrow.binary())
        names = batch.schema.names
        if "headers" not in names:
            return batch.append_column("headers", _alone(values)), time_ms // 1000
        index = names.index("headers")
        return batch.set_column(index, "headers", _behind(batch.column(index), values)), time_ms // 1000

    def mark_records(self, records: list[Record]) -> tuple[list[Record], int]:
        """The same records with marks appended to their headers, and the second in the marks."""
        time_ms = int(self._clock() * 1000)
        second = time_ms // 1000
        marked = []
        for record in records:
            topic = self._topic if self._topic is not None else record.topic or ""
            mark = Mark(self._producer, self._attempt, self._next[topic], time_ms)
            self._give(topic, second, 1)
            pairs = record.headers.items() if isinstance(record.headers, Mapping) else record.headers or ()
            marked.append(replace(record, headers=[*pairs, (HEADER, mark.encode())]))
        return marked, second

    def _numbers(self, batch: pyarrow.RecordBatch, second: int) -> pyarrow.Array:
        """The number of each row among those of its topic."""
        rows = batch.num_rows
        if self._topic is not None:
            first = self._next[self._topic]
            self._give(self._topic, second, rows)
            return compute.add(_up_to(rows), first)
        topics = compute.fill_null(batch.column("topic"), "").cast(pyarrow.large_binary()).dictionary_encode()
        counts = Counter(dict.fromkeys(range(len(topics.dictionary)), 0))
        for count in compute.value_counts(topics.indices).to_pylist():
            counts[count["values"]] = count["counts"]
        # Ranked by topic, then by row: subtract the rank at which the topic's group begins.
        shifts, before = [], 1
        for code, name in enumerate(topics.dictionary.to_pylist()):
            topic = name.decode(errors="surrogateescape")  # Spark's strings may not be UTF-8
            shifts.append(self._next[topic] - before)
            before += counts[code]
            self._give(topic, second, counts[code])
        rank = compute.rank(topics.indices, tiebreaker="first").cast(pyarrow.int64())
        return compute.add(rank, pyarrow.array(shifts, pyarrow.int64()).take(topics.indices))

    def _give(self, topic: str, second: int, rows: int) -> None:
        self._next[topic] += rows
        if self._given and self._given[-1][:2] == (topic, second):
            rows += self._given.pop()[2]
        self._given.append((topic, second, rows))

    # --- how they ended -----------------------------------------------------------------------------------------------

    def acked(self, second: int, offsets: Mapping[Any, list[tuple[int, int]]]) -> None:
        """Rows marked in a second were acknowledged.

        Args:
            offsets: from a BatchResult.
        """
        for key, ranges in offsets.items():
            topic, partition = key if isinstance(key, TopicPartition) else (self._topic or "", key)
            self._acked[topic, partition, second] += sum(last - first + 1 for first, last in ranges)

    def failed(self, record: Record) -> Record:
        """A row was not written; returns the record without its mark."""
        headers = list(record.headers.items() if isinstance(record.headers, Mapping) else record.headers or ())
        mark = read_mark(headers.pop()[1])
        assert mark is not None
        self._failed.add((self._topic if self._topic is not None else record.topic or "", mark.sequence))
        return replace(record, headers=headers)

    def statement(self) -> list[dict[str, Any]]:
        """The lines of the statement: what a reader will find if the task succeeds."""
        statements = {topic: TopicStatement(self._producer, topic) for topic, _, _ in self._given}
        failed: defaultdict[str, list[int]] = defaultdict(list)
        for topic, number in sorted(self._failed):
            failed[topic].append(number)
        for topic, second, rows in self._given:
            one = statements[topic]
            end = one.next + rows
            numbers = failed[topic]
            for number in numbers[bisect_left(numbers, one.next) : bisect_left(numbers, end)]:
                if number > one.next:
                    one.ended(second, None, number - one.next)
                one.ended(second, FAILED)
            if end > one.next:
                one.ended(second, None, end - one.next)
        for (topic, partition, second), records in self._acked.items():
            statements[topic].acked(partition, second, records)
        lines = [line for one in statements.values() if (line := one.take()) is not None]
        return [*lines, closing(self._producer)] if lines else []


def _up_to(rows: int) -> pyarrow.Array:
    """0, 1, 2, ...: computed once, for the largest batch."""
    global _counting
    if len(_counting) <= rows:
        _counting = pyarrow.array(range(2 * rows + 1), pyarrow.int64())
    return _counting.slice(0, rows)


def _alone(values: pyarrow.Array) -> pyarrow.Array:
    """A list of one header per row."""
    rows = len(values)
    zeros = pyarrow.array(memoryview(bytes(rows)).cast("b"), pyarrow.int8()) if rows else pyarrow.array([], "int8")
    keys = pyarrow.DictionaryArray.from_arrays(zeros, pyarrow.array([HEADER]))
    entries = pyarrow.StructArray.from_arrays([keys, values], fields=list(OURS.value_type))
    return pyarrow.ListArray.from_arrays(_up_to(rows + 1).cast(pyarrow.int32()), entries)


def _behind(headers: pyarrow.Array, values: pyarrow.Array) -> pyarrow.Array:
    """Append one header to those of each row."""
    rows = len(values)
    own = headers.cast(PLAIN)
    entries = compute.list_flatten(own)
    places = compute.list_parent_indices(own).cast(pyarrow.int64())
    ours = pyarrow.StructArray.from_arrays([pyarrow.repeat(HEADER, rows), values], fields=list(PLAIN.value_type))
    all_places = pyarrow.concat_arrays([places, _up_to(rows)])
    in_order = pyarrow.concat_arrays([entries, ours]).take(compute.array_sort_indices(all_places))
    lengths = compute.add(compute.fill_null(compute.list_value_length(own), 0).cast(pyarrow.int64()), 1)
    ends = pyarrow.concat_arrays([pyarrow.array([0], pyarrow.int64()), compute.cumulative_sum(lengths)])
    return pyarrow.ListArray.from_arrays(ends.cast(pyarrow.int32()), in_order)
