"""Which errors belong to a single row, and what a dead letter looks like."""

from __future__ import annotations

import pytest

from aioproducer.errors import (
    AuthenticationError,
    BufferExhaustedError,
    DeliveryTimeoutError,
    InvalidTopicError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    broker_error,
)
from aioproducer.records import Record
from aioproducer.spark.bad_rows import RowPlace, dead_letter, is_bad_row, shortened, was_refused_by_broker

PLACE = RowPlace(3, 17)


@pytest.mark.parametrize(
    ("error", "bad"),
    [
        (RecordTooLargeError("x"), True),
        (SerializationError("x"), True),
        (InvalidTopicError("x"), True),
        (broker_error(87, "x"), True),
        (broker_error(10, "x"), True),
        (broker_error(29, "x"), False),
        (broker_error(-1, "x"), False),
        (AuthenticationError("x"), False),
        (BufferExhaustedError("x"), False),
        (DeliveryTimeoutError("x"), False),
        (RecordTooLargeError("x", maybe_written=True), False),
    ],
    ids=repr,
)
def test_only_what_the_row_itself_is_to_blame_for(error: KafkaError, bad: bool) -> None:
    assert is_bad_row(error) is bad


def test_a_refused_batch_may_hold_good_rows() -> None:
    assert was_refused_by_broker(broker_error(87, "x"))
    assert not was_refused_by_broker(RecordTooLargeError("x"))


def test_a_dead_letter_has_the_record_and_the_reason() -> None:
    record = Record(b"v", b"k", topic="t", partition=9, headers={"h": b"1"}, timestamp_ms=5)
    letter = dead_letter(record, SerializationError("why ä"), PLACE)
    assert (letter.value, letter.key, letter.timestamp_ms, letter.partition) == (b"v", b"k", None, None)
    assert list(letter.headers or ()) == [
        ("h", b"1"),
        ("aioproducer.error", b"SerializationError"),
        ("aioproducer.error.message", "why ä".encode()),
        ("aioproducer.row", b"3:17"),
        ("aioproducer.topic", b"t"),
        ("aioproducer.partition", b"9"),
        ("aioproducer.timestamp", b"5"),
    ]


def test_a_dead_letter_has_no_marks() -> None:
    """Not even that of a relayed record, which belongs to the topic from which the record was read."""
    record = Record(b"v", headers=[("aioproducer.audit", b"p;a;0;7500"), ("h", b"1")])
    assert "aioproducer.audit" not in dict(dead_letter(record, SerializationError("x"), PLACE).headers or ())


def test_a_dead_letter_tells_a_topic_that_is_not_utf_8_as_it_was() -> None:
    letter = dead_letter(Record(b"v", topic=b"t\xff".decode(errors="surrogateescape")), SerializationError("x"), PLACE)
    assert dict(letter.headers or ())["aioproducer.topic"] == b"t\xff"


def test_headers_without_a_name_get_one() -> None:
    """They are dropped first if a letter has to be shortened."""
    record = Record(b"v", headers=[("h", b"1"), (None, b"2" * 300_000)])  # type: ignore[list-item]
    letter = dead_letter(record, SerializationError("x"), PLACE)
    assert list(letter.headers or ())[:2] == [("h", b"1"), ("aioproducer.header", b"2" * 300_000)]
    assert "aioproducer.header" not in dict(shortened(letter).headers or ())


def test_a_dead_letter_that_is_too_large_is_cut() -> None:
    record = Record(b"v" * 200_000, b"k" * 9_000, headers=[("h", b"1" * 300_000)])
    short = shortened(dead_letter(record, RecordTooLargeError("too large"), PLACE))
    assert (len(short.value), len(short.key)) == (65_536, 4_096)
    headers = dict(short.headers or ())
    assert headers["aioproducer.bytes"] == b"9000:200000"
    assert "h" not in headers
    assert shortened(dead_letter(Record(None), RecordTooLargeError("x"), PLACE)).value is None
