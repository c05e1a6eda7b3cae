"""Live metrics as server-sent events: their content, and that no stream outlives client, producer or server."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette

from aioproducer import Producer
from aioproducer.integrations import fastapi, starlette
from aioproducer.integrations.sse import RETRY_MS, metrics_events
from aioproducer.metrics import NAMES
from aioproducer.testing import FakeCluster
from aioproducer.testing.ports import free_ports

ROOT = Path(__file__).parents[3]
PATIENCE_S = 30


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1) as cluster:
        cluster.create_topic("events")
        yield cluster


def data(text: str) -> dict[str, Any]:
    assert text.startswith("data: ")
    assert text.endswith("\n\n")
    assert text.count("\n") == 2
    event: dict[str, Any] = json.loads(text.removeprefix("data: "), parse_constant=pytest.fail)
    return event


async def test_an_event_has_the_metrics_and_the_health(cluster: FakeCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as producer:
        events = metrics_events(producer, interval=0.001, extra=lambda: {"page": "home"})
        assert await anext(events) == f"retry: {RETRY_MS}\n\n"
        first = data(await anext(events))
        await producer.send("events", b"x")
        second = data(await anext(events))
        await events.aclose()
    assert first["client_id"] == "shop"
    assert first["page"] == "home"
    assert first["health"] == {"state": "running", "ready": True, "live": True, "reason": "", "waiting": 0}
    assert set(first["metrics"]["producer-metrics"]) == set(NAMES["producer-metrics"])
    assert first["metrics"]["producer-metrics"]["batch-size-avg"] is None  # no batch has been sent yet
    assert second["metrics"]["producer-metrics"]["record-send-total"] == 1
    assert second["metrics"]["producer-metrics"]["batch-size-avg"] > 0
    assert second["metrics"]["producer-node-metrics"]["node-1"]["request-total"] > 0
    assert second["time_ms"] >= first["time_ms"]


async def test_a_producer_that_has_not_started_is_shown_as_such(cluster: FakeCluster) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    events = metrics_events(producer)
    await anext(events)
    event = data(await anext(events))
    await events.aclose()
    assert (event["health"]["state"], event["health"]["ready"], event["metrics"]) == ("new", False, {})


async def test_what_an_application_adds_may_hold_what_json_has_not(cluster: FakeCluster) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    events = metrics_events(producer, extra=lambda: {"rates": [1.0, float("nan"), (float("inf"),)]})
    await anext(events)
    assert data(await anext(events))["rates"] == [1.0, None, [None]]
    await events.aclose()
    await producer.close()


async def test_a_stream_without_an_interval_leaves_turns_to_others_and_ends(cluster: FakeCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        told = asyncio.Event()
        asyncio.get_running_loop().call_soon(told.set)
        events = metrics_events(producer, interval=0, ended=told.is_set)
        seen = 0
        async for _ in events:
            seen += 1
            assert seen < 10
        assert seen > 1


@pytest.mark.parametrize("interval", [Decimal(3_600), 10**400, math.inf], ids=["decimal", "huge", "infinite"])
async def test_an_interval_of_any_kind_of_number(cluster: FakeCluster, interval: Any) -> None:
    """An interval longer than a loop can wait counts as the longest possible one."""
    told = False
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        events = metrics_events(producer, interval=interval, ended=lambda: told)
        await anext(events)
        await anext(events)
        last = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        told = True
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(last, PATIENCE_S)


async def test_a_stream_ends_with_its_producer(cluster: FakeCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        events = metrics_events(producer, interval=3_600)
        await anext(events)
        await anext(events)
        last = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(last, PATIENCE_S)


async def test_a_stream_ends_when_it_is_told_to(cluster: FakeCluster) -> None:
    told = False
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        events = metrics_events(producer, interval=3_600, ended=lambda: told)
        await anext(events)
        await anext(events)
        last = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        told = True
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(last, PATIENCE_S)


@pytest.mark.parametrize(
    "refuses",
    [
        starlette.metrics_routes,
        fastapi.metrics_router,
        lambda *, interval: metrics_events(Producer(bootstrap_servers="localhost:9092"), interval=interval),
    ],
    ids=["starlette", "fastapi", "metrics_events"],
)
def test_an_interval_that_is_no_number_is_refused_at_once(refuses: Callable[..., object]) -> None:
    """Not later in the stream, whose response would have begun by then; and one of nan seconds would never pause."""
    with pytest.raises(ValueError, match="interval is not a number; seconds are needed"):
        refuses(interval=math.nan)
    for wrong in "1", None:
        with pytest.raises(TypeError, match=f"interval is a {type(wrong).__name__}; seconds are needed"):
            refuses(interval=wrong)


@pytest.mark.parametrize(
    "refuses",
    [
        starlette.metrics_routes,
        fastapi.metrics_router,
        lambda **options: metrics_events(Producer(bootstrap_servers="localhost:9092"), **options),
    ],
    ids=["starlette", "fastapi", "metrics_events"],
)
def test_what_can_not_be_called_is_refused_at_once(refuses: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match=r"^extra is a dict; a function that returns a mapping is needed$"):
        refuses(extra={"page": "home"})


def test_functions_of_a_stream_that_are_none_are_refused_at_once() -> None:
    producer: Any = Producer(bootstrap_servers="localhost:9092")
    wrong: Any = None
    with pytest.raises(TypeError, match=r"^ended is a bool; a function is needed$"):
        metrics_events(producer, ended=True)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^health is a NoneType; a function is needed$"):
        metrics_events(producer, health=wrong)


@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
async def test_applications_serve_it(cluster: FakeCluster, framework: str) -> None:
    """A client that disconnects ends its stream: nothing is left running, which ``clean_loop`` checks."""
    lifespan = starlette.producer_lifespan(lambda: Producer(bootstrap_servers=cluster.bootstrap_servers))
    app: Any
    if framework == "starlette":
        app = Starlette(routes=starlette.metrics_routes("/live"), lifespan=lifespan)
    else:
        app = FastAPI(lifespan=lifespan)
        app.include_router(fastapi.metrics_router("/live"))
    gone = asyncio.Event()
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if b"record-send-total" in message.get("body", b""):
            gone.set()

    async with app.router.lifespan_context(app):
        scope = {"type": "http", "method": "GET", "path": "/live", "headers": [], "query_string": b"", "root_path": ""}
        await asyncio.wait_for(app(scope, receive, send), PATIENCE_S)
    headers = dict(sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store"


async def test_a_request_for_the_head_alone_ends(cluster: FakeCluster) -> None:
    """Starlette's routes answer HEAD too; a stream would occupy its connection, on which the client sees nothing."""
    lifespan = starlette.producer_lifespan(lambda: Producer(bootstrap_servers=cluster.bootstrap_servers))
    app = Starlette(routes=starlette.metrics_routes("/live"), lifespan=lifespan)
    transport = httpx.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        answer = await asyncio.wait_for(client.head("/live"), PATIENCE_S)
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")


async def test_uvicorn_ends_with_streams_open(cluster: FakeCluster) -> None:
    """It would wait for them forever; instead they end properly, so that no client sees a broken response."""
    (port,) = free_ports(1, random.Random())
    command = ["-m", "uvicorn", "examples.live_metrics.app:app", f"--port={port}", "--log-level=warning"]
    environment = {**os.environ, "BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    server = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, env=environment, stdout=PIPE, stderr=PIPE
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            await _ready(client)
            assert (await client.post("/events", params={"count": 100})).status_code == 202
            async with client.stream("GET", "/metrics") as stream:
                acked = 0
                async for line in stream.aiter_lines():
                    if line.startswith("data: ") and acked < 100:
                        acked = json.loads(line.removeprefix("data: "))["outcomes"]["acked"]
                        if acked == 100:
                            server.send_signal(signal.SIGTERM)
        output = await asyncio.wait_for(server.communicate(), PATIENCE_S)
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()
    assert acked == 100
    assert server.returncode in (0, -signal.SIGTERM)  # exits by the signal itself after shutting down
    assert output == (b"", b"")
    assert len(cluster.records("events")) == 100


async def _ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)
