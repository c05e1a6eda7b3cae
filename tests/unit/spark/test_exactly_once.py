"""A driver that dies at any point, and the next one: every batch is visible once in the end, or not at all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import pytest

from aioproducer.errors import KafkaError, TransactionAbortedError
from aioproducer.records import PreparedTransaction
from aioproducer.spark import storage
from aioproducer.spark.batch_names import batch_write
from aioproducer.spark.commit_log import CommitLog
from aioproducer.spark.errors import SparkWriteError
from aioproducer.spark.exactly_once import SLOTS, QueryTransactions, query_prefix, transactional_id
from aioproducer.spark.storage import Storage
from aioproducer.transaction_outcome import TransactionOutcome

QUERY = query_prefix("p", "/checkpoint")


class Crash(BaseException):
    """The driver dies here."""


class Coordinator:
    """What brokers know of transactions; a driver may die before or after any request."""

    def __init__(self) -> None:
        self.states: dict[PreparedTransaction, TransactionOutcome] = {}
        self.visible: list[PreparedTransaction] = []
        self.steps_until_crash: int | None = None
        self.number = 0

    def write(self, batch: int, partition: int, attempt: int = 0) -> PreparedTransaction:
        """A task of a batch prepares its transaction; whatever was open under its id is aborted."""
        name = transactional_id(QUERY, partition=partition, attempt=attempt, task_attempt_id=0)
        for other, state in self.states.items():
            if other.transactional_id == name and state is TransactionOutcome.OPEN:
                self.states[other] = TransactionOutcome.ABORTED
        self.number += 1
        prepared = PreparedTransaction(name, batch, self.number, 2)
        self.states[prepared] = TransactionOutcome.OPEN
        return prepared

    def time_out(self, prepared: PreparedTransaction) -> None:
        self.states[prepared] = TransactionOutcome.ABORTED

    def step(self) -> None:
        """Something that the driver does; it may die instead."""
        if self.steps_until_crash is not None:
            self.steps_until_crash -= 1
            if self.steps_until_crash < 0:
                raise Crash

    async def outcome(self, prepared: PreparedTransaction) -> TransactionOutcome:
        self.step()
        return self.states[prepared]

    async def commit(self, prepared: PreparedTransaction) -> None:
        self.step()
        if self.states[prepared] is TransactionOutcome.ABORTED:
            raise TransactionAbortedError(prepared.transactional_id)
        if self.states[prepared] is TransactionOutcome.OPEN:
            self.visible.append(prepared)
            self.states[prepared] = TransactionOutcome.COMMITTED

    async def abort_transactions(
        self, prefix: str, *, keep: Collection[PreparedTransaction | str] = ()
    ) -> list[PreparedTransaction]:
        self.step()
        kept = {one if isinstance(one, str) else one.transactional_id for one in keep}
        found = [
            one
            for one, state in self.states.items()
            if state is TransactionOutcome.OPEN
            and one.transactional_id.startswith(prefix)
            and one.transactional_id not in kept
        ]
        for one in found:
            self.states[one] = TransactionOutcome.ABORTED
        return found

    @property
    def open(self) -> list[PreparedTransaction]:
        return [one for one, state in self.states.items() if state is TransactionOutcome.OPEN]


class DyingStorage(Storage):
    """Storage of a driver that may die before or after a file is written or removed."""

    def __init__(self, location: str, brokers: Coordinator) -> None:
        super().__init__(location)
        self._brokers = brokers

    def write(self, name: str, data: bytes) -> None:
        self._brokers.step()
        super().write(name, data)
        self._brokers.step()

    def remove(self, name: str) -> None:
        self._brokers.step()
        super().remove(name)
        self._brokers.step()


@pytest.fixture
def brokers() -> Coordinator:
    return Coordinator()


def driver(brokers: Coordinator, tmp_path: Path) -> QueryTransactions:
    """A driver of the query, which knows what is on disk."""
    return QueryTransactions(CommitLog(DyingStorage(str(tmp_path / "log"), brokers)), brokers, QUERY)


async def test_a_batch_is_committed_and_losers_are_aborted(brokers: Coordinator, tmp_path: Path) -> None:
    one = driver(brokers, tmp_path)
    assert await one.settle() == frozenset()
    winners = [brokers.write(0, partition) for partition in range(3)]
    loser = brokers.write(0, 1, attempt=1)
    await one.commit("q:0", winners)
    assert brokers.visible == winners
    assert brokers.states[loser] is TransactionOutcome.ABORTED
    assert await driver(brokers, tmp_path).settle() == {"q:0"}


async def test_a_committed_batch_is_not_committed_again(brokers: Coordinator, tmp_path: Path) -> None:
    """A replay whose tasks did not know writes anew; that is aborted."""
    one = driver(brokers, tmp_path)
    await one.commit("q:0", [brokers.write(0, 0)])
    again = brokers.write(0, 0)
    await one.commit("q:0", [again])
    assert len(brokers.visible) == 1
    assert brokers.states[again] is TransactionOutcome.ABORTED


async def test_a_batch_without_rows_is_committed(brokers: Coordinator, tmp_path: Path) -> None:
    empty = PreparedTransaction("x", 1, 1, 2, is_empty=True)
    await driver(brokers, tmp_path).commit("q:0", [empty])
    assert await driver(brokers, tmp_path).settle() == {"q:0"}


async def test_a_lost_transaction_means_nothing_is_committed(brokers: Coordinator, tmp_path: Path) -> None:
    one = driver(brokers, tmp_path)
    winners = [brokers.write(0, partition) for partition in range(3)]
    brokers.time_out(winners[1])
    with pytest.raises(SparkWriteError, match=r"nothing was committed.*-1-0-0.*transaction\.timeout\.ms"):
        await one.commit("q:0", winners)
    assert brokers.visible == []
    assert brokers.open == []
    assert await driver(brokers, tmp_path).settle() == frozenset()


async def test_a_failed_batch_leaves_nothing_open(brokers: Coordinator, tmp_path: Path) -> None:
    brokers.write(0, 0)
    other = PreparedTransaction("somebody-else", 1, 1, 2)
    brokers.states[other] = TransactionOutcome.OPEN
    await driver(brokers, tmp_path).abort()
    assert brokers.open == [other]


async def test_abort_keeps_what_is_on_record(brokers: Coordinator, tmp_path: Path) -> None:
    """Spark aborts a batch whose commit has failed half-way; what is recorded is finished all the same."""
    one = driver(brokers, tmp_path)
    winners = [brokers.write(0, partition) for partition in range(3)]
    brokers.steps_until_crash = 6
    with pytest.raises(Crash):
        await one.commit("q:0", winners)
    brokers.steps_until_crash = None
    await driver(brokers, tmp_path).abort()
    assert len(brokers.visible) == 1
    assert await driver(brokers, tmp_path).settle() == {"q:0"}
    assert sorted(brokers.visible, key=str) == winners


async def test_a_torn_batch_stops_the_query(brokers: Coordinator, tmp_path: Path) -> None:
    """Part is committed and part was aborted by force: nobody can mend that, so nobody shall miss it."""
    winners = [brokers.write(0, partition) for partition in range(2)]
    brokers.steps_until_crash = 5
    with pytest.raises(Crash):
        await driver(brokers, tmp_path).commit("q:0", winners)
    brokers.steps_until_crash = None
    brokers.time_out(winners[1])
    for _ in range(2):
        with pytest.raises(
            SparkWriteError,
            match=r"batch q:0 is torn: committed are \S+-0-0-0, lost are \S+-1-0-0.*q%3A0\.\w+\.winners",
        ):
            await driver(brokers, tmp_path).settle()
    next((tmp_path / "log").glob("*.winners")).unlink()
    assert await driver(brokers, tmp_path).settle() == frozenset()


async def test_losers_that_can_not_be_aborted_do_not_fail_a_committed_batch(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise KafkaError("away")

    monkeypatch.setattr(brokers, "abort_transactions", fail)
    winner = brokers.write(0, 0)
    await driver(brokers, tmp_path).commit("q:0", [winner])
    assert brokers.visible == [winner]


def say(brokers: Coordinator, tmp_path: Path) -> QueryTransactions:
    """A driver that says what an audit is to find."""
    log = CommitLog(DyingStorage(str(tmp_path / "log"), brokers))
    return QueryTransactions(log, brokers, QUERY, DyingStorage(str(tmp_path / "said"), brokers))


SAID = "q-0.jsonl", b"{}"


def said(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("said/*"))


async def test_an_audit_is_told_of_what_is_committed(brokers: Coordinator, tmp_path: Path) -> None:
    await say(brokers, tmp_path).commit("q:0", [brokers.write(0, 0)], ("q-0.jsonl", b"{}"))
    assert said(tmp_path) == ["q-0.jsonl"]


@pytest.mark.parametrize("steps", range(20))
async def test_an_audit_is_told_of_a_batch_that_the_next_driver_commits(
    brokers: Coordinator, tmp_path: Path, steps: int
) -> None:
    """Whenever a driver dies, what is committed is stated, and what is not is not."""
    winners = [brokers.write(0, partition) for partition in range(2)]
    brokers.steps_until_crash = steps
    with suppress(Crash):
        await say(brokers, tmp_path).commit("q:0", winners, SAID)
    brokers.steps_until_crash = None
    committed = await say(brokers, tmp_path).settle()
    assert said(tmp_path) == ([SAID[0]] if committed else [])
    if committed:
        assert (tmp_path / "said" / SAID[0]).read_bytes() == SAID[1]
    assert brokers.visible == (winners if committed else [])


def write_where_there_is_no_place_for_statements(self: DyingStorage, name: str, data: bytes) -> None:
    if name == SAID[0]:
        raise OSError("away")
    Storage.write(self, name, data)


async def test_an_audit_is_told_where_its_place_was_away(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is on record, so the next driver commits it, and says so."""
    with monkeypatch.context() as patch:
        patch.setattr(DyingStorage, "write", write_where_there_is_no_place_for_statements)
        with pytest.raises(OSError, match="away"):
            await say(brokers, tmp_path).commit("q:0", [brokers.write(0, 0)], SAID)
    assert await say(brokers, tmp_path).settle() == {"q:0"}
    assert said(tmp_path) == [SAID[0]]


