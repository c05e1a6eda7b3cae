"""Metrics that the program adds: what can be registered, and functions that fail."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from aioproducer.client_logger import ClientLogger
from aioproducer.telemetry.application_metrics import ApplicationMetric, ApplicationMetrics
from aioproducer.telemetry.subscription import Subscription
from tests.unit.core import messages_of

EVERYTHING = Subscription(bytes(16), 1, 60_000, (), 1 << 20, True, ("",), {})


@pytest.fixture
def metrics() -> ApplicationMetrics:
    return ApplicationMetrics(ClientLogger(logging.getLogger("aioproducer.telemetry"), "shop"))


def only(metrics: ApplicationMetrics) -> ApplicationMetric:
    (found,) = metrics.wanted(EVERYTHING)
    return found


def test_one_of_the_same_name_and_attributes_is_replaced(metrics: ApplicationMetrics) -> None:
    metrics.register("waiting", lambda: 1.0, "gauge", {"a": "1", "b": "2"})
    metrics.register("waiting", lambda: 2.0, "sum", {"b": "2", "a": "1"})
    assert metrics.read(only(metrics)) == 2.0
    assert only(metrics).is_sum
    metrics.unregister("waiting", None)  # another one, which is not there
    assert only(metrics)
    metrics.unregister("waiting", {"b": "2", "a": "1"})
    assert not metrics.wanted(EVERYTHING)


def test_metrics_of_one_name_are_of_one_kind(metrics: ApplicationMetrics) -> None:
    metrics.register("waiting", lambda: 1.0, "gauge", None)
    metrics.register("waiting", lambda: 1.0, "gauge", {"shop": "berlin"})
    with pytest.raises(ValueError, match="waiting is registered as a gauge, with other attributes"):
        metrics.register("waiting", lambda: 1.0, "sum", {"shop": "paris"})
    assert len(metrics.wanted(EVERYTHING)) == 2


class Later:
    async def __call__(self) -> float:
        raise AssertionError


async def later() -> float:
    return 1.0


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (("", float, "gauge", None), ValueError, "can't name a metric"),
        (("9lives", float, "gauge", None), ValueError, "can't name a metric"),
        (("a b", float, "gauge", None), ValueError, "can't name a metric"),
        (("a\n", float, "gauge", None), ValueError, "can't name a metric"),
        (("a" * 256, float, "gauge", None), ValueError, "up to 255"),
        ((b"a", float, "gauge", None), TypeError, "is a str, not a bytes"),
        (("org.apache.kafka.producer.mine", float, "gauge", None), ValueError, "the producer's own"),
        (("a", 5, "gauge", None), TypeError, "read is a int"),
        (("a", later, "gauge", None), TypeError, "read is an async function"),
        (("a", Later(), "gauge", None), TypeError, "read is an async function"),
        (("a", float, "counter", None), ValueError, "kind='counter': a metric is a 'gauge' or a 'sum'"),
        (("a", float, "gauge", [("a", "b")]), TypeError, "attributes is a list"),
        (("a", float, "gauge", {"a": 1}), TypeError, "attributes is a mapping of str to int"),
    ],
)
def test_what_can_not_be_registered(
    metrics: ApplicationMetrics, arguments: Any, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        metrics.register(*arguments)
    assert not metrics.wanted(EVERYTHING)


@pytest.mark.parametrize("name", ["a" * 255, "Orders_9.waiting-now/total"])
def test_names_that_open_telemetry_allows(metrics: ApplicationMetrics, name: str) -> None:
    metrics.register(name, float, "gauge", None)
    assert only(metrics).name == name


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_value(metrics: ApplicationMetrics, caplog: pytest.LogCaptureFixture, value: float) -> None:
    metrics.register("waiting", lambda: value, "gauge", None)
    assert metrics.read(only(metrics)) is None
    assert not caplog.records


@pytest.mark.parametrize("value", [None, "many", 1j])
def test_a_value_that_is_no_number_is_logged_once(
    metrics: ApplicationMetrics, caplog: pytest.LogCaptureFixture, value: Any
) -> None:
    metrics.register("waiting", lambda: value, "gauge", None)
    assert metrics.read(only(metrics)) is metrics.read(only(metrics)) is None
    assert messages_of(caplog, "aioproducer.telemetry", logging.WARNING) == [
        "the metric waiting could not be read and is left out"
    ]


def test_a_function_that_fails_may_recover(metrics: ApplicationMetrics, caplog: pytest.LogCaptureFixture) -> None:
    values = iter([ZeroDivisionError, 3])

    def read() -> float:
        value = next(values)
        if not isinstance(value, int):
            raise value
        return value

    metrics.register("waiting", read, "gauge", None)
    assert metrics.read(only(metrics)) is None
    assert "ZeroDivisionError" in caplog.text
    assert metrics.read(only(metrics)) == 3.0
