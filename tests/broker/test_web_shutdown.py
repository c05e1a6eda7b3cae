"""A web application with several worker processes is stopped at full load: what it accepted is in Kafka."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import httpx
import pytest

from aioproducer.testing import KafkaCluster
from aioproducer.testing.ports import free_ports
from tests.broker.fixtures import PATIENCE_S, new_topic
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

ROOT = Path(__file__).parents[2]
CLIENTS = 32
ACCEPTED_BEFORE_THE_END = 1_000


async def test_nothing_accepted_is_lost_when_the_workers_are_terminated(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    (port,) = free_ports(1, random.Random())
    command = ["-m", "uvicorn", "tests.broker.web_app:app", "--workers=2", f"--port={port}", "--log-level=warning"]
    environment = {**os.environ, "BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "TOPIC": topic}
    server = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, env=environment, stdout=PIPE, stderr=PIPE
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            await _ready(client)
            accepted = await _load(client, lambda: server.send_signal(signal.SIGTERM))
        output = await asyncio.wait_for(server.communicate(), PATIENCE_S)
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()
    assert (server.returncode, output) == (0, (b"", b""))
    assert len(accepted) >= ACCEPTED_BEFORE_THE_END
    found = Counter((value or b"").decode() for value in await read_values(kafka, topic))
    missing = [event for event in accepted if event not in found]
    assert not missing
    assert set(found.values()) == {1}


async def _ready(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.05)


async def _load(client: httpx.AsyncClient, enough: Callable[[], object]) -> list[str]:
    """Publish as fast as possible until the server is gone; return the events that it accepted."""
    accepted: list[str] = []
    numbers = count()

    async def publish() -> None:
        while True:
            event = f"event-{next(numbers)}"
            try:
                answer = await client.post(f"/events/{event}")
            except httpx.TransportError:
                return
            assert answer.status_code == 202
            accepted.append(event)
            if len(accepted) == ACCEPTED_BEFORE_THE_END:
                enough()

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(publish())
    return accepted
