"""The machine's cost of what no producer can avoid: copies, checksums, codecs, sockets, calls."""

from __future__ import annotations

import asyncio
import functools
import math
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

from aioproducer.compression import codec
from benchmarks.payloads import pool
from benchmarks.worker import cpu_seconds, loop_factory

BLOCK_BYTES = 256 * 1024
"""A batch of the default size; it fits into the L2 cache."""
RECORD_OVERHEAD_BYTES = 16 + 9
"""Key, lengths, attributes and deltas of a record, besides its value."""
ROUNDS = 5
SECONDS = 0.1
WRITES = 2_000
READER = """\
import socket, sys
connection = socket.socket(fileno=int(sys.argv[1]))
memory = bytearray(1 << 20)
while connection.recv_into(memory):
    pass
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """This machine's speed, in bytes per second or seconds.

    Attributes:
        socket: bytes per CPU second through the loop's transport, to a process that reads and drops them.
        lz4: plain bytes of the measured records.
        lz4_share: compressed share of them.
        call: a call of a C function by name, with two arguments and a keyword.
    """

    copy: float
    checksum: float
    socket: float
    lz4: dict[int, float]
    lz4_share: dict[int, float]
    call: float

    def seconds(self, value_bytes: int, codec: str) -> dict[str, float]:
        """Return the least cost of one record, by purpose."""
        plain = value_bytes + RECORD_OVERHEAD_BYTES
        wire = plain * (self.lz4_share[value_bytes] if codec == "lz4" else 1.0)
        return {
            "copy into the batch": plain / self.copy,
            "CRC-32C": wire / self.checksum,
            "socket": wire / self.socket,
            **({"lz4": plain / self.lz4[value_bytes]} if codec == "lz4" else {}),
        }


def measure(value_sizes: tuple[int, ...]) -> Limits:
    """Measure, for a few seconds."""
    block, target = bytes(BLOCK_BYTES), bytearray(BLOCK_BYTES)

    def copy() -> None:
        target[:] = block

    lz4 = codec("lz4")
    samples = {size: b"".join(key + value for key, value in pool(size))[:BLOCK_BYTES] for size in value_sizes}
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        socket_rate = runner.run(through_a_socket())
    return Limits(
        copy=BLOCK_BYTES / fastest(copy),
        checksum=BLOCK_BYTES / fastest(lambda: crc32c(block)),
        socket=socket_rate,
        lz4={size: BLOCK_BYTES / fastest(functools.partial(lz4.compress, sample)) for size, sample in samples.items()},
        lz4_share={size: len(lz4.compress(sample)) / BLOCK_BYTES for size, sample in samples.items()},
        call=call_seconds(),
    )


def fastest(job: Callable[[], object]) -> float:
    """Return the seconds per call, in the best of several rounds."""
    return min(seconds_of(job) for _ in range(ROUNDS))


def seconds_of(job: Callable[[], object]) -> float:
    """Return the mean seconds per call, over a tenth of a second."""
    calls, started = 0, time.perf_counter()
    while (passed := time.perf_counter() - started) < SECONDS:
        for _ in range(20):
            job()
        calls += 20
    return passed / calls


def call_seconds() -> float:
    """Return the cost of a call without its surrounding loop."""
    numbers = range(1_000_000)

    def calls() -> float:
        function = math.isclose
        started = time.perf_counter()
        for _ in numbers:
            function(1.0, 2.0, rel_tol=0.5)
        return time.perf_counter() - started

    def nothing() -> float:
        started = time.perf_counter()
        for _ in numbers:
            pass
        return time.perf_counter() - started

    return (min(calls() for _ in range(ROUNDS)) - min(nothing() for _ in range(ROUNDS))) / len(numbers)


async def through_a_socket() -> float:
    """Return the bytes per CPU second through a stream, in lists of two buffers like requests."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        _, writer = await asyncio.open_connection(*listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            command = (sys.executable, "-c", READER, str(accepted.fileno()))
            reader = await asyncio.create_subprocess_exec(*command, pass_fds=[accepted.fileno()])
    block = bytes(BLOCK_BYTES)
    before = cpu_seconds()
    for _ in range(WRITES):
        writer.writelines([b"header", block])
        await writer.drain()
    used = cpu_seconds() - before
    writer.close()
    await writer.wait_closed()
    await reader.wait()
    return WRITES * BLOCK_BYTES / used
