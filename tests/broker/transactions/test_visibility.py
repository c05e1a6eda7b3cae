"""All or nothing: what another client's read_committed consumer sees of successful and failed transactions."""

from __future__ import annotations

import asyncio
import time

import pytest

from aioproducer import (
    ConsumerGroupMetadata,
    MetadataTimeoutError,
    Producer,
    RecordTooLargeError,
    TopicPartition,
    TransactionAbortedError,
    TransactionStateError,
)
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_name, new_topic, producer_of
from tests.broker.readers import read, read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


def transactional(cluster: KafkaCluster, transactional_id: str | None = None, **configs: object) -> Producer:
    return producer_of(cluster, transactional_id=transactional_id or new_name(), **configs)


async def test_committed_is_visible_aborted_is_not(any_kafka: KafkaCluster) -> None:
    """Over several partitions and transactions in a row, the records of all tasks included."""
    topic = await new_topic(any_kafka, partitions=3)
    async with transactional(any_kafka) as producer:
        for number in range(8):
            await producer.begin_transaction()
            await asyncio.gather(*(producer.send(topic, b"%d" % number, partition=each) for each in range(3)))
            producer.submit_nowait(topic, b"%d more" % number, partition=0)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
    found = await read(any_kafka, topic)
    assert [record.value for record in found[1]] == [b"0", b"2", b"4", b"6"]
    assert [record.value for record in found[2]] == [b"0", b"2", b"4", b"6"]
    both = [value for number in range(0, 8, 2) for value in (b"%d" % number, b"%d more" % number)]
    assert [record.value for record in found[0]] == both
    assert len((await read(any_kafka, topic, committed=False))[1]) == 8


async def test_open_is_not_visible(any_kafka: KafkaCluster) -> None:
    """Acknowledged records wait for the commit."""
    topic = await new_topic(any_kafka)
    async with transactional(any_kafka) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"soon")
        assert await read_values(any_kafka, topic) == []
        await producer.commit_transaction()
        assert await read_values(any_kafka, topic) == [b"soon"]


async def test_context_manager(any_kafka: KafkaCluster) -> None:
    """It commits at the end of its body, and aborts if that raises or is cancelled; the exception propagates."""
    topic = await new_topic(any_kafka)
    async with transactional(any_kafka) as producer:
        async with producer.transaction():
            await producer.submit(topic, b"committed")

        async def raises() -> None:
            async with producer.transaction():
                await producer.send(topic, b"raised")
                raise KeyError

        with pytest.raises(KeyError):
            await raises()
        inside = asyncio.Event()

        async def cancelled() -> None:
            async with producer.transaction():
                await producer.send(topic, b"cancelled")
                inside.set()
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(cancelled())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with producer.transaction():
            pass  # an empty transaction needs no request
        async with producer.transaction():
            await producer.send(topic, b"again")
    assert await read_values(any_kafka, topic) == [b"committed", b"again"]


async def test_a_failed_record_fails_the_commit(any_kafka: KafkaCluster) -> None:
    """Commit raises the plain error, nothing becomes visible, and after an abort the producer continues."""
    topic = await new_topic(any_kafka, partitions=2, max_message_bytes=1000)
    async with transactional(any_kafka) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"fine", partition=0)
        too_large = await producer.submit(topic, b"x" * 2000, partition=0)
        with pytest.raises(RecordTooLargeError) as caught:
            await producer.commit_transaction()
        assert caught.value.abortable  # type: ignore[attr-defined]
        with pytest.raises(TransactionAbortedError) as refused:
            await producer.send(topic, b"no more", partition=1)
        assert isinstance(refused.value.__cause__, RecordTooLargeError)
        with pytest.raises(RecordTooLargeError):
            await producer.begin_transaction()
        await producer.abort_transaction()
        assert isinstance(too_large.exception(), RecordTooLargeError)
        with pytest.raises(RecordTooLargeError):
            async with producer.transaction():
                await producer.submit(topic, b"x" * 2000, partition=1)
        async with producer.transaction():
            for partition in range(2):
                await producer.send(topic, b"good", partition=partition)
    found = await read(any_kafka, topic)
    assert [[record.value for record in found[each]] for each in range(2)] == [[b"good"], [b"good"]]


