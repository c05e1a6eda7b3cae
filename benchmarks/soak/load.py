"""The load: tasks that use the producer in every possible way, and counts of how every record ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aioproducer import BufferExhaustedError, Delivery, KafkaError, MetadataTimeoutError, Producer, RecordMetadata
from benchmarks import payloads

FLAT_OUT_TASKS = 2
SUBMITTING_TASKS = 2
SENDING_TASKS = 16
TASKS = FLAT_OUT_TASKS + SUBMITTING_TASKS + SENDING_TASKS + 3
"""The last three send large records, flush, and create other producers."""
CHUNK_RECORDS = 200
LARGE_VALUE_BYTES = 200_000
LARGE_EVERY_S = 1.0
FLUSH_EVERY_S = 7.0
NEW_PRODUCER_EVERY_S = 5.0
NEW_PRODUCER_RECORDS = 50


@dataclass(slots=True)
class Tally:
    """How the records ended, counted by the program that sent them.

    Attributes:
        accepted: given a Delivery, or admitted and waited for by ``send``.
        unsure: failed ones that may still be in the log.
        refused: never admitted, for lack of memory or metadata; not among the accepted.
        errors: failed records by name of their error.
        producers: number of short-lived producers.
    """

    accepted: int = 0
    acked: int = 0
    failed: int = 0
    unsure: int = 0
    refused: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    producers: int = 0
    _on_end: Callable[[Delivery], None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._on_end = self._ended  # one bound method for all, not one per record

    @property
    def pending(self) -> int:
        """Accepted and not yet ended."""
        return self.accepted - self.acked - self.failed

    def watch(self, delivery: Delivery) -> None:
        """Count a record, and later its end."""
        self.accepted += 1
        delivery.add_done_callback(self._on_end)

    def _ended(self, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            self.acked += 1
        else:
            self.fail(error)

    def fail(self, error: KafkaError) -> None:
        """Count an accepted record as failed."""
        self.failed += 1
        self.unsure += bool(getattr(error, "maybe_written", False))
        self.errors[type(error).__name__] += 1


class Load:
    """Tasks that keep one producer busy with every kind of call until they are stopped.

    Args:
        configs: of the short-lived producers beside the one under load.
    """

    def __init__(self, producer: Producer, topics: list[str], tally: Tally, configs: dict[str, Any]) -> None:
        self._producer = producer
        self._topics = topics
        self._tally = tally
        self._configs = configs
        self._small = payloads.pool(100)
        self._medium = payloads.pool(1_000)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Make every task end after its current step."""
        self._stopping.set()

    async def run(self) -> None:
        """Send until stopped."""
        for topic in self._topics:
            await self._producer.partitions_for(topic)
        async with asyncio.TaskGroup() as tasks:
            for number in range(FLAT_OUT_TASKS):
                tasks.create_task(self._flat_out(self._topic(number)))
            for number in range(SUBMITTING_TASKS):
                tasks.create_task(self._submitting(self._topic(number)))
            for number in range(SENDING_TASKS):
                tasks.create_task(self._sending(self._topic(number), number))
            tasks.create_task(self._large())
            tasks.create_task(self._flushing())
            tasks.create_task(self._coming_and_going())

    def _topic(self, number: int) -> str:
        return self._topics[number % len(self._topics)]

    async def _flat_out(self, topic: str) -> None:
        """The full-speed pattern: plain calls until memory runs short."""
        records = _around(self._small)
        while not self._stopping.is_set():
            try:
                for _ in range(CHUNK_RECORDS):
                    key, value = next(records)
                    self._tally.watch(self._producer.submit_nowait(topic, value, key=key))
            except BufferExhaustedError:
                self._tally.refused += 1
            try:
                await self._producer.ready()
            except BufferExhaustedError:
                continue

    async def _submitting(self, topic: str) -> None:
        """Records without a key, at the pace the buffer allows."""
        for _, value in _around(self._medium):
            if self._stopping.is_set():
                return
            try:
                self._tally.watch(await self._producer.submit(topic, value, headers=[("kind", b"submit")]))
            except (BufferExhaustedError, MetadataTimeoutError):
                self._tally.refused += 1

    async def _sending(self, topic: str, number: int) -> None:
        """A request handler: each record is waited for."""
        for _, value in _around(self._small[number:]):
            if self._stopping.is_set():
                return
            await self._send(self._producer, topic, value)

    async def _send(self, producer: Producer, topic: str, value: bytes) -> RecordMetadata | None:
        try:
            metadata = await producer.send(topic, value)
        except (BufferExhaustedError, MetadataTimeoutError):
            self._tally.refused += 1
        except KafkaError as error:
            self._tally.accepted += 1
            self._tally.fail(error)
        else:
            self._tally.accepted += 1
            self._tally.acked += 1
            return metadata
        return None

    async def _large(self) -> None:
        """Records larger than a block of the pool."""
        value = b"".join(value for _, value in self._medium)[:LARGE_VALUE_BYTES]
        while not await self._stopped_within(LARGE_EVERY_S):
            await self._send(self._producer, self._topic(0), value)

    async def _flushing(self) -> None:
        while not await self._stopped_within(FLUSH_EVERY_S):
            await self._producer.flush()

    async def _coming_and_going(self) -> None:
        """Short-lived producers, like those of a script or a test."""
        while not await self._stopped_within(NEW_PRODUCER_EVERY_S):
            try:
                async with Producer(**self._configs) as producer:
                    topic = self._topic(self._tally.producers)
                    records = (self._send(producer, topic, value) for _, value in self._small[:NEW_PRODUCER_RECORDS])
                    await asyncio.gather(*records)
            except KafkaError as error:  # no broker answered the start in time: no record is lost
                self._tally.errors[f"start: {type(error).__name__}"] += 1
            self._tally.producers += 1

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True


def _around(records: list[payloads.KeyValue]) -> Iterator[payloads.KeyValue]:
    """Cycle endlessly; `itertools.cycle` would keep a copy."""
    while True:
        yield from records
