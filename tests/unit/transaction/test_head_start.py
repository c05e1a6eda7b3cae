"""The head start of a request that brings new partitions, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import Producer
from aioproducer.testing import FakeCluster
from aioproducer.transaction.head_start import HeadStart
from aioproducer.transaction.partitions import BROKER_WAITS_MS
from tests.unit.waiting import in_virtual_time, until

LONG_S = BROKER_WAITS_MS / 1000


def test_it_ends_and_is_told_once() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        told_s: list[float] = []
        head_start = HeadStart(loop, lambda: told_s.append(loop.time()))
        assert head_start.is_over()
        began_s = loop.time()
        head_start.give()
        assert not head_start.is_over()
        assert not head_start.is_over()
        await asyncio.sleep(LONG_S + 0.001)
        assert head_start.is_over()
        assert [each_s - began_s for each_s in told_s] == [pytest.approx(LONG_S, abs=0.001)]

    in_virtual_time(test())


def test_a_later_request_has_its_own() -> None:
    """Whoever is told of the end of an earlier one asks again, and is told of the later one's."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        over_s: list[float] = []

        def told() -> None:
            if head_start.is_over():
                over_s.append(loop.time())

        head_start = HeadStart(loop, told)
        began_s = loop.time()
        head_start.give()
        assert not head_start.is_over()
        await asyncio.sleep(LONG_S / 2)
        head_start.give()
        await asyncio.sleep(LONG_S * 2)
        assert [each_s - began_s for each_s in over_s] == [pytest.approx(LONG_S * 3 / 2, abs=0.001)]

    in_virtual_time(test())


def test_nobody_is_told_who_has_not_asked() -> None:
    async def test() -> None:
        told: list[None] = []
        HeadStart(asyncio.get_running_loop(), lambda: told.append(None)).give()
        await asyncio.sleep(LONG_S * 2)
        assert not told

    in_virtual_time(test())


async def test_a_broker_that_does_not_answer_holds_up_no_other_for_long() -> None:
    """Both got new partitions of one transaction; the second broker's batch does not wait for the first's answer."""
    async with FakeCluster(2) as cluster:
        cluster.create_topic("orders", partitions=2)
        slow, quick = 0, 1
        assert cluster.leader_of("orders", slow) != cluster.leader_of("orders", quick)
        cluster.faults.delay("Produce", 60_000, topic="orders", partition=slow)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="billing") as producer:
            await producer.begin_transaction()
            delayed = await producer.submit("orders", b"value", partition=slow)
            await until(lambda: len(cluster.records("orders", slow)))
            async with asyncio.timeout(10):
                await producer.send("orders", b"value", partition=quick)
            assert not delayed.done()
            await producer.close(0)
