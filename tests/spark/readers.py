"""What stands in topics, read by librdkafka: a client that has nothing in common with the producer."""

from __future__ import annotations

from aioproducer.testing import TopicAdmin
from tests.broker.readers import StoredRecord, read_topic


def read_all(cluster: TopicAdmin, topic: str) -> list[StoredRecord]:
    """Every record that a read_committed reader sees, partition by partition."""
    return [record for records in read_topic(cluster, topic).values() for record in records]


def values(cluster: TopicAdmin, topic: str) -> list[bytes | None]:
    """The values of every record."""
    return [record.value for record in read_all(cluster, topic)]
