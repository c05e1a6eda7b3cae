"""Which metrics a cluster wants from its clients, and what its refusals mean. Pure.

Source: KIP-714; ClientTelemetryUtils of the Java client for the reaction to each error.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from aioproducer.compression import Codec, codec_by_attribute
from aioproducer.error_codes import Code
from aioproducer.errors import ConfigError, ProtocolError
from aioproducer.metrics import NAMES
from aioproducer.protocol.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from aioproducer.protocol.schema import ZERO_UUID

DEFAULT_INTERVAL_MS = 5 * 60 * 1000
"""Interval between two requests unless the cluster set another."""

PREFIX = "org.apache.kafka"
ALL = ["*"]
NO_CODEC = 0

MAY_PASS = frozenset(
    (
        Code.UNKNOWN_SUBSCRIPTION_ID,
        Code.TELEMETRY_TOO_LARGE,
        Code.THROTTLING_QUOTA_EXCEEDED,
        Code.UNSUPPORTED_COMPRESSION_TYPE,
    )
)
"""Codes after which the subscription is requested again; after any other, that is useless."""

AT_ONCE = frozenset((Code.UNKNOWN_SUBSCRIPTION_ID, Code.UNSUPPORTED_COMPRESSION_TYPE))
"""Codes of a push after which it is requested at once."""


def full_name(group: str, name: str) -> str:
    """The full name of a metric, such as ``org.apache.kafka.producer.node.request.latency.avg``."""
    return f"{PREFIX}.{group.removesuffix('-metrics').replace('-', '.')}.{name.replace('-', '.')}"


def readable(instance_id: bytes) -> str:
    """An id in the form used by Kafka's logs and tools."""
    return base64.urlsafe_b64encode(instance_id).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Subscription:
    """One answer to GetTelemetrySubscriptions.

    Args:
        instance_id: this client's id, which it keeps for life.
        subscription_id: identifies this subscription.
        interval_ms: time between two pushes.
        codecs: numbers of the codecs that the cluster accepts, preferred ones first.
        max_bytes: the limit of a push, compressed.
        delta: whether sums count from the last push.
        prefixes: what the names of wanted metrics begin with.
        names: the wanted metrics of the producer by group.
    """

    instance_id: bytes = field(repr=False)
    subscription_id: int
    interval_ms: int
    codecs: tuple[int, ...]
    max_bytes: int
    delta: bool
    prefixes: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]] = field(repr=False)

    @classmethod
    def of(cls, response: GetTelemetrySubscriptionsResponse) -> Subscription:
        """Read an answer without error.

        Raises:
            ProtocolError: it has no id for this client.
        """
        if response.client_instance_id == ZERO_UUID:
            raise ProtocolError("an answer to GetTelemetrySubscriptions without a client instance id")
        wanted = response.requested_metrics
        prefixes = ("",) if wanted == ALL else tuple(wanted)
        return cls(
            instance_id=response.client_instance_id,
            subscription_id=response.subscription_id,
            interval_ms=response.push_interval_ms if response.push_interval_ms > 0 else DEFAULT_INTERVAL_MS,
            codecs=tuple(response.accepted_compression_types),
            max_bytes=response.telemetry_max_bytes,
            delta=response.delta_temporality,
            prefixes=prefixes,
            names={group: _chosen(group, names, prefixes) for group, names in NAMES.items()},
        )

    @property
    def wants_any(self) -> bool:
        """Whether there is anything to push of the producer's own metrics."""
        return any(self.names.values())

    def wants(self, name: str) -> bool:
        """Whether a metric of this full name is to be pushed."""
        return name.startswith(self.prefixes)

    def codec(self, refused: Collection[int]) -> Codec:
        """The cluster's preferred codec that is installed here and was not refused; else the codec none."""
        for number in self.codecs:
            if number not in refused:
                try:
                    return codec_by_attribute(number)
                except (ProtocolError, ConfigError):
                    continue  # a future codec, or its package is not installed
        return codec_by_attribute(NO_CODEC)


def _chosen(group: str, names: Collection[str], prefixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if full_name(group, name).startswith(prefixes))
