"""The programs of docs/web.md do what it says, with a cluster in the test's process."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from faststream import TestApp
from faststream.kafka import TestKafkaBroker

from aioproducer import DeliveryErrors
from aioproducer.testing import FakeCluster

PAGE = Path(__file__).parents[3] / "docs" / "web.md"
PATIENCE_S = 30


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1) as cluster:
        for topic in ("clicks", "orders", "audit", "invoices"):
            cluster.create_topic(topic)
        yield cluster


def program(having: str, cluster: FakeCluster | None = None) -> dict[str, Any]:
    """The globals of the page's only program that contains this text, run with this cluster instead of its own."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if having in block)
    if cluster is not None:
        assert "localhost:9092" in code
        code = code.replace("localhost:9092", cluster.bootstrap_servers)
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def values(cluster: FakeCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client,
    ):
        yield client


async def test_two_producers(cluster: FakeCluster) -> None:
    async with serving(program("auditor", cluster)["app"]) as client:
        assert (await client.post("/orders", params={"item": "tea"})).status_code == 200
    assert values(cluster, "orders") == values(cluster, "audit") == [b"tea"]


async def test_what_is_lost_is_told(cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    producer = program("on_error=lost", cluster)["producer"]
    cluster.faults.fail("Produce", 29)
    await producer.start()
    await producer.partitions_for("clicks")
    producer.submit_nowait("clicks", "home")
    with pytest.raises(DeliveryErrors):
        await producer.close()
    assert capsys.readouterr().out.startswith("1 records were lost: ")


async def test_live_metrics(cluster: FakeCluster) -> None:
    app = program("metrics_router", cluster)["app"]
    seen: list[bytes] = []
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        seen.append(message.get("body", b""))
        if seen[-1].startswith(b"data: "):
            gone.set()

    scope = {"type": "http", "method": "GET", "path": "/metrics/live", "headers": [], "query_string": b""}
    async with app.router.lifespan_context(app):
        await asyncio.wait_for(app(scope, receive, send), PATIENCE_S)
    event = json.loads(seen[-1].removeprefix(b"data: "))
    assert event.keys() == {"time_ms", "client_id", "health", "metrics"}
    assert event["health"].keys() == {"state", "ready", "live", "reason", "waiting"}


async def test_the_example_for_starlette_is_ready_and_publishes(cluster: FakeCluster) -> None:
    async with serving(program("async def click(request: Request)", cluster)["app"]) as client:
        assert (await client.post("/clicks", content=b"home")).status_code == 202
        assert (await client.get("/readyz")).status_code == 200
    assert values(cluster, "clicks") == [b"home"]


async def test_an_application_without_hooks_has_a_producer_when_it_is_mounted(cluster: FakeCluster) -> None:
    names = program("get_asgi_application", cluster)
    async with serving(names["app"]) as client:
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.post("/anything")).status_code == 204
    assert values(cluster, "orders") == [b"tea"]
    assert names["producer"].health().state.value == "closed"


async def test_the_producer_of_the_example_for_faststream_outlives_its_messages(cluster: FakeCluster) -> None:
    """The producer runs before the first message comes, and is closed after the last."""
    names = program("FastStream(", cluster)
    async with TestKafkaBroker(names["broker"]) as broker, TestApp(names["app"]):
        assert names["producer"].health().state == "running"
        await broker.publish("tea", "orders")
    assert names["producer"].health().state == "closed"
    assert values(cluster, "invoices") == [b"an invoice for tea"]


def test_the_collector_is_told() -> None:
    before = gc.get_threshold()
    try:
        program("gc.freeze")
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] == 10_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
