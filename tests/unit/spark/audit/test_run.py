"""An audit's arguments are checked before Spark is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aioproducer import InvalidTopicError
from aioproducer.spark.audit import audit_stream, audit_topics, stream_findings

CALLS: list[Callable[..., object]] = [
    lambda spark, topics, statements: audit_topics(spark, {}, topics, statements=statements),
    lambda spark, topics, statements: stream_findings(spark, "state", topics, statements=statements),
]


@pytest.mark.parametrize("audit", CALLS)
@pytest.mark.parametrize(
    ("topics", "statements", "message"),
    [
        ("orders", ["/audit"], r"topics is the str 'orders'; a list is needed, such as \['orders'\]"),
        (["orders"], "/audit", r"statements is the str '/audit'; a list is needed, such as \['/audit'\]"),
    ],
)
def test_one_str_is_no_list(audit: Callable[..., object], topics: Any, statements: Any, message: str) -> None:
    """Its letters would count as topics or paths: ``/audit`` would read everything below ``/``."""
    with pytest.raises(TypeError, match=message):
        audit(None, topics, statements)


def test_one_str_is_no_list_of_a_stream() -> None:
    topics: Any = "orders"
    spark: Any = None
    with pytest.raises(TypeError, match="topics is the str 'orders'"):
        audit_stream(spark, {}, topics, "state")


@pytest.mark.parametrize("topic", ["orders,payments", " orders", ""])
def test_what_is_no_topic_is_refused(topic: str) -> None:
    """Spark's source would read other topics, and without their statements no lost end would be seen."""
    spark: Any = None
    for audit in (
        lambda: audit_topics(spark, {}, ["t", topic]),
        lambda: audit_stream(spark, {}, ["t", topic], "state"),
        lambda: stream_findings(spark, "state", ["t", topic]),
    ):
        with pytest.raises(InvalidTopicError, match=f"{topic!r} is not a valid topic name"):
            audit()
