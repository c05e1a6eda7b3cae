"""Records from one topic to another, each exactly once, however often this program is killed and restarted.

INSTANCE=1 BOOTSTRAP_SERVERS=host:port python examples/consume_transform_produce.py SOURCE TARGET [GROUP]
Start several, each with its own INSTANCE. TARGET has as many partitions as SOURCE, and each keeps its order."""

import asyncio
import os
import signal
import sys

from confluent_kafka import Consumer

from aioproducer import KafkaError, Producer
from aioproducer.consumers import confluent_group, confluent_positions

BOOTSTRAP_SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")
INSTANCE = os.environ.get("INSTANCE", "1")
QUICK = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}  # a killed instance is noticed after six seconds


def consumer_of(group: str, topic: str) -> Consumer:
    configs = {"bootstrap.servers": BOOTSTRAP_SERVERS, "group.id": group, "isolation.level": "read_committed"}
    consumer = Consumer(configs | {"enable.auto.commit": False, "auto.offset.reset": "earliest"} | QUICK)
    consumer.subscribe([topic], on_revoke=lambda *_: None)  # so partitions come and go only inside consume()
    return consumer


async def work(producer: Producer, consumer: Consumer, target: str, stop: asyncio.Event) -> None:
    while not stop.is_set():
        messages = await asyncio.to_thread(consumer.consume, 500, 0.1)
        positions, membership = confluent_positions(consumer), confluent_group(consumer)
        for error in filter(None, [each.error() for each in messages]):
            print(f"the consumer goes on: {error}")  # but gets nothing as long as there is no SOURCE, for instance
        if messages := [each for each in messages if each.error() is None]:
            async with producer.transaction():
                for each, value in ((each, each.value()) for each in messages):  # a tombstone, None, stays one
                    await producer.submit(target, value and value.upper(), key=each.key(), partition=each.partition())
                await producer.send_offsets_to_transaction(positions, membership)


async def main(source: str, target: str, group: str = "upper") -> None:
    stop = asyncio.Event()
    async with Producer(bootstrap_servers=BOOTSTRAP_SERVERS, transactional_id=f"{group}-{INSTANCE}") as producer:
        for number in (signal.SIGINT, signal.SIGTERM):  # before, a signal ends the program: there is nothing to finish
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        while not stop.is_set():
            consumer = consumer_of(group, source)  # it begins at the last committed transaction
            try:
                await work(producer, consumer, target, stop)
            except KafkaError as error:
                print(f"again from what is committed: {error}")
                if error.fatal:  # another process has this INSTANCE, or recovery is impossible
                    raise
            finally:
                await asyncio.to_thread(consumer.close)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
