"""A proxy for tests: SOCKS5 (RFC 1928, RFC 1929) and HTTP CONNECT on one port, with its own host names."""

from __future__ import annotations

import asyncio
import base64
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

CHUNK_BYTES = 65_536
TURNS = 20
"""Turns of the loop, shared with the client, which has read earlier bytes by then."""
NO_LOGIN, BY_PASSWORD, NOTHING_ACCEPTED = 0, 2, 255
SUCCEEDED, REFUSED = 0, 5
IP4, NAME, IP6 = 1, 3, 4


@dataclass
class ProxyServer:
    """Forwards connections, in the running loop; use it in an ``async with`` block.

    Args:
        names: the hosts that it resolves, and their addresses; other names are used unchanged.
        login: the user and password that it requires.
        silent: whether it accepts connections but never answers.
        says: its answer to anything, as if it were not a proxy.
        in_pieces: whether its HTTP responses come line by line.
    """

    names: Mapping[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    login: tuple[str, str] | None = None
    silent: bool = False
    says: bytes | None = None
    in_pieces: bool = False
    asked_for: list[tuple[str, int]] = field(default_factory=list)
    """The targets that clients asked for."""
    port: int = 0

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.silent:
                await reader.read()
                return
            first = await reader.readexactly(1)
            if self.says is not None:
                writer.write(self.says)
                writer.write_eof()
                await reader.read()
                return
            there = await (self._socks(reader, writer) if first == b"\x05" else self._http(first, reader, writer))
            if there is not None:
                try:
                    await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))
                finally:
                    there[1].transport.abort()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    async def _connected(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        self.asked_for.append((host, port))
        try:
            return await asyncio.open_connection(*self.names.get((host, port), (host, port)))
        except OSError:
            return None

    async def _socks(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        offered = await reader.readexactly((await reader.readexactly(1))[0])
        wanted = NO_LOGIN if self.login is None else BY_PASSWORD
        writer.write(bytes((5, wanted if wanted in offered else NOTHING_ACCEPTED)))
        if wanted not in offered:
            return None
        if self.login is not None:
            await reader.readexactly(1)
            given = [(await reader.readexactly((await reader.readexactly(1))[0])).decode() for _ in range(2)]
            writer.write(bytes((1, 0 if tuple(given) == self.login else 1)))
            if tuple(given) != self.login:
                return None
        *_, kind = await reader.readexactly(4)
        if kind == NAME:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            family, size = (socket.AF_INET, 4) if kind == IP4 else (socket.AF_INET6, 16)
            host = socket.inet_ntop(family, await reader.readexactly(size))
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        there = await self._connected(host, port)
        writer.write(bytes((5, REFUSED if there is None else SUCCEEDED, 0, IP4, 0, 0, 0, 0, 0, 0)))
        return there

    async def _http(
        self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode()
        line, *fields = head.split("\r\n")
        host, _, port = line.split()[1].rpartition(":")
        if self.login is not None:
            token = base64.b64encode(":".join(self.login).encode()).decode()
            if f"proxy-authorization: basic {token}".lower() not in (each.lower() for each in fields):
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                return None
        there = await self._connected(host.strip("[]"), int(port))
        answer = b"HTTP/1.1 502 Bad Gateway\r\n" if there is None else b"HTTP/1.1 200 OK\r\n"
        if self.in_pieces:
            for piece in (answer, b"Content-Length: 0\r\n"):
                writer.write(piece)
                for _ in range(TURNS):
                    await asyncio.sleep(0)
            answer = b""
        writer.write(answer + b"\r\n")
        return there


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    writer.transport.abort()
