"""A driver that dies at any point, and the next one: in the end every batch is visible once, or not at all."""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from aioproducer.errors import (
    ConfigError,
    KafkaError,
    TransactionAbortedError,
    TransactionStateError,
    TransactionTimeoutError,
)
from aioproducer.records import PreparedTransaction
from aioproducer.spark import exactly_once, storage
from aioproducer.spark.batch_names import batch_write
from aioproducer.spark.commit_log import CommitLog
from aioproducer.spark.errors import SparkWriteError, TakenOverError
from aioproducer.spark.exactly_once import SLOTS, TURNS, QueryTransactions, Settled, query_prefix, transactional_id
from aioproducer.spark.in_turn import AT_ONCE
from aioproducer.spark.storage import Storage
from aioproducer.transaction.outcome import TransactionListing, TransactionOutcome

T = TypeVar("T")

QUERY = query_prefix("p", "/checkpoint")
NOBODY = "000000000000.00000000"
"""A claim before all others."""


class Crash(BaseException):
    """The driver dies here."""


class Coordinator:
    """A model of the brokers' transactions; a driver may die before or after any request."""

    def __init__(self) -> None:
        self.states: dict[PreparedTransaction, TransactionOutcome] = {}
        self.visible: list[PreparedTransaction] = []
        self.steps_until_crash: int | None = None
        self.number = 0
        self.at_each_step: Callable[[], None] = lambda: None

    def write(self, batch: int, partition: int, attempt: int = 0, claim: str = NOBODY) -> PreparedTransaction:
        """A task prepares its transaction; an open one with the same id is aborted."""
        name = transactional_id(QUERY, claim, partition=partition, attempt=attempt, task_attempt_id=0)
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
        """One step of the driver; it may die instead, or others may act first."""
        self.at_each_step()
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

    async def abort(self, prepared: PreparedTransaction) -> None:
        self.step()
        if self.states[prepared] is TransactionOutcome.COMMITTED:
            raise TransactionStateError(prepared.transactional_id)
        self.states[prepared] = TransactionOutcome.ABORTED

    async def list_transactions(self, prefix: str = "", *, states: Collection[str] = ()) -> list[TransactionListing]:
        self.step()
        assert list(states) == ["Ongoing"]
        names = {one.transactional_id for one in self.open}
        return [TransactionListing(name, 1, "Ongoing", 1) for name in sorted(names) if name.startswith(prefix)]

    async def fence(self, transactional_id: str) -> None:
        self.step()
        for one in self.open:
            if one.transactional_id == transactional_id:
                self.states[one] = TransactionOutcome.ABORTED

    @property
    def open(self) -> list[PreparedTransaction]:
        return [one for one, state in self.states.items() if state is TransactionOutcome.OPEN]

    def file_step(self) -> None:
        """The driver has done, or is about to do, something to a file."""
        self.step()


class DyingStorage(Storage):
    """A driver's storage; the driver may die before or after a file is written or removed, or be overtaken."""

    def __init__(self, location: str, brokers: Coordinator) -> None:
        super().__init__(location)
        self._brokers = brokers

    def write(self, name: str, data: bytes) -> None:
        self._brokers.file_step()
        super().write(name, data)
        self._brokers.file_step()

    def remove(self, name: str) -> None:
        self._brokers.file_step()
        super().remove(name)
        self._brokers.file_step()

    def names(self) -> list[str]:
        self._brokers.at_each_step()
        return super().names()

    def read(self, name: str) -> bytes:
        self._brokers.at_each_step()
        return super().read(name)


@pytest.fixture
def brokers() -> Coordinator:
    return Coordinator()


def driver(brokers: Coordinator, tmp_path: Path) -> QueryTransactions:
    """A driver of the query, which has read the log on disk."""
    return QueryTransactions(CommitLog(DyingStorage(str(tmp_path / "log"), brokers)), brokers, QUERY)


@contextmanager
def dying(brokers: Coordinator, steps: int) -> Iterator[None]:
    """The driver in the block dies after that many steps."""
    brokers.steps_until_crash = steps
    with pytest.raises(Crash):
        yield
    brokers.steps_until_crash = None


async def test_a_batch_is_committed_and_losers_are_aborted(brokers: Coordinator, tmp_path: Path) -> None:
    one = driver(brokers, tmp_path)
    settled = await one.settle()
    assert settled.committed == frozenset()
    winners = [brokers.write(0, partition, claim=settled.claim) for partition in range(3)]
    loser = brokers.write(0, 1, attempt=1, claim=settled.claim)
    await one.commit(settled.claim, "q:0", winners)
    assert brokers.visible == winners
    assert brokers.states[loser] is TransactionOutcome.ABORTED
    assert (await driver(brokers, tmp_path).settle()).committed == {"q:0"}


