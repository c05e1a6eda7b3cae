"""Acknowledged records are in the log once and in order, whatever happens to brokers and connections."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from aioproducer import RecordTooLargeError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic, producer_of
from tests.broker.load import check_exactly_once, check_log, load_on, outcome
from tests.broker.readers import read, read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

linux_only = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds connections in /proc")


async def test_sequences_have_no_gaps_with_five_requests_in_flight(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, batch_size=500, linger_ms=0) as producer:
        deliveries = [await producer.submit(topic, b"%0100d" % i) for i in range(5_000)]
    assert [delivery.result().offset for delivery in deliveries] == list(range(5_000))
    assert await read_values(kafka, topic) == [b"%0100d" % i for i in range(5_000)]
    await check_log(kafka, topic)


async def test_two_producers_do_not_mix_their_sequences(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, linger_ms=0) as one, producer_of(kafka, linger_ms=0) as other:
        for i in range(200):
            await asyncio.gather(one.send(topic, b"one %d" % i), other.send(topic, b"other %d" % i))
    values = await read_values(kafka, topic)
    for name in (b"one", b"other"):
        own = [value for value in values if (value or b"").startswith(name)]
        assert own == [b"%b %d" % (name, i) for i in range(200)]
    await check_log(kafka, topic)
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert len({batch.producer_id for batch in dump.batches}) == 2


async def test_records_that_fail_among_others_leave_no_gap(kafka: KafkaCluster) -> None:
    """Batches sent after a refused batch are refused too, and sent again under the next epoch."""
    topic = await new_topic(kafka, max_message_bytes=1_000)
    async with producer_of(kafka, batch_size=600, linger_ms=0) as producer:
        deliveries = []
        for i in range(3_000):
            deliveries.append(await producer.submit(topic, b"%0100d" % i if i % 300 != 150 else bytes(1_500)))
        errors = [await outcome(delivery) for delivery in deliveries]
    for i, error in enumerate(errors):
        if i % 300 == 150:
            assert isinstance(error, RecordTooLargeError)
            assert not error.maybe_written
        else:
            assert error is None
    good = [i for i in range(3_000) if i % 300 != 150]
    assert [deliveries[i].result().offset for i in good] == list(range(len(good)))
    assert await read_values(kafka, topic) == [b"%0100d" % i for i in good]
    dump = await asyncio.to_thread(kafka.dump_log_segments, topic)
    assert not dump.problems


@pytest.mark.slow
async def test_a_restart_under_load(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka, 3)
    async with producer_of(fragile_kafka) as producer, load_on(producer, topic) as load:
        await load.advance()
        await asyncio.to_thread(fragile_kafka.restart, 1)
        await load.advance()
    await check_exactly_once(fragile_kafka, topic, load)
    await check_log(fragile_kafka, topic, 3)


@pytest.mark.slow
async def test_kill_9_under_load(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka, 3)
    async with (
        producer_of(fragile_kafka, linger_ms=0, compression_type="lz4") as producer,
        load_on(producer, topic) as load,
    ):
        await load.advance()
        await asyncio.to_thread(fragile_kafka.kill, 1)
        await asyncio.to_thread(fragile_kafka.start_broker, 1)
        await load.advance()
    await check_exactly_once(fragile_kafka, topic, load)
    await check_log(fragile_kafka, topic, 3)


async def test_a_frozen_broker_and_request_timeouts_under_load(fragile_kafka: KafkaCluster) -> None:
    """The broker receives requests that the producer has given up, and later the same batches again."""
    topic = await new_topic(fragile_kafka, 3)
    async with (
        producer_of(fragile_kafka, request_timeout_ms=300, linger_ms=0) as producer,
        load_on(producer, topic) as load,
    ):
        for _ in range(3):
            await load.advance()
            fragile_kafka.pause(1)
            await load.struggle()
            fragile_kafka.resume(1)
        await load.advance()
    await check_exactly_once(fragile_kafka, topic, load)
    await check_log(fragile_kafka, topic, 3)


def cut_connections(port: int, rng: random.Random) -> int:
    """Shut down this process's connections to a port without their owners' knowledge; return their number."""
    cut = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as twin:
                if twin.family == socket.AF_INET and twin.getpeername()[1] == port:
                    twin.shutdown(rng.choice([socket.SHUT_RD, socket.SHUT_RDWR]))
                    cut += 1
    return cut


@linux_only
async def test_connections_cut_at_any_moment_under_load(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka, 3)
    port = fragile_kafka.address_of(1)[1]
    rng = random.Random(1)
    cut = 0
    async with (
        producer_of(
            fragile_kafka, linger_ms=0, batch_size=2_000, retry_backoff_ms=5, reconnect_backoff_ms=5
        ) as producer,
        load_on(producer, topic) as load,
    ):
        for _ in range(40):
            await load.advance(rng.randrange(1, 300))
            cut += cut_connections(port, rng)
        await load.advance()
    assert cut >= 30
    await check_exactly_once(fragile_kafka, topic, load)
    await check_log(fragile_kafka, topic, 3)


@linux_only
async def test_without_idempotence_nothing_is_lost(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka, 3)
    port = fragile_kafka.address_of(1)[1]
    rng = random.Random(2)
    async with (
        producer_of(
            fragile_kafka, linger_ms=0, enable_idempotence=False, retry_backoff_ms=5, reconnect_backoff_ms=5
        ) as producer,
        load_on(producer, topic) as load,
    ):
        for _ in range(20):
            await load.advance(rng.randrange(1, 300))
            cut_connections(port, rng)
        await load.advance()
    assert all(delivery.exception() is None for delivery in load.deliveries)
    stored = await read(fragile_kafka, topic)
    found = [int((one.value or b"").split()[0]) for records in stored.values() for one in records]
    assert set(found) == set(range(len(load.deliveries)))


@linux_only
async def test_one_request_in_flight_keeps_the_order_without_idempotence(fragile_kafka: KafkaCluster) -> None:
    """Retried batches may be duplicated, but no batch overtakes another."""
    topic = await new_topic(fragile_kafka)
    port = fragile_kafka.address_of(1)[1]
    rng = random.Random(3)
    async with (
        producer_of(
            fragile_kafka,
            linger_ms=0,
            enable_idempotence=False,
            max_in_flight_requests_per_connection=1,
            retry_backoff_ms=5,
            reconnect_backoff_ms=5,
        ) as producer,
        load_on(producer, topic) as load,
    ):
        for _ in range(20):
            await load.advance(rng.randrange(1, 300))
            cut_connections(port, rng)
        await load.advance()
    found = [int((value or b"").split()[0]) for value in await read_values(fragile_kafka, topic)]
    first_seen = list(dict.fromkeys(found))
    assert first_seen == list(range(len(load.deliveries)))


# --- three brokers ----------------------------------------------------------------------------------------------------


async def test_leaders_that_move_under_load(three_brokers: KafkaCluster) -> None:
    topic = await new_topic(three_brokers, 2)
    async with (
        producer_of(three_brokers, linger_ms=0) as producer,
        load_on(producer, topic) as load,
    ):
        for broker in (1, 2, 3):
            for partition in (0, 1):
                await load.advance(200)
                await asyncio.to_thread(three_brokers.move_leader, topic, partition, broker)
        await load.advance()
        metrics = producer.metrics()
        assert len(metrics["producer-node-metrics"]) >= 3
    await check_exactly_once(three_brokers, topic, load)
    await check_log(three_brokers, topic, 2)
