"""Counters, averages, maxima and rates under the names of the Java producer's metrics.

The sender records once per batch or request, never per record. Events are added up in windows of
``metrics_sample_window_ms``; averages, maxima and rates cover the last ``metrics_num_samples`` windows, totals the
producer's whole life. All names of one group share their windows, so recording is a few additions.

Source: Kafka's SenderMetricsRegistry and SampledStat, Rate, Avg, Max.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from aioproducer._counts import (
    Counts,
    NodeCounts,
    ProducerCounts,
    TopicCounts,
    Traffic,
    Windows,
    count_answer,
    count_batches_sent,
)

if TYPE_CHECKING:
    from aioproducer._producer_batch import ProducerBatch

# --- what a snapshot shows --------------------------------------------------------------------------------------------

C = TypeVar("C", bound=Counts)


@dataclass(frozen=True, slots=True)
class View(Generic[C]):
    """What ``Windows`` held at one moment."""

    recent: C
    lifetime: C
    seconds: float
    """The time that ``recent`` covers."""

    @classmethod
    def of(cls, windows: Windows[C], now_ms: int) -> View[C]:
        """The current counts."""
        return cls(windows.recent(now_ms), windows.total(now_ms), windows.elapsed_ms(now_ms) / 1000)


Statistic: TypeAlias = Callable[[View[Any]], float]


def _total(name: str, scale: float = 1.0) -> Statistic:
    return lambda view: float(scale * getattr(view.lifetime, name))


def _rate(name: str, scale: float = 1.0) -> Statistic:
    return lambda view: float(scale * getattr(view.recent, name) / view.seconds) if view.seconds else 0.0


def _average(name: str, per: str) -> Statistic:
    return lambda view: float(getattr(view.recent, name) / (getattr(view.recent, per) or math.nan))


def _maximum(name: str, per: str) -> Statistic:
    return lambda view: float(getattr(view.recent, name)) if getattr(view.recent, per) else math.nan


def _rate_and_total(prefix: str, name: str) -> dict[str, Statistic]:
    return {f"{prefix}-rate": _rate(name), f"{prefix}-total": _total(name)}


def _average_and_maximum(prefix: str, name: str, per: str) -> dict[str, Statistic]:
    return {f"{prefix}-avg": _average(name, per), f"{prefix}-max": _maximum(f"{name}_max", per)}


_TOPIC: Mapping[str, Statistic] = {
    **_rate_and_total("byte", "batch_bytes"),
    **_rate_and_total("record-error", "errors"),
    **_rate_and_total("record-retry", "retries"),
    **_rate_and_total("record-send", "records"),
    "compression-rate": _average("compression_ratios", "batches"),
}

_NODE: Mapping[str, Statistic] = {
    **_rate_and_total("incoming-byte", "response_bytes"),
    **_rate_and_total("outgoing-byte", "request_bytes"),
    **_rate_and_total("request", "requests"),
    **_rate_and_total("response", "responses"),
    **_average_and_maximum("request-latency", "latency_ms", "latencies"),
    **_average_and_maximum("request-size", "request_bytes", "requests"),
}

_NETWORK: Mapping[str, Statistic] = {
    **_NODE,
    "network-io-rate": lambda view: _rate("requests")(view) + _rate("responses")(view),
    "network-io-total": lambda view: _total("requests")(view) + _total("responses")(view),
}
"""Metrics of all connections together."""

_PRODUCER: Mapping[str, Statistic] = {
    **_rate_and_total("batch-split", "splits"),
    **_rate_and_total("buffer-exhausted", "buffer_exhausted"),
    **_rate_and_total("connection-close", "connections_closed"),
    **_rate_and_total("connection-creation", "connections_opened"),
    **_rate_and_total("failed-authentication", "logins_failed"),
    **_rate_and_total("failed-reauthentication", "logins_again_failed"),
    **_rate_and_total("record-error", "errors"),
    **_rate_and_total("record-retry", "retries"),
    **_rate_and_total("record-send", "records"),
    **_rate_and_total("successful-authentication", "logins"),
    **_rate_and_total("successful-reauthentication", "logins_again"),
    **_average_and_maximum("batch-size", "batch_bytes", "batches"),
    **_average_and_maximum("produce-throttle-time", "throttle_ms", "throttles"),
    **_average_and_maximum("reauthentication-latency", "login_again_ms", "logins_again"),
    **_average_and_maximum("record-queue-time", "queue_ms", "batches"),
    **_average_and_maximum("record-size", "record_bytes", "records"),
    "bufferpool-wait-ratio": _rate("buffer_wait_ms", 1e-3),
    "bufferpool-wait-time-ns-total": _total("buffer_wait_ms", 1e6),
    "compression-rate-avg": _average("compression_ratios", "batches"),
    "flush-time-ns-total": _total("flush_ms", 1e6),
    "metadata-wait-time-ns-total": _total("metadata_wait_ms", 1e6),
    **{
        f"txn-{call}-time-ns-total": _total(f"txn_{call.replace('-', '_')}_ms", 1e6)
        for call in ("init", "begin", "send-offsets", "prepare", "commit", "abort")
    },
    "records-per-request-avg": _average("records", "produce_requests"),
}


GAUGES = (
    "buffer-total-bytes",
    "buffer-available-bytes",
    "waiting-threads",
    "connection-count",
    "requests-in-flight",
    "metadata-age",
)
"""Gauges: read, not counted; the engine registers how."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "producer-metrics": (*_PRODUCER, *_NETWORK, *GAUGES),
    "producer-topic-metrics": tuple(_TOPIC),
    "producer-node-metrics": tuple(_NODE),
}
"""All names in a snapshot, by group."""


