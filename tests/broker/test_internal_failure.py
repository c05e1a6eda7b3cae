"""A task of the producer ends unexpectedly: all pending and later calls soon fail with an error that says so."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import KafkaError, ProducerFailedError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic, producer_of

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

SOON_S = 5
"""Five times the guarantee."""


def task_named(name: str) -> asyncio.Task[object]:
    (found,) = [task for task in asyncio.all_tasks() if task.get_name() == f"aioproducer {name}"]
    return found


@pytest.mark.parametrize("name", ["sender", "metadata"])
async def test_a_cancelled_task_fails_everything_pending_and_later(kafka: KafkaCluster, name: str) -> None:
    """Frameworks that cancel all tasks must not leave a producer that seems to work."""
    topic = await new_topic(kafka)
    producer = producer_of(kafka, linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.start()
    pending = [await producer.submit(topic, b"value") for _ in range(100)]
    task_named(name).cancel()
    async with asyncio.timeout(SOON_S):
        for delivery in pending:
            with pytest.raises(ProducerFailedError):
                await delivery
        for call in (
            producer.send(topic, b"later"),
            producer.submit(topic, b"later"),
            producer.flush(),
            producer.ready(),
        ):
            with pytest.raises(ProducerFailedError):
                await call
        with pytest.raises(ProducerFailedError):
            producer.submit_nowait(topic, b"later")
        await producer.close()


async def test_an_error_inside_the_sender_fails_everything_with_its_cause(
    kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in the producer must end it with an error, even while flush waits."""
    topic = await new_topic(kafka)
    producer = producer_of(kafka, linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.start()
    await producer.send(topic, b"fine")

    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("aioproducer.sender.encode_produce_request", broken)
    pending = [await producer.submit(topic, b"value") for _ in range(10)]
    async with asyncio.timeout(SOON_S):
        with pytest.raises(KafkaError):
            await producer.flush()
        for delivery in pending:
            error = delivery.exception()
            assert isinstance(error, ProducerFailedError)
            assert "planted" in str(error)
        with pytest.raises(ProducerFailedError):
            await producer.send(topic, b"later")
        await producer.close()
    metrics = producer.metrics()["producer-metrics"]
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]


async def test_a_cancelled_attempt_to_connect_is_repeated(fragile_kafka: KafkaCluster) -> None:
    """Cancelling all tasks must not keep the producer from reconnecting to a broker that comes back."""
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka) as producer:
        await producer.send(topic, b"before")
        await asyncio.to_thread(fragile_kafka.pause, 1)
        attempts = await connecting_after_a_lost_connection()
        for attempt in attempts:
            attempt.cancel()
        await asyncio.to_thread(fragile_kafka.resume, 1)
        await asyncio.wait_for(producer.send(topic, b"after"), 30)


async def connecting_after_a_lost_connection() -> list[asyncio.Task[object]]:
    """Break the connections to a broker that does not answer, and wait for attempts to reconnect."""
    for task in asyncio.all_tasks():
        if task.get_name().startswith("aioproducer reader"):
            task.cancel()
    async with asyncio.timeout(30):
        while True:
            found = [task for task in asyncio.all_tasks() if task.get_name().startswith("aioproducer connect")]
            if found:
                return found
            await asyncio.sleep(0.001)


async def test_connections_are_counted(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    async with producer_of(fragile_kafka) as producer:
        await producer.send(topic, b"before")
        await asyncio.to_thread(fragile_kafka.restart, 1)
        await asyncio.wait_for(producer.send(topic, b"after"), 60)
        metrics = producer.metrics()["producer-metrics"]
    assert metrics["connection-creation-total"] >= 2
    assert metrics["connection-close-total"] >= 1
