"""The wait for the completion of the previous transaction, with a coordinator that answers what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import cast

import pytest

from aioproducer import Producer
from aioproducer.errors import ConnectionLostError
from aioproducer.testing import FakeCluster
from aioproducer.transaction.completion import LONGEST_EXPECTED_MS, LONGEST_MS, QUICK_MS, SOON_MS, CompletionWait
from aioproducer.transaction.outcome import TransactionDescription
from aioproducer.transaction.requests import TransactionRequests
from tests.unit.waiting import in_virtual_time, until

ROUND_TRIP_S = 0.001


class Coordinator:
    """Completes a transaction at a time; knows when it was asked."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.state = "PrepareCommit"
        self.completes_s = self.loop.time()
        self.asked_s: list[float] = []
        self.failure: Exception | None = None
        self.silent = False

    async def describe(self, *, wanted: Callable[[], bool]) -> TransactionDescription:
        assert not wanted(), "a failed question is not repeated"
        self.asked_s.append(self.loop.time())
        if self.silent:
            await self.loop.create_future()
        await asyncio.sleep(ROUND_TRIP_S)
        if self.failure is not None:
            raise self.failure
        state = self.state if self.loop.time() < self.completes_s else "CompleteCommit"
        return TransactionDescription("billing", state, 1, 2, 60_000, -1, ())


