"""Tests of code that publishes, without a Kafka: what it does when brokers fail.

pytest examples/test_with_faults.py   (after pip install -e .; with pytest-asyncio: -o asyncio_mode=auto)
"""

from typing import Literal

import pytest

from aioproducer import DeliveryTimeoutError, Producer
from aioproducer.errors import PolicyViolationError
from aioproducer.testing import FakeCluster


async def publish_order(producer: Producer, order: bytes) -> str:
    """The code under test."""
    try:
        metadata = await producer.send("orders", order)
    except PolicyViolationError:
        return "refused"
    except DeliveryTimeoutError as error:
        return "perhaps stored" if error.maybe_written else "not stored"
    return f"stored at {metadata.offset}"


async def test_a_moving_leader_is_not_noticed(fake_kafka_cluster: FakeCluster) -> None:
    fake_kafka_cluster.create_topic("orders")
    fault = fake_kafka_cluster.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
    async with Producer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers) as producer:
        assert await publish_order(producer, b"tea") == "stored at 0"
    assert fault.struck == 3
    assert [record.value for record in fake_kafka_cluster.records("orders")] == [b"tea"]


async def test_a_lost_answer_stores_nothing_twice(fake_kafka_cluster: FakeCluster) -> None:
    fake_kafka_cluster.faults.drop("Produce", when="after")
    async with Producer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers) as producer:
        assert await publish_order(producer, b"tea") == "stored at 0"
    assert len(fake_kafka_cluster.records("orders")) == 1


async def test_a_refused_order(fake_kafka_cluster: FakeCluster) -> None:
    fake_kafka_cluster.faults.fail("Produce", "POLICY_VIOLATION", topic="orders")
    async with Producer(bootstrap_servers=fake_kafka_cluster.bootstrap_servers) as producer:
        assert await publish_order(producer, b"tea") == "refused"
        assert await publish_order(producer, b"milk") == "stored at 0"


@pytest.mark.parametrize(("when", "outcome"), [("before", "perhaps stored"), ("after", "perhaps stored")])
async def test_a_silent_broker(fake_kafka_cluster: FakeCluster, when: Literal["before", "after"], outcome: str) -> None:
    fake_kafka_cluster.faults.swallow("Produce", when=when, times=None)
    servers = fake_kafka_cluster.bootstrap_servers
    producer = Producer(bootstrap_servers=servers, request_timeout_ms=200, delivery_timeout_ms=500, linger_ms=0)
    async with producer:
        assert await publish_order(producer, b"tea") == outcome
