"""The mock cluster of librdkafka, a broker that shares no code with Kafka, and takes the format less exactly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from aioproducer import Producer

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

RECORDS = 2_000


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    """The addresses of three brokers."""
    owner = ConfluentProducer({"bootstrap.servers": "unused", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = owner.list_topics(timeout=30).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush()


def read(
    bootstrap_servers: str, topic: str, count: int, *, checks_crcs: bool = True
) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of that many records."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "readers", "check.crcs": checks_crcs})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found = consumer.consume(count, timeout=30)
        assert [message.error() for message in found] == [None] * count
        return [(message.key(), message.value()) for message in found]
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_each_codec(mock_cluster: str, codec: str) -> None:
    topic = f"orders-{codec}"
    sent = [(b"%d" % (number % 7), b"value %d" % number) for number in range(RECORDS)]
    async with Producer(bootstrap_servers=mock_cluster, compression_type=codec) as producer:
        result = await producer.send_many(topic, sent)
    assert result.acked == RECORDS
    assert sorted(await asyncio.to_thread(read, mock_cluster, topic, RECORDS)) == sorted(sent)


async def test_a_transaction(mock_cluster: str) -> None:
    async with Producer(bootstrap_servers=mock_cluster, transactional_id="payments") as producer:
        for number in range(3):
            async with producer.transaction():
                await producer.submit("payments", b"%d" % number)
    # The cluster's own markers of the transactions' ends have no checksums.
    values = [value for _, value in await asyncio.to_thread(read, mock_cluster, "payments", 3, checks_crcs=False)]
    assert sorted(values) == [b"0", b"1", b"2"]
