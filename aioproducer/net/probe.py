"""Finds out what is at an address where a connection broke before it was usable; only for error messages.

A broker addressed in the wrong protocol just hangs up, which by itself says nothing. So each possibility is tried on a
separate connection; only a Kafka or TLS answer counts. Nothing is sent except an ApiVersions request, the start of a
TLS handshake, or a name that is not a SASL mechanism.
"""

from __future__ import annotations

import asyncio
import ssl
import struct

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.error_codes import Code
from aioproducer.errors import AuthenticationError, KafkaError, TlsError
from aioproducer.message_text import excerpt, host_port
from aioproducer.net.connection import MAX_FRAME_BYTES, Connection, abort
from aioproducer.net.route import open_stream
from aioproducer.net.tls import proved_name
from aioproducer.net.tls_errors import NO_TLS, ONLY_TLS
from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.header import encode_request
from aioproducer.protocol.sasl_handshake import SaslHandshakeRequest

CORRELATION_ID = 1


async def wrong_tls(config: ProducerConfig, host: str, port: int) -> TlsError | None:
    """The error if one side speaks TLS and the other does not; None if that is not the cause.

    Raises:
        OSError: nothing listens there.
    """
    if config.uses_tls:
        return TlsError(f"{host_port(host, port)}: {NO_TLS}") if await _speaks_plain(config, host, port) else None
    return TlsError(f"{host_port(host, port)}: {ONLY_TLS}") if await _speaks_tls(config, host, port) else None


async def _speaks_plain(config: ProducerConfig, host: str, port: int) -> bool:
    reader, writer = await open_stream(config, host, port)
    try:
        writer.write(encode_request(ApiVersionsRequest(), 0, CORRELATION_ID, None))
        size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
        return bool(4 < size <= MAX_FRAME_BYTES and correlation_id == CORRELATION_ID)
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
    finally:
        writer.transport.abort()


async def _speaks_tls(config: ProducerConfig, host: str, port: int) -> bool:
    # Nothing is sent over it, so the peer's identity does not matter.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await open_stream(config, host, port)
    transport = writer.transport
    try:
        await writer.start_tls(context, server_hostname=proved_name(host))
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except ConnectionError:
        return False
    finally:
        abort(writer, transport)
    return True


async def login_wanted(connection: Connection) -> AuthenticationError | None:
    """The error if a broker requires a SASL login; None if it does not. The connection is unusable afterwards."""
    try:
        response = await connection.request(SaslHandshakeRequest(mechanism=""), version=0)
    except KafkaError:
        return None
    if response.error_code != Code.UNSUPPORTED_SASL_MECHANISM:
        return None
    offered = excerpt(", ".join(response.mechanisms))
    return AuthenticationError(
        f"{connection} asks for a login, by {offered}: set security_protocol=SASL_SSL (or SASL_PLAINTEXT) and "
        "sasl_mechanism to one of these, or use another port"
    )
