"""What the tests of the compiled core share: an accumulator with few words, and the bytes of a batch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from aioproducer._accumulator import ProducerBatch, RecordAccumulator, TopicQueues
from aioproducer._delivery import Delivery, DeliveryLedger

TOPIC_ID = bytes(range(16))
UNLIMITED = 1 << 60


def make_accumulator(
    *, loop: asyncio.AbstractEventLoop | None = None, seed: int = 1, **options: Any
) -> RecordAccumulator:
    """An accumulator with the usual sizes; ``options`` replace them."""
    ledger = DeliveryLedger()
    if loop is not None:
        ledger.loop = loop
    usual: dict[str, Any] = {
        "batch_size": 16384,
        "sticky_size": 16384,
        "linger_ms": 5,
        "buffer_memory": 32 << 20,
        "delivery_timeout_ms": 120_000,
        "max_request_size": 1 << 20,
    }
    return RecordAccumulator(ledger=ledger, random=random.Random(seed), **{**usual, **options})


def add_topic(
    accumulator: RecordAccumulator, name: str = "orders", *, leaders: Sequence[int] = (1,), epoch: int = 0
) -> TopicQueues:
    """Make a topic known, one partition a leader."""
    accumulator.update_topic(name, TOPIC_ID, [(leader, epoch) for leader in leaders])
    topic = accumulator.topic(name)
    assert topic is not None
    return topic


def put(
    accumulator: RecordAccumulator,
    topic: TopicQueues,
    value: bytes | None = b"value",
    *,
    key: bytes | None = None,
    partition: int = 0,
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamp_ms: int = 1_700_000_000_000,
    now_ms: int = 0,
    awaited: bool = False,
) -> Delivery:
    """Append a record that must find room."""
    delivery = accumulator.append(topic, partition, key, value, headers, timestamp_ms, now_ms, awaited)
    assert delivery is not None
    return delivery


def drain(
    accumulator: RecordAccumulator, node_id: int = 1, *, now_ms: int = 0, max_bytes: int = UNLIMITED
) -> list[ProducerBatch]:
    """Take what is ready at a broker, with nothing refused and nothing compressed."""
    batches, unsealed = accumulator.drain(node_id, max_bytes, now_ms, lambda _: True, UNLIMITED)
    assert not unsealed
    return batches


def drain_all(accumulator: RecordAccumulator, node_id: int = 1, *, now_ms: int = 0) -> list[ProducerBatch]:
    """Close everything and take it, all requests together."""
    accumulator.close_all(now_ms)
    drained: list[ProducerBatch] = []
    while batches := drain(accumulator, node_id, now_ms=now_ms):
        drained += batches
    return drained


def end(accumulator: RecordAccumulator, batch: ProducerBatch, offset: int = 0) -> None:
    """Acknowledge a batch."""
    batch.complete(offset, -1)
    accumulator.release(batch)


def batch_bytes(batch: ProducerBatch) -> bytes:
    """The whole batch as it goes out."""
    payload = batch.payload()
    return batch.header(payload) + b"".join(payload)
