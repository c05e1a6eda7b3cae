"""A script that publishes many records at full speed and knows at the end what arrived.

BOOTSTRAP_SERVERS=host:port python examples/bulk_script.py [how many]
"""

import asyncio
import json
import os
import sys
import time

from aioproducer import BufferExhaustedError, DeliveryErrors, Producer

BOOTSTRAP_SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


async def publish(producer: Producer, count: int) -> None:
    await producer.partitions_for("measurements")  # submit_nowait() does not wait for the topic
    for number in range(count):
        key, value = f"sensor-{number % 100}", json.dumps({"number": number, "celsius": number % 400 / 10})
        while not submit(producer, key, value):
            await producer.ready()  # waits for room while batches go out
        if number % 256 == 0:
            await producer.ready()  # there is room, but the loop needs its turns
    await producer.flush()  # waits for the last ack; raises DeliveryErrors for all failures


def submit(producer: Producer, key: str, value: str) -> bool:
    """Whether there was room."""
    try:
        producer.submit_nowait("measurements", value, key=key)
    except BufferExhaustedError:
        return False
    return True


async def main(count: int) -> int:
    start = time.perf_counter()
    async with Producer(bootstrap_servers=BOOTSTRAP_SERVERS, compression_type="lz4") as producer:
        try:
            await publish(producer, count)
        except DeliveryErrors as failures:
            print(f"{failures.record_count:,} of {count:,} records failed, first: {failures.exceptions[0]}")
            return 1
    print(f"{count:,} records acknowledged in {time.perf_counter() - start:.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)))
