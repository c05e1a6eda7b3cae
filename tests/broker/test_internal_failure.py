"""A task of the producer's that ends by accident: everything pending and everything later says so, soon."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer import KafkaError, ProducerFailedError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic, producer_of

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

SOON_S = 5
"""Five times what is promised."""


def task_named(name: str) -> asyncio.Task[object]:
    (found,) = [task for task in asyncio.all_tasks() if task.get_name() == f"aioproducer {name}"]
    return found


@pytest.mark.parametrize("name", ["sender", "metadata"])
async def test_a_cancelled_task_fails_everything_pending_and_later(kafka: KafkaCluster, name: str) -> None:
    """Frameworks that cancel all tasks must not leave a producer that looks alive."""
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
    """A bug of ours must end the producer loudly, also while flush waits."""
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
