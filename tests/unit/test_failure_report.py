"""Reports of unobserved failures: all to on_error, some to the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import cast

import pytest

from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer.errors import KafkaError
from aioproducer.failure_report import FailureReport
from tests.unit.core import LOGGER, messages_of


def ledger_of(loop: asyncio.AbstractEventLoop) -> DeliveryLedger:
    ledger = DeliveryLedger()
    ledger.loop = loop
    return ledger


async def test_each_error_is_told_once_with_its_records(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the first at once, and those of the next seconds together with a later one."""
    ledger = ledger_of(asyncio.get_running_loop())
    told: list[tuple[KafkaError, int]] = []
    report = FailureReport(ledger, lambda error, records: told.append((error, records)), LOGGER)
    one, two = KafkaError("one"), KafkaError("two")
    for error in (one, two, one):
        ledger.book(0, error, 2)
    assert not told
    await asyncio.sleep(0)
    assert told == [(one, 4), (two, 2)]
    report.tell()
    assert len(told) == 2
    (logged,) = messages_of(caplog)
    assert logged == "4 records failed and nobody looked at their Deliveries; the last error: one"


async def test_told_in_the_context_of_the_start() -> None:
    """Not in the context that dropped the Delivery, nor in that of a flush, which may be of other requests."""
    request: ContextVar[str] = ContextVar("request")
    request.set("start")
    ledger = ledger_of(asyncio.get_running_loop())
    seen: list[str] = []
    report = FailureReport(ledger, lambda error, records: seen.append(request.get()), LOGGER)

    async def other() -> None:
        request.set("other")
        ledger.book(0, KafkaError("one"), 1)
        report.tell()
        ledger.book(0, KafkaError("two"), 1)

    await asyncio.create_task(other())
    await asyncio.sleep(0)
    assert seen == ["start", "start"]


class FakeLoop:
    """A loop whose time the test sets, and which runs callbacks immediately."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[asyncio.TimerHandle] = []

    def time(self) -> float:
        return self.now_s

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        callback()

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, (), cast(asyncio.AbstractEventLoop, self))
        self.timers.append(timer)
        return timer

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        self.timers.remove(timer)

    def at_time(self, now_s: float) -> None:
        """Let the time come, with the timers until then."""
        for timer in [each for each in self.timers if each.when() <= now_s]:
            self.timers.remove(timer)
            self.now_s = timer.when()
            timer._run()
        self.now_s = now_s


def test_the_log_has_one_line_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """Each line counts all records since the last one; the same without an on_error."""
    loop = FakeLoop()
    ledger = ledger_of(cast(asyncio.AbstractEventLoop, loop))
    report = FailureReport(ledger, None, LOGGER)
    for now_s, records in (0, 3), (5, 2), (9.99, 2), (10, 4), (19.99, 1), (20, 1), (20.1, 1):
        loop.at_time(now_s)
        ledger.book(0, KafkaError(f"at {now_s}"), records)
        report.tell()
    assert messages_of(caplog) == [
        "3 records failed and nobody looked at their Deliveries; the last error: at 0",
        "8 records failed and nobody looked at their Deliveries; the last error: at 10",
        "2 records failed and nobody looked at their Deliveries; the last error: at 20",
    ]


def test_the_last_failures_of_an_outage_are_logged_without_a_later_one(caplog: pytest.LogCaptureFixture) -> None:
    """The first batch of an outage has few records, and the others expire within seconds."""
    loop = FakeLoop()
    ledger = ledger_of(cast(asyncio.AbstractEventLoop, loop))
    FailureReport(ledger, None, LOGGER)
    for now_s, records in (0, 3), (1, 50_000), (2, 40_000), (10.5, 7):
        loop.at_time(now_s)
        ledger.book(0, KafkaError(f"at {now_s}"), records)
    loop.at_time(60)
    assert messages_of(caplog) == [
        "3 records failed and nobody looked at their Deliveries; the last error: at 0",
        "90000 records failed and nobody looked at their Deliveries; the last error: at 2",
        "7 records failed and nobody looked at their Deliveries; the last error: at 10.5",
    ]
    assert not loop.timers


def test_what_the_limit_has_held_back_is_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Then no timer is left; later failures of Deliveries that the program has kept wait for a later one."""
    loop = FakeLoop()
    ledger = ledger_of(cast(asyncio.AbstractEventLoop, loop))
    report = FailureReport(ledger, None, LOGGER)
    report.end()
    for now_s, records in (0, 3), (1, 2):
        loop.at_time(now_s)
        ledger.book(0, KafkaError(f"at {now_s}"), records)
    report.end()
    ledger.book(0, KafkaError("late"), 1)
    assert messages_of(caplog) == [
        "3 records failed and nobody looked at their Deliveries; the last error: at 0",
        "2 records failed and nobody looked at their Deliveries; the last error: at 1",
    ]
    assert not loop.timers


def test_an_on_error_that_fails_each_time_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """In an outage, each of thousands of batches may fail with its own error."""

    def on_error(error: KafkaError, records: int) -> None:
        raise ValueError

    loop = FakeLoop()
    ledger = ledger_of(cast(asyncio.AbstractEventLoop, loop))
    report = FailureReport(ledger, on_error, LOGGER)
    for now_s in 0, 5, 9.99, 10:
        loop.now_s = now_s
        ledger.book(0, KafkaError(f"at {now_s}"), 1)
        report.tell()
    assert messages_of(caplog).count("on_error raised") == 2


@pytest.mark.parametrize("raised", [ValueError, asyncio.CancelledError])
async def test_what_on_error_raises_is_logged(raised: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    """And it is told of the other failures all the same."""
    told: list[KafkaError] = []

    def on_error(error: KafkaError, records: int) -> None:
        told.append(error)
        raise raised

    ledger = ledger_of(asyncio.get_running_loop())
    FailureReport(ledger, on_error, LOGGER)
    one, two = KafkaError("one"), KafkaError("two")
    for error in one, two:
        ledger.book(0, error, 1)
    await asyncio.sleep(0)
    assert told == [one, two]
    assert messages_of(caplog, level=logging.ERROR)[-1] == "on_error raised"


def test_on_error_may_end_the_program() -> None:
    def on_error(error: KafkaError, records: int) -> None:
        raise SystemExit

    ledger = ledger_of(cast(asyncio.AbstractEventLoop, FakeLoop()))
    FailureReport(ledger, on_error, LOGGER)
    with pytest.raises(SystemExit):
        ledger.book(0, KafkaError("one"), 1)


def test_nobody_is_told_after_the_loop() -> None:
    loop = asyncio.new_event_loop()
    ledger = ledger_of(loop)
    told: list[KafkaError] = []
    FailureReport(ledger, lambda error, _: told.append(error), LOGGER)
    loop.close()
    ledger.book(0, KafkaError("late"), 1)
    assert not told
