"""Producers whose ``bootstrap_servers`` lead to another cluster after a while, as in a blue-green change.

Both clusters count their producer ids from 0, so the first producer of each has the same one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioproducer import Producer, Record
from aioproducer.errors import ProducerFailedError
from aioproducer.testing import FakeCluster


@pytest.fixture
async def blue() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1, seed=1) as cluster:
        yield cluster


@pytest.fixture
async def green() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(1, seed=2) as cluster:
        yield cluster


def producer_of(*clusters: FakeCluster, **configs: Any) -> Producer:
    servers = [each.bootstrap_servers for each in clusters]
    return Producer(bootstrap_servers=servers, retry_backoff_ms=1, reconnect_backoff_ms=1, **configs)


def values(cluster: FakeCluster) -> list[bytes | None]:
    return [each.value for each in cluster.records("orders")]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "lead to another cluster" in each.getMessage()]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_records_go_on_there_and_none_passes_for_a_repeat_of_another_producers(
    blue: FakeCluster, green: FakeCluster, caplog: pytest.LogCaptureFixture, idempotent: bool
) -> None:
    caplog.set_level(logging.WARNING)
    async with (
        producer_of(green) as resident,
        producer_of(blue, green, enable_idempotence=idempotent) as producer,
    ):
        theirs = [b"theirs %d" % i for i in range(5)]
        for each in theirs[:4]:
            await resident.send("orders", each)
        for i in range(3):
            await producer.send("orders", b"at blue %d" % i)
        blue.stop()
        mine = [b"mine %d" % i for i in range(10)]
        for each in mine:
            await producer.send("orders", each)
        await resident.send("orders", theirs[4])
        assert values(green) == [*theirs[:4], *mine, theirs[4]]
        (told,) = warnings(caplog)
        assert blue._model.cluster_id in told
        assert green._model.cluster_id in told


async def test_what_was_sent_and_not_answered_goes_there_once_and_in_order(
    blue: FakeCluster, green: FakeCluster
) -> None:
    """Some of it under numbers that the former cluster knows, in the log there or not."""
    async with producer_of(green) as resident, producer_of(blue, green, batch_size=200) as producer:
        for i in range(3):
            await resident.send("orders", b"theirs %d" % i)
            await producer.send("orders", b"at blue %d" % i)
        blue.faults.swallow("Produce", when="after")
        mine = [b"mine %02d %060d" % (i, i) for i in range(20)]
        sent = [await producer.submit("orders", each) for each in mine]
        async with asyncio.timeout(10):
            while producer.metrics()["producer-metrics"]["requests-in-flight"] < 5:
                await asyncio.sleep(0.001)
        blue.stop()
        await asyncio.gather(*sent)
        assert values(green)[3:] == mine
        by_producer = [each.producer_id for each in green.records("orders")]
        assert by_producer == [0] * 3 + [1] * len(mine)
        await resident.send("orders", b"theirs at last")
        assert values(green)[-1] == b"theirs at last"


async def test_a_request_for_a_producer_id_is_made_again_there(blue: FakeCluster, green: FakeCluster) -> None:
    """The first is still unanswered."""
    asked = blue.faults.swallow("InitProducerId", times=None)
    async with producer_of(blue, green) as producer:
        async with asyncio.timeout(10):
            while not asked.struck:
                await asyncio.sleep(0.001)
        blue.stop()
        await producer.send("orders", b"mine")
        assert values(green) == [b"mine"]


async def test_interceptors_and_the_program_learn_which_cluster_gets_the_records(
    blue: FakeCluster, green: FakeCluster
) -> None:
    class Lineage:
        def __init__(self) -> None:
            self.told: list[str] = []

        def on_send(self, record: Record) -> Record:
            self.told.append(str(record.value))
            return record

        def on_start(self, client_id: str) -> None:
            self.told.append(client_id)

        def on_cluster(self, cluster_id: str) -> None:
            self.told.append(cluster_id)

    lineage = Lineage()
    producer = producer_of(blue, green, client_id="shop", interceptor_classes=[lineage], value_serializer=str.encode)
    assert producer.cluster_id is None
    async with producer:
        assert producer.cluster_id == blue._model.cluster_id
        await producer.send("orders", "one")
        blue.stop()
        await producer.send("orders", "two")
        assert producer.cluster_id == green._model.cluster_id
        assert lineage.told == ["shop", blue._model.cluster_id, "one", "two", green._model.cluster_id]


@pytest.mark.parametrize("is_open", [True, False])
async def test_transactions_do_not_go_on_there(blue: FakeCluster, green: FakeCluster, is_open: bool) -> None:
    producer = producer_of(blue, green, transactional_id="mine")
    await producer.start()
    await producer.begin_transaction()
    await producer.send("orders", b"at blue")
    if not is_open:
        await producer.commit_transaction()
    blue.stop()
    async with asyncio.timeout(10):
        while producer.health().live:
            await asyncio.sleep(0.001)
    call = producer.commit_transaction if is_open else producer.begin_transaction
    with pytest.raises(ProducerFailedError, match=r"lead to another cluster now.* transactions can't continue"):
        await call()
    await producer.close()
    assert green.topics() == ()
