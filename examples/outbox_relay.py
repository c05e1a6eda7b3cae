"""Rows of an outbox table to Kafka, each exactly once, however often this program is killed and restarted.

python examples/outbox_relay.py shop.db     or postgresql://me@host/shop (needs psycopg). See BOOTSTRAP_SERVERS; RELAY
names the relay, another one for each table. A service writes into outbox(id ascending, topic, key, payload) in the SQL
transaction of its own data. The next row's id is committed with the records, as a consumer group's position in a topic.
"""

import asyncio
import os
import sqlite3
import sys
from contextlib import suppress
from typing import Any

import confluent_kafka

from aioproducer import ConsumerGroupMetadata, Producer, TopicPartition

BOOTSTRAP_SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
GROUP, PROGRESS = ConsumerGroupMetadata(os.environ.get("RELAY", "outbox-relay")), TopicPartition("outbox-progress", 0)


def rows_from(database: Any, first: int) -> list[tuple[int, str, str, str]]:
    if not isinstance(database, sqlite3.Connection):  # wait for writers, so that no lower id appears later
        database.execute("LOCK TABLE outbox IN SHARE MODE")
    found = database.execute(f"SELECT id, topic, key, payload FROM outbox WHERE id >= {first} ORDER BY id LIMIT 500")
    rows = list(found)
    database.commit()
    return rows


def next_row() -> int:
    with confluent_kafka.Consumer({"bootstrap.servers": BOOTSTRAP_SERVERS, "group.id": GROUP.group_id}) as consumer:
        while True:
            with suppress(confluent_kafka.KafkaException):  # the coordinator may be starting or moving
                return max(consumer.committed([confluent_kafka.TopicPartition(*PROGRESS)], timeout=60)[0].offset, 0)


async def main(database: Any) -> None:
    async with Producer(bootstrap_servers=BOOTSTRAP_SERVERS, transactional_id=GROUP.group_id) as producer:
        await producer.partitions_for(PROGRESS.topic)
        first = await asyncio.to_thread(next_row)  # only now: an earlier relay is fenced, and its transaction has ended
        while True:
            rows = await asyncio.to_thread(rows_from, database, first)
            first = rows[-1][0] + 1 if rows else first
            async with producer.transaction():  # no request if it stays empty
                for _, topic, key, payload in rows:
                    await producer.submit(topic, payload, key=key)
                await producer.send_offsets_to_transaction({PROGRESS: first} if rows else {}, GROUP)
            await asyncio.sleep(0 if rows else 0.1)


if __name__ == "__main__":
    if "://" in sys.argv[1]:
        import psycopg

        asyncio.run(main(psycopg.connect(sys.argv[1])))
    else:
        asyncio.run(main(sqlite3.connect(sys.argv[1], check_same_thread=False)))
