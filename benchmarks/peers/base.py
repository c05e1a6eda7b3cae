"""The interface of a benchmarked client: settings in, every record's end out."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from benchmarks.payloads import KeyValue, stream

Operation = TypeVar("Operation")

CHUNK_RECORDS = 1_000
OPEN_CHUNKS = 60
"""Clients with a future per record check futures in chunks, with at most this many chunks unchecked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings common to all clients; acks=all and idempotence are always on.

    Attributes:
        topics: how many topics the records go to in turn; used only by the clients of that bench.
        codec: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``.
        batch_size: bytes; None leaves the client's own default.
        ca_pem: the authority of the broker's certificate; empty for connections without TLS.
    """

    bootstrap: str
    topic: str
    codec: str
    linger_ms: int
    topics: int = 1
    batch_size: int | None = None
    ca_pem: str = ""

    def topic_names(self) -> list[str]:
        """Return the names of all topics."""
        return [self.topic] if self.topics == 1 else [f"{self.topic}-{number}" for number in range(self.topics)]


@dataclass(frozen=True, slots=True)
class Ends:
    """Numbers of records that the client saw end, acknowledged or failed.

    Attributes:
        seconds, cpu_seconds, peak_rss_bytes: cost reported by clients that are separate programs.
    """

    acked: int
    failed: int
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_rss_bytes: int | None = None


class Peer(ABC):
    """One client; started and stopped outside the measured section."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    async def start(self) -> None:
        """Create the client and connect it, if it has such a step."""

    @abstractmethod
    async def stop(self) -> None:
        """Close the client."""


class Publisher(Peer):
    """A client used at full speed."""

    @abstractmethod
    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        """Send the records and return when each has ended and its end was checked.

        Blocking clients block here: nothing else runs on the loop meanwhile.
        """

    async def publish_pool(self, pool: list[KeyValue], records: int) -> Ends:
        """Send ``records`` records, cycling through the pool from its first."""
        return await self.publish(stream(pool, records))


class Sender(Peer):
    """A client used by many tasks, each of which waits for its own record."""

    @abstractmethod
    async def send(self, key: bytes, value: bytes) -> None:
        """Send one record and return once it is acknowledged.

        Raises:
            Exception: the client's own error, if it was not.
        """


class Checks(Generic[Operation]):
    """Checks the end of every record for which a client returned a future, oldest first.

    Args:
        failures: waits for the given operations and counts those that failed.
    """

    def __init__(self, failures: Callable[[list[Operation]], Awaitable[int]]) -> None:
        self._failures = failures
        self._open: deque[list[Operation]] = deque()
        self._sent = 0
        self._failed = 0

    async def add(self, chunk: list[Operation]) -> None:
        """Take the chunk just sent; wait for the oldest one if too many are open."""
        self._sent += len(chunk)
        self._open.append(chunk)
        if len(self._open) > OPEN_CHUNKS:
            self._failed += await self._failures(self._open.popleft())

    async def ends(self) -> Ends:
        """Wait for all open chunks."""
        while self._open:
            self._failed += await self._failures(self._open.popleft())
            await asyncio.sleep(0)  # ended futures do not suspend, but the loop needs its turns
        return Ends(self._sent - self._failed, self._failed)
