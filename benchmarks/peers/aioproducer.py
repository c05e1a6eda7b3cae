"""aioproducer: submit_nowait with ready, await submit, send_many, send_arrow, await send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import cycle, islice
from typing import TYPE_CHECKING

from aioproducer import BufferExhaustedError, Delivery, KafkaError, Producer
from benchmarks.payloads import KeyValue
from benchmarks.peers.base import CHUNK_RECORDS, Checks, Ends, Publisher, Sender, Settings

if TYPE_CHECKING:
    import pyarrow

DEFAULT_LINGER_MS = 5
"""Not set explicitly if requested: the default does more than its number says, see docs/configuration.md."""


def producer_for(settings: Settings, **configs: object) -> Producer:
    """Return the producer with its defaults (acks=all, idempotence on), except for what a bench varies."""
    configs["compression_type"] = settings.codec
    if settings.linger_ms != DEFAULT_LINGER_MS:
        configs["linger_ms"] = settings.linger_ms
    if settings.batch_size is not None:
        configs["batch_size"] = settings.batch_size
    if settings.ca_pem:
        configs |= {"security_protocol": "SSL", "ssl_truststore_certificates": settings.ca_pem}
    return Producer(bootstrap_servers=settings.bootstrap, **configs)


async def failures(deliveries: list[Delivery]) -> int:
    """Await every Delivery and count those that failed."""
    failed = 0
    for delivery in deliveries:
        try:
            await delivery
        except KafkaError:
            failed += 1
    return failed


class DeliveryPublisher(Publisher):
    """Start, stop and bookkeeping, shared by both ways of submitting."""

    async def start(self) -> None:
        self.producer = producer_for(self.settings)
        await self.producer.start()
        names = self.settings.topic_names()
        await asyncio.gather(*map(self.producer.partitions_for, names))  # submit_nowait needs known topics

    async def stop(self) -> None:
        await self.producer.close()


class SubmitNowait(DeliveryPublisher):
    """A plain call a record; ``ready()`` when the buffer is full, and once a chunk to give the loop a turn."""

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        submit, ready, topic = self.producer.submit_nowait, self.producer.ready, self.settings.topic
        checks: Checks[Delivery] = Checks(failures)
        chunk: list[Delivery] = []
        for key, value in records:
            while True:
                try:
                    chunk.append(submit(topic, value, key=key))
                    break
                except BufferExhaustedError:
                    await ready()
            if len(chunk) == CHUNK_RECORDS:
                await ready()
                await checks.add(chunk)
                chunk = []
        await self.producer.flush()
        await checks.add(chunk)
        return await checks.ends()


class Submit(DeliveryPublisher):
    """``await submit`` a record, in one task."""

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        submit, topic = self.producer.submit, self.settings.topic
        checks: Checks[Delivery] = Checks(failures)
        while chunk := [await submit(topic, value, key=key) for key, value in islice(records, CHUNK_RECORDS)]:
            await checks.add(chunk)
        await self.producer.flush()
        return await checks.ends()


class SubmitToTopics(DeliveryPublisher):
    """``await submit`` a record, to one topic after the other."""

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        submit, names = self.producer.submit, cycle(self.settings.topic_names())
        checks: Checks[Delivery] = Checks(failures)
        while chunk := [
            await submit(topic, value, key=key)
            for (key, value), topic in zip(islice(records, CHUNK_RECORDS), names, strict=False)
        ]:
            await checks.add(chunk)
        await self.producer.flush()
        return await checks.ends()


class SubmitNowaitToTopics(DeliveryPublisher):
    """A plain call a record, to one topic after the other."""

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        submit, ready, names = self.producer.submit_nowait, self.producer.ready, cycle(self.settings.topic_names())
        checks: Checks[Delivery] = Checks(failures)
        chunk: list[Delivery] = []
        for (key, value), topic in zip(records, names, strict=False):
            while True:
                try:
                    chunk.append(submit(topic, value, key=key))
                    break
                except BufferExhaustedError:
                    await ready()
            if len(chunk) == CHUNK_RECORDS:
                await ready()
                await checks.add(chunk)
                chunk = []
        await self.producer.flush()
        await checks.add(chunk)
        return await checks.ends()


class SendMany(DeliveryPublisher):
    """One ``await send_many`` for all."""

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        result = await self.producer.send_many(self.settings.topic, records, raise_on_error=False)
        return Ends(result.acked, result.failed)


class SendArrow(DeliveryPublisher):
    """One ``await send_arrow`` for all, from a stream of the pool's record batch, which is made in the warm-up."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._pool: list[KeyValue] = []
        self._batch: pyarrow.RecordBatch | None = None

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        pool = list(records)
        return await self.publish_pool(pool, len(pool))

    async def publish_pool(self, pool: list[KeyValue], records: int) -> Ends:
        import pyarrow  # only this way needs it

        if self._batch is None or self._pool is not pool:
            self._pool, self._batch = pool, record_batch(pool)
        batch = self._batch
        batches = (batch.slice(0, records - start) for start in range(0, records, len(pool)))
        reader = pyarrow.RecordBatchReader.from_batches(batch.schema, batches)
        result = await self.producer.send_arrow(self.settings.topic, reader, raise_on_error=False)
        return Ends(result.acked, result.failed)


def record_batch(pool: list[KeyValue]) -> pyarrow.RecordBatch:
    """The records as columns."""
    import pyarrow

    columns = {"key": [key for key, _ in pool], "value": [value for _, value in pool]}
    return pyarrow.record_batch({name: pyarrow.array(column, pyarrow.binary()) for name, column in columns.items()})


class Send(Sender):
    """``await send``: acknowledged when it returns."""

    async def start(self) -> None:
        self.producer = producer_for(self.settings)
        await self.producer.start()

    async def stop(self) -> None:
        await self.producer.close()

    async def send(self, key: bytes, value: bytes) -> None:
        await self.producer.send(self.settings.topic, value, key=key)


class TransactionSender(Send):
    """A transaction a record: ``submit`` in a ``transaction()`` block."""

    async def start(self) -> None:
        self.producer = producer_for(self.settings, transactional_id=self.settings.topic)
        await self.producer.start()

    async def send(self, key: bytes, value: bytes) -> None:
        async with self.producer.transaction():
            await self.producer.submit(self.settings.topic, value, key=key)
