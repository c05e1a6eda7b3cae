"""Closed producers leave nothing behind: no task, no descriptor, no object, no memory."""

from __future__ import annotations

import ast
import asyncio
import gc
import logging
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import aioproducer
from aioproducer import Producer, RecordMetadata
from aioproducer.engine import Engine
from aioproducer.errors import KafkaError, TopicAuthorizationFailedError
from aioproducer.net.client import NetworkClient
from aioproducer.protocol.produce import ProduceRequest
from aioproducer.testing import FakeCluster
from tests.unit.core import allocated_blocks
from tests.unit.producing_broker import ProducingBroker

WARM_UP = 20
PRODUCERS = 200
LIVES = 150
SLACK_BLOCKS = 1_000
"""Python's memory blocks, for all producers together: fewer than five for each. A live producer has thousands."""
SLACK_BYTES = 16 << 20
"""Resident memory, for all together: less than 90 KB for each. A live producer has 32 KiB and more for records."""
PACKAGE = Path(aioproducer.__file__).parent
LOGGERS = {"logger", "_log"}
OBJECTS = {"cause", "connection", "engine", "error", "exception", "failure", "failed", "producer", "reason", "self"}
"""Names of this package's variables that must not be arguments of log calls."""


async def life(broker: ProducingBroker, number: int) -> weakref.ref[Producer]:
    """One producer, used in every way, and ended in a way chosen by the number."""
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, compression_type=("none", "lz4")[number % 2])
    await producer.start()
    sent = await asyncio.gather(*(producer.send("orders", bytes(1_000), key=b"%d" % i) for i in range(10)))
    assert all(isinstance(one, RecordMetadata) for one in sent)
    delivery = await producer.submit("orders", b"value", headers=[("name", b"value")])
    ends: list[object] = []
    delivery.add_done_callback(ends.append)
    producer.submit_nowait("orders", bytes(20_000))
    waiting = asyncio.create_task(producer.send("orders", b"nobody waits for it"))
    await asyncio.sleep(0)
    waiting.cancel()
    if number % 3 == 0:
        await producer.close()
    elif number % 3 == 1:
        await producer.flush()
        await producer.close(timeout=0)
    else:
        broker.holding = True
        failing = await producer.submit("orders", b"fails")
        await producer.close(timeout=0)
        broker.holding = False
        broker.held.clear()
        assert isinstance(failing.exception(), KafkaError)
    await asyncio.wait([waiting])
    return weakref.ref(producer)


async def lives(count: int) -> None:
    """Several producers, one after the other, with a broker that is then stopped too."""
    async with ProducingBroker({"orders": 3}) as broker:
        producers = [await asyncio.wait_for(life(broker, number), 60) for number in range(count)]
        gc.collect()
        assert not any(producer() for producer in producers), "a closed producer is still referred to"
    del broker
    await asyncio.sleep(0)
    gc.collect()


async def test_two_hundred_producers(caplog: pytest.LogCaptureFixture) -> None:
    """Tasks and descriptors are exactly as before, memory is flat."""
    caplog.set_level(logging.ERROR, "aioproducer")  # captured records would be kept
    process = psutil.Process()
    await lives(WARM_UP)
    await forget_cancelled_timers()
    tasks, descriptors = len(asyncio.all_tasks()), open_descriptors()
    blocks, rss_bytes = allocated_blocks(), process.memory_info().rss
    await lives(PRODUCERS)
    await forget_cancelled_timers()
    assert len(asyncio.all_tasks()) == tasks
    assert open_descriptors() == descriptors
    if "PYTHONMALLOC" not in os.environ:  # otherwise Python does not count blocks, and sanitizers keep freed memory
        assert allocated_blocks() - blocks < SLACK_BLOCKS
        assert process.memory_info().rss - rss_bytes < SLACK_BYTES


