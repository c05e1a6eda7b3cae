"""What brokers do with client metrics if they have a receiver for them (KIP-714). Pure.

Source: Kafka's ClientMetricsManager and ClientMetricsInstance.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from aioproducer.compression import codec_by_attribute
from aioproducer.error_codes import Code
from aioproducer.errors import ConfigError, ProtocolError
from aioproducer.protocol.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from aioproducer.protocol.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from aioproducer.protocol.schema import ZERO_UUID

RANGES = {GetTelemetrySubscriptionsRequest.API_KEY: (0, 0), PushTelemetryRequest.API_KEY: (0, 0)}
DEFAULT_INTERVAL_MS = 5 * 60 * 1000
MAX_BYTES = 1_048_576
CODECS = (4, 3, 1, 2)
MAX_PLAIN_BYTES = 100 * MAX_BYTES
NEVER = -(2**62)


@dataclass(frozen=True, slots=True)
class Push:
    """One push accepted by a broker.

    Attributes:
        broker: its node id.
        client_instance_id: the 16 bytes of the client's id.
        terminating: whether the client marked it as its last.
        codec: the name of the compression.
        metrics: OTLP MetricsData as protobuf, decompressed.
    """

    broker: int
    client_instance_id: bytes
    terminating: bool
    codec: str
    metrics: bytes


@dataclass(slots=True)
class Instance:
    """A client as one broker knows it."""

    version: int
    asked_ms: int = NEVER
    pushed_ms: int = NEVER
    terminating: bool = False


class ClientMetrics:
    """See the module.

    Args:
        rng: generates client ids.
    """

    def __init__(self, rng: random.Random) -> None:
        self.pushes: list[Push] = []
        self.rng: random.Random = rng
        self.names: tuple[str, ...] = ()
        self.interval_ms: int = DEFAULT_INTERVAL_MS
        self.max_bytes: int = MAX_BYTES
        self.delta: bool = True
        self.codecs: tuple[int, ...] = CODECS
        self._version = 0
        self._instances: dict[tuple[int, bytes], Instance] = {}

    def subscribe(
        self, names: Sequence[str], interval_ms: int, max_bytes: int, delta: bool, codecs: Sequence[int]
    ) -> None:
        """Set what clients must push from now on."""
        self.names, self.interval_ms, self.max_bytes = tuple(names), interval_ms, max_bytes
        self.delta, self.codecs = delta, tuple(codecs)
        self._version += 1

    def instance(self, broker: int, client: bytes) -> Instance:
        """The state of a client; a changed subscription resets it."""
        found = self._instances.get((broker, client))
        if found is None or found.version < self._version:
            found = self._instances[broker, client] = Instance(self._version)
        return found

    def subscription_id(self, client: bytes) -> int:
        """The id of a client's current subscription."""
        wishes = zlib.crc32(f"{self.names} {self.interval_ms} {client.hex()}".encode())
        return wishes - 2**31


def subscription(
    metrics: ClientMetrics, broker: int, request: GetTelemetrySubscriptionsRequest, now_ms: int
) -> GetTelemetrySubscriptionsResponse:
    """The answer to a client that asks for its subscription."""
    client = request.client_instance_id
    if client == ZERO_UUID:
        client = metrics.rng.randbytes(16)
    instance = metrics.instance(broker, client)
    if now_ms - max(instance.asked_ms, instance.pushed_ms) < metrics.interval_ms:
        return refused_subscription(Code.THROTTLING_QUOTA_EXCEEDED)
    instance.asked_ms = now_ms
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client,
        subscription_id=metrics.subscription_id(client),
        accepted_compression_types=list(metrics.codecs),
        push_interval_ms=metrics.interval_ms,
        telemetry_max_bytes=metrics.max_bytes,
        delta_temporality=metrics.delta,
        requested_metrics=list(metrics.names),
    )


def push(metrics: ClientMetrics, broker: int, request: PushTelemetryRequest, now_ms: int) -> PushTelemetryResponse:
    """Accept or refuse a client's metrics."""
    return PushTelemetryResponse(error_code=_take(metrics, broker, request, now_ms))


def _take(metrics: ClientMetrics, broker: int, request: PushTelemetryRequest, now_ms: int) -> int:
    client = request.client_instance_id
    if client == ZERO_UUID:
        return Code.INVALID_REQUEST
    instance = metrics.instance(broker, client)
    had_ended, instance.terminating = instance.terminating, request.terminating
    if had_ended:
        return Code.INVALID_REQUEST
    in_time = instance.asked_ms > instance.pushed_ms or now_ms - instance.pushed_ms >= metrics.interval_ms
    if in_time:
        instance.pushed_ms = now_ms
    elif not request.terminating:
        return Code.THROTTLING_QUOTA_EXCEEDED
    if request.subscription_id != metrics.subscription_id(client):
        return Code.UNKNOWN_SUBSCRIPTION_ID
    try:
        codec = codec_by_attribute(request.compression_type)
    except (ProtocolError, ConfigError):
        return Code.UNSUPPORTED_COMPRESSION_TYPE
    if len(request.metrics) > metrics.max_bytes:
        return Code.TELEMETRY_TOO_LARGE
    try:
        plain = codec.decompress(request.metrics, MAX_PLAIN_BYTES) if request.metrics else b""
    except ProtocolError:
        return Code.INVALID_RECORD
    metrics.pushes.append(Push(broker, client, request.terminating, codec.name, plain))
    return 0


def refused_subscription(error_code: int) -> GetTelemetrySubscriptionsResponse:
    """An answer to GetTelemetrySubscriptions with only an error."""
    return GetTelemetrySubscriptionsResponse(
        error_code=error_code,
        client_instance_id=ZERO_UUID,
        subscription_id=0,
        accepted_compression_types=[],
        push_interval_ms=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=[],
    )
