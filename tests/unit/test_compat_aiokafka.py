"""The API of aiokafka's producer, as far as no broker is needed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer._delivery import Delivery
from aioproducer.compat.aiokafka import AIOKafkaProducer
from aioproducer.testing import FakeCluster
from tests.unit.core import end, filled, make_accumulator

pytestmark = pytest.mark.usefixtures("clean_loop")


async def test_a_batch_ends_with_the_record_that_ends_last() -> None:
    """An abort drops unsent records before those in flight have ended."""
    accumulator = make_accumulator(loop=asyncio.get_running_loop())
    first, (early,) = filled(accumulator, 1)
    second, (late,) = filled(accumulator, 1)
    deliveries = iter((early, late))

    async def submit(*_: Any, **__: Any) -> Delivery:
        return next(deliveries)

    producer: Any = AIOKafkaProducer(bootstrap_servers="unused:1")
    producer.native = SimpleNamespace(submit=submit)
    batch = producer.create_batch()
    for value in (b"early", b"late"):
        batch.append(timestamp=None, key=None, value=value)
    future = await producer.send_batch(batch, "orders", partition=0)
    end(accumulator, second, 8)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not future.done()
    end(accumulator, first, 7)
    async with asyncio.timeout(1):
        assert (await future).offset == 7


async def test_a_batch_that_fails_after_its_future_was_cancelled(fake_kafka_cluster: FakeCluster) -> None:
    """As in aiokafka, neither flush nor stop raises the failure."""
    fake_kafka_cluster.create_topic("orders")
    fake_kafka_cluster.faults.fail("Produce", 29)
    async with AIOKafkaProducer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, linger_ms=60_000, request_timeout_ms=60_000
    ) as producer:
        batch = producer.create_batch()
        for value in (b"1", b"2"):
            batch.append(timestamp=None, key=None, value=value)
        future = await producer.send_batch(batch, "orders", partition=0)
        future.cancel()
        await producer.flush()
        failed = producer.native.metrics()["producer-metrics"]["record-error-total"]
    assert failed == 2
