"""Reads everything back with confluent-kafka, a client that shares no code with this one, and compares."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aioproducer.cli.demo.flights import Flight
from aioproducer.cli.demo.publish import Published
from aioproducer.cli.outcome import SOME_FAILED, CommandError

MESSAGES_A_CALL = 5_000
PATIENCE_S = 30.0
"""Longest wait for the next message while some are missing."""
CHECKS = ("count", "acks", "keys", "values", "timestamps", "order per key")
NOBODY = -1


@dataclass(slots=True)
class Verdict:
    """Number of records that failed each check; all zero is a pass."""

    records: int = 0
    seconds: float = 0.0
    broken: Counter[str] = field(default_factory=Counter)

    @property
    def good(self) -> bool:
        """Whether everything came back as sent."""
        return not self.broken.total()


class Log:
    """The topic according to the acks: the index of the flight at each partition and offset."""

    def __init__(self, published: Published, ends: Sequence[int]) -> None:
        self.clashes = 0
        """Acks without a place in the log, or with a place another ack has named."""
        self._index_at = [array("i", [NOBODY]) * end for end in ends]
        for index, (partition, offset) in enumerate(zip(published.partitions, published.offsets, strict=True)):
            place = self._index_at[partition] if partition < len(ends) else array("i")
            if 0 <= offset < len(place) and place[offset] == NOBODY:
                place[offset] = index
            else:
                self.clashes += 1

    def index(self, partition: int, offset: int) -> int:
        """The flight whose ack names this place; -1 for none."""
        return self._index_at[partition][offset]


class Comparison:
    """Takes a topic's records, in offset order within each partition, and counts errors."""

    def __init__(self, flights: Sequence[Flight], log: Log) -> None:
        self._flights = flights
        self._log = log
        self._last_index: dict[tuple[bytes | None, int], int] = {}
        self._partition_of: dict[bytes, int] = {}
        self.verdict = Verdict()
        self.verdict.broken["acks"] += log.clashes

    def add(self, partition: int, offset: int, key: bytes | None, value: bytes | None, timestamp_ms: int) -> None:
        """Compare one record with the flight whose ack named its place."""
        broken = self.verdict.broken
        self.verdict.records += 1
        index = self._log.index(partition, offset)
        if index == NOBODY:
            broken["acks"] += 1
            return
        flight = self._flights[index]
        if (key, value, timestamp_ms) != flight:
            for check, is_equal in zip(
                ("keys", "values", "timestamps"),
                (key == flight[0], value == flight[1], timestamp_ms == flight[2]),
                strict=True,
            ):
                broken[check] += not is_equal
        self._check_order(partition, key, index)

    def _check_order(self, partition: int, key: bytes | None, index: int) -> None:
        """Check that a key stays in one partition, in order of sending, and keyless records in order per partition."""
        out_of_order = self._last_index.get((key, partition), NOBODY) >= index
        self._last_index[key, partition] = index
        elsewhere = key is not None and self._partition_of.setdefault(key, partition) != partition
        self.verdict.broken["order per key"] += out_of_order or elsewhere


def read_back(
    bootstrap: str, topic: str, flights: Sequence[Flight], published: Published, on_progress: Callable[[int], None]
) -> Verdict:
    """Read the whole topic and compare every record with what was sent and acknowledged.

    Raises:
        CommandError: the topic can't be read to its end.
    """
    from confluent_kafka import Consumer

    start_s = time.perf_counter()
    # librdkafka verifies batch checksums only when told to.
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-read-back",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    try:
        verdict = _compare(consumer, topic, flights, published, on_progress)
    finally:
        consumer.close()
    verdict.seconds = time.perf_counter() - start_s
    return verdict


def _compare(
    consumer: Any, topic: str, flights: Sequence[Flight], published: Published, on_progress: Callable[[int], None]
) -> Verdict:
    ends = _assign_all(consumer, topic)
    comparison = Comparison(flights, Log(published, ends))
    verdict, expected = comparison.verdict, sum(ends)
    verdict.broken["count"] = abs(expected - len(flights))
    heard_s = time.perf_counter()
    while verdict.records < expected:
        messages = consumer.consume(MESSAGES_A_CALL, timeout=0.5)
        for message in messages:
            if message.error() is not None:
                raise CommandError(f"reading back failed: {message.error()}", SOME_FAILED)
            comparison.add(
                message.partition(), message.offset(), message.key(), message.value(), message.timestamp()[1]
            )
        now_s = time.perf_counter()
        heard_s = now_s if messages else heard_s
        if now_s - heard_s > PATIENCE_S:
            raise CommandError(f"reading back stalled after {verdict.records:,} of {expected:,} records", SOME_FAILED)
        on_progress(verdict.records)
    return verdict


def _assign_all(consumer: Any, topic: str) -> list[int]:
    """Read every partition from offset 0; returns the end offset of each."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        partitions = sorted(consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_S)[1]
            for partition in partitions
        ]
    except KafkaException as error:
        raise CommandError(f"reading back failed: {error}", SOME_FAILED) from error
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    return ends
