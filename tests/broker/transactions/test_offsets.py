"""Offsets as part of a transaction: they count if it is committed, and a member that has left its group is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from aioproducer import (
    ConsumerGroupMetadata,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
    TransactionStateError,
)
from aioproducer.consumers import aiokafka_group, aiokafka_positions, confluent_group, confluent_positions
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic, producer_of
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


async def committed(cluster: KafkaCluster, group: str, topic: str) -> list[int]:
    """The offsets at which a group would begin; -1001 for none."""

    def ask() -> list[int]:
        # A read_committed consumer would have to wait while offsets of the group are in an open transaction.
        configs = {"bootstrap.servers": cluster.bootstrap_servers, "isolation.level": "read_uncommitted"}
        consumer = Consumer({"group.id": group, **configs})
        try:
            asked = [ConfluentPartition(topic, partition) for partition in cluster.end_offsets(topic)]
            return [each.offset for each in consumer.committed(asked, timeout=PATIENCE_S)]
        finally:
            consumer.close()

    return await asyncio.to_thread(ask)


async def committed_are(cluster: KafkaCluster, group: str, topic: str, expected: list[int]) -> None:
    """Wait until a group would begin there; EndTxn is answered before the group's coordinator learns of the commit."""
    async with asyncio.timeout(PATIENCE_S):
        while await committed(cluster, group, topic) != expected:
            await asyncio.sleep(0.05)


@asynccontextmanager
async def confluent_member(cluster: KafkaCluster, group: str, topic: str, **configs: object) -> AsyncIterator[Consumer]:
    """A group member that has been assigned partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **configs,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        await asyncio.to_thread(consumer.close)


@asynccontextmanager
async def aiokafka_member(
    cluster: KafkaCluster, group: str, topic: str, **configs: object
) -> AsyncIterator[AIOKafkaConsumer]:
    """A group member that has been assigned partitions."""
    configs = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **configs}
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **configs)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def consume(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(values) < count:
            messages = await asyncio.to_thread(consumer.consume, count - len(values), 0.1)
            values += [message.value() for message in messages]
    return values


async def filled(cluster: KafkaCluster, count: int = 10) -> str:
    topic = await new_topic(cluster, partitions=2)
    async with producer_of(cluster) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % 2)
    return topic


async def test_they_count_with_the_commit(any_kafka: KafkaCluster) -> None:
    """They don't count before it, or after an abort."""
    source, target, group = await filled(any_kafka), await new_topic(any_kafka), new_name()
    metadata = ConsumerGroupMetadata(group)
    async with producer_of(any_kafka, transactional_id=new_name()) as producer:
        await producer.begin_transaction()
        await producer.send(target, b"x")
        await producer.send_offsets_to_transaction(
            {TopicPartition(source, 0): 3, TopicPartition(source, 1): OffsetAndMetadata(4, "note", 0)}, metadata
        )
        assert await committed(any_kafka, group, source) == [-1001, -1001]
        await producer.commit_transaction()
        await committed_are(any_kafka, group, source, [3, 4])
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({TopicPartition(source, 0): 5}, metadata)
        await producer.abort_transaction()
        await committed_are(any_kafka, group, source, [3, 4])
        async with producer.transaction():  # a transaction of offsets alone
            await producer.send_offsets_to_transaction({TopicPartition(source, 0): 5}, metadata)
        await committed_are(any_kafka, group, source, [5, 4])


async def test_with_a_confluent_consumer(any_kafka: KafkaCluster) -> None:
    """The adapter provides positions and membership, also of a static member."""
    source, target, group = await filled(any_kafka), await new_topic(any_kafka), new_name()
    async with (
        confluent_member(any_kafka, group, source, **{"group.instance.id": "static-1"}) as consumer,
        producer_of(any_kafka, transactional_id=new_name()) as producer,
    ):
        values = await consume(consumer, 10)
        metadata = confluent_group(consumer)
        assert (metadata.group_id, metadata.group_instance_id) == (group, "static-1")
        assert metadata.generation_id > 0
        assert metadata.member_id
        async with producer.transaction():
            for value in values:
                await producer.submit(target, value)
            await producer.send_offsets_to_transaction(confluent_positions(consumer), metadata)
    await committed_are(any_kafka, group, source, [5, 5])
    assert sorted(await read_values(any_kafka, target)) == sorted(values)


async def test_with_a_confluent_consumer_of_a_group_whose_broker_assigns(kafka_v2: KafkaCluster) -> None:
    """KIP-848: its epoch stands for the generation, and a member that has left is refused as well."""
    source, target, group = await filled(kafka_v2), await new_topic(kafka_v2), new_name()
    async with producer_of(kafka_v2, transactional_id=new_name()) as producer:
        async with confluent_member(kafka_v2, group, source, **{"group.protocol": "consumer"}) as consumer:
            values = await consume(consumer, 10)
            positions, metadata = confluent_positions(consumer), confluent_group(consumer)
            assert metadata.generation_id > 0
            async with producer.transaction():
                for value in values:
                    await producer.submit(target, value)
                await producer.send_offsets_to_transaction(positions, metadata)
        await producer.begin_transaction()
        with pytest.raises(KafkaError) as caught:
            await producer.send_offsets_to_transaction({TopicPartition(source, 0): 1}, metadata)
        assert caught.value.abortable
        assert caught.value.application_recoverable
        await producer.abort_transaction()
    await committed_are(kafka_v2, group, source, [5, 5])
    assert sorted(await read_values(kafka_v2, target)) == sorted(values)