async def test_batches_with_a_history_leave_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Batches that were refused, lost with a connection, retried, failed: the collector can't free cycles of them."""
    caplog.set_level(logging.ERROR, "aioproducer")  # captured records would be kept

    async def life(broker: ProducingBroker, producer: Producer) -> None:
        broker.error_code = 6  # NOT_LEADER_OR_FOLLOWER
        refused = await producer.submit("orders", b"value")
        await broker.next_request(ProduceRequest)
        broker.error_code = 0
        await refused
        broker.holding = True
        lost = [await producer.submit("orders", b"value") for _ in range(3)]
        await broker.holds()
        broker.holding = False
        broker.held.clear()
        for peer in broker.peers:
            peer.drop()
        await asyncio.gather(*lost)
        broker.error_code = 29  # TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send("orders", b"value")
        forget_the_past(broker)

    configs = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1}
    async with ProducingBroker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers, **configs) as producer:
        for _ in range(LIVES):
            await life(broker, producer)
        await forget_cancelled_timers()
        before = allocated_blocks()
        for _ in range(LIVES):
            await life(broker, producer)
        await forget_cancelled_timers()
        assert allocated_blocks() - before < LIVES


def forget_the_past(broker: ProducingBroker) -> None:
    broker.log.clear()
    broker.requests.clear()
    broker.peers[:] = [peer for peer in broker.peers if not peer.gone.is_set()]
    broker._tasks[:] = [task for task in broker._tasks if not task.done()]
    for queue in broker.arrived, broker.connected:
        while not queue.empty():
            queue.get_nowait()


async def forget_cancelled_timers() -> None:
    """asyncio keeps cancelled timers until they are most of many; in debug mode each of them holds a stack."""
    loop = asyncio.get_running_loop()
    for _ in range(1_000):
        loop.call_later(3_600, loop.stop).cancel()
    await asyncio.sleep(0)


async def test_what_was_logged_keeps_no_producer(caplog: pytest.LogCaptureFixture) -> None:
    """Log handlers may keep records, as this test's does: an error in their arguments would hold frames."""
    caplog.set_level(logging.DEBUG, "aioproducer")
    before = parts()
    with FakeCluster(brokers=1) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
        await producer.start()
        await producer.send("orders", b"value")
        cluster.stop_broker(1)
        delivery = producer.submit_nowait("orders", b"value")
        async with asyncio.timeout(10):
            while "no connection to" not in caplog.text:
                await asyncio.sleep(0.01)
        await producer.close(timeout=0)
        assert isinstance(delivery.exception(), KafkaError)
        del producer, delivery
    await asyncio.sleep(0)
    assert parts() == before


async def test_a_delivery_keeps_no_producer() -> None:
    """A program may keep its Deliveries; these must not hold connections and memory of a closed producer."""
    before = parts()
    with FakeCluster(brokers=1) as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            delivery = await producer.submit("orders", b"value")
        del producer
    await asyncio.sleep(0)
    assert parts() == before
    assert delivery.result().offset == 0


def test_logs_are_given_text() -> None:
    """Not errors, producers or connections: checks the plain variables in all calls of the package's loggers."""
    given = [
        f"{path.relative_to(PACKAGE)}:{call.lineno}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in LOGGERS
        for argument in call.args
        for name in bare_names(argument)
        if name in OBJECTS
    ]
    assert not given


def bare_names(expression: ast.expr) -> Iterator[str]:
    """The variables that an argument may evaluate to, without calls and attributes."""
    if isinstance(expression, ast.Name):
        yield expression.id
    elif isinstance(expression, (ast.BoolOp, ast.IfExp)):
        for part in ast.iter_child_nodes(expression):
            if isinstance(part, ast.expr):
                yield from bare_names(part)


def parts() -> set[object]:
    """The live engines, which hold memory, and clients, which hold connections, of all producers."""
    gc.collect()
    return {one for one in gc.get_objects() if type(one) in (Engine, NetworkClient)}


def open_descriptors() -> int:
    """The number of open files and sockets."""
    return len(list(Path("/dev/fd").iterdir()))
