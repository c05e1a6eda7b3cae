"""The event loop is never blocked for long, whatever the codec and the call: no turn takes much CPU time.

The CPU time of the loop's own thread is measured, so that neither the fake cluster's thread nor other programs
count. Compressing a batch of these in one step, or encoding all records, would take several times what is allowed here;
`python -m benchmarks --only loop` measures how much less it is.

That time includes the kernel's for new memory: up to 3,000 pages in a turn, 4 ms, but ten times as much where a virtual
machine's host has taken the memory back. So a long turn has to come again in each of five attempts.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from aioproducer import Producer
from aioproducer.testing import FakeCluster

RECORDS, OF_GZIP = 40_000, 8_000
ATTEMPTS = 5
LONGEST_MS = 25
"""Five times the guarantee; all records at once, or a gzip batch, take longer."""


def values(count: int) -> Iterator[bytes]:
    """Records of 1 KB, half of it noise."""
    rng = random.Random(1)
    some = [rng.randbytes(500) + bytes(500) for _ in range(100)]
    return (some[number % len(some)] for number in range(count))


async def submitted(producer: Producer, count: int) -> None:
    for value in values(count):
        await producer.submit("orders", value)


async def many(producer: Producer, count: int) -> None:
    await producer.send_many("orders", values(count))


@asynccontextmanager
async def longest_turn() -> AsyncIterator[Callable[[], float]]:
    """The longest turn of the loop meanwhile, in milliseconds of CPU time of its thread."""
    loop = asyncio.get_running_loop()
    longest = 0.0
    began = time.thread_time()

    def turn() -> None:
        nonlocal longest, began, handle
        now = time.thread_time()
        longest, began = max(longest, now - began), now
        handle = loop.call_soon(turn)

    gc.disable()  # its passes are slow with the large heap of a test session
    handle = loop.call_soon(turn)
    try:
        yield lambda: 1000 * longest
    finally:
        handle.cancel()
        gc.enable()


@pytest.mark.parametrize("send", [submitted, many])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_no_turn_of_the_loop_is_long(codec: str, send: Callable[[Producer, int], Awaitable[None]]) -> None:
    """Batches of up to 4 MiB, sent at full speed."""
    count = OF_GZIP if codec == "gzip" else RECORDS
    with FakeCluster(default_partitions=4, message_max_bytes=16 << 20) as cluster:
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers,
            compression_type=codec,
            batch_size=4 << 20,
            max_request_size=8 << 20,
        ) as producer:
            await producer.partitions_for("orders")
            found_ms: list[float] = []
            while len(found_ms) < ATTEMPTS and min(found_ms, default=LONGEST_MS) >= LONGEST_MS:
                async with longest_turn() as longest_ms:
                    await send(producer, count)
                    await producer.flush()
                found_ms.append(longest_ms())
            assert min(found_ms) < LONGEST_MS, found_ms
        stored = sum(len(cluster.records("orders", partition)) for partition in range(4))
        assert stored == count * len(found_ms)
