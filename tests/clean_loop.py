"""The check that an async test neither hangs nor leaves anything behind in its loop; `conftest.py` files import it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

HANGING_S = 120.0
"""When a test that waits without a limit is ended by force; slow tests get ten times as long."""


@pytest.fixture
async def clean_loop(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Fail a test that hangs, or that leaves a task or an unhandled exception behind."""
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()
    patience_s = HANGING_S * (10 if request.node.get_closest_marker("slow") else 1)

    def give_up() -> None:
        nonlocal watchdog
        watchdog = loop.call_later(patience_s, give_up)  # a fixture may hang after its test has
        if os.environ["PYTEST_CURRENT_TEST"].endswith("(teardown)"):
            # A CancelledError from a fixture would keep pytest from tearing down the others, and confuse later tests;
            # that the loop was stopped before the fixture has ended is an Exception.
            loop.stop()
        for task in asyncio.all_tasks() - before:
            task.print_stack()
            loop.call_soon(task.cancel, f"the test hangs since {patience_s} s")

    watchdog = loop.call_later(patience_s, give_up)
    reports: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reports.append(context))
    yield
    watchdog.cancel()
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not reports
