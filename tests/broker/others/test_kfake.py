"""A cluster that is not Kafka's, with faults: what a broker of another make does is not taken from Kafka's source."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from aioproducer import Producer
from tests.broker.chaos.crowd import check, crowd_on
from tests.broker.fixtures import PATIENCE_S
from tests.broker.others.kfake_cluster import Chaos, KfakeCluster, has_go
from tests.broker.readers import read

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.usefixtures("clean_loop"),
    pytest.mark.skipif(not has_go(), reason="franz-go's kfake needs Go"),
]

PARTITIONS = 4
FAULTS = 150
LIVELY: dict[str, Any] = {"linger_ms": 1, "retry_backoff_ms": 10, "request_timeout_ms": 2_000}


@pytest.fixture
def cluster() -> Iterator[KfakeCluster]:
    with KfakeCluster() as cluster:
        yield cluster


async def strike(chaos: Chaos, rng: random.Random) -> None:
    for _ in range(FAULTS):
        chaos.strike()
        await asyncio.sleep(rng.uniform(0, 0.02))
    chaos.end()


@pytest.mark.parametrize("seed", range(3))
async def test_idempotent_producers(cluster: KfakeCluster, seed: int) -> None:
    """No record fails, none is lost, doubled or out of order, and afterwards all partitions go on."""
    rng = random.Random(seed)
    configs = {"max_in_flight_requests_per_connection": rng.choice((1, 2, 5)), "compression_type": "lz4"}
    await asyncio.to_thread(cluster.admin().create_topic, "orders", PARTITIONS)
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **LIVELY, **configs) as producer:
        async with crowd_on(producer, "orders") as crowd:
            await strike(Chaos(cluster, seed, "orders", PARTITIONS), rng)
            await crowd.recovered(PARTITIONS)
        await check(cluster.admin(), "orders", crowd)


class TransactionOfMine(Exception):
    """The program gives its transaction up."""


async def transact(
    producer: Producer, name: str, committed: set[bytes], aborted: set[bytes], ends: asyncio.Event
) -> None:
    """One transaction after the other; about every third is given up."""
    rng, number = random.Random(name), 0
    while not ends.is_set():
        number += 1
        values = {b"%s-%d-%d" % (name.encode(), number, at) for at in range(rng.randrange(1, 30))}
        try:
            async with producer.transaction():
                for value in values:
                    await producer.submit("payments", value)
                if rng.random() < 0.3:
                    raise TransactionOfMine
        except TransactionOfMine:
            aborted |= values
        else:
            committed |= values


@pytest.mark.parametrize("seed", range(3))
async def test_transactional_producers(cluster: KfakeCluster, seed: int) -> None:
    """Readers see each committed transaction whole and once, and none that was aborted; no call fails."""
    committed: set[bytes] = set()
    aborted: set[bytes] = set()
    ends = asyncio.Event()
    await asyncio.to_thread(cluster.admin().create_topic, "payments", PARTITIONS)

    async def work(name: str) -> None:
        servers = cluster.bootstrap_servers
        async with Producer(bootstrap_servers=servers, transactional_id=name, **LIVELY) as producer:
            await transact(producer, name, committed, aborted, ends)

    async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as tasks:
        for name in ("first", "second", "third"):
            tasks.create_task(work(name))
        await strike(Chaos(cluster, seed, "payments", PARTITIONS), random.Random(seed))
        ends.set()
    found = Counter(
        record.value for records in (await read(cluster.admin(), "payments")).values() for record in records
    )
    assert set(found) == committed
    assert set(found.values()) == {1}
    assert aborted
