"""Marks of rows: by columns they equal those by records."""

from __future__ import annotations

from typing import Any

import pyarrow
import pytest

from aioproducer import Record
from aioproducer.audit import HEADER
from aioproducer.records import TopicPartition
from aioproducer.spark.marking import TaskAudit, write_name

HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


def audit(topic: str | None = "t") -> TaskAudit:
    return TaskAudit("spark-1-0", "attempt", topic, clock=lambda: 12.345)


def batch(rows: int, **columns: Any) -> pyarrow.RecordBatch:
    return pyarrow.record_batch({"value": pyarrow.array([b"v"] * rows), **columns})


def headers(marked: pyarrow.RecordBatch) -> list[list[tuple[str, bytes | None]]]:
    return [[(one["key"], one["value"]) for one in row] for row in marked.column("headers").to_pylist()]


def mark(number: int) -> tuple[str, bytes]:
    return HEADER, b"spark-1-0;attempt;%d;12345" % number


@pytest.mark.parametrize("sizes", [(3,), (2, 0, 3), (1, 5_000, 20_000)])
def test_numbers_go_on_over_batches(sizes: tuple[int, ...]) -> None:
    marks = audit()
    found = []
    for rows in sizes:
        marked, second = marks.mark_batch(batch(rows))
        assert second == 12
        found += headers(marked)
    assert found == [[mark(number)] for number in range(sum(sizes))]


def test_marks_stand_behind_other_headers() -> None:
    rows = [[("a", b"1")], None, [], [("b", None), (HEADER, b"old")]]
    column = pyarrow.array(
        [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows], HEADERS
    )
    given = batch(4, headers=column)
    for data, expected in ((given, rows), (given.slice(1, 2), rows[1:3]), (given.slice(3), rows[3:])):
        marked, _ = audit().mark_batch(data)
        assert headers(marked) == [[*(row or ()), mark(number)] for number, row in enumerate(expected)]
        assert marked.schema.names == ["value", "headers"]


def test_values_of_headers_may_be_text() -> None:
    texts = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.string())]))
    column = pyarrow.array([[{"key": "a", "value": "1"}]], texts)
    assert headers(audit().mark_batch(batch(1, headers=column))[0]) == [[("a", b"1"), mark(0)]]


def test_each_topic_has_its_numbers() -> None:
    marks = audit(None)
    for first, topics in ((0, ["a", "b", "a", None]), (2, ["a", "c", "a", "a"])):
        marked, _ = marks.mark_batch(batch(4, topic=pyarrow.array(topics)))
        numbers = [int((row[0][1] or b"").split(b";")[2]) for row in headers(marked)]
        assert numbers == ([0, 0, 1, 0] if not first else [2, 0, 3, 4])
    assert {line.get("topic"): line.get("next") for line in marks.statement()[:-1]} == {"a": 5, "b": 1, "c": 1, "": 1}


def test_a_topic_that_is_not_utf_8_is_one_of_its_own() -> None:
    """Its rows are refused one by one."""
    marks = audit(None)
    marked, _ = marks.mark_batch(batch(3, topic=pyarrow.array([b"t", b"\xff", b"t"]).view(pyarrow.string())))
    assert headers(marked) == [[mark(0)], [mark(0)], [mark(1)]]
    name = b"\xff".decode(errors="surrogateescape")
    marks.failed(Record(b"v", topic=name, headers=[mark(0)]))
    assert [(line["topic"], line["failed"]) for line in marks.statement()[:-1]] == [("t", []), (name, [[0, 0, 12]])]


@pytest.mark.parametrize("topic", ["t", None])
def test_rows_and_columns_are_marked_alike(topic: str | None) -> None:
    topics = [None if topic else name for name in ("x", "y", "x")]
    by_rows, by_columns = audit(topic), audit(topic)
    records, _ = by_rows.mark_records([Record(b"v", topic=name, headers={"a": b"1"}) for name in topics])
    column = pyarrow.array([[{"key": "a", "value": b"1"}]] * 3, HEADERS)
    more = {} if topic else {"topic": pyarrow.array(topics)}
    marked, _ = by_columns.mark_batch(batch(3, headers=column, **more))
    assert [list(record.headers or ()) for record in records] == headers(marked)
    assert by_rows.statement() == by_columns.statement()


def test_a_statement_of_several_seconds_and_topics() -> None:
    times = iter((1.0, 1.9, 3.0))
    marks = TaskAudit("p", "a", None, clock=lambda: next(times))
    for topics in (["x", "x"], ["x"], ["x", "y"]):
        marks.mark_batch(batch(len(topics), topic=pyarrow.array(topics)))
    marks.acked(1, {TopicPartition("x", 0): [(10, 11), (20, 20)]})
    marks.acked(3, {TopicPartition("x", 1): [(5, 5)], TopicPartition("y", 0): [(0, 0)]})
    x, y, end = marks.statement()
    assert (x["runs"], x["acked"]) == ([[0, 2, 1, None], [3, 3, 3, None]], [[0, 1, 3], [1, 3, 1]])
    assert (y["runs"], y["acked"]) == ([[0, 0, 3, None]], [[0, 3, 1]])
    assert end == {"producer": "p", "closed": True}


def test_without_rows_there_is_nothing_to_state() -> None:
    marks = audit()
    marks.mark_batch(batch(0))
    assert marks.statement() == []


def test_names_of_writes() -> None:
    assert write_name("query") == write_name("query")
    assert len({write_name("a", "b"), write_name("ab"), write_name("b", "a")}) == 3
