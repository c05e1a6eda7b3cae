"""Publishes the flights at full speed through the public API, with each record's time of admission and ack."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from aioproducer import BufferExhaustedError, Delivery, KafkaError, Producer
from aioproducer.cli.demo.flights import Flight

RECORDS_A_TURN = 256
"""After this many the loop gets a turn even if there is room for more, so that acks are seen as they arrive."""


@dataclass(slots=True)
class Published:
    """How each flight ended, by index, and what the run cost. Times are seconds since the first record."""

    admitted_s: array[float]
    acked_s: array[float]
    partitions: array[int]
    offsets: array[int]
    errors: list[KafkaError] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time of this process, all threads, meanwhile."""
    payload_bytes: int = 0
    """Keys and values."""
    batch_bytes: int = 0
    """Record batches as sent, compressed, headers included."""
    batches: int = 0


@contextmanager
def _long_lived_objects_set_aside() -> Iterator[None]:
    """Keep the garbage collector from repeatedly traversing all flights and modules, 40 ms each time."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Publisher:
    """Sends flights to a topic and records each acknowledgement.

    Args:
        producer: started; its metrics window (``metrics_sample_window_ms``) must cover the whole run.
        on_progress: called with the number of records acknowledged so far.
    """

    def __init__(
        self, producer: Producer, topic: str, flights: Sequence[Flight], on_progress: Callable[[int], None]
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._flights = flights
        self._on_progress = on_progress
        self._acked = 0
        self._zero_s = 0.0
        count = len(flights)
        self._published = Published(
            admitted_s=array("d", bytes(8 * count)),
            acked_s=array("d", bytes(8 * count)),
            partitions=array("i", bytes(4 * count)),
            offsets=array("q", bytes(8 * count)),
        )

    async def run(self) -> Published:
        """Send all flights, in order, and wait for the last ack."""
        await self._producer.partitions_for(self._topic)
        published = self._published
        with _long_lived_objects_set_aside():
            self._zero_s, cpu_s = time.perf_counter(), time.process_time()
            await self._send_all()
            published.seconds = time.perf_counter() - self._zero_s
            published.cpu_seconds = time.process_time() - cpu_s
        self._on_progress(self._acked)
        self._count_bytes()
        return published

    async def _send_all(self) -> None:
        index = 0
        while index < len(self._flights):
            index = self._submit_from(index)
            self._on_progress(self._acked)
            await self._producer.ready()
        await self._producer.flush()

    def _submit_from(self, index: int) -> int:
        """Submit until the buffer is full or the loop is due a turn; returns the index of the first flight left."""
        clock, submit, admitted_s = time.perf_counter, self._producer.submit_nowait, self._published.admitted_s
        for key, value, timestamp_ms in self._flights[index : index + RECORDS_A_TURN]:
            try:
                delivery = submit(self._topic, value, key=key, timestamp_ms=timestamp_ms)
            except BufferExhaustedError:
                break
            admitted_s[index] = clock() - self._zero_s
            delivery.add_done_callback(partial(self._ended, index))
            index += 1
        return index

    def _ended(self, index: int, delivery: Delivery) -> None:
        published = self._published
        published.acked_s[index] = time.perf_counter() - self._zero_s
        error = delivery.exception()
        if error is None:
            metadata = delivery.result()
            published.partitions[index] = metadata.partition
            published.offsets[index] = metadata.offset
            self._acked += 1
        elif isinstance(error, KafkaError):
            published.errors.append(error)

    def _count_bytes(self) -> None:
        published, metrics = self._published, self._producer.metrics()
        published.payload_bytes = sum(len(key or b"") + len(value) for key, value, _ in self._flights)
        published.batch_bytes = round(metrics["producer-topic-metrics"][self._topic]["byte-total"])
        published.batches = round(published.batch_bytes / metrics["producer-metrics"]["batch-size-avg"])
