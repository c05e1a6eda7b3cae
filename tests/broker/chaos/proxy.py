"""A bad network: a TCP proxy in front of each broker, with its own thread and loop, that does what a test says.

Bytes are never changed or removed from a connection that lives on, because TCP does not do that either: a direction
that was swallowed stays silent until the connection ends.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536
SMALLEST_PIECE, LARGEST_PIECE = 1, 7
WITH_RST = struct.pack("ii", 1, 0)
"""SO_LINGER that makes the end of a connection a reset."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens to the bytes of every connection.

    Args:
        reset_after_bytes: a connection is reset after that many bytes, both directions together.
        pieces: bytes are forwarded one to seven at a time.
        latency_s: the delay added to every chunk, in each direction.
        swallows: "requests" or "answers" are no longer forwarded.
        refuses: connections are reset at once.
    """

    reset_after_bytes: int | None = None
    pieces: bool = False
    latency_s: float = 0.0
    swallows: str | None = None
    refuses: bool = False


FINE = Trouble()


class _Connection:
    """One connection through a proxy; both of its directions end together."""

    def __init__(self, proxies: Proxies, broker: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.proxies = proxies
        self.broker = broker
        self.client = reader, writer
        self.writers = [writer]
        self.passed_bytes = 0
        self.silent: set[str] = set()

    async def run(self, port: int) -> None:
        try:
            if self.trouble.refuses:
                return
            reader, writer = await asyncio.open_connection(HOST, port)
            self.writers.append(writer)
            for one in self.writers:
                one.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ways = [
                asyncio.ensure_future(self._pass_on("requests", self.client[0], writer)),
                asyncio.ensure_future(self._pass_on("answers", reader, self.client[1])),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the broker is not there
        finally:
            self.reset()

    @property
    def trouble(self) -> Trouble:
        return self.proxies.trouble[self.broker]

    def reset(self) -> None:
        for writer in self.writers:
            end = writer.get_extra_info("socket")
            if end is not None and end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, WITH_RST)
            writer.transport.abort()

    async def _pass_on(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            trouble = self.trouble
            if trouble.latency_s:
                await asyncio.sleep(trouble.latency_s)
            if trouble.swallows == way:
                self.silent.add(way)
            if way in self.silent:
                continue
            limit = trouble.reset_after_bytes
            if limit is not None and self.passed_bytes + len(data) >= limit:
                writer.write(data[: limit - self.passed_bytes])
                await writer.drain()
                self.proxies.resets += 1
                return
            self.passed_bytes += len(data)
            for piece in self._pieces(data) if trouble.pieces else (data,):
                writer.write(piece)
                await writer.drain()

    def _pieces(self, data: bytes) -> list[bytes]:
        pieces, at, rng = [], 0, self.proxies.rng
        while at < len(data):
            end = at + rng.randint(SMALLEST_PIECE, LARGEST_PIECE)
            pieces.append(data[at:end])
            at = end
        return pieces


class Proxies:
    """One proxy per broker; ``ports`` are the proxies' ports, and ``lead_to`` sets where each forwards to."""

    def __init__(self, ports: Mapping[int, int], rng: random.Random) -> None:
        self.ports = dict(ports)
        self.rng = rng
        self.resets = 0
        self.trouble: dict[int, Trouble] = dict.fromkeys(ports, FINE)
        self._targets: dict[int, int] = {}
        self._tasks: dict[asyncio.Task[None], _Connection] = {}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def lead_to(self, broker: int, port: int) -> None:
        """Set the port of a broker itself."""
        self._targets[broker] = port

    def set(self, trouble: Trouble, *brokers: int) -> None:
        """Apply this trouble from now on, at these brokers, or at all of them."""
        self._do(self._set(trouble, brokers or tuple(self.ports)))

    def heal(self) -> None:
        """Be a good network again; what was swallowed stays lost."""
        self.set(FINE)

    def __enter__(self) -> Self:
        self._thread.start()
        for broker in self.ports:
            self._do(self._listen(broker))
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- in the loop of the thread ------------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self, broker: int) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            connection = self._tasks[task] = _Connection(self, broker, reader, writer)
            try:
                await connection.run(self._targets[broker])
            finally:
                del self._tasks[task]

        self._servers.append(await asyncio.start_server(serve, HOST, self.ports[broker]))

    async def _set(self, trouble: Trouble, brokers: tuple[int, ...]) -> None:
        self.trouble.update(dict.fromkeys(brokers, trouble))
        if trouble.refuses:
            for connection in self._tasks.values():
                if connection.broker in brokers:
                    connection.reset()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in self._tasks.values():
            connection.reset()
        if self._tasks:
            await asyncio.wait(list(self._tasks))
