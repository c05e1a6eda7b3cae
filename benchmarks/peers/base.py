"""What a benchmark asks of a client: settings in, every record's end out."""

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
"""Clients that return a future a record check them a chunk at a time, and leave at most this many chunks unchecked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is the same for every client; acks=all and idempotence are always on.

    Attributes:
        topics: how many topics the records go to in turn; only the clients of that bench look at it.
        codec: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``.
        batch_size: bytes; None leaves the client's own default.
        ca_pem: who signed the broker's certificate; empty for connections without TLS.
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
    """How many records ended, each seen by the client: acknowledged or failed.

    Attributes:
        seconds, cpu_seconds, peak_rss_bytes: what it took, from clients that are programs of their own.
    """

    acked: int
    failed: int
    seconds: float | None = None
    cpu_seconds: float | None = None
    peak_rss_bytes: int | None = None


class Peer(ABC):
    """One client; started and stopped outside of what is measured."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @abstractmethod
    async def start(self) -> None:
        """Make the client and connect it, where it has such a step."""

    @abstractmethod
    async def stop(self) -> None:
        """Close the client."""


class Publisher(Peer):
    """A client used at full speed."""

    @abstractmethod
    async def publish(self, records: Iterator[KeyValue]) -> Ends:
        """Send the records and return when each of them has ended and its end was looked at.

        Clients that block do so here: nothing else runs on the loop meanwhile.
        """

    async def publish_pool(self, pool: list[KeyValue], records: int) -> Ends:
        """Send so many records, from the pool's first on and around again."""
        return await self.publish(stream(pool, records))


class Sender(Peer):
    """A client used by many tasks that each wait for their own record."""

    @abstractmethod
    async def send(self, key: bytes, value: bytes) -> None:
        """Send one record and return once it is acknowledged.

        Raises:
            Exception: the client's own error, when it was not.
        """


class Checks(Generic[Operation]):
    """Looks at the end of every record that a client returned a future for, oldest first.

    Args:
        failures: waits for the operations it is given and counts those that failed.
    """

    def __init__(self, failures: Callable[[list[Operation]], Awaitable[int]]) -> None:
        self._failures = failures
        self._open: deque[list[Operation]] = deque()
        self._sent = 0
        self._failed = 0

    async def add(self, chunk: list[Operation]) -> None:
        """Take the chunk that was sent last; wait for the oldest one when too many are open."""
        self._sent += len(chunk)
        self._open.append(chunk)
        if len(self._open) > OPEN_CHUNKS:
            self._failed += await self._failures(self._open.popleft())

    async def ends(self) -> Ends:
        """Wait for all that is open."""
        while self._open:
            self._failed += await self._failures(self._open.popleft())
            await asyncio.sleep(0)  # what has ended does not suspend, and the loop is to have its turns here too
        return Ends(self._sent - self._failed, self._failed)
