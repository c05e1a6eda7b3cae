"""What Prometheus scrapes."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from aioproducer import Producer
from aioproducer.integrations.prometheus import ProducerCollector
from aioproducer.testing import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("audit")
        yield cluster


def scraped(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], tuple[str, float]]:
    """(name, labels) -> (type, value), as a Prometheus server parses it."""
    return {
        (sample.name, frozenset(sample.labels.items())): (family.type, sample.value)
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def sent(found: dict[tuple[str, frozenset[tuple[str, str]]], tuple[str, float]]) -> float:
    """The records that the producers have sent."""
    return sum(value for (name, _), (_, value) in found.items() if name == "kafka_producer_record_send_total")


async def test_a_scrape(cluster: FakeCluster) -> None:
    registry = CollectorRegistry()
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop")
    registry.register(ProducerCollector(producer))
    assert scraped(registry) == {}  # not started
    async with producer:
        for _ in range(3):
            await producer.send("orders", b"value")
        await producer.send("audit", b"value")
        found = scraped(registry)
    shop = ("client_id", "shop")
    assert found["kafka_producer_record_send_total", frozenset({shop})] == ("counter", 4)
    assert found["kafka_producer_topic_record_send_total", frozenset({shop, ("topic", "orders")})] == ("counter", 3)
    assert found["kafka_producer_topic_record_send_total", frozenset({shop, ("topic", "audit")})] == ("counter", 1)
    kind, requests = found["kafka_producer_node_request_total", frozenset({shop, ("node_id", "1")})]
    assert (kind, requests >= 4) == ("counter", True)
    assert found["kafka_producer_buffer_available_bytes", frozenset({shop})] == ("gauge", 32 << 20)
    assert all(value == value for _, value in found.values())


async def test_several_producers(cluster: FakeCluster) -> None:
    registry = CollectorRegistry()
    first, second = (Producer(bootstrap_servers=cluster.bootstrap_servers, client_id=name) for name in ("a", "b"))
    registry.register(ProducerCollector(first, second))
    async with first, second:
        await first.send("orders", b"value")
        found = scraped(registry)
    totals = {
        labels: value for (name, labels), (_, value) in found.items() if name == "kafka_producer_record_send_total"
    }
    assert totals == {frozenset({("client_id", "a")}): 1, frozenset({("client_id", "b")}): 0}


async def test_from_another_thread_while_topics_appear(cluster: FakeCluster) -> None:
    """The loop counts on meanwhile."""
    registry = CollectorRegistry()
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        registry.register(ProducerCollector(producer))
        await producer.send("topic-0", b"value")  # all scrapes may be over before the next one is sent
        scrapes = asyncio.to_thread(lambda: [scraped(registry) for _ in range(20)])
        scraping = asyncio.create_task(scrapes)
        number = 0
        while not scraping.done():
            number += 1
            cluster.create_topic(f"topic-{number}")
            await producer.send(f"topic-{number}", b"value")
        totals = [sent(one) for one in await scraping]
    assert totals == sorted(totals)
    assert totals[-1] > 0


async def test_after_the_end(cluster: FakeCluster) -> None:
    """A closed producer still shows its totals, also once its loop is closed."""
    registry = CollectorRegistry()
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    registry.register(ProducerCollector(producer))
    async with producer:
        await producer.send("orders", b"value")
    assert sent(scraped(registry)) == 1

    def other() -> None:
        async def live() -> None:
            async with lost:
                await lost.send("orders", b"value")

        asyncio.run(live())

    lost = Producer(bootstrap_servers=cluster.bootstrap_servers)
    thread = threading.Thread(target=other)
    thread.start()
    await asyncio.to_thread(thread.join)
    gone = CollectorRegistry()
    gone.register(ProducerCollector(lost))
    assert sent(scraped(gone)) == 1


async def test_a_topic_may_be_named_like_a_node(cluster: FakeCluster) -> None:
    registry = CollectorRegistry()
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as producer:
        registry.register(ProducerCollector(producer))
        await producer.send("node-1", b"value")
        found = scraped(registry)
    labels = frozenset({("client_id", "shop"), ("topic", "node-1")})
    assert found["kafka_producer_topic_record_send_total", labels] == ("counter", 1)


def test_a_loop_that_does_not_run() -> None:
    """A scrape from another thread, which has to show what is wrong, does not wait for it."""
    registry = CollectorRegistry()
    with FakeCluster() as cluster, asyncio.Runner() as runner:
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
        registry.register(ProducerCollector(producer))
        runner.run(producer.start())
        runner.run(producer.send("orders", b"value"))
        assert sent(scraped(registry)) == 1
        runner.run(producer.close())


async def test_the_dashboard_asks_for_what_there_is(cluster: FakeCluster) -> None:
    dashboard = json.loads((Path(__file__).parents[3] / "docs" / "grafana-dashboard.json").read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"kafka_producer_\w+", target["expr"])
    }
    registry = CollectorRegistry()
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        registry.register(ProducerCollector(producer))
        await producer.send("orders", b"value")
        shown = {name for name, _ in scraped(registry)}
    assert asked <= shown
    assert len(asked) > 10
