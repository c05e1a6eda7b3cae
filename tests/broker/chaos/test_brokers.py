"""Brokers of a cluster of three that die, hang, restart or fall behind, under load from several tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.broker.chaos.cluster import ProxiedCluster
from tests.broker.chaos.crowd import check, crowd_on
from tests.broker.chaos.proxy import Trouble
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic, producer_of
from tests.broker.load import check_log
from tests.broker.readers import read_topic

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

PARTITIONS = 3
LIVELY: dict[str, Any] = {"linger_ms": 2, "batch_size": 16_384, "request_timeout_ms": 3_000}


async def leader_of(cluster: ProxiedCluster, topic: str) -> int:
    leader = await asyncio.to_thread(cluster.leader_of, topic, 0)
    assert leader is not None
    return leader


@pytest.mark.parametrize(
    "configs",
    [LIVELY, pytest.param({**LIVELY, "compression_type": "lz4"}, marks=pytest.mark.slow)],
    ids=["plain", "lz4"],
)
async def test_a_leader_is_killed(three_brokers: ProxiedCluster, configs: dict[str, Any]) -> None:
    """kill -9: nothing is lost, duplicated or reordered, and no record fails."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    async with producer_of(three_brokers, **configs) as producer, crowd_on(producer, topic) as crowd:
        await crowd.recovered(PARTITIONS)
        leader = await leader_of(three_brokers, topic)
        await asyncio.to_thread(three_brokers.kill, leader)
        await crowd.recovered(PARTITIONS)
        await asyncio.to_thread(three_brokers.start_broker, leader)
        await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)
    await check_log(three_brokers, topic, PARTITIONS)


@pytest.mark.parametrize(
    ("seconds", "configs"),
    [(5, LIVELY), pytest.param(20, {}, marks=pytest.mark.slow), pytest.param(20, LIVELY, marks=pytest.mark.slow)],
    ids=["5 s", "20 s, defaults", "20 s, short timeouts"],
)
async def test_a_leader_hangs(three_brokers: ProxiedCluster, seconds: float, configs: dict[str, Any]) -> None:
    """SIGSTOP: its partitions move while its connections stay open, and it wakes up with old requests in hand."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    async with producer_of(three_brokers, **configs) as producer, crowd_on(producer, topic) as crowd:
        await crowd.recovered(PARTITIONS)
        leader = await leader_of(three_brokers, topic)
        three_brokers.pause(leader)
        await asyncio.sleep(seconds)
        three_brokers.resume(leader)
        await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)
    await check_log(three_brokers, topic, PARTITIONS)


async def test_every_broker_hangs(three_brokers: ProxiedCluster) -> None:
    """Connections are accepted but nothing is answered; then the brokers wake up again."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    async with (
        producer_of(three_brokers, **{**LIVELY, "request_timeout_ms": 500}) as producer,
        crowd_on(producer, topic) as crowd,
    ):
        await crowd.recovered(PARTITIONS)
        for broker in three_brokers.brokers:
            three_brokers.pause(broker)
        await crowd.struggle()
        await asyncio.sleep(3)
        for broker in three_brokers.brokers:
            three_brokers.resume(broker)
        await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)


@pytest.mark.slow
async def test_every_broker_is_killed(three_brokers: ProxiedCluster) -> None:
    """The whole cluster fails and comes back with its data."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    async with producer_of(three_brokers, **LIVELY) as producer, crowd_on(producer, topic) as crowd:
        await crowd.recovered(PARTITIONS)
        for broker in three_brokers.brokers:
            await asyncio.to_thread(three_brokers.kill, broker)
        await asyncio.to_thread(three_brokers.start_broker, *three_brokers.brokers)
        await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)
    await check_log(three_brokers, topic, PARTITIONS)


@pytest.mark.parametrize("restart", ["kill", "stop_broker"])
async def test_the_only_replica_restarts(three_brokers: ProxiedCluster, restart: str) -> None:
    """It has batches whose answers are lost, and remembers only the last of them: none is written twice."""
    topic = new_name()
    await asyncio.to_thread(three_brokers.create_topic, topic, assignments={0: [1]})
    configs = {**LIVELY, "bootstrap_servers": three_brokers.proxies.bootstrap_servers, "linger_ms": 0, "batch_size": 1}
    async with producer_of(three_brokers, **configs) as producer:
        await producer.send(topic, b"before")
        three_brokers.proxies.set(Trouble(swallows="answers"), 1)
        deliveries = [producer.submit_nowait(topic, b"%d" % number) for number in range(4)]
        async with asyncio.timeout(PATIENCE_S):
            while (await asyncio.to_thread(three_brokers.end_offsets, topic))[0] < 5:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(getattr(three_brokers, restart), 1)
        three_brokers.proxies.heal()
        await asyncio.to_thread(three_brokers.start_broker, 1)
        for delivery in deliveries:
            await delivery
        await producer.send(topic, b"after")
    values = [record.value for record in (await asyncio.to_thread(read_topic, three_brokers, topic))[0]]
    assert values == [b"before", b"0", b"1", b"2", b"3", b"after"]


async def test_a_rolling_restart(three_brokers: ProxiedCluster) -> None:
    """As in an upgrade, one broker after the other: no record fails."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    async with producer_of(three_brokers) as producer, crowd_on(producer, topic) as crowd:
        await crowd.recovered(PARTITIONS)
        await asyncio.to_thread(three_brokers.rolling_restart)
        await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)


async def test_too_few_replicas(three_brokers: ProxiedCluster) -> None:
    """min.insync.replicas is not met for a while: records wait, and are accepted afterwards."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=3)
    async with producer_of(three_brokers, **LIVELY) as producer, crowd_on(producer, topic) as crowd:
        await crowd.recovered(PARTITIONS)
        await asyncio.to_thread(three_brokers.stop_broker, 3)
        await crowd.struggle()
        await asyncio.to_thread(three_brokers.start_broker, 3)
        await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)
