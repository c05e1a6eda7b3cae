"""Arguments of a record, as Python code reads them; ``test_admission.py`` has those of the compiled path."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from aioproducer._arguments import bytes_of, check_partition, checked_topic, encodable_headers
from aioproducer.errors import RecordTooLargeError, SerializationError

LIMIT = 1000
"""The most bytes of a record."""


class Topic(enum.StrEnum):
    ORDERS = "orders"


class Number:
    """An integer like numpy's: not an int, but with ``__index__``."""

    def __index__(self) -> int:
        return 7


def test_a_topic_becomes_a_plain_str() -> None:
    assert type(checked_topic(Topic.ORDERS)) is str
    assert checked_topic(Topic.ORDERS) == checked_topic("orders") == "orders"


@pytest.mark.parametrize("topic", [None, b"orders", 7])
def test_a_topic_is_a_str(topic: Any) -> None:
    with pytest.raises(SerializationError, match=f"the topic is a {type(topic).__name__}; str is needed"):
        checked_topic(topic)


def test_bytes_are_read_in_the_order_of_their_indexes() -> None:
    assert bytes_of(memoryview(b"abcdef")[::2], "value", "orders", LIMIT) == b"ace"


def test_what_has_no_bytes_is_named() -> None:
    with pytest.raises(
        SerializationError, match="the key of a record for topic 'orders' is a float; bytes-like, str or"
    ):
        bytes_of(1.5, "key", "orders", LIMIT)


@pytest.mark.parametrize(
    "given", [[("a", b"1"), ("b", None)], {"a": b"1", "b": None}, iter([("a", b"1"), ("b", None)])]
)
def test_headers_become_pairs(given: Any) -> None:
    assert encodable_headers(given, "orders", LIMIT) == [("a", b"1"), ("b", None)]


def test_no_headers_are_none() -> None:
    assert encodable_headers(None, "orders", LIMIT) is None
    assert encodable_headers([], "orders", LIMIT) is None


def test_the_content_of_a_header_is_copied() -> None:
    buffer = bytearray(b"before")
    given: Any = [("h", buffer)]
    headers = encodable_headers(given, "orders", LIMIT)
    buffer[:] = b"after!"
    assert headers == [("h", b"before")]


def test_a_header_above_the_limit() -> None:
    """Names and values of all headers count; a name takes as many bytes as UTF-8 needs."""
    assert encodable_headers([("é" * 249, bytes(500))], "orders", LIMIT) is not None
    for headers in [("é" * 249, bytes(501))], [("a", bytes(500)), ("b", bytes(495))]:
        with pytest.raises(RecordTooLargeError, match="topic 'orders' takes up to 1,001 bytes, the limit is 1,000"):
            encodable_headers(headers, "orders", LIMIT)


def test_a_partition_is_any_integer() -> None:
    assert check_partition(Number(), "orders") == 7
    assert check_partition(0x7FFFFFFF, "orders") == 0x7FFFFFFF
    assert check_partition(None, "orders") is None


@pytest.mark.parametrize(
    ("partition", "told"),
    [
        (-1, "partition -1 of a record for topic 'orders' is outside 0 to 2147483647"),
        (1 << 31, "partition 2147483648 of"),
        (1 << 70, "is outside"),
        (True, "the partition of a record for topic 'orders' is a bool; an int or None is needed"),
        ("1", "is a str; an int or None is needed"),
    ],
)
def test_what_is_no_partition_is_refused(partition: Any, told: str) -> None:
    with pytest.raises(SerializationError, match=told):
        check_partition(partition, "orders")
