"""Runs in which the cluster often requests the producer's metrics, and changes its subscription."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aioproducer.testing.fake.client_metrics import Push
from aioproducer.testing.fake.model import ClusterModel
from tests.simulation.chaos import Chaos
from tests.simulation.invariants import Invariants
from tests.simulation.producer import SimulatedProducer
from tests.simulation.run import Outcome, Run, run

ASK, PUSH = "GetTelemetrySubscriptions", "PushTelemetry"
CODES = (89, 117, 118, 76, 76, 42, 87)
SENT = "org.apache.kafka.producer.record.send.total"


def simulate_telemetry(seed: int) -> Outcome:
    """Run one seed from begin to end."""
    return run(TelemetryRun, seed)


class TelemetryChaos(Chaos):
    """Faults around metrics, in addition to the usual ones."""

    apis = (ASK, PUSH, PUSH, "Produce", "Produce", "Metadata", None)

    def kinds(self) -> list[tuple[Callable[[], Awaitable[None] | None], int]]:
        return [*super().kinds(), (self.refuse_metrics, 12), (self.want, 12)]

    def refuse_metrics(self) -> None:
        api, code, times = self._rng.choice((ASK, PUSH, PUSH)), self._rng.choice(CODES), self._rng.choice((1, 1, 3))
        self._story.tell("chaos: %s gets %d, %d times", api, code, times)
        self._model.faults.fail(api, code, times=times)

    def want(self) -> None:
        """Change the subscription."""
        rng = self._rng
        names = rng.choice((("*",), ("*",), (SENT,), ("org.apache.kafka.producer.topic.", SENT), ()))
        interval_ms, max_bytes = rng.choice((10, 100, 1000)), rng.choice((1 << 20, 5_000, 10))
        codecs = tuple(rng.sample(range(6), rng.randint(0, 4)))
        self._story.tell("chaos: the cluster wants %s every %d ms, %d bytes", names, interval_ms, max_bytes)
        self._model.client_metrics.subscribe(names, interval_ms, max_bytes, delta=True, codecs=codecs)


class TelemetryInvariants(Invariants):
    """Checks that telemetry does not affect records, and reports nothing twice."""

    def after_the_end(self, producer: SimulatedProducer) -> None:
        super().after_the_end(producer)
        told = sum(_sent(push) for push in self._model.client_metrics.pushes)
        sent = producer.metrics()["producer-metrics"]["record-send-total"]
        if told > sent:
            self._broken("%d records were told as sent, of %d", told, sent)


def _sent(push: Push) -> float:
    return sum(
        point.as_double
        for resource in MetricsData.FromString(push.metrics).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == SENT
        for point in metric.sum.data_points
    )


class TelemetryRun(Run):
    """A run with telemetry, see the module's docstring."""

    prefix = "m"

    def _make_model(self, rng: random.Random) -> ClusterModel:
        scenario = self._scenario
        return ClusterModel(
            brokers=scenario.brokers,
            rng=rng,
            version=scenario.version,
            auto_create_topics=scenario.auto_create,
            message_max_bytes=scenario.message_max_bytes,
            receives_metrics=True,
        )

    def _make_chaos(self, rng: random.Random) -> TelemetryChaos:
        chaos = TelemetryChaos(self._scenario, self._loop, self._network, self._model, rng, self._story)
        chaos.want()
        return chaos

    def _make_invariants(self) -> TelemetryInvariants:
        return TelemetryInvariants(
            self._scenario, self._books, self._model, self._chaos, self._network, self._loop, self._broken
        )
