"""Topics of a cluster of three that change under load from several tasks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aioproducer.errors import MessageTooLargeError
from tests.broker.chaos.cluster import ProxiedCluster
from tests.broker.chaos.crowd import check, crowd_on
from tests.broker.chaos.proxy import Trouble
from tests.broker.chaos.quotas import limit_producer
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic, producer_of
from tests.broker.load import check_log
from tests.broker.readers import read

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

PARTITIONS = 3
LIVELY: dict[str, Any] = {"linger_ms": 2, "batch_size": 16_384, "request_timeout_ms": 3_000}


async def test_a_topic_is_deleted_and_made_again(three_brokers: ProxiedCluster) -> None:
    """Records that are queued or in flight then go to the new topic, in order and without duplicates."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    async with producer_of(three_brokers, **LIVELY) as producer, crowd_on(producer, topic) as crowd:
        for _ in range(2):
            await crowd.recovered(PARTITIONS)
            await asyncio.to_thread(three_brokers.delete_topic, topic)
            await asyncio.to_thread(three_brokers.create_topic, topic, PARTITIONS)
            since = len(crowd.sent)
            await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd, since=since)


@pytest.mark.slow
async def test_a_topic_is_made_again_with_fewer_partitions(three_brokers: ProxiedCluster) -> None:
    """Records for partitions that no longer exist expire with an error that says so; the others go on."""
    topic = await new_topic(three_brokers, PARTITIONS)
    impatient = {**LIVELY, "request_timeout_ms": 2_000, "delivery_timeout_ms": 8_000}
    async with producer_of(three_brokers, **impatient) as producer, crowd_on(producer, topic) as crowd:
        await crowd.recovered(PARTITIONS)
        await asyncio.to_thread(three_brokers.delete_topic, topic)
        await asyncio.to_thread(three_brokers.create_topic, topic, 1)
        since = len(crowd.sent)
        await crowd.recovered(1)
        await asyncio.wait_for(_last_ended(crowd.sent[:since]), PATIENCE_S)
    await check(three_brokers, topic, crowd, failures=True, since=len(crowd.sent) - 10)


async def _last_ended(records: list[Any]) -> None:
    while any(sent.metadata is None and sent.error is None for sent in records):
        await asyncio.sleep(0.01)


async def test_partitions_are_added_under_a_quota(three_brokers: ProxiedCluster) -> None:
    """Even a throttled producer learns of them, within metadata_max_age_ms and one throttle time."""
    topic = await new_topic(three_brokers, 1)
    client_id = new_name()
    await asyncio.to_thread(limit_producer, three_brokers, client_id, 20_000)
    age_ms = 1_000
    async with (
        producer_of(three_brokers, client_id=client_id, metadata_max_age_ms=age_ms, **LIVELY) as producer,
        crowd_on(producer, topic) as crowd,
    ):
        async with asyncio.timeout(PATIENCE_S):
            while not producer.metrics()["producer-metrics"]["produce-throttle-time-max"] > 0:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(three_brokers.add_partitions, topic, PARTITIONS)
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE_S):
            while len(await producer.partitions_for(topic)) < PARTITIONS:
                await asyncio.sleep(0.01)
            heard_s = time.monotonic() - began
            since = len(crowd.sent)
            while {sent.metadata.partition for sent in crowd.sent[since:] if sent.metadata} < set(range(PARTITIONS)):
                await asyncio.sleep(0.05)
        throttle_ms = producer.metrics()["producer-metrics"]["produce-throttle-time-max"]
        await asyncio.to_thread(limit_producer, three_brokers, client_id, 1e12)
        assert heard_s <= 5 * (age_ms + throttle_ms) / 1000
    # With more partitions a key may map to another one, so the order of a task ends there.
    stored = await read(three_brokers, topic)
    values = [b" ".join((record.value or b"").split()[:2]) for records in stored.values() for record in records]
    assert len(values) == len(set(values))
    assert {sent.value for sent in crowd.sent if sent.metadata is not None} <= set(values)
    assert not crowd.failed


@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.slow)])
async def test_the_limit_of_a_message_is_lowered(three_brokers: ProxiedCluster, codec: str) -> None:
    """Batches that are now too large are split, in order and with the right sequences: no record fails."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    configs = {**LIVELY, "linger_ms": 100, "compression_type": codec}
    async with producer_of(three_brokers, **configs) as producer, crowd_on(producer, topic, pace_s=0.02) as crowd:
        await crowd.recovered(PARTITIONS)
        # Few are split at each limit: the producer learns from the first ones, and makes smaller batches.
        for limit in (4_000, 2_000, 1_000):
            await asyncio.to_thread(three_brokers.alter_configs, topic, {"max.message.bytes": limit})
            await crowd.recovered(PARTITIONS)
        async with asyncio.timeout(PATIENCE_S):
            while producer.metrics()["producer-metrics"]["batch-split-total"] < 1:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(three_brokers.alter_configs, topic, {"max.message.bytes": None})
        await crowd.recovered(PARTITIONS)
    await check(three_brokers, topic, crowd)
    await check_log(three_brokers, topic, PARTITIONS)


@pytest.mark.slow
async def test_the_limit_is_lowered_in_a_bad_network(three_brokers: ProxiedCluster) -> None:
    """A batch that may already be written is not split but fails with maybe_written: there are no duplicates."""
    topic = await new_topic(three_brokers, PARTITIONS, min_insync_replicas=2)
    proxies = three_brokers.proxies
    configs = {
        **LIVELY,
        "linger_ms": 100,
        "request_timeout_ms": 1_000,
        "socket_connection_setup_timeout_ms": 1_000,
        "bootstrap_servers": proxies.bootstrap_servers,
    }
    async with producer_of(three_brokers, **configs) as producer, crowd_on(producer, topic) as crowd:
        for limit in (10_000, 6_000, 4_000):
            await crowd.recovered(PARTITIONS)
            proxies.set(Trouble(swallows="answers"))
            await asyncio.to_thread(three_brokers.alter_configs, topic, {"max.message.bytes": limit})
            await crowd.struggle()
            proxies.heal()
        await crowd.recovered(PARTITIONS)
    assert all(isinstance(sent.error, MessageTooLargeError) and sent.error.maybe_written for sent in crowd.failed)
    await check(three_brokers, topic, crowd, failures=True)
    await check_log(three_brokers, topic, PARTITIONS)
