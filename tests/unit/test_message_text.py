"""Text for messages and logs: short, on one line, and safe to show."""

from __future__ import annotations

import pytest

from aioproducer.message_text import excerpt, listed


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("as it is", "as it is"),
        ("two\nlines \t and\r\nmore", "two lines and more"),
        ("\x1b[31mred\x00 \u202ekcab \ud800", "?[31mred? ?kcab ?"),
        ("x" * 300, "x" * 300),
        ("x" * 40_000, "x" * 300 + "..."),
        ("", ""),
    ],
)
def test_what_others_say_is_shown_in_one_short_line(said: str, shown: str) -> None:
    """Otherwise peers could inject lines into a log, or fill it."""
    assert excerpt(said) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(0, ""), (1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2 and 1 more"), (1_000, "0, 1, 2 and 997 more")]
)
def test_of_many_the_first_are_listed(count: int, shown: str) -> None:
    assert listed(range(count), 3) == shown
