"""Callers in a line: one at a time, in order of arrival."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.net.line import Line
from tests.unit.waiting import turns


class Caller:
    """A caller that is served when it is told so."""

    def __init__(self, line: Line, ms: int = 10_000) -> None:
        loop = asyncio.get_running_loop()
        self.looks = asyncio.Event()
        self.served = loop.create_future()
        self.task = loop.create_task(self._take_turn(line, int(loop.time() * 1000) + ms))

    async def _take_turn(self, line: Line, deadline_ms: int) -> None:
        async with line.turn(deadline_ms):
            self.looks.set()
            await self.served


async def test_one_looks_at_a_time_in_order_of_arrival() -> None:
    line = Line()
    callers = [Caller(line) for _ in range(3)]
    for place, caller in enumerate(callers):
        await caller.looks.wait()
        await turns()
        assert len(line) == 3 - place
        assert [each.looks.is_set() for each in callers] == [True] * (place + 1) + [False] * (2 - place)
        caller.served.set_result(None)
        await caller.task
    await turns()
    assert not line


async def test_a_newcomer_is_not_before_one_that_was_told_to_go_on() -> None:
    line = Line()
    first, second = Caller(line), Caller(line)
    await first.looks.wait()
    first.served.set_result(None)
    await first.task
    third = Caller(line)
    await second.looks.wait()
    await turns()
    assert not third.looks.is_set()
    for caller in (second, third):
        caller.served.set_result(None)
        await caller.task


async def test_a_deadline_in_the_line() -> None:
    """It may look once more, as it would not be served otherwise; the others keep their places."""
    line = Line()
    first, hurried, last = Caller(line), Caller(line, ms=1), Caller(line)
    await hurried.looks.wait()
    assert len(line) == 3
    hurried.served.set_result(None)
    await hurried.task
    await turns()
    assert not last.looks.is_set()
    assert len(line) == 2
    first.served.set_result(None)
    await last.looks.wait()
    last.served.set_result(None)
    await asyncio.gather(first.task, last.task)
    assert not line


@pytest.mark.parametrize("place", [0, 1])
async def test_one_that_is_cancelled_leaves_the_line(place: int) -> None:
    line = Line()
    callers = [Caller(line) for _ in range(3)]
    await callers[0].looks.wait()
    callers.pop(place).task.cancel()
    for caller in callers:
        await caller.looks.wait()
        caller.served.set_result(None)
    await asyncio.gather(*(caller.task for caller in callers))
    assert not line
