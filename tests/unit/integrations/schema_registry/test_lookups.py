"""Lookups: one per key at a time; cancelling one waiting task does not affect others."""

from __future__ import annotations

import asyncio
import gc

import pytest

from aioproducer.integrations.schema_registry.lookups import Lookups, LookupsClosedError
from tests.simulation.loop import SimulatedLoop
from tests.unit.waiting import in_virtual_time, turns

PATIENCE_S = 60.0


class Lookup:
    """A lookup that ends when the test says so."""

    def __init__(self) -> None:
        self.began = 0
        self.go_on = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> str:
        self.began += 1
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return "found"


async def test_many_share_one() -> None:
    """A thousand tasks that need the same key share one lookup."""
    lookups, lookup = Lookups[str](), Lookup()
    waiting = [asyncio.create_task(lookups.wait("a", lookup, PATIENCE_S)) for _ in range(1_000)]
    await turns()
    lookup.go_on.set()
    assert await asyncio.gather(*waiting) == ["found"] * 1_000
    assert lookup.began == 1


async def test_another_key_is_another_lookup() -> None:
    lookups, lookup = Lookups[str](), Lookup()
    lookup.go_on.set()
    await asyncio.gather(*(lookups.wait(key, lookup, PATIENCE_S) for key in "ab"))
    assert lookup.began == 2


@pytest.mark.parametrize("cancelled", [0, 1, 2], ids=["first", "second", "all"])
async def test_cancellation_is_for_one(cancelled: int) -> None:
    """The lookup goes on when the task that began it is cancelled, even if no task is left waiting."""
    lookups, lookup = Lookups[str](), Lookup()
    waiting = [asyncio.create_task(lookups.wait("a", lookup, PATIENCE_S)) for _ in range(2)]
    await turns()
    gone = waiting if cancelled == 2 else [waiting[cancelled]]
    for task in gone:
        task.cancel()
    await turns()
    assert [task.cancelled() for task in gone] == [True] * len(gone)
    lookup.go_on.set()
    for task in waiting:
        if task not in gone:
            assert await task == "found"
    assert await lookups.wait("a", lookup, PATIENCE_S) == "found"
    assert lookup.began == (2 if cancelled < 2 else 1)


async def test_a_failure_reaches_all_and_is_held_for_a_while() -> None:
    now = 0.0
    lookups, lookup = Lookups[str](failure_hold_s=1.0, clock=lambda: now), Lookup()
    lookup.error = ValueError("no")
    lookup.go_on.set()
    failed = await asyncio.gather(*(lookups.wait("a", lookup, PATIENCE_S) for _ in range(3)), return_exceptions=True)
    assert failed == [lookup.error] * 3
    with pytest.raises(ValueError, match="no"):
        await lookups.wait("a", lookup, PATIENCE_S)
    assert lookup.began == 1
    now, lookup.error = 1.0, None
    assert await lookups.wait("a", lookup, PATIENCE_S) == "found"
    assert lookups.failure("a") is None


async def test_a_failure_is_not_kept_for_longer() -> None:
    """Its error holds a traceback and its key a serializer, and the registry may live as long as the program."""
    now = 0.0
    lookups, lookup = Lookups[str](failure_hold_s=1.0, clock=lambda: now), Lookup()
    lookup.error = ValueError("no")
    lookup.go_on.set()
    for number in range(5):
        now = float(number)
        with pytest.raises(ValueError, match="no"):
            await lookups.wait(number, lookup, PATIENCE_S)
    assert list(lookups._failures) == [4]


async def test_a_failure_that_nobody_waits_for_is_not_reported() -> None:
    """All waiting tasks were cancelled: the failure is kept for the next one, and asyncio logs nothing."""
    lookups, lookup = Lookups[str](clock=lambda: 0.0), Lookup()
    lookup.error = ValueError("no")
    lookups.begin("a", lookup)
    lookup.go_on.set()
    await turns()
    gc.collect()
    assert lookups.failure("a") is lookup.error


async def test_time_runs_out_for_one_who_waits() -> None:
    """The lookup goes on."""
    lookups, lookup = Lookups[str](), Lookup()
    assert await lookups.wait("a", lookup, 0.001) is None
    lookup.go_on.set()
    assert await lookups.wait("a", lookup, PATIENCE_S) == "found"
    assert lookup.began == 1


async def test_cancel_tells_who_waits() -> None:
    """Waiting tasks get an error; they are not cancelled themselves."""
    lookups, lookup = Lookups[str](), Lookup()
    waiting = asyncio.create_task(lookups.wait("a", lookup, PATIENCE_S))
    await turns()
    await lookups.cancel()
    with pytest.raises(LookupsClosedError):
        await waiting
    assert lookups.failure("a") is None


def test_a_lookup_that_is_out_of_time_in_a_block_of_the_loop() -> None:
    """Its error says why; that its caller's time has passed too, a moment later, does not."""

    async def look_up() -> str:
        try:
            async with asyncio.timeout(2):
                await asyncio.sleep(10)
        except TimeoutError:
            await turns()  # a client closes what it has opened
            raise ValueError("refused") from None
        return "found"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.call_later(1, loop.spend, 5)
        with pytest.raises(ValueError, match="refused"):
            await Lookups[str](clock=loop.time).wait("a", look_up, 2.05)

    in_virtual_time(main())


def test_a_loop_that_ended_in_the_midst_holds_nobody_up() -> None:
    lookups = Lookups[str]()

    async def begin() -> None:
        lookups.begin("a", Lookup())
        await turns()

    async def wait() -> str | None:
        lookup = Lookup()
        lookup.go_on.set()
        return await lookups.wait("a", lookup, PATIENCE_S)

    asyncio.run(begin())
    assert asyncio.run(wait()) == "found"
