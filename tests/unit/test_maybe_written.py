"""What the user learns about a failed record: the class of the error, and whether the record can be in the log.

The rows of the failure table in docs/guarantees.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.errors import (
    BufferExhaustedError,
    ClusterAuthorizationFailedError,
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    MessageTooLargeError,
    MetadataTimeoutError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    NotStartedError,
    ProducerClosedError,
    ProducerFailedError,
    RecordTooLargeError,
    RequestTimedOutError,
    SerializationError,
    TopicAuthorizationFailedError,
    UnknownServerError,
)
from aioproducer.testing import FakeCluster

PATIENCE_S = 30
VALUE = b"value"
HASTY: dict[str, Any] = {
    "request_timeout_ms": 100,
    "delivery_timeout_ms": 350,
    "linger_ms": 0,
    "retry_backoff_ms": 10,
    "reconnect_backoff_ms": 10,
}
ONCE: dict[str, Any] = {"enable_idempotence": False, "retries": 0}


@dataclass
class Row:
    """What goes wrong, and the expected error."""

    error: type[KafkaError]
    maybe_written: bool
    written: bool
    trouble: Callable[[FakeCluster], object]
    configs: dict[str, Any] = field(default_factory=dict)


ROWS: dict[str, Row] = {
    # nothing was sent
    "no connection": Row(DeliveryTimeoutError, False, False, lambda cluster: cluster.stop_broker(1)),
    "no leader": Row(
        DeliveryTimeoutError,
        False,
        False,
        lambda cluster: cluster.remove_leader("orders"),
        {"metadata_max_age_ms": 50},
    ),
    "throttled": Row(
        DeliveryTimeoutError,
        False,
        False,
        lambda cluster: (cluster.faults.throttle("Produce", 60_000, times=1), cluster.faults.throttle("Metadata", 1)),
    ),
    # a broker answered
    "refused for good": Row(
        TopicAuthorizationFailedError, False, False, lambda cluster: cluster.faults.fail("Produce", 29)
    ),
    "refused, no retries": Row(
        NotEnoughReplicasError, False, False, lambda cluster: cluster.faults.fail("Produce", 19), ONCE
    ),
    "refused again and again": Row(
        DeliveryTimeoutError, False, False, lambda cluster: cluster.faults.fail("Produce", 19, times=None)
    ),
    "the record refused": Row(InvalidRecordError, False, False, lambda cluster: cluster.faults.fail("Produce", 87)),
    "too large": Row(MessageTooLargeError, False, False, lambda cluster: cluster.faults.fail("Produce", 10)),
    "the producer refused": Row(
        ClusterAuthorizationFailedError, False, False, lambda cluster: cluster.faults.fail("Produce", 31)
    ),
    "the leader has moved, and refuses": Row(
        DeliveryTimeoutError, True, False, lambda cluster: cluster.faults.fail("Produce", 6, times=None)
    ),
    "the leader has moved after the append": Row(
        DeliveryTimeoutError, True, True, lambda cluster: cluster.faults.fail("Produce", 6, apply=True, times=None)
    ),
    "the leader has moved, no retries": Row(
        NotLeaderOrFollowerError, True, True, lambda cluster: cluster.faults.fail("Produce", 6, apply=True), ONCE
    ),
    "too few replicas after the append": Row(
        NotEnoughReplicasAfterAppendError,
        True,
        True,
        lambda cluster: cluster.faults.fail("Produce", 20, apply=True),
        ONCE,
    ),
    "too few replicas for ever": Row(
        DeliveryTimeoutError, True, True, lambda cluster: cluster.faults.fail("Produce", 20, apply=True, times=None)
    ),
    "replicas too slow": Row(
        RequestTimedOutError, True, True, lambda cluster: cluster.faults.fail("Produce", 7, apply=True), ONCE
    ),
    "an error without a code": Row(UnknownServerError, True, False, lambda cluster: cluster.faults.fail("Produce", -1)),
    # no answer came
    "connection lost before": Row(
        ConnectionLostError, True, False, lambda cluster: cluster.faults.drop("Produce", times=None), ONCE
    ),
    "connection lost after": Row(
        ConnectionLostError, True, True, lambda cluster: cluster.faults.drop("Produce", when="after", times=None), ONCE
    ),
    "connections lost for ever": Row(
        DeliveryTimeoutError, True, True, lambda cluster: cluster.faults.drop("Produce", when="after", times=None)
    ),
    "silence, nothing done": Row(
        RequestTimedOutError, True, False, lambda cluster: cluster.faults.swallow("Produce"), ONCE
    ),
    "silence for ever, all done": Row(
        DeliveryTimeoutError, True, True, lambda cluster: cluster.faults.swallow("Produce", when="after", times=None)
    ),
    "an answer late": Row(
        DeliveryTimeoutError,
        True,
        True,
        lambda cluster: cluster.faults.delay("Produce", 5_000, times=None),
        {"request_timeout_ms": 340},
    ),
    "nonsense": Row(ConnectionLostError, True, True, lambda cluster: cluster.faults.garble("Produce"), ONCE),
    "the answer to another request": Row(
        ConnectionLostError,
        True,
        True,
        lambda cluster: cluster.faults.garble("Produce", how="correlation_id"),
        ONCE,
    ),
    # an earlier attempt in doubt keeps the record in doubt
    "no answer, then refused": Row(
        TopicAuthorizationFailedError,
        True,
        True,
        lambda cluster: (cluster.faults.drop("Produce", when="after"), cluster.faults.fail("Produce", 29, skip=1)),
    ),
    "no answer, then too large": Row(
        MessageTooLargeError,
        True,
        True,
        lambda cluster: (cluster.faults.drop("Produce", when="after"), cluster.faults.fail("Produce", 10, skip=1)),
    ),
    "no answer, then refused again and again": Row(
        DeliveryTimeoutError,
        True,
        False,
        lambda cluster: (cluster.faults.drop("Produce"), cluster.faults.fail("Produce", 19, times=None)),
    ),
    "no answer, then no connection": Row(
        DeliveryTimeoutError,
        True,
        False,
        lambda cluster: (cluster.faults.drop("Produce"), cluster.faults.drop("ApiVersions", times=None)),
    ),
}


def producer_of(cluster: FakeCluster, **configs: Any) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, **{**HASTY, **configs})


async def error_of(awaited: Awaitable[object]) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        await asyncio.wait_for(awaited, PATIENCE_S)
    return caught.value


def used_bytes(producer: Producer) -> float:
    metrics = producer.metrics()["producer-metrics"]
    used: float = metrics["buffer-total-bytes"] - metrics["buffer-available-bytes"]
    return used


async def noticed(producer: Producer, name: str) -> None:
    """Wait until the producer notices what keeps it from sending; a request in flight would be in doubt."""
    async with asyncio.timeout(PATIENCE_S):
        if name == "throttled":
            await producer.send("audit", b"second")
        elif name == "no connection":
            while producer.metrics()["producer-metrics"]["connection-count"]:
                await asyncio.sleep(0.001)
        elif name == "no leader":
            while (await producer.partitions_for("orders"))[0].leader is not None:
                await asyncio.sleep(0.001)


@pytest.mark.parametrize("name", ROWS)
async def test_a_record_that_fails(name: str) -> None:
    """The error says what happened, and never that a written record is certainly absent; all memory is freed."""
    row = ROWS[name]
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("audit")
        producer = producer_of(cluster, **row.configs)
        await producer.start()
        await producer.send("audit", b"first")  # now it has a connection and a producer id
        await producer.partitions_for("orders")
        row.trouble(cluster)
        await noticed(producer, name)
        delivery = await producer.submit("orders", VALUE)
        error = await error_of(delivery)
        assert type(error) is row.error
        assert error.maybe_written is row.maybe_written
        assert [record.value for record in cluster.records("orders")] == [VALUE] * row.written
        assert "orders-0" in str(error)
        cluster.faults.clear()
        await asyncio.wait_for(producer.close(), PATIENCE_S)
        assert used_bytes(producer) == 0


@pytest.mark.parametrize("end", ["close", "task"])
async def test_a_record_that_the_producer_gives_up(end: str) -> None:
    """Records in flight when the producer was closed, or failed, may be written; queued ones are not."""
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        producer = producer_of(
            cluster,
            request_timeout_ms=10_000,
            delivery_timeout_ms=20_000,
            max_in_flight_requests_per_connection=1,
        )
        await producer.start()
        await producer.send("orders", b"first")
        swallowing = cluster.faults.swallow("Produce", when="after")
        in_flight = await producer.submit("orders", VALUE)
        async with asyncio.timeout(PATIENCE_S):
            while not swallowing.struck:
                await asyncio.sleep(0.001)
        queued = await producer.submit("orders", b"behind it")
        await asyncio.sleep(0)
        if end == "close":
            await producer.close(timeout=0)
        else:
            (sender,) = [task for task in asyncio.all_tasks() if task.get_name() == "aioproducer sender"]
            sender.cancel()
        for delivery, maybe_written in (in_flight, True), (queued, False):
            error = await error_of(delivery)
            assert type(error) is (ProducerClosedError if end == "close" else ProducerFailedError)
            assert error.maybe_written is maybe_written
        assert [record.value for record in cluster.records("orders")] == [b"first", VALUE]
        await producer.close()
        assert used_bytes(producer) == 0


async def test_a_commit_that_closing_cuts_short() -> None:
    """The coordinator may have committed, and the call can't be repeated."""
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        patience: dict[str, Any] = {"request_timeout_ms": 10_000, "delivery_timeout_ms": 20_000}
        producer = producer_of(cluster, transactional_id="name", **patience)
        await producer.start()
        await producer.begin_transaction()
        await producer.send("orders", VALUE)
        swallowing = cluster.faults.swallow("EndTxn", when="after")
        commit = asyncio.create_task(producer.commit_transaction())
        async with asyncio.timeout(PATIENCE_S):
            while not swallowing.struck:
                await asyncio.sleep(0.001)
        await producer.close(timeout=0)
        error = await error_of(commit)
        assert type(error) is ProducerClosedError
        assert error.maybe_written
        assert [record.value for record in cluster.records("orders", read_committed=True)] == [VALUE]


