"""GetTelemetrySubscriptions (key 71): which metrics the cluster wants from its clients (KIP-714)."""

from __future__ import annotations

from aioproducer.protocol.schema import Int8, Int16, Int32, Message, Request, Uuid, field


class GetTelemetrySubscriptionsResponse(Message):
    """What to push, how often and how. ``requested_metrics`` are name prefixes: an empty list means none, ``*`` all."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: bool
    requested_metrics: list[str]


class GetTelemetrySubscriptionsRequest(Request[GetTelemetrySubscriptionsResponse]):
    """Use the zero uuid at first to get an instance id, and that id later."""

    API_KEY = 71
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_FROM = 0

    client_instance_id: Uuid
