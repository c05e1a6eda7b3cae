"""Programs are killed every few seconds, and still every input record is in the output, once and in order."""

from __future__ import annotations

import asyncio
import random
import signal
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaConsumer

from aioproducer.consumers import aiokafka_group, aiokafka_positions
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic, producer_of
from tests.broker.readers import read_values
from tests.broker.test_examples import load
from tests.broker.transactions.processes import ROOT, program
from tests.broker.transactions.waiting import read_until, values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

PARTITIONS = 4
ENDED = (0, -signal.SIGTERM)
"""A normal exit, or one by the signal before its handler was installed."""


CLIENTS = pytest.mark.parametrize("script", ["consume_transform_produce", "consume_transform_produce_aiokafka"])


async def consume_transform_produce(cluster: KafkaCluster, script: str, rounds: int) -> None:
    """Three group members; in each round one is killed or leaves, and comes back a moment later."""
    rng = random.Random(rounds)
    source, target, group = [await new_topic(cluster, PARTITIONS) for _ in range(2)] + [new_name()]  # type: ignore[list-item]
    path = ROOT / "examples" / f"{script}.py"
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
        return await stack.enter_async_context(program(path, source, target, group, environment=environment))

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


@CLIENTS
async def test_consume_transform_produce(three_brokers: KafkaCluster, script: str) -> None:
    """Every input record is in the output once, in the order of its partition."""
    await consume_transform_produce(three_brokers, script, rounds=4)


@pytest.mark.slow
@CLIENTS
async def test_consume_transform_produce_for_long(three_brokers: KafkaCluster, script: str) -> None:
    await consume_transform_produce(three_brokers, script, rounds=40)


async def test_a_rebalance_waits_for_the_transaction_of_an_aiokafka_consumer(three_brokers: KafkaCluster) -> None:
    """If a member joins meanwhile, the group still accepts the offsets of the transaction."""
    source, target, group = await new_topic(three_brokers), await new_topic(three_brokers), new_name()
    asked = asyncio.Event()
    events: list[str] = []

    class Lock(load("consume_transform_produce_aiokafka").TransactionLock):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: set[object]) -> None:
            if revoked:
                asked.set()
            await super().on_partitions_revoked(revoked)
            if revoked:
                events.append("revoked")

    def member() -> AIOKafkaConsumer:
        servers = three_brokers.bootstrap_servers
        return AIOKafkaConsumer(
            bootstrap_servers=servers, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"
        )

    async with asyncio.timeout(PATIENCE_S), producer_of(three_brokers, transactional_id=new_name()) as producer:
        async with producer.transaction():
            await producer.submit(source, b"x")
        first, second = member(), member()
        first.subscribe([source], listener=(lock := Lock()))
        second.subscribe([source])
        async with first:
            await first.getone()
            positions, membership = aiokafka_positions(first), aiokafka_group(first)
            async with lock, producer.transaction():
                await producer.submit(target, b"X")
                joining = asyncio.create_task(second.start())
                await asked.wait()
                assert await read_values(three_brokers, source) == [b"x"]  # takes longer than a rebalance
                await producer.send_offsets_to_transaction(positions, membership)
                events.append("sent")
            await joining
            await second.stop()
    assert events == ["sent", "revoked"]
    assert await read_values(three_brokers, target) == [b"X"]


async def test_a_program_tells_what_its_confluent_consumer_lacks(three_brokers: KafkaCluster) -> None:
    """Errors of the consumer come in place of records, and nothing else tells of them."""
    path = ROOT / "examples" / "consume_transform_produce.py"
    environment = {"BOOTSTRAP_SERVERS": three_brokers.bootstrap_servers, "PYTHONUNBUFFERED": "1"}
    source = new_name()
    reason = f"Subscribed topic not available: {source}: Broker: Unknown topic or partition"
    async with program(path, source, "target", new_name(), environment=environment) as each:
        await each.says(f'the consumer goes on: KafkaError{{code=UNKNOWN_TOPIC_OR_PART,val=3,str="{reason}"}}')
        assert await each.ends() in ENDED
