"""What a user is not authorized to do: the error names the resource, and nothing else is affected."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer import ConsumerGroupMetadata, Producer, TopicPartition, TransactionAbortedError
from aioproducer.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_name, new_topic
from tests.broker.load import outcome
from tests.broker.readers import read_values
from tests.broker.transactions.test_offsets import committed_are

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


def bob(cluster: KafkaCluster, **configs: Any) -> Producer:
    return Producer(**cluster.client_configs("SASL_PLAINTEXT", user="bob", mechanism="PLAIN"), **configs)


async def test_a_topic_that_may_not_be_seen(secure_kafka: KafkaCluster) -> None:
    """A send to it fails at once; those to other topics go on."""
    forbidden, allowed = await new_topic(secure_kafka), await new_topic(secure_kafka)
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", topic=allowed)
    async with bob(secure_kafka) as producer:
        await producer.send(allowed, b"1")
        with pytest.raises(TopicAuthorizationFailedError, match=forbidden) as caught:
            await producer.send(forbidden, b"no")
        assert not caught.value.maybe_written
        await producer.send(allowed, b"2")
    assert await read_values(secure_kafka, allowed) == [b"1", b"2"]


async def test_a_topic_that_may_be_seen_but_not_written(secure_kafka: KafkaCluster) -> None:
    """The broker refuses only the batches of that topic, and accepts them once the user may write to it."""
    forbidden, allowed = await new_topic(secure_kafka), await new_topic(secure_kafka)
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", topic=allowed)
    secure_kafka.allow("bob", "DESCRIBE", topic=forbidden)
    async with bob(secure_kafka, linger_ms=20) as producer:
        await producer.partitions_for(allowed)
        await producer.partitions_for(forbidden)
        good = await producer.submit(allowed, b"1")
        bad = await producer.submit(forbidden, b"no")
        error = await outcome(bad)
        assert isinstance(error, TopicAuthorizationFailedError)
        assert f"{forbidden}-0" in str(error)
        assert not error.maybe_written
        await good
        secure_kafka.allow("bob", "WRITE", topic=forbidden)
        await producer.send(forbidden, b"yes")
        secure_kafka.disallow("bob", "WRITE", topic=forbidden)
        with pytest.raises(TopicAuthorizationFailedError, match=forbidden):
            await producer.send(forbidden, b"no more")
        await producer.send(allowed, b"2")
    assert await read_values(secure_kafka, forbidden) == [b"yes"]
    assert await read_values(secure_kafka, allowed) == [b"1", b"2"]


async def test_a_cluster_that_gives_no_producer_id(secure_kafka: KafkaCluster) -> None:
    """A user who may not write to any topic gets no producer id: records fail, until it is granted."""
    async with bob(secure_kafka) as producer:
        topic = await new_topic(secure_kafka)
        secure_kafka.allow("bob", "DESCRIBE", topic=topic)
        failure: KafkaError | None = None
        try:
            await producer.send(topic, b"no")
        except KafkaError as error:
            failure = error
        assert isinstance(failure, (ClusterAuthorizationFailedError, TopicAuthorizationFailedError))
        secure_kafka.allow("bob", "WRITE", topic=topic)
        await producer.send(topic, b"yes")
    assert await read_values(secure_kafka, topic) == [b"yes"]


async def test_a_transactional_id_that_may_not_be_used(secure_kafka: KafkaCluster) -> None:
    """start() says which one; other producers are not affected."""
    topic = await new_topic(secure_kafka)
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", topic=topic)
    producer = bob(secure_kafka, transactional_id="bobs-forbidden", max_block_ms=10_000)
    with pytest.raises(KafkaError) as caught:
        await producer.start()
    await producer.close()
    causes = [caught.value, caught.value.__cause__]
    assert any(isinstance(each, TransactionalIdAuthorizationFailedError) for each in causes)
    assert "bobs-forbidden" in str(caught.value)
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", transactional_id="bobs-own")
    async with bob(secure_kafka, transactional_id="bobs-own") as allowed, allowed.transaction():
        await allowed.submit(topic, b"1")
    assert await read_values(secure_kafka, topic) == [b"1"]


@pytest.mark.parametrize("broker", ["secure_kafka", "secure_kafka_v1"])
async def test_a_topic_in_a_transaction(request: pytest.FixtureRequest, broker: str) -> None:
    """The transaction can only be aborted, the error names the topic, and the next transaction goes through."""
    secure_kafka: KafkaCluster = request.getfixturevalue(broker)
    forbidden, allowed = await new_topic(secure_kafka), await new_topic(secure_kafka)
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", topic=allowed)
    secure_kafka.allow("bob", "DESCRIBE", topic=forbidden)
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", transactional_id="bobs-second")
    async with bob(secure_kafka, transactional_id="bobs-second") as producer:
        await producer.begin_transaction()
        await producer.submit(allowed, b"no")
        # With V1 the coordinator refuses the topic, before any of its records is sent.
        with pytest.raises((TopicAuthorizationFailedError, TransactionAbortedError), match=forbidden):
            await producer.send(forbidden, b"no")
        with pytest.raises(TopicAuthorizationFailedError, match=forbidden):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.submit(allowed, b"yes")
    assert await read_values(secure_kafka, allowed) == [b"yes"]


@pytest.mark.parametrize("seen", [False, True])
async def test_a_group_whose_offsets_may_not_be_committed(secure_kafka: KafkaCluster, seen: bool) -> None:
    """The error names the group and ends only this transaction; once READ is allowed, its offsets are accepted."""
    topic, group = await new_topic(secure_kafka), new_name()
    secure_kafka.allow("bob", "READ", "WRITE", "DESCRIBE", topic=topic)
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", transactional_id="bobs-third")
    if seen:
        secure_kafka.allow("bob", "DESCRIBE", group=group)
    offsets, membership = {TopicPartition(topic, 0): 5}, ConsumerGroupMetadata(group)
    async with bob(secure_kafka, transactional_id="bobs-third") as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"no")
        with pytest.raises(GroupAuthorizationFailedError, match=group) as caught:
            await producer.send_offsets_to_transaction(offsets, membership)
        assert caught.value.abortable
        assert not caught.value.fatal
        with pytest.raises(GroupAuthorizationFailedError, match=group):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"without offsets")
        secure_kafka.allow("bob", "READ", group=group)
        async with producer.transaction():
            await producer.send(topic, b"with offsets")
            await producer.send_offsets_to_transaction(offsets, membership)
    assert await read_values(secure_kafka, topic) == [b"without offsets", b"with offsets"]
    await committed_are(secure_kafka, group, topic, [5])


async def test_a_topic_whose_offsets_may_not_be_committed(secure_kafka: KafkaCluster) -> None:
    """The error names the topic, and ends only this transaction."""
    topic, source, group = await new_topic(secure_kafka), await new_topic(secure_kafka), new_name()
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", topic=topic)
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", transactional_id="bobs-fourth")
    secure_kafka.allow("bob", "READ", group=group)
    offsets, membership = {TopicPartition(source, 0): 5}, ConsumerGroupMetadata(group)
    async with bob(secure_kafka, transactional_id="bobs-fourth") as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"no")
        with pytest.raises(TopicAuthorizationFailedError, match=source) as caught:
            await producer.send_offsets_to_transaction(offsets, membership)
        assert caught.value.abortable
        await producer.abort_transaction()
        secure_kafka.allow("bob", "READ", topic=source)
        async with producer.transaction():
            await producer.send(topic, b"yes")
            await producer.send_offsets_to_transaction(offsets, membership)
    assert await read_values(secure_kafka, topic) == [b"yes"]
    await committed_are(secure_kafka, group, source, [5])