async def test_a_committed_batch_is_not_committed_again(brokers: Coordinator, tmp_path: Path) -> None:
    """In a replay, tasks that don't know of the commit write again; their transactions are aborted."""
    one = driver(brokers, tmp_path)
    await one.commit(NOBODY, "q:0", [brokers.write(0, 0)])
    again = brokers.write(0, 0)
    await one.commit(NOBODY, "q:0", [again])
    assert len(brokers.visible) == 1
    assert brokers.states[again] is TransactionOutcome.ABORTED


async def test_a_batch_without_rows_is_committed(brokers: Coordinator, tmp_path: Path) -> None:
    empty = PreparedTransaction("x", 1, 1, 2, is_empty=True)
    await driver(brokers, tmp_path).commit(NOBODY, "q:0", [empty])
    assert (await driver(brokers, tmp_path).settle()).committed == {"q:0"}


async def test_a_lost_transaction_means_nothing_is_committed(brokers: Coordinator, tmp_path: Path) -> None:
    one = driver(brokers, tmp_path)
    winners = [brokers.write(0, partition) for partition in range(3)]
    brokers.time_out(winners[1])
    with pytest.raises(SparkWriteError, match=r"nothing was committed.*-1-0-0.*transaction\.timeout\.ms"):
        await one.commit(NOBODY, "q:0", winners)
    assert brokers.visible == []
    assert brokers.open == []
    assert (await driver(brokers, tmp_path).settle()).committed == frozenset()


async def test_not_all_of_thousands_of_lost_transactions_are_named(brokers: Coordinator, tmp_path: Path) -> None:
    winners = [brokers.write(0, partition) for partition in range(2_000)]
    for one in winners:
        brokers.time_out(one)
    with pytest.raises(SparkWriteError, match=r"-0-0-0, .*-9-0-0, and 1,990 more\. The broker") as raised:
        await driver(brokers, tmp_path).commit(NOBODY, "q:0", winners)
    assert len(str(raised.value)) < 1_000


async def test_a_failed_batch_leaves_nothing_open(brokers: Coordinator, tmp_path: Path) -> None:
    brokers.write(0, 0)
    other = PreparedTransaction("somebody-else", 1, 1, 2)
    brokers.states[other] = TransactionOutcome.OPEN
    await driver(brokers, tmp_path).abort()
    assert brokers.open == [other]


async def test_abort_keeps_what_is_on_record(brokers: Coordinator, tmp_path: Path) -> None:
    """Spark aborts a batch whose commit failed halfway; what is recorded is committed nevertheless."""
    one = driver(brokers, tmp_path)
    winners = [brokers.write(0, partition) for partition in range(3)]
    with dying(brokers, 6):
        await one.commit(NOBODY, "q:0", winners)
    await driver(brokers, tmp_path).abort()
    assert len(brokers.visible) == 1
    assert (await driver(brokers, tmp_path).settle()).committed == {"q:0"}
    assert sorted(brokers.visible, key=str) == winners


class Busy(Coordinator):
    """Brokers that take a turn of the loop for each request, and count how many they have at once."""

    def __init__(self) -> None:
        super().__init__()
        self.here = self.most = 0

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        self.here += 1
        self.most = max(self.most, self.here)
        await asyncio.sleep(0)
        yield
        self.here -= 1

    async def outcome(self, prepared: PreparedTransaction) -> TransactionOutcome:
        async with self.request():
            return await super().outcome(prepared)

    async def commit(self, prepared: PreparedTransaction) -> None:
        async with self.request():
            await super().commit(prepared)

    async def abort(self, prepared: PreparedTransaction) -> None:
        async with self.request():
            await super().abort(prepared)

    async def fence(self, transactional_id: str) -> None:
        async with self.request():
            await super().fence(transactional_id)


async def test_thousands_of_tasks_end_a_few_at_a_time(tmp_path: Path) -> None:
    """The time limit of each request begins with its turn, and they don't crowd each other out."""
    brokers = Busy()
    one = driver(brokers, tmp_path)
    await one.commit(NOBODY, "q:0", [brokers.write(0, partition) for partition in range(1000)])
    assert len(brokers.visible) == 1000
    torn = [brokers.write(1, partition) for partition in range(1000)]
    brokers.time_out(torn[500])
    with pytest.raises(SparkWriteError, match="nothing was committed"):
        await one.commit(NOBODY, "q:1", torn)
    for partition in range(1000):
        brokers.write(2, partition)
    await one.abort(NOBODY)
    assert brokers.open == []
    assert len(brokers.visible) == 1000
    assert brokers.most == AT_ONCE