class Scene:
    """One producer's waits."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.coordinator = Coordinator()
        self.went_s: list[float] = []
        self.ends: list[asyncio.Task[None]] = []
        self.wait = CompletionWait(
            loop=self.loop,
            requests=cast(TransactionRequests, self.coordinator),
            completed=lambda: self.went_s.append(self.loop.time()),
            on_end=self.ends.append,
        )

    def end(self, *, took_s: float = 0.002, completes_after_s: float) -> None:
        """EndTxn is answered; the transaction is completed later."""
        self.coordinator.completes_s = self.loop.time() + completes_after_s
        self.wait.ended(self.loop.time() - took_s)

    async def completion(self, after_s: float) -> list[float]:
        """A transaction is completed that long after its end; return how long after the end each question came."""
        ended_s = self.loop.time()
        self.coordinator.asked_s.clear()
        self.end(completes_after_s=after_s)
        assert self.wait.holds_back()
        await asyncio.sleep(1)
        assert not self.wait.holds_back()
        return [asked_s - ended_s for asked_s in self.coordinator.asked_s]


def scene(test: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        await test(Scene())

    def in_time() -> None:
        in_virtual_time(run())

    in_time.__name__, in_time.__doc__ = test.__name__, test.__doc__
    return in_time


@scene
async def test_nothing_holds_back_the_first_transaction(s: Scene) -> None:
    assert not s.wait.holds_back()
    assert s.wait.asking is None


@scene
async def test_batches_go_as_soon_as_the_coordinator_has_completed(s: Scene) -> None:
    """At most a round trip and a quarter of the time later."""
    ended_s = s.loop.time()
    s.end(completes_after_s=0.008)
    assert s.wait.holds_back()
    assert s.wait.holds_back(), "one task asks, however often a batch is looked at"
    await asyncio.sleep(0.007)
    assert s.wait.holds_back()
    assert not s.went_s
    await asyncio.sleep(1)
    assert len(s.went_s) == 1
    assert 0.008 <= s.went_s[0] - ended_s <= 0.008 * 5 / 4 + 2 * ROUND_TRIP_S
    assert not s.wait.holds_back()
    assert len(s.ends) == 1


@scene
async def test_one_question_is_enough_for_what_has_been_completed(s: Scene) -> None:
    s.end(completes_after_s=0)
    assert s.wait.holds_back()
    await asyncio.sleep(ROUND_TRIP_S * 1.5)
    assert not s.wait.holds_back()
    assert len(s.coordinator.asked_s) == 1


@scene
async def test_a_program_that_takes_its_time_does_not_wait(s: Scene) -> None:
    s.end(completes_after_s=1)
    await asyncio.sleep((SOON_MS + 1) / 1000)
    assert not s.wait.holds_back()
    assert not s.coordinator.asked_s


@scene
async def test_a_distant_coordinator_is_not_asked(s: Scene) -> None:
    s.end(took_s=(QUICK_MS + 1) / 1000, completes_after_s=1)
    assert not s.wait.holds_back()


@scene
async def test_each_end_is_waited_for(s: Scene) -> None:
    """Also that of an aborted transaction."""
    for state in "PrepareCommit", "PrepareAbort":
        s.coordinator.state = state
        s.end(completes_after_s=0.005)
        assert s.wait.holds_back()
        await asyncio.sleep(0.004)
        assert s.wait.holds_back()
        await asyncio.sleep(0.1)
        assert not s.wait.holds_back()


@scene
async def test_few_questions_about_what_takes_as_long_as_before(s: Scene) -> None:
    """The first one comes after half of that time."""
    first = before = await s.completion(0.008)
    for _ in range(3):
        asked_s = await s.completion(0.008)
        assert len(asked_s) < len(first)
        assert asked_s[0] == pytest.approx(before[-1] / 2, abs=0.001)
        assert asked_s[-1] <= 0.008 * 5 / 4 + 2 * ROUND_TRIP_S
        before = asked_s


@scene
async def test_what_takes_less_than_before_is_soon_known_to(s: Scene) -> None:
    waits_s = [(await s.completion(after_s))[-1] for after_s in (0.016, 0, 0, 0, 0)]
    for earlier_s, later_s in pairwise(waits_s):
        assert later_s == pytest.approx(earlier_s / 2, abs=0.001)


@scene
async def test_one_long_completion_does_not_hold_back_the_next_for_long(s: Scene) -> None:
    assert (await s.completion(0.1))[-1] >= 0.1
    assert (await s.completion(0)) == [pytest.approx(LONGEST_EXPECTED_MS / 1000 / 2, abs=0.001)]


@scene
async def test_a_late_question_about_what_is_complete_tells_nothing(s: Scene) -> None:
    """A program that takes some time between its transactions does not learn from that how long to wait."""
    s.end(completes_after_s=0)
    await asyncio.sleep(0.015)
    assert s.wait.holds_back()
    await asyncio.sleep(1)
    assert await s.completion(0) == [pytest.approx(0, abs=0.001)]


@scene
async def test_nothing_is_expected_of_a_coordinator_that_could_not_tell(s: Scene) -> None:
    await s.completion(0.008)
    s.coordinator.failure = ConnectionLostError("gone")
    await s.completion(0.008)
    s.coordinator.failure = None
    assert (await s.completion(0.008))[0] == pytest.approx(0, abs=0.001)


@scene
async def test_a_coordinator_that_can_t_tell(s: Scene) -> None:
    s.coordinator.failure = ConnectionLostError("gone")
    s.end(completes_after_s=1)
    assert s.wait.holds_back()
    await asyncio.sleep(ROUND_TRIP_S * 1.5)
    assert s.went_s
    assert not s.wait.holds_back()


@pytest.mark.parametrize("silent", [False, True])
def test_no_wait_is_long(silent: bool) -> None:
    """Of a transaction that is never completed, or a coordinator that never answers."""

    @scene
    async def test(s: Scene) -> None:
        s.coordinator.silent = silent
        ended_s = s.loop.time()
        s.end(completes_after_s=3600)
        assert s.wait.holds_back()
        await asyncio.sleep(10)
        assert [went_s - ended_s for went_s in s.went_s] == [pytest.approx(LONGEST_MS / 1000, abs=0.002)]
        assert not s.wait.holds_back()
        assert len(s.coordinator.asked_s) < 30

    test()


@scene
async def test_the_producer_is_closed_meanwhile(s: Scene) -> None:
    s.end(completes_after_s=1)
    assert s.wait.holds_back()
    await asyncio.sleep(0.001)
    assert s.wait.asking is not None
    s.wait.asking.cancel()
    await asyncio.wait([s.wait.asking])
    assert not s.wait.holds_back()


@pytest.mark.parametrize("committed", [True, False])
async def test_one_transaction_after_the_other(committed: bool) -> None:
    """No batch comes while the previous one is being completed: a real broker would let it wait for 20 ms."""
    async with FakeCluster() as cluster:
        cluster.create_topic("orders")
        cluster.delay_markers(8)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="billing") as producer:
            for _ in range(10):
                await producer.begin_transaction()
                await producer.send("orders", b"value")
                await (producer.commit_transaction() if committed else producer.abort_transaction())
            assert producer.metrics()["producer-metrics"]["record-retry-total"] == 0
        await until(lambda: cluster.transaction_state("billing") in {"CompleteCommit", "CompleteAbort"})
        assert len(cluster.records("orders", read_committed=True)) == (10 if committed else 0)
