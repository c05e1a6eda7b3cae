"""OTLP metrics as protobuf: the small part that client telemetry needs. Pure.

    MetricsData > ResourceMetrics > Resource and ScopeMetrics > Metric > Gauge or Sum > NumberDataPoint

Source: opentelemetry-proto, metrics/v1/metrics.proto; protobuf's encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

VARINT, FIXED64, BYTES = 0, 1, 2
DELTA, CUMULATIVE = 1, 2
"""AggregationTemporality of a sum."""

_TIME_AND_VALUE = struct.Struct("<BQBd")
_TIME = struct.Struct("<BQ")


def metrics_data(resource: Mapping[str, str], name: str, version: str, metrics: Iterable[bytes]) -> bytes:
    """A MetricsData of one resource and one instrumentation scope.

    Args:
        resource: attributes of the measured process.
        name, version: those of the measuring library.
        metrics: results of ``gauge`` and ``total``.
    """
    scope = _field(1, b"".join((_text(1, name), _text(2, version))))
    scoped = scope + b"".join(_field(2, metric) for metric in metrics)
    return _field(1, _field(1, attributes(resource, 1)) + _field(2, scoped))


def gauge(name: str, points: Iterable[bytes]) -> bytes:
    """A Metric of instantaneous values."""
    return _text(1, name) + _field(5, b"".join(_field(1, point) for point in points))


def total(name: str, points: Iterable[bytes], temporality: int) -> bytes:
    """A Metric of monotonic sums: since their start (``CUMULATIVE``), or since the last report (``DELTA``)."""
    measured = b"".join(_field(1, point) for point in points)
    return _text(1, name) + _field(7, measured + bytes((2 << 3 | VARINT, temporality, 3 << 3 | VARINT, 1)))


def point(value: float, time_ns: int, labels: bytes = b"", start_ns: int | None = None) -> bytes:
    """A NumberDataPoint.

    Args:
        time_ns: time of the value, since the epoch.
        labels: the result of ``attributes``.
        start_ns: the start of a sum.
    """
    start = b"" if start_ns is None else _TIME.pack(2 << 3 | FIXED64, start_ns)
    return start + _TIME_AND_VALUE.pack(3 << 3 | FIXED64, time_ns, 4 << 3 | FIXED64, value) + labels


def attributes(values: Mapping[str, str], number: int = 7) -> bytes:
    """KeyValues of text, as a repeated field with this number: 7 in a data point, 1 in a resource."""
    return b"".join(_field(number, _text(1, key) + _field(2, _text(1, value))) for key, value in values.items())


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode("utf-8", "replace"))


def _field(number: int, data: bytes) -> bytes:
    return bytes((number << 3 | BYTES,)) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
