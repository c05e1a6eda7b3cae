"""The producer with the newest Kafka, which is newer than the one that the other tests use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_name, new_topic, producer_of
from tests.broker.load import check_exactly_once, check_log, load_on
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


@pytest.fixture(scope="module")
def new_kafka() -> Iterator[KafkaCluster]:
    """Three brokers of the newest release."""
    with KafkaCluster(3, version="4.4.0") as cluster:
        yield cluster


def test_a_new_cluster_has_the_feature_levels_of_its_release(new_kafka: KafkaCluster) -> None:
    told = new_kafka.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    assert {one.name: one.max_version_level for one in told.finalized_features}["transaction.version"] == 2


async def test_transactions(new_kafka: KafkaCluster) -> None:
    topic = await new_topic(new_kafka, 1, min_insync_replicas=2)
    async with producer_of(new_kafka, transactional_id=new_name()) as producer:
        for word in (b"kept", b"dropped", b"kept too"):
            await producer.begin_transaction()
            await producer.send(topic, word)
            await (producer.abort_transaction() if word == b"dropped" else producer.commit_transaction())
    assert await read_values(new_kafka, topic) == [b"kept", b"kept too"]


async def test_a_restart_under_load(new_kafka: KafkaCluster) -> None:
    topic = await new_topic(new_kafka, 3, min_insync_replicas=2)
    async with producer_of(new_kafka) as producer, load_on(producer, topic) as load:
        await load.advance()
        await asyncio.to_thread(new_kafka.rolling_restart)
        await load.advance()
    await check_exactly_once(new_kafka, topic, load)
    await check_log(new_kafka, topic, 3)
