"""Two-phase commit: a transaction prepared by one process is ended by another one, once, however often it tries."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from aioproducer import (
    KafkaError,
    PreparedTransaction,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    transactions,
)
from aioproducer.cli.app import app
from aioproducer.testing import KafkaCluster
from aioproducer.transactions import TransactionOutcome
from tests.broker.fixtures import new_name, new_topic, producer_of
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

COMMIT = """
import asyncio, pickle, sys
from aioproducer import transactions
prepared = pickle.loads(sys.stdin.buffer.read())
asyncio.run(transactions.commit(prepared, bootstrap_servers=sys.argv[1]))
"""


async def prepared_by(cluster: KafkaCluster, name: str, topic: str, value: bytes = b"x") -> PreparedTransaction:
    """Prepare a transaction, and close its producer."""
    async with producer_of(cluster, transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.submit(topic, value)
        return await producer.prepare_transaction()


async def test_another_process_commits(any_kafka: KafkaCluster, is_v2: bool) -> None:
    """Closing the producer has not aborted it; commit may be repeated, but abort comes too late."""
    topic, name, servers = await new_topic(any_kafka), new_name(), any_kafka.bootstrap_servers
    prepared = await prepared_by(any_kafka, name, topic)
    assert (prepared.transactional_id, prepared.is_empty) == (name, False)
    assert prepared.transaction_version == (2 if is_v2 else 1)
    assert await read_values(any_kafka, topic) == []
    assert await transactions.outcome(prepared, bootstrap_servers=servers) is TransactionOutcome.OPEN
    program = [sys.executable, "-c", COMMIT, servers]
    await asyncio.to_thread(subprocess.run, program, input=pickle.dumps(prepared), check=True, timeout=120)
    assert await read_values(any_kafka, topic) == [b"x"]
    for _ in range(2):
        await transactions.commit(prepared, bootstrap_servers=servers)
    assert await transactions.outcome(prepared, bootstrap_servers=servers) is TransactionOutcome.COMMITTED
    with pytest.raises(TransactionStateError):
        await transactions.abort(prepared, bootstrap_servers=servers)
    assert await read_values(any_kafka, topic) == [b"x"]


async def test_an_abort_may_be_repeated_but_a_commit_comes_too_late(any_kafka: KafkaCluster) -> None:
    """Abort may be repeated, but commit comes too late."""
    topic, name, servers = await new_topic(any_kafka), new_name(), any_kafka.bootstrap_servers
    prepared = await prepared_by(any_kafka, name, topic)
    for _ in range(3):
        await transactions.abort(prepared, bootstrap_servers=servers)
    with pytest.raises(TransactionAbortedError):
        await transactions.commit(prepared, bootstrap_servers=servers)
    assert await transactions.outcome(prepared, bootstrap_servers=servers) is TransactionOutcome.ABORTED
    assert await read_values(any_kafka, topic) == []


@pytest.mark.parametrize("committed", [True, False])
async def test_the_producer_goes_on(any_kafka: KafkaCluster, committed: bool) -> None:
    """It may end its prepared transaction itself; ending that again from outside does not affect its next one."""
    topic, name, servers = await new_topic(any_kafka), new_name(), any_kafka.bootstrap_servers
    async with producer_of(any_kafka, transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"first")
        prepared = await producer.prepare_transaction()
        with pytest.raises(TransactionStateError):
            await producer.send(topic, b"no")
        await (producer.commit_transaction() if committed else producer.abort_transaction())
        await producer.begin_transaction()
        await producer.send(topic, b"second")
        for call in (transactions.commit, transactions.abort):
            with pytest.raises(TransactionOutcomeUnknownError) as raised:
                await call(prepared, bootstrap_servers=servers)
            assert raised.value.maybe_written
        assert await transactions.outcome(prepared, bootstrap_servers=servers) is TransactionOutcome.UNKNOWN
        await producer.abort_transaction()
    assert await read_values(any_kafka, topic) == ([b"first"] if committed else [])


async def test_the_producer_aborts_what_another_process_has_committed(any_kafka: KafkaCluster) -> None:
    """With transactions V2 there is a new epoch either way; that must not be taken for an abort."""
    topic, servers = await new_topic(any_kafka), any_kafka.bootstrap_servers
    async with producer_of(any_kafka, transactional_id=new_name()) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"x")
        prepared = await producer.prepare_transaction()
        await transactions.commit(prepared, bootstrap_servers=servers)
        with pytest.raises(KafkaError) as raised:
            await producer.abort_transaction()
        assert raised.value.fatal
        assert raised.value.maybe_written
    assert await read_values(any_kafka, topic) == [b"x"]


async def test_the_producer_aborts_what_another_process_has_aborted(kafka_v2: KafkaCluster) -> None:
    """The producer continues."""
    topic, servers = await new_topic(kafka_v2), kafka_v2.bootstrap_servers
    async with producer_of(kafka_v2, transactional_id=new_name()) as producer:
        await producer.begin_transaction()
        await producer.send(topic, b"first")
        prepared = await producer.prepare_transaction()
        await transactions.abort(prepared, bootstrap_servers=servers)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"second")
    assert await read_values(kafka_v2, topic) == [b"second"]


async def test_a_newer_producer_has_aborted_it(any_kafka: KafkaCluster) -> None:
    """Until another transaction begins, that is known; afterwards the error says that it is not."""
    topic, name, servers = await new_topic(any_kafka), new_name(), any_kafka.bootstrap_servers
    prepared = await prepared_by(any_kafka, name, topic)
    async with producer_of(any_kafka, transactional_id=name) as newer:
        with pytest.raises((TransactionAbortedError, TransactionOutcomeUnknownError)):
            await transactions.commit(prepared, bootstrap_servers=servers)
        async with newer.transaction():
            await newer.send(topic, b"newer")
        with pytest.raises(TransactionOutcomeUnknownError, match=name):
            await transactions.commit(prepared, bootstrap_servers=servers)
    assert await read_values(any_kafka, topic) == [b"newer"]


async def test_nothing_written(any_kafka: KafkaCluster) -> None:
    """An empty transaction can be committed and aborted at will."""
    servers = any_kafka.bootstrap_servers
    async with producer_of(any_kafka, transactional_id=new_name()) as producer:
        await producer.begin_transaction()
        prepared = await producer.prepare_transaction()
        assert prepared.is_empty
        await transactions.commit(prepared, bootstrap_servers=servers)
        await transactions.abort(prepared, bootstrap_servers=servers)
        assert await transactions.outcome(prepared, bootstrap_servers=servers) is TransactionOutcome.EMPTY
        await producer.commit_transaction()


async def test_lingering_ones(any_kafka: KafkaCluster) -> None:
    """They are listed by prefix, described, and aborted, except those to be kept, whose owners can be fenced."""
    topic, prefix, servers = await new_topic(any_kafka), f"{new_name()}-sink-", any_kafka.bootstrap_servers
    kept = await prepared_by(any_kafka, f"{prefix}0", topic, b"kept")
    lost = await prepared_by(any_kafka, f"{prefix}1", topic, b"lost")
    async with (
        producer_of(any_kafka, transactional_id=f"{prefix}2") as alive,
        transactions.TransactionClient(bootstrap_servers=servers) as client,
    ):
        await alive.begin_transaction()
        await alive.send(topic, b"alive")
        found = await client.list_transactions(prefix, states=["Ongoing"])
        assert [each.transactional_id for each in found] == [f"{prefix}{number}" for number in range(3)]
        told = await client.describe(f"{prefix}1")
        assert told is not None
        assert (told.state, told.epoch, told.partitions) == ("Ongoing", lost.epoch, ((topic, 0),))
        assert told.started_ms == lost.started_ms
        assert await client.describe(f"{prefix}-never") is None
        aborted = await client.abort_transactions(prefix, keep=[kept])
        assert [each.transactional_id for each in aborted] == [f"{prefix}1", f"{prefix}2"]
        with pytest.raises(ProducerFencedError):
            await alive.commit_transaction()
        await client.commit(kept)
        assert await client.abort_transactions(prefix) == []
    assert await read_values(any_kafka, topic) == [b"kept"]


async def test_the_command(kafka_v2: KafkaCluster) -> None:
    """``aioproducer transactions list`` and ``abort``."""
    topic, prefix = await new_topic(kafka_v2), f"{new_name()}-cli-"
    await prepared_by(kafka_v2, f"{prefix}1", topic)
    await prepared_by(kafka_v2, f"{prefix}2", topic)

    def run(*arguments: str, answer: str | None = None) -> str:
        command = ["transactions", *arguments, "--prefix", prefix, "--bootstrap", kafka_v2.bootstrap_servers]
        result = CliRunner().invoke(app, command, input=answer)
        return f"{result.exit_code}\n{result.output}"

    listed = await asyncio.to_thread(run, "list")
    assert listed.startswith("0\n")
    assert all(word in listed for word in (f"{prefix}1", f"{prefix}2", "Ongoing", f"{topic}-0", "60 s"))
    assert (await asyncio.to_thread(run, "abort", answer="n\n")).startswith("2\n")
    assert "aborted 1\n" in await asyncio.to_thread(run, "abort", "--yes", "--keep", f"{prefix}2")
    assert "aborted 1\n" in await asyncio.to_thread(run, "abort", answer="y\n")
    assert "no open transaction" in await asyncio.to_thread(run, "abort", "--yes")
    assert "Ongoing" not in await asyncio.to_thread(run, "list")