async def test_an_audit_is_told_nothing_of_a_batch_that_is_withdrawn(brokers: Coordinator, tmp_path: Path) -> None:
    """By the driver itself, or by the next one."""
    lost = brokers.write(0, 0)
    brokers.time_out(lost)
    with pytest.raises(SparkWriteError, match="nothing was committed"):
        await say(brokers, tmp_path).commit("q:0", [lost], ("q-0.jsonl", b"{}"))
    assert said(tmp_path) == []
    brokers.steps_until_crash = 4
    winner = brokers.write(1, 0)
    with pytest.raises(Crash):
        await say(brokers, tmp_path).commit("q:1", [winner], ("q-1.jsonl", b"{}"))
    brokers.steps_until_crash = None
    brokers.time_out(winner)
    assert said(tmp_path) == ["q-1.jsonl"]
    await say(brokers, tmp_path).settle()
    assert said(tmp_path) == []


async def test_nothing_is_on_record_where_the_check_failed(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has begun to commit, so the write has failed as a whole."""
    winners = [brokers.write(0, partition) for partition in range(2)]

    async def away(_: object) -> None:
        raise KafkaError("away")

    with monkeypatch.context() as patch:
        patch.setattr(brokers, "outcome", away)
        with pytest.raises(KafkaError, match="away"):
            await driver(brokers, tmp_path).commit("q:0", winners)
    await driver(brokers, tmp_path).abort()
    assert brokers.open == []
    assert await driver(brokers, tmp_path).settle() == frozenset()
    assert brokers.visible == []


@pytest.mark.parametrize(
    ("batch", "advice"),
    [
        (batch_write(None), "Do not write these rows again"),
        (batch_write("x"), "when the query is restarted, or the job repeated"),
    ],
    ids=["write", "job"],
)
async def test_a_commit_that_fails_half_way_says_what_to_do(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: str, advice: str
) -> None:
    winners = [brokers.write(0, partition) for partition in range(2)]
    commit = brokers.commit

    async def once(prepared: PreparedTransaction) -> None:
        if prepared is winners[1]:
            raise KafkaError("away")
        await commit(prepared)

    with monkeypatch.context() as patch:
        patch.setattr(brokers, "commit", once)
        with pytest.raises(SparkWriteError, match=rf"on record, and could not be committed in full: away\..*{advice}"):
            await driver(brokers, tmp_path).commit(batch, winners)
    await driver(brokers, tmp_path).abort()
    assert brokers.visible == winners[:1]
    await driver(brokers, tmp_path).settle()
    assert brokers.visible == winners


async def test_a_driver_that_was_taken_for_dead_tears_nothing(brokers: Coordinator, tmp_path: Path) -> None:
    """It wakes up when the next one has recorded the same batch and has committed a part of it."""
    old = [brokers.write(0, partition) for partition in range(2)]
    await driver(brokers, tmp_path).settle()
    new = [brokers.write(0, partition, attempt=1) for partition in range(2)]
    brokers.steps_until_crash = 5
    with pytest.raises(Crash):
        await driver(brokers, tmp_path).commit("q:0", new)
    brokers.steps_until_crash = None
    assert brokers.visible == new[:1]
    with pytest.raises(SparkWriteError, match="nothing was committed"):
        await driver(brokers, tmp_path).commit("q:0", old)
    await driver(brokers, tmp_path).abort()
    assert await driver(brokers, tmp_path).settle() == {"q:0"}
    assert brokers.visible == new


@pytest.mark.parametrize("seed", range(40))
def test_a_driver_may_die_anywhere(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Ten micro-batches under drivers that die at any request or write to the log: each is visible once, in the end.

    Spark goes on to the next micro-batch when ``commit`` has returned and Spark has noted it; a driver may also die in
    between, and the batch is replayed.
    """
    monkeypatch.setattr(storage.os, "fsync", lambda _: None)
    asyncio.run(run_batches(brokers, tmp_path, random.Random(seed)))
    by_batch = [one.producer_id for one in brokers.visible]
    assert sorted(by_batch) == sorted([*range(10)] * 3)
    asyncio.run(driver(brokers, tmp_path).settle())
    assert brokers.open == []


async def run_batches(brokers: Coordinator, tmp_path: Path, rng: random.Random) -> None:
    done = 0
    while done < 10:
        one = driver(brokers, tmp_path)
        brokers.steps_until_crash = rng.choice([None, rng.randrange(20)])
        try:
            committed = await one.settle()
            batch = f"q:{done}"
            messages = []
            for partition in range(3):
                if batch not in committed:
                    attempts = [brokers.write(done, partition, attempt) for attempt in range(rng.choice([1, 1, 2]))]
                    messages.append(rng.choice(attempts))
            await one.commit(batch, messages)
            if rng.random() < 0.2:
                raise Crash
            done += 1
        except Crash:
            if rng.random() < 0.5:
                brokers.steps_until_crash = None
                await driver(brokers, tmp_path).abort()
    brokers.steps_until_crash = None


def test_ids_tell_attempts_apart_and_come_again() -> None:
    assert query_prefix("p", "/a") == query_prefix("p", "/a") != query_prefix("p", "/b")
    names = {
        transactional_id(QUERY, partition=partition, attempt=attempt, task_attempt_id=number)
        for partition in range(2)
        for attempt in range(2)
        for number in range(100)
    }
    assert len(names) == 2 * 2 * SLOTS
    assert all(name.startswith(QUERY) for name in names)
