"""Metrics: Java's names, windows like Kafka's sampled statistics, and reading without side effects."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._counts import Counts, TopicCounts, Windows
from aioproducer._producer_batch import ProducerBatch
from aioproducer.metrics import GAUGES, NAMES, ProducerMetrics, View
from tests.unit.core import add_topic, allocated_blocks, drain_all, make_accumulator, put

HEADER_BYTES = 61
START_MS = 1_000_000
WINDOW_MS = 30_000

GOLDEN = Path(__file__).parent.parent / "golden"
OBSERVABILITY = Path(__file__).parent.parent.parent / "docs" / "observability.md"

JAVAS_OWN = {
    **dict.fromkeys(
        (
            "io-ratio", "io-time-ns-avg", "io-time-ns-total", "io-wait-ratio", "io-wait-time-ns-avg",
            "io-wait-time-ns-total", "select-rate", "select-total",
        ),
        "of its I/O thread",
    ),
    "successful-authentication-no-reauth-total": "counts clients, at brokers",
}  # fmt: skip
"""Java's metrics that have no equivalent here, and why."""


def value_of(record_bytes: int) -> bytes:
    """The value of a record, without key and headers, that takes this many bytes in a batch."""
    of_length = 1 if record_bytes - 1 < 64 else 2  # a zigzag varint
    value_bytes = record_bytes - of_length - 5
    return bytes(value_bytes - (1 if value_bytes - 1 < 64 else 2))


