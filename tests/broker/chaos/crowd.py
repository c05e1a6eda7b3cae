"""Several tasks that send at the same time, each in its own way, and what the topic must contain afterwards."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aioproducer import BufferExhaustedError, Delivery, KafkaError, MetadataUnavailableError, Producer, RecordMetadata
from aioproducer.testing import TopicAdmin
from tests.broker.fixtures import PATIENCE_S
from tests.broker.readers import StoredRecord, read

RECOVERY_S = 50.0
"""Five times the guarantee, which is that records go through again 10 s after the cluster has recovered."""

VALUE_BYTES = 100
KEYS = 50
"""Enough to reach every partition."""


@dataclass(eq=False, slots=True)
class Sent:
    """One record of one worker, and its end."""

    worker: str
    number: int
    place: int = -1
    """Its place among the records of all workers, in the order of admission."""
    metadata: RecordMetadata | None = None
    error: KafkaError | None = None

    @property
    def value(self) -> bytes:
        return f"{self.worker} {self.number}".encode()


class Crowd:
    """Workers of three kinds: one never waits for an acknowledgement, one waits for room, one awaits each record.

    Args:
        pace_s: the pause after each round of a worker.
    """

    def __init__(self, producer: Producer, topic: str, *, pace_s: float) -> None:
        self._producer = producer
        self._topic = topic
        self._pace_s = pace_s
        self._numbers: Counter[str] = Counter()
        self._rng = random.Random(1)
        self.sent: list[Sent] = []
        self.failed: list[Sent] = []
        self.acknowledged = 0
        self._mark = 0
        self._fresh_workers: Counter[str] = Counter()
        self._fresh_partitions: Counter[int] = Counter()
        self.workers: dict[str, Callable[[str], Coroutine[Any, Any, None]]] = {
            "hurried-1": self._hurried,
            "hurried-2": self._hurried,
            "submitting": self._submitting,
            "awaiting-1": self._awaiting,
            "awaiting-2": self._awaiting,
        }

    # --- the workers --------------------------------------------------------------------------------------------------

    async def _hurried(self, worker: str) -> None:
        while True:
            for _ in range(10):
                try:
                    sent = self._next(worker)
                    self._admitted(sent, self._producer.submit_nowait(self._topic, self._value(sent), key=_key(sent)))
                except BufferExhaustedError:
                    await self._producer.ready()
                    break
                except MetadataUnavailableError:
                    await self._producer.partitions_for(self._topic)  # it was deleted, and will be recreated
                    break
            await asyncio.sleep(self._pace_s)

    async def _submitting(self, worker: str) -> None:
        while True:
            sent = self._next(worker)
            self._admitted(sent, await self._producer.submit(self._topic, self._value(sent), key=_key(sent)))
            await asyncio.sleep(self._pace_s)

    async def _awaiting(self, worker: str) -> None:
        while True:
            sent = self._next(worker)
            self._note(sent)
            try:
                metadata = await self._producer.send(self._topic, self._value(sent), key=_key(sent))
            except KafkaError as error:
                self._ended(sent, None, error)
            else:
                self._ended(sent, metadata, None)

    def _next(self, worker: str) -> Sent:
        return Sent(worker, self._numbers[worker])

    def _value(self, sent: Sent) -> bytes:
        padding = self._rng.randbytes(VALUE_BYTES // 2).hex().encode()
        return (sent.value + b" " + padding)[:VALUE_BYTES]

    def _note(self, sent: Sent) -> None:
        sent.place = len(self.sent)
        self._numbers[sent.worker] += 1
        self.sent.append(sent)

    def _admitted(self, sent: Sent, delivery: Delivery) -> None:
        self._note(sent)

        def ended(delivery: Delivery) -> None:
            error = delivery.exception()
            self._ended(sent, None if error else delivery.result(), error)

        delivery.add_done_callback(ended)

    def _ended(self, sent: Sent, metadata: RecordMetadata | None, error: KafkaError | None) -> None:
        sent.metadata, sent.error = metadata, error
        if metadata is None:
            self.failed.append(sent)
            return
        self.acknowledged += 1
        if sent.place >= self._mark:
            self._fresh_workers[sent.worker] += 1
            self._fresh_partitions[metadata.partition] += 1

    # --- for the test -------------------------------------------------------------------------------------------------

    async def recovered(self, partitions: int, *, records: int = 10) -> float:
        """Wait until every worker and partition has that many new records acknowledged; return how long it took."""
        began = time.monotonic()
        self._mark = len(self.sent)
        self._fresh_workers.clear()
        self._fresh_partitions.clear()

        def all_went(counts: Counter[Any], wanted: int) -> bool:
            return len(counts) == wanted and min(counts.values()) >= records

        async with asyncio.timeout(RECOVERY_S):
            while not (
                all_went(self._fresh_workers, len(self.workers)) and all_went(self._fresh_partitions, partitions)
            ):
                await asyncio.sleep(0.005)
        return time.monotonic() - began

    async def struggle(self) -> None:
        """Wait until records have to be retried."""
        before = self._retries()
        async with asyncio.timeout(PATIENCE_S):
            while self._retries() == before:
                await asyncio.sleep(0.002)

    def _retries(self) -> float:
        count: float = self._producer.metrics()["producer-metrics"]["record-retry-total"]
        return count


def _key(sent: Sent) -> bytes:
    return b"%d" % (sent.number % KEYS)


@asynccontextmanager
async def crowd_on(producer: Producer, topic: str, *, pace_s: float = 0.01) -> AsyncIterator[Crowd]:
    """A crowd that sends during the block; at its end every record is acknowledged or failed, all memory free."""
    await producer.partitions_for(topic)
    crowd = Crowd(producer, topic, pace_s=pace_s)
    tasks = [asyncio.create_task(work(worker), name=worker) for worker, work in crowd.workers.items()]
    try:
        yield crowd
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
    async with asyncio.timeout(PATIENCE_S):
        await producer.flush()
    metrics = producer.metrics()["producer-metrics"]
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    # The tasks that awaited a record are cancelled; their last record is still sent, but its outcome is not noted.
    awaited = {sent.value for sent in crowd.sent if sent.worker.startswith("awaiting")}

    def unended() -> list[Sent]:
        return [sent for sent in crowd.sent if sent.metadata is None and sent.error is None]

    async with asyncio.timeout(PATIENCE_S):
        while len(unended()) > 2 or not {sent.value for sent in unended()} <= awaited:
            await asyncio.sleep(0.001)  # the callbacks are scheduled


async def check(cluster: TopicAdmin, topic: str, crowd: Crowd, *, failures: bool = False, since: int = 0) -> None:
    """Every acknowledged record is in the log once, at its offset, in the order of its task; all others failed.

    Args:
        failures: whether records may have failed; those that were certainly not written must not be in the log.
        since: the place of the first record that has to be there; the topic was recreated before it.
    """
    if not failures:
        assert not crowd.failed, crowd.failed[:3]
    stored = await read(cluster, topic)
    where = _places(stored)
    for sent in crowd.sent[since:]:
        if sent.metadata is not None:
            found = where.get(sent.value)
            assert found is not None, f"{sent} was acknowledged and is lost"
            told = sent.metadata.partition, sent.metadata.offset
            assert found == told or told == (found[0], -1), f"{sent} stands at {found}"
        elif sent.error is not None and not sent.error.maybe_written:
            assert sent.value not in where, f"{sent} stands there, and its error said surely not"
    acknowledged = {sent.value for sent in crowd.sent if sent.metadata is not None}
    for partition, records in stored.items():
        last: dict[str, int] = {}
        for record in records:
            value = _told(record)
            worker, number = value.decode().split()
            if value in acknowledged:
                assert int(number) > last.get(worker, -1), f"partition {partition}: {value!r} came after {last[worker]}"
                last[worker] = int(number)


def _told(record: StoredRecord) -> bytes:
    """Worker and number, without the padding."""
    return b" ".join((record.value or b"").split()[:2])


def _places(stored: dict[int, list[StoredRecord]]) -> dict[bytes, tuple[int, int]]:
    where: dict[bytes, tuple[int, int]] = {}
    for records in stored.values():
        for record in records:
            value = _told(record)
            assert value not in where, f"{value!r} stands there twice"
            where[value] = record.partition, record.offset
    return where
