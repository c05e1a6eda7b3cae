"""The sums of what tasks have written."""

from __future__ import annotations

import json
import pickle
import random

from aioproducer.records import TopicPartition
from aioproducer.spark.outcome import Outcome, TaskMessage, extended, joined, total

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


def test_a_range_that_comes_after_all_others_looks_at_none_of_them() -> None:
    class Counting(list[tuple[int, int]]):
        looked_at = 0

        def __iter__(self):
            self.looked_at += len(self)
            return super().__iter__()

    ranges = Counting((first, first) for first in range(0, 10_000, 2))
    assert extended(ranges, [(10_000, 10_000), (10_001, 10_005)]) is ranges
    assert (ranges[-1], ranges.looked_at) == ((10_000, 10_005), 0)


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
    assert json.loads(json.dumps(outcome.as_json()))["offsets"] == {"a-0": [[0, 0], [2, 3]], "a-1": [[4, 9]]}
