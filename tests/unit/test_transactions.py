"""Errors of calls that end a transaction from outside its producer say whether its records may be visible."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioproducer import (
    ConfigError,
    KafkaError,
    PreparedTransaction,
    Producer,
    ProducerClosedError,
    ProducerFailedError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    TransactionTimeoutError,
    transactions,
)
from aioproducer.testing import FakeCluster
from aioproducer.transactions import TransactionClient
from tests.unit.waiting import turns, until

Ending = Callable[..., Awaitable[None]]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as running:
        running.create_topic("topic")
        yield running


async def prepared(cluster: FakeCluster) -> PreparedTransaction:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="name") as producer:
        await producer.begin_transaction()
        await producer.send("topic", b"value")
        return await producer.prepare_transaction()


@asynccontextmanager
async def hurried_client(cluster: FakeCluster, max_block_ms: int = 50) -> AsyncIterator[TransactionClient]:
    """A client whose max_block_ms is short once it has started."""
    async with TransactionClient(bootstrap_servers=cluster.bootstrap_servers) as client:
        client._config = dataclasses.replace(client._config, max_block_ms=max_block_ms)
        yield client


@pytest.mark.parametrize("call", [TransactionClient.commit, TransactionClient.abort])
async def test_an_end_that_is_not_answered(cluster: FakeCluster, call: Ending) -> None:
    """The commit may have succeeded, by this call or by another owner of the prepared transaction."""
    one = await prepared(cluster)
    cluster.faults.swallow("EndTxn", times=None)
    async with hurried_client(cluster) as client:
        with pytest.raises(TransactionTimeoutError) as raised:
            await call(client, one)
    assert raised.value.maybe_written


async def test_a_question_that_is_not_answered(cluster: FakeCluster) -> None:
    """A query changes nothing."""
    one = await prepared(cluster)
    cluster.faults.swallow("DescribeTransactions", times=None)
    async with hurried_client(cluster) as client:
        with pytest.raises(TransactionTimeoutError) as raised:
            await client.outcome(one)
    assert not raised.value.maybe_written


async def test_a_time_limit_tells_the_last_error_of_its_own_call(cluster: FakeCluster) -> None:
    cluster.faults.fail("DescribeTransactions", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
    cluster.faults.fail("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
    async with hurried_client(cluster, 1000) as client:  # time enough for an answer
        ends = await asyncio.gather(client.describe("one"), client.fence("other"), return_exceptions=True)
    for end, request in zip(
        ends,
        ("DescribeTransactions for transactional id 'one'", "InitProducerId for transactional id 'other'"),
        strict=True,
    ):
        assert isinstance(end, TransactionTimeoutError)
        assert f"COORDINATOR_LOAD_IN_PROGRESS to {request}" in str(end)
        assert str(end.__cause__) in str(end)


async def test_a_time_limit_before_any_error(cluster: FakeCluster) -> None:
    cluster.faults.swallow("DescribeTransactions", times=None)
    async with hurried_client(cluster) as client:
        with pytest.raises(
            TransactionTimeoutError, match=r"^description of 'one' had not ended after max_block_ms=50$"
        ):
            await client.describe("one")


@pytest.mark.parametrize("call", [transactions.commit, transactions.abort])
async def test_an_outcome_that_is_not_known_any_more(cluster: FakeCluster, call: Ending) -> None:
    one = PreparedTransaction("forgotten by the cluster", 4000, 0, started_ms=1)
    with pytest.raises(TransactionOutcomeUnknownError) as raised:
        await call(one, bootstrap_servers=cluster.bootstrap_servers)
    assert raised.value.maybe_written


async def test_an_abort_of_what_was_committed(cluster: FakeCluster) -> None:
    one = await prepared(cluster)
    await transactions.commit(one, bootstrap_servers=cluster.bootstrap_servers)
    with pytest.raises(TransactionStateError, match="it was committed") as raised:
        await transactions.abort(one, bootstrap_servers=cluster.bootstrap_servers)
    assert raised.value.maybe_written


@pytest.fixture(params=["4.3", "3.9", "2.8"])
def any_cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    """Of 3.9, before transactions V2; of 2.8, whose brokers can't describe transactions."""
    with FakeCluster(1, version=request.param) as running:
        running.create_topic("topic")
        yield running


@pytest.mark.parametrize("commits_first", [True, False])
async def test_the_second_end_does_not_change_the_first(any_cluster: FakeCluster, commits_first: bool) -> None:
    servers = {"bootstrap_servers": any_cluster.bootstrap_servers}
    one = await prepared(any_cluster)
    first, second = transactions.commit, transactions.abort
    told: type[KafkaError] = TransactionStateError
    if not commits_first:
        first, second, told = transactions.abort, transactions.commit, TransactionAbortedError
    await first(one, **servers)
    await first(one, **servers)
    with pytest.raises(told):
        await second(one, **servers)
    assert len(any_cluster.records("topic", read_committed=True)) == commits_first


async def test_a_commit_and_an_abort_at_the_same_time(any_cluster: FakeCluster) -> None:
    """Both find it open, one ends it: the other tells how it has ended."""
    one = await prepared(any_cluster)
    async with hurried_client(any_cluster, 10_000) as committing, hurried_client(any_cluster, 10_000) as aborting:
        ends = await asyncio.gather(committing.commit(one), aborting.abort(one), return_exceptions=True)
    committed = len(any_cluster.records("topic", read_committed=True)) == 1
    assert [type(end) for end in ends] == (
        [type(None), TransactionStateError] if committed else [TransactionAbortedError, type(None)]
    )


