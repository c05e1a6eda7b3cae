"""The engine's own decisions."""

from __future__ import annotations

import asyncio
import random
import weakref
from typing import cast

import pytest

from aioproducer._outcomes import acknowledge
from aioproducer.cluster import Broker, ClusterChanges, ClusterTopic, PartitionState
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.coordinator import Answered
from aioproducer.engine import Engine
from aioproducer.errors import KafkaError, ProducerClosedError
from aioproducer.net.connection import Connection
from aioproducer.protocol.end_txn import EndTxnResponse
from aioproducer.records import TopicPartition
from aioproducer.transaction.state import TransactionState
from tests.unit.core import TOPIC_ID, drain_all, end, put


class Owner:
    """The engine's view of its producer."""

    def ended(self, error: KafkaError) -> None:
        raise AssertionError(error)


def learn_topic(engine: Engine) -> None:
    """Let an answer have brought metadata of the topic."""
    state = PartitionState(partition=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), offline=(), error_code=0)
    topic = ClusterTopic(name="orders", topic_id=TOPIC_ID, partitions=(state,), error_code=0)
    engine._metadata._take(ClusterChanges({}, {"orders": topic}))


def forget_topic(engine: Engine) -> None:
    """Let an answer to a request without the topic have come."""
    engine._metadata._take(ClusterChanges({}, {"orders": None}))


def engine_of(**configs: object) -> Engine:
    config = ProducerConfig.parse({"bootstrap_servers": "unused:1", **configs})
    return Engine(config, asyncio.get_running_loop(), weakref.WeakMethod(Owner().ended), rng=random.Random(1))


async def test_a_topic_forgotten_too_early_is_asked_for_again() -> None:
    """A record is admitted between a request for metadata that leaves its idle topic out, and the answer.

    The topic has to be in use again, or its leader would never be looked up again and the record would wait in vain.
    """
    engine = engine_of()
    learn_topic(engine)
    topic = engine.accumulator.topic("orders")
    assert topic is not None
    put(engine.accumulator, topic)
    forget_topic(engine)
    assert engine.accumulator.topic("orders") is topic
    assert len(engine.partitions_of("orders")) == 1, "what a partitioner is given agrees with what is admitted"
    assert "orders" in engine._metadata._schedule.topics


async def test_a_topic_without_records_is_forgotten() -> None:
    engine = engine_of()
    learn_topic(engine)
    forget_topic(engine)
    assert engine.accumulator.topic("orders") is None
    assert "orders" not in engine._metadata._schedule.topics


async def test_a_topic_that_is_kept_is_not_forgotten() -> None:
    engine = engine_of()
    engine._metadata.touch("orders", 0)
    engine._metadata.touch("payments", 0)
    engine.keep_topics(["orders"])
    much_later_ms = engine.now_ms() + 10 * engine._config.metadata_max_idle_ms
    update = engine._metadata._schedule.begin(much_later_ms, engine._metadata._is_used, lambda topic: False)
    assert (update.topics, update.full) == (("orders",), True)


async def test_leaders_in_the_same_rack_are_preferred(caplog: pytest.LogCaptureFixture) -> None:
    """As soon as one is known there; a broker may move, and a rack that no broker has is probably misspelt."""
    engine = engine_of(partitioner_rack_aware=True, client_rack="a", batch_size=1000)
    leaders = {0: 1, 1: 2, 2: 3}
    states = tuple(PartitionState(each, leader, 0, (leader,), (leader,), (), 0) for each, leader in leaders.items())
    topic = ClusterTopic(name="orders", topic_id=TOPIC_ID, partitions=states, error_code=0)

    def learn(*racks: str | None) -> None:
        brokers = {number: Broker(number, "h", number, rack) for number, rack in enumerate(racks, 1)}
        engine._metadata._take(ClusterChanges(brokers, {"orders": topic}))

    def chosen() -> set[int]:
        known = engine.accumulator.topic("orders")
        assert known is not None
        partitions = set()
        for _ in range(40):
            put(engine.accumulator, known, bytes(1000), partition=-1)
            for leader in leaders.values():
                for batch in drain_all(engine.accumulator, leader):
                    partitions.add(batch.partition)
                    end(engine.accumulator, batch)
        return partitions

    learn("b", "a", "a")
    assert chosen() == {1, 2}
    learn("a", "b", "b")
    assert chosen() == {0}
    assert not caplog.records
    learn("b", "c", None)
    assert chosen() == {0, 1, 2}
    assert caplog.messages[0].endswith("no broker is in client_rack=a, so none is preferred; the brokers' racks: b, c")


