"""An HTTP load generator: a number of connections, each of which sends its next request once it has its answer.

It counts each request and leaves none open, so that the server's own count can be compared.
"""

from __future__ import annotations

import asyncio
import re
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_OK = frozenset({b"200", b"201", b"202"})


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """Return the bytes of one request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


@dataclass(frozen=True, slots=True)
class Answers:
    """The result of some seconds of load.

    Attributes:
        good: correctly answered requests; `failed` ones were not.
        waits: how long each took, in seconds.
    """

    good: int
    failed: int
    seconds: float
    waits: array[float]


class Connection(asyncio.Protocol):
    """One connection; sends one request, or requests until a deadline."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has another class
        self._received = b""
        self._done: asyncio.Future[bytes] | None = None

    async def load(self, requests: Iterator[bytes], seconds: float, waits: array[float]) -> tuple[int, int]:
        """Send requests until the time is over, and wait for the last answer; return how many were good, and failed."""
        self._requests = requests
        self._deadline = time.perf_counter() + seconds
        self._waits = waits
        self._good = self._failed = 0
        self._done = asyncio.get_running_loop().create_future()
        self._ask()
        await self._done
        return self._good, self._failed

    async def ask(self, text: bytes) -> bytes:
        """Send one request and return the response body."""
        self._done = asyncio.get_running_loop().create_future()
        self._requests, self._deadline, self._waits = iter([text]), 0.0, array("d")
        self._good = self._failed = 0
        self._ask()
        return await self._done

    def close(self) -> None:
        self._transport.close()

    def _ask(self) -> None:
        self._asked = time.perf_counter()
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, gap, body = self._received.partition(b"\r\n\r\n")
        if not gap:
            return
        length = _LENGTH.search(head)
        if length is not None and len(body) < int(length[1]):
            return
        now = time.perf_counter()
        self._received = b""
        self._waits.append(now - self._asked)
        if head[9:12] in _OK:
            self._good += 1
        else:
            self._failed += 1
        if now < self._deadline:
            self._ask()
        elif self._done is not None:
            self._done.set_result(body)

    def connection_lost(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error or ConnectionError("the server has closed the connection"))


async def connect(address: tuple[str, int]) -> Connection:
    """Open a connection."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, *address)
    return connection


async def load(connections: list[Connection], requests: Iterator[bytes], seconds: float) -> Answers:
    """Send requests on all connections for some seconds."""
    waits = array("d")
    began = time.perf_counter()
    ends = await asyncio.gather(*(one.load(requests, seconds, waits) for one in connections))
    taken = time.perf_counter() - began
    return Answers(sum(good for good, _ in ends), sum(failed for _, failed in ends), taken, waits)
