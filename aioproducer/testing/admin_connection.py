"""One blocking connection to a broker: one request at a time."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Self

from aioproducer.errors import ConnectionLostError, UnsupportedVersionError, broker_error
from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.header import decode_response, encode_request
from aioproducer.protocol.schema import R, Request

CLIENT_ID = "aioproducer-testing"
MAX_ANSWER_BYTES = 100 * 1024 * 1024


class AdminConnection:
    """A plaintext connection; use it in a ``with`` block.

    Args:
        timeout_s: for connecting and for every answer.
    Raises:
        OSError: the broker can't be reached or does not answer in time.
        ConnectionLostError: it closed the connection.
    """

    def __init__(self, address: tuple[str, int], timeout_s: float) -> None:
        self.address = address
        self._correlation_id = 0
        self._socket = socket.create_connection(address, timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer = self._ask(ApiVersionsRequest(), 0)
            if answer.error_code:
                raise broker_error(answer.error_code)
        except BaseException:
            self._socket.close()
            raise
        self._ranges = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    def ask(self, request: Request[R]) -> R:
        """Send a request in the newest version known to both sides, and wait for the answer.

        Raises:
            UnsupportedVersionError: the broker and we have no version of it in common.
            ConnectionLostError: the broker closed the connection.
        """
        first, last = self._ranges.get(request.API_KEY, (0, -1))
        version = min(last, request.MAX_VERSION)
        if version < max(first, request.MIN_VERSION):
            raise UnsupportedVersionError(f"{type(request).__name__}: the broker takes {first} to {last}")
        return self._ask(request, version)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, request: Request[R], version: int) -> R:
        self._correlation_id += 1
        self._socket.sendall(encode_request(request, version, self._correlation_id, CLIENT_ID))
        (size,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size <= MAX_ANSWER_BYTES:
            raise ConnectionLostError(f"{self.address} does not speak Kafka's protocol")
        return decode_response(type(request), version, self._receive(size))

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionLostError(f"{self.address} closed the connection")
            data += part
        return bytes(data)
