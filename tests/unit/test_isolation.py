"""A problem with one partition or broker does not hold up others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from aioproducer import Producer
from aioproducer.testing import FakeCluster

PATIENCE_S = 20
SICK, HEALTHY = 0, 1

TROUBLES: dict[str, Callable[[FakeCluster, int], object]] = {
    "retries": lambda cluster, _: cluster.faults.fail("Produce", 19, times=None, topic="orders", partition=SICK),
    "no leader": lambda cluster, _: cluster.remove_leader("orders", SICK),
    "a silent broker": lambda cluster, node: cluster.faults.swallow(None, times=None, node=node),
    "a slow broker": lambda cluster, node: cluster.faults.delay("Produce", 60_000, times=None, node=node),
    "a throttled broker": lambda cluster, node: cluster.faults.throttle("Produce", 60_000, node=node),
    "a broker that resets": lambda cluster, node: cluster.faults.drop(None, times=None, node=node),
    "a broker that is away": lambda cluster, node: cluster.stop_broker(node, elect=False),
}


OF_A_PARTITION = ("retries", "no leader")
"""Troubles that the other partitions of the broker do not have."""


@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize(
    ("trouble", "others"), [*((trouble, 2) for trouble in TROUBLES), *((trouble, 1) for trouble in OF_A_PARTITION)]
)
async def test_the_others_go_on(trouble: str, others: int, in_flight: int) -> None:
    """Hundreds of awaited records go through another broker, or the same, while those of the failing partition wait."""
    async with FakeCluster(3) as cluster:
        cluster.create_topic("orders", assignments={SICK: [1], HEALTHY: [others]})
        producer = Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            max_in_flight_requests_per_connection=in_flight,
            linger_ms=0,
            metadata_max_age_ms=100,
        )
        async with producer:
            for partition in SICK, HEALTHY:
                await producer.send("orders", b"first", partition=partition)
            TROUBLES[trouble](cluster, 1)
            waiting = [await producer.submit("orders", b"%d" % number, partition=SICK) for number in range(20)]
            async with asyncio.timeout(PATIENCE_S):
                for number in range(300):
                    if number % 10 == 0:
                        waiting.append(await producer.submit("orders", b"more", partition=SICK))
                    await producer.send("orders", b"%d" % number, partition=HEALTHY)
            # The throttled broker had answered this request before the throttling.
            assert not waiting[-1].done()
            assert len(cluster.records("orders", HEALTHY)) == 301
            await producer.close(timeout=0)


async def test_metadata_under_a_throttle_come_from_another_broker() -> None:
    """A new topic is known at once, although the broker with its records throttles for a minute."""
    async with FakeCluster(2) as cluster:
        cluster.create_topic("orders", assignments={0: [1]})
        cluster.create_topic("audit", assignments={0: [2]})
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
            cluster.faults.throttle("Produce", 60_000, node=1)
            await producer.send("orders", b"throttled")
            await asyncio.wait_for(producer.send("audit", b"not throttled"), PATIENCE_S)
            await producer.close(timeout=0)


async def test_a_broker_that_does_not_give_a_producer_id_is_not_waited_for() -> None:
    """Another one is asked, long before request_timeout_ms."""
    async with FakeCluster(3) as cluster:
        cluster.create_topic("orders")
        cluster.faults.swallow("InitProducerId")
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await asyncio.wait_for(producer.send("orders", b"value"), PATIENCE_S)
