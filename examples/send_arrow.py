"""Columns to records: rows of a table go from Arrow's buffers to Kafka without becoming Python objects.

BOOTSTRAP_SERVERS=host:port python examples/send_arrow.py [how many]
"""

import asyncio
import os
import sys
import time

import pyarrow as pa

from aioproducer import Producer, SendManyError

BOOTSTRAP_SERVERS = os.environ.get("BOOTSTRAP_SERVERS", "localhost:9092")


def readings(count: int) -> pa.Table:
    """Any library with the Arrow PyCapsule interface works: polars, DuckDB, pandas, ..."""
    numbers = range(count)
    return pa.table(
        {
            "sensor": [f"sensor-{number % 100}" for number in numbers],
            "celsius": [f"{number % 400 / 10}" for number in numbers],
            "measured_at": pa.array(numbers, pa.timestamp("s")),
        }
    )


async def main(count: int) -> int:
    table = readings(count)
    async with Producer(bootstrap_servers=BOOTSTRAP_SERVERS) as producer:
        start = time.perf_counter()
        try:
            result = await producer.send_arrow(
                "readings", table, key="sensor", value="celsius", timestamp="measured_at"
            )
        except SendManyError as failures:
            print(f"{failures.result.acked:,} of {count:,} rows acknowledged: {failures}")
            return 1
        print(f"{result.acked:,} rows acknowledged in {time.perf_counter() - start:.2f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)))
