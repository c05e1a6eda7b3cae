"""One push: which values, in how many steps, and which of them count as reported."""

from __future__ import annotations

import logging
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aioproducer.client_logger import ClientLogger
from aioproducer.metrics import NAMES, ProducerMetrics
from aioproducer.telemetry.application_metrics import ApplicationMetrics
from aioproducer.telemetry.report import MEMBERS_A_STEP, Report, Told
from aioproducer.telemetry.subscription import Subscription

STARTED_NS, NOW_MS = 1_000, 50_000
TOTAL = "record-error-total"


def wishes(*, delta: bool = True, prefixes: tuple[str, ...] = (), **names: tuple[str, ...]) -> Subscription:
    chosen = {group: names.get(group.removesuffix("-metrics").replace("-", "_"), ()) for group in NAMES}
    return Subscription(bytes(16), 1, 60_000, (), 1 << 20, delta, prefixes, chosen)


def application() -> ApplicationMetrics:
    return ApplicationMetrics(ClientLogger(logging.getLogger(__name__), "shop"))


def report(
    metrics: ProducerMetrics,
    subscription: Subscription,
    told: Told,
    now_ns: int,
    added: ApplicationMetrics | None = None,
) -> Report:
    made = Report(metrics, added or application(), subscription, told, {}, NOW_MS, now_ns)
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


def test_a_gauge_is_no_difference() -> None:
    """Only sums count from the last push."""
    metrics, told = ProducerMetrics(), Told(STARTED_NS)
    metrics.register_gauge("connection-count", lambda: 3.0)
    for now_ns in 2_000, 3_000:
        made = report(metrics, wishes(producer=("connection-count",)), told, now_ns)
        assert points(made.encoded()) == {"connection.count": {"": (0, now_ns, 3.0)}}
        made.taken()


def test_what_is_forgotten_is_told_from_the_start() -> None:
    metrics, told = ProducerMetrics(), Told(STARTED_NS)
    wanted = wishes(producer=(TOTAL,))
    metrics.record_errors("orders", 3, NOW_MS)
    report(metrics, wanted, told, 2_000).taken()
    told.forget()
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


def test_what_has_no_values_is_not_left_out() -> None:
    """The log would name it as the cause."""
    metrics = ProducerMetrics()
    metrics.record_errors("orders", 3, NOW_MS)
    made = report(metrics, wishes(producer=(TOTAL,), producer_node=("request-total",)), Told(STARTED_NS), 1)
    assert [made.leave_out(), made.leave_out()] == ["producer-metrics", None]


def test_thousands_of_topics_take_many_steps() -> None:
    """The loop runs between these steps."""
    metrics = ProducerMetrics()
    for number in range(10 * MEMBERS_A_STEP):
        metrics.record_errors(f"topic-{number}", 1, NOW_MS)
    made = Report(metrics, application(), wishes(producer_topic=(TOTAL,)), Told(STARTED_NS), {}, NOW_MS, 2_000)
    assert len(list(made.steps())) == 10
    assert len(points(made.encoded())["topic.record.error.total"]) == 10 * MEMBERS_A_STEP


def test_a_topic_that_comes_while_it_is_read() -> None:
    metrics = ProducerMetrics()
    for number in range(2 * MEMBERS_A_STEP):
        metrics.record_errors(f"topic-{number}", 1, NOW_MS)
    made = Report(metrics, application(), wishes(producer_topic=(TOTAL,)), Told(STARTED_NS), {}, NOW_MS, 2_000)
    for _ in made.steps():
        metrics.record_errors("late", 1, NOW_MS)
    assert made.encoded()


# --- the program's own ------------------------------------------------------------------------------------------------


def test_what_the_program_adds() -> None:
    metrics, told, added = ProducerMetrics(), Told(STARTED_NS), application()
    waiting, handled = [3.0], {"berlin": 10, "paris": 20}
    added.register("com.example.waiting", lambda: waiting[0], "gauge", None)
    for shop in handled:
        added.register("com.example.handled", lambda shop=shop: handled[shop], "sum", {"shop": shop})  # type: ignore[misc]
    added.register("com.other", lambda: 1.0, "gauge", None)
    wanted = wishes(prefixes=("com.example.",))
    first = report(metrics, wanted, told, 2_000, added)
    assert points(first.encoded()) == {
        "com.example.waiting": {"": (0, 2_000, 3.0)},
        "com.example.handled": {"berlin": (STARTED_NS, 2_000, 10.0), "paris": (STARTED_NS, 2_000, 20.0)},
    }
    first.taken()
    waiting[0], handled["berlin"] = 1.5, 14
    added.unregister("com.example.handled", {"shop": "paris"})
    second = report(metrics, wanted, told, 3_000, added)
    assert points(second.encoded()) == {
        "com.example.waiting": {"": (0, 3_000, 1.5)},
        "com.example.handled": {"berlin": (2_000, 3_000, 4.0)},
    }


def test_a_sum_that_begins_anew() -> None:
    """As if the program had restarted: what it has counted since is all that is new."""
    told, added, counted = Told(STARTED_NS), application(), [10]
    added.register("com.example.handled", lambda: counted[0], "sum", None)
    report(ProducerMetrics(), wishes(prefixes=("",)), told, 2_000, added).taken()
    counted[0] = 4
    again = report(ProducerMetrics(), wishes(prefixes=("",)), told, 3_000, added)
    assert points(again.encoded())["com.example.handled"] == {"": (2_000, 3_000, 4.0)}
    since_start = report(ProducerMetrics(), wishes(delta=False, prefixes=("",)), told, 3_000, added)
    assert points(since_start.encoded())["com.example.handled"] == {"": (STARTED_NS, 3_000, 4.0)}


def test_a_large_report_keeps_the_producers_own_longest() -> None:
    metrics, added = ProducerMetrics(), application()
    metrics.record_errors("orders", 3, NOW_MS)
    added.register("com.example.waiting", lambda: 1.0, "gauge", None)
    made = report(
        metrics, wishes(producer=(TOTAL,), producer_topic=(TOTAL,), prefixes=("com",)), Told(STARTED_NS), 1, added
    )
    assert [made.leave_out() for _ in range(4)] == ["producer-topic-metrics", "application", "producer-metrics", None]


def test_many_metrics_of_the_program_take_many_steps() -> None:
    added = application()
    for number in range(10 * MEMBERS_A_STEP):
        added.register(f"com.example.m{number}", lambda: 1.0, "gauge", None)
    made = Report(ProducerMetrics(), added, wishes(prefixes=("",)), Told(STARTED_NS), {}, NOW_MS, 2_000)
    for _ in made.steps():
        added.unregister("com.example.m0", None)  # the loop runs between these steps
    assert len(points(made.encoded())) == 10 * MEMBERS_A_STEP
