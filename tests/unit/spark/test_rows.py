"""Rows to records."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from pyspark.sql import Row

from aioproducer.records import Record
from aioproducer.spark.columns import Columns
from aioproducer.spark.rows import payload_bytes, records_of, timestamp_ms_of


def test_every_column_has_its_place() -> None:
    row = Row(
        key="ä",
        value=bytearray(b"v"),
        topic="t",
        partition=2,
        headers=[Row(key="h", value=b"1"), Row(key="n", value=None), Row(key="s", value="text")],
        timestamp=datetime.fromtimestamp(12.345),
    )
    (record,) = records_of([row], Columns(frozenset(row.asDict())))
    headers = [("h", b"1"), ("n", None), ("s", b"text")]
    assert record == Record(b"v", "ä".encode(), topic="t", partition=2, headers=headers, timestamp_ms=12_345)
    assert type(record.value) is bytes


def test_absent_columns_and_nulls() -> None:
    absent = Columns(frozenset({"value"}))
    assert list(records_of([Row(value=None, topic="unused")], absent)) == [Record(None)]
    row = Row(key=None, value="", topic=None, partition=None, headers=None, timestamp=None)
    assert list(records_of([row], Columns(frozenset(row.asDict())))) == [Record(b"")]


def test_a_header_that_is_null_has_no_name() -> None:
    """The producer refuses it then, and its row alone."""
    row = Row(value="v", headers=[None, Row(key=None, value=b"1")])
    (record,) = records_of([row], Columns(frozenset(row.asDict())))
    assert record.headers == [(None, None), (None, b"1")]


@pytest.mark.parametrize("seconds", [0.0, 1.999, -0.001, 1_700_000_000.123456, 1_698_541_200.5])
def test_timestamps_are_rounded_down_to_milliseconds(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before 1970, and in the hour that a time zone has twice."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        moment = datetime.fromtimestamp(seconds)
        assert timestamp_ms_of(moment) == int(seconds * 1000 // 1)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_bytes_of_keys_and_values_are_counted() -> None:
    assert payload_bytes([Record(b"abc", b"k"), Record(None, None), Record(b"")]) == 4
