"""Programs are killed every few seconds, and still every input record is in the output, once and in order."""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import AsyncExitStack

import pytest

from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_name, new_topic, producer_of
from tests.broker.transactions.processes import ROOT, program
from tests.broker.transactions.waiting import read_until, values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

PARTITIONS = 4
ENDED = (0, -signal.SIGTERM)
"""A normal exit, or one by the signal before its handler was installed."""


async def consume_transform_produce(cluster: KafkaCluster, rounds: int) -> None:
    """Three group members; in each round one is killed or leaves, and comes back a moment later."""
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
                assert await members[which].ends() in ENDED
            else:
                await members[which].kill()
            members[which] = await member(which, stack)
        stop.set()
        await feeding
        found = await read_until(cluster, target, sent)
        for each in members:
            assert await each.ends() in ENDED
    expected = [[b"ROW %d" % number for number in range(each, sent, PARTITIONS)] for each in range(PARTITIONS)]
    assert values(found) == expected


async def test_consume_transform_produce(three_brokers: KafkaCluster) -> None:
    """Every input record is in the output once, in the order of its partition."""
    await consume_transform_produce(three_brokers, rounds=4)


@pytest.mark.slow
async def test_consume_transform_produce_for_long(three_brokers: KafkaCluster) -> None:
    await consume_transform_produce(three_brokers, rounds=40)
