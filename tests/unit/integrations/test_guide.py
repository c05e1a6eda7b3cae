"""docs/serialization.md: every Python block does what it says, with the test's own cluster and registry."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from aioproducer.testing import FakeCluster, FakeSchemaRegistry
from tests.unit.integrations.messages import Order

GUIDE = Path(__file__).parents[3] / "docs" / "serialization.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
TITLES = [
    "Pydantic", "msgspec", "Avro", "configs", "JSON Schema", "Protobuf", "FastAPI", "choosing", "rules", "tests",
    "types",
]  # fmt: skip


def test_every_block_has_a_title() -> None:
    assert len(BLOCKS) == len(TITLES)


@pytest.mark.parametrize("code", BLOCKS, ids=TITLES)
async def test_a_block(
    code: str,
    fake_kafka_cluster: FakeCluster,
    fake_schema_registry: FakeSchemaRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = ModuleType("shop_pb2")
    shop.Order = Order  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop_pb2", shop)
    code = code.replace("localhost:9092", fake_kafka_cluster.bootstrap_servers)
    code = code.replace("http://localhost:8081", fake_schema_registry.url)
    names: dict[str, Any] = {"__name__": "snippet"}
    exec(compile(code, "serialization.md", "exec"), names)
    if "main" in names:
        await names["main"]()
        topic = "clicks" if '"clicks"' in code else "orders"
        assert fake_kafka_cluster.records(topic)
        assert bool(fake_schema_registry.subjects()) == ("localhost:8081" in code or fake_schema_registry.url in code)
    elif "app" in names:
        app = names["app"]
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
        ):
            assert (await client.post("/clicks/home")).status_code == 202
        assert [record.value for record in fake_kafka_cluster.records("clicks")] == [b"\0\0\0\0\1\x08home"]
    else:
        for name, test in list(names.items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(test):
                await test(fake_kafka_cluster, fake_schema_registry)
                assert fake_schema_registry.requests