async def test_abort_of_what_was_not_sent(any_kafka: KafkaCluster) -> None:
    """Lingering records are dropped with TransactionAbortedError, which nobody has to observe."""
    topic = await new_topic(any_kafka)
    async with transactional(any_kafka, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        await producer.partitions_for(topic)
        await producer.begin_transaction()
        deliveries = [producer.submit_nowait(topic, b"x") for _ in range(100)]
        await producer.abort_transaction()
        assert {type(each.exception()) for each in deliveries[:50]} == {TransactionAbortedError}
        assert not any(each.exception().maybe_written for each in deliveries[:50])  # type: ignore[union-attr]
        del deliveries
        await producer.flush()
        async with producer.transaction():
            await producer.send(topic, b"next")
    assert await read_values(any_kafka, topic, committed=False) == [b"next"]


async def test_calls_out_of_turn(kafka_v2: KafkaCluster) -> None:
    """They raise at once and have no effect."""
    topic = await new_topic(kafka_v2)
    async with transactional(kafka_v2) as producer:
        for wrong in (producer.commit_transaction, producer.abort_transaction, producer.prepare_transaction):
            with pytest.raises(TransactionStateError):
                await wrong()
        with pytest.raises(TransactionStateError, match="begin_transaction"):
            await producer.send(topic, b"outside")
        with pytest.raises(TransactionStateError):
            producer.submit_nowait(topic, b"outside")
        await producer.begin_transaction()
        with pytest.raises(TransactionStateError):
            await producer.begin_transaction()
        await producer.send(topic, b"inside")
        await producer.commit_transaction()
        with pytest.raises(TransactionStateError):
            await producer.submit(topic, b"outside")
    assert await read_values(kafka_v2, topic) == [b"inside"]
    async with producer_of(kafka_v2) as plain:
        with pytest.raises(TransactionStateError, match="transactional_id"):
            await plain.begin_transaction()


async def test_a_record_that_waits_does_not_slip_into_the_next_transaction(kafka_v2: KafkaCluster) -> None:
    """The record waited for its topic's metadata while its transaction ended."""
    topic = await new_topic(kafka_v2)
    async with transactional(kafka_v2, max_block_ms=2_000) as producer:
        await producer.begin_transaction()
        late = asyncio.create_task(producer.send(topic, b"late", partition=7))
        await asyncio.sleep(0)
        await producer.commit_transaction()
        await producer.begin_transaction()
        await asyncio.to_thread(kafka_v2.add_partitions, topic, 8)
        with pytest.raises((TransactionStateError, MetadataTimeoutError)):
            await late
        await producer.commit_transaction()
    assert all(not records for records in (await read(kafka_v2, topic, committed=False)).values())


async def test_close_aborts_an_open_transaction(any_kafka: KafkaCluster) -> None:
    """It leaves nothing that blocks read_committed consumers."""
    topic = await new_topic(any_kafka)
    producer = transactional(any_kafka)
    await producer.start()
    await producer.begin_transaction()
    delivery = await producer.submit(topic, b"open")
    await producer.close()
    assert delivery.exception() is None
    assert await read_values(any_kafka, topic) == []
    ends = [await asyncio.to_thread(any_kafka.end_offsets, topic, committed=each) for each in (True, False)]
    assert ends[0] == ends[1] == {0: 2}, "the record and the end of its transaction"


async def test_a_cancelled_commit_goes_on(any_kafka: KafkaCluster) -> None:
    """The next call waits for it; the same call again returns its result."""
    topic = await new_topic(any_kafka)
    async with transactional(any_kafka) as producer:
        for number in range(2):
            await producer.begin_transaction()
            await producer.submit(topic, b"%d" % number)
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            if number:
                await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.abort_transaction()
    assert await read_values(any_kafka, topic) == [b"0", b"1"]


async def test_the_metrics_have_the_total_time_of_each_kind_of_call(kafka_v2: KafkaCluster) -> None:
    """The total time of each kind of call, under Kafka's names: no longer than all of this takes."""
    topic = await new_topic(kafka_v2)
    began_ns = time.monotonic_ns()
    async with transactional(kafka_v2) as producer:
        for committed in (True, False):
            await producer.begin_transaction()
            await producer.send(topic, b"x")
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, ConsumerGroupMetadata("group"))
            await (producer.commit_transaction() if committed else producer.abort_transaction())
        await producer.flush()
        told = producer.metrics()["producer-metrics"]
        longest_ns = time.monotonic_ns() - began_ns + 1_000_000  # they are counted in milliseconds
        times = {name: told[name] for name in told if name.endswith("-time-ns-total")}
        for call in ("init", "send-offsets", "commit", "abort"):
            assert 0 < times[f"txn-{call}-time-ns-total"] < longest_ns
        for name in ("txn-begin-time-ns-total", "flush-time-ns-total", "metadata-wait-time-ns-total"):
            assert 0 <= times[name] < longest_ns
