"""Creating, starting, closing and dropping a producer, and using it too early, too late or from elsewhere."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import textwrap
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from aioproducer import (
    AlreadyStartedError,
    BootstrapError,
    DeliveryErrors,
    NotStartedError,
    Producer,
    ProducerClosedError,
    ProducerState,
    WrongLoopError,
)
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_topic, producer_of, until
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

LONG_LINGER: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}

CALLS: dict[str, Callable[[Producer], Awaitable[object] | object]] = {
    "send": lambda producer: producer.send("topic", b"value"),
    "submit": lambda producer: producer.submit("topic", b"value"),
    "submit_nowait": lambda producer: producer.submit_nowait("topic", b"value"),
    "ready": lambda producer: producer.ready(),
    "flush": lambda producer: producer.flush(),
    "partitions_for": lambda producer: producer.partitions_for("topic"),
}
OF_A_RECORD = ("send", "submit", "submit_nowait")


async def run(call: Callable[[Producer], Awaitable[object] | object], producer: Producer) -> None:
    """Make one of the calls, of any kind."""
    result = call(producer)
    if isinstance(result, Awaitable):
        await result


def sockets() -> set[str]:
    """The open sockets of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


linux_only = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts sockets in /proc")


# --- making one -------------------------------------------------------------------------------------------------------

at_module_level = Producer(bootstrap_servers="localhost:1", client_id="at-module-level")


async def test_a_producer_can_be_made_without_a_loop_and_used_in_one(kafka: KafkaCluster) -> None:
    made: list[Producer] = []
    threading.Thread(target=lambda: made.append(producer_of(kafka))).start()
    await until(lambda: made, "the producer was made where no loop runs")
    async with made[0] as producer:
        assert (await producer.send(await new_topic(kafka), b"value")).offset == 0
    with pytest.raises(NotStartedError):
        await at_module_level.send("topic", b"value")


async def test_from_config_takes_javas_dotted_names_and_strings(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    producer = Producer.from_config(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "acks": "all",
            "linger.ms": "0",
            "compression.type": "gzip",
            "enable.idempotence": "true",
            "value.serializer": "org.apache.kafka.common.serialization.LongSerializer",
        }
    )
    async with producer:
        await producer.send(topic, 7)
    assert await read_values(kafka, topic) == [(7).to_bytes(8, "big")]


