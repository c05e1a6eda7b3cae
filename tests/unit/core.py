"""Helpers for the tests of the compiled core: making an accumulator, and reading the bytes of a batch."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery import Delivery
from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer._produce import encode_produce_request
from aioproducer._producer_batch import ProducerBatch, TopicQueues
from aioproducer.client_logger import ClientLogger
from aioproducer.errors import KafkaError
from tests.reference import record_batch as reference

TOPIC_ID = bytes(range(16))
UNLIMITED = 1 << 60
T = TypeVar("T")
LOGGER = ClientLogger(logging.getLogger("aioproducer.tests"), "producer-1")


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
    return RecordAccumulator(ledger=ledger, **{"random": random.Random(seed), **usual, **options})


def add_topic(
    accumulator: RecordAccumulator, name: str = "orders", *, leaders: Sequence[int] = (1,), epoch: int = 0
) -> TopicQueues:
    """Make a topic known, with one partition per given leader."""
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
    """Append a record, for which there must be memory."""
    delivery = accumulator.append(topic, partition, key, value, headers, timestamp_ms, now_ms, awaited)
    assert delivery is not None
    return delivery


def drain(
    accumulator: RecordAccumulator, node_id: int = 1, *, now_ms: int = 0, max_bytes: int = UNLIMITED
) -> list[ProducerBatch]:
    """Drain the batches that are ready for a broker, with nothing refused and nothing compressed."""
    batches, unsealed = accumulator.drain(node_id, max_bytes, now_ms, lambda _: True, UNLIMITED)
    assert not unsealed
    return batches


def drain_all(accumulator: RecordAccumulator, node_id: int = 1, *, now_ms: int = 0) -> list[ProducerBatch]:
    """Close and drain all batches, of all requests together."""
    accumulator.close_all()
    drained: list[ProducerBatch] = []
    while batches := drain(accumulator, node_id, now_ms=now_ms):
        drained += batches
    return drained


def end(accumulator: RecordAccumulator, batch: ProducerBatch, offset: int = 0) -> None:
    """Acknowledge a batch."""
    batch.complete(offset, -1)
    accumulator.release(batch)


def batch_bytes(batch: ProducerBatch) -> bytes:
    """The whole batch as sent: a request of the oldest version ends with it."""
    return b"".join(encode_produce_request(3, 0, None, None, -1, 0, [batch]))[-batch.wire_bytes :]


def fail(accumulator: RecordAccumulator, batch: ProducerBatch) -> None:
    """Fail a batch, without counting its failure as unobserved."""
    batch.fail(KafkaError("no"), None, False)
    accumulator.release(batch)


def without_allocation(number: int, work: Callable[[], T]) -> T:
    """Do something while one of Python's allocations fails; not one of the garbage collector's, which tells nobody."""
    testcapi = pytest.importorskip("_testcapi")
    gc.disable()
    testcapi.set_nomemory(number, number + 1)
    try:
        return work()
    finally:
        testcapi.remove_mem_hooks()
        gc.enable()


def allocated_blocks() -> int:
    """Python's allocated blocks after a garbage collection; the collector does not track batches and their results."""
    gc.collect()
    # These caches keep the names that C code makes for its lookups of attributes: asyncio's made one more per task.
    clear_caches = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache  # the newer is of 3.13
    clear_caches()
    return sys.getallocatedblocks()


def numbers(batches: list[ProducerBatch]) -> list[int]:
    """The numbers of the batches, in order of creation."""
    return [batch.serial for batch in batches]


def read(batch: ProducerBatch) -> list[reference.PlainRecord]:
    """The records of an uncompressed batch, read by the slow reference codec."""
    told = reference.decoded(batch_bytes(batch))
    return reference.records_of(told.section, told.records_count, told.base_timestamp)


def split(accumulator: RecordAccumulator, batch: ProducerBatch, *, now_ms: int = 0) -> list[ProducerBatch]:
    """Split an uncompressed batch in flight."""
    return accumulator.split(batch, bytes(batch.contents()), now_ms)


def filled(
    accumulator: RecordAccumulator, count: int, *, size: int = 100, now_ms: int = 0
) -> tuple[ProducerBatch, list[Delivery]]:
    """One batch in flight with that many records; record i has its number in value, key, header and timestamp."""
    topic = accumulator.topic("orders") or add_topic(accumulator)
    deliveries = [
        put(
            accumulator,
            topic,
            f"{i}".encode().ljust(size),
            key=None if i % 2 else b"%d" % i,
            headers=[("i", b"%d" % i)] if i % 3 else None,
            timestamp_ms=1_000_000 + i,
            now_ms=now_ms,
        )
        for i in range(count)
    ]
    (batch,) = drain_all(accumulator, now_ms=now_ms)
    return batch, deliveries


def messages_of(
    caplog: pytest.LogCaptureFixture, logger: str = "aioproducer", level: int = logging.WARNING
) -> list[str]:
    """What a logger and those below it have written, without the client id at the beginning of each line."""
    texts = [
        each.getMessage()
        for each in caplog.records
        if each.levelno >= level and (each.name == logger or each.name.startswith(f"{logger}."))
    ]
    assert all(re.match(r"\[\S+\] ", text) for text in texts)
    return [text.partition("] ")[2] for text in texts]
