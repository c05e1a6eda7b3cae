"""Snapshots of a producer's metrics from any thread, as rows with labels: shared by all exporters."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from aioproducer import Producer

TIMEOUT_S = 5.0

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
    """All metrics that have a value; averages of nothing have none.

    May be called in any thread. Outside the producer's thread it waits for the producer's loop, at most a few seconds;
    the result is empty if the loop does not run.
    """
    return list(_readings(_snapshot(producer)))


def _snapshot(producer: Producer) -> dict[str, dict[str, Any]]:
    loop = producer.loop
    if loop is None or loop is _running_loop():
        return producer.metrics()
    result: concurrent.futures.Future[dict[str, dict[str, Any]]] = concurrent.futures.Future()
    try:
        loop.call_soon_threadsafe(lambda: result.set_result(producer.metrics()))
        return result.result(TIMEOUT_S)
    except (RuntimeError, TimeoutError):  # closed or blocked
        return {}


def _readings(snapshot: dict[str, dict[str, Any]]) -> Iterator[Reading]:
    for group, label in _LABELS.items():
        values = snapshot.get(group, {})
        short = group.removesuffix("-metrics").replace("-", "_")
        for key, metrics in values.items() if label else [("", values)]:
            labels = {label: key.removeprefix("node-") if label == "node_id" else key} if label else {}
            for name, value in metrics.items():
                if not math.isnan(value):
                    yield Reading(short, name.replace("-", "_"), labels, value)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
