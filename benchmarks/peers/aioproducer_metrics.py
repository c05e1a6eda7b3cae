"""aioproducer with its metrics read each second: by Prometheus, by OpenTelemetry, by the cluster, or by nobody."""

from __future__ import annotations

import asyncio
import threading

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from prometheus_client import CollectorRegistry, generate_latest

from aioproducer import Producer
from aioproducer.integrations.opentelemetry import observe
from aioproducer.integrations.prometheus import ProducerCollector
from benchmarks.peers.aioproducer import SubmitNowait

EVERY_S = 1.0


class Unread(SubmitNowait):
    """Counted as always, read by nobody."""

    pushes = False

    async def start(self) -> None:
        self.producer = Producer(
            bootstrap_servers=self.settings.bootstrap,
            compression_type=self.settings.codec,
            enable_metrics_push=self.pushes,
        )
        await self.producer.start()
        await self.producer.partitions_for(self.settings.topic)


class Pushed(Unread):
    """Pushed to the server, which requests them every second."""

    pushes = True


class Scraped(Unread):
    """Read by a scrape handler, in a thread like that of prometheus_client's server."""

    async def start(self) -> None:
        await super().start()
        self._registry = CollectorRegistry()
        self._registry.register(ProducerCollector(self.producer))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._scrape, daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        self._ended.set()
        await asyncio.to_thread(self._thread.join)
        await super().stop()

    def _scrape(self) -> None:
        while not self._ended.wait(EVERY_S):
            generate_latest(self._registry)


class _Nowhere(MetricExporter):
    def export(self, metrics_data: MetricsData, timeout_millis: float = 0, **kwargs: object) -> MetricExportResult:
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **kwargs: object) -> None:
        pass


class Observed(Unread):
    """Read by a reader of the OpenTelemetry SDK."""

    async def start(self) -> None:
        await super().start()
        reader = PeriodicExportingMetricReader(_Nowhere(), export_interval_millis=EVERY_S * 1000)
        self._meters = MeterProvider([reader])
        observe(self.producer, meter_provider=self._meters)

    async def stop(self) -> None:
        await asyncio.to_thread(self._meters.shutdown)
        await super().stop()
