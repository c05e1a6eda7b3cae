"""The main guarantees on other event loops: asyncio's in debug mode, uvloop, and one with eager tasks.

Each scenario runs in each kind of loop; in debug mode asyncio also reports coroutines never awaited, calls from
the wrong thread and callbacks that block the loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aioproducer import BufferExhaustedError, DeliveryErrors, DeliveryTimeoutError, ProducerClosedError, WrongLoopError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import LOOPS, new_topic, producer_of, until
from tests.broker.load import check_exactly_once, check_log, load_on, outcome
from tests.broker.readers import read_values
from tests.clean_loop import HANGING_S

pytestmark = pytest.mark.broker

Scenario = Callable[[KafkaCluster], Coroutine[Any, Any, None]]


OTHER_LOOPS = [name for name in LOOPS if name != "asyncio"]


def run(make_loop: Callable[[], asyncio.AbstractEventLoop], scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in a new loop, which it must leave clean."""
    reports: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
        async with asyncio.timeout(HANGING_S):
            await scenario
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(watched())
    assert not reports


async def all_kinds_of_sending(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 3)
    async with producer_of(kafka, linger_ms=20) as producer:
        assert (await producer.send(topic, b"0", partition=0)).offset == 0
        delivery = await producer.submit(topic, b"1", partition=0)
        assert (await delivery).offset == 1
        nowait = producer.submit_nowait(topic, b"2", partition=0)
        called: list[int] = []
        nowait.add_done_callback(lambda one: called.append(one.result().offset))
        await producer.flush()
        await asyncio.sleep(0)
        assert called == [2]
        found = await asyncio.gather(*(producer.send(topic, b"%d" % i, partition=1) for i in range(200)))
        assert [one.offset for one in found] == list(range(200))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(producer.send(topic, b"%d" % i, partition=2)) for i in range(50)]
        assert [task.result().offset for task in tasks] == list(range(50))
        await asyncio.wait_for(producer.ready(), 10)
        assert len(await producer.partitions_for(topic)) == 3
    assert await read_values(kafka, topic, 0) == [b"0", b"1", b"2"]
    assert await read_values(kafka, topic, 1) == [b"%d" % i for i in range(200)]


