"""First come, first served: even if waiters time out, are cancelled, or want more than those behind them."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer.errors import ProducerClosedError
from aioproducer.memory_queue import SERVED_A_TURN, MemoryQueue
from tests.unit.waiting import turns

NEVER_MS = 10**12


class Memory:
    """Some memory, and callers that want parts of it."""

    def __init__(self, free: int = 0) -> None:
        self.free = free
        self.attempts = 0
        self.changes: list[bool] = []
        self.served: list[int] = []
        self.queue = MemoryQueue(asyncio.get_running_loop(), self.changes.append)

    def attempt(self, size: int) -> Callable[[], int | None]:
        def attempt() -> int | None:
            self.attempts += 1
            if size > self.free:
                return None
            self.free -= size
            self.served.append(size)
            return size

        return attempt

    def want(self, size: int, deadline_ms: float = NEVER_MS) -> asyncio.Task[int | None]:
        waiting: Coroutine[Any, Any, int | None] = self.queue.take_turn(self.attempt(size), deadline_ms)
        return asyncio.create_task(waiting)

    def give(self, size: int) -> None:
        self.free += size
        self.queue.memory_freed()


def past_ms() -> float:
    return asyncio.get_running_loop().time() * 1000 - 1


async def test_in_the_order_of_arrival() -> None:
    """Callers are served in order, and the rest of the memory goes to the next one at once."""
    memory = Memory()
    tasks = [memory.want(size) for size in (10, 20, 30)]
    await turns()
    assert len(memory.queue) == 3
    memory.give(45)
    await turns()
    assert memory.served == [10, 20]
    assert [task.done() for task in tasks] == [True, True, False]
    memory.give(15)
    assert await asyncio.gather(*tasks) == [10, 20, 30]
    assert len(memory.queue) == 0


async def test_everybody_who_fits_is_served_before_anybody_goes_on() -> None:
    """Callers that return at once with the next record find no queue: otherwise it would never end."""
    memory = Memory()
    queued: list[int] = []

    async def comes_back(size: int) -> None:
        assert await memory.queue.take_turn(memory.attempt(size), NEVER_MS) == size
        queued.append(len(memory.queue))

    tasks = [asyncio.create_task(comes_back(10)) for _ in range(5)]
    await turns()
    memory.give(50)
    await asyncio.gather(*tasks)
    assert queued == [0] * 5


async def test_many_are_served_in_pieces() -> None:
    """Serving does not block the loop, however many callers wait."""
    memory = Memory()
    count = 2 * SERVED_A_TURN + 1
    tasks = [memory.want(1) for _ in range(count)]
    await turns()
    memory.give(count)
    sizes = []
    while memory.queue:
        await asyncio.sleep(0)
        sizes.append(len(memory.queue))
    assert sizes == [SERVED_A_TURN + 1, 1, 0]
    assert await asyncio.gather(*tasks) == [1] * count


async def test_cancelled_after_it_was_served() -> None:
    """Its record is admitted: the cancellation undoes nothing, and others are not affected."""
    memory = Memory()
    first, second = memory.want(10), memory.want(10)
    await turns()
    memory.give(10)
    asyncio.get_running_loop().call_soon(first.cancel)  # in the turn in which it is served
    await turns()
    assert first.cancelled()
    assert memory.served == [10]
    assert not second.done()
    memory.give(10)
    assert await second == 10


async def test_large_one_does_not_starve() -> None:
    """Freed memory adds up for the first waiter, however little the others want."""
    memory = Memory()
    large, small = memory.want(100), memory.want(1)
    await turns()
    for _ in range(9):
        memory.give(11)
        await turns()
        assert not small.done()
    memory.give(11)
    assert await large == 100
    assert await small == 1


async def test_joining_does_not_try() -> None:
    """A new waiter waits for its turn, even if there is memory: the caller has tried before."""
    memory = Memory(free=100)
    first, second = memory.want(10), memory.want(10)
    await turns()
    assert not memory.served
    memory.queue.memory_freed()
    assert (await first, await second) == (10, 10)


async def test_tells_when_somebody_waits() -> None:
    """The owner is notified when the first waiter joins, and when none is left."""
    memory = Memory()
    tasks = [memory.want(10), memory.want(10)]
    await turns()
    assert memory.changes == [True]
    memory.give(20)
    await asyncio.gather(*tasks)
    assert memory.changes == [True, False]
    again = memory.want(1)
    await turns()
    again.cancel()
    await asyncio.wait([again])
    assert memory.changes == [True, False, True, False]


async def test_a_wait_ends_at_its_deadline_and_those_behind_it_go_on() -> None:
    """At its deadline a wait ends with None; those behind it go on."""
    memory = Memory()
    first, second = memory.want(100, past_ms()), memory.want(10)
    assert await first is None
    assert not second.done()
    memory.give(10)
    assert await second == 10


async def test_deadline_after_attempts() -> None:
    """A wait that has tried in vain still ends at its deadline."""
    memory = Memory()
    loop = asyncio.get_running_loop()
    first = memory.want(100, loop.time() * 1000 + 20)
    await turns()
    memory.give(10)
    await turns()
    assert await first is None
    assert len(memory.queue) == 0


async def test_memory_that_came_while_the_loop_was_held_up() -> None:
    """Who has waited through a block of the loop is served by what is read after it."""
    memory = Memory()
    loop = asyncio.get_running_loop()
    waiting = memory.want(10, loop.time() * 1000 + 50)
    await turns()
    time.sleep(0.3)  # noqa: ASYNC251 - the block
    await turns()
    assert not waiting.done()
    memory.give(10)
    assert await waiting == 10


async def test_last_attempt_at_the_deadline() -> None:
    """The first in the queue tries once more at its deadline: memory may have been freed without a notification."""
    memory = Memory(free=100)
    assert await memory.want(10, past_ms()) == 10


async def test_deadline_behind_others() -> None:
    """A waiter that times out behind others does not get memory before them, even if its record would fit."""
    memory = Memory(free=50)
    large, small = memory.want(100), memory.want(10, past_ms())
    assert await small is None
    assert not memory.served
    memory.give(50)
    assert await large == 100


async def test_first_that_gives_up_lets_the_next_try() -> None:
    """When the first leaves, timed out or cancelled, the next one tries with the available memory."""
    memory = Memory(free=50)
    first, second = memory.want(100, past_ms()), memory.want(50)
    assert await first is None
    assert await second == 50
    memory = Memory(free=50)
    first, second = memory.want(100), memory.want(50)
    await turns()
    first.cancel()
    assert await second == 50
    assert first.cancelled()


async def test_cancelled_in_the_middle() -> None:
    """A waiter that leaves from the middle does not affect the others."""
    memory = Memory()
    first, second, third = (memory.want(size) for size in (30, 20, 10))
    await turns()
    second.cancel()
    await turns()
    assert second.cancelled()
    assert len(memory.queue) == 2
    memory.give(40)
    assert (await first, await third) == (30, 10)
    assert memory.served == [30, 10]


async def test_cancelled_when_its_turn_has_come() -> None:
    """If the first is cancelled at the moment when memory is freed, the memory goes to the next."""
    memory = Memory()
    first, second = memory.want(10), memory.want(10)
    await turns()
    memory.give(10)
    first.cancel()
    assert await second == 10
    assert first.cancelled()
    assert memory.served == [10]


async def test_freed_while_the_first_has_not_run_yet() -> None:
    """Memory that comes back in pieces within one turn of the loop counts as one."""
    memory = Memory()
    first = memory.want(30)
    await turns()
    for size in 5, 5, 5, 15:
        memory.give(size)
    assert await first == 30
    assert memory.attempts == 1


async def test_what_does_not_fit_is_tried_once() -> None:
    """A waiter that has to keep waiting takes no turn of the loop until more memory is freed."""
    memory = Memory()
    first = memory.want(30)
    await turns()
    for times in 1, 2:
        for _ in range(3):
            memory.give(3)
        await turns(20)
        assert memory.attempts == times
    memory.give(30)
    assert await first == 30


async def test_refuse_all() -> None:
    """When the producer closes, every wait ends with the error, at once and from then on."""
    memory = Memory(free=100)
    waiting = [memory.want(size) for size in (10, 200)]
    await turns()
    memory.queue.refuse_all(ProducerClosedError("closed"))
    late = memory.want(10)
    for result in await asyncio.gather(*waiting, late, return_exceptions=True):
        assert isinstance(result, ProducerClosedError)
    assert not memory.served
    assert len(memory.queue) == 0
    assert memory.changes == [True, False]


async def test_refused_in_the_turn_in_which_one_is_cancelled() -> None:
    """A caller that is cancelled as the producer closes does not keep the others from being notified."""
    memory = Memory()
    first, second = memory.want(10), memory.want(10)
    await turns()
    first.cancel()
    memory.queue.refuse_all(ProducerClosedError("closed"))
    with pytest.raises(ProducerClosedError):
        await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert memory.changes == [True, False]


async def test_attempt_that_raises() -> None:
    """An exception in an attempt ends that wait, and the next one has its turn."""
    memory = Memory()

    def broken() -> int | None:
        raise ZeroDivisionError

    first: asyncio.Task[int | None] = asyncio.create_task(memory.queue.take_turn(broken, NEVER_MS))
    second = memory.want(10)
    await turns()
    memory.give(10)
    with pytest.raises(ZeroDivisionError):
        await first
    assert await second == 10


async def test_memory_freed_for_nobody() -> None:
    """With an empty queue there is nothing to do."""
    memory = Memory()
    memory.give(10)
    assert memory.changes == []


async def test_timers_are_cancelled() -> None:
    """A wait that is over leaves no timer behind."""
    memory = Memory()
    task = memory.want(10)
    await turns()
    memory.give(5)
    await turns()
    memory.give(5)
    await task
    gc.collect()
    left = [each for each in gc.get_objects() if isinstance(each, asyncio.TimerHandle) and not each.cancelled()]
    assert [each for each in left if each.when() * 1000 >= NEVER_MS - 1] == []


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("want"), st.integers(1, 20)),
            st.tuples(st.just("give"), st.integers(1, 20)),
            st.tuples(st.just("cancel"), st.integers(0, 10)),
            st.tuples(st.just("time out"), st.integers(1, 20)),
        ),
        max_size=30,
    )
)
def test_order_whatever_happens(steps: list[tuple[str, int]]) -> None:
    """Through random waits, cancellations and timeouts, waiters are served in order.

    A waiter that is served and then cancelled, in the same turn, has its memory but does not learn of it.
    """

    async def run() -> None:
        memory = Memory()
        tasks: list[asyncio.Task[int | None]] = []
        served: list[int] = []

        def want(size: int, deadline_ms: float = NEVER_MS) -> None:
            number, attempt = len(tasks), memory.attempt(size)

            def numbered() -> int | None:
                if attempt() is None:
                    return None
                served.append(number)
                return number

            tasks.append(asyncio.create_task(memory.queue.take_turn(numbered, deadline_ms)))

        for what, number in steps:
            if what == "want":
                want(number)
            elif what == "give":
                memory.give(number)
            elif what == "time out":
                want(number, past_ms())
            elif tasks:
                tasks[number % len(tasks)].cancel()
            await turns(2)
        while any(not task.done() for task in tasks):
            memory.give(20)
            await turns()
        assert served == sorted(served)
        for number, task in enumerate(tasks):
            assert task.cancelled() or task.result() == (number if number in served else None)
        assert len(memory.queue) == 0
        assert memory.changes == [True, False] * (len(memory.changes) // 2)

    asyncio.run(run())
