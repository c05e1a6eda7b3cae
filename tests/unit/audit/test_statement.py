"""A producer's statements about its records, as lines."""

from __future__ import annotations

import json

from aioproducer.audit.statement import FAILED, TopicStatement, as_text, closing, two_digits


def test_the_line_of_the_documentation() -> None:
    """The example in the module's docstring."""
    statement = TopicStatement("orders-5f0c27a1", "orders")
    for partition, second in ((3, 0), (3, 0), (FAILED, 0), (0, 1), (0, 1)):
        statement.ended(1_767_225_600 + second, partition)
        if partition != FAILED:
            statement.latency(partition, 1_767_225_600 + second, 5 if partition else 17)
    assert statement.runs == 3
    assert statement.take() == {
        "producer": "orders-5f0c27a1",
        "topic": "orders",
        "first": 0,
        "next": 5,
        "runs": [[0, 1, 1_767_225_600, 3], [2, 2, 1_767_225_600, FAILED], [3, 4, 1_767_225_601, 0]],
        "acked": [[3, 1_767_225_600, 2], [0, 1_767_225_601, 2]],
        "failed": [[2, 2, 1_767_225_600]],
        "latency_ms": [[3, 1_767_225_600, 5, 2], [0, 1_767_225_601, 17, 2]],
    }


def test_lines_follow_each_other() -> None:
    statement = TopicStatement("p", "t")
    assert statement.take() is None
    statement.ended(7, None, 100)
    statement.acked(2, 7, 60)
    statement.acked(3, 7, 40)
    first = statement.take()
    assert first is not None
    assert (first["first"], first["next"], first["runs"]) == (0, 100, [[0, 99, 7, None]])
    assert first["acked"] == [[2, 7, 60], [3, 7, 40]]
    assert statement.take() is None
    statement.ended(8, 0)
    second = statement.take()
    assert second is not None
    assert (second["first"], second["next"], second["acked"]) == (100, 101, [[0, 8, 1]])


def test_two_digits() -> None:
    values = (-5, 0, 7, 99, 100, 109, 110, 999, 1_099, 123_456)
    assert [two_digits(ms) for ms in values] == [0, 0, 7, 99, 100, 100, 110, 990, 1_000, 120_000]


def test_text_is_a_line_each() -> None:
    lines = [closing("a"), closing("b")]
    assert [json.loads(line) for line in as_text(lines).splitlines()] == lines
