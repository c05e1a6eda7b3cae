"""A producer's metrics as rows with labels: shared by all exporters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from aioproducer import Producer

_LABELS = {"producer-metrics": "", "producer-topic-metrics": "topic", "producer-node-metrics": "node_id"}


class Reading(NamedTuple):
    """One value of one metric."""

    group: str
    """``producer``, ``producer_topic`` or ``producer_node``."""
    name: str
    """Java's name with ``_`` for ``-``."""
    labels: dict[str, str]
    value: float

    @property
    def is_total(self) -> bool:
        """Whether it is a counter, which only grows; else it is a gauge."""
        return self.name.endswith("_total")


def read(producer: Producer) -> list[Reading]:
    """All metrics that have a value; averages of nothing have none. May be called in any thread."""
    return list(_readings(producer.metrics()))


def _readings(snapshot: dict[str, dict[str, Any]]) -> Iterator[Reading]:
    for group, label in _LABELS.items():
        values = snapshot.get(group, {})
        short = group.removesuffix("-metrics").replace("-", "_")
        for key, metrics in values.items() if label else [("", values)]:
            labels = {label: key.removeprefix("node-") if label == "node_id" else key} if label else {}
            for name, value in metrics.items():
                if not math.isnan(value):
                    yield Reading(short, name.replace("-", "_"), labels, value)
