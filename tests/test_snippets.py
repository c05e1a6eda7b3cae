"""Every Python block of the documentation runs: its own lines, then the functions and applications that it defines.

With a cluster inside the process, which replaces the addresses in the block. A function gets its arguments
by name, from `ARGUMENTS`. Blocks that need more than that are run by the tests that `ELSEWHERE` names.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import polars
import prometheus_client
import pytest
import trustme

from aioproducer import KafkaError, Producer
from aioproducer.testing import FakeCluster

ROOT = Path(__file__).parent.parent
OTHER_PAGES = {
    "serialization.md": "tests/unit/integrations/test_guide.py",
    "web.md": "tests/unit/integrations/test_web_docs.py",
}
"""Pages that have a separate test."""
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in OTHER_PAGES),
]
PATIENCE_S = 60.0
ADDRESS = re.compile(r"(?:localhost|kafka-(\d)|kafka\.example):9092")
ELSEWHERE = {
    "asyncio.run(main())": "tests/test_docs.py",
    "kafka_cluster: TopicAdmin": "tests/test_docs.py",
    "cluster.kill(leader)": "tests/test_docs.py",
    "Listener(protocol": "tests/test_docs.py",
    "confluent_positions": "examples/consume_transform_produce.py",
    "aiokafka_positions": "examples/consume_transform_produce_aiokafka.py",
    "spark": "tests/spark/test_snippets.py",
    "stream.writeStream": "tests/spark/test_snippets.py",
    "df.write": "tests/spark/test_snippets.py",
}
"""Text of blocks that are run elsewhere, and by which test."""


def python_blocks() -> list[Any]:
    found = []
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
        for number, block in enumerate(blocks, 1):
            if not any(text in block for text in ELSEWHERE):
                found.append(pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}"))
    return found


class Snippet:
    """One block, run in a new folder with the files that blocks refer to."""

    def __init__(self, code: str, cluster: FakeCluster, folder: Path) -> None:
        servers = cluster.bootstrap_servers.split(",")
        self.code = ADDRESS.sub(lambda found: servers[int(found[1] or 1) - 1], code).replace("/var/lib", str(folder))
        self.cluster = cluster
        self.names: dict[str, Any] = {"__name__": "snippet", "Producer": Producer}

    def define(self) -> None:
        exec(compile(self.code, "snippet", "exec"), self.names)

    def functions(self) -> list[Callable[..., Any]]:
        return [
            value
            for value in self.names.values()
            if inspect.isfunction(value) and value.__module__ == "snippet" and not self.is_served(value)
        ]

    def is_served(self, function: Callable[..., Any]) -> bool:
        """Whether it is a handler of an application, which gets requests instead of arguments."""
        return f"app.{function.__name__}" in self.code or any(
            route.endpoint is function
            for route in getattr(self.names.get("app"), "routes", ())
            if hasattr(route, "endpoint")
        )

    async def call(self, function: Callable[..., Any]) -> Any:
        async with AsyncExitStack() as stack:
            arguments = {name: await self.argument(name, stack) for name in inspect.signature(function).parameters}
            if "producer" in function.__code__.co_names:
                await stack.enter_async_context(self.names["producer"])
            if "add_signal_handler" in self.code:
                asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGTERM)
            result = function(*arguments.values())
            return await result if inspect.isawaitable(result) else result

    async def argument(self, name: str, stack: AsyncExitStack) -> Any:
        if name == "producer":
            configs = {"transactional_id": "snippet"} if "transaction" in self.code else {}
            producer = Producer(bootstrap_servers=self.cluster.bootstrap_servers, **configs)
            if "producer.start()" in self.code:
                return producer
            await stack.enter_async_context(producer)
            for partition in await producer.partitions_for("orders"):
                if not configs:
                    await producer.send("orders", b"first", partition=partition.partition)
            return producer
        return ARGUMENTS[name]()

    async def serve(self, app: Any) -> None:
        """Start the application, and send a request to each of its own handlers that takes one."""
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            for route in app.routes:
                if "POST" in (getattr(route, "methods", None) or ()):
                    answer = await client.post(route.path, params={"item": "tea", "page": "home"}, content=b"tea")
                    assert answer.is_success, (route.path, answer.text)
                elif getattr(route, "path", "") in ("/livez", "/readyz"):
                    assert (await client.get(route.path)).is_success, route.path


ARGUMENTS: dict[str, Callable[[], Any]] = {
    "body": lambda: "tea",
    "error": lambda: KafkaError("lost"),
    "frame": lambda: polars.DataFrame({"sensor": ["a"], "json": ["{}"], "measured_at": [datetime.now(UTC)]}),
    "prepared": list,
    "records": lambda: 1,
    "rows": lambda: [b"1", b"2"],
    "stop": asyncio.Event,
    "transactional_id": lambda: "snippet",
    "value": lambda: b"tea",
    "values": lambda: [b"1", b"2"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with certificates of an authority and a client, whose key is encrypted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setattr(prometheus_client, "REGISTRY", prometheus_client.CollectorRegistry())
    monkeypatch.setattr(prometheus_client, "start_http_server", lambda port: None)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    (tmp_path / "kafka-login").write_text("alice secret")
    (tmp_path / "audit").mkdir()
    return tmp_path


@pytest.mark.parametrize("code", python_blocks())
async def test_it_runs(code: str, fake_kafka_cluster: FakeCluster, folder: Path) -> None:
    if "faststream" in code:
        pytest.importorskip("faststream")
    if "fake_kafka_cluster" not in code:
        fake_kafka_cluster.create_topic("orders", 3)
    snippet = Snippet(code, fake_kafka_cluster, folder)
    snippet.define()
    for function in snippet.functions():
        if function.__name__.startswith("test_"):
            await function(fake_kafka_cluster)
        else:
            await asyncio.wait_for(snippet.call(function), PATIENCE_S)
    app = snippet.names.get("app")
    if app is not None and hasattr(app, "router"):
        await asyncio.wait_for(snippet.serve(app), PATIENCE_S)


@pytest.mark.parametrize("place", sorted({*ELSEWHERE.values(), *OTHER_PAGES.values()}))
def test_what_runs_the_others_exists(place: str) -> None:
    assert (ROOT / place).exists()
