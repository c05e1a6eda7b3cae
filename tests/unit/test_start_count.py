"""Many producers in one process: a warning, once."""

from __future__ import annotations

import pytest

from aioproducer.start_count import MANY, WITHIN_MS, StartCount


def test_many_within_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """As with one producer per request, which is closed with it."""
    count = StartCount()
    for number in range(MANY):
        count.started(number, open_now=1)
    assert not caplog.records
    count.started(WITHIN_MS, open_now=1)
    ((name, level, message),) = [(each.name, each.levelname, each.getMessage()) for each in caplog.records]
    assert (name, level) == ("aioproducer.producer", "WARNING")
    assert message.startswith(f"{MANY + 1} producers were started within 60 s, and 1 is open in this process: ")


def test_many_at_the_same_time(caplog: pytest.LogCaptureFixture) -> None:
    """As with producers that are never closed, or one per topic."""
    count = StartCount()
    for number in range(MANY):
        count.started(number * WITHIN_MS, open_now=number + 1)
    assert not caplog.records
    count.started(MANY * WITHIN_MS, open_now=MANY + 1)
    (message,) = caplog.messages
    assert message.startswith(f"2 producers were started within 60 s, and {MANY + 1} are open in this process: ")


def test_only_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    count = StartCount()
    for number in range(10 * MANY):
        count.started(number, open_now=number)
    assert len(caplog.records) == 1


def test_many_over_a_long_time(caplog: pytest.LogCaptureFixture) -> None:
    """As in a program that is reconfigured from time to time."""
    count = StartCount()
    for number in range(10 * MANY):
        count.started(number * WITHIN_MS // (MANY - 1), open_now=1)
    assert not caplog.records
