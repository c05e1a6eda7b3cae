"""What a user may not do: the error names the resource, and concerns nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from aioproducer import Producer
from aioproducer.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    ProducerFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic
from tests.broker.load import outcome
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


def bob(cluster: KafkaCluster, **configs: Any) -> Producer:
    return Producer(**cluster.client_configs("SASL_PLAINTEXT", user="bob", mechanism="PLAIN"), **configs)


async def test_a_topic_that_may_not_be_seen(secure_kafka: KafkaCluster) -> None:
    """Its send fails, at once; those to another topic go on."""
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
    """The broker refuses the batches of that topic alone, and takes them again once it may."""
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
        await producer.send(allowed, b"2")
    assert await read_values(secure_kafka, forbidden) == [b"yes"]
    assert await read_values(secure_kafka, allowed) == [b"1", b"2"]


async def test_a_cluster_that_gives_no_producer_id(secure_kafka: KafkaCluster) -> None:
    """Who may write nowhere may have no producer id: that is the end of this producer, and it says why."""
    async with bob(secure_kafka) as producer:
        topic = await new_topic(secure_kafka)
        secure_kafka.allow("bob", "DESCRIBE", topic=topic)
        failure: KafkaError | None = None
        try:
            await producer.send(topic, b"no")
        except KafkaError as error:
            failure = error
        assert isinstance(failure, (ProducerFailedError, TopicAuthorizationFailedError))
        if isinstance(failure, ProducerFailedError):
            assert isinstance(failure.__cause__, ClusterAuthorizationFailedError)


async def test_a_transactional_id_that_may_not_be_used(secure_kafka: KafkaCluster) -> None:
    """start() says which one; that nobody may use it concerns no other producer."""
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


async def test_a_topic_in_a_transaction(secure_kafka: KafkaCluster) -> None:
    """The transaction can only be aborted, the error names the topic, and the next transaction goes through."""
    forbidden, allowed = await new_topic(secure_kafka), await new_topic(secure_kafka)
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", topic=allowed)
    secure_kafka.allow("bob", "DESCRIBE", topic=forbidden)
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", transactional_id="bobs-second")
    async with bob(secure_kafka, transactional_id="bobs-second") as producer:
        await producer.begin_transaction()
        await producer.submit(allowed, b"no")
        with pytest.raises(TopicAuthorizationFailedError, match=forbidden):
            await producer.send(forbidden, b"no")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.submit(allowed, b"yes")
    assert await read_values(secure_kafka, allowed) == [b"yes"]
