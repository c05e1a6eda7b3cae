"""One connection to a broker of the model. Pure.

``feed`` reads requests and ``apply`` carries one out. They are separate so that the transport can lose a connection
before or after a request has taken effect.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from aioproducer.protocol.schema import Message
from aioproducer.testing.fake.apis import API_CLASSES, CloseConnectionError, Handled, handle, refuse, targets_of
from aioproducer.testing.fake.faults import Effect, Fault
from aioproducer.testing.fake.frames import FrameReader, RequestFrame, response_frame
from aioproducer.testing.fake.model import ClusterModel
from aioproducer.testing.fake.produce import ProduceHandler

# From these versions on the client throttles itself; before, the answer is delayed (KIP-219).
CLIENT_THROTTLES_SINCE = {
    "Produce": 6, "Metadata": 6, "FindCoordinator": 2, "ApiVersions": 2, "InitProducerId": 1,
    "AddPartitionsToTxn": 1, "AddOffsetsToTxn": 1, "EndTxn": 1, "TxnOffsetCommit": 1,
    "GetTelemetrySubscriptions": 0, "PushTelemetry": 0,
}  # fmt: skip
MAX_GARBAGE_BYTES = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """A broker's reaction to a request.

    Attributes:
        frame: the bytes to send; None for no answer.
        delay_ms: send it this much later; everything after it on the connection waits too.
        close: close the connection then.
        waits: replicas decide about the answer; ask for it again with ``Session.decided``.
    """

    frame: bytes | None = None
    delay_ms: int = 0
    close: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class _Open:
    """A request whose answer waits for replicas."""

    request: RequestFrame
    faults: list[Fault]
    handler: ProduceHandler


class Session:
    """See the module.

    Attributes:
        node_id: the broker.
        closed: the broker has stopped or closed the connection; nothing is read or answered any more.
        silent: an unanswered request blocks all later ones.
    Raises:
        ConnectionRefusedError: the broker is not running.
    """

    def __init__(self, cluster: ClusterModel, node_id: int) -> None:
        self.node_id = node_id
        self.closed: bool = False
        self.silent: bool = False
        self._cluster = cluster
        self._reader = FrameReader(cluster.ranges, API_CLASSES)
        self._muted_until_ms = 0
        self._open: _Open | None = None
        cluster.accept(self)

    @property
    def broken(self) -> str | None:
        """Why no more bytes can be read, so that the broker closes the connection; None while they can."""
        return self._reader.broken

    def feed(self, data: bytes | bytearray | memoryview) -> list[RequestFrame]:
        """Read bytes, split anywhere, and return the requests now complete."""
        return [] if self.closed else self._reader.feed(data)

    def apply(self, request: RequestFrame, now_ms: int) -> Answer:
        """Carry out a request, and return the answer. A connection's requests are applied in order."""
        if self.closed:
            return Answer(close=True)
        if self.silent:
            return Answer()
        self._cluster.advance(now_ms)
        faults = self._cluster.faults.of_request(self.node_id, request.api_name, targets_of(self._cluster, request))
        if any(one.effect in (Effect.DROP, Effect.SWALLOW) and not one.apply for one in faults):
            return self._unanswered(faults, self._delay_ms(faults, now_ms))
        try:
            message = self._result(request, faults, now_ms)
        except CloseConnectionError:
            return self._closing(self._delay_ms(faults, now_ms))
        if isinstance(message, ProduceHandler):
            self._open = _Open(request, faults, message)
            return Answer(waits=True)
        return self._applied(request, faults, message, now_ms)

    def decided(self, now_ms: int) -> Answer:
        """The answer that replicas decide about, once they have."""
        if self.closed or self._open is None:
            return Answer(close=True)
        message = self._open.handler.response(now_ms)
        if message is None:
            return Answer(waits=True)
        request, faults = self._open.request, self._open.faults
        self._open = None
        return self._applied(request, faults, message, now_ms)

    def _applied(self, request: RequestFrame, faults: list[Fault], message: Message | None, now_ms: int) -> Answer:
        delay_ms = self._delay_ms(faults, now_ms)
        if any(one.effect in (Effect.DROP, Effect.SWALLOW) for one in faults):
            return self._unanswered(faults, delay_ms)
        if message is None:
            return Answer(delay_ms=delay_ms)
        throttle_ms = _longest(faults, Effect.THROTTLE)
        if throttle_ms:
            delay_ms += self._throttle(request, message, throttle_ms, now_ms + delay_ms)
        return self._answer(request, message, faults, delay_ms)

    def close(self) -> None:
        """The connection has ended, from either side."""
        self.closed = True
        self._cluster.forget(self)

    def _delay_ms(self, faults: list[Fault], now_ms: int) -> int:
        return max(0, self._muted_until_ms - now_ms) + _longest(faults, Effect.DELAY)

    def _result(self, request: RequestFrame, faults: list[Fault], now_ms: int) -> Handled:
        failing = next((one for one in faults if one.effect is Effect.FAIL), None)
        if failing is None:
            return handle(self._cluster, self.node_id, request, now_ms)
        message = handle(self._cluster, self.node_id, request, now_ms) if failing.apply else None
        return refuse(self._cluster, request, failing, message)

    def _throttle(self, request: RequestFrame, message: Any, throttle_ms: int, answered_ms: int) -> int:
        """Put the throttle time into the answer; returns how much to delay the answer."""
        if hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = throttle_ms
        if request.version < CLIENT_THROTTLES_SINCE.get(request.api_name, 0):
            return throttle_ms
        self._muted_until_ms = answered_ms + throttle_ms
        return 0

    def _unanswered(self, faults: list[Fault], delay_ms: int) -> Answer:
        if any(one.effect is Effect.DROP for one in faults):
            return self._closing(delay_ms)
        self.silent = True
        return Answer(delay_ms=delay_ms)

    def _closing(self, delay_ms: int, frame: bytes | None = None) -> Answer:
        self.close()
        return Answer(frame, delay_ms, close=True)

    def _answer(self, request: RequestFrame, message: Message, faults: list[Fault], delay_ms: int) -> Answer:
        flexible = _header_is_flexible(request)
        frame = response_frame(request, message, flexible=flexible)
        for fault in faults:
            if fault.effect is Effect.GARBLE:
                if fault.how == "truncated":
                    return self._closing(delay_ms, frame[: self._cluster.rng.randrange(len(frame))])
                frame = self._garbled(frame, fault)
        return Answer(frame, delay_ms)

    def _garbled(self, frame: bytes, fault: Fault) -> bytes:
        rng = self._cluster.rng
        if fault.how == "correlation_id":
            if len(frame) < 8:
                return frame  # it is garbage already
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            return frame[:4] + struct.pack(">i", correlation_id ^ 1 << rng.randrange(31)) + frame[8:]
        garbage = rng.randbytes(rng.randint(1, MAX_GARBAGE_BYTES))
        return struct.pack(">i", len(garbage)) + garbage


def _longest(faults: list[Fault], effect: Effect) -> int:
    return max((one.duration_ms for one in faults if one.effect is effect), default=0)


def _header_is_flexible(request: RequestFrame) -> bool:
    if request.message is None:
        return False
    flexible: bool = type(request.message).response_header_is_flexible(request.version)
    return flexible
