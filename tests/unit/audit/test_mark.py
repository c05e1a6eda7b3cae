"""The header of an audited record."""

from __future__ import annotations

import pytest

from aioproducer.audit import HEADER, Mark
from aioproducer.audit.mark import read_mark, without_mark


def test_a_mark_is_read_as_it_was_written() -> None:
    mark = Mark("orders-5f0c27a1", "3", 1_207, 1_767_225_600_123)
    assert mark.encode() == b"orders-5f0c27a1;3;1207;1767225600123"
    assert read_mark(mark.encode()) == mark


@pytest.mark.parametrize(
    "mark",
    [Mark("-a", "", 0, 0), Mark("a" * 100, "0" * 99, 999_999_999_999_999, 9_999_999_999_999)],
    ids=["min", "max"],
)
def test_the_least_and_the_most(mark: Mark) -> None:
    assert read_mark(mark.encode()) == mark


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"a;b;c;d", b"a;0;1", b"a;0;1;2;3", b"a;0;-1;2", b"a;0;;2", b"a;\x1b[2J;1;2", b"\x1b[2J;0;1;2",
        b"a;0;1000000000000000;2", b"a;0;1;10000000000000", b"a" * 101 + b";0;1;2", b".a;0;1;2",
    ],
)  # fmt: skip
def test_what_is_none(value: bytes | None) -> None:
    """Headers of this name that were not written by an audit."""
    assert read_mark(value) is None


def test_other_headers_stay() -> None:
    assert without_mark([("a", b"1"), (HEADER, b"x"), ("a", None)]) == [("a", b"1"), ("a", None)]
