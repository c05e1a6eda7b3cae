"""One time limit for several steps, in virtual time."""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from aioproducer.deadline import LONGEST_S, Deadline, in_seconds
from aioproducer.patient_timer import LATE_MS
from tests.simulation.loop import SimulatedLoop
from tests.unit.waiting import in_virtual_time


def about(seconds: float) -> Any:
    """Compare times, allowing for the time of the loop's own turns, and for whole milliseconds."""
    return pytest.approx(seconds, abs=0.002)


def test_what_is_left() -> None:
    """The time left for all steps together; never negative."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop, 5)
        assert deadline.left_s == about(5)
        assert await deadline.bound(asyncio.sleep(2))
        assert deadline.left_s == about(3)
        assert await deadline.bound(asyncio.sleep(2))
        assert not await deadline.bound(asyncio.sleep(2))
        assert deadline.left_s == about(0)
        await asyncio.sleep(1)
        assert deadline.left_s == 0

    in_virtual_time(run())


@pytest.mark.parametrize("timeout", [None, math.inf, 2 * LONGEST_S])
def test_no_limit(timeout: float | None) -> None:
    """Also for times longer than a loop can wait; that does not remove an existing limit."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop, timeout)
        assert deadline.left_s is None
        assert deadline.timeout is None
        assert await deadline.bound(asyncio.sleep(10_000))
        deadline.bring_forward(3)
        deadline.bring_forward(timeout)
        assert deadline.left_s == about(3)
        assert deadline.timeout == 3

    in_virtual_time(run())


def test_a_step_that_takes_too_long_is_cancelled() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        step = loop.create_task(asyncio.sleep(10))
        deadline = Deadline(loop, 4)
        began_s = loop.time()
        assert not await deadline.bound(step)
        assert loop.time() - began_s == about(4)
        assert step.cancelled()

    in_virtual_time(run())


def test_brought_forward_during_a_step() -> None:
    """The shortest timeout given by any call applies, from the time of that call; and it can be read."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop, 10)
        began_s = loop.time()
        loop.call_later(2, deadline.bring_forward, 3)
        loop.call_later(3, deadline.bring_forward, 9)
        loop.call_later(4, deadline.bring_forward, None)
        assert not await deadline.bound(asyncio.sleep(20))
        assert loop.time() - began_s == about(5)
        assert deadline.timeout == 3
        deadline.bring_forward(1)
        assert deadline.timeout == 3
        assert deadline.left_s == 0

    in_virtual_time(run())


def test_brought_forward_between_steps_and_when_one_is_over() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop, None)
        assert await deadline.bound(asyncio.sleep(1))
        deadline.bring_forward(2)
        began_s = loop.time()
        assert not await deadline.bound(asyncio.sleep(5))
        assert loop.time() - began_s == about(2)

        async def slow_to_end() -> None:
            try:
                await asyncio.sleep(5)
            except asyncio.CancelledError:
                deadline.bring_forward(0)  # another close(), while the step handles its cancellation
                raise

        late = Deadline(loop, 1)
        deadline = late
        assert not await late.bound(slow_to_end())

    in_virtual_time(run())


def test_a_step_that_ends_in_a_block_of_the_loop() -> None:
    """It gets a moment to learn of that, also if the deadline was brought forward."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        for timeout, brought_forward in (2, None), (None, 2), (100, 2):
            deadline = Deadline(loop, timeout)
            loop.call_later(1, deadline.bring_forward, brought_forward)
            loop.call_later(1.5, loop.spend, 5)
            assert await deadline.bound(asyncio.sleep(6.5 + LATE_MS / 2 / 1000))
            loop.call_later(1, loop.spend, 5)
            assert not await Deadline(loop, 2).bound(asyncio.sleep(6 + LATE_MS * 2 / 1000))

    in_virtual_time(run())


def test_steps_that_have_a_little_time_in_any_case() -> None:
    """Steps get a little time whatever is left; a timeout of 0 does not shorten it."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop, 0)
        assert not await deadline.bound(asyncio.sleep(0.01))
        deadline.leave(0.05)
        assert deadline.left_s == about(0.05)
        assert await deadline.bound(asyncio.sleep(0.03))
        longer = Deadline(loop, 5)
        longer.leave(0.05)
        assert longer.left_s == about(5)
        longer.bring_forward(0)
        assert longer.left_s == about(0.05)
        assert longer.timeout == 0

    in_virtual_time(run())


def test_what_a_step_raises() -> None:
    """It is raised to the caller, even its own TimeoutError, which does not mean that the deadline has passed."""

    async def run() -> None:
        loop = asyncio.get_running_loop()

        async def fails(error: BaseException) -> None:
            raise error

        deadline = Deadline(loop, 5)
        for error in TimeoutError("of its own"), ValueError("no"), asyncio.CancelledError():
            with pytest.raises(type(error)):
                await deadline.bound(fails(error))
        assert await deadline.bound(asyncio.sleep(1))

    in_virtual_time(run())


@pytest.mark.parametrize(("timeout", "error"), [("5", TypeError), (b"5", TypeError), (math.nan, ValueError)])
def test_what_is_no_number(timeout: Any, error: type[Exception]) -> None:
    """It is refused, and changes nothing."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(error, match="seconds or None are needed"):
            Deadline(loop, timeout)
        deadline = Deadline(loop, 5)
        with pytest.raises(error, match="seconds or None are needed"):
            deadline.bring_forward(timeout)
        assert (deadline.left_s, deadline.timeout) == (about(5), 5)

    in_virtual_time(run())


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (3, 3.0),
        (0.5, 0.5),
        (-1, -1.0),
        (Decimal("0.25"), 0.25),
        (Fraction(1, 2), 0.5),
        (math.inf, 1e9),
        (10**400, 1e9),
        (-(10**400), -1e9),
    ],
    ids=["whole", "float", "negative", "decimal", "fraction", "infinite", "huge", "huge and negative"],
)
def test_numbers_of_seconds(given: Any, seconds: float) -> None:
    """Any kind of number; longer times than a loop can wait are reduced to the longest possible one."""
    found = in_seconds(given, "interval")
    assert (found, type(found)) == (seconds, float)


def test_what_is_no_number_of_seconds() -> None:
    """The error names it, and what is needed instead."""
    with pytest.raises(TypeError, match=r"^interval is a str; seconds are needed$"):
        in_seconds("1", "interval")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^timeout is a NoneType; seconds or so are needed$"):
        in_seconds(None, "timeout", "seconds or so are needed")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^interval is not a number; seconds are needed$"):
        in_seconds(math.nan, "interval")