async def test_a_state_that_no_broker_knows_is_refused() -> None:
    """An empty list would mean that there are no hanging transactions."""
    with FakeCluster(2) as cluster:
        async with TransactionClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            with pytest.raises(ConfigError, match="no broker knows the states 'ongoing', 'open'"):
                await client.list_transactions(states=["Ongoing", "open", "ongoing"])
            assert await client.list_transactions(states=["Ongoing"]) == []


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"])
async def test_a_coordinator_that_is_loading_or_not_up_yet_is_asked_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """Its list would lack transactions."""
    monkeypatch.setattr(transactions, "LOOK_AGAIN_S", 0.001)
    one = await prepared(cluster)
    fault = cluster.faults.fail("ListTransactions", error, times=2)
    (listed,) = await transactions.list_transactions(bootstrap_servers=cluster.bootstrap_servers)
    assert (listed.transactional_id, listed.state) == (one.transactional_id, "Ongoing")
    assert not fault.active


async def test_a_broker_that_leaves_the_cluster_while_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one has taken over its ids, maybe after it had answered: so all are asked again."""
    monkeypatch.setattr(transactions, "LOOK_AGAIN_S", 0.001)
    with FakeCluster(2) as cluster:
        cluster.create_topic("topic")
        cluster.move_coordinator("name", 2)
        await prepared(cluster)
        first = cluster.faults.delay("ListTransactions", 1, node=1)
        second = cluster.faults.swallow("ListTransactions", node=2)
        async with TransactionClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            asking = asyncio.create_task(client.list_transactions())
            await until(lambda: first.struck and second.struck)
            cluster.stop_broker(2)
            (listed,) = await asking
    assert (listed.transactional_id, listed.state, listed.coordinator) == ("name", "Ongoing", 1)


async def test_a_list_that_is_refused_says_by_whom(cluster: FakeCluster) -> None:
    cluster.faults.fail("ListTransactions", "CLUSTER_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaError, match="node 1 answered CLUSTER_AUTHORIZATION_FAILED to ListTransactions"):
        await transactions.list_transactions(bootstrap_servers=cluster.bootstrap_servers)


async def test_one_str_is_no_collection_of_names(cluster: FakeCluster) -> None:
    """Its letters would count as names, and the transaction that it names would be aborted."""
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="name") as producer:
        await producer.begin_transaction()
        await producer.send("topic", b"value")
        async with TransactionClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            with pytest.raises(TypeError, match=r"keep is the str 'name'; .* such as \['name'\]"):
                await client.abort_transactions("", keep="name")
            with pytest.raises(TypeError, match=r"states is the str 'Ongoing'; .* such as \['Ongoing'\]"):
                await client.list_transactions(states="Ongoing")
        with pytest.raises(TypeError, match=r"transactional_ids is the str 'name'; .* such as \['name'\]"):
            await transactions.describe_transactions("name", bootstrap_servers=cluster.bootstrap_servers)
        await producer.commit_transaction()


async def ended(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait until there are no other tasks than these."""
    async with asyncio.timeout(10):
        while asyncio.all_tasks() - tasks:
            await asyncio.sleep(0.001)


async def test_a_list_that_fails_asks_nobody_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each call would leave one that asks for as long as the client is open."""
    monkeypatch.setattr(transactions, "LOOK_AGAIN_S", 0.001)
    with FakeCluster(2) as cluster:
        cluster.faults.fail("ListTransactions", "CLUSTER_AUTHORIZATION_FAILED", node=1)
        cluster.faults.fail("ListTransactions", "COORDINATOR_LOAD_IN_PROGRESS", node=2, times=None)
        async with TransactionClient(bootstrap_servers=cluster.bootstrap_servers) as client:
            with pytest.raises(KafkaError, match="node 1 answered CLUSTER_AUTHORIZATION_FAILED"):
                await client.list_transactions()
            await turns()
            assert not [task for task in asyncio.all_tasks() if "_list_at" in repr(task)]


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_close_of_the_client_that_is_cancelled_leaves_nothing(cluster: FakeCluster, turns: int) -> None:
    """Connections and tasks end all the same, as after a timeout at the end of ``async with``."""
    before = asyncio.all_tasks()
    client = TransactionClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.start()
    closing = asyncio.create_task(client.close())
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await ended(before)


async def test_the_client_is_closed_while_it_starts(cluster: FakeCluster) -> None:
    """The start fails and leaves nothing; the client may be started again."""
    before = asyncio.all_tasks()
    client = TransactionClient(bootstrap_servers=cluster.bootstrap_servers)
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(ProducerClosedError):
        await starting
    await ended(before)
    await client.start()
    await client.close()
    await ended(before)


async def test_a_client_that_has_failed_may_be_started_again(cluster: FakeCluster) -> None:
    client = TransactionClient(bootstrap_servers=cluster.bootstrap_servers)
    await client.start()
    client._network._on_internal_error(ValueError("a bug"))
    with pytest.raises(ProducerFailedError, match="the client has failed: ValueError"):
        await client.list_transactions()
    await client.close()
    await client.start()
    assert await client.list_transactions() == []
    await client.close()