def sent(
    created_ms: int,
    *,
    topic: str = "orders",
    record_count: int = 10,
    wire_bytes: int = 500,
    size_bytes: int = 1000 - HEADER_BYTES,
    largest_record_bytes: int = 120,
) -> ProducerBatch:
    """A batch in flight with records of these sizes."""
    accumulator = make_accumulator()
    queues = add_topic(accumulator, topic)
    others = record_count - 1
    sizes = [largest_record_bytes, *[(size_bytes - largest_record_bytes) // others] * others]
    for size in sizes:
        put(accumulator, queues, value_of(size), now_ms=created_ms)
    (batch,) = drain_all(accumulator, now_ms=created_ms)
    assert (batch.size_bytes, batch.largest_record_bytes) == (size_bytes, largest_record_bytes)
    if wire_bytes < size_bytes + HEADER_BYTES:
        batch.seal(bytes(wire_bytes - HEADER_BYTES), 1)
    assert batch.wire_bytes == wire_bytes
    return batch


def send(metrics: ProducerMetrics, now_ms: int, *, queue_time_ms: int = 5, **changes: Any) -> None:
    """Send a request with one batch."""
    metrics.record_batches_sent([sent(now_ms - queue_time_ms, **changes)], now_ms)


def producer(metrics: ProducerMetrics, now_ms: int) -> dict[str, float]:
    return metrics.snapshot(now_ms)["producer-metrics"]


def test_names_are_javas() -> None:
    """As a Java producer prints them, except for those that only Java has; the documentation lists these."""
    javas: dict[str, list[str]] = json.loads((GOLDEN / "producer_metrics.json").read_text())["groups"]
    assert {group: set(names) for group, names in NAMES.items()} == {
        group: set(names) - set(JAVAS_OWN) for group, names in javas.items()
    }
    guide = OBSERVABILITY.read_text()
    assert [name for name in JAVAS_OWN if f"`{name}`" not in guide] == []


def test_a_snapshot_has_all_names() -> None:
    metrics = ProducerMetrics()
    for name in GAUGES:
        metrics.register_gauge(name, lambda: 1.0)
    send(metrics, START_MS)
    metrics.traffic(1).sent(100, START_MS)
    groups = metrics.snapshot(START_MS)
    assert list(groups) == list(NAMES)
    assert list(groups["producer-metrics"]) == list(NAMES["producer-metrics"])
    assert list(groups["producer-topic-metrics"]["orders"]) == list(NAMES["producer-topic-metrics"])
    assert list(groups["producer-node-metrics"]["node-1"]) == list(NAMES["producer-node-metrics"])


def test_some_of_it() -> None:
    metrics = ProducerMetrics()
    metrics.register_gauge("metadata-age", lambda: 7.0)
    send(metrics, START_MS)
    metrics.traffic(-1).sent(100, START_MS)
    assert metrics.members("producer-metrics") == ("",)
    assert metrics.members("producer-topic-metrics") == ("orders",)
    assert metrics.members("producer-node-metrics") == ("node--1",)
    names = "metadata-age", "request-total", "record-send-total", "nonsense"
    assert dict(metrics.values("producer-metrics", "", names, START_MS)) == {
        "record-send-total": 10.0, "request-total": 1.0, "metadata-age": 7.0,
    }  # fmt: skip
    assert dict(metrics.values("producer-topic-metrics", "orders", names, START_MS)) == {"record-send-total": 10.0}
    assert dict(metrics.values("producer-node-metrics", "node--1", names, START_MS)) == {"request-total": 1.0}


def test_logins_are_counted_and_repeated_ones_timed() -> None:
    metrics = ProducerMetrics()
    metrics.record_login(START_MS)
    metrics.record_login_failed(START_MS)
    metrics.record_login_again(40, START_MS)
    metrics.record_login_again(10, START_MS)
    metrics.record_login_again_failed(START_MS)
    values = producer(metrics, START_MS)
    assert values["successful-authentication-total"] == values["failed-authentication-total"] == 1
    assert values["successful-reauthentication-total"] == 2
    assert values["failed-reauthentication-rate"] == pytest.approx(1 / 30)
    assert (values["reauthentication-latency-avg"], values["reauthentication-latency-max"]) == (25, 40)


def test_before_anything_happened() -> None:
    groups = ProducerMetrics().snapshot(START_MS)
    assert groups["producer-topic-metrics"] == {}
    assert groups["producer-node-metrics"] == {}
    for name, value in groups["producer-metrics"].items():
        assert type(value) is float
        assert math.isnan(value) if name.endswith(("-avg", "-max")) else value == 0.0, name


def test_batches_are_counted_in_all_and_by_topic() -> None:
    metrics = ProducerMetrics()
    send(metrics, START_MS, largest_record_bytes=201, queue_time_ms=15)
    send(
        metrics,
        START_MS + 1000,
        topic="audit",
        record_count=2,
        wire_bytes=300,
        size_bytes=300 - 61,
        largest_record_bytes=120,
    )
    groups = metrics.snapshot(START_MS + 31_000)
    values = groups["producer-metrics"]
    assert values["record-send-total"] == 12
    assert values["record-send-rate"] == pytest.approx(12 / 31)
    assert (values["batch-size-avg"], values["batch-size-max"]) == (400, 500)
    assert (values["record-queue-time-avg"], values["record-queue-time-max"]) == (10, 15)
    assert values["compression-rate-avg"] == 0.75
    assert (values["record-size-avg"], values["record-size-max"]) == (pytest.approx((1300 - 2 * 61) / 12), 201)
    assert values["records-per-request-avg"] == 6
    topics = groups["producer-topic-metrics"]
    assert topics["orders"]["record-send-total"] == 10
    assert topics["orders"]["compression-rate"] == 0.5
    assert topics["orders"]["byte-total"] == 500
    assert topics["audit"]["byte-rate"] == pytest.approx(300 / 30)


def test_a_request_with_batches_of_several_topics() -> None:
    metrics = ProducerMetrics()
    batches = [
        sent(START_MS, topic=topic, record_count=count, size_bytes=100 * count, largest_record_bytes=100, wire_bytes=99)
        for topic, count in (("orders", 10), ("audit", 2), ("orders", 5))
    ]
    metrics.record_batches_sent(batches, START_MS)
    topics = metrics.snapshot(START_MS)["producer-topic-metrics"]
    found = {topic: (values["record-send-total"], values["byte-total"]) for topic, values in topics.items()}
    assert found == {"orders": (15, 198), "audit": (2, 99)}


def test_what_nobody_reads_takes_bounded_memory() -> None:
    """A program that never asks for its metrics may run for months."""
    windows = Windows(TopicCounts, 2, WINDOW_MS)

    def month(first_ms: int) -> None:
        for number in range(30 * 24 * 120):
            windows.at(first_ms + number * WINDOW_MS).records += 1

    month(0)
    before = allocated_blocks()
    month(30 * 24 * 120 * WINDOW_MS)
    assert allocated_blocks() - before < 100
    assert windows.total(60 * 24 * 120 * WINDOW_MS).records == 2 * 30 * 24 * 120


def test_a_reader_whose_clock_is_ahead() -> None:
    """Another thread may read after the loop has looked at its clock, and end the window of what the loop counts."""
    windows = Windows(TopicCounts, 1, WINDOW_MS)
    windows.at(START_MS).records += 1
    assert windows.recent(START_MS + WINDOW_MS).records == 0
    windows.at(START_MS + WINDOW_MS - 1).records += 1
    assert windows.recent(START_MS + WINDOW_MS).records == 1
    assert windows.total(START_MS + WINDOW_MS).records == 2


def test_errors_and_retries() -> None:
    metrics = ProducerMetrics()
    metrics.record_errors("orders", 3, START_MS)
    metrics.record_retries("orders", 7, START_MS)
    groups = metrics.snapshot(START_MS)
    for values in (groups["producer-metrics"], groups["producer-topic-metrics"]["orders"]):
        assert (values["record-error-total"], values["record-retry-total"]) == (3, 7)
        assert values["record-error-rate"] == pytest.approx(3 / 30)
        assert values["record-retry-rate"] == pytest.approx(7 / 30)


def test_a_topic_that_comes_again_counts_on() -> None:
    """The queues of a topic that was not used for long are new, and errors may be counted before the first batch."""
    metrics = ProducerMetrics()
    metrics.record_errors("orders", 3, START_MS)
    for _ in range(2):
        send(metrics, START_MS)  # each from queues of its own
    values = metrics.snapshot(START_MS)["producer-topic-metrics"]["orders"]
    assert (values["record-error-total"], values["record-send-total"]) == (3, 20)


def test_requests_of_a_node_and_of_all() -> None:
    metrics = ProducerMetrics()
    metrics.traffic(2).sent(300, START_MS)
    metrics.traffic(1).sent(100, START_MS)
    metrics.traffic(1).received(40, START_MS)
    metrics.record_answer(metrics.traffic(1), 8, 0, START_MS)
    metrics.record_answer(metrics.traffic(2), 2, 0, START_MS)
    groups = metrics.snapshot(START_MS)
    both, first = groups["producer-metrics"], groups["producer-node-metrics"]["node-1"]
    assert (both["request-total"], both["response-total"], both["outgoing-byte-total"]) == (2, 1, 400)
    assert both["network-io-total"] == 3
    assert both["network-io-rate"] == pytest.approx(3 / 30)
    assert (both["request-size-avg"], both["request-size-max"]) == (200, 300)
    assert (both["request-latency-avg"], both["request-latency-max"]) == (5, 8)
    assert (first["request-total"], first["outgoing-byte-total"], first["incoming-byte-total"]) == (1, 100, 40)
    assert (first["request-latency-avg"], first["request-size-max"]) == (8, 100)
    assert groups["producer-node-metrics"]["node-2"]["response-rate"] == 0


def test_a_node_that_appears_while_another_thread_reads() -> None:
    metrics = ProducerMetrics()

    class Id(int):
        """Between any two steps of the thread, the loop may send the first request to another broker."""

        def __format__(self, spec: str) -> str:
            metrics.traffic(2).sent(300, START_MS)
            return super().__format__(spec)

    metrics.traffic(Id(1)).sent(100, START_MS)
    assert list(metrics.snapshot(START_MS)["producer-node-metrics"]) == ["node-1"]
    assert list(metrics.snapshot(START_MS)["producer-node-metrics"]) == ["node-1", "node-2"]


def test_throttling_counts_the_answers_without_it_too() -> None:
    metrics = ProducerMetrics()
    metrics.record_answer(metrics.traffic(1), 5, 100, START_MS)
    metrics.record_answer(metrics.traffic(1), 5, 0, START_MS)
    values = producer(metrics, START_MS)
    assert (values["produce-throttle-time-avg"], values["produce-throttle-time-max"]) == (50, 100)


def test_waits_are_shown_in_nanoseconds() -> None:
    metrics = ProducerMetrics()
    metrics.record_buffer_wait(3000, START_MS)
    metrics.record_flush(20, START_MS)
    metrics.record_metadata_wait(30, START_MS)
    values = producer(metrics, START_MS)
    assert values["bufferpool-wait-time-ns-total"] == 3e9
    assert values["bufferpool-wait-ratio"] == pytest.approx(0.1)
    assert (values["flush-time-ns-total"], values["metadata-wait-time-ns-total"]) == (20e6, 30e6)


def test_single_events() -> None:
    metrics = ProducerMetrics()
    for record in (
        metrics.record_batch_split,
        metrics.record_buffer_exhausted,
        metrics.record_connection_opened,
        metrics.record_connection_closed,
    ):
        record(START_MS)
    values = producer(metrics, START_MS)
    for name in ("batch-split", "buffer-exhausted", "connection-creation", "connection-close"):
        assert values[f"{name}-total"] == 1
        assert values[f"{name}-rate"] == pytest.approx(1 / 30)


def test_gauges_are_read_at_each_snapshot() -> None:
    free = [5]
    metrics = ProducerMetrics()
    metrics.register_gauge("buffer-available-bytes", lambda: free[0])
    assert producer(metrics, START_MS)["buffer-available-bytes"] == 5.0
    free[0] = 7
    assert producer(metrics, START_MS)["buffer-available-bytes"] == 7.0


# --- windows ----------------------------------------------------------------------------------------------------------


def test_rate_of_a_young_producer_is_not_divided_by_nothing() -> None:
    """As in Kafka's Rate, at least all windows except one count as elapsed."""
    metrics = ProducerMetrics()
    send(metrics, START_MS)
    assert producer(metrics, START_MS)["record-send-rate"] == pytest.approx(10 / 30)
    assert producer(metrics, START_MS + 15_000)["record-send-rate"] == pytest.approx(10 / 45)
    assert producer(metrics, START_MS + 30_000)["record-send-rate"] == pytest.approx(10 / 30)
    assert producer(metrics, START_MS + 45_000)["record-send-rate"] == pytest.approx(10 / 45)


def test_rate_of_a_window_whose_first_event_is_older_than_all_windows() -> None:
    """The window is still there because of its last event, and the rate covers the time since its first."""
    metrics = ProducerMetrics()
    send(metrics, START_MS)
    send(metrics, START_MS + 29_999)
    assert producer(metrics, START_MS + 80_000)["record-send-rate"] == pytest.approx(20 / 80)


def test_old_events_are_forgotten_but_in_totals() -> None:
    metrics = ProducerMetrics()
    send(metrics, START_MS)
    assert producer(metrics, START_MS + 59_999)["batch-size-max"] == 500
    values = producer(metrics, START_MS + 60_000)
    assert math.isnan(values["batch-size-max"])
    assert math.isnan(values["record-queue-time-avg"])
    assert (values["record-send-rate"], values["record-send-total"]) == (0, 10)


def test_windows_roll() -> None:
    """Three events a window apart: the first leaves when its own last event is two windows old."""
    metrics = ProducerMetrics()
    send(metrics, START_MS, wire_bytes=900)
    send(metrics, START_MS + WINDOW_MS, wire_bytes=500)
    assert producer(metrics, START_MS + 2 * WINDOW_MS - 1)["batch-size-max"] == 900
    send(metrics, START_MS + 2 * WINDOW_MS, wire_bytes=700)
    values = producer(metrics, START_MS + 2 * WINDOW_MS)
    assert (values["batch-size-max"], values["batch-size-avg"]) == (700, 600)
    assert values["record-send-rate"] == pytest.approx(20 / 30)
    assert values["record-send-total"] == 30


def test_a_finalizer_that_reads_the_metrics_while_a_window_ends() -> None:
    """The window ends once, and its counts move to the lifetime once."""

    class Looking(Counts):
        def add(self, other: Counts) -> None:
            if look:
                look.pop()()

    look: list[Callable[[], object]] = []
    windows = Windows(Looking, 1, WINDOW_MS)
    windows.at(START_MS)
    look.append(lambda: windows.elapsed_ms(START_MS + WINDOW_MS))
    assert windows.elapsed_ms(START_MS + WINDOW_MS) == 0
    assert not look


@pytest.mark.parametrize(("samples", "window_ms"), [(1, 1000), (2, 30_000), (5, 10), (1, 0)])
def test_other_windows(samples: int, window_ms: int) -> None:
    metrics = ProducerMetrics(samples, window_ms)
    send(metrics, START_MS)
    assert producer(metrics, START_MS)["batch-size-max"] == 500
    values = producer(metrics, START_MS + samples * max(window_ms, 1))
    assert (values["record-send-rate"], values["record-send-total"]) == (0, 10)


@pytest.mark.parametrize("window_ms", [2**62, 2**63 - 1])
@pytest.mark.parametrize("samples", [2, 2**31 - 1])
def test_windows_that_never_end(samples: int, window_ms: int) -> None:
    """``metrics_sample_window_ms`` may be any number of 64 bits."""
    metrics = ProducerMetrics(samples, window_ms)
    send(metrics, START_MS, wire_bytes=900)
    send(metrics, START_MS + WINDOW_MS, wire_bytes=500)
    values = producer(metrics, START_MS + 10 * WINDOW_MS)
    assert (values["batch-size-max"], values["batch-size-avg"]) == (900, 700)
    assert 0 < values["record-send-rate"] < 1e-3
    assert values["record-send-total"] == 20


@given(
    steps=st.lists(st.tuples(st.sampled_from([0, 1, 500, 29_999, 30_000, 30_001, 61_000]), st.integers(0, 100))),
    looks=st.lists(st.booleans(), min_size=100, max_size=100),
)
def test_looking_changes_nothing(steps: list[tuple[int, int]], looks: list[bool]) -> None:
    """Totals are sums; recent counts cover the last window completely, and nothing older than all windows plus one."""
    watched, unwatched = (Windows(TopicCounts, 2, WINDOW_MS) for _ in range(2))
    now_ms, events = START_MS, []
    for (step_ms, records), look in zip(steps, looks, strict=False):
        now_ms += step_ms
        events.append((now_ms, records))
        watched.at(now_ms).records += records
        unwatched.at(now_ms).records += records
        if look:
            View.of(watched, now_ms)
    view = View.of(watched, now_ms)
    assert view == View.of(unwatched, now_ms)
    assert view.lifetime.records == sum(records for _, records in events)
    assert view.recent.records >= sum(records for at_ms, records in events if at_ms > now_ms - 2 * WINDOW_MS)
    assert view.recent.records <= sum(records for at_ms, records in events if at_ms > now_ms - 3 * WINDOW_MS)
    assert view.seconds >= WINDOW_MS / 1000
