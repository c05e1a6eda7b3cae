"""One call for a file of any size: every line becomes a record, and the result says how all of them ended.

BOOTSTRAP_SERVERS=host:port python examples/send_many.py FILE
"""

import asyncio
import os
import sys
from collections.abc import Iterator

from aioproducer import Producer

BOOTSTRAP_SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


def records(path: str) -> Iterator[tuple[bytes, bytes]]:
    """Lines, with the first word as key; read on demand, as send_many waits while the buffer is full."""
    with open(path, "rb") as file:
        for line in file:
            value = line.rstrip(b"\n")
            yield value.partition(b" ")[0], value


async def main(path: str) -> int:
    async with Producer(bootstrap_servers=BOOTSTRAP_SERVERS) as producer:
        result = await producer.send_many("lines", records(path), raise_on_error=False)
    print(f"{result.acked:,} lines acknowledged, {result.failed:,} failed")
    for partition, ranges in result.offsets.items():
        for first, last in ranges:
            print(f"  partition {partition}: offsets {first} to {last}")
    for number, error in result.errors:
        print(f"  line {number + 1}: {error}")
    return 1 if result.failed else 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(sys.argv[1])))
