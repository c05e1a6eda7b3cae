"""The memory of the whole process stays bounded, however much is sent to a cluster that does not answer."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from aioproducer.testing import FakeCluster

STATM = Path("/proc/self/statm")
MIB = 1024 * 1024
BUFFER_MEMORY, MAX_REQUEST_SIZE, IN_FLIGHT, BROKERS = 32 * MIB, 256 * 1024, 5, 3
BOUND = BUFFER_MEMORY + 8 * MIB + BROKERS * IN_FLIGHT * MAX_REQUEST_SIZE * 2
"""The limit from docs/guarantees.md."""

LOAD = """
    import asyncio, gc, logging, os, sys, time
    from aioproducer import BufferExhaustedError, DeliveryTimeoutError, Producer

    logging.disable(logging.CRITICAL)

    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def main(servers, size, codec, buffer_memory, max_request_size):
        value = os.urandom(size)
        admitted = 0
        async with Producer(
            bootstrap_servers=servers, compression_type=codec, buffer_memory=buffer_memory,
            max_request_size=max_request_size, request_timeout_ms=400, delivery_timeout_ms=800,
        ) as producer:
            await producer.partitions_for("orders")
            warm = 0
            while warm < 100:
                try:
                    await producer.send("warm", value)
                    warm += 1
                except DeliveryTimeoutError:  # the machine is slow
                    pass
            gc.collect()
            before = peak = resident()
            print("ready", flush=True)
            sys.stdin.readline()
            end = time.monotonic() + 2.5
            while time.monotonic() < end:
                try:
                    for _ in range(1_000):
                        producer.submit_nowait("orders", value)
                        admitted += 1
                except BufferExhaustedError:
                    await producer.ready()
                await asyncio.sleep(0)
                peak = max(peak, resident())
            try:
                await producer.close(0)
            except Exception:
                pass
            metrics = producer.metrics()["producer-metrics"]
            left = int(metrics["buffer-total-bytes"] - metrics["buffer-available-bytes"])
        print(peak - before, admitted * size, left)

    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
"""


@pytest.mark.skipif(not STATM.exists(), reason="needs /proc")
@pytest.mark.parametrize(("size", "codec"), [(100, "none"), (1_000, "zstd")])
def test_bounded_against_a_dead_cluster(size: int, codec: str) -> None:
    """The process grows by at most buffer_memory and the documented constant."""
    with FakeCluster(BROKERS) as cluster:
        cluster.create_topic("orders", 6)
        cluster.create_topic("warm")
        arguments = [cluster.bootstrap_servers, str(size), codec, str(BUFFER_MEMORY), str(MAX_REQUEST_SIZE)]
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(LOAD), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as program:
            try:
                assert program.stdout is not None
                assert program.stdout.readline() == "ready\n"
                cluster.faults.swallow("Produce", times=None)
                printed, _ = program.communicate("\n", timeout=60)
            finally:
                program.kill()
        grown, admitted, left = map(int, printed.split())
    assert admitted > 2 * BUFFER_MEMORY // 3, "the buffer was full"
    assert left == 0
    assert grown <= BOUND, f"{grown / MIB:.1f} MiB, where {BOUND / MIB:.1f} are promised"
