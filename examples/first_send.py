"""A first record, acknowledged; then many at once.

Run it with a Kafka at localhost:9092, or set yours: BOOTSTRAP_SERVERS=host:port python examples/first_send.py
"""

import asyncio
import os

from aioproducer import Producer

BOOTSTRAP_SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def main() -> None:
    async with Producer(bootstrap_servers=BOOTSTRAP_SERVERS) as producer:
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


if __name__ == "__main__":
    asyncio.run(main())
