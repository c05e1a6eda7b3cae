"""The route to a broker's address: direct, or through a proxy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import socket
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from types import FrameType
from typing import TypeVar

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.config.proxy import Proxy
from aioproducer.message_text import excerpt, host_port
from aioproducer.net.resolver import ascii_name, check_port, resolve
from aioproducer.net.tracebacks import clear_frames
from aioproducer.net.workers import threads_are_scarce
from aioproducer.version import VERSION

STREAM_BYTES = 64 * 1024
"""The default buffer limit of a stream, the same as asyncio's."""
_STATUS = re.compile(rb"HTTP/1\.[01] +([0-9]{3}[^\r\n]*)")
UNLIMITED_S = 86_400.0
"""The caller bounds the time; without a limit python-socks would use its own."""

T = TypeVar("T")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def addresses_of(config: ProducerConfig, loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """The addresses to connect to for a host: its IP addresses, or its name if a proxy resolves it.

    Raises:
        OSError: as for ``resolve``.
    """
    if config.proxy_url is not None and config.proxy_url.resolves:
        check_port(port)
        return [ascii_name(host)]
    return await resolve(loop, host, port)


async def open_stream(config: ProducerConfig, address: str, port: int, *, limit: int = STREAM_BYTES) -> Streams:
    """A stream to one of ``addresses_of``; the caller bounds the time.

    Raises:
        OSError: no connection could be made.
    """
    if config.proxy_url is None:
        return await asyncio.open_connection(address, port, limit=limit)
    proxy = config.proxy_url
    connect = _by_http if proxy.scheme == "http" else _by_socks
    try:
        with threads_are_scarce():
            return await connect(proxy, address, port, limit, _patience_s(config))
    except (OSError, ValueError) as error:  # python-socks raises ValueError for invalid text
        reason = error.strerror if isinstance(error, OSError) else None
        # Not a ConnectionError: no broker hung up, so there is no reason to probe for.
        raise OSError(f"the proxy {proxy} gave no connection: {excerpt(reason or str(error), 200)}") from error


def _patience_s(config: ProducerConfig) -> float:
    """The least time that callers give to a connection."""
    return min(config.socket_connection_setup_timeout_ms, config.request_timeout_ms) / 1000


async def _by_http(proxy: Proxy, address: str, port: int, limit: int, patience_s: float) -> Streams:
    """By CONNECT. python-socks takes the first bytes for the whole answer; the rest would be read as the broker's.

    Source: RFC 9110, section 9.3.6.
    """
    reader, writer = await _at_one_address(
        proxy, lambda there: asyncio.open_connection(there, proxy.port, limit=limit), patience_s
    )
    try:
        writer.write(_connect_request(proxy, address, port))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise ConnectionError("its HTTP response was incomplete") from error
        status = _STATUS.match(head)
        if status is None:
            raise ConnectionError("its response is not HTTP")
        if not status[1].startswith(b"2"):
            raise ConnectionError(status[1].decode("latin-1"))
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


def _connect_request(proxy: Proxy, address: str, port: int) -> bytes:
    there = host_port(address, port)
    lines = [f"CONNECT {there} HTTP/1.1", f"Host: {there}", f"User-Agent: aioproducer/{VERSION}"]
    if proxy.user is not None:
        login = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {login}")
    return "\r\n".join([*lines, "", ""]).encode()


async def _by_socks(proxy: Proxy, address: str, port: int, limit: int, patience_s: float) -> Streams:
    loop = asyncio.get_running_loop()
    if "python_socks.async_.asyncio" not in sys.modules:  # 15 ms
        await loop.run_in_executor(None, import_module, "python_socks.async_.asyncio")
    from python_socks import ProxyError, ProxyType  # from the extra `proxy`
    from python_socks.async_.asyncio import Proxy as Connector

    async def connect(there: str) -> socket.socket:
        connector = Connector(
            ProxyType.SOCKS5, there, proxy.port, proxy.user, proxy.password, rdns=proxy.resolves, loop=loop
        )
        return await connector.connect(address, port, timeout=UNLIMITED_S)

    try:
        connected = await _at_one_address(proxy, connect, patience_s)
    except BaseException as error:
        clear_frames(error, _is_python_socks)
        if isinstance(error, ProxyError):
            raise ConnectionError(str(error)) from error
        raise
    try:
        return await asyncio.open_connection(sock=connected, limit=limit)
    except BaseException:
        connected.close()
        raise


def _is_python_socks(frame: FrameType) -> bool:
    """Its frames contain the password, and error reporting tools show the variables of frames."""
    return str(frame.f_globals.get("__name__", "")).startswith("python_socks.")


async def _at_one_address(proxy: Proxy, connect: Callable[[str], Awaitable[T]], patience_s: float) -> T:
    """The result of ``connect`` at the first of the proxy's addresses that accepts the connection.

    python-socks would try only one address, and uvloop resolves names itself. The time is shared: an address that does
    not answer must not use up the time of the next.
    """
    *others, last = await resolve(asyncio.get_running_loop(), proxy.host, proxy.port)
    for there in others:
        with contextlib.suppress(OSError):  # TimeoutError is one
            async with asyncio.timeout(patience_s / (len(others) + 1)):
                return await connect(there)
    return await connect(last)
