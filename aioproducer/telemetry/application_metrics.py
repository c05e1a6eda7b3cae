"""ApplicationMetrics: what a program shows the cluster beside its producer's own metrics (KIP-1076)."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from aioproducer.client_logger import ClientLogger
from aioproducer.config.values import is_async
from aioproducer.telemetry import otlp
from aioproducer.telemetry.subscription import PREFIX, Subscription

Kind: TypeAlias = Literal["gauge", "sum"]
KINDS = "gauge", "sum"

OWN = f"{PREFIX}.producer."
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_./-]{0,254}\Z")
"""The names that OpenTelemetry allows."""


@dataclass(slots=True)
class ApplicationMetric:
    """One registered metric.

    Args:
        member: tells it from others of its name.
        labels: its attributes as OTLP.
    """

    name: str
    read: Callable[[], float]
    is_sum: bool
    member: str
    labels: bytes
    complained: bool = False


class ApplicationMetrics:
    """The metrics that the program has registered, by name and attributes."""

    def __init__(self, logger: ClientLogger) -> None:
        self._logger = logger
        self._metrics: dict[tuple[str, str], ApplicationMetric] = {}

    def register(self, name: str, read: Callable[[], float], kind: Kind, attributes: Mapping[str, str] | None) -> None:
        """Add a metric, or replace the one of this name and these attributes.

        Raises:
            TypeError, ValueError: an argument is not what ``Producer.register_metric_for_subscription`` says.
        """
        if kind not in KINDS:
            raise ValueError(f"kind={kind!r}: a metric is a {' or a '.join(map(repr, KINDS))}")
        if not callable(read) or is_async(read):
            what = "an async function" if callable(read) else f"a {type(read).__name__}"
            raise TypeError(f"read is {what}; a plain function that returns the metric's value is needed")
        _check_name(name)
        member, labels = _attributes(attributes)
        is_sum = kind == "sum"
        for other in self._metrics.values():
            if other.name == name and other.member != member and other.is_sum != is_sum:
                raise ValueError(f"{name} is registered as a {KINDS[other.is_sum]}, with other attributes")
        self._metrics[name, member] = ApplicationMetric(name, read, is_sum, member, labels)

    def unregister(self, name: str, attributes: Mapping[str, str] | None) -> None:
        """Remove the metric of this name and these attributes, if there is one."""
        _check_name(name)
        self._metrics.pop((name, _attributes(attributes)[0]), None)

    def wanted(self, subscription: Subscription) -> tuple[ApplicationMetric, ...]:
        """The metrics that the cluster has asked for."""
        return tuple(metric for metric in self._metrics.values() if subscription.wants(metric.name))

    def read(self, metric: ApplicationMetric) -> float | None:
        """The value of a metric; None if it has none now, or can't be read, which is logged the first time."""
        try:
            value = float(metric.read())
        except Exception:
            level = logging.DEBUG if metric.complained else logging.WARNING
            metric.complained = True
            self._logger.log(level, "the metric %s could not be read and is left out", metric.name, exc_info=True)
            return None
        return value if math.isfinite(value) else None


def _check_name(name: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the name of a metric is a str, not a {type(name).__name__}")
    if not _NAME.match(name):
        raise ValueError(
            f"{name[:300]!r} can't name a metric: up to 255 letters, digits and any of _ . - /, a letter first"
        )
    if name.startswith(OWN):
        raise ValueError(f"{name}: names that begin with {OWN} are the producer's own")


def _attributes(given: Mapping[str, str] | None) -> tuple[str, bytes]:
    if not isinstance(given, Mapping | None):
        raise TypeError(f"attributes is a {type(given).__name__}; a mapping of str to str is needed")
    pairs = dict(given or {})
    for key, value in pairs.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(
                f"attributes is a mapping of {type(key).__name__} to {type(value).__name__}; names and values are str"
            )
    ordered = sorted(pairs.items())
    return repr(ordered), otlp.attributes(dict(ordered))
