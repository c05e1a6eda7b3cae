"""Producers' statements as Spark rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioproducer.audit.statement import FAILED, TopicStatement, as_text, closing
from aioproducer.spark.audit.found import compared, found_in
from aioproducer.spark.audit.report import findings
from aioproducer.spark.audit.statements import Statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_767_225_600


def state(path: Path, producer: str, acked: int) -> None:
    """Two lines about a topic, each with a failed record, and the closing line."""
    statement = TopicStatement(producer, "t")
    lines = []
    for records in (acked - 1, 1):
        statement.ended(SECOND, 0, records)
        statement.ended(SECOND, FAILED)
        line = statement.take()
        assert line is not None
        lines.append(line)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text([*lines, closing(producer)]))


def test_files_in_directories_below_count(spark: SparkSession, tmp_path: Path) -> None:
    """Such as one directory per service, machine or day."""
    state(tmp_path / "orders" / "a.jsonl", "a", 10)
    state(tmp_path / "day=2026-01-01" / "host=x" / "b.jsonl", "b", 5)
    for _ in "once", "with a file beside them":
        said = Statements.read(spark, [str(tmp_path), str(tmp_path / "orders")])
        sums = said.cells(60).groupBy().sum("acked", "failed").first()
        assert sums is not None
        assert tuple(sums) == (15, 4)
        state(tmp_path / "a.jsonl", "a", 10)


@pytest.mark.parametrize("how", ["once", "twice", "file", "pattern", "link"])
def test_a_file_counts_once_however_it_is_given(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Together with its directory, by two names, or by a link: its statements must not count several times."""
    place = tmp_path / "statements"
    state(place / "a.jsonl", "a", 10)
    state(place / "b.jsonl", "b", 5)
    (tmp_path / "link").symlink_to(place)
    again = {
        "once": [],
        "twice": [f"{place}/"],
        "file": [f"{place}/b.jsonl", f"file://{place}/a.jsonl"],
        "pattern": [f"{place}/*.jsonl"],
        "link": [f"{tmp_path}/link"],
    }[how]
    said = Statements.read(spark, [str(place), *again])
    sums = said.cells(60).groupBy().sum("acked", "failed").first()
    assert sums is not None
    assert tuple(sums) == (15, 4)
    assert said.lines.where("closed").count() == 2
    gap = spark.createDataFrame([("a", "t", 0, 3)], "producer string, topic string, first long, last long")
    assert [(row["first"], row["last"]) for row in said.runs_of(gap).collect()] == [(0, 3)]


def test_a_lost_line_of_records_none_of_which_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """The lines around it tell when they were sent: in a table of times, they must have one."""
    statement, lines = TopicStatement("a", "t"), []
    for second in (SECOND, SECOND + 60, SECOND + 120):
        statement.ended(second, FAILED, 10)
        lines.append(statement.take())
    (tmp_path / "a.jsonl").write_text(as_text([line for line in (lines[0], lines[2]) if line is not None]))
    said = Statements.read(spark, [str(tmp_path)])
    empty = "topic string, partition int, offset long, producer string, attempt string, sequence long, time_ms long"
    none = found_in(compared(spark.createDataFrame([], f"{empty}, latency_ms long"), bucket_s=60))
    rows = findings(none, said, 60, heads=True).missing.collect()
    assert [(row["first"], row["last"], row["acknowledged"]) for row in rows] == [(10, 19, False)]
    assert rows[0]["bucket"].timestamp() == SECOND
