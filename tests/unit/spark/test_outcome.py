"""The sums of what tasks have written."""

from __future__ import annotations

import json
import pickle
import random
from itertools import pairwise

import pytest

from aioproducer.records import TopicPartition
from aioproducer.spark.outcome import MOST_RANGES, Outcome, TaskMessage, extended, joined, total

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_ranges_are_joined_where_they_touch() -> None:
    assert joined([(5, 9), (0, 4), (11, 12), (12, 12)]) == [(0, 9), (11, 12)]
    assert joined([]) == []


def test_ranges_that_are_added_bit_by_bit_are_the_same_as_all_at_once() -> None:
    rng = random.Random(7)
    for _ in range(300):
        parts = []
        end = 0
        for _ in range(rng.randrange(1, 12)):
            end += rng.choice((0, 1, 3))
            parts.append([(end, end := end + rng.randrange(4))])
            end += 1
        if rng.random() < 0.5:
            rng.shuffle(parts)  # dead letters and retried rows come late
        found: list[tuple[int, int]] = []
        for part in parts:
            found = extended(found, part)
        assert found == joined(one for part in parts for one in part), parts


@pytest.mark.parametrize("order", ["ascending", "shuffled"])
def test_of_many_ranges_those_with_the_smallest_gaps_are_joined(order: str) -> None:
    """As of a stream in transactions, whose every micro-batch leaves a marker in the partition."""
    batches = [(first, first + 98) for first in range(0, 100_000, 100)]
    batches += [(first + 1_000_000, last + 1_000_000) for first, last in batches]
    if order == "shuffled":
        random.Random(7).shuffle(batches)
    outcome = Outcome()
    for batch in batches:
        outcome.add(Outcome(99, 99, 0, {A0: [batch]}))
        assert len(outcome.offsets[A0]) <= MOST_RANGES
    assert outcome.records == 99 * len(batches)
    ranges = outcome.offsets[A0]
    assert ranges == joined(ranges)
    assert (ranges[0][0], ranges[-1][1]) == (0, 1_099_998)
    assert any(before[1] == 99_998 and after[0] == 1_000_000 for before, after in pairwise(ranges))
    for first, last in batches:
        assert any(begin <= first and last <= end for begin, end in ranges)


def test_few_ranges_are_as_they_were() -> None:
    ranges = [(first, first) for first in range(0, 2 * MOST_RANGES, 2)]
    found: list[tuple[int, int]] = []
    for each in ranges:
        found = extended(found, [each])
    assert found == ranges
    assert len(extended(found, [(1_000, 1_000)])) == MOST_RANGES // 2


def test_the_offsets_of_a_call_are_named_by_topic_and_partition() -> None:
    outcome = Outcome()
    outcome.add_offsets("a", {0: [(0, 4)], B0: [(7, 7)]})
    outcome.add_offsets("a", {0: [(5, 6)]})
    assert outcome.offsets == {A0: [(0, 6)], B0: [(7, 7)]}


def test_outcomes_add_up_over_tasks_and_the_wire() -> None:
    first = Outcome(3, 30, 1, {A0: [(0, 2)]})
    second = Outcome(2, 20, 0, {A0: [(3, 3)], A1: [(9, 9)]})
    messages = [pickle.loads(pickle.dumps(TaskMessage(one, number))) for number, one in enumerate((first, second))]
    assert total([*messages, None]) == Outcome(5, 50, 1, {A0: [(0, 3)], A1: [(9, 9)]})
    assert first == Outcome(3, 30, 1, {A0: [(0, 2)]})


def test_it_is_told_in_a_line_and_as_json() -> None:
    outcome = Outcome(1_500, 30_000, 2, {A1: [(4, 9)], A0: [(0, 0), (2, 3)]})
    assert str(outcome) == "1,500 records, 30,000 bytes, 2 dead letters: a-0 0-0, 2-3; a-1 4-9"
    assert str(Outcome()) == "0 records, 0 bytes: nothing"
    assert (
        str(Outcome(6, 60, 0, {A0: [(0, 0), (2, 3), (5, 5), (7, 7), (9, 9)]}))
        == "6 records, 60 bytes: a-0 0-0, 2-3, 2 more, 9-9"
    )
    many = Outcome(1_000, 0, 0, {TopicPartition("a", number): [(0, 0)] for number in reversed(range(1_000))})
    assert str(many).startswith("1,000 records, 0 bytes: a-0 0-0; a-1 0-0; ")
    assert str(many).endswith("; a-19 0-0; 980 more partitions")
    assert json.loads(json.dumps(outcome.as_json()))["offsets"] == {"a-0": [[0, 0], [2, 3]], "a-1": [[4, 9]]}
