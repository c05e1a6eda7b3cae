"""Async unit tests run twice, on asyncio's loop in debug mode and on uvloop, and must leave their loop clean."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping

import pytest
import uvloop

from tests.clean_loop import clean_loop


def _debug_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    return loop


@pytest.fixture(autouse=True)
def _leaves_its_loop_clean(request: pytest.FixtureRequest) -> None:
    """Every async test is checked; a file that had to ask for it would sooner or later forget to."""
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("clean_loop")


@pytest.hookimpl
def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"debug": _debug_loop, "uvloop": uvloop.new_event_loop}


__all__ = ["clean_loop"]