async def test_memory_that_comes_back_late() -> None:
    """When the last view of an ended batch is freed, even in another thread, calls that wait for memory continue."""
    engine = engine_of(buffer_memory=16384)
    learn_topic(engine)
    topic = engine.accumulator.topic("orders")
    assert topic is not None
    for drop in (list.clear, lambda views: asyncio.to_thread(views.clear)):
        put(engine.accumulator, topic)
        (batch,) = drain_all(engine.accumulator)
        views = batch.payload()
        end(engine.accumulator, batch)
        del batch
        waiter = asyncio.create_task(
            engine.wait_for_memory(lambda: engine.accumulator.pool.available_bytes or None, engine.now_ms() + 60_000)
        )
        await asyncio.sleep(0)
        assert not waiter.done()
        dropped = drop(views)
        if dropped is not None:
            await dropped
        assert await waiter == 16384


def test_memory_that_comes_back_after_the_loop() -> None:
    """A view that outlives the loop returns its memory silently."""

    async def start() -> tuple[Engine, list[bytes | memoryview]]:
        engine = engine_of()
        learn_topic(engine)
        topic = engine.accumulator.topic("orders")
        assert topic is not None
        put(engine.accumulator, topic)
        (batch,) = drain_all(engine.accumulator)
        views = batch.payload()
        end(engine.accumulator, batch)
        return engine, views

    engine, views = asyncio.run(start())
    views.clear()
    assert engine.accumulator.pool.used_bytes == 0


async def test_sequences_survive_an_idle_topic() -> None:
    """A topic that was forgotten while idle continues with its previous sequences.

    If they began at 0 under the same epoch, a broker would take its next batches for duplicates of its very first ones,
    and acknowledge them without writing them.
    """
    engine = engine_of()
    sequences = engine._sequences
    sequences.set_producer_id(4000, 0)
    numbers = []
    for _ in range(2):
        learn_topic(engine)
        topic = engine.accumulator.topic("orders")
        assert topic is not None
        for _ in range(3):
            put(engine.accumulator, topic)
        (batch,) = drain_all(engine.accumulator)
        assert sequences.may_send(batch)
        sequences.number_all([batch])
        numbers.append((batch.producer_id, batch.producer_epoch, batch.base_sequence))
        acknowledge(sequences, engine.accumulator, batch, 0, -1)
        forget_topic(engine)
        assert engine.accumulator.topic("orders") is None
    assert numbers == [(4000, 0, 0), (4000, 0, 3)]


async def test_a_commit_whose_answer_came_as_the_producer_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task has not run yet, and must not be cancelled before it has told that the transaction is committed."""
    engine = engine_of(transactional_id="id")
    runner = engine.transaction
    assert runner is not None
    for state in TransactionState.INITIALIZING, TransactionState.READY:
        runner.states.move(state)
    await runner.begin()
    runner._partitions.sent(TopicPartition("orders", 0))
    asked, answer = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def end(*_: object, **options: object) -> object:
        asked.set()
        return await answer

    monkeypatch.setattr(runner._requests, "end", end)
    commit = asyncio.create_task(runner.commit())
    await asked.wait()
    answer.set_result(Answered(EndTxnResponse(), cast(Connection, None)))
    engine._internal_error(ZeroDivisionError())
    await commit
    assert runner.states.state is TransactionState.FATAL_ERROR
    await engine.stop()


async def test_records_that_closing_fails_spoil_their_transaction() -> None:
    """A commit that waits for their ends must not count them as successful, and commit the others."""
    engine = engine_of(transactional_id="id")
    runner = engine.transaction
    assert runner is not None
    states = runner.states
    for state in TransactionState.INITIALIZING, TransactionState.READY:
        states.move(state)
    await runner.begin()
    learn_topic(engine)
    topic = engine.accumulator.topic("orders")
    assert topic is not None
    delivery = put(engine.accumulator, topic)
    commit = asyncio.create_task(runner.commit())
    while states.state is not TransactionState.COMMITTING:
        await asyncio.sleep(0)
    engine.fail_all(lambda batch: ProducerClosedError("too early"), unobserved=False)
    with pytest.raises(ProducerClosedError, match="before all records of the transaction had ended"):
        await commit
    assert isinstance(delivery.exception(), ProducerClosedError)
    assert states.state is TransactionState.ABORTABLE_ERROR
    await engine.stop()
