"""The records of a topic, read by a client that shares no code with the producer: librdkafka."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from aioproducer.protocol.list_transactions import ListTransactionsRequest
from aioproducer.testing import TopicAdmin

LOG_APPEND_TIME = 2
"""librdkafka's number for a timestamp that the broker gave."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as a consumer gets it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    timestamp_type: int


def read_topic(
    cluster: TopicAdmin, topic: str, *, timeout_s: float = 60.0, committed: bool = True
) -> dict[int, list[StoredRecord]]:
    """Every record of a topic by partition, in the order of the log; empty partitions are included.

    Args:
        committed: leave out the records of open and aborted transactions.
    """
    ends = settled_ends(cluster, topic, timeout_s) if committed else cluster.end_offsets(topic)
    found: dict[int, list[StoredRecord]] = {partition: [] for partition in ends}
    open_ends = {partition for partition, end in ends.items() if end}
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 10,
            "fetch.message.max.bytes": 20_000_000,
            "fetch.max.bytes": 60_000_000,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in open_ends])
        deadline = time.monotonic() + timeout_s
        while open_ends:
            for message in consumer.consume(5_000, timeout=0.05):
                error = message.error()
                if error is None:
                    found[message.partition()].append(_stored(message))
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                else:
                    # A transaction's end marker is not a record, so what counts is reaching the end of the log.
                    open_ends.discard(message.partition()) if message.offset() >= ends[message.partition()] else None
            if time.monotonic() > deadline:
                counts = {partition: len(records) for partition, records in found.items()}
                raise TimeoutError(f"topic {topic}: read {counts} of {ends} within {timeout_s} s")
    finally:
        consumer.close()
    return found


def settled_ends(cluster: TopicAdmin, topic: str, timeout_s: float) -> dict[int, int]:
    """The end offsets for read_committed consumers, once no transaction is in the middle of ending.

    A coordinator answers EndTxn once it has stored the decision, and writes the partitions' markers afterwards.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        ends = cluster.end_offsets(topic, committed=True)
        if ends == cluster.end_offsets(topic):
            return ends
        if not any(_is_ending(cluster, broker) for broker in cluster.running):
            return cluster.end_offsets(topic, committed=True)
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {topic}: a transaction is still ending after {timeout_s} s")
        time.sleep(0.01)


def _is_ending(cluster: TopicAdmin, broker: int) -> bool:
    states = ["PrepareCommit", "PrepareAbort"]
    return bool(cluster.ask(ListTransactionsRequest(state_filters=states), broker=broker).transaction_states)


async def read(
    cluster: TopicAdmin, topic: str, *, timeout_s: float = 60.0, committed: bool = True
) -> dict[int, list[StoredRecord]]:
    """`read_topic` for coroutines."""
    return await asyncio.to_thread(read_topic, cluster, topic, timeout_s=timeout_s, committed=committed)


async def read_values(
    cluster: TopicAdmin, topic: str, partition: int = 0, *, committed: bool = True
) -> list[bytes | None]:
    """The values of one partition in the order of the log."""
    return [record.value for record in (await read(cluster, topic, committed=committed))[partition]]


def _stored(message: object) -> StoredRecord:
    kind, timestamp_ms = message.timestamp()  # type: ignore[attr-defined]
    return StoredRecord(
        partition=message.partition(),  # type: ignore[attr-defined]
        offset=message.offset(),  # type: ignore[attr-defined]
        key=message.key(),  # type: ignore[attr-defined]
        value=message.value(),  # type: ignore[attr-defined]
        headers=tuple(message.headers() or ()),  # type: ignore[attr-defined]
        timestamp_ms=timestamp_ms,
        timestamp_type=kind,
    )
