"""Waiting for the loop in a test: for some of its turns, for a condition, or in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.loop import SimulatedLoop

PATIENCE_S = 30.0


async def turns(count: int = 5) -> None:
    """Let the loop have that many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until a condition in this process holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


def in_virtual_time(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in a loop whose time costs none; it must leave no error behind."""
    loop = SimulatedLoop(random.Random(1))
    try:
        loop.run_until_complete(test)
    finally:
        loop.close()
    assert not loop.errors
