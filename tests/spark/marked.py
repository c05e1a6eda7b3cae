"""Records with audit marks, written by a producer without an audit."""

from __future__ import annotations

from collections.abc import Sequence

from aioproducer import Producer, Record, RecordMetadata
from aioproducer.audit import Audit
from aioproducer.testing import KafkaCluster


def acknowledged(audit: Audit, topic: str, count: int, partition: int = 0) -> list[Record]:
    """Records whose producer was told that they are in the topic."""
    records = [audit.on_send(Record(b"v", topic=topic, partition=partition)) for _ in range(count)]
    for record in records:
        audit.on_acknowledgement(RecordMetadata(topic, partition, 0, 0, 0, 1), None, record.headers)
    return records


async def close(audit: Audit) -> None:
    """Write the producer's last statement."""
    audit.close()
    await audit.written()


async def write(kafka: KafkaCluster, records: Sequence[Record]) -> None:
    async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        assert records[0].topic is not None
        await producer.send_many(records[0].topic, records)


def source(kafka: KafkaCluster) -> dict[str, str]:
    """The options of Spark's Kafka source."""
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers}
