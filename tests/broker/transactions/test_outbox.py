"""The outbox relay, killed repeatedly."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic
from tests.broker.transactions import databases
from tests.broker.transactions.databases import Outbox, PostgresOutbox, SqliteOutbox
from tests.broker.transactions.processes import ROOT, program
from tests.broker.transactions.waiting import read_until, values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    if reason := databases.postgres_missing():
        pytest.skip(f"the relay is not tested with PostgreSQL: {reason}")
    with databases.postgres() as url:
        yield url


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def outbox(request: pytest.FixtureRequest, tmp_path: Path) -> Outbox:
    if request.param == "SQLite":
        return SqliteOutbox(tmp_path / "shop.db")
    return PostgresOutbox(request.getfixturevalue("postgres"))


async def test_outbox_relay(clusters_by_kind: dict[str, KafkaCluster], outbox: Outbox) -> None:
    """Rows of a table, relayed by a program that is killed repeatedly: each arrives once and in order, none is lost."""
    cluster = clusters_by_kind["V2" if isinstance(outbox, SqliteOutbox) else "V1"]
    rng = random.Random(1)
    topic = await new_topic(cluster)
    relay = (ROOT / "examples" / "outbox_relay.py", outbox.argument)
    # Its position in a table is stored under a group name, which another run's table must not reuse.
    environment = {"BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "RELAY": f"relay-{topic}"}
    await asyncio.to_thread(outbox.insert, topic, 1_000)
    for number in range(5):
        async with program(*relay, environment=environment) as running:
            so_far = 1_000 + 700 * number
            await read_until(cluster, topic, so_far)
            inserting = asyncio.create_task(asyncio.to_thread(outbox.insert, topic, 700))
            await read_until(cluster, topic, so_far + rng.randrange(700))
            await asyncio.sleep(rng.uniform(0, 0.1))
            await running.kill()
            await inserting
    async with program(*relay, environment=environment):
        await asyncio.to_thread(outbox.insert, topic, 10)
        expected = await asyncio.to_thread(outbox.payloads)
        found = await read_until(cluster, topic, len(expected))
    assert len(expected) == 1_000 + 5 * 700 + 10
    assert values(found) == [expected]
    number = int(expected[8].split()[1])
    assert found[0][8].key == b"customer-%d" % (number % 7)
