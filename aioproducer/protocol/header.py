"""Frames: an int32 size, a header, a body.

A request header is version 1, or version 2 with a tag section for flexible versions; the client id keeps its int16
length in both. A response header is the correlation id, followed by a tag section for flexible versions, but never for
ApiVersions.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import cast

from aioproducer.errors import ProtocolError
from aioproducer.protocol import codec
from aioproducer.protocol.schema import R, Request, UnwritableError

_SIZE = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")
_CLIENT_ID = codec.string(codec.INT16_LENGTH, nullable=True)


def request_header(api_key: int, version: int, flexible: bool, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a request, without the frame's size.

    Raises:
        UnwritableError: the client id is longer than 32,767 bytes or not text.
    """
    out = bytearray(_REQUEST.pack(api_key, version, correlation_id))
    try:
        _CLIENT_ID.write(client_id, out)
    except (ValueError, struct.error) as error:
        raise UnwritableError(f"the client id (client_id) can't be written: {error}") from error
    if flexible:
        codec.write_tags([], out)
    return bytes(out)


def encode_request(request: Request[R], version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole frame with its size, ready for the socket.

    Raises:
        UnsupportedVersionError: the version can't carry a value that is set.
        UnwritableError: a value does not fit its type.
    """
    body = request.encode(version)
    header = request_header(request.API_KEY, version, version >= request.FLEXIBLE_FROM, correlation_id, client_id)
    return _SIZE.pack(len(header) + len(body)) + header + body


def read_response_header(frame: bytes | memoryview, flexible: bool) -> tuple[int, int]:
    """The correlation id, and the position of the body in a frame without its size.

    Raises:
        ProtocolError: the frame is too short or its tag section malformed.
    """
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        at = _CORRELATION_ID.size
        if flexible:
            _, at = codec.read_tags(cast(bytes, frame), at, {})
    except (ValueError, IndexError, struct.error) as error:
        raise ProtocolError(f"a response header can't be read: {codec.nonsense(error, frame)}") from error
    return correlation_id, at


def decode_response(request: type[Request[R]], version: int, frame: bytes | memoryview) -> R:
    """The answer to a request of this class and version, from a frame without its size.

    Raises:
        ProtocolError: the frame is malformed.
    """
    _, at = read_response_header(frame, request.response_header_is_flexible(version))
    return cast(R, request.RESPONSE.decode(memoryview(frame)[at:], version))


def decode_response_in_steps(
    request: type[Request[R]], version: int, frame: bytes | memoryview, *, budget_bytes: int = 16_384
) -> Generator[None, None, R]:
    """``decode_response`` with pauses, see ``Message.decode_in_steps``."""
    _, at = read_response_header(frame, request.response_header_is_flexible(version))
    steps = request.RESPONSE.decode_in_steps(memoryview(frame)[at:], version, budget_bytes=budget_bytes)
    return cast(R, (yield from steps))


def throttle_time_ms(request: type[Request[R]], version: int, frame: bytes | memoryview) -> int:
    """How long an answer asks the client to pause; most answers begin with this field, so the rest is not read.

    Raises:
        ProtocolError: the frame is malformed.
    """
    _, at = read_response_header(frame, request.response_header_is_flexible(version))
    first = request.RESPONSE.decode_first(memoryview(frame)[at : at + 4], version, "throttle_time_ms")
    if first is None:
        first = getattr(decode_response(request, version, frame), "throttle_time_ms", 0)
    return int(first)
