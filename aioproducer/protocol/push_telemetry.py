"""PushTelemetry (key 72): a client's metrics for the cluster (KIP-714)."""

from __future__ import annotations

from aioproducer.protocol.schema import Int8, Int16, Int32, Message, Request, Uuid, field


class PushTelemetryResponse(Message):
    """Whether the broker accepted them; error 117 means that the subscription has changed."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class PushTelemetryRequest(Request[PushTelemetryResponse]):
    """``metrics`` is OTLP protobuf MetricsData, compressed by ``compression_type``; ``terminating``: the last push."""

    API_KEY = 72
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_FROM = 0

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: bool
    compression_type: Int8
    metrics: bytes = field(hidden=True)
