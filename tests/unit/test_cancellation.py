"""Every public coroutine, cancelled at each of its suspensions in turn.

A run cancels the task once, when it suspends for the n-th time: first the 1st, then the 2nd, until a run comes to its
end uncancelled. After each: the record is in the log once or not at all, other records are unaffected, the memory is
free, and no task is left. The fake cluster checks the sequences.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.testing import FakeCluster

PATIENCE_S = 30
MOST_SUSPENSIONS = 100
CANCELLED = b"cancelled"


class Suspensions:
    """Runs a coroutine inside a task, counts its suspensions, and cancels the task at one of them.

    The task is cancelled in a separate turn, as by another task, so the coroutine is cancelled where it waits.
    """

    def __init__(self, work: Coroutine[Any, Any, Any] | Awaitable[Any], cancel_at: int) -> None:
        self._work = work
        self._cancel_at = cancel_at
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._work.__await__()
        reply: Any = None
        error: BaseException | None = None
        while True:
            try:
                awaited = steps.send(reply) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            self.count += 1
            if self.count == self._cancel_at:
                asyncio.get_running_loop().call_soon(task.cancel)
            reply, error = None, None
            try:
                reply = yield awaited
            except BaseException as thrown:
                error = thrown


async def _settled(work: Awaitable[Any], cancel_at: int) -> bool:
    """Run it to its end; returns whether it was not cancelled."""
    suspensions = Suspensions(work, cancel_at)

    async def body() -> None:
        await suspensions

    task = asyncio.ensure_future(body())
    await asyncio.wait_for(asyncio.wait([task]), PATIENCE_S)
    if not task.cancelled():
        task.result()
    return suspensions.count < cancel_at


@dataclass
class Stage:
    """A producer with other records in flight."""

    cluster: FakeCluster
    producer: Producer
    others: list[asyncio.Task[Any]] = field(default_factory=list)

    def other(self, number: int) -> None:
        """Send a record that must not be affected."""
        self.others.append(asyncio.ensure_future(self.producer.send("orders", b"other %d" % number)))


Scene = Callable[[Stage], Awaitable[Any]]


async def awaited_later(stage: Stage) -> Any:
    return await (await stage.producer.submit("orders", CANCELLED))


async def behind_a_full_buffer(stage: Stage) -> Any:
    """Other records hold all memory, and their answers are delayed."""
    stage.cluster.faults.delay("Produce", 20, times=2)
    for number in range(4):
        stage.others.append(asyncio.ensure_future(stage.producer.send("orders", b"large %d" % number + bytes(9_000))))
    await asyncio.sleep(0)
    return await stage.producer.send("orders", CANCELLED + bytes(9_000))


async def room(stage: Stage) -> Any:
    stage.cluster.faults.delay("Produce", 20, times=2)
    for number in range(4):
        stage.others.append(asyncio.ensure_future(stage.producer.send("orders", b"large %d" % number + bytes(9_000))))
    await asyncio.sleep(0)
    return await stage.producer.ready()


async def flushed(stage: Stage) -> Any:
    await stage.producer.submit("orders", CANCELLED)
    return await stage.producer.flush()


async def many(stage: Stage) -> Any:
    """Admission stops, admitted records go on."""
    return await stage.producer.send_many("orders", [CANCELLED + b" %d" % number for number in range(5)])


SCENES: dict[str, Scene] = {
    "send": lambda stage: stage.producer.send("orders", CANCELLED),
    "submit": lambda stage: stage.producer.submit("orders", CANCELLED),
    "delivery": awaited_later,
    "send to a new topic": lambda stage: stage.producer.send("audit", CANCELLED),
    "send behind a full buffer": behind_a_full_buffer,
    "ready": room,
    "flush": flushed,
    "partitions_for": lambda stage: stage.producer.partitions_for("audit"),
    "send_many": many,
}


@asynccontextmanager
async def stage_of(**configs: Any) -> AsyncIterator[Stage]:
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        small = {"buffer_memory": 40_000, "batch_size": 10_000, "max_request_size": 39_000, "linger_ms": 1}
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, **{**small, **configs})
        async with producer:
            stage = Stage(cluster, producer)
            yield stage
            sent = await asyncio.wait_for(asyncio.gather(*stage.others), PATIENCE_S)
            await asyncio.wait_for(producer.flush(), PATIENCE_S)
            metrics = producer.metrics()["producer-metrics"]
            assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
            assert metrics["waiting-threads"] == 0
            check_log(cluster, len(sent))


def check_log(cluster: FakeCluster, others: int) -> None:
    """Cancelled records are in the log once or not at all, all others once."""
    values = Counter(record.value or b"" for topic in cluster.topics() for record in cluster.records(topic))
    assert max(values.values(), default=1) == 1
    assert sum(not value.startswith(CANCELLED) for value in values) == others


async def slow_serializer(value: Any) -> bytes:
    await asyncio.sleep(0)
    return bytes(value)


@pytest.mark.parametrize("configs", [{}, {"value_serializer": slow_serializer}], ids=["plain", "serializer"])
@pytest.mark.parametrize("scene", SCENES)
async def test_cancelled_at_every_suspension(scene: str, configs: dict[str, Any]) -> None:
    """Wherever the cancellation happens, other calls are unaffected."""
    finished = False
    for cancel_at in range(1, MOST_SUSPENSIONS):
        async with stage_of(**configs) as stage:
            stage.other(1)
            finished = await _settled(SCENES[scene](stage), cancel_at)
            stage.other(2)
        if finished:
            break
    assert finished
    assert cancel_at > 1, "it was cancelled at least once"


async def test_start_cancelled_at_every_suspension() -> None:
    """It leaves nothing behind, and can be called again."""
    finished = False
    async with FakeCluster(1) as cluster:
        for cancel_at in range(1, MOST_SUSPENSIONS):
            producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
            finished = await _settled(producer.start(), cancel_at)
            if not finished:
                await asyncio.wait_for(producer.start(), PATIENCE_S)
            await asyncio.wait_for(producer.send("orders", b"value %d" % cancel_at), PATIENCE_S)
            await producer.close()
            if finished:
                break
        assert finished
        assert cancel_at > 1
        assert len(cluster.records("orders")) == cancel_at


@pytest.mark.parametrize("call", ["close", "aexit"])
async def test_close_cancelled_at_every_suspension(call: str) -> None:
    """It ends like close(0): each record has ended, nothing keeps running, a later close does nothing."""
    finished = False
    for cancel_at in range(1, MOST_SUSPENSIONS):
        async with FakeCluster(1) as cluster:
            cluster.create_topic("orders")
            producer = Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=1)
            await producer.start()
            delivery = await producer.submit("orders", b"value")
            work = producer.close() if call == "close" else producer.__aexit__(None, None, None)
            finished = await _settled(work, cancel_at)
            await asyncio.wait_for(producer.close(), PATIENCE_S)
            assert delivery.done()
            if delivery.exception() is None:
                assert len(cluster.records("orders")) == 1
            metrics = producer.metrics()["producer-metrics"]
            assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
        if finished:
            break
    assert finished
    assert cancel_at > 1


@pytest.mark.parametrize("cancellations", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
async def test_cancelled_at_random(cancellations: int) -> None:
    """A hundred concurrent calls with too small a buffer: every acknowledged record is in the log once."""
    rng = random.Random(7)
    acknowledged: set[int] = set()
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders", partitions=3)
        small = {"buffer_memory": 100_000, "batch_size": 10_000, "max_request_size": 39_000, "linger_ms": 1}
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, **small) as producer:
            await producer.partitions_for("orders")

            async def call(number: int) -> None:
                value = b"%d " % number + bytes(rng.choice((10, 1_000, 9_000)))
                match rng.randrange(6):
                    case 0 | 1:
                        await producer.send("orders", value)
                        acknowledged.add(number)
                    case 2:
                        await (await producer.submit("orders", value))
                        acknowledged.add(number)
                    case 3:
                        await producer.ready()
                    case 4:
                        await producer.flush()
                    case 5:
                        await producer.send_many("orders", [value])
                        acknowledged.add(number)

            calls: list[asyncio.Task[None]] = []
            begun = cancelled = 0
            while cancelled < cancellations:
                calls = [task for task in calls if not task.done()]
                while len(calls) < 100:
                    calls.append(asyncio.create_task(call(begun)))
                    begun += 1
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(0)
                cancelled += sum(task.cancel() for task in rng.sample(calls, 50))
            results = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE_S)
            assert not [each for each in results if isinstance(each, Exception)]
            await asyncio.wait_for(producer.flush(), PATIENCE_S)
            metrics = producer.metrics()["producer-metrics"]
            assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
            assert producer.health().pending == 0
            there = Counter(
                int((record.value or b"").split()[0])
                for partition in range(3)
                for record in cluster.records("orders", partition)
            )
            assert set(there.values()) == {1}
            assert acknowledged <= there.keys()
            assert acknowledged, "some calls were not cancelled"