class ProducerMetrics:
    """Everything a producer counts, and what ``Producer.metrics()`` returns.

    The last argument of every method is the time of the event, ``now_ms``.
    """

    def __init__(self, samples: int = 2, window_ms: int = 30_000) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._producer = self._windows(ProducerCounts)
        self._network = self._windows(NodeCounts)
        self._topics: dict[str, Windows[TopicCounts]] = {}
        self._nodes: dict[int, Windows[NodeCounts]] = {}
        self._gauges: dict[str, Callable[[], float]] = {}

    def register_gauge(self, name: str, read: Callable[[], float]) -> None:
        """Show the value of ``read()``, called for each snapshot, as ``name`` in "producer-metrics"."""
        self._gauges[name] = read

    def record_batches_sent(self, batches: list[ProducerBatch], now_ms: int) -> None:
        """A Produce request with these batches was written, each for the first time or again."""
        count_batches_sent(self._producer, self._topics, self._windows, batches, now_ms)

    def record_errors(self, topic: str, records: int, now_ms: int) -> None:
        """Records failed for good."""
        self._producer.at(now_ms).errors += records
        self._topic(topic, now_ms).errors += records

    def record_retries(self, topic: str, records: int, now_ms: int) -> None:
        """Records are retried."""
        self._producer.at(now_ms).retries += records
        self._topic(topic, now_ms).retries += records

    def record_batch_split(self, now_ms: int) -> None:
        """A batch that was too large was split."""
        self._producer.at(now_ms).splits += 1

    def traffic(self, node_id: int) -> Traffic:
        """The counters for requests and answers of a connection to this node."""
        windows = self._nodes.get(node_id)
        if windows is None:
            windows = self._nodes[node_id] = self._windows(NodeCounts)
        return Traffic(windows, self._network)

    def record_answer(self, traffic: Traffic, latency_ms: int, throttle_ms: int, now_ms: int) -> None:
        """A Produce request was answered; the answer asked to wait ``throttle_ms``, which may be 0."""
        count_answer(self._producer, traffic, latency_ms, throttle_ms, now_ms)

    def record_buffer_wait(self, wait_ms: int, now_ms: int) -> None:
        """A call waited for buffer memory."""
        self._producer.at(now_ms).buffer_wait_ms += wait_ms

    def record_buffer_exhausted(self, now_ms: int) -> None:
        """A record was refused for lack of buffer memory."""
        self._producer.at(now_ms).buffer_exhausted += 1

    def record_metadata_wait(self, wait_ms: int, now_ms: int) -> None:
        """A call waited for a topic's metadata."""
        self._producer.at(now_ms).metadata_wait_ms += wait_ms

    def record_flush(self, wait_ms: int, now_ms: int) -> None:
        """A flush ended."""
        self._producer.at(now_ms).flush_ms += wait_ms

    def record_transaction_call(self, call: str, elapsed_ms: int, now_ms: int) -> None:
        """A transaction call ended: init, begin, send-offsets, prepare, commit or abort."""
        counts = self._producer.at(now_ms)
        name = f"txn_{call.replace('-', '_')}_ms"
        setattr(counts, name, getattr(counts, name) + elapsed_ms)

    def record_connection_opened(self, now_ms: int) -> None:
        """A connection came up."""
        self._producer.at(now_ms).connections_opened += 1

    def record_connection_closed(self, now_ms: int) -> None:
        """A connection that had come up is gone."""
        self._producer.at(now_ms).connections_closed += 1

    def record_login(self, now_ms: int) -> None:
        """A new connection completed TLS, and the login if there is one."""
        self._producer.at(now_ms).logins += 1

    def record_login_failed(self, now_ms: int) -> None:
        """Broker and client did not accept each other."""
        self._producer.at(now_ms).logins_failed += 1

    def record_login_again(self, elapsed_ms: int, now_ms: int) -> None:
        """A session was renewed, within ``elapsed_ms``."""
        counts = self._producer.at(now_ms)
        counts.logins_again += 1
        counts.login_again_ms += elapsed_ms
        counts.login_again_ms_max = max(counts.login_again_ms_max, elapsed_ms)

    def record_login_again_failed(self, now_ms: int) -> None:
        """A session could not be renewed."""
        self._producer.at(now_ms).logins_again_failed += 1

    # --- reading ------------------------------------------------------------------------------------------------------

    def members(self, group: str) -> tuple[str, ...]:
        """What a group has metrics for: the names of topics, ``node-1`` and so on, or "" for the producer itself."""
        if group == "producer-topic-metrics":
            return tuple(self._topics)
        if group == "producer-node-metrics":
            return tuple(f"node-{node_id}" for node_id in list(self._nodes))  # others may come meanwhile
        return ("",)

    def values(self, group: str, member: str, names: Iterable[str], now_ms: int) -> Iterator[tuple[str, float]]:
        """Some metrics of one member, without names of other groups and unregistered gauges."""
        for statistics, windows in self._sources(group, member):
            view: View[Any] | None = None
            for name in names:
                if name in statistics:
                    view = view or View.of(windows, now_ms)
                    yield name, statistics[name](view)
        if group == "producer-metrics":
            yield from ((name, float(self._gauges[name]())) for name in names if name in self._gauges)

    def _sources(self, group: str, member: str) -> Iterator[tuple[Mapping[str, Statistic], Windows[Any]]]:
        if group == "producer-topic-metrics":
            yield _TOPIC, self._topics[member]
        elif group == "producer-node-metrics":
            yield _NODE, self._nodes[int(member.removeprefix("node-"))]
        else:
            yield _PRODUCER, self._producer
            yield _NETWORK, self._network

    def snapshot(self, now_ms: int) -> dict[str, dict[str, Any]]:
        """All metrics by group and name; topics and nodes are nested once more.

        Averages and maxima of nothing are NaN, as in Java.
        """
        shown: dict[str, dict[str, Any]] = {}
        for group, names in NAMES.items():
            of_members = {member: dict(self.values(group, member, names, now_ms)) for member in self.members(group)}
            shown[group] = of_members[""] if group == "producer-metrics" else of_members
        return shown

    def _windows(self, make: Callable[[], C]) -> Windows[C]:
        return Windows(make, self._samples, self._window_ms)

    def _topic(self, topic: str, now_ms: int) -> TopicCounts:
        windows = self._topics.get(topic)
        if windows is None:
            windows = self._topics[topic] = self._windows(TopicCounts)
        return windows.at(now_ms)
