"""What is told of failures that nobody looked at: to on_error all, to the log some."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar

import pytest

from aioproducer._delivery import DeliveryLedger
from aioproducer.errors import KafkaError
from aioproducer.failure_report import FailureReport

pytestmark = pytest.mark.usefixtures("clean_loop")


def ledger_of(loop: asyncio.AbstractEventLoop) -> DeliveryLedger:
    ledger = DeliveryLedger()
    ledger.loop = loop
    return ledger


async def test_each_error_is_told_once_with_its_records(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the first, and those of the next seconds together with a later one."""
    ledger = ledger_of(asyncio.get_running_loop())
    told: list[tuple[KafkaError, int]] = []
    report = FailureReport(ledger, lambda error, records: told.append((error, records)))
    one, two = KafkaError("one"), KafkaError("two")
    for error in (one, two, one):
        ledger.book(0, error, 2)
    assert not told
    await asyncio.sleep(0)
    assert told == [(one, 4), (two, 2)]
    report.tell()
    assert len(told) == 2
    (logged,) = caplog.records
    assert logged.getMessage() == "4 records failed and nobody looked at their Deliveries, the last with: one"


async def test_told_in_the_context_of_the_start() -> None:
    """Neither in that of who has dropped the Delivery, nor in that of who flushes: they may be other requests."""
    request: ContextVar[str] = ContextVar("request")
    request.set("start")
    ledger = ledger_of(asyncio.get_running_loop())
    seen: list[str] = []
    report = FailureReport(ledger, lambda error, records: seen.append(request.get()))

    async def other() -> None:
        request.set("other")
        ledger.book(0, KafkaError("one"), 1)
        report.tell()
        ledger.book(0, KafkaError("two"), 1)

    await asyncio.create_task(other())
    await asyncio.sleep(0)
    assert seen == ["start", "start"]


async def test_what_on_error_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def on_error(error: KafkaError, records: int) -> None:
        raise ValueError("mine")

    ledger = ledger_of(asyncio.get_running_loop())
    FailureReport(ledger, on_error)
    ledger.book(0, KafkaError("one"), 1)
    await asyncio.sleep(0)
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR][-1] == "on_error raised"


def test_nobody_is_told_after_the_loop() -> None:
    loop = asyncio.new_event_loop()
    ledger = ledger_of(loop)
    told: list[KafkaError] = []
    FailureReport(ledger, lambda error, _: told.append(error))
    loop.close()
    ledger.book(0, KafkaError("late"), 1)
    assert not told
