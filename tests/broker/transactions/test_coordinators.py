"""Three brokers; the transaction's coordinator is killed, or hands over, in each state of the transaction."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.protocol.find_coordinator import TRANSACTION, FindCoordinatorRequest
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_name, new_topic, producer_of
from tests.broker.readers import read

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

STATES = ["ready", "open", "committing", "aborting"]
TRANSACTION_STATE = "__transaction_state"


def coordinator_of(cluster: KafkaCluster, transactional_id: str) -> int:
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
    (found,) = cluster.ask(request).coordinators
    return found.node_id


def hand_over(cluster: KafkaCluster, broker: int) -> None:
    """Move everything that a broker coordinates to other brokers."""
    for state in cluster.describe_topic(TRANSACTION_STATE).partitions:
        if state.leader_id == broker:
            other = next(each for each in state.replica_nodes if each != broker)
            cluster.move_leader(TRANSACTION_STATE, state.partition_index, other)


async def through_trouble(cluster: KafkaCluster, state: str, *, kill: bool) -> None:
    """One transaction before the trouble, one during it, one after it."""
    topic, name = await new_topic(cluster, partitions=3), new_name()
    async with producer_of(cluster, transactional_id=name, request_timeout_ms=5_000, linger_ms=0) as producer:

        async def transaction(label: bytes, trouble: asyncio.Event | None = None) -> None:
            await producer.begin_transaction()
            for number in range(30):
                await producer.submit(topic, b"%b %d" % (label, number), partition=number % 3)
            await producer.flush()
            if trouble is not None:
                trouble.set()
                if state == "open":
                    await done.wait()
                    for number in range(30, 60):
                        await producer.submit(topic, b"%b %d" % (label, number), partition=number % 3)
            if trouble is not None and state == "aborting":
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()

        done, now = asyncio.Event(), asyncio.Event()
        await transaction(b"before")
        broker = await asyncio.to_thread(coordinator_of, cluster, name)
        if state == "ready":
            await asyncio.to_thread(cluster.kill if kill else lambda each: hand_over(cluster, each), broker)
            await transaction(b"during")
        else:
            during = asyncio.create_task(transaction(b"during", now))
            await now.wait()
            await asyncio.to_thread(cluster.kill if kill else lambda each: hand_over(cluster, each), broker)
            done.set()
            await during
        await transaction(b"after")
    if kill:
        await asyncio.to_thread(cluster.start_broker, broker)
    found = [record.value or b"" for records in (await read(cluster, topic)).values() for record in records]
    counts = {label: sum(value.startswith(label) for value in found) for label in (b"before", b"during", b"after")}
    assert counts == {b"before": 30, b"during": {"open": 60, "aborting": 0}.get(state, 30), b"after": 30}
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("state", STATES)
async def test_hands_over(three_brokers: KafkaCluster, state: str) -> None:
    await through_trouble(three_brokers, state, kill=False)


@pytest.mark.parametrize("state", STATES)
async def test_a_transaction_survives_the_kill_of_its_coordinator(three_brokers: KafkaCluster, state: str) -> None:
    await through_trouble(three_brokers, state, kill=True)
