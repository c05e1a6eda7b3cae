"""confluent-kafka's synchronous Producer: delivery callbacks, and the same under asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import cycle, islice

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from benchmarks.payloads import KeyValue
from benchmarks.peers.base import CHUNK_RECORDS, Ends, Publisher, Sender, Settings


def config(settings: Settings) -> dict[str, str | int | bool]:
    """Return librdkafka's configuration: its defaults, plus murmur2 like all other clients here."""
    values: dict[str, str | int | bool] = {
        "bootstrap.servers": settings.bootstrap,
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": settings.linger_ms,
        "compression.type": settings.codec,
        "partitioner": "murmur2_random",
    }
    if settings.batch_size is not None:
        values["batch.size"] = settings.batch_size
    if settings.ca_pem:
        values |= {"security.protocol": "ssl", "ssl.ca.pem": settings.ca_pem}
    return values


class CallbackPublisher(Publisher):
    """``produce(on_delivery=...)``, ``poll(0)`` after each record, ``flush`` at the end."""

    async def start(self) -> None:
        self.producer = Producer(config(self.settings))
        self.producer.list_topics(self.settings.topic, timeout=30)

    async def stop(self) -> None:
        self.producer.flush(30)

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        produce, poll, topic = self.producer.produce, self.producer.poll, self.settings.topic
        acked = failed = 0

        def ended(error: KafkaError | None, message: Message) -> None:
            nonlocal acked, failed
            if error is None:
                acked += 1
            else:
                failed += 1

        for key, value in records:
            try:
                produce(topic, value, key, on_delivery=ended)
            except BufferError:  # queue full: let deliveries end, as the documentation says
                while len(self.producer) > 50_000:
                    poll(0.1)
                produce(topic, value, key, on_delivery=ended)
            poll(0)
        self.producer.flush(120)
        return Ends(acked, failed)


class TopicsPublisher(CallbackPublisher):
    """The same, to one topic after the other."""

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        produce, poll, names = self.producer.produce, self.producer.poll, cycle(self.settings.topic_names())
        acked = failed = 0

        def ended(error: KafkaError | None, message: Message) -> None:
            nonlocal acked, failed
            if error is None:
                acked += 1
            else:
                failed += 1

        for (key, value), topic in zip(records, names, strict=False):
            try:
                produce(topic, value, key, on_delivery=ended)
            except BufferError:
                while len(self.producer) > 50_000:
                    poll(0.1)
                produce(topic, value, key, on_delivery=ended)
            poll(0)
        self.producer.flush(120)
        return Ends(acked, failed)


class BatchPublisher(CallbackPublisher):
    """``produce_batch`` with one delivery callback, a chunk at a time; what did not fit goes again."""

    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        produce_batch, poll, topic = self.producer.produce_batch, self.producer.poll, self.settings.topic
        acked = failed = 0

        def ended(error: KafkaError | None, message: Message) -> None:
            nonlocal acked, failed
            if error is None:
                acked += 1
            else:
                failed += 1

        while chunk := [{"value": value, "key": key} for key, value in islice(records, CHUNK_RECORDS)]:
            while chunk:
                produce_batch(topic, chunk, on_delivery=ended)
                chunk = [message for message in chunk if message.pop("_error", None) is not None]
                poll(0.1 if chunk else 0)
        self.producer.flush(120)
        return Ends(acked, failed)


class LoopFutureSender(Sender):
    """A loop future a record, completed from the thread that polls."""

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.producer = Producer(config(self.settings))
        self.stopping = False
        self.poller = threading.Thread(target=self.poll, name="confluent-poll", daemon=True)
        self.poller.start()

    def poll(self) -> None:
        while not self.stopping:
            self.producer.poll(0.1)

    async def stop(self) -> None:
        self.stopping = True
        self.poller.join()
        self.producer.flush(30)

    async def send(self, key: bytes, value: bytes) -> None:
        future: asyncio.Future[None] = self.loop.create_future()

        def ended(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.loop.call_soon_threadsafe(future.set_result, None)
            else:
                self.loop.call_soon_threadsafe(future.set_exception, KafkaException(error))

        self.producer.produce(self.settings.topic, value, key, on_delivery=ended)
        await future


class TransactionSender(Sender):
    """A transaction a record; the calls block the thread, so it has no other task."""

    async def start(self) -> None:
        self.producer = Producer(config(self.settings) | {"transactional.id": self.settings.topic})
        self.producer.init_transactions()

    async def stop(self) -> None:
        self.producer.flush(30)

    async def send(self, key: bytes, value: bytes) -> None:
        self.producer.begin_transaction()
        self.producer.produce(self.settings.topic, value, key)
        self.producer.commit_transaction()
