"""When a timer fires, in virtual time."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from aioproducer.patient_timer import LATE_MS, PatientTimeout, PatientTimer
from tests.simulation.loop import SimulatedLoop
from tests.unit.lifetimes import goes_by_itself
from tests.unit.waiting import in_virtual_time


def running_loop() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


def fired_ms(*held_s: float, after_ms: int = 500, cancel_ms: int | None = None) -> list[int]:
    """When a timer fires, if the loop is held up that long, once and again a moment later."""
    fired: list[int] = []

    async def main() -> None:
        loop = running_loop()
        began_ms = loop.now_ms
        timer = PatientTimer(loop, began_ms + after_ms, lambda: fired.append(loop.now_ms - began_ms))
        for seconds in held_s:
            loop.spend(seconds)
            await asyncio.sleep(0.001)
        if cancel_ms is not None:
            await asyncio.sleep((cancel_ms - (loop.now_ms - began_ms)) / 1000)
            timer.cancel()
        await asyncio.sleep(10)

    in_virtual_time(main())
    return fired


@pytest.mark.parametrize("held_s", [0, 0.4, 0.59])
def test_it_fires_in_time(held_s: float) -> None:
    """Also if the loop has been a little slow."""
    (at_ms,) = fired_ms(held_s)
    assert max(500, held_s * 1000) <= at_ms <= max(500, held_s * 1000) + 3


@pytest.mark.parametrize("held_s", [0.61, 3])
def test_after_a_block_it_fires_a_moment_later(held_s: float) -> None:
    (at_ms,) = fired_ms(held_s)
    assert held_s * 1000 + LATE_MS <= at_ms <= held_s * 1000 + LATE_MS + 3


def test_a_loop_that_is_blocked_all_the_time_puts_it_off_only_once() -> None:
    (at_ms,) = fired_ms(2, 2, 2)
    assert 4_000 <= at_ms <= 4_005


def test_a_time_that_has_passed_is_not_the_loop_s_fault() -> None:
    (at_ms,) = fired_ms(after_ms=-10_000)
    assert at_ms <= 3


@pytest.mark.parametrize("held_s", [0, 1])
def test_a_cancelled_one_never_fires(held_s: float) -> None:
    """Before its time, and in the moment that a block has given it."""
    assert fired_ms(held_s, cancel_ms=400 if not held_s else 1_050) == []


# --- PatientTimeout ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held_s", [0, 2])
def test_a_block_that_takes_too_long(held_s: float) -> None:
    async def main() -> None:
        loop = running_loop()
        began_ms = loop.now_ms
        scope = PatientTimeout(loop, began_ms + 500)

        async def block() -> None:
            async with scope:
                loop.spend(held_s)
                await asyncio.sleep(10)

        with pytest.raises(TimeoutError):
            await block()
        assert scope.expired()
        expected_ms = 2_000 + LATE_MS if held_s else 500
        assert expected_ms <= loop.now_ms - began_ms <= expected_ms + 3

    in_virtual_time(main())


@pytest.mark.parametrize("limit_ms", [500, None])
def test_a_block_that_was_held_up_and_ends_in_time(limit_ms: int | None) -> None:
    """What it waits for came while the loop was held up, and is read some turns later."""

    async def main() -> None:
        loop = running_loop()
        scope = PatientTimeout(loop, None if limit_ms is None else loop.now_ms + limit_ms)
        async with scope:
            loop.spend(2)
            await asyncio.sleep(LATE_MS / 2 / 1000)
        assert not scope.expired()
        await asyncio.sleep(10)

    in_virtual_time(main())


@pytest.mark.parametrize(("held_s", "expected_ms"), [(0, 300), (2, 2_000 + LATE_MS)])
def test_a_block_that_ends_at_another_time(held_s: float, expected_ms: int) -> None:
    async def main() -> None:
        loop = running_loop()
        began_ms = loop.now_ms
        scope = PatientTimeout(loop, began_ms + 500)

        async def block() -> None:
            async with scope:
                scope.reschedule(began_ms + 300)
                loop.spend(held_s)
                await asyncio.sleep(10)

        with pytest.raises(TimeoutError):
            await block()
        assert expected_ms <= loop.now_ms - began_ms <= expected_ms + 3
        await asyncio.sleep(10)

    in_virtual_time(main())


@pytest.mark.parametrize("turns_before", [0, 1, 2])
def test_the_time_of_a_block_that_is_being_ended(turns_before: int) -> None:
    """It takes a while to end; another time that passes meanwhile has no effect."""

    async def main() -> None:
        loop = running_loop()
        scope = PatientTimeout(loop, loop.now_ms + 500)

        async def block() -> None:
            async with scope:
                try:
                    await asyncio.sleep(10)
                finally:
                    await asyncio.sleep(1)

        def reschedule(turns: int) -> None:
            if turns:
                loop.call_soon(reschedule, turns - 1)
            else:
                scope.reschedule(loop.now_ms)

        loop.call_at((loop.now_ms + 501) / 1000, reschedule, turns_before)
        with pytest.raises(TimeoutError):
            await block()
        assert scope.expired()

    in_virtual_time(main())


@pytest.mark.parametrize("limit_ms", [500, None])
def test_nothing_is_left_for_the_garbage_collector(limit_ms: int | None) -> None:
    """Each flush and close has one."""

    async def main() -> None:
        loop = running_loop()
        scope = PatientTimeout(loop, None if limit_ms is None else loop.now_ms + limit_ms)
        async with scope:
            await asyncio.sleep(0.1)
        assert not scope.expired()
        await asyncio.sleep(10)  # a cancelled handle stays until its time
        reference = weakref.ref(scope)
        del scope
        assert await goes_by_itself(reference)

    in_virtual_time(main())