async def every_codec_with_large_batches(kafka: KafkaCluster) -> None:
    values = [random.Random(i).randbytes(20) * 500 for i in range(100)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        topic = await new_topic(kafka)
        async with producer_of(kafka, compression_type=codec, batch_size=500_000, linger_ms=20) as producer:
            for value in values:
                await producer.submit(topic, value)
        assert await read_values(kafka, topic) == values


async def full_speed_through_a_small_buffer(kafka: KafkaCluster) -> None:
    """Data handed to the transport must not change, although its memory is reused at once."""
    topic = await new_topic(kafka)
    values = [b"%08d" % i * (i % 50 + 1) for i in range(20_000)]
    async with producer_of(kafka, buffer_memory=300_000, max_request_size=200_000, batch_size=10_000) as producer:
        await producer.partitions_for(topic)
        for value in values:
            while True:
                try:
                    producer.submit_nowait(topic, value)
                    break
                except BufferExhaustedError:
                    await producer.ready()
    assert await read_values(kafka, topic) == values


async def without_acks(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    values = [b"%08d" % i * (i % 50 + 1) for i in range(5_000)]
    async with producer_of(kafka, acks=0, buffer_memory=300_000, max_request_size=200_000) as producer:
        for value in values:
            await producer.submit(topic, value)
        await producer.flush()
        # Without acks there is no guarantee that a broker reads what is in transit when the connection ends.
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(kafka.end_offsets, topic))[0] < len(values):
                await asyncio.sleep(0.01)
    assert await read_values(kafka, topic) == values


async def cancellations_everywhere(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    rng = random.Random(1)
    async with producer_of(kafka, buffer_memory=100_000, max_request_size=90_000, linger_ms=1) as producer:
        tasks = [asyncio.create_task(producer.send(topic, b"%d" % i * 2_000)) for i in range(500)]
        for _ in range(200):
            await asyncio.sleep(0)
            rng.choice(tasks).cancel()
        await asyncio.wait(tasks)
        await producer.flush()
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
        assert metrics["waiting-threads"] == 0
        found = {b"%d" % i for i, task in enumerate(tasks) if not task.cancelled()}
        assert len(found) > 200
    written = [value[: len(value) // 2_000] for value in await read_values(kafka, topic) if value is not None]
    assert found <= set(written)
    assert len(written) == len(set(written))


async def unseen_failures(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, cleanup_policy="compact")
    told: list[int] = []
    async with producer_of(kafka, on_error=lambda _, records: told.append(records)) as producer:
        for _ in range(5):
            await producer.submit(topic, b"a compacted topic takes no record without a key")
        with pytest.raises(DeliveryErrors):
            await producer.flush()
        await asyncio.sleep(0)
        assert sum(told) == 5


async def closing_early(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    producer = producer_of(kafka, linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.start()
    await producer.partitions_for(topic)
    delivery = producer.submit_nowait(topic, b"value")
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    with pytest.raises(ProducerClosedError):
        await producer.send(topic, b"value")
    await closing
    assert (await delivery).offset == 0


async def other_threads(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    loop = asyncio.get_running_loop()
    async with producer_of(kafka) as producer:
        await producer.partitions_for(topic)
        with pytest.raises(WrongLoopError):
            await asyncio.to_thread(producer.submit_nowait, topic, b"value")

        def as_told() -> None:
            loop.call_soon_threadsafe(producer.submit_nowait, topic, b"1")
            asyncio.run_coroutine_threadsafe(_send(), loop).result(60)

        async def _send() -> None:
            await producer.send(topic, b"2")

        await asyncio.to_thread(as_told)
    assert await read_values(kafka, topic) == [b"1", b"2"]


@pytest.mark.parametrize("loop", OTHER_LOOPS)
@pytest.mark.parametrize(
    "scenario",
    [
        all_kinds_of_sending,
        every_codec_with_large_batches,
        full_speed_through_a_small_buffer,
        without_acks,
        cancellations_everywhere,
        unseen_failures,
        closing_early,
        other_threads,
    ],
)
def test_on_every_loop(kafka: KafkaCluster, scenario: Scenario, loop: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="asyncio"):
        run(LOOPS[loop], scenario(kafka))


async def a_restart(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 3)
    async with producer_of(kafka, linger_ms=1, compression_type="lz4") as producer, load_on(producer, topic) as load:
        await load.advance()
        await asyncio.to_thread(kafka.restart, 1)
        await load.advance()
    await check_exactly_once(kafka, topic, load)
    await check_log(kafka, topic, 3)


async def a_freeze(kafka: KafkaCluster) -> None:
    """Requests time out with much data unwritten, so connections are closed with views of records in their buffers."""
    topic = await new_topic(kafka, 2)
    async with producer_of(kafka, request_timeout_ms=300, delivery_timeout_ms=1_000, linger_ms=0) as producer:
        await producer.send(topic, b"before", partition=0)
        kafka.pause(1)
        deliveries = [await producer.submit(topic, bytes(50_000), partition=i % 2) for i in range(200)]
        errors = [await outcome(delivery) for delivery in deliveries]
        assert {type(error) for error in errors} == {DeliveryTimeoutError}
        await producer.flush()
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
        kafka.resume(1)
        async with load_on(producer, topic) as load:
            await until(lambda: load.acknowledged, "records arrive again")


@pytest.mark.parametrize(("scenario", "loop"), [(a_restart, "uvloop"), (a_freeze, "debug"), (a_freeze, "uvloop")])
def test_outages_on_every_loop(fragile_kafka: KafkaCluster, scenario: Scenario, loop: str) -> None:
    run(LOOPS[loop], scenario(fragile_kafka))
