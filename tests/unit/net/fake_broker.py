"""A scripted peer on a real socket: it reads frames, records them, and answers as the test says.

By default it is a broker that supports everything and knows its own address; a test replaces the answer to an API by
``broker.on(ApiVersionsRequest, ...)``. The handler's result is sent: a response message in the version of the
request, ``bytes`` unchanged, or nothing for None.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from aioproducer.net.connection import Connection
from aioproducer.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aioproducer.protocol.end_txn import EndTxnRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from aioproducer.protocol.produce import ProduceRequest
from aioproducer.protocol.sasl_authenticate import SaslAuthenticateRequest
from aioproducer.protocol.sasl_handshake import SaslHandshakeRequest
from aioproducer.protocol.schema import Message, Request

REQUESTS: tuple[type[Request[Any]], ...] = (
    ApiVersionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    MetadataRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
_BY_KEY = {request.API_KEY: request for request in REQUESTS}
EVERYTHING = {request.API_KEY: (request.MIN_VERSION, request.MAX_VERSION) for request in REQUESTS}

Answer = Message | bytes | None
Handler = Callable[["ReceivedRequest"], Answer | Awaitable[Answer]]


@dataclass
class Peer:
    """The broker's side of one connection."""

    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self.writer.write(data)

    def drop(self) -> None:
        """Close the connection from this side."""
        self.writer.transport.abort()

    def half_close(self) -> None:
        """Send EOF, but keep reading."""
        self.writer.write_eof()

    def stop_reading(self) -> None:
        """Stop reading, so that the socket buffers fill up."""
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    def go_on_reading(self) -> None:
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]


@dataclass
class ReceivedRequest:
    """One parsed request frame."""

    broker: FakeBroker
    peer: Peer
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: bytes

    def decode(self) -> Any:
        """Decode the message in the frame."""
        return _BY_KEY[self.api_key].decode(self.body, self.version)

    def answer(self, message: Message, *, version: int | None = None, correlation_id: int | None = None) -> bytes:
        """The frame of an answer."""
        version = self.version if version is None else version
        request = _BY_KEY[self.api_key]
        tags = b"\0" if request.response_header_is_flexible(version) else b""
        correlation_id = self.correlation_id if correlation_id is None else correlation_id
        return framed(struct.pack(">i", correlation_id) + tags + message.encode(version))

    def reply(self, message: Message) -> None:
        """Send an answer now."""
        self.peer.send(self.answer(message))


def framed(payload: bytes) -> bytes:
    """The bytes with their size in front."""
    return struct.pack(">i", len(payload)) + payload


class FakeBroker:
    """A scripted peer, see the module's docstring."""

    def __init__(self, *, node_id: int = 1, ranges: dict[int, tuple[int, int]] | None = None) -> None:
        self.node_id = node_id
        self.ranges = EVERYTHING if ranges is None else ranges
        self.host = "127.0.0.1"
        self.port = 0
        self.peers: list[Peer] = []
        self.requests: list[ReceivedRequest] = []
        self.arrived: asyncio.Queue[ReceivedRequest] = asyncio.Queue()
        self.connected: asyncio.Queue[Peer] = asyncio.Queue()
        self._handlers: dict[int, Handler] = {
            ApiVersionsRequest.API_KEY: lambda request: request.broker.api_versions(),
            MetadataRequest.API_KEY: lambda request: request.broker.metadata(),
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None

    def on(self, request: type[Request[Any]], handler: Handler) -> None:
        """Answer an API with this handler from now on."""
        self._handlers[request.API_KEY] = handler

    def silent(self, request: type[Request[Any]]) -> None:
        """Never answer an API."""
        self.on(request, lambda _: None)

    def api_versions(self) -> ApiVersionsResponse:
        """The answer to ApiVersions."""
        keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.ranges.items()]
        return ApiVersionsResponse(api_keys=keys)

    def metadata(self) -> MetadataResponse:
        """The answer to Metadata: a cluster of only this broker."""
        return MetadataResponse(brokers=[self.address()], topics=[], cluster_id="fake", controller_id=self.node_id)

    def address(self) -> MetadataResponseBroker:
        """The broker's entry in metadata."""
        return MetadataResponseBroker(node_id=self.node_id, host=self.host, port=self.port)

    async def next_request(self, request: type[Request[Any]]) -> ReceivedRequest:
        """Wait for the next request of an API, skipping others."""
        while True:
            received = await self.arrived.get()
            if received.api_key == request.API_KEY:
                return received

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._server is not None:
            self._server.close()
        for peer in self.peers:
            peer.drop()
        await asyncio.gather(*self._tasks)
        if self._server is not None:
            await self._server.wait_closed()
        self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        peer = Peer(writer)
        self.peers.append(peer)
        self.connected.put_nowait(peer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                await self._handle(peer, await reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            peer.gone.set()
            writer.transport.abort()

    async def _handle(self, peer: Peer, frame: bytes) -> None:
        api_key, version, correlation_id, size = struct.unpack_from(">hhih", frame)
        end = 10 + max(size, 0)
        client_id = frame[10:end].decode() if size >= 0 else None
        if version >= _BY_KEY[api_key].FLEXIBLE_FROM:
            assert frame[end] == 0
            end += 1
        request = ReceivedRequest(self, peer, api_key, version, correlation_id, client_id, frame[end:])
        self.requests.append(request)
        self.arrived.put_nowait(request)
        handler = self._handlers.get(api_key)
        answer = handler(request) if handler is not None else None
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is not None and not peer.writer.transport.is_closing():
            peer.send(answer if isinstance(answer, bytes) else request.answer(answer))


def end_with_answer(monkeypatch: pytest.MonkeyPatch, request: type[Request[Any]]) -> None:
    """Deliver the end of the connection together with the next answer to this request, as TLS may do."""
    dispatch = Connection._dispatch

    def dispatch_and_end(connection: Connection, frame: bytes) -> None:
        is_last = connection._in_flight._queue[0].api_key == request.API_KEY
        dispatch(connection, frame)
        if is_last:
            monkeypatch.undo()
            raise asyncio.IncompleteReadError(b"", 4)

    monkeypatch.setattr(Connection, "_dispatch", dispatch_and_end)


def closed_port() -> int:
    """A loopback port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