REFUSED: dict[str, tuple[type[KafkaError], Callable[[Producer], Any]]] = {
    "too large": (RecordTooLargeError, lambda producer: producer.submit("orders", bytes(2_000_000))),
    "no such partition": (MetadataTimeoutError, lambda producer: producer.submit("orders", VALUE, partition=7)),
    "no such topic": (MetadataTimeoutError, lambda producer: producer.submit("unknown", VALUE)),
    "no such name": (InvalidTopicError, lambda producer: producer.submit("?", VALUE)),
    "not bytes": (SerializationError, lambda producer: producer.submit("orders", 7)),
    "no memory": (BufferExhaustedError, lambda producer: producer.submit("orders", bytes(900_000))),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_record_that_is_not_admitted(name: str) -> None:
    """A call that raises before the record is in the buffer says that it was certainly not written."""
    kind, call = REFUSED[name]
    async with FakeCluster(1, auto_create_topics=False) as cluster:
        cluster.create_topic("orders")
        limits: dict[str, Any] = {"buffer_memory": 1_048_576, "max_block_ms": 300, "request_timeout_ms": 10_000}
        limits |= {"delivery_timeout_ms": 20_000, "max_in_flight_requests_per_connection": 1}
        async with producer_of(cluster, **limits) as producer:
            await producer.partitions_for("orders")
            if name == "no memory":
                cluster.faults.delay("Produce", 1_500)
                await producer.submit("orders", bytes(900_000))
            with pytest.raises(kind) as caught:
                await call(producer)
            assert not caught.value.maybe_written
        assert len(cluster.records("orders")) == (name == "no memory")
    for end in "before", "after":
        async with FakeCluster(1) as cluster:
            producer = producer_of(cluster)
            if end == "after":
                await producer.start()
                await producer.close()
            with pytest.raises(NotStartedError if end == "before" else ProducerClosedError) as refusal:
                await producer.submit("orders", VALUE)
            assert not refusal.value.maybe_written
