"""A cluster of three behind a bad network, under load from several tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import Producer
from tests.broker.chaos.cluster import ProxiedCluster
from tests.broker.chaos.crowd import Crowd, check, crowd_on
from tests.broker.chaos.proxy import Trouble
from tests.broker.fixtures import PATIENCE_S, new_topic
from tests.broker.load import check_log

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

PARTITIONS = 3
LIVELY: dict[str, Any] = {
    "linger_ms": 2,
    "batch_size": 16_384,
    "request_timeout_ms": 1_000,
    "socket_connection_setup_timeout_ms": 1_000,
    "socket_connection_setup_timeout_max_ms": 2_000,
}


def outside(cluster: ProxiedCluster, **configs: Any) -> Producer:
    """A producer that reaches the brokers through their proxies."""
    return Producer(bootstrap_servers=cluster.proxies.bootstrap_servers, **{**LIVELY, **configs})


async def acknowledged(crowd: Crowd, records: int) -> None:
    """Wait until that many more records are acknowledged."""
    goal = crowd.acknowledged + records
    async with asyncio.timeout(PATIENCE_S):
        while crowd.acknowledged < goal:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("trouble", "configs"),
    [
        (Trouble(pieces=True), {"batch_size": 2_000}),
        (Trouble(latency_s=0.05), {}),
        (Trouble(reset_after_bytes=200_000), {}),
        pytest.param(
            Trouble(reset_after_bytes=200_000),
            {"compression_type": "gzip", "reconnect_backoff_ms": 5},
            marks=pytest.mark.slow,
        ),
        (Trouble(reset_after_bytes=3_000), {"batch_size": 1_000, "reconnect_backoff_ms": 5}),
    ],
    ids=["pieces", "latency", "resets", "resets, gzip", "resets after a few requests"],
)
async def test_a_bad_network(three_brokers: ProxiedCluster, trouble: Trouble, configs: dict[str, Any]) -> None:
    """Bytes arrive late, in small pieces, or only up to the middle of a request or an answer: no record fails."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    proxies = three_brokers.proxies
    resets = proxies.resets
    async with outside(three_brokers, **configs) as producer, crowd_on(producer, topic) as crowd:
        await crowd.recovered(PARTITIONS)
        proxies.set(trouble)
        if trouble.reset_after_bytes is None:
            await acknowledged(crowd, 500)
        else:
            async with asyncio.timeout(PATIENCE_S):
                while proxies.resets < resets + 5:
                    await asyncio.sleep(0.005)
        proxies.heal()
        await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)
    await check_log(three_brokers, topic, PARTITIONS)


@pytest.mark.parametrize(
    ("way", "everywhere"),
    [
        ("requests", False),
        ("answers", True),
        pytest.param("requests", True, marks=pytest.mark.slow),
        pytest.param("answers", False, marks=pytest.mark.slow),
    ],
)
async def test_a_direction_goes_nowhere(three_brokers: ProxiedCluster, way: str, everywhere: bool) -> None:
    """Requests or answers do not arrive: each connection is given up, and what was in flight is sent again."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    proxies = three_brokers.proxies
    async with outside(three_brokers) as producer, crowd_on(producer, topic) as crowd:
        await crowd.recovered(PARTITIONS)
        proxies.set(Trouble(swallows=way), *(() if everywhere else (1,)))
        await crowd.struggle()
        await asyncio.sleep(2)  # new connections, on which nothing arrives either, are given up and replaced
        proxies.heal()
        await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)


async def test_no_broker_can_be_reached(three_brokers: ProxiedCluster) -> None:
    """Every connection is cut and every new one refused; the producer keeps trying until one is accepted."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    proxies = three_brokers.proxies
    async with outside(three_brokers) as producer, crowd_on(producer, topic) as crowd:
        await crowd.recovered(PARTITIONS)
        proxies.set(Trouble(refuses=True))
        await asyncio.sleep(2)
        proxies.heal()
        await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)


async def test_records_that_expire_in_a_bad_network(three_brokers: ProxiedCluster) -> None:
    """Each record that is not acknowledged fails with an error that correctly says whether it may be in the log."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    proxies = three_brokers.proxies
    impatient = {"request_timeout_ms": 300, "delivery_timeout_ms": 600, "linger_ms": 2}
    async with outside(three_brokers, **impatient) as producer, crowd_on(producer, topic) as crowd:
        for trouble in Trouble(swallows="answers"), Trouble(refuses=True), Trouble(swallows="requests"):
            await crowd.recovered(PARTITIONS)
            proxies.set(trouble)
            failed = len(crowd.failed)
            async with asyncio.timeout(PATIENCE_S):
                while len(crowd.failed) < failed + 50:
                    await asyncio.sleep(0.005)
            proxies.heal()
        await crowd.recovered(PARTITIONS)
    assert {sent.error.maybe_written for sent in crowd.failed if sent.error} == {False, True}
    await check(three_brokers, topic, crowd, failures=True)


@pytest.mark.slow
async def test_everything_at_once(three_brokers: ProxiedCluster) -> None:
    """A minute of all these troubles, one after the other and together, while brokers are killed."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    proxies = three_brokers.proxies
    troubles = [
        Trouble(reset_after_bytes=200_000, latency_s=0.01),
        Trouble(reset_after_bytes=50_000),
        Trouble(pieces=True, reset_after_bytes=20_000),
        Trouble(swallows="answers"),
        Trouble(swallows="requests"),
        Trouble(refuses=True),
    ]
    async with (
        outside(three_brokers, compression_type="lz4") as producer,
        crowd_on(producer, topic, pace_s=0.02) as crowd,
    ):
        for round_number in range(6):
            for at, trouble in enumerate(troubles):
                proxies.set(trouble, 1 + (round_number + at) % 3)
                await asyncio.sleep(0.5)
            victim = 1 + round_number % 3
            await asyncio.to_thread(three_brokers.kill, victim)
            await asyncio.sleep(4)
            proxies.heal()
            await asyncio.to_thread(three_brokers.start_broker, victim)
            await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)
    await check_log(three_brokers, topic, PARTITIONS)
