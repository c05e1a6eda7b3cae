"""The API of aiokafka's producer, as far as no broker is needed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer._delivery import Delivery
from aioproducer.compat.aiokafka import AIOKafkaProducer
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
