"""kafka-python: a future a record, and its callback completing a loop future."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from benchmarks.payloads import KeyValue
from benchmarks.peers.base import CHUNK_RECORDS, Checks, Ends, Publisher, Sender, Settings


def producer_for(settings: Settings) -> KafkaProducer:
    """Return the producer with its defaults, except for acks, idempotence and what a bench varies."""
    options: dict[str, Any] = {} if settings.batch_size is None else {"batch_size": settings.batch_size}
    return KafkaProducer(
        bootstrap_servers=settings.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=settings.linger_ms,
        compression_type=None if settings.codec == "none" else settings.codec,
        **options,
    )


async def failures(futures: list[Any]) -> int:
    """Wait for every future, blocking, and count those that failed."""
    failed = 0
    for future in futures:
        try:
            future.get(timeout=60)
        except KafkaError:
            failed += 1
    return failed


class FuturePublisher(Publisher):
    """``send`` a record; the futures are looked at a chunk at a time."""

    async def start(self) -> None:
        self.producer = producer_for(self.settings)
        self.producer.partitions_for(self.settings.topic)

    async def stop(self) -> None:
        self.producer.close()

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        send, topic = self.producer.send, self.settings.topic
        checks: Checks[Any] = Checks(failures)
        while chunk := [send(topic, value, key) for key, value in islice(records, CHUNK_RECORDS)]:
            await checks.add(chunk)
        self.producer.flush()
        return await checks.ends()


class LoopFutureSender(Sender):
    """A loop future a record, completed from kafka-python's sender thread."""

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.producer = producer_for(self.settings)
        self.producer.partitions_for(self.settings.topic)

    async def stop(self) -> None:
        self.producer.close()

    async def send(self, key: bytes, value: bytes) -> None:
        future: asyncio.Future[Any] = self.loop.create_future()
        sent = self.producer.send(self.settings.topic, value, key)
        sent.add_callback(lambda metadata: self.loop.call_soon_threadsafe(future.set_result, metadata))
        sent.add_errback(lambda error: self.loop.call_soon_threadsafe(future.set_exception, error))
        await future
