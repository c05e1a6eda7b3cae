"""The examples run, and do what they describe."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S
from tests.broker.readers import StoredRecord, read, read_topic

pytestmark = pytest.mark.broker

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(cluster: KafkaCluster | None, name: str, *arguments: str) -> str:
    """Run an example as a script, with the address of a cluster or without any, and return what it prints."""
    environment = {**os.environ, "BOOTSTRAP_SERVERS": cluster.bootstrap_servers if cluster is not None else ""}
    command = [sys.executable, "-W", "error", EXAMPLES / name, *arguments]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    return finished.stdout


def records_of(by_partition: dict[int, list[StoredRecord]]) -> list[StoredRecord]:
    """All records, partition by partition."""
    return [record for records in by_partition.values() for record in records]


@pytest.mark.parametrize("name", sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")))
def test_an_example_fits_on_a_screen(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < 60


def test_first_send(kafka: KafkaCluster) -> None:
    before = len(records_of(read_topic(kafka, "orders"))) if "orders" in topics_of(kafka) else 0
    output = run(kafka, "first_send.py")
    assert output.startswith("in orders-0 at offset ")
    records = records_of(read_topic(kafka, "orders"))[before:]
    assert [json.loads(one.value or b"")["id"] for one in records] == list(range(1, 102))
    assert {one.key for one in records} == {b"customer-7"}
    assert records[0].headers == (("trace", b"1"),)


def test_first_send_runs_without_a_kafka() -> None:
    assert run(None, "first_send.py") == "in orders-0 at offset 0\n100 more, up to offset 100\n"


def test_bulk_script(kafka: KafkaCluster) -> None:
    assert run(kafka, "bulk_script.py", "30000").startswith("30,000 records acknowledged in ")
    numbers = [json.loads(one.value or b"")["number"] for one in records_of(read_topic(kafka, "measurements"))]
    assert sorted(numbers) == list(range(30_000))


def test_pydantic_events(kafka: KafkaCluster) -> None:
    output = run(kafka, "pydantic_events.py")
    assert output.startswith("refused: ('OrderShipped.order', 'Input should be greater than 0')\ntwo events, the last ")
    placed, shipped = records_of(read_topic(kafka, "order-events"))[-2:]
    assert {**json.loads(placed.value or b""), "at": ""} == {"kind": "placed", "order": 7, "item": "tea", "at": ""}
    assert shipped.value == b'{"kind":"shipped","order":7,"parcels":1}'
    assert (placed.key, shipped.key) == (b"7", b"7")


async def test_fastapi_handler(kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    app = load("fastapi_handler").app
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        answer = await client.post("/orders/someone", params={"item": "tea"})
        clicks = [await client.post(f"/clicks/page-{number}") for number in range(20)]
    assert answer.status_code == 201
    assert {click.status_code for click in clicks} == {202}
    place = answer.json()
    orders = await read(kafka, "orders")
    order = orders[place["partition"]][place["offset"]]
    assert (order.key, order.value) == (b"someone", b"tea")
    # When the application ended, it sent what was still in the buffer.
    pages = [one.value for one in records_of(await read(kafka, "clicks"))]
    assert pages[-20:] == [f"page-{number}".encode() for number in range(20)]


async def test_fastapi_handler_answers_503_when_nothing_can_be_sent(
    kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    example = load("fastapi_handler")
    transport = httpx.ASGITransport(app=example.app)
    async with (
        example.app.router.lifespan_context(example.app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        await example.app.state.aioproducer["default"].close()
        click = await client.post("/clicks/page")
        order = await client.post("/orders/someone", params={"item": "tea"})
    assert click.status_code == order.status_code == 503
    assert order.json()["detail"]["maybe_written"] is False


def load(name: str) -> ModuleType:
    """A fresh import of an example."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def topics_of(cluster: KafkaCluster) -> set[str]:
    """The names of all topics."""
    from aioproducer.protocol.metadata import MetadataRequest

    return {topic.name or "" for topic in cluster.ask(MetadataRequest(topics=None)).topics}
