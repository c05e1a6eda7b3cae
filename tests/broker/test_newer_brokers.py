"""The producer with the newest Kafka, which is newer than the one that the other tests use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aioproducer import DeliveryTimeoutError
from aioproducer.protocol.api_versions import ApiVersionsRequest
from tests.broker.chaos.cluster import OUTSIDE, ProxiedCluster, proxied_cluster
from tests.broker.chaos.proxy import Trouble
from tests.broker.fixtures import new_name, new_topic, producer_of
from tests.broker.load import check_exactly_once, check_log, load_on
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


@pytest.fixture(scope="module")
def new_kafka() -> Iterator[ProxiedCluster]:
    """Three brokers of the newest release."""
    with proxied_cluster(3, version="4.4.0") as cluster:
        yield cluster


def test_a_new_cluster_has_the_feature_levels_of_its_release(new_kafka: ProxiedCluster) -> None:
    told = new_kafka.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    assert {one.name: one.max_version_level for one in told.finalized_features}["transaction.version"] == 2


async def test_transactions(new_kafka: ProxiedCluster) -> None:
    topic = await new_topic(new_kafka, 1, min_insync_replicas=2)
    async with producer_of(new_kafka, transactional_id=new_name()) as producer:
        for word in (b"kept", b"dropped", b"kept too"):
            await producer.begin_transaction()
            await producer.send(topic, word)
            await (producer.abort_transaction() if word == b"dropped" else producer.commit_transaction())
    assert await read_values(new_kafka, topic) == [b"kept", b"kept too"]


async def test_a_restart_under_load(new_kafka: ProxiedCluster) -> None:
    topic = await new_topic(new_kafka, 3, min_insync_replicas=2)
    async with producer_of(new_kafka) as producer, load_on(producer, topic) as load:
        await load.advance()
        await asyncio.to_thread(new_kafka.rolling_restart)
        await load.advance()
    await check_exactly_once(new_kafka, topic, load)
    await check_log(new_kafka, topic, 3)


async def test_an_address_that_leads_to_another_broker(new_kafka: ProxiedCluster) -> None:
    """The broker there refuses the connection (KIP-1242), and records wait until the address leads to the right one."""
    topic = await new_topic(new_kafka, 3)
    await asyncio.to_thread(new_kafka.move_leader, topic, 0, 2)
    proxies = new_kafka.proxies
    configs = {"bootstrap_servers": proxies.bootstrap_servers, "request_timeout_ms": 1_000, "linger_ms": 0}
    async with producer_of(new_kafka, delivery_timeout_ms=3_000, **configs) as producer:
        await producer.send(topic, b"0", partition=0)
        _lead(new_kafka, to=3)
        try:
            with pytest.raises(DeliveryTimeoutError, match="is another broker"):
                await producer.send(topic, b"lost", partition=0)
        finally:
            _lead(new_kafka, to=2)
        await producer.send(topic, b"1", partition=0)
    assert await read_values(new_kafka, topic) == [b"0", b"1"]


def _lead(cluster: ProxiedCluster, *, to: int) -> None:
    """Have the address of broker 2 lead to another one, and end its connections."""
    cluster.proxies.lead_to(2, int(cluster.bootstrap_of(OUTSIDE).split(",")[to - 1].rsplit(":", 1)[1]))
    cluster.proxies.set(Trouble(refuses=True), 2)
    cluster.proxies.heal()