async def test_with_an_aiokafka_consumer(kafka_v2: KafkaCluster) -> None:
    source, target, group = await filled(kafka_v2), await new_topic(kafka_v2), new_name()
    async with (
        aiokafka_member(kafka_v2, group, source) as consumer,
        producer_of(kafka_v2, transactional_id=new_name()) as producer,
        producer.transaction(),
    ):
        for _ in range(10):
            async with asyncio.timeout(PATIENCE_S):
                record = await consumer.getone()
            positions, metadata = aiokafka_positions(consumer), aiokafka_group(consumer)
            await producer.submit(target, record.value)
        assert metadata.group_id == group
        assert metadata.generation_id > 0
        await producer.send_offsets_to_transaction(positions, metadata)
    await committed_are(kafka_v2, group, source, [5, 5])


async def test_a_member_that_has_left_is_refused(any_kafka: KafkaCluster) -> None:
    """Its offsets make the transaction abortable, its records stay invisible, and an abort lets the producer go on."""
    source, target, group = await filled(any_kafka), await new_topic(any_kafka), new_name()
    async with producer_of(any_kafka, transactional_id=new_name()) as producer:
        async with confluent_member(any_kafka, group, source) as consumer:
            await consume(consumer, 10)
            positions, metadata = confluent_positions(consumer), confluent_group(consumer)
        await producer.begin_transaction()
        await producer.send(target, b"zombie")
        with pytest.raises(KafkaError) as caught:
            await producer.send_offsets_to_transaction(positions, metadata)
        assert caught.value.abortable
        assert not caught.value.fatal
        with pytest.raises(type(caught.value)):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert await committed(any_kafka, group, source) == [-1001, -1001]
        async with producer.transaction():
            await producer.send(target, b"again")
            await producer.send_offsets_to_transaction(positions, ConsumerGroupMetadata(group))
    await committed_are(any_kafka, group, source, [5, 5])
    assert await read_values(any_kafka, target) == [b"again"]


async def test_an_aiokafka_consumer_that_was_removed_is_refused(any_kafka: KafkaCluster) -> None:
    """It has no member id any more, and its offsets don't pass for those of a consumer outside of the group."""
    source, target, group = await filled(any_kafka), await new_topic(any_kafka), new_name()
    async with (
        aiokafka_member(any_kafka, group, source) as consumer,
        producer_of(any_kafka, transactional_id=new_name()) as producer,
    ):
        async with asyncio.timeout(PATIENCE_S):
            await consumer.getone()
        consumer._coordinator.reset_generation()  # as after UNKNOWN_MEMBER_ID; it has its partitions a moment longer
        positions, metadata = aiokafka_positions(consumer), aiokafka_group(consumer)
        assert positions
        await producer.begin_transaction()
        await producer.submit(target, b"zombie")
        with pytest.raises(KafkaError) as caught:
            await producer.send_offsets_to_transaction(positions, metadata)
        assert caught.value.abortable
        assert caught.value.application_recoverable
        await producer.abort_transaction()
    assert await committed(any_kafka, group, source) == [-1001, -1001]


async def test_an_aiokafka_consumer_that_commits_by_itself(kafka_v2: KafkaCluster) -> None:
    """As it does by default: the records of an aborted transaction would count as consumed."""
    async with aiokafka_member(kafka_v2, new_name(), await filled(kafka_v2), enable_auto_commit=True) as consumer:
        with pytest.raises(ValueError, match="enable_auto_commit=False"):
            aiokafka_group(consumer)


async def test_wrong_arguments(kafka_v2: KafkaCluster) -> None:
    """They raise at once and leave the transaction as it was; outside of one, all are refused."""
    group = ConsumerGroupMetadata(new_name())
    where = TopicPartition("anything", 0)
    async with producer_of(kafka_v2, transactional_id=new_name()) as producer:
        with pytest.raises(TransactionStateError):
            await producer.send_offsets_to_transaction({where: 1}, group)
        async with producer.transaction():
            with pytest.raises(ValueError, match="anything-0"):
                await producer.send_offsets_to_transaction({where: -1}, group)
            with pytest.raises(TypeError, match="str"):
                await producer.send_offsets_to_transaction({where: "1"}, group)  # type: ignore[dict-item]
            with pytest.raises(TypeError, match="ConsumerGroupMetadata"):
                await producer.send_offsets_to_transaction({where: 1}, "group")  # type: ignore[arg-type]
            await producer.send_offsets_to_transaction({}, group)


async def test_a_partition_that_is_not_there(any_kafka: KafkaCluster) -> None:
    """It may be created later, so its offset is retried; an abort ends that, and the producer continues."""
    topic, group = await filled(any_kafka), ConsumerGroupMetadata(new_name())
    async with producer_of(any_kafka, transactional_id=new_name()) as producer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), producer.transaction():
                await producer.send_offsets_to_transaction({TopicPartition(topic, 99): 1}, group)
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, group)
    await committed_are(any_kafka, group.group_id, topic, [1, -1001])


async def test_a_cancelled_call_goes_on(kafka_v2: KafkaCluster) -> None:
    """A following commit waits for it."""
    source, group = await filled(kafka_v2), new_name()
    async with producer_of(kafka_v2, transactional_id=new_name()) as producer:
        await producer.begin_transaction()
        call = asyncio.create_task(send_three(producer, source, group))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await producer.commit_transaction()
    await committed_are(kafka_v2, group, source, [3, -1001])


async def send_three(producer: Producer, topic: str, group: str) -> None:
    await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 3}, ConsumerGroupMetadata(group))
