"""Transactions with old brokers, none of which can run here: in the API versions that these support."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from aioproducer import (
    ConsumerGroupMetadata,
    DeliveryTimeoutError,
    Producer,
    ProducerFencedError,
    RecordTooLargeError,
    TopicPartition,
    TransactionAbortedError,
)
from aioproducer.errors import (
    InvalidProducerIdMappingError,
    OutOfOrderSequenceNumberError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnsupportedVersionError,
)
from aioproducer.testing import FakeCluster

MEMBER = ConsumerGroupMetadata("group", 1, "member")


@pytest.fixture(params=["2.8", "2.1", "0.11"])
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    with FakeCluster(version=request.param) as running:
        running.create_topic("topic", configs={"max.message.bytes": 1_000})
        running.create_topic("source")
        running.set_group("group", 1, {"member": None})
        yield running


@pytest.fixture
def since_2_5(request: pytest.FixtureRequest) -> bool:
    """Whether the brokers are of 2.5 or newer."""
    return "2.8" in request.node.callspec.id


@asynccontextmanager
async def producer_of(cluster: FakeCluster) -> AsyncIterator[Producer]:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="name") as producer:
        yield producer


def values(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("topic", read_committed=True)]


async def test_records_that_wait_in_vain_for_their_coordinator_say_so(cluster: FakeCluster) -> None:
    """It has to add their partition before they can be sent."""
    loading = cluster.faults.fail("AddPartitionsToTxn", 14, times=None)
    async with Producer(
        bootstrap_servers=cluster.bootstrap_servers,
        transactional_id="name",
        linger_ms=0,
        request_timeout_ms=300,
        delivery_timeout_ms=300,
    ) as producer:
        await producer.begin_transaction()
        with pytest.raises(DeliveryTimeoutError, match="COORDINATOR_LOAD_IN_PROGRESS to AddPartitionsToTxn for trans"):
            await producer.send("topic", b"value")
        loading.cancel()
        await producer.abort_transaction()


async def test_committed_is_visible_aborted_is_not(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as producer:
        for number in range(4):
            await producer.begin_transaction()
            await producer.send("topic", b"%d" % number)
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
    assert values(cluster) == [b"0", b"2"]


async def test_offsets_count_with_the_commit(cluster: FakeCluster) -> None:
    """With only the group's name, as these brokers support it, and without fencing."""
    async with producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({TopicPartition("source", 0): 3}, ConsumerGroupMetadata("group"))
        await producer.abort_transaction()
        assert not cluster.committed_offsets("group")
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition("source", 0): 5}, ConsumerGroupMetadata("group"))
    assert [each.offset for each in cluster.committed_offsets("group").values()] == [5]


async def test_the_membership_needs_kafka_2_5(cluster: FakeCluster, since_2_5: bool) -> None:
    """Without it the requested fencing is impossible: the transaction fails, and says why."""
    offsets = {TopicPartition("source", 0): 3}
    async with producer_of(cluster) as producer:
        await producer.begin_transaction()
        if since_2_5:
            await producer.send_offsets_to_transaction(offsets, MEMBER)
            await producer.commit_transaction()
        else:
            with pytest.raises(UnsupportedVersionError, match=r"need Kafka 2\.5 or newer") as caught:
                await producer.send_offsets_to_transaction(offsets, MEMBER)
            assert caught.value.abortable
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("group"))
    assert [each.offset for each in cluster.committed_offsets("group").values()] == [3]


async def test_the_older_is_fenced(cluster: FakeCluster) -> None:
    async with producer_of(cluster) as older:
        await older.begin_transaction()
        await older.send("topic", b"older")
        async with producer_of(cluster) as younger:
            async with younger.transaction():
                await younger.send("topic", b"younger")
            with pytest.raises(ProducerFencedError):
                await older.commit_transaction()
    assert values(cluster) == [b"younger"]


async def test_after_a_record_that_was_refused(cluster: FakeCluster) -> None:
    """It is certainly not in the log, so the next record gets its sequence, and an abort lets the producer go on."""
    async with producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("topic", b"before")
        with pytest.raises(RecordTooLargeError):
            await producer.send("topic", bytes(2_000))
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("topic", b"after")
    assert values(cluster) == [b"after"]


async def test_after_a_record_in_doubt(cluster: FakeCluster, since_2_5: bool) -> None:
    """Its sequence may be used, so a new epoch is needed, which only Kafka 2.5 or newer gives to a running producer."""
    async with producer_of(cluster) as producer:
        await producer.begin_transaction()
        await producer.send("topic", b"before")
        cluster.faults.fail("Produce", "UNKNOWN_SERVER_ERROR", times=1)
        with pytest.raises(UnknownServerError):
            await producer.send("topic", b"in doubt")
        await producer.abort_transaction()
        if since_2_5:
            async with producer.transaction():
                await producer.send("topic", b"after")
        else:
            with pytest.raises(UnsupportedVersionError, match="close it and make a new one") as caught:
                await producer.begin_transaction()
            assert caught.value.fatal
    async with producer_of(cluster) as successor, successor.transaction():
        await successor.send("topic", b"successor")
    assert values(cluster) == ([b"after"] if since_2_5 else []) + [b"successor"]


async def test_after_a_log_that_lost_the_last_batches(cluster: FakeCluster, since_2_5: bool) -> None:
    """One transaction fails at the sequences that its leader does not expect; then a new epoch starts them at 0."""
    async with producer_of(cluster) as producer:
        async with producer.transaction():
            await producer.send("topic", b"lost")
        cluster.delete_topic("topic")
        cluster.create_topic("topic")
        await producer.begin_transaction()
        cluster.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1)
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send("topic", b"refused")
        await producer.abort_transaction()  # its marker makes the producer known here, at no sequence

        with pytest.raises(OutOfOrderSequenceNumberError) as caught:
            async with producer.transaction():
                await producer.send("topic", b"out of order")
        assert not caught.value.fatal
        if since_2_5:
            async with producer.transaction():
                await producer.send("topic", b"after")
        else:
            with pytest.raises(UnsupportedVersionError, match="close it and make a new one"):
                await producer.begin_transaction()
    async with producer_of(cluster) as successor, successor.transaction():
        await successor.send("topic", b"successor")
    assert values(cluster) == ([b"after"] if since_2_5 else []) + [b"successor"]


async def test_after_a_week_without_a_transaction(cluster: FakeCluster, since_2_5: bool) -> None:
    """The coordinator has forgotten the transactional id: one transaction is lost, the next has a new producer id."""
    positions = {TopicPartition("source", 0): 3}
    async with producer_of(cluster) as producer:
        async with producer.transaction():
            await producer.send("topic", b"before")
        cluster.forget_transactional_id("name")
        await producer.begin_transaction()
        record, offsets = await asyncio.gather(
            producer.send("topic", b"lost"),
            producer.send_offsets_to_transaction(positions, ConsumerGroupMetadata("group")),
            return_exceptions=True,
        )
        assert isinstance(offsets, InvalidProducerIdMappingError)
        assert (offsets.abortable, offsets.fatal) == (since_2_5, not since_2_5)
        if since_2_5:
            assert isinstance(record, TransactionAbortedError)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send("topic", b"after")
        else:
            assert isinstance(record, InvalidProducerIdMappingError)
    async with producer_of(cluster) as successor, successor.transaction():
        await successor.send("topic", b"successor")
    assert values(cluster) == [b"before"] + ([b"after"] if since_2_5 else []) + [b"successor"]
    assert not cluster.committed_offsets("group")
