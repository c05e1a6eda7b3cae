"""OTLP bytes, read back by OpenTelemetry's own classes."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from aioproducer.telemetry import otlp

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
POINTS = st.lists(
    st.tuples(
        st.floats(allow_nan=False),
        st.integers(0, 2**64 - 1),
        st.dictionaries(TEXT, TEXT, max_size=3),
    ),
    max_size=4,
)


def test_the_whole() -> None:
    data = MetricsData.FromString(
        otlp.metrics_data(
            {"transactional_id": "billing"},
            "aioproducer",
            "1.2.3",
            [
                otlp.gauge("age", [otlp.point(0.5, 7)]),
                otlp.total("sent", [otlp.point(3.0, 9, otlp.attributes({"topic": "orders"}), 4)], otlp.DELTA),
                otlp.total("all", [otlp.point(8.0, 9, start_ns=1)], otlp.CUMULATIVE),
            ],
        )
    )
    (resource,) = data.resource_metrics
    assert [(one.key, one.value.string_value) for one in resource.resource.attributes] == [
        ("transactional_id", "billing")
    ]
    (scope,) = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == ("aioproducer", "1.2.3")
    age, sent, everything = scope.metrics
    assert age.name == "age"
    (point,) = age.gauge.data_points
    assert (point.as_double, point.time_unix_nano, point.start_time_unix_nano) == (0.5, 7, 0)
    assert sent.sum.is_monotonic
    assert sent.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    (point,) = sent.sum.data_points
    assert (point.as_double, point.time_unix_nano, point.start_time_unix_nano) == (3.0, 9, 4)
    assert [(one.key, one.value.string_value) for one in point.attributes] == [("topic", "orders")]
    assert everything.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def test_of_nothing() -> None:
    (resource,) = MetricsData.FromString(otlp.metrics_data({}, "", "", [])).resource_metrics
    assert list(resource.resource.attributes) == []
    assert list(resource.scope_metrics[0].metrics) == []


@given(resource=st.dictionaries(TEXT, TEXT, max_size=3), names=st.lists(TEXT, max_size=3), points=POINTS)
def test_whatever_it_is_it_reads_the_same(
    resource: dict[str, str], names: list[str], points: list[tuple[float, int, dict[str, str]]]
) -> None:
    encoded = [otlp.point(value, time_ns, otlp.attributes(labels)) for value, time_ns, labels in points]
    data = MetricsData.FromString(
        otlp.metrics_data(resource, "scope", "1", [otlp.gauge(name, encoded) for name in names])
    )
    (found,) = data.resource_metrics
    assert {one.key: one.value.string_value for one in found.resource.attributes} == resource
    assert [metric.name for metric in found.scope_metrics[0].metrics] == names
    for metric in found.scope_metrics[0].metrics:
        read = [
            (point.as_double, point.time_unix_nano, {one.key: one.value.string_value for one in point.attributes})
            for point in metric.gauge.data_points
        ]
        assert read == points


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_sizes_around_the_steps_of_a_varint(size: int) -> None:
    name = "x" * size
    (resource,) = MetricsData.FromString(otlp.metrics_data({}, name, "", [])).resource_metrics
    assert resource.scope_metrics[0].scope.name == name


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308])
def test_values_at_the_edges(value: float) -> None:
    data = otlp.metrics_data({}, "", "", [otlp.gauge("edge", [otlp.point(value, 1)])])
    (point,) = MetricsData.FromString(data).resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    assert struct.pack("<d", point.as_double) == struct.pack("<d", value)
