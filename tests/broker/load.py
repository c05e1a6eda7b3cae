"""A producer that sends while its brokers fail, and the check that nothing was lost, duplicated or reordered."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aioproducer import BufferExhaustedError, Delivery, KafkaError, Producer
from aioproducer.testing import KafkaCluster, TopicAdmin
from tests.broker.fixtures import PATIENCE_S
from tests.broker.readers import read

PAUSE_S = 0.003
"""Enough for some 5,000 records a second; more would take from the brokers, and from other tests, their processor."""


class Load:
    """Numbered records, sent by one task until it is cancelled; other tasks await some of them.

    Args:
        pace: records between two pauses.
    """

    def __init__(self, producer: Producer, topic: str, *, pace: int = 20, value_bytes: int = 200) -> None:
        self._producer = producer
        self._topic = topic
        self._pace = pace
        self._padding = b"." * value_bytes
        self.deliveries: list[Delivery] = []
        self.acknowledged = 0

    async def run(self) -> None:
        """Send until cancelled; wait while the buffer is full."""
        await self._producer.partitions_for(self._topic)
        while True:
            for _ in range(self._pace):
                self._submit()
            try:
                await self._producer.ready()
            except BufferExhaustedError:
                continue
            await asyncio.sleep(PAUSE_S)

    def _submit(self) -> None:
        number = len(self.deliveries)
        try:
            # Keys give every partition its share, so that no broker is idle.
            value = b"%d %b" % (number, self._padding)
            delivery = self._producer.submit_nowait(self._topic, value, key=b"%d" % (number % 20))
        except BufferExhaustedError:
            return
        delivery.add_done_callback(self._ended)
        self.deliveries.append(delivery)

    def _ended(self, delivery: Delivery) -> None:
        self.acknowledged += delivery.exception() is None

    async def struggle(self) -> None:
        """Wait until records have to be retried."""
        before = self._retries()
        async with asyncio.timeout(PATIENCE_S):
            while self._retries() == before:
                await asyncio.sleep(0.001)

    def _retries(self) -> float:
        count: float = self._producer.metrics()["producer-metrics"]["record-retry-total"]
        return count

    async def advance(self, records: int = 500) -> None:
        """Wait until that many more records are acknowledged."""
        goal = self.acknowledged + records
        async with asyncio.timeout(PATIENCE_S):
            while self.acknowledged < goal:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def load_on(producer: Producer, topic: str, *, pace: int = 20, value_bytes: int = 200) -> AsyncIterator[Load]:
    """A load that runs during the block; at its end every record is acknowledged or failed."""
    load = Load(producer, topic, pace=pace, value_bytes=value_bytes)
    task = asyncio.create_task(load.run())
    try:
        yield load
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()
    async with asyncio.timeout(PATIENCE_S):
        await producer.flush()


async def check_exactly_once(cluster: TopicAdmin, topic: str, load: Load) -> None:
    """Every record was acknowledged and is in the log once, at the offset it was given, in order of admission."""
    failed = [error for delivery in load.deliveries if (error := delivery.exception()) is not None]
    assert not failed, failed[:3]
    expected: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for number, delivery in enumerate(load.deliveries):
        metadata = delivery.result()
        expected[metadata.partition].append((metadata.offset, b"%d" % number))
    stored = await read(cluster, topic)
    for partition, records in stored.items():
        found = [(one.offset, (one.value or b"").split()[0]) for one in records]
        wrong = next((pair for pair in zip(found, expected[partition], strict=False) if pair[0] != pair[1]), None)
        assert wrong is None, f"partition {partition}: found, expected = {wrong}"
        assert len(found) == len(expected[partition])


async def check_log(cluster: KafkaCluster, topic: str, partitions: int = 1) -> None:
    """Kafka finds every batch valid, and no sequence of an epoch is missing or duplicated."""
    for partition in range(partitions):
        dump = await asyncio.to_thread(cluster.dump_log_segments, topic, partition)
        assert not dump.problems
        expected: dict[tuple[int, int], int] = {}
        for batch in dump.batches:
            state = (batch.producer_id, batch.producer_epoch)
            assert batch.base_sequence == expected.get(state, 0), (partition, batch.line)
            expected[state] = batch.last_sequence + 1
        for producer_id in {producer_id for producer_id, _ in expected}:
            epochs = [epoch for one, epoch in expected if one == producer_id]
            assert epochs == sorted(epochs)


async def outcome(delivery: Delivery) -> KafkaError | None:
    """A record's error, or None if it was acknowledged."""
    try:
        await delivery
    except KafkaError as error:
        return error
    return None
