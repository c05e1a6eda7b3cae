"""Which callers an answer about a topic wakes."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.cluster import ClusterTopic, PartitionState
from aioproducer.errors import KafkaError
from aioproducer.topic_waiters import TopicWaiters
from tests.unit.waiting import in_virtual_time, turns

FAR_MS = 1 << 40


def known(name: str, partitions: int) -> ClusterTopic:
    return ClusterTopic(
        name, partitions=tuple(PartitionState(number, 1, 0, (1,), (1,), (), 0) for number in range(partitions))
    )


class Crowd:
    """Callers that wait for a topic each, or for one of its partitions."""

    def __init__(self, *wanted: tuple[str, int | None]) -> None:
        self.waiters = TopicWaiters(asyncio.get_running_loop())
        self.waits = [asyncio.create_task(self.waiters.answer(*each, FAR_MS)) for each in wanted]

    async def woken(self) -> list[bool]:
        await turns()
        return [each.done() for each in self.waits]

    async def leave(self) -> None:
        for each in self.waits:
            each.cancel()
        await asyncio.wait(self.waits)


async def test_those_who_have_what_they_wait_for() -> None:
    crowd = Crowd(("orders", None), ("orders", 1), ("orders", 2), ("clicks", None))
    await turns()
    for partitions, woken in (0, [False] * 4), (1, [True] + [False] * 3), (2, [True, True, False, False]):
        crowd.waiters.settle(known("orders", partitions), is_refused=False)
        assert await crowd.woken() == woken
    assert all(each.result() for each in crowd.waits[:2])
    await crowd.leave()


async def test_nobody_will_get_a_topic_that_is_refused() -> None:
    crowd = Crowd(("orders", None), ("orders", 2), ("clicks", None))
    await turns()
    crowd.waiters.settle(known("orders", 0), is_refused=True)
    assert await crowd.woken() == [True, True, False]
    await crowd.leave()


async def test_how_many_partitions_are_needed() -> None:
    crowd = Crowd(("orders", None), ("orders", 6), ("orders", 3), ("clicks", None))
    await turns()
    assert [crowd.waiters.partitions_needed(topic) for topic in ("orders", "clicks", "other")] == [7, 1, 0]
    await crowd.leave()


async def test_those_who_have_left_are_forgotten() -> None:
    crowd = Crowd(("orders", None), ("orders", 6))
    await turns()
    crowd.waits[1].cancel()
    await turns()
    assert "orders" in crowd.waiters
    assert crowd.waiters.partitions_needed("orders") == 1
    await crowd.leave()
    assert "orders" not in crowd.waiters


async def test_an_end_for_all_is_an_error_of_their_own() -> None:
    crowd = Crowd(("orders", None), ("clicks", 1))
    await turns()
    crowd.waiters.fail(KafkaError("closed"))
    errors = await asyncio.gather(*crowd.waits, return_exceptions=True)
    assert [str(error) for error in errors] == ["closed"] * 2
    assert errors[0] is not errors[1]


def test_the_deadline() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert not await TopicWaiters(loop).answer("orders", None, int(began_s * 1000) + 500)
        assert loop.time() - began_s == pytest.approx(0.5, abs=0.01)

    in_virtual_time(run())
