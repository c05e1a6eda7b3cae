"""The health of a producer in each state of its life."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from aioproducer import BufferExhaustedError, FlushTimeoutError, Producer, ProducerHealth, ProducerState
from aioproducer.errors import ConnectionLostError
from aioproducer.protocol.metadata import MetadataResponseBroker
from aioproducer.testing import FakeCluster
from tests.unit.net.fake_broker import closed_port
from tests.unit.producing_broker import ProducingBroker
from tests.unit.waiting import until


def producer_of(cluster: FakeCluster, **configs: Any) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, reconnect_backoff_ms=10, **configs)


async def test_from_new_to_closed() -> None:
    async with FakeCluster(1) as cluster:
        producer = producer_of(cluster)
        assert producer.health() == ProducerHealth(ProducerState.NEW)
        starting = asyncio.create_task(producer.start())
        await asyncio.sleep(0)
        assert producer.health() == ProducerHealth(ProducerState.STARTING)
        await starting
        health = producer.health()
        assert health == ProducerHealth(ProducerState.RUNNING)
        assert (health.live, health.ready, health.reason) == (True, True, "")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        health = producer.health()
        assert (health.state, health.ready, health.reason) == ("closing", False, "the producer is closing")
        await closing
        health = producer.health()
        assert (health.state, health.live, health.ready) == ("closed", True, False)


async def test_a_start_that_failed_may_be_repeated() -> None:
    async with FakeCluster(1) as cluster:
        cluster.stop_broker(1)
        producer = producer_of(cluster, max_block_ms=100)
        with pytest.raises(TimeoutError):
            await producer.start()
        assert producer.health() == ProducerHealth(ProducerState.NEW)
        await producer.close()


async def test_no_broker_can_be_reached() -> None:
    """Not ready meanwhile, with the reason; ready again by itself, without a record having to fail first."""
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        async with producer_of(cluster, reconnect_backoff_max_ms=20, retry_backoff_max_ms=20) as producer:
            await producer.send("orders", b"value")
            cluster.stop_broker(1)
            await until(lambda: not producer.health().ready)
            health = producer.health()
            assert (health.state, health.live) == (ProducerState.RUNNING, True)
            assert isinstance(health.error, ConnectionLostError)
            assert "no broker can be reached" in health.reason
            cluster.start_broker(1)
            await until(lambda: producer.health().ready)
            await producer.send("orders", b"value")


def fill(producer: Producer) -> None:
    """Submit records until there is no room for one."""
    while True:
        producer.submit_nowait("orders", b"x" * 1_000)


async def test_why_records_can_not_leave_is_told_where_that_matters(caplog: pytest.LogCaptureFixture) -> None:
    """When they fill the buffer, when a flush takes too long, and when the program ends."""
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        producer = producer_of(cluster, buffer_memory=40_000)
        await producer.start()
        await producer.send("orders", b"value")
        producer._config = replace(producer._config, max_block_ms=10)
        cluster.stop_broker(1)
        await until(lambda: not producer.health().ready)
        why = r"; no broker can be reached: "
        with pytest.raises(BufferExhaustedError, match=rf"await ready\(\){why}"):
            fill(producer)
        for call in (producer.submit("orders", b"x" * 1_000), producer.ready()):
            with pytest.raises(BufferExhaustedError, match=f"bytes are in use{why}"):
                await call
        with pytest.raises(FlushTimeoutError, match=f"they go on{why}"):
            await producer.flush(timeout=0)
        await producer.close(timeout=0)
    assert re.search(rf"records failed, as they had not ended{why}", caplog.text)


async def test_only_the_bootstrap_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a wrong advertised address: not ready while records wait for it.

    Ready when no record waits, because nothing else would find out whether it has got better.
    """
    async with ProducingBroker() as broker:
        elsewhere = MetadataResponseBroker(node_id=1, host=broker.host, port=closed_port())
        monkeypatch.setattr(broker, "address", lambda: elsewhere)
        configs: dict[str, Any] = {"linger_ms": 0, "request_timeout_ms": 1_000, "delivery_timeout_ms": 1_000}
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **configs) as producer:
            assert producer.health().ready
            delivery = await producer.submit("orders", b"value")
            await until(lambda: not producer.health().ready)
            health = producer.health()
            assert (health.state, health.live) == (ProducerState.RUNNING, True)
            assert f"no broker can be reached: no connection to {elsewhere.host}:{elsewhere.port}" in health.reason
            await until(delivery.done)
            assert delivery.exception() is not None
            assert producer.health().ready
            monkeypatch.undo()
            await producer.send("orders", b"value")
            assert producer.health().ready


async def test_the_buffer_is_full() -> None:
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        async with producer_of(cluster, buffer_memory=40_000, batch_size=1_000) as producer:
            await producer.partitions_for("orders")
            delaying = cluster.faults.delay("Produce", 60_000, times=None)
            waiting = asyncio.create_task(producer.send_many("orders", [b"x" * 900] * 100, raise_on_error=False))
            await until(lambda: producer.health().waiting > 0)
            health = producer.health()
            assert (health.live, health.ready) == (True, False)
            assert "buffer_memory" in health.reason
            delaying.cancel()
            cluster.drop_connections(1)
            await waiting
            assert producer.health().ready


async def test_what_has_not_ended_and_what_closing_gave_up() -> None:
    """Accepted records are acknowledged, failed, pending or given up at any time."""
    async with FakeCluster(1) as cluster:
        for topic in ("orders", "refused"):
            cluster.create_topic(topic)
        producer = producer_of(cluster, max_in_flight_requests_per_connection=1)
        await producer.start()
        await producer.send("orders", b"acknowledged")
        cluster.faults.fail("Produce", 29)
        refused = await producer.submit("refused", b"value")
        await until(refused.done)
        assert refused.exception() is not None
        assert (producer.health().pending, producer.health().given_up) == (0, 0)
        cluster.faults.swallow("Produce", when="after", times=None)
        for number in range(5):
            producer.submit_nowait("orders", f"{number}")
            assert producer.health().pending == number + 1
        assert producer.health().ready
        closing = asyncio.create_task(producer.close(timeout=0.05))
        await asyncio.sleep(0)
        assert (producer.health().state, producer.health().pending) == (ProducerState.CLOSING, 5)
        await closing
        assert producer.health() == ProducerHealth(ProducerState.CLOSED, given_up=5)
        assert producer.metrics()["producer-metrics"]["record-error-total"] == 1 + 5


async def test_what_a_failure_of_the_producer_gave_up() -> None:
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        producer = producer_of(cluster)
        await producer.start()
        await producer.send("orders", b"acknowledged")
        cluster.faults.swallow("Produce", times=None)
        for _ in range(3):
            producer.submit_nowait("orders", b"value").add_done_callback(lambda delivery: delivery.exception())
        (sender,) = [task for task in asyncio.all_tasks() if task.get_name() == "aioproducer sender"]
        sender.cancel()
        await until(lambda: not producer.health().live)
        assert (producer.health().pending, producer.health().given_up) == (0, 3)
        await producer.close()


async def test_a_producer_that_has_failed() -> None:
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        cluster.faults.fail("Produce", 31)
        producer = producer_of(cluster)
        await producer.start()
        delivery = await producer.submit("orders", b"value")
        await until(delivery.done)
        assert delivery.exception() is not None
        health = producer.health()
        assert (health.state, health.live, health.ready) == (ProducerState.FAILED, False, False)
        assert "CLUSTER_AUTHORIZATION_FAILED" in health.reason or "not authorized" in health.reason.lower()
        await producer.close()
        assert producer.health().state is ProducerState.CLOSED