async def test_a_torn_batch_stops_the_query(brokers: Coordinator, tmp_path: Path) -> None:
    """One part is committed and another was forcibly aborted: that can't be repaired, so it must not go unnoticed."""
    winners = [brokers.write(0, partition) for partition in range(2)]
    with dying(brokers, 5):
        await driver(brokers, tmp_path).commit(NOBODY, "q:0", winners)
    brokers.time_out(winners[1])
    for _ in range(2):
        with pytest.raises(
            SparkWriteError,
            match=r"batch q:0 is torn: committed: \S+-0-0-0; lost: \S+-1-0-0.*q%3A0\.\w+\.winners",
        ):
            await driver(brokers, tmp_path).settle()
    next((tmp_path / "log").glob("*.winners")).unlink()
    assert (await driver(brokers, tmp_path).settle()).committed == frozenset()


async def test_losers_that_can_not_be_aborted_do_not_fail_a_committed_batch(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise KafkaError("away")

    monkeypatch.setattr(brokers, "list_transactions", fail)
    winner = brokers.write(0, 0)
    await driver(brokers, tmp_path).commit(NOBODY, "q:0", [winner])
    assert brokers.visible == [winner]


async def test_a_job_is_of_one_topic(brokers: Coordinator, tmp_path: Path) -> None:
    """Two writes of one ``foreachBatch`` with one jobId: the second would be skipped. The driver died meanwhile."""

    def to(topic: str) -> QueryTransactions:
        return QueryTransactions(CommitLog(DyingStorage(str(tmp_path / "log"), brokers)), brokers, QUERY, topic=topic)

    with dying(brokers, 4):
        await to("first").commit(NOBODY, "job:x", [brokers.write(0, 0)], rows=1)
    with pytest.raises(
        ConfigError, match=r"job:x was committed before, to topic first, and would not be .* to second:"
    ):
        await to("second").settle("job:x")
    assert len(brokers.visible) == 1
    for same in ("first", ""):
        assert (await to(same).settle("job:x")).committed == {"job:x"}
    assert (await to("second").settle("job:y")).committed == frozenset()


async def test_a_batch_that_the_next_driver_finishes_keeps_its_number_of_rows(
    brokers: Coordinator, tmp_path: Path
) -> None:
    winners = [brokers.write(0, partition) for partition in range(3)]
    with dying(brokers, 6):
        await driver(brokers, tmp_path).commit(NOBODY, "q:0", winners, rows=300)
    one = driver(brokers, tmp_path)
    settled = await one.settle()
    assert not await one.commit(settled.claim, "q:0", [], rows=300)
    with pytest.raises(SparkWriteError, match="with 300 rows, and now has 301"):
        await one.commit(settled.claim, "q:0", [], rows=301)


def say(brokers: Coordinator, tmp_path: Path) -> QueryTransactions:
    """A driver that writes statements for an audit."""
    log = CommitLog(DyingStorage(str(tmp_path / "log"), brokers))
    return QueryTransactions(log, brokers, QUERY, DyingStorage(str(tmp_path / "said"), brokers))


SAID = "q-0.jsonl", b"{}"


def said(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.glob("said/*"))


async def test_an_audit_is_told_of_what_is_committed(brokers: Coordinator, tmp_path: Path) -> None:
    await say(brokers, tmp_path).commit(NOBODY, "q:0", [brokers.write(0, 0)], ("q-0.jsonl", b"{}"))
    assert said(tmp_path) == ["q-0.jsonl"]


@pytest.mark.parametrize("steps", range(20))
async def test_an_audit_is_told_of_a_batch_that_the_next_driver_commits(
    brokers: Coordinator, tmp_path: Path, steps: int
) -> None:
    """Whenever a driver dies, exactly the committed records are stated."""
    winners = [brokers.write(0, partition) for partition in range(2)]
    brokers.steps_until_crash = steps
    with suppress(Crash):
        await say(brokers, tmp_path).commit(NOBODY, "q:0", winners, SAID)
    brokers.steps_until_crash = None
    committed = (await say(brokers, tmp_path).settle()).committed
    assert said(tmp_path) == ([SAID[0]] if committed else [])
    if committed:
        assert (tmp_path / "said" / SAID[0]).read_bytes() == SAID[1]
    assert brokers.visible == (winners if committed else [])


def write_where_there_is_no_place_for_statements(self: DyingStorage, name: str, data: bytes) -> None:
    if name == SAID[0]:
        raise OSError("away")
    Storage.write(self, name, data)


def remove_where_there_is_no_place_for_statements(self: DyingStorage, name: str) -> None:
    if name == SAID[0]:
        raise OSError("away")
    Storage.remove(self, name)


async def test_a_batch_that_can_not_be_stated_is_not_committed(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DyingStorage, "write", write_where_there_is_no_place_for_statements)
        with pytest.raises(OSError, match="away"):
            await say(brokers, tmp_path).commit(NOBODY, "q:0", [brokers.write(0, 0)], SAID)
    assert (await say(brokers, tmp_path).settle()).committed == frozenset()
    assert brokers.visible == []
    assert said(tmp_path) == []


async def test_an_audit_is_told_where_its_place_was_away(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record can't be taken back, so the next driver commits the batch and writes the statement."""
    with monkeypatch.context() as patch:
        patch.setattr(DyingStorage, "write", write_where_there_is_no_place_for_statements)
        patch.setattr(DyingStorage, "remove", remove_where_there_is_no_place_for_statements)
        with pytest.raises(SparkWriteError, match=r"nor could its record be removed: away.*when the query is restart"):
            await say(brokers, tmp_path).commit(NOBODY, "q:0", [brokers.write(0, 0)], SAID)
    assert (await say(brokers, tmp_path).settle()).committed == {"q:0"}
    assert said(tmp_path) == [SAID[0]]


class Faults:
    """A call to the storage that fails, before or after it has taken effect; with ``lasts``, all later ones fail too.

    Args:
        at: the number of the call, or of the next one if ``begin`` is called.
    """

    def __init__(self, at: int, *, takes_effect: bool, lasts: bool) -> None:
        self._left = at
        self._takes_effect = takes_effect
        self._lasts = lasts

    def begin(self) -> None:
        self._left = 0

    def call(self, work: Callable[[], T]) -> T:
        self._left -= 1
        if self._left >= 0 or (self._left < -1 and not self._lasts):
            return work()
        if self._left == -1 and self._takes_effect:
            work()
        raise OSError("the storage is away")


class FailingStorage(Storage):
    """A driver's storage that may fail at any call."""

    def __init__(self, location: Path, faults: Faults) -> None:
        super().__init__(str(location))
        self._faults = faults

    def write(self, name: str, data: bytes) -> None:
        self._faults.call(lambda: Storage.write(self, name, data))

    def remove(self, name: str) -> None:
        self._faults.call(lambda: Storage.remove(self, name))

    def names(self) -> list[str]:
        return self._faults.call(lambda: Storage.names(self))

    def read(self, name: str) -> bytes:
        return self._faults.call(lambda: Storage.read(self, name))


def failing(brokers: Coordinator, tmp_path: Path, faults: Faults) -> QueryTransactions:
    """A driver that writes statements, whose storage fails."""
    log, statements = (FailingStorage(tmp_path / name, faults) for name in ("log", "said"))
    return QueryTransactions(CommitLog(log), brokers, QUERY, statements)


def recorded(tmp_path: Path) -> list[Path]:
    """The records of batches that are to be committed."""
    return list(tmp_path.glob("log/*.winners"))


async def write_again_if_told(brokers: Coordinator, tmp_path: Path, one: QueryTransactions) -> bool:
    """Write a batch as a program does that believes the errors; returns whether it has written the rows twice."""
    again = False
    try:
        await one.commit(NOBODY, batch_write(None), [brokers.write(0, partition) for partition in range(2)], SAID)
    except (KafkaError, OSError, SparkWriteError) as error:
        again = "Do not write these rows again" not in str(error) or not recorded(tmp_path)
        with suppress(OSError):
            await one.abort(NOBODY)
    settled = await say(brokers, tmp_path).settle()
    if again:
        assert (brokers.visible, brokers.open, said(tmp_path)) == ([], [], [])
        rows = [brokers.write(0, partition, claim=settled.claim) for partition in range(2)]
        await say(brokers, tmp_path).commit(settled.claim, batch_write(None), rows, SAID)
    return again


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(16))
async def test_an_error_of_the_storage_says_whether_to_write_again(
    brokers: Coordinator, tmp_path: Path, at: int, takes_effect: bool, lasts: bool
) -> None:
    """A write without a jobId has no name under which it could be found committed when it is repeated."""
    one = failing(brokers, tmp_path, Faults(at, takes_effect=takes_effect, lasts=lasts))
    await write_again_if_told(brokers, tmp_path, one)
    assert len(brokers.visible) == 2
    assert brokers.open == []
    assert said(tmp_path) == [SAID[0]]


@pytest.mark.parametrize("lasts", [False, True], ids=["once", "from then on"])
async def test_brokers_and_storage_that_are_away(brokers: Coordinator, tmp_path: Path, lasts: bool) -> None:
    """The check fails, and then the record can't be taken back either."""
    faults = Faults(1_000, takes_effect=False, lasts=lasts)

    async def away() -> None:
        faults.begin()
        raise KafkaError("away")

    while_it_asks(brokers, away)
    assert not await write_again_if_told(brokers, tmp_path, failing(brokers, tmp_path, faults))
    assert len(brokers.visible) == 2
    assert said(tmp_path) == [SAID[0]]


async def test_a_batch_that_is_committed_and_can_not_be_noted(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch that may be asked for again fails, and is then found committed; another one has succeeded."""

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "finish", full)
        with pytest.raises(OSError, match="the disk is full"):
            await driver(brokers, tmp_path).commit(NOBODY, "q:0", [brokers.write(0, 0)])
        await driver(brokers, tmp_path).commit(NOBODY, batch_write(None), [brokers.write(1, 1)])
    assert "is committed, but the transaction log can't be written; the next write does so: the disk is" in caplog.text
    assert len(brokers.visible) == 2
    assert (await driver(brokers, tmp_path).settle()).committed == {"q:0"}
    assert len(brokers.visible) == 2
    assert sorted(path.suffix for path in (tmp_path / "log").iterdir()) == [".claim", ".committed"]


async def test_an_audit_is_told_nothing_of_a_batch_that_is_withdrawn(brokers: Coordinator, tmp_path: Path) -> None:
    """Withdrawn by the driver itself, or by the next one."""
    lost = brokers.write(0, 0)
    brokers.time_out(lost)
    with pytest.raises(SparkWriteError, match="nothing was committed"):
        await say(brokers, tmp_path).commit(NOBODY, "q:0", [lost], ("q-0.jsonl", b"{}"))
    assert said(tmp_path) == []
    winner = brokers.write(1, 0)
    with dying(brokers, 4):
        await say(brokers, tmp_path).commit(NOBODY, "q:1", [winner], ("q-1.jsonl", b"{}"))
    brokers.time_out(winner)
    assert said(tmp_path) == ["q-1.jsonl"]
    await say(brokers, tmp_path).settle()
    assert said(tmp_path) == []


async def test_nothing_is_on_record_where_the_check_failed(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No commit has begun, so the write has failed as a whole."""
    winners = [brokers.write(0, partition) for partition in range(2)]

    async def away(_: object) -> None:
        raise KafkaError("away")

    with monkeypatch.context() as patch:
        patch.setattr(brokers, "outcome", away)
        with pytest.raises(KafkaError, match="away"):
            await driver(brokers, tmp_path).commit(NOBODY, "q:0", winners)
    await driver(brokers, tmp_path).abort()
    assert brokers.open == []
    assert (await driver(brokers, tmp_path).settle()).committed == frozenset()
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
        with pytest.raises(
            SparkWriteError, match=rf"is recorded, but could not be committed in full: away\..*{advice}"
        ):
            await driver(brokers, tmp_path).commit(NOBODY, batch, winners)
    await driver(brokers, tmp_path).abort()
    assert brokers.visible == winners[:1]
    await driver(brokers, tmp_path).settle()
    assert brokers.visible == winners


async def test_a_driver_that_was_taken_for_dead_tears_nothing(brokers: Coordinator, tmp_path: Path) -> None:
    """It wakes up after the next one has recorded the same batch and committed a part of it."""
    before = await driver(brokers, tmp_path).settle()
    old = [brokers.write(0, partition, claim=before.claim) for partition in range(2)]
    settled = await driver(brokers, tmp_path).settle()
    new = [brokers.write(0, partition, claim=settled.claim) for partition in range(2)]
    with dying(brokers, 5):
        await driver(brokers, tmp_path).commit(settled.claim, "q:0", new)
    assert brokers.visible == new[:1]
    with pytest.raises(TakenOverError, match=r"another driver has begun to write with this transaction log.*/log"):
        await driver(brokers, tmp_path).commit(before.claim, "q:0", old)
    assert len(list((tmp_path / "log").glob("*.winners"))) == 1
    await driver(brokers, tmp_path).abort(before.claim)
    assert (await driver(brokers, tmp_path).settle()).committed == {"q:0"}
    assert brokers.visible == new


def while_it_asks(brokers: Coordinator, others: Callable[[], Coroutine[object, object, None]]) -> None:
    """Let others act before the next driver that asks for the outcome of a transaction learns it."""
    ask = brokers.outcome

    async def late(prepared: PreparedTransaction) -> TransactionOutcome:
        brokers.outcome = ask  # type: ignore[method-assign]
        await others()
        return await ask(prepared)

    brokers.outcome = late  # type: ignore[method-assign]


@pytest.mark.parametrize("call", ["commit", "settle"])
async def test_an_old_driver_leaves_the_statement_of_the_next_one_alone(
    brokers: Coordinator, tmp_path: Path, call: str
) -> None:
    """It is cut off until its transaction times out: the next one gives that up, writes the batch again and states it.

    The statements of both are in the same file.
    """
    claim = (await say(brokers, tmp_path).settle()).claim
    old = brokers.write(0, 0, claim=claim)
    new: list[PreparedTransaction] = []
    if call == "settle":
        with dying(brokers, 4):
            await say(brokers, tmp_path).commit(claim, "q:0", [old], SAID)

    async def next_one() -> None:
        brokers.time_out(old)
        settled = await say(brokers, tmp_path).settle()
        assert said(tmp_path) == []
        new.append(brokers.write(0, 0, claim=settled.claim))
        await say(brokers, tmp_path).commit(settled.claim, "q:0", new, SAID)

    while_it_asks(brokers, next_one)
    one = say(brokers, tmp_path)
    with pytest.raises(TakenOverError):
        await (one.settle() if call == "settle" else one.commit(claim, "q:0", [old], SAID))
    assert brokers.visible == new
    assert said(tmp_path) == [SAID[0]]


async def test_an_old_driver_does_not_say_that_nothing_is_committed(brokers: Coordinator, tmp_path: Path) -> None:
    """The next one commits what is on record, and its successors use the ids again."""
    claim = (await say(brokers, tmp_path).settle()).claim
    old = brokers.write(0, 0, claim=claim)

    async def next_ones() -> None:
        await say(brokers, tmp_path).settle()
        brokers.states[old] = TransactionOutcome.UNKNOWN

    while_it_asks(brokers, next_ones)
    with pytest.raises(TakenOverError):
        await say(brokers, tmp_path).commit(claim, "q:0", [old], SAID)
    assert brokers.visible == [old]
    assert said(tmp_path) == [SAID[0]]


async def test_tasks_of_an_old_driver_do_not_fence_those_of_the_next(brokers: Coordinator, tmp_path: Path) -> None:
    """They begin after the next driver's tasks have prepared; that driver's commit then ends their transactions."""
    before = await driver(brokers, tmp_path).settle()
    settled = await driver(brokers, tmp_path).settle()
    new = [brokers.write(0, partition, claim=settled.claim) for partition in range(2)]
    for partition in range(2):
        brokers.write(0, partition, claim=before.claim)
    await driver(brokers, tmp_path).abort(before.claim)
    await driver(brokers, tmp_path).commit(settled.claim, "q:0", new)
    assert brokers.visible == new
    assert brokers.open == []


async def test_an_old_driver_aborts_nothing_that_began_after_it(brokers: Coordinator, tmp_path: Path) -> None:
    """The next one claims the log and begins to write while the old one lists the open transactions."""
    before = await driver(brokers, tmp_path).settle()
    ask = brokers.list_transactions
    new: list[PreparedTransaction] = []

    async def slowly(prefix: str, *, states: Collection[str]) -> list[TransactionListing]:
        brokers.list_transactions = ask  # type: ignore[method-assign]
        settled = await driver(brokers, tmp_path).settle()
        new.append(brokers.write(0, 0, claim=settled.claim))
        return await ask(prefix, states=states)

    brokers.list_transactions = slowly  # type: ignore[method-assign,assignment]
    await driver(brokers, tmp_path).abort(before.claim)
    assert brokers.open == new


async def test_a_failed_batch_of_which_no_task_tells_claims_the_log(brokers: Coordinator, tmp_path: Path) -> None:
    """Aborting without a claim could abort the next driver's writes; with the claim, that driver notices the other."""
    settled = await driver(brokers, tmp_path).settle()
    one = brokers.write(0, 0, claim=settled.claim)
    await driver(brokers, tmp_path).abort()
    assert brokers.states[one] is TransactionOutcome.ABORTED
    with pytest.raises(TakenOverError):
        await driver(brokers, tmp_path).commit(settled.claim, "q:0", [one])


async def test_what_is_committed_while_it_is_given_up_is_torn(brokers: Coordinator, tmp_path: Path) -> None:
    """A transaction timed out between the checks of two drivers: one has seen it open, and commits the others."""
    winners = [brokers.write(0, partition) for partition in range(2)]
    with dying(brokers, 4):
        await driver(brokers, tmp_path).commit(NOBODY, "q:0", winners)
    brokers.time_out(winners[0])
    abort = brokers.abort

    async def after_a_commit(prepared: PreparedTransaction) -> None:
        await brokers.commit(prepared)
        await abort(prepared)

    brokers.abort = after_a_commit  # type: ignore[method-assign]
    with pytest.raises(SparkWriteError, match=r"torn: committed: \S+-1-0-0; lost: \S+-0-0-0; open: none"):
        await driver(brokers, tmp_path).settle()


@pytest.mark.parametrize("seed", range(40))
def test_a_driver_may_die_anywhere(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Ten micro-batches, or jobs, under drivers that die at any request or write to the log: each is visible once.

    Spark begins the next micro-batch when ``commit`` has returned and Spark has recorded that; a driver may also die in
    between, and the batch is replayed.
    """
    monkeypatch.setattr(storage.os, "fsync", lambda _: None)
    asyncio.run(run_batches(brokers, tmp_path, random.Random(seed), "job" if seed % 4 == 3 else "q"))
    by_batch = [one.producer_id for one in brokers.visible]
    assert sorted(by_batch) == sorted([*range(10)] * 3)
    asyncio.run(driver(brokers, tmp_path).settle())
    assert brokers.open == []


async def run_batches(brokers: Coordinator, tmp_path: Path, rng: random.Random, kind: str) -> None:
    done = 0
    while done < 10:
        one = driver(brokers, tmp_path)
        brokers.steps_until_crash = rng.choice([None, rng.randrange(20)])
        settled: Settled | None = None
        try:
            batch = f"{kind}:{done}"
            settled = await one.settle(batch if kind == "job" else "")
            messages = []
            for partition in range(3):
                if batch not in settled.committed:
                    attempts = range(rng.choice([1, 1, 2]))
                    messages.append(
                        rng.choice([brokers.write(done, partition, each, settled.claim) for each in attempts])
                    )
            await one.commit(settled.claim, batch, messages)
            if rng.random() < 0.2:
                raise Crash
            done += 1
        except Crash:
            if rng.random() < 0.5:
                brokers.steps_until_crash = None
                await driver(brokers, tmp_path).abort(rng.choice(["", settled.claim]) if settled else "")
    brokers.steps_until_crash = None


class Turns:
    """Lets drivers, each in a thread, run one at a time; at each step the next one is chosen at random."""

    def __init__(self, brokers: Coordinator, rng: random.Random) -> None:
        self._brokers = brokers
        self._rng = rng
        self._chance = rng.choice([0.02, 0.1, 0.5])
        self._changed = threading.Condition()
        self._live: list[int] = []
        self._next = 0
        self._me = threading.local()
        self._errors: list[BaseException] = []

    def run(self, *programs: Callable[[], Coroutine[object, object, None]]) -> None:
        """Run all of them until they have ended."""
        self._brokers.at_each_step = self.step
        self._live = list(range(len(programs)))
        threads = [threading.Thread(target=self._run, args=one, daemon=True) for one in enumerate(programs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._brokers.at_each_step = lambda: None
        if self._errors:
            raise self._errors[0]

    def _run(self, me: int, program: Callable[[], Coroutine[object, object, None]]) -> None:
        self._me.number = me
        try:
            self._wait()
            asyncio.run(program())
        except BaseException as error:
            self._errors.append(error)
        with self._changed:
            self._live.remove(me)
            self._pass_on()

    def step(self) -> None:
        """Called by each driver before any action; it may take a long time to return."""
        if self._rng.random() < self._chance:
            with self._changed:
                self._pass_on()
            self._wait()

    def _pass_on(self) -> None:
        if self._live:
            self._next = self._rng.choice(self._live)
        self._changed.notify_all()

    def _wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._next == self._me.number)


class Query:
    """The checkpoint of a query that several drivers run at once, each going from micro-batch to micro-batch."""

    BATCHES = 4

    def __init__(self, brokers: Coordinator, tmp_path: Path, rng: random.Random, kind: str = "q") -> None:
        self._brokers, self._path, self._rng, self._kind = brokers, tmp_path, rng, kind
        self.noted = 0
        self.writers: dict[PreparedTransaction, int] = {}
        self.torn = ""
        """Why the query can't go on before somebody has decided."""
        self._tries = 0

    async def run(self, restarts: int, deaths: float) -> None:
        """A driver that is restarted whenever it dies or detects another one."""
        while self.noted < self.BATCHES and restarts and not self.torn:
            at = self.noted
            try:
                while at < self.BATCHES:
                    await self._write(at, deaths)
                    at += 1
                    self.noted = max(self.noted, at)
            except SparkWriteError as error:
                self.torn = str(error) if "is torn" in str(error) else ""
            except (Crash, KafkaError, OSError):
                pass
            restarts -= 1

    async def _write(self, number: int, deaths: float) -> None:
        one = driver(self._brokers, self._path)
        batch = f"{self._kind}:{number}"
        settled = await one.settle(batch if self._kind == "job" else "")
        messages = []
        self._tries += 1
        writer = self._tries
        for partition in range(3) if batch not in settled.committed else ():
            for attempt in range(self._rng.choice([1, 1, 2])):
                self._die(deaths)
                message = self._brokers.write(number, partition, attempt, settled.claim)
                self.writers[message] = writer
            messages.append(message)
        if self._rng.random() < 0.1:
            await one.abort(self._rng.choice(["", settled.claim]))
            raise Crash
        try:
            await one.commit(settled.claim, batch, messages)
        except Exception:
            with suppress(SparkWriteError, KafkaError, OSError):
                await one.abort(settled.claim)  # as Spark does
            raise
        self._die(deaths)

    def check(self) -> None:
        """No batch is visible twice, or as several drivers have written it; what Spark has noted is visible in full."""
        for number in range(self.BATCHES):
            seen = [one for one in self._brokers.visible if one.producer_id == number]
            partitions = {one.transactional_id.removeprefix(QUERY).split("-")[1] for one in seen}
            assert len(partitions) == len(seen)
            assert len({self.writers[one] for one in seen}) <= 1
            assert number >= self.noted or len(seen) == 3

    def _die(self, deaths: float) -> None:
        self._brokers.at_each_step()
        if self._rng.random() < deaths:
            raise Crash


@pytest.mark.parametrize("seed", range(150))
def test_drivers_that_do_not_know_of_each_other_tear_nothing(
    brokers: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Two or three of them write the same micro-batches, and each may stop between any two of its steps.

    There are enough claims that no two drivers share ids: a driver that sleeps for eight claims, while one of its
    tasks begins, could fence a task of the ninth.
    """
    monkeypatch.setattr(storage.os, "fsync", lambda _: None)
    monkeypatch.setattr(exactly_once, "TURNS", 1_000_000)
    rng = random.Random(seed)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=rng.getrandbits(128)))
    query = Query(brokers, tmp_path, rng)
    deaths = rng.choice([0.0, 0.02])
    Turns(brokers, rng).run(*[lambda: query.run(6, deaths)] * rng.choice([2, 2, 3]))
    asyncio.run(query.run(30, 0.0))
    assert query.noted == query.BATCHES
    assert sorted(one.producer_id for one in brokers.visible) == sorted([*range(query.BATCHES)] * 3)
    for number in range(query.BATCHES):
        assert len({query.writers[one] for one in brokers.visible if one.producer_id == number}) == 1
    asyncio.run(driver(brokers, tmp_path).settle())
    assert brokers.open == []


class TroubledCoordinator(Coordinator):
    """Requests time out, before they are carried out or after; files can't be written; transactions take too long."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.trouble = rng.choice([0.005, 0.02, 0.05])
        self.slow = rng.choice([0.0, 0.0, 0.003, 0.02])

    def step(self) -> None:
        super().step()
        if self.open and self.rng.random() < self.slow:
            self.time_out(self.rng.choice(self.open))

    def file_step(self) -> None:
        self.step()
        self._fail(OSError("for example"))

    async def outcome(self, prepared: PreparedTransaction) -> TransactionOutcome:
        found = await super().outcome(prepared)
        self._fail(TransactionTimeoutError("for example"))
        return found

    async def commit(self, prepared: PreparedTransaction) -> None:
        self._fail(TransactionTimeoutError("for example"))
        await super().commit(prepared)
        self._fail(TransactionTimeoutError("for example"))

    async def abort(self, prepared: PreparedTransaction) -> None:
        await super().abort(prepared)
        self._fail(TransactionTimeoutError("for example"))

    async def fence(self, transactional_id: str) -> None:
        await super().fence(transactional_id)
        self._fail(TransactionTimeoutError("for example"))

    def _fail(self, error: Exception) -> None:
        if self.rng.random() < self.trouble:
            raise error


@pytest.mark.parametrize("seed", range(100))
def test_drivers_in_trouble_write_no_batch_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """As before, and requests and files fail at any step. Only what the brokers aborted for its age tears a batch."""
    monkeypatch.setattr(storage.os, "fsync", lambda _: None)
    monkeypatch.setattr(exactly_once, "TURNS", 1_000_000)
    rng = random.Random(seed)
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=rng.getrandbits(128)))
    brokers = TroubledCoordinator(rng)
    query = Query(brokers, tmp_path, rng, rng.choice(["q", "q", "job"]))
    deaths = rng.choice([0.0, 0.02])
    Turns(brokers, rng).run(*[lambda: query.run(6, deaths)] * rng.choice([1, 2, 3]))
    query.check()
    slow, brokers.slow, brokers.trouble = brokers.slow, 0.0, 0.0
    asyncio.run(query.run(30, 0.0))
    query.check()
    assert query.noted == query.BATCHES or (query.torn and slow)


def test_ids_tell_attempts_apart_and_come_again() -> None:
    assert query_prefix("p", "/a") == query_prefix("p", "/a") != query_prefix("p", "/b")
    names = {
        transactional_id(QUERY, f"{claim:012}.0", partition=partition, attempt=attempt, task_attempt_id=number)
        for claim in range(2 * TURNS)
        for partition in range(2)
        for attempt in range(2)
        for number in range(100)
    }
    assert len(names) == TURNS * 2 * 2 * SLOTS
    assert all(name.startswith(QUERY) for name in names)
