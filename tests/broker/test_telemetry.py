"""Metrics pushed to real brokers that have a receiver for them, and not to those that have none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aioproducer import ConfigError, ProducerClosedError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_topic, producer_of
from tests.broker.metrics_receiver import Received, compile_receiver, properties, received

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

PRODUCER = "org.apache.kafka.producer"
INTERVAL_MS = 200

REQUIRED = """
    connection.creation.rate connection.creation.total node.request.latency.avg node.request.latency.max
    produce.throttle.time.avg produce.throttle.time.max record.queue.time.avg record.queue.time.max
"""
"""The metrics that KIP-714 requires of every producer."""


@dataclass
class Receiving:
    """A cluster with a metrics receiver."""

    cluster: KafkaCluster
    file: Path

    def of(self, client: str | None) -> list[Received]:
        """What was received from one client."""
        return [one for one in received(self.file) if one.client_instance_id == client]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def receiving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiving]:
    classes = tmp_path_factory.mktemp("classes")
    file = tmp_path_factory.mktemp("received") / "pushes"
    compile_receiver(classes)
    with KafkaCluster(properties=properties(file), class_path=[classes]) as cluster:
        cluster.alter_client_metrics("all", {"metrics": "*", "interval.ms": INTERVAL_MS})
        yield Receiving(cluster, file)


async def test_a_broker_gets_what_it_asked_for(receiving: Receiving) -> None:
    """Under Java's names, sums as deltas that add up to what was sent, and a last push at the end."""
    topic = await new_topic(receiving.cluster)
    async with producer_of(receiving.cluster, client_id="pushing") as producer:
        client = await producer.client_instance_id(PATIENCE_S)
        assert client is not None
        await producer.send_many(topic, [b"%d" % number for number in range(100)])
        await receiving.until(lambda: len(receiving.of(client)) >= 3)
        await producer.send_many(topic, [b"%d" % number for number in range(23)])
        assert await producer.client_instance_id(0) == client
    pushes = receiving.of(client)
    assert [push.terminating for push in pushes] == [False] * (len(pushes) - 1) + [True]
    assert {push.content_type for push in pushes} == {"OTLP"}
    assert {f"{PRODUCER}.{name}" for name in REQUIRED.split()} <= pushes[-1].names
    of_topic = frozenset({("topic", topic)})
    assert sum(push.values(f"{PRODUCER}.record.send.total")[frozenset()] for push in pushes) == 123
    sent_to_topic = [push.values(f"{PRODUCER}.topic.record.send.total").get(of_topic, 0) for push in pushes]
    assert sum(sent_to_topic) == 123
    assert frozenset({("node_id", "node-1")}) in pushes[-1].values(f"{PRODUCER}.node.request.latency.avg")


async def test_a_subscription_that_changes(receiving: Receiving) -> None:
    """The broker refuses a push under the old subscription; the producer asks again and uses the new one."""
    names = f"{PRODUCER}.record.", f"{PRODUCER}.topic."
    change = receiving.cluster.alter_client_metrics
    try:
        async with producer_of(receiving.cluster, transactional_id="pushing") as producer:
            client = await producer.client_instance_id(PATIENCE_S)
            await receiving.until(lambda: receiving.of(client))
            (resource,) = [one.resource for one in receiving.of(client)[0].metrics.resource_metrics]
            assert {one.key: one.value.string_value for one in resource.attributes} == {"transactional_id": "pushing"}
            await asyncio.to_thread(change, "all", {"metrics": ",".join(names)})
            await receiving.until(lambda: all(name.startswith(names) for name in receiving.of(client)[-1].names))
        assert receiving.of(client)[-1].terminating
    finally:
        await asyncio.to_thread(change, "all", {"metrics": "*"})


async def test_metrics_of_the_program(receiving: Receiving) -> None:
    """They alone are asked for, so nothing is pushed until one is registered."""
    change, handled, shop = receiving.cluster.alter_client_metrics, 0, {"shop": "berlin"}
    try:
        await asyncio.to_thread(change, "all", {"metrics": "com.example."})
        async with producer_of(receiving.cluster) as producer:
            client = await producer.client_instance_id(PATIENCE_S)
            producer.register_metric_for_subscription("com.example.handled", lambda: handled, kind="sum")
            producer.register_metric_for_subscription("com.example.waiting", lambda: 7, attributes=shop)
            producer.register_metric_for_subscription("com.other", lambda: 1)
            handled = 5
            await receiving.until(lambda: receiving.of(client))
            handled = 12
            producer.unregister_metric_from_subscription("com.example.waiting", attributes=shop)
            await receiving.until(lambda: "com.example.waiting" not in receiving.of(client)[-1].names)
    finally:
        await asyncio.to_thread(change, "all", {"metrics": "*"})
    pushes = receiving.of(client)
    assert pushes[0].values("com.example.waiting") == {frozenset(shop.items()): 7.0}
    assert sum(push.values("com.example.handled")[frozenset()] for push in pushes) == 12.0
    assert set.union(*(push.names for push in pushes)) == {"com.example.handled", "com.example.waiting"}


async def test_metrics_of_the_program_where_none_are_pushed(kafka: KafkaCluster) -> None:
    async with producer_of(kafka, enable_metrics_push=False) as producer:
        producer.register_metric_for_subscription("com.example.waiting", lambda: 7)
        producer.unregister_metric_from_subscription("com.example.waiting")
        with pytest.raises(ValueError, match="can't name a metric"):
            producer.register_metric_for_subscription("", lambda: 7)
    with pytest.raises(ProducerClosedError):
        producer.register_metric_for_subscription("com.example.waiting", lambda: 7)


async def test_metrics_that_nobody_shall_have(receiving: Receiving) -> None:
    async with producer_of(receiving.cluster, enable_metrics_push=False) as producer:
        with pytest.raises(ConfigError, match="enable_metrics_push"):
            await producer.client_instance_id(1)
        assert not _is_pushing()


async def test_a_broker_without_a_receiver_is_asked_nothing(kafka: KafkaCluster) -> None:
    """It does not offer the API, so the producer does not use it."""
    async with producer_of(kafka) as producer:
        assert await producer.client_instance_id(0.1) is None
        assert not _is_pushing()


def _is_pushing() -> bool:
    return any(task.get_name() == "aioproducer telemetry" for task in asyncio.all_tasks())
