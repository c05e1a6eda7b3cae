"""The records of topics, read by librdkafka: a client that shares no code with the producer."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, TopicPartition

from aioproducer.testing import TopicAdmin
from tests.broker.readers import StoredRecord, read_topic, settled_ends


def read_all(cluster: TopicAdmin, topic: str, *, committed: bool = True) -> list[StoredRecord]:
    """Every record that a read_committed consumer sees, or all records, partition by partition."""
    return [record for records in read_topic(cluster, topic, committed=committed).values() for record in records]


def values(cluster: TopicAdmin, topic: str, *, committed: bool = True) -> list[bytes | None]:
    """The values of every record."""
    return [record.value for record in read_all(cluster, topic, committed=committed)]


def visible_values(cluster: TopicAdmin, topic: str, *, timeout_s: float = 60.0) -> list[bytes | None]:
    """The values that a read_committed consumer gets now: those before the first open transaction."""
    partitions = set(settled_ends(cluster, topic, timeout_s))
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "readers",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: list[bytes | None] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        deadline = time.monotonic() + timeout_s
        while partitions:
            assert time.monotonic() < deadline, f"the ends of {partitions} were not reached"
            for message in consumer.consume(1_000, timeout=0.1):
                error = message.error()
                if error is None:
                    found.append(message.value())
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    partitions.discard(message.partition())
    finally:
        consumer.close()
    return found
