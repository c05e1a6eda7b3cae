"""A first record, acknowledged; then many at once.

It runs as it is, with a Kafka cluster inside its process. With yours: BOOTSTRAP_SERVERS=host:port python first_send.py
"""

import asyncio
import os

from aioproducer import Producer
from aioproducer.testing import FakeCluster


async def publish(bootstrap_servers: str) -> None:
    async with Producer(bootstrap_servers=bootstrap_servers) as producer:
        # send() returns when the brokers have the record, or raises the reason why not.
        metadata = await producer.send(
            "orders", b'{"id": 1, "item": "tea"}', key=b"customer-7", headers=[("trace", b"1")]
        )
        print(f"in {metadata.topic}-{metadata.partition} at offset {metadata.offset}")

        # Concurrent sends share batches: these 100 are a few requests, not 100.
        values = [f'{{"id": {number}, "item": "tea"}}' for number in range(2, 102)]
        results = await asyncio.gather(*(producer.send("orders", value, key="customer-7") for value in values))

        # One key, one partition, in order.
        assert [result.offset for result in results] == sorted(result.offset for result in results)
        print(f"100 more, up to offset {results[-1].offset}")


async def main() -> None:
    if bootstrap_servers := os.environ.get("BOOTSTRAP_SERVERS"):
        await publish(bootstrap_servers)
    else:
        async with FakeCluster() as cluster:
            await publish(cluster.bootstrap_servers)


if __name__ == "__main__":
    asyncio.run(main())
