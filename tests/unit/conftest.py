"""Async unit tests run twice, on asyncio's loop in debug mode and on uvloop, and must leave their loop clean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
import uvloop


def _debug_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    return loop


@pytest.hookimpl
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"debug": _debug_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def clean_loop() -> AsyncIterator[None]:
    """Fail a test that leaves a task or an unhandled exception behind."""
    loop = asyncio.get_running_loop()
    before = asyncio.all_tasks()
    reports: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reports.append(context))
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left
    assert not reports
