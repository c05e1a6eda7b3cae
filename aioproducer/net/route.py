"""The way to a broker's address: straight, or through a proxy."""

from __future__ import annotations

import asyncio
import socket
import sys
from importlib import import_module

from aioproducer.config import ProducerConfig
from aioproducer.config_proxy import Proxy
from aioproducer.errors import excerpt
from aioproducer.net.resolver import check_name, check_port, resolve
from aioproducer.net.workers import in_worker, threads_are_scarce

STREAM_BYTES = 64 * 1024
"""What a stream buffers, if nothing else is said: asyncio's own limit."""
UNLIMITED_S = 86_400.0
"""The caller bounds the time; python-socks would take its own limit for none."""


async def addresses_of(config: ProducerConfig, loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
    """What to connect to for a host: its IP addresses, or its name where a proxy resolves it.

    Raises:
        OSError: as ``resolve``.
    """
    if config.proxy_url is not None and config.proxy_url.resolves:
        check_port(port)
        check_name(host)
        return [host]
    return await resolve(loop, host, port)


async def open_stream(
    config: ProducerConfig, address: str, port: int, *, limit: int = STREAM_BYTES
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A stream to one of ``addresses_of``; the caller bounds the time.

    Raises:
        OSError: there is no connection.
    """
    if config.proxy_url is None:
        return await asyncio.open_connection(address, port, limit=limit)
    connected = await _through(config.proxy_url, address, port)
    try:
        return await asyncio.open_connection(sock=connected, limit=limit)
    except BaseException:
        connected.close()
        raise


async def _through(proxy: Proxy, address: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    if "python_socks.async_.asyncio" not in sys.modules:  # 15 ms
        await in_worker(loop, import_module, "python_socks.async_.asyncio")
    from python_socks import ProxyError, ProxyType  # of the extra `proxy`
    from python_socks.async_.asyncio import Proxy as Connector

    kind = ProxyType.HTTP if proxy.scheme == "http" else ProxyType.SOCKS5
    login = proxy.user, proxy.password
    connector = Connector.create(kind, proxy.host, proxy.port, *login, rdns=proxy.resolves, loop=loop)
    try:
        with threads_are_scarce():
            connected: socket.socket = await connector.connect(address, port, timeout=UNLIMITED_S)
    except (OSError, ProxyError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise ConnectionError(f"the proxy {proxy} gave no connection: {excerpt(reason or str(error), 200)}") from error
    return connected
