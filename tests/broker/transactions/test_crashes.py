"""A process is killed in each state of its transaction; its successor finds all of its records or none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_name, new_topic, producer_of
from tests.broker.readers import read, read_values
from tests.broker.transactions.processes import program

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

WRITER = Path(__file__).with_name("writer.py")


@pytest.mark.parametrize("state", ["open", "mid-produce", "flushed", "committing", "aborting", "prepared"])
async def test_records_of_a_killed_producer_are_visible_only_if_it_was_committing(
    any_kafka: KafkaCluster, state: str
) -> None:
    """Only if the commit was in progress may the records be visible, and then all of them."""
    topic, name = await new_topic(any_kafka, partitions=3), new_name()
    async with program(WRITER, any_kafka.bootstrap_servers, name, topic, state) as writer:
        await writer.says(state)
        await writer.kill()
    async with producer_of(any_kafka, transactional_id=name) as successor, successor.transaction():
        await successor.send(topic, b"successor", partition=0)
    found = [record.value for records in (await read(any_kafka, topic)).values() for record in records]
    assert found.count(b"successor") == 1
    found.remove(b"successor")
    complete = [b"%d" % number for number in range(300)]
    if state == "committing":
        assert sorted(found, key=int) in ([], complete)  # type: ignore[arg-type]
    else:
        assert found == []


async def test_killed_after_the_commit(any_kafka: KafkaCluster) -> None:
    """Committed records stay."""
    topic, name = await new_topic(any_kafka, partitions=3), new_name()
    async with program(WRITER, any_kafka.bootstrap_servers, name, topic, "committed") as writer:
        await writer.says("committed")
        await writer.kill()
    found = [record.value for records in (await read(any_kafka, topic)).values() for record in records]
    assert sorted(found, key=int) == [b"%d" % number for number in range(300)]  # type: ignore[arg-type]


async def test_a_broker_restart_in_the_middle(fragile_kafka: KafkaCluster) -> None:
    """The transaction continues where it was."""
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka, transactional_id=new_name()) as producer:
        async with producer.transaction():
            await producer.send(topic, b"before")
            await asyncio.to_thread(fragile_kafka.restart, 1)
            await producer.send(topic, b"after")
        async with producer.transaction():
            await producer.send(topic, b"next")
            await asyncio.to_thread(fragile_kafka.kill, 1)
            await asyncio.to_thread(fragile_kafka.start_broker, 1)
    assert await read_values(fragile_kafka, topic) == [b"before", b"after", b"next"]
