"""aiokafka: a future per record, a future per batch, and send_and_wait."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from benchmarks.payloads import KeyValue
from benchmarks.peers.base import CHUNK_RECORDS, Checks, Ends, Publisher, Sender, Settings


def producer_for(settings: Settings, **options: Any) -> AIOKafkaProducer:
    """Return the producer with its defaults, except for acks, idempotence and what a bench varies."""
    if settings.batch_size is not None:
        options["max_batch_size"] = settings.batch_size
    if settings.ca_pem:
        options |= {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(cadata=settings.ca_pem)}
    return AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=settings.linger_ms,
        compression_type=None if settings.codec == "none" else settings.codec,
        **options,
    )


async def failures(futures: list[Any]) -> int:
    """Await every future and count those that failed."""
    failed = 0
    for future in futures:
        try:
            await future
        except KafkaError:
            failed += 1
    return failed


class FuturePublisher(Publisher):
    """``await send`` a record; the futures are awaited a chunk at a time."""

    async def start(self) -> None:
        self.producer = producer_for(self.settings)
        await self.producer.start()

    async def stop(self) -> None:
        await self.producer.stop()

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        send, topic = self.producer.send, self.settings.topic
        checks: Checks[Any] = Checks(failures)
        while chunk := [await send(topic, value, key) for key, value in islice(records, CHUNK_RECORDS)]:
            await checks.add(chunk)
        await self.producer.flush()
        return await checks.ends()


class BatchPublisher(FuturePublisher):
    """``create_batch``, ``append``, ``send_batch`` to one partition after another: a future a batch, no key hashed."""

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        producer, topic = self.producer, self.settings.topic
        partitions = cycle(sorted(await producer.partitions_for(topic)))
        sent: list[tuple[Any, int]] = []
        batch = producer.create_batch()
        for key, value in records:
            if batch.append(key=key, value=value, timestamp=None) is None:
                sent.append((await producer.send_batch(batch, topic, partition=next(partitions)), batch.record_count()))
                batch = producer.create_batch()
                batch.append(key=key, value=value, timestamp=None)
        if batch.record_count():
            sent.append((await producer.send_batch(batch, topic, partition=next(partitions)), batch.record_count()))
        await producer.flush()
        failed = sum([count for future, count in sent if await failures([future])])
        return Ends(sum(count for _, count in sent) - failed, failed)


class AwaitingSender(Sender):
    """``await send_and_wait``."""

    async def start(self) -> None:
        self.producer = producer_for(self.settings)
        await self.producer.start()

    async def stop(self) -> None:
        await self.producer.stop()

    async def send(self, key: bytes, value: bytes) -> None:
        await self.producer.send_and_wait(self.settings.topic, value, key)


class TransactionSender(AwaitingSender):
    """A transaction a record."""

    async def start(self) -> None:
        self.producer = producer_for(self.settings, transactional_id=self.settings.topic)
        await self.producer.start()

    async def send(self, key: bytes, value: bytes) -> None:
        async with self.producer.transaction():
            await self.producer.send(self.settings.topic, value, key)
