"""Whole programs that are killed every few seconds, and what comes out is what went in, once and in order."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic, producer_of
from tests.broker.readers import StoredRecord, read
from tests.broker.transactions.processes import ROOT, program

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

PARTITIONS = 4
Records = dict[int, list[StoredRecord]]


async def read_until(cluster: KafkaCluster, topic: str, count: int, *, patience_s: float = 2 * PATIENCE_S) -> Records:
    """What is committed in a topic, once that is so many records, or more than should be."""
    async with asyncio.timeout(patience_s):
        while sum(map(len, (found := await read(cluster, topic)).values())) < count:
            await asyncio.sleep(0.5)
    return found


def values(records: Records) -> list[list[bytes]]:
    return [[record.value or b"" for record in records[partition]] for partition in sorted(records)]


async def consume_transform_produce(cluster: KafkaCluster, rounds: int) -> None:
    """Three members; in each round one is killed or leaves, and comes back a moment later."""
    rng = random.Random(rounds)
    source, target, group = [await new_topic(cluster, PARTITIONS) for _ in range(2)] + [new_name()]  # type: ignore[list-item]
    script = ROOT / "examples" / "consume_transform_produce.py"
    sent = 0
    stop = asyncio.Event()

    async def feed() -> None:
        nonlocal sent
        async with producer_of(cluster) as producer:
            while not stop.is_set():
                for _ in range(40):
                    await producer.submit(source, b"row %d" % sent, partition=sent % PARTITIONS)
                    sent += 1
                await asyncio.sleep(0.1)

    async def member(number: int, stack: AsyncExitStack):  # type: ignore[no-untyped-def]
        environment = {"BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "INSTANCE": str(number)}
        return await stack.enter_async_context(program(script, source, target, group, environment=environment))

    async with AsyncExitStack() as stack:
        members = [await member(number, stack) for number in range(3)]
        feeding = asyncio.create_task(feed())
        await read_until(cluster, target, 1)
        for number in range(rounds):
            await asyncio.sleep(rng.uniform(1, 3))
            which = number % 3
            if number % 2:
                assert await members[which].ends() == 0
            else:
                await members[which].kill()
            members[which] = await member(which, stack)
        stop.set()
        await feeding
        found = await read_until(cluster, target, sent)
        for each in members:
            assert await each.ends() == 0
    expected = [[b"ROW %d" % number for number in range(each, sent, PARTITIONS)] for each in range(PARTITIONS)]
    assert values(found) == expected


async def test_consume_transform_produce(three_brokers: KafkaCluster) -> None:
    """What comes out is what went in, each once, in the order of its partition."""
    await consume_transform_produce(three_brokers, rounds=4)


@pytest.mark.slow
async def test_consume_transform_produce_for_long(three_brokers: KafkaCluster) -> None:
    await consume_transform_produce(three_brokers, rounds=40)


async def test_outbox_relay(clusters_by_kind: dict[str, KafkaCluster], tmp_path: Path) -> None:
    """Rows of a table, relayed by a program that is killed again and again: each once, in order, none lost."""
    cluster = clusters_by_kind["V2"]
    rng = random.Random(1)
    topic = await new_topic(cluster)
    where = tmp_path / "shop.db"
    rows = 0

    def insert(count: int) -> None:
        nonlocal rows
        with sqlite3.connect(where) as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT, key TEXT, "
                "payload TEXT)"
            )
            numbers = range(rows, rows + count)
            database.executemany(
                "INSERT INTO outbox (topic, key, payload) VALUES (?, ?, ?)",
                [(topic, f"customer-{number % 7}", f"order {number}") for number in numbers],
            )
            rows += count
        database.close()

    relay = (ROOT / "examples" / "outbox_relay.py", where)
    environment = {"BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    insert(1000)
    for _ in range(5):
        async with program(*relay, environment=environment) as running:
            before = rows
            insert(700)
            await read_until(cluster, topic, before - rng.randrange(700))
            await asyncio.sleep(rng.uniform(0, 0.1))
            await running.kill()
    async with program(*relay, environment=environment):
        insert(10)
        found = await read_until(cluster, topic, rows)
    assert values(found) == [[b"order %d" % number for number in range(rows)]]
    assert found[0][8].key == b"customer-1"
