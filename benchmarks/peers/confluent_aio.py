"""confluent-kafka's AIOProducer: a future a record."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar

from confluent_kafka.aio import AIOProducer

from benchmarks.payloads import KeyValue
from benchmarks.peers.base import CHUNK_RECORDS, Checks, Ends, Publisher, Sender
from benchmarks.peers.confluent import config


class FuturePublisher(Publisher):
    """``await produce`` a record; the futures are looked at a chunk at a time.

    Delivery reports are handled only with the next batch, in ``poll`` and in ``flush``, from a worker thread. So a
    chunk that is still open is polled for, never awaited: waiting without polling would last until the buffer timeout.
    """

    async def start(self) -> None:
        self.producer = AIOProducer(config(self.settings))
        await self.producer.list_topics(self.settings.topic)

    async def stop(self) -> None:
        await self.producer.close()

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        produce, topic = self.producer.produce, self.settings.topic
        checks: Checks[Any] = Checks(self.failures)
        while chunk := [await produce(topic, value, key) for key, value in islice(records, CHUNK_RECORDS)]:
            await checks.add(chunk)
        await self.producer.flush()
        return await checks.ends()

    async def failures(self, futures: list[Any]) -> int:
        pending = [future for future in futures if not future.done()]
        while pending:
            await self.producer.poll(0.01)
            pending = [future for future in pending if not future.done()]
        return sum(future.exception() is not None for future in futures)


class FutureSender(Sender):
    """``await`` the future that ``await produce`` returns, with AIOProducer's defaults."""

    options: ClassVar[dict[str, Any]] = {}

    async def start(self) -> None:
        self.producer = AIOProducer(config(self.settings), **self.options)

    async def stop(self) -> None:
        await self.producer.close()

    async def send(self, key: bytes, value: bytes) -> None:
        await (await self.producer.produce(self.settings.topic, value, key))


class TunedFutureSender(FutureSender):
    """The same with a buffer that suits 200 waiting tasks."""

    options: ClassVar[dict[str, Any]] = {"batch_size": 50, "buffer_timeout": 0.05}
