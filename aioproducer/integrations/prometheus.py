"""Prometheus: a collector that exposes a producer's metrics whenever they are scraped.

producer = Producer(bootstrap_servers="localhost:9092")
REGISTRY.register(ProducerCollector(producer))

A scrape reads the producer's own counters; nothing is counted twice. It may come from any thread, such as that of
``prometheus_client.start_http_server``, or from a handler in the producer's own loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aioproducer import Producer
from aioproducer.extras import missing
from aioproducer.integrations.metrics import read

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as _error:
    raise missing(_error, __name__, "prometheus") from None

PREFIX = "kafka"


class ProducerCollector(Collector):
    """Metrics of one or more producers.

    A metric is named ``kafka_``, its group (``producer``, ``producer_topic``, ``producer_node``), ``_`` and Java's name
    with ``_`` for ``-``; labels are ``client_id``, and ``topic`` or ``node_id``. Names that end in ``-total`` in Java
    are counters, all others gauges; metrics without a value yet, such as an average of nothing, are left out.
    """

    def __init__(self, *producers: Producer) -> None:
        self._producers = producers

    def describe(self) -> Iterable[CounterMetricFamily | GaugeMetricFamily]:
        """Nothing: names come with the values, as the producer need not run when this is registered."""
        return []

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """The current metrics."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for producer in self._producers:
            for reading in read(producer):
                name = f"{PREFIX}_{reading.group}_{reading.name}"
                family = families.get(name)
                if family is None:
                    kind = CounterMetricFamily if reading.is_total else GaugeMetricFamily
                    family = families[name] = kind(
                        name, f"{reading.name} of Kafka's Java producer", labels=["client_id", *reading.labels]
                    )
                family.add_metric([producer.client_id, *reading.labels.values()], reading.value)
        yield from families.values()