async def test_from_properties_reads_a_file_of_a_java_producer(
    kafka: KafkaCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await new_topic(kafka, 3)
    path = tmp_path / "producer.properties"
    path.write_text(
        textwrap.dedent(
            f"""\
            # a comment
            bootstrap.servers = {kafka.bootstrap_servers}
            key.serializer=org.apache.kafka.common.serialization.StringSerializer
            value.serializer: org.apache.kafka.common.serialization.StringSerializer
            partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner
            compression.type=\\
                lz4
            metric.reporters=com.example.Reporter
            auto.include.jmx.reporter=true
            """
        )
    )
    with caplog.at_level(logging.INFO, logger="aioproducer"):
        producer = Producer.from_properties(path)
    assert "metric.reporters" in caplog.text
    async with producer:
        found = [await producer.send(topic, "wärt", key="k") for _ in range(3)]
    assert {one.partition for one in found} == {0, 1, 2}
    assert (await read_values(kafka, topic)) == ["wärt".encode()]


# --- starting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
async def test_before_start_every_call_says_so(kafka: KafkaCluster, call: str) -> None:
    producer = producer_of(kafka)
    with pytest.raises(NotStartedError, match="start"):
        await run(CALLS[call], producer)
    await producer.close()


async def test_a_second_start_is_an_error_and_changes_nothing(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka) as producer:
        with pytest.raises(AlreadyStartedError):
            await producer.start()
        await producer.send(topic, b"value")


async def test_two_starts_at_once_start_once(kafka: KafkaCluster) -> None:
    producer = producer_of(kafka)
    results = await asyncio.gather(producer.start(), producer.start(), return_exceptions=True)
    assert [type(one) for one in results] == [type(None), AlreadyStartedError]
    await producer.send(await new_topic(kafka), b"value")
    await producer.close()


def closed_port() -> int:
    """A loopback port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """A server that accepts connections and never answers; yields its port."""
    connected = 0

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connected
        connected += 1
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        connected -= 1

    async with await asyncio.start_server(ignore, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        await until(lambda: not connected, "the producer has given the connection up")


async def test_bootstrap_error_lists_every_address_with_its_cause() -> None:
    async with silent_server() as silent:
        refused = closed_port()
        producer = Producer(
            bootstrap_servers=f"127.0.0.1:{refused},127.0.0.1:{silent},no-such-host.invalid:9092",
            max_block_ms=20_000,
            request_timeout_ms=100,
        )
        with pytest.raises(BootstrapError) as caught:
            await producer.start()
        await producer.close()
    assert isinstance(caught.value, TimeoutError)
    assert [address for address, _ in caught.value.failures] == [
        f"127.0.0.1:{refused}",
        f"127.0.0.1:{silent}",
        "no-such-host.invalid:9092",
    ]
    text = str(caught.value)
    assert f"127.0.0.1:{refused}" in text
    assert "not ready within 100 ms (request_timeout_ms)" in text  # the silent one
    assert "no-such-host.invalid:9092" in text


async def test_start_takes_at_most_max_block_ms() -> None:
    async with silent_server() as first, silent_server() as second:
        producer = Producer(bootstrap_servers=f"127.0.0.1:{first},127.0.0.1:{second}", max_block_ms=300)
        began = time.monotonic()
        with pytest.raises(BootstrapError, match=str(first)):
            await producer.start()
        assert time.monotonic() - began < 5 * 0.3
        await producer.close()


async def test_an_address_that_does_not_answer_is_passed_over(kafka: KafkaCluster) -> None:
    """The broker behind it may be silent too, if it is held up for a moment."""
    async with silent_server() as silent, asyncio.timeout(PATIENCE_S):
        servers = [f"127.0.0.1:{closed_port()}", f"127.0.0.1:{silent}", kafka.bootstrap_servers]
        producer = Producer(bootstrap_servers=servers, request_timeout_ms=200)
        while producer.health().state is ProducerState.NEW:
            with suppress(BootstrapError):
                await producer.start()
        await producer.send(await new_topic(kafka), b"value")
        await producer.close()


async def test_start_again_after_a_failed_start(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    port = closed_port()
    producer = Producer(bootstrap_servers=f"127.0.0.1:{port}", max_block_ms=5_000)
    with pytest.raises(BootstrapError):
        await producer.start()
    with pytest.raises(NotStartedError):
        await producer.send(topic, b"value")
    async with forwarder(port, kafka.bootstrap_servers):
        await producer.start()
        await producer.send(topic, b"value")
        await producer.close()
    assert await read_values(kafka, topic) == [b"value"]


@asynccontextmanager
async def forwarder(port: int, target: str) -> AsyncIterator[None]:
    """Listens on a port and forwards everything to a broker and back."""
    host, target_port = target.split(":")
    pumps: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        pumps.add(task)
        to_reader, to_writer = await asyncio.open_connection(host, int(target_port))
        await asyncio.gather(pump(reader, to_writer), pump(to_reader, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", port):
        yield
        if pumps:
            await asyncio.wait(pumps, timeout=PATIENCE_S)


async def test_a_cancelled_start_leaves_nothing_and_can_be_repeated(kafka: KafkaCluster) -> None:
    async with silent_server() as silent:
        producer = Producer(bootstrap_servers=[f"127.0.0.1:{silent}", kafka.bootstrap_servers])
        starting = asyncio.create_task(producer.start())
        done, _ = await asyncio.wait([starting], timeout=0.05)
        assert not done
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    await producer.start()
    await producer.send(await new_topic(kafka), b"value")
    await producer.close()


# --- closing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
async def test_after_close_every_call_says_so(kafka: KafkaCluster, call: str) -> None:
    producer = producer_of(kafka)
    await producer.start()
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await run(CALLS[call], producer)
    with pytest.raises(ProducerClosedError):
        await producer.start()


async def test_a_producer_that_never_started_can_be_closed(kafka: KafkaCluster) -> None:
    producer = producer_of(kafka)
    await producer.close()
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await producer.start()


async def test_close_cuts_linger_and_waits_for_everything(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 3)
    producer = producer_of(kafka, **LONG_LINGER)
    await producer.start()
    deliveries = [await producer.submit(topic, b"%d" % i, partition=i % 3) for i in range(300)]
    await asyncio.wait_for(producer.close(), 5)
    assert [delivery.result().offset for delivery in deliveries] == [i // 3 for i in range(300)]


async def test_close_without_acks_lets_everything_leave(kafka: KafkaCluster) -> None:
    """With acks=0 a record has ended once it is in the transport's buffer; that buffer is still sent."""
    topic = await new_topic(kafka)
    values = [bytes([i]) * 900_000 for i in range(40)]
    async with producer_of(kafka, acks=0, buffer_memory=64 << 20) as producer:
        for value in values:
            await producer.submit(topic, value)
    async with asyncio.timeout(PATIENCE_S):
        while (await asyncio.to_thread(kafka.end_offsets, topic))[0] < len(values):
            await asyncio.sleep(0.01)
    assert await read_values(kafka, topic) == values


async def test_close_is_idempotent_also_at_the_same_time(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    producer = producer_of(kafka, **LONG_LINGER)
    await producer.start()
    delivery = await producer.submit(topic, b"value")
    await asyncio.gather(*(producer.close() for _ in range(5)))
    await producer.close()
    await producer.close(timeout=0)
    assert delivery.result().offset == 0


@linux_only
async def test_close_ends_every_task_and_socket(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    sockets_before, tasks_before = sockets(), asyncio.all_tasks()
    producer = producer_of(kafka, compression_type="gzip")
    await producer.start()
    await producer.send(topic, b"value" * 100_000)
    assert sockets() - sockets_before
    assert asyncio.all_tasks() - tasks_before
    await producer.close()
    assert not asyncio.all_tasks() - tasks_before
    assert not sockets() - sockets_before


async def test_close_with_a_timeout_fails_what_is_left(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    failed: list[object] = []
    producer = producer_of(
        fragile_kafka,
        max_in_flight_requests_per_connection=1,
        on_error=lambda error, records: failed.append(error),
    )
    await producer.start()
    await producer.send(topic, b"warm")
    fragile_kafka.pause(1)
    on_the_wire = await producer.submit(topic, b"on the wire")
    await until(lambda: producer.metrics()["producer-metrics"]["requests-in-flight"] > 0, "the request is on the wire")
    waiting = await producer.submit(topic, b"waiting")
    sending = asyncio.create_task(producer.send("another-topic", b"waits for metadata"))
    await asyncio.sleep(0)
    began = time.monotonic()
    await producer.close(timeout=0.3)
    assert 0.29 <= time.monotonic() - began < 5 * 0.3
    for delivery, maybe_written in ((on_the_wire, True), (waiting, False)):
        error = delivery.exception()
        assert type(error) is ProducerClosedError
        assert error.maybe_written is maybe_written
        assert topic in str(error)
    with pytest.raises(ProducerClosedError):
        await sending
    assert not failed  # what the caller itself did is not an unobserved failure


async def test_records_that_close_failed_are_not_unobserved(
    fragile_kafka: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await new_topic(fragile_kafka)
    failed: list[object] = []
    producer = producer_of(fragile_kafka, on_error=lambda error, records: failed.append(error))
    await producer.start()
    await producer.send(topic, b"warm")
    fragile_kafka.pause(1)
    for _ in range(10):
        await producer.submit(topic, b"nobody looks")
    await producer.close(timeout=0)
    gc.collect()
    await asyncio.sleep(0)
    assert not failed


async def test_a_cancelled_close_ends_as_close_0_would(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    producer = producer_of(fragile_kafka)
    await producer.start()
    await producer.send(topic, b"warm")
    fragile_kafka.pause(1)
    delivery = await producer.submit(topic, b"value")
    closing = asyncio.create_task(producer.close())
    done, _ = await asyncio.wait([closing], timeout=0.05)
    assert not done
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(closing, 5)
    assert isinstance(delivery.exception(), ProducerClosedError)
    await asyncio.wait_for(producer.close(), 5)


async def test_wait_for_bounds_close(fragile_kafka: KafkaCluster) -> None:
    topic = await new_topic(fragile_kafka)
    producer = producer_of(fragile_kafka)
    await producer.start()
    await producer.send(topic, b"warm")
    fragile_kafka.pause(1)
    delivery = await producer.submit(topic, b"value")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(producer.close(), 0.1)
    assert isinstance(delivery.exception(), ProducerClosedError)
    await asyncio.wait_for(producer.close(), 5)


async def test_aexit_never_replaces_the_bodys_exception(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, max_message_bytes=1_000)

    async def fail() -> None:
        async with producer_of(kafka) as producer:
            await producer.submit(topic, bytes(2_000))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        await fail()
    assert any("1 records were not delivered" in note for note in caught.value.__notes__)


async def test_aexit_raises_what_nobody_looked_at(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, max_message_bytes=1_000)
    with pytest.raises(DeliveryErrors) as caught:
        async with producer_of(kafka) as producer:
            await producer.submit(topic, bytes(2_000))
    assert caught.value.record_count == 1
    with pytest.raises(ProducerClosedError):
        await producer.flush()


async def test_close_while_start_is_under_way(kafka: KafkaCluster) -> None:
    async with silent_server() as silent:
        producer = Producer(bootstrap_servers=[f"127.0.0.1:{silent}", kafka.bootstrap_servers], request_timeout_ms=300)
        starting = asyncio.create_task(producer.start())
        done, _ = await asyncio.wait([starting], timeout=0.05)
        assert not done
        await asyncio.wait_for(producer.close(), 5)
        with pytest.raises(ProducerClosedError):
            await asyncio.wait_for(starting, 5)
        with pytest.raises(ProducerClosedError):
            await producer.send("topic", b"value")


async def test_the_body_of_async_with_can_close(kafka: KafkaCluster) -> None:
    async with producer_of(kafka) as producer:
        await producer.send(await new_topic(kafka), b"value")
        await producer.close()


async def test_calls_that_wait_end_when_the_producer_is_closed(strict_kafka: KafkaCluster) -> None:
    producer = producer_of(strict_kafka)
    await producer.start()
    waiting = [
        asyncio.create_task(run(CALLS["submit"], producer)),
        asyncio.create_task(run(CALLS["partitions_for"], producer)),
    ]
    await asyncio.sleep(0)
    await producer.close()
    for task in waiting:
        with pytest.raises(ProducerClosedError):
            await asyncio.wait_for(task, 5)


# --- dropped ----------------------------------------------------------------------------------------------------------


@linux_only
async def test_a_producer_dropped_unclosed_warns_and_leaves_nothing(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    sockets_before, tasks_before = sockets(), asyncio.all_tasks()
    producer = producer_of(kafka)
    await producer.start()
    await producer.send(topic, b"value")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del producer
        gc.collect()
    assert [one.category for one in caught] == [ResourceWarning]
    assert "never closed" in str(caught[0].message)
    await until(lambda: not asyncio.all_tasks() - tasks_before, "its tasks have ended")
    await until(lambda: not sockets() - sockets_before, "its sockets are closed")


async def test_no_warning_for_a_producer_that_never_started_or_was_closed(kafka: KafkaCluster) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        producer = producer_of(kafka)
        del producer
        async with producer_of(kafka) as producer:
            pass
        del producer
        gc.collect()
    assert not caught


# --- from elsewhere ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS)
async def test_another_thread_is_told_what_to_do_instead(kafka: KafkaCluster, call: str) -> None:
    remedy = "call_soon_threadsafe" if call in OF_A_RECORD else "use it from coroutines and callbacks of that loop"
    async with producer_of(kafka) as producer:
        await producer.partitions_for("topic")

        def elsewhere() -> None:
            asyncio.run(run(CALLS[call], producer))

        with pytest.raises(WrongLoopError, match=remedy):
            await asyncio.to_thread(elsewhere)


async def test_a_plain_thread_can_not_submit(kafka: KafkaCluster) -> None:
    async with producer_of(kafka) as producer:
        await producer.partitions_for("topic")
        with pytest.raises(WrongLoopError, match="call_soon_threadsafe"):
            await asyncio.to_thread(producer.submit_nowait, "topic", b"value")


@pytest.mark.parametrize("call", CALLS)
def test_another_loop_of_the_same_thread_is_refused(kafka: KafkaCluster, call: str) -> None:
    async def start() -> Producer:
        producer = producer_of(kafka)
        await producer.start()
        await producer.partitions_for("topic")
        return producer

    with asyncio.Runner() as first, asyncio.Runner() as second:
        producer = first.run(start())
        with pytest.raises(WrongLoopError, match="another event loop"):
            second.run(run(CALLS[call], producer))
        first.run(producer.close())


def test_a_delivery_can_not_be_awaited_in_another_loop(kafka: KafkaCluster) -> None:
    async def start() -> tuple[Producer, Any]:
        producer = producer_of(kafka, **LONG_LINGER)
        await producer.start()
        return producer, await producer.submit("topic", b"value")

    async def wait(delivery: Any) -> None:
        await delivery

    with asyncio.Runner() as first, asyncio.Runner() as second:
        producer, delivery = first.run(start())
        with pytest.raises(WrongLoopError, match="another event loop"):
            second.run(wait(delivery))
        first.run(producer.close())
        second.run(wait(delivery))  # it is done, so there is nothing to wait for


def test_a_producer_whose_loop_has_ended_can_only_be_closed(kafka: KafkaCluster) -> None:
    async def start() -> Producer:
        producer = producer_of(kafka)
        await producer.start()
        return producer

    async def use(producer: Producer) -> None:
        with pytest.raises(ProducerClosedError, match="event loop"):
            await producer.send("topic", b"value")
        await producer.close()
        with pytest.raises(ProducerClosedError, match="was closed"):
            await producer.send("topic", b"value")

    producer = asyncio.run(start())
    asyncio.run(use(producer))
