"""Rows to records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from pyspark.sql import Row

from aioproducer.records import Record
from aioproducer.spark.columns import Columns
from aioproducer.spark.errors import SparkWriteError
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
    """The producer then refuses only that row."""
    row = Row(value="v", headers=[None, Row(key=None, value=b"1")])
    (record,) = records_of([row], Columns(frozenset(row.asDict())))
    assert record.headers == [(None, None), (None, b"1")]


@pytest.mark.parametrize("seconds", [0.0, 1.999, -0.001, 1_700_000_000.123456, 1_698_541_200.5])
def test_timestamps_are_rounded_down_to_milliseconds(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before 1970, and in the hour that occurs twice in a time zone."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        moment = datetime.fromtimestamp(seconds)
        assert timestamp_ms_of(moment) == int(seconds * 1000 // 1)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("zone", "ahead_h"), [("UTC", 0), ("Asia/Karachi", 5), ("America/New_York", -5)])
def test_timestamps_of_the_first_and_last_day_of_the_calendar(
    zone: str, ahead_h: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are used for "always" and "never", and Python can't convert them in every time zone."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert timestamp_ms_of(datetime.max) == 253_402_300_799_999 - ahead_h * 3_600_000
        first = datetime.min.replace(microsecond=1_999)
        assert timestamp_ms_of(first) == timestamp_ms_of(first + timedelta(days=3)) - 3 * 86_400_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_pyspark_can_not_turn_into_rows_is_told_by_its_place() -> None:
    """PySpark decodes ahead, so the place is approximate; rows that it converted before are written."""

    def rows() -> Iterator[Row]:
        yield from (Row(value="a"), Row(value="b"))
        b"\xff".decode()

    records = records_of(rows(), Columns(frozenset({"value"})))
    assert [next(records), next(records)] == [Record(b"a"), Record(b"b")]
    with pytest.raises(SparkWriteError, match=r"from row 2 on: .*writer=arrow.*UnicodeDecodeError: .*0xff") as told:
        next(records)
    assert isinstance(told.value.__cause__, UnicodeDecodeError)


def test_the_bytes_of_keys_and_values_are_counted() -> None:
    assert payload_bytes([Record(b"abc", b"k"), Record(None, None), Record(b"")]) == 4
