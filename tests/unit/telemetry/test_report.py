"""One push: which values, in how many steps, and which of them count as reported."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aioproducer.metrics import NAMES, ProducerMetrics
from aioproducer.telemetry.report import MEMBERS_A_STEP, Report, Told
from aioproducer.telemetry.subscription import Subscription

STARTED_NS, NOW_MS = 1_000, 50_000
TOTAL = "record-error-total"


def wishes(*, delta: bool = True, **names: tuple[str, ...]) -> Subscription:
    chosen = {group: names.get(group.removesuffix("-metrics").replace("-", "_"), ()) for group in NAMES}
    return Subscription(bytes(16), 1, 60_000, (), 1 << 20, delta, chosen)


def report(metrics: ProducerMetrics, subscription: Subscription, told: Told, now_ns: int) -> Report:
    made = Report(metrics, subscription, told, {}, NOW_MS, now_ns)
    for _ in made.steps():
        pass
    return made


def points(data: bytes) -> dict[str, dict[str, tuple[int, int, float]]]:
    """By name and label: (start, time, value)."""
    found: dict[str, dict[str, tuple[int, int, float]]] = {}
    for resource in MetricsData.FromString(data).resource_metrics:
        for metric in resource.scope_metrics[0].metrics:
            for point in metric.sum.data_points or metric.gauge.data_points:
                label = point.attributes[0].value.string_value if point.attributes else ""
                values: tuple[Any, ...] = point.start_time_unix_nano, point.time_unix_nano, point.as_double
                found.setdefault(metric.name.rpartition("producer.")[2], {})[label] = values
    return found


def test_deltas_go_on_where_the_last_ended() -> None:
    metrics, told = ProducerMetrics(), Told(STARTED_NS)
    wanted = wishes(producer_topic=(TOTAL,), producer=(TOTAL,))
    metrics.record_errors("orders", 3, NOW_MS)
    first = report(metrics, wanted, told, 2_000)
    found = points(first.encoded())
    assert found["record.error.total"] == {"": (STARTED_NS, 2_000, 3.0)}
    assert found["topic.record.error.total"] == {"orders": (STARTED_NS, 2_000, 3.0)}
    first.taken()
    metrics.record_errors("audit", 2, NOW_MS)
    found = points(report(metrics, wanted, told, 3_000).encoded())
    assert found["record.error.total"] == {"": (2_000, 3_000, 2.0)}
    assert found["topic.record.error.total"] == {"orders": (2_000, 3_000, 0.0), "audit": (2_000, 3_000, 2.0)}


def test_what_was_not_taken_is_told_again() -> None:
    metrics, told = ProducerMetrics(), Told(STARTED_NS)
    wanted = wishes(producer=(TOTAL,))
    metrics.record_errors("orders", 3, NOW_MS)
    report(metrics, wanted, told, 2_000)
    assert points(report(metrics, wanted, told, 3_000).encoded())["record.error.total"][""] == (STARTED_NS, 3_000, 3.0)


def test_what_is_wanted_later_is_told_from_the_start() -> None:
    metrics, told = ProducerMetrics(), Told(STARTED_NS)
    metrics.record_errors("orders", 3, NOW_MS)
    metrics.record_retries("orders", 5, NOW_MS)
    report(metrics, wishes(producer=(TOTAL,)), told, 2_000).taken()
    found = points(report(metrics, wishes(producer=(TOTAL, "record-retry-total")), told, 3_000).encoded())
    assert found["record.error.total"][""] == (2_000, 3_000, 0.0)
    assert found["record.retry.total"][""] == (STARTED_NS, 3_000, 5.0)


def test_sums_since_the_start() -> None:
    metrics, told = ProducerMetrics(), Told(STARTED_NS)
    wanted = wishes(delta=False, producer=(TOTAL,))
    metrics.record_errors("orders", 3, NOW_MS)
    report(metrics, wanted, told, 2_000).taken()
    assert points(report(metrics, wanted, told, 3_000).encoded())["record.error.total"][""] == (STARTED_NS, 3_000, 3.0)


def test_what_is_left_out() -> None:
    metrics, told = ProducerMetrics(), Told(STARTED_NS)
    metrics.record_errors("orders", 3, NOW_MS)
    metrics.traffic(1).sent(10, NOW_MS)
    made = report(
        metrics, wishes(producer=(TOTAL,), producer_topic=(TOTAL,), producer_node=("request-total",)), told, 1
    )
    left_out = []
    while (group := made.leave_out()) is not None:
        left_out.append(group)
        names = set(points(made.encoded()))
        assert not any(name.startswith("topic.") for name in names)
        if len(left_out) == 1:
            made.taken()
    assert left_out == ["producer-topic-metrics", "producer-node-metrics", "producer-metrics"]
    assert made.encoded() == b""
    assert told.value(("producer-metrics", "", TOTAL)) == 3.0
    assert told.value(("producer-topic-metrics", "orders", TOTAL)) == 0.0


def test_thousands_of_topics_take_many_steps() -> None:
    """The loop runs between these steps."""
    metrics = ProducerMetrics()
    for number in range(10 * MEMBERS_A_STEP):
        metrics.record_errors(f"topic-{number}", 1, NOW_MS)
    made = Report(metrics, wishes(producer_topic=(TOTAL,)), Told(STARTED_NS), {}, NOW_MS, 2_000)
    assert len(list(made.steps())) == 10
    assert len(points(made.encoded())["topic.record.error.total"]) == 10 * MEMBERS_A_STEP


def test_a_topic_that_comes_while_it_is_read() -> None:
    metrics = ProducerMetrics()
    for number in range(2 * MEMBERS_A_STEP):
        metrics.record_errors(f"topic-{number}", 1, NOW_MS)
    made = Report(metrics, wishes(producer_topic=(TOTAL,)), Told(STARTED_NS), {}, NOW_MS, 2_000)
    for _ in made.steps():
        metrics.record_errors("late", 1, NOW_MS)
    assert made.encoded()
