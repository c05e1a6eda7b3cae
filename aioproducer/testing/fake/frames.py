"""The frames of one connection as a broker reads them. Pure.

Bytes come in pieces of any size. The stream breaks where a real broker would close the connection: at a size that is
negative or above ``socket.request.max.bytes``, a header or body that can't be read, an unsupported API or version. Only
ApiVersions may come in any version, as its sender can't know better yet (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aioproducer.errors import ProtocolError
from aioproducer.protocol import codec
from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.schema import Message, Request

MAX_FRAME_BYTES = 100 * 1024 * 1024
_SIZE = struct.Struct(">i")
_START = struct.Struct(">hhi")
_CLIENT_ID = codec.string(codec.INT16_LENGTH, nullable=True)


@dataclass(frozen=True, slots=True)
class RequestFrame:
    """One decoded request.

    Attributes:
        api_name: Kafka's name of the API, such as ``Produce``.
        message: the body; None for an ApiVersions in a version the broker does not know.
        size_bytes: size of the whole frame.
    """

    api_key: int
    api_name: str
    version: int
    correlation_id: int
    client_id: str | None
    message: Any = field(repr=False)
    size_bytes: int


@dataclass(slots=True)
class FrameReader:
    """Splits a byte stream into requests.

    Args:
        ranges: the versions of each API that the broker accepts.
        apis: the classes of readable requests, by API key.
    """

    ranges: Mapping[int, tuple[int, int]]
    apis: Mapping[int, type[Request[Any]]]
    broken: str | None = None
    """Why nothing more can be read."""
    _data: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes | bytearray | memoryview) -> list[RequestFrame]:
        """Read more bytes and return the requests now complete, up to the first bad one."""
        if self.broken:
            return []
        self._data += data
        frames: list[RequestFrame] = []
        at = 0
        try:
            while len(self._data) - at >= _SIZE.size:
                (size,) = _SIZE.unpack_from(self._data, at)
                if not 0 <= size <= MAX_FRAME_BYTES:
                    raise ProtocolError(f"a frame of {size} bytes")
                end = at + _SIZE.size + size
                if len(self._data) < end:
                    break
                frames.append(self._request(bytes(self._data[at + _SIZE.size : end])))
                at = end
        except (ProtocolError, ValueError, IndexError, struct.error) as error:
            self.broken = str(error)
            self._data.clear()
            return frames
        del self._data[:at]
        return frames

    def _request(self, frame: bytes) -> RequestFrame:
        api_key, version, correlation_id = _START.unpack_from(frame)
        low, high = self.ranges.get(api_key, (0, -1))
        known = low <= version <= high
        if not known and api_key != ApiVersionsRequest.API_KEY:
            raise ProtocolError(f"API {api_key} in version {version} is not taken here")
        client_id, at = _CLIENT_ID.read(frame, _START.size)
        if not known:
            if version >= ApiVersionsRequest.FLEXIBLE_FROM:
                codec.read_tags(frame, at, {})
            return RequestFrame(
                api_key, "ApiVersions", version, correlation_id, client_id, None, len(frame) + _SIZE.size
            )
        request = self._class_of(api_key, version)
        if version >= request.FLEXIBLE_FROM:
            _, at = codec.read_tags(frame, at, {})
        message: Message = request.decode(memoryview(frame)[at:], version)
        return RequestFrame(
            api_key, api_name(request), version, correlation_id, client_id, message, len(frame) + _SIZE.size
        )

    def _class_of(self, api_key: int, version: int) -> type[Request[Any]]:
        request = self.apis.get(api_key)
        if request is not None and request.MIN_VERSION <= version <= request.MAX_VERSION:
            return request
        raise ProtocolError(f"a fake broker does not answer API {api_key} in version {version}")


def api_name(request: type[Request[Any]]) -> str:
    """Kafka's name of an API."""
    return request.__name__.removesuffix("Request")


def response_frame(request: RequestFrame, message: Message, *, flexible: bool) -> bytes:
    """A whole answer frame, with its size.

    Args:
        flexible: whether the header ends in a tag section.
    """
    body = _SIZE.pack(request.correlation_id) + (b"\0" if flexible else b"") + message.encode(request.version)
    return _SIZE.pack(len(body)) + body
