"""Like consume_transform_produce.py, with the consumer of aiokafka, which rebalances whenever the program waits."""

import asyncio
import os
import signal
import sys
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener

from aioproducer import KafkaError, Producer
from aioproducer.consumers import aiokafka_group, aiokafka_positions

BOOTSTRAP_SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
INSTANCE = os.environ.get("INSTANCE", "1")
CONFIGS = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}


class TransactionLock(asyncio.Lock, ConsumerRebalanceListener):  # type: ignore[misc]
    """Lets a rebalance wait for the end of the open transaction, as the group would refuse its offsets afterwards."""

    async def on_partitions_revoked(self, revoked: object) -> None:  # pyright: ignore
        async with self:
            pass

    async def on_partitions_assigned(self, assigned: object) -> None:  # pyright: ignore
        pass


async def work(producer: Producer, source: str, target: str, group: str) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP_SERVERS, group_id=group, **CONFIGS)
    consumer.subscribe([source], listener=(lock := TransactionLock()))
    async with consumer:  # it begins at the last committed transaction
        while True:
            batches = await consumer.getmany(timeout_ms=100, max_records=500)
            positions, membership = aiokafka_positions(consumer), aiokafka_group(consumer)  # no await in between
            if batches:
                async with lock, producer.transaction():
                    for each in (each for records in batches.values() for each in records):
                        value = each.value and each.value.upper()  # a tombstone, None, stays one
                        await producer.submit(target, value, key=each.key, partition=each.partition)
                    await producer.send_offsets_to_transaction(positions, membership)


async def main(source: str, target: str, group: str = "upper") -> None:
    async with Producer(bootstrap_servers=BOOTSTRAP_SERVERS, transactional_id=f"{group}-{INSTANCE}") as producer:
        while True:
            try:
                await work(producer, source, target, group)
            except KafkaError as error:
                if error.fatal:  # another process has this INSTANCE, or recovery is impossible
                    raise
                print(f"again from what is committed: {error}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # both cancel what is under way
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
