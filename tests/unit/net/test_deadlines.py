"""When a connection is given up, in virtual time; what becomes of it then is in test_connection.py."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aioproducer.net.deadlines import Deadlines
from aioproducer.net.in_flight import InFlightRequest, InFlightRequests
from aioproducer.patient_timer import LATE_MS
from tests.simulation.loop import SimulatedLoop


class Bench:
    """Deadlines in a loop with virtual time, and when they reported which requests late."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop(random.Random(1))
        self.began_ms = self.loop.now_ms
        self.in_flight = InFlightRequests()
        self.late: list[tuple[int, set[int]]] = []
        self.deadlines = Deadlines(
            self.loop, self.in_flight, lambda late, now_ms: self.late.append((now_ms - self.began_ms, late))
        )

    def send(self, correlation_id: int, timeout_ms: int) -> None:
        now_ms = self.loop.now_ms
        self.in_flight.add(
            InFlightRequest(correlation_id, 0, 0, now_ms, now_ms + timeout_ms, lambda _: None, lambda _: None)
        )
        self.deadlines.watch(now_ms + timeout_ms)

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.loop.run_until_complete(main())
        assert self.loop.errors == []
        self.loop.close()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_deadline_counts_whichever_request_has_it(bench: Bench) -> None:
    async def main() -> None:
        bench.send(1, 1_000)
        bench.send(2, 500)
        await asyncio.sleep(2)

    bench.run(main)
    ((at_ms, late),) = bench.late
    assert 500 <= at_ms <= 502
    assert late == {2}


def test_what_is_answered_in_time_is_not_late_and_the_next_one_is(bench: Bench) -> None:
    async def main() -> None:
        bench.send(1, 500)
        bench.send(2, 1_000)
        await asyncio.sleep(0.4)
        bench.in_flight.complete(1)
        await asyncio.sleep(2)

    bench.run(main)
    ((at_ms, late),) = bench.late
    assert 1_000 <= at_ms <= 1_002
    assert late == {2}


def test_bytes_that_are_not_written_in_time_are_late(bench: Bench) -> None:
    async def main() -> None:
        bench.deadlines.writing_ms = bench.loop.now_ms + 300
        bench.deadlines.watch(bench.deadlines.writing_ms)
        await asyncio.sleep(2)

    bench.run(main)
    ((at_ms, late),) = bench.late
    assert 300 <= at_ms <= 302
    assert late == set()


@pytest.mark.parametrize("answered", [True, False])
def test_after_a_block_there_is_a_second_look(bench: Bench, answered: bool) -> None:
    async def main() -> None:
        bench.send(1, 500)
        bench.loop.spend(2)
        await asyncio.sleep(LATE_MS / 2 / 1000)
        assert bench.late == []
        if answered:
            bench.in_flight.complete(1)
        await asyncio.sleep(2)

    bench.run(main)
    assert [late for _, late in bench.late] == ([] if answered else [{1}])
    if not answered:
        assert 2_000 + LATE_MS <= bench.late[0][0] <= 2_000 + LATE_MS + 2


def test_a_loop_that_is_blocked_all_the_time_puts_nothing_off_twice(bench: Bench) -> None:
    async def main() -> None:
        bench.send(1, 500)
        for _ in range(3):
            bench.loop.spend(2)
            await asyncio.sleep(0.001)

    bench.run(main)
    assert [late for _, late in bench.late] == [{1}]


def test_nothing_is_late_after_the_end(bench: Bench) -> None:
    async def main() -> None:
        bench.send(1, 500)
        bench.deadlines.end()
        await asyncio.sleep(2)

    bench.run(main)
    assert bench.late == []
    assert bench.loop.timers() == []
