"""Long calls share the loop's turns fairly."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.turns import Turns


class Budget:
    """The work that is allowed in one turn."""

    def __init__(self) -> None:
        self.left = 0
        self.turns = 0
        self.order: list[str] = []

    def begin(self) -> None:
        self.left = 1
        self.turns += 1

    async def work(self, turns: Turns, name: str, count: int) -> None:
        """Do that many pieces of work, each of which uses the whole budget of a turn."""
        ticket: int | None = None
        while count:
            if self.left:
                self.left = 0
                self.order.append(name)
                count -= 1
                ticket = None
            else:
                ticket = await turns.next(ticket)


def of(budget: Budget) -> Turns:
    return Turns(asyncio.get_running_loop(), budget.begin)


async def test_each_wait_of_a_lone_call_is_one_turn() -> None:
    """Each wait is one turn of the loop."""
    budget = Budget()
    await budget.work(of(budget), "a", 10)
    assert budget.order == ["a"] * 10
    assert budget.turns == 10


@pytest.mark.parametrize("calls", [2, 3, 40])
async def test_every_call_gets_its_turns(calls: int) -> None:
    """No call has two turns while another has none."""
    budget = Budget()
    turns = of(budget)
    names = [f"{number}" for number in range(calls)]
    await asyncio.gather(*(budget.work(turns, name, 5) for name in names))
    assert sorted(budget.order) == sorted(names * 5)
    for round_ in range(1, 5):
        counts = {name: budget.order[: round_ * calls].count(name) for name in names}
        assert all(abs(count - round_) <= 1 for count in counts.values()), counts


@pytest.mark.parametrize("calls", [1, 2, 3, 40])
async def test_all_calls_together_have_one_budget_a_turn(calls: int) -> None:
    """However many calls run, the rest of the program runs in each turn too; a finished call stops using the budget."""
    loop = asyncio.get_running_loop()
    loop_turns = 0
    begun_in: list[int] = []
    budget = Budget()

    def next_loop_turn() -> None:
        nonlocal loop_turns, ticking
        loop_turns += 1
        ticking = loop.call_soon(next_loop_turn)

    def begin() -> None:
        begun_in.append(loop_turns)
        budget.begin()

    ticking = loop.call_soon(next_loop_turn)
    turns = Turns(loop, begin)
    await asyncio.gather(*(budget.work(turns, f"{number}", 5) for number in range(calls)))
    ended_in = loop_turns
    while loop_turns < ended_in + 5:
        await asyncio.sleep(0)
    ticking.cancel()
    assert len(budget.order) == 5 * calls
    assert len(set(begun_in)) == len(begun_in) >= 5 * calls
    assert begun_in[-1] <= ended_in + 1


async def test_who_leaves_holds_nobody_up() -> None:
    """Cancelled calls are removed, even one that waits alone."""
    budget = Budget()
    turns = of(budget)
    tasks = [asyncio.create_task(budget.work(turns, f"{number}", 1_000_000)) for number in range(5)]
    last = asyncio.create_task(budget.work(turns, "last", 10))
    for task in tasks:
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await last
    assert budget.order.count("last") == 10
