"""The metrics of a producer and its program as one push, and what earlier pushes reported.

A report is built in steps of a few topics each, so that one about thousands of topics does not block the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from aioproducer.metrics import ProducerMetrics
from aioproducer.telemetry import otlp
from aioproducer.telemetry.application_metrics import ApplicationMetric, ApplicationMetrics
from aioproducer.telemetry.subscription import Subscription, full_name
from aioproducer.version import VERSION

SCOPE = "aioproducer"
MEMBERS_A_STEP = 16
"""Topics, nodes or metrics of the program: about half a millisecond of work."""

LABELS = {"producer-topic-metrics": "topic", "producer-node-metrics": "node_id"}
APPLICATION = "application"
"""The group of the program's own metrics, whose names are full ones."""
DISPENSABLE = ("producer-topic-metrics", "producer-node-metrics", APPLICATION, "producer-metrics")
"""The order in which groups are left out of a push that is too large: first those that grow with the cluster."""

Key = tuple[str, str, str]
"""Group, member, name."""


class Told:
    """What the cluster already knows: the value of each sum in its last report, and the time of that.

    Args:
        started_ns: when the producer began to count, in nanoseconds since the epoch.
    """

    def __init__(self, started_ns: int) -> None:
        self.started_ns = started_ns
        self._values: dict[Key, float] = {}
        self._times_ns: dict[tuple[str, str], int] = {}

    def since_ns(self, group: str, name: str) -> int:
        """When the sums of this name were last reported; the start of the producer if they never were."""
        return self._times_ns.get((group, name), self.started_ns)

    def value(self, key: Key) -> float:
        """The last reported value; 0 for a new key."""
        return self._values.get(key, 0.0)

    def take(self, values: Mapping[Key, float], time_ns: int) -> None:
        """Note that these values were reported at this time."""
        self._values.update(values)
        for group, _, name in values:
            self._times_ns[group, name] = time_ns

    def forget(self) -> None:
        """Forget everything: the cluster starts counting anew."""
        self._values.clear()
        self._times_ns.clear()


class Report:
    """The metrics at one moment, read by ``steps``.

    Args:
        resource: attributes of the producer.
        now_ms, now_ns: that moment, on the loop's clock and since the epoch.
    """

    def __init__(
        self,
        metrics: ProducerMetrics,
        application: ApplicationMetrics,
        subscription: Subscription,
        told: Told,
        resource: Mapping[str, str],
        now_ms: int,
        now_ns: int,
    ) -> None:
        self._metrics = metrics
        self._application = application
        self._subscription = subscription
        self._told = told
        self._resource = resource
        self._now_ms = now_ms
        self._now_ns = now_ns
        self._points: dict[str, dict[str, list[bytes]]] = {}
        self._sums: dict[str, dict[Key, float]] = {}
        self._sum_names: set[tuple[str, str]] = set()
        self._left_out: set[str] = set()

    def steps(self) -> Iterator[None]:
        """Read all wanted metrics; yields between two steps."""
        for count, read in enumerate(self._reads(), 1):
            read()
            if count % MEMBERS_A_STEP == 0:
                yield

    def leave_out(self) -> str | None:
        """Leave out the most dispensable group and return its name; None if nothing is left."""
        for group in DISPENSABLE:
            if group not in self._left_out and group in self._points:
                self._left_out.add(group)
                return group
        return None

    def encoded(self) -> bytes:
        """The report as OTLP; empty if nothing has a value."""
        found = [
            self._metric(group, name, points)
            for group, by_name in self._points.items()
            if group not in self._left_out
            for name, points in by_name.items()
        ]
        return otlp.metrics_data(self._resource, SCOPE, VERSION, found) if found else b""

    def taken(self) -> None:
        """The cluster got the report: its sums are not reported again."""
        for group, sums in self._sums.items():
            if group not in self._left_out:
                self._told.take(sums, self._now_ns)

    def _reads(self) -> Iterator[Callable[[], None]]:
        """What there is to do, of roughly equal size."""
        for group, names in self._subscription.names.items():
            if names:
                for member in self._metrics.members(group):
                    yield partial(self._read, group, member, names)
        for metric in self._application.wanted(self._subscription):
            yield partial(self._read_application, metric)

    def _read_application(self, metric: ApplicationMetric) -> None:
        if (value := self._application.read(metric)) is not None:
            self._add(APPLICATION, metric.member, metric.name, value, metric.labels, is_sum=metric.is_sum)

    def _read(self, group: str, member: str, names: tuple[str, ...]) -> None:
        labels = otlp.attributes({LABELS[group]: member}) if group in LABELS else b""
        for name, value in self._metrics.values(group, member, names, self._now_ms):
            if not math.isnan(value):  # the average of no values
                self._add(group, member, name, value, labels, is_sum=name.endswith("-total"))

    def _add(self, group: str, member: str, name: str, value: float, labels: bytes, *, is_sum: bool) -> None:
        told, start_ns = self._told, None
        if is_sum:
            key = group, member, name
            self._sums.setdefault(group, {})[key] = value
            self._sum_names.add((group, name))
            start_ns = told.started_ns
            if self._subscription.delta:
                start_ns = told.since_ns(group, name)
                before = told.value(key)
                value -= before if value >= before else 0  # else the program has begun to count anew
        point = otlp.point(value, self._now_ns, labels, start_ns)
        self._points.setdefault(group, {}).setdefault(name, []).append(point)

    def _metric(self, group: str, name: str, points: list[bytes]) -> bytes:
        shown = name if group == APPLICATION else full_name(group, name)
        if (group, name) in self._sum_names:
            temporality = otlp.DELTA if self._subscription.delta else otlp.CUMULATIVE
            return otlp.total(shown, points, temporality)
        return otlp.gauge(shown, points)
