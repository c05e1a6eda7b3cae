"""One transactional id, several producers: the newest owns it, and a transaction that takes too long is aborted.

An id that is not used for long is forgotten, although its producer still lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from aioproducer import KafkaError, ProducerFencedError
from aioproducer.errors import InvalidProducerIdMappingError, TransactionalIdNotFoundError
from aioproducer.protocol.describe_transactions import DescribeTransactionsRequest, TransactionState
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic, producer_of
from tests.broker.readers import read_values, settled_ends

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

NOT_FOUND = TransactionalIdNotFoundError.code
EXPIRING = {
    "transactional.id.expiration.ms": 3_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
}


async def failure_of(call: Awaitable[object]) -> BaseException:
    (error,) = await asyncio.gather(call, return_exceptions=True)
    assert isinstance(error, BaseException)
    return error


def described(cluster: KafkaCluster, transactional_id: str) -> TransactionState:
    (told,) = cluster.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id])).transaction_states
    return told


async def timed_out(cluster: KafkaCluster, transactional_id: str) -> None:
    """Wait until the coordinator has aborted a transaction."""
    async with asyncio.timeout(PATIENCE_S):
        while (await asyncio.to_thread(described, cluster, transactional_id)).transaction_state != "CompleteAbort":
            await asyncio.sleep(0.05)


async def forgotten(cluster: KafkaCluster, transactional_id: str) -> None:
    """Wait until the coordinator knows a transactional id no more."""
    async with asyncio.timeout(PATIENCE_S):
        while (await asyncio.to_thread(described, cluster, transactional_id)).error_code != NOT_FOUND:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("point", ["ready", "open", "sent", "before commit"])
async def test_the_older_is_fenced(any_kafka: KafkaCluster, point: str) -> None:
    """Whatever the older is doing when the newer starts, its next and all later calls raise ProducerFencedError."""
    topic, name = await new_topic(any_kafka), new_name()
    older = producer_of(any_kafka, transactional_id=name)
    await older.start()
    if point != "ready":
        await older.begin_transaction()
    if point in ("sent", "before commit"):
        await older.send(topic, b"older")
    async with producer_of(any_kafka, transactional_id=name) as younger:
        async with younger.transaction():
            await younger.send(topic, b"younger")
        # Before 4.0, a broker that is just ending the transaction may report a wrong state instead of the old epoch.
        await asyncio.to_thread(settled_ends, any_kafka, topic, PATIENCE_S)

        async def go_on() -> None:
            if point == "ready":
                await older.begin_transaction()
            if point != "before commit":
                await older.send(topic, b"too late")
            await older.commit_transaction()

        with pytest.raises(ProducerFencedError) as caught:
            await go_on()
        assert caught.value.fatal
        assert caught.value.application_recoverable
        for call in (older.begin_transaction, older.commit_transaction, older.abort_transaction):
            with pytest.raises(ProducerFencedError):
                await call()
        with pytest.raises(ProducerFencedError):
            await older.send(topic, b"too late")
        await older.close()
        async with younger.transaction():
            await younger.send(topic, b"still there")
    assert await read_values(any_kafka, topic) == [b"younger", b"still there"]


async def test_the_older_is_at_work_while_the_younger_starts(any_kafka: KafkaCluster) -> None:
    """As in a rolling deployment: the younger gets the transactional id, and is not disturbed from then on.

    In some rounds an EndTxn of the older comes while the coordinator prepares to fence it. Kafka 4.3.1 answers it with
    UNKNOWN_SERVER_ERROR, and logs "IllegalStateException: Preparing transaction state transition to ONGOING while it
    already a pending state PREPARE_EPOCH_FENCE".
    """
    topic, name = await new_topic(any_kafka), new_name()

    async def works() -> None:
        async with producer_of(any_kafka, transactional_id=name) as older:
            while True:
                try:
                    async with older.transaction():
                        for _ in range(3):
                            await older.send(topic, b"older")
                            working.set()
                except KafkaError as error:
                    if error.fatal:
                        raise

    for _ in range(5):
        working = asyncio.Event()
        work = asyncio.create_task(works())
        await working.wait()
        async with producer_of(any_kafka, transactional_id=name) as younger:
            for number in range(3):
                async with younger.transaction():
                    await younger.send(topic, b"younger %d" % number)
            with pytest.raises(ProducerFencedError):
                await work
    values = [value for value in await read_values(any_kafka, topic) if value != b"older"]
    assert values == [b"younger %d" % number for number in range(3)] * 5


async def test_the_younger_may_be_idle(any_kafka: KafkaCluster) -> None:
    """It fences the older as soon as it has started."""
    topic, name = await new_topic(any_kafka), new_name()
    async with producer_of(any_kafka, transactional_id=name) as older:
        await older.begin_transaction()
        await older.send(topic, b"older")
        async with producer_of(any_kafka, transactional_id=name):
            with pytest.raises(ProducerFencedError):
                await older.commit_transaction()
    assert await read_values(any_kafka, topic) == []


@pytest.mark.parametrize("found_by", ["send", "commit"])
async def test_timed_out_by_the_coordinator(any_kafka: KafkaCluster, is_v2: bool, found_by: str) -> None:
    """With transactions V2 the producer aborts and continues; before, the coordinator fences it for good."""
    topic, name = await new_topic(any_kafka), new_name()
    async with producer_of(any_kafka, transactional_id=name, transaction_timeout_ms=1_000) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"too slow")
        await timed_out(any_kafka, name)
        error = await failure_of(producer.send(topic, b"late") if found_by == "send" else producer.commit_transaction())
        if is_v2:
            assert isinstance(error, KafkaError)
            assert error.abortable
            assert not error.fatal
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"again")
        else:
            assert isinstance(error, ProducerFencedError)
    assert await read_values(any_kafka, topic) == ([b"again"] if is_v2 else [])


async def test_abort_of_a_transaction_that_was_timed_out(any_kafka: KafkaCluster, is_v2: bool) -> None:
    """The abort succeeds, as the transaction is aborted already; before V2 the producer is fenced."""
    topic, name = await new_topic(any_kafka), new_name()
    async with producer_of(any_kafka, transactional_id=name, transaction_timeout_ms=1_000) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"too slow")
        await timed_out(any_kafka, name)
        if not is_v2:
            with pytest.raises(ProducerFencedError):
                await producer.abort_transaction()
            return
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"again")
    assert await read_values(any_kafka, topic) == [b"again"]


@pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.slow), 2])
async def test_a_producer_whose_id_was_forgotten(version: int) -> None:
    """InitProducerId under the id that it had gives it a new one, so it loses one transaction; a stranger is fenced."""
    name = new_name()
    with KafkaCluster(properties=EXPIRING, feature_versions={"transaction.version": version}) as kafka:
        topic = await new_topic(kafka)
        async with producer_of(kafka, transactional_id=name) as producer:
            async with producer.transaction():
                await producer.send(topic, b"before")
            await forgotten(kafka, name)
            with pytest.raises(InvalidProducerIdMappingError, match=name) as raised:
                async with producer.transaction():
                    await producer.submit(topic, b"lost")
            assert raised.value.abortable
            async with producer.transaction():
                await producer.send(topic, b"after")
            await forgotten(kafka, name)
            async with producer_of(kafka, transactional_id=name) as younger:
                with pytest.raises(ProducerFencedError):
                    async with producer.transaction():
                        await producer.submit(topic, b"fenced")
                async with younger.transaction():
                    await younger.send(topic, b"younger")
        assert await read_values(kafka, topic) == [b"before", b"after", b"younger"]
