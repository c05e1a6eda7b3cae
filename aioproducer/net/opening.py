"""Opening a connection step by step: TCP, TLS, login, and the broker's API versions."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aioproducer.client_logger import ClientLogger
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, KafkaError
from aioproducer.metrics import ProducerMetrics
from aioproducer.net.connection import Connection, abort, hung_up, ignore, not_written
from aioproducer.net.route import open_stream
from aioproducer.patient_timer import PatientTimeout

if TYPE_CHECKING:
    from aioproducer.net.tls import Tls

logger: logging.Logger = logging.getLogger("aioproducer.client")

READ_BUFFER_BYTES = 256 * 1024
"""How much of an answer the stream buffers before it stops reading from the socket."""

OLDER_VERSIONS = (3, 0)
"""The versions of ApiVersions that are tried next where the newest one ends the connection, each on a new connection.

A broker should refuse a version that it does not know, and name those that it does. Some hang up instead, such as Azure
Event Hubs; as that asks for a login, its versions are known before this could happen.
"""


class NotAcceptedError(OSError):
    """An address has not accepted a connection in the short time that it had while others were waiting; it may yet."""


async def open_connection(
    address: str,
    port: int,
    *,
    node_id: int,
    config: ProducerConfig,
    loop: asyncio.AbstractEventLoop,
    on_internal_error: Callable[[BaseException], None],
    host: str | None = None,
    on_close: Callable[[Connection, KafkaError | None], None] = ignore,
    on_capacity: Callable[[Connection], None] = ignore,
    tls: Tls | None = None,
    authenticate: Callable[[Connection], Awaitable[None]] | None = None,
    metrics: ProducerMetrics | None = None,
    cluster_id: str | None = None,
    accept_ms: int | None = None,
) -> Connection:
    """Connect, authenticate and learn the broker's API versions; the caller bounds the time.

    Args:
        address: one of ``route.addresses_of``; ``host`` is the name that it came from, for messages.
        node_id: the broker's, or a negative number while it is unknown.
        on_close: called once, when a returned connection has ended: with the error, or with None if this side closed
            it on purpose. Requests in flight get their errors after that.
        on_capacity: called when a request no longer counts as in flight, after its ``on_response``.
        on_internal_error: gets what a callback raised; the connection is also aborted.
        tls: None for a plaintext connection.
        authenticate: runs before the API versions are requested.
        metrics: counts requests, answers and logins.
        accept_ms: how long the address has to accept the TCP connection; None sets no limit of its own.
        cluster_id: the broker refuses the connection unless it is this node of this cluster; None if anyone will do.
    Raises:
        NotAcceptedError: ``accept_ms`` was over.
        OSError: there was no TCP connection, or it broke during the TLS handshake.
        AuthenticationError: from ``tls`` or ``authenticate``.
        KafkaError: the connection broke, or the broker refused ApiVersions.
    """
    metrics = metrics or ProducerMetrics()
    older_versions = list(OLDER_VERSIONS) if authenticate is None else []
    first_version = None
    while True:
        try:
            reader, writer, transport = await _open_streams(config, address, port, tls, host or address, accept_ms)
        except AuthenticationError:
            metrics.record_login_failed(int(loop.time() * 1000))
            raise
        connection = Connection(
            reader,
            writer,
            transport=transport,
            node_id=node_id,
            host=host or address,
            address=address,
            port=port,
            config=config,
            loop=loop,
            on_internal_error=on_internal_error,
            metrics=metrics,
        )
        try:
            if authenticate is not None:
                await authenticate(connection)
            await connection.negotiate(first_version=first_version, cluster_id=cluster_id)
            connection.go_live(on_close, on_capacity)
        except BaseException as error:
            connection.abort()
            await connection.wait_closed()
            if older_versions and not connection.knows_versions and hung_up(error):
                first_version = older_versions.pop(0)
                continue
            if isinstance(error, AuthenticationError):
                metrics.record_login_failed(int(loop.time() * 1000))
            if isinstance(error, KafkaError):
                not_written(error)  # no record was sent yet
            raise
        if tls is not None or authenticate is not None:
            metrics.record_login(int(loop.time() * 1000))
        return connection


async def _open_streams(
    config: ProducerConfig, address: str, port: int, tls: Tls | None, host: str, accept_ms: int | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.WriteTransport]:
    """The streams, with TLS unless ``tls`` is None, and the socket's own transport."""
    # First, as files may have to be read: the handshake has to begin before anything can be received.
    context = await tls.context() if tls is not None else None
    scope = PatientTimeout(asyncio.get_running_loop(), None if accept_ms is None else _now_ms() + accept_ms)
    try:
        async with scope:
            reader, writer = await open_stream(config, address, port, limit=READ_BUFFER_BYTES)
    except TimeoutError as error:
        if scope.expired():
            raise NotAcceptedError(f"no connection within {accept_ms} ms") from error
        raise
    transport = writer.transport
    try:
        _set_socket_options(writer.get_extra_info("socket"), config)
        if tls is not None and context is not None:
            await tls.start(context, reader, writer, host)
    except BaseException:
        abort(writer, transport)
        raise
    return reader, writer, transport


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def _set_socket_options(sock: socket.socket | None, config: ProducerConfig) -> None:
    """Send small requests at once; probe idle connections; set buffers as configured, -1 leaves them to the system.

    The system sends the probes, so that a balancer or NAT does not forget the connection, if they are frequent enough
    (``net.ipv4.tcp_keepalive_time``).
    """
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, size in (socket.SO_SNDBUF, config.send_buffer_bytes), (socket.SO_RCVBUF, config.receive_buffer_bytes):
        if size >= 0:
            try:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
            except OSError as error:  # on macOS, if it is too large; Linux takes the largest that it has
                ClientLogger(logger, config.client_id).info(
                    "the system does not accept a socket buffer of %d bytes: %s", size, str(error)
                )
