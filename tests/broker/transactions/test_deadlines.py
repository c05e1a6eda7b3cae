"""No transaction call takes longer than max_block_ms, and one that timed out can be repeated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from aioproducer import ConsumerGroupMetadata, Producer, TopicPartition, TransactionTimeoutError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic, producer_of
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

MAX_BLOCK_MS = 2_000
SOON_S = 5 * MAX_BLOCK_MS / 1000

CALLS: dict[str, Callable[[Producer, str], Awaitable[object]]] = {
    "commit": lambda producer, _: producer.commit_transaction(),
    "abort": lambda producer, _: producer.abort_transaction(),
    "offsets": lambda producer, topic: producer.send_offsets_to_transaction(
        {TopicPartition(topic, 0): 1}, ConsumerGroupMetadata("group")
    ),
}


@asynccontextmanager
async def started(cluster: KafkaCluster, transactional_id: str) -> AsyncIterator[Producer]:
    """A producer with a short max_block_ms, once the coordinator is available."""
    async with producer_of(cluster, transactional_id=transactional_id):
        pass
    producer = producer_of(cluster, transactional_id=transactional_id, max_block_ms=MAX_BLOCK_MS)
    await again_and_again(lambda producer, _: producer.start(), producer, "")
    try:
        yield producer
    finally:
        await producer.close()


async def again_and_again(call: Callable[[Producer, str], Awaitable[object]], producer: Producer, topic: str) -> None:
    """Repeat the same call until it succeeds, however slow the broker is."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await call(producer, topic)
                return
            except TransactionTimeoutError:
                continue


@pytest.mark.parametrize("name", CALLS)
async def test_a_broker_that_stands_still(fragile_kafka: KafkaCluster, name: str) -> None:
    topic, call = await new_topic(fragile_kafka), CALLS[name]
    async with started(fragile_kafka, new_name()) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"x")
        fragile_kafka.pause(1)
        began = time.monotonic()
        with pytest.raises(TransactionTimeoutError, match="max_block_ms") as caught:
            await call(producer, topic)
        assert time.monotonic() - began < SOON_S
        assert caught.value.retriable
        fragile_kafka.resume(1)
        await again_and_again(call, producer, topic)
        if name == "offsets":
            await again_and_again(CALLS["commit"], producer, topic)
        await producer.begin_transaction()
        await producer.send(topic, b"next")
        await again_and_again(CALLS["commit"], producer, topic)
    assert await read_values(fragile_kafka, topic) == ([b"next"] if name == "abort" else [b"x", b"next"])


async def test_closing_while_the_broker_stands_still(fragile_kafka: KafkaCluster) -> None:
    """The abort is given up, and the coordinator aborts after transaction_timeout_ms, or for the next producer."""
    topic, transactional_id = await new_topic(fragile_kafka), new_name()
    async with started(fragile_kafka, transactional_id) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"x")
        fragile_kafka.pause(1)
        began = time.monotonic()
    assert time.monotonic() - began < SOON_S
    fragile_kafka.resume(1)
    async with producer_of(fragile_kafka, transactional_id=transactional_id) as next_one, next_one.transaction():
        await next_one.send(topic, b"next")
    assert await read_values(fragile_kafka, topic) == [b"next"]
