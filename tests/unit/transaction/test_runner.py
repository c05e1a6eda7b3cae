"""The calls of a transaction, with a coordinator that answers when and what a test says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.coordinator import Answered, Coordinators
from aioproducer.errors import (
    ConnectionLostError,
    CoordinatorLoadInProgressError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
    RecordTooLargeError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
    TransactionTimeoutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aioproducer.net.connection import Connection
from aioproducer.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aioproducer.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from aioproducer.protocol.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from aioproducer.protocol.describe_transactions import TransactionState as DescribedState
from aioproducer.protocol.end_txn import EndTxnRequest, EndTxnResponse
from aioproducer.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aioproducer.protocol.schema import Message
from aioproducer.protocol.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from aioproducer.transaction.block import Transaction
from aioproducer.transaction.manager import TransactionManager
from aioproducer.transaction.partitions import TransactionPartitions
from aioproducer.transaction.runner import TransactionRunner
from aioproducer.transaction.state import TransactionState as S
from tests.eager import make_tasks_eager
from tests.unit.waiting import turns

PID = 4000
GENEROUS_S = 20
PATIENT_MS, HURRIED_MS = 20_000, 30
OFFSETS = {TopicPartition("input", 0): OffsetAndMetadata(5)}
GROUP = ConsumerGroupMetadata("group")


@dataclass
class Question:
    """A request to the coordinator."""

    request: Any
    wanted: Callable[[], bool]
    lost: Callable[[], None]
    answer: asyncio.Future[Answered[Any]]

    def good(self, response: Message | None = None) -> None:
        """Answer without an error."""
        if response is None:
            response = type(self.request).RESPONSE()
        self.answer.set_result(Answered(response, cast(Connection, None)))

    def bad(self, error: KafkaError, *, maybe_written: bool = False, **flags: bool) -> None:
        """Answer with a permanent error."""
        told = error.marked(**flags) if flags else error
        told.maybe_written = maybe_written
        self.answer.set_exception(told)


class ScriptedCoordinators:
    """A fake Coordinators, whose answers come from the test."""

    def __init__(self) -> None:
        self.questions: asyncio.Queue[Question] = asyncio.Queue()
        self.last_error: KafkaError | None = None

    def for_one_call(self) -> ScriptedCoordinators:
        return self

    async def ask(
        self,
        kind: int,
        key: str,
        request: Any,
        *,
        wanted: Callable[[], bool] = lambda: True,
        lost: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> Answered[Any]:
        question = Question(request, wanted, lost, asyncio.get_running_loop().create_future())
        self.questions.put_nowait(question)
        return await question.answer

    async def asked(self, expected: type[Message]) -> Question:
        """The next request, which has to be of this kind."""
        question = await asyncio.wait_for(self.questions.get(), GENEROUS_S)
        assert type(question.request) is expected
        return question

    @property
    def is_quiet(self) -> bool:
        return self.questions.empty()


@dataclass
class ScriptedRecords:
    """A fake for the rest of the producer."""

    admits: bool = False
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    dropped: list[tuple[KafkaError | None, bool]] = field(default_factory=list)
    failures: list[KafkaError] = field(default_factory=list)
    broken_off: list[asyncio.Task[Any]] = field(default_factory=list)
    when_broken_off: Callable[[], None] = lambda: None
    calls: list[str] = field(default_factory=list)
    pending: bool = False
    """Whether there are records that have not ended."""
    wakes: int = 0

    def admit(self, admits: bool) -> None:
        self.admits = admits

    def ended(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self.pending:
            waiter.set_result(None)
        self.waiters.append(waiter)
        return waiter

    def all_end(self) -> None:
        self.pending = False
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def forget(self, waiter: asyncio.Future[None]) -> None:
        self.waiters.remove(waiter)

    def drop_unsent(self, cause: KafkaError | None, *, also_in_doubt: bool) -> None:
        self.dropped.append((cause, also_in_doubt))

    def observed(self) -> None:
        pass

    def wake_sender(self) -> None:
        self.wakes += 1

    def failed(self, error: KafkaError) -> None:
        self.failures.append(error)

    def broke_off(self, task: asyncio.Task[Any]) -> None:
        self.broken_off.append(task)
        self.when_broken_off()

    def timed(self, call: str, elapsed_ms: int) -> None:
        self.calls.append(call)


class Scene:
    """A runner between a scripted coordinator and scripted records."""

    def __init__(self, version: int) -> None:
        self.coordinators = ScriptedCoordinators()
        self.records = ScriptedRecords()
        self.partitions = TransactionPartitions()
        self.sequences = TransactionManager(idempotent=True, transaction_partitions=self.partitions)
        self.version = version
        config = ProducerConfig.parse(
            {
                "bootstrap_servers": "scripted:9092",
                "transactional_id": "id",
                "max_block_ms": PATIENT_MS,
                "transaction_timeout_ms": 1000,
            }
        )
        self.runner = TransactionRunner(
            config,
            loop=asyncio.get_running_loop(),
            coordinators=cast(Coordinators, self.coordinators),
            sequences=self.sequences,
            feature=lambda _: self.version,
            records=self.records,
        )

    def hurry(self) -> None:
        """Give the following calls a short max_block_ms."""
        self.runner._max_block_ms = HURRIED_MS

    def be_patient(self) -> None:
        self.runner._max_block_ms = PATIENT_MS

    @property
    def state(self) -> S:
        return self.runner.states.state

    async def started(self) -> None:
        starting = asyncio.create_task(self.runner.start(int(asyncio.get_running_loop().time() * 1000) + PATIENT_MS))
        (await self.asked(InitProducerIdRequest)).good(epoch(0))
        await starting

    async def block(self) -> Transaction:
        """A transaction in an ``async with`` block, whose body begins."""
        await self.started()
        transaction = Transaction(self.runner)
        await transaction.__aenter__()
        return transaction

    async def begun(self, *, sent: bool = True, old: bool = True) -> None:
        """A scene with an open transaction in which something was sent, and which may have timed out if it is old."""
        await self.started()
        await self.runner.begin()
        if old:
            self.runner._fate.began_ms -= self.runner._transaction_timeout_ms
        if sent:
            self.partitions.sent(TopicPartition("orders", 0))

    async def begun_again(self) -> None:
        """A scene with an open transaction that follows right after the commit of the first one."""
        await self.begun()
        commit = asyncio.create_task(self.runner.commit())
        (await self.asked(EndTxnRequest)).good(ended(1))
        await commit
        await self.runner.begin()

    async def prepared(self, *, old: bool = True) -> None:
        """A scene with a prepared transaction."""
        await self.begun(old=old)
        prepare = asyncio.create_task(self.runner.prepare())
        (await self.asked(DescribeTransactionsRequest)).good(described(self))
        await prepare

    async def perhaps_committed(self) -> None:
        """A scene with a transaction whose commit may have succeeded, and was then refused."""
        commit = asyncio.create_task(self.runner.commit())
        refusal = TransactionAbortableError("for example")
        (await self.asked(EndTxnRequest)).bad(refusal, maybe_written=True, abortable=True)
        with pytest.raises(TransactionAbortableError) as refused:
            await commit
        assert refused.value.maybe_written

    async def aborts(self) -> None:
        """The open transaction is aborted, at the first request."""
        abort = asyncio.create_task(self.runner.abort())
        (await self.asked(EndTxnRequest)).good()
        await abort

    async def begins_with_a_new_epoch(self) -> None:
        """The next transaction begins, and the coordinator is asked for an epoch first."""
        begin = asyncio.create_task(self.runner.begin())
        (await self.asked(InitProducerIdRequest)).good(epoch(1))
        await begin

    async def asked(self, expected: type[Message]) -> Question:
        return await self.coordinators.asked(expected)


def epoch(number: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=PID, producer_epoch=number)


def ended(number: int) -> EndTxnResponse:
    return EndTxnResponse(producer_id=PID, producer_epoch=number)


def fenced() -> ProducerFencedError:
    return ProducerFencedError("fenced")


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


# --- commit and abort -------------------------------------------------------------------------------------------------


async def test_a_commit_waits_for_the_records_before_it_asks(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    scene.records.pending = True
    commit = asyncio.create_task(scene.runner.commit())
    await turns()
    assert scene.coordinators.is_quiet
    assert not scene.records.admits
    scene.records.all_end()
    question = await scene.asked(EndTxnRequest)
    assert question.request == EndTxnRequest(transactional_id="id", producer_id=PID, producer_epoch=0, committed=True)
    question.good(ended(1))
    await commit
    assert scene.state is S.READY
    assert scene.sequences.epoch == (1 if version == 2 else 0)
    assert scene.records.calls == ["init", "begin", "commit"]


@pytest.mark.parametrize("committed", [True, False])
async def test_nothing_to_end(version: int, committed: bool) -> None:
    scene = Scene(version)
    await scene.begun(sent=False)
    await (scene.runner.commit() if committed else scene.runner.abort())
    assert scene.coordinators.is_quiet
    assert scene.state is S.READY


async def test_an_abort_drops_unsent_records_and_waits_for_the_others(version: int) -> None:
    """Unsent records are dropped; before V2, batches in doubt are retried until they are resolved."""
    scene = Scene(version)
    await scene.begun()
    scene.records.pending = True
    abort = asyncio.create_task(scene.runner.abort())
    await turns()
    assert scene.records.dropped == [(None, version == 2)]
    assert scene.coordinators.is_quiet
    assert not scene.partitions.sending
    assert not scene.records.admits, "a record of another task would stay for the next transaction"
    scene.records.all_end()
    question = await scene.asked(EndTxnRequest)
    assert not question.request.committed
    question.good(ended(1))
    await abort
    assert scene.state is S.READY


@pytest.mark.parametrize("committed", [True, False])
async def test_a_lost_answer_of_the_end(version: int, committed: bool) -> None:
    """Before V2 the lost request may arrive late and must not affect the next transaction: a new epoch is needed."""
    scene = Scene(version)
    await scene.begun()
    ending = asyncio.create_task(scene.runner.commit() if committed else scene.runner.abort())
    question = await scene.asked(EndTxnRequest)
    question.lost()
    question.good(ended(1))
    await ending
    beginning = asyncio.create_task(scene.runner.begin())
    if version == 1:
        question = await scene.asked(InitProducerIdRequest)
        assert (question.request.producer_id, question.request.producer_epoch) == (PID, 0)
        assert scene.state is S.INITIALIZING
        question.good(epoch(1))
    await beginning
    assert scene.state is S.IN_TRANSACTION
    assert scene.sequences.epoch == 1
    assert scene.coordinators.is_quiet


async def test_brokers_that_give_no_new_epoch() -> None:
    scene = Scene(1)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    question = await scene.asked(EndTxnRequest)
    question.lost()
    question.good()
    await commit
    begin = asyncio.create_task(scene.runner.begin())
    (await scene.asked(InitProducerIdRequest)).bad(UnsupportedVersionError("too old"))
    with pytest.raises(UnsupportedVersionError, match=r"Kafka 2\.5") as raised:
        await begin
    assert raised.value.fatal
    assert scene.state is S.FATAL_ERROR


async def test_a_cluster_that_learns_v2_while_a_producer_runs() -> None:
    """The first transaction with V2 has a new epoch: a late request of the last one without V2 can't become part of it.

    Source: KIP-890, "client upgrade".
    """
    scene = Scene(1)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    (await scene.asked(EndTxnRequest)).good()
    await commit
    scene.version = 2
    await scene.begins_with_a_new_epoch()
    assert scene.sequences.epoch == 1
    assert scene.partitions.version == 2


async def test_commit_of_a_spoilt_transaction(version: int) -> None:
    """There is no request, the error is that of the record, and abort helps."""
    scene = Scene(version)
    await scene.begun()
    scene.records.pending = True
    commit = asyncio.create_task(scene.runner.commit())
    await turns()
    scene.runner.batch_failed(RecordTooLargeError("too large"))
    with pytest.raises(RecordTooLargeError) as raised:
        await commit
    assert raised.value.abortable
    assert scene.state is S.ABORTABLE_ERROR
    assert scene.coordinators.is_quiet
    scene.records.all_end()
    abort = asyncio.create_task(scene.runner.abort())
    (await scene.asked(EndTxnRequest)).good(ended(1))
    await abort
    assert scene.state is S.READY


async def test_commit_or_abort(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit(or_abort=True))
    (await scene.asked(EndTxnRequest)).bad(RecordTooLargeError("for example"), abortable=True)
    question = await scene.asked(EndTxnRequest)
    assert not question.request.committed
    question.good(ended(1))
    with pytest.raises(RecordTooLargeError):
        await commit
    assert scene.state is S.READY


async def test_commit_or_abort_of_a_producer_that_was_fenced(caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing left to abort, so no failed abort is logged either."""
    scene = Scene(1)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit(or_abort=True))
    (await scene.asked(EndTxnRequest)).bad(fenced(), fatal=True)
    with pytest.raises(ProducerFencedError):
        await commit
    assert scene.state is S.FATAL_ERROR
    assert scene.coordinators.is_quiet
    assert not caplog.records


# --- fenced, or only too slow -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ProducerFencedError, InvalidTxnStateError])
async def test_the_end_is_refused_before_v2(error: type[KafkaError]) -> None:
    scene = Scene(1)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    (await scene.asked(EndTxnRequest)).bad(error("refused"), fatal=True)
    with pytest.raises(error) as raised:
        await commit
    assert raised.value.fatal
    assert not raised.value.maybe_written
    assert scene.state is S.FATAL_ERROR
    assert len(scene.records.failures) == 1


async def test_the_end_is_refused_and_nobody_has_taken_over() -> None:
    """V2: InitProducerId shows that the coordinator has aborted the transaction, and returns the next epoch."""
    scene = Scene(2)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    (await scene.asked(EndTxnRequest)).bad(fenced(), fatal=True)
    question = await scene.asked(InitProducerIdRequest)
    assert (question.request.producer_id, question.request.producer_epoch) == (PID, 0)
    question.good(epoch(1))
    with pytest.raises(InvalidProducerEpochError, match="transaction_timeout_ms=1000") as raised:
        await commit
    assert raised.value.abortable
    assert scene.state is S.ABORTABLE_ERROR
    await scene.runner.abort()
    assert scene.coordinators.is_quiet
    assert scene.state is S.READY
    assert scene.sequences.epoch == 1


async def test_the_end_is_refused_and_somebody_has_taken_over() -> None:
    scene = Scene(2)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    (await scene.asked(EndTxnRequest)).bad(fenced(), fatal=True)
    (await scene.asked(InitProducerIdRequest)).bad(fenced(), fatal=True)
    with pytest.raises(ProducerFencedError) as raised:
        await commit
    assert raised.value.fatal
    assert not raised.value.maybe_written


@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction"])
async def test_the_end_is_refused_and_somebody_has_taken_over_with_another_id(version: int, name: str) -> None:
    """The former producer id had no epochs left. That is fencing, not a transactional id that was forgotten."""
    scene = Scene(version)
    await scene.begun()
    call = asyncio.create_task(cast(Coroutine[Any, Any, Any], CALLS[name](scene)))
    (await scene.asked(EndTxnRequest)).bad(InvalidProducerIdMappingError("another id"), fatal=True)
    (await scene.asked(InitProducerIdRequest)).bad(fenced(), fatal=True)
    with pytest.raises(ProducerFencedError) as raised:
        await call
    assert raised.value.fatal
    assert not raised.value.maybe_written


async def test_a_commit_that_may_have_been_done_is_not_called_aborted(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    (await scene.asked(EndTxnRequest)).bad(fenced(), maybe_written=True, fatal=True)
    if version == 2:
        (await scene.asked(DescribeTransactionsRequest)).good(described(scene, "Empty", 2))
    with pytest.raises(ProducerFencedError) as raised:
        await commit
    assert raised.value.fatal
    assert raised.value.maybe_written
    assert scene.coordinators.is_quiet


@pytest.mark.parametrize("refusal", [InvalidTxnStateError, ProducerFencedError])
async def test_a_commit_whose_repetition_is_refused_and_that_was_not_done(refusal: type[KafkaError]) -> None:
    """V2: the coordinator says that it aborted the transaction of this epoch, so a newer producer is taking over."""
    scene = Scene(2)
    await scene.begun(old=False)
    commit = asyncio.create_task(scene.runner.commit())
    (await scene.asked(EndTxnRequest)).bad(refusal("nothing to end"), maybe_written=True, fatal=True)
    (await scene.asked(DescribeTransactionsRequest)).good(described(scene, "CompleteAbort", 1))
    with pytest.raises(ProducerFencedError, match="open for less than transaction_timeout_ms=1000") as raised:
        await commit
    assert raised.value.fatal
    assert not raised.value.maybe_written
    assert scene.coordinators.is_quiet


@pytest.mark.parametrize("refusal", [InvalidTxnStateError, ProducerFencedError])
async def test_an_abort_after_a_commit_that_may_have_been_done(version: int, refusal: type[KafkaError]) -> None:
    """The coordinator says that the transaction can only be aborted, then that there is nothing to abort.

    A new epoch would prove nothing: there is one after a commit too.
    """
    scene = Scene(version)
    await scene.begun()
    scene.partitions.may_have_added()
    await scene.perhaps_committed()
    abort = asyncio.create_task(scene.runner.abort())
    (await scene.asked(EndTxnRequest)).bad(refusal("nothing to end"), fatal=True)
    if version == 2:
        (await scene.asked(DescribeTransactionsRequest)).good(described(scene, "CompleteCommit", 1))
    await turns()
    assert scene.coordinators.is_quiet
    with pytest.raises(refusal) as raised:
        await abort
    assert raised.value.fatal
    assert raised.value.maybe_written


async def test_an_abort_after_a_commit_that_was_not_done() -> None:
    """V2: the coordinator says that the transaction was aborted, for whatever reason."""
    scene = Scene(2)
    await scene.begun()
    await scene.perhaps_committed()
    abort = asyncio.create_task(scene.runner.abort())
    (await scene.asked(EndTxnRequest)).bad(InvalidTxnStateError("nothing to end"), fatal=True)
    (await scene.asked(DescribeTransactionsRequest)).good(described(scene, "CompleteAbort", 1))
    (await scene.asked(InitProducerIdRequest)).good(epoch(2))
    await abort
    assert scene.state is S.READY
    assert scene.sequences.epoch == 2


async def test_an_abort_after_a_commit_of_which_nothing_is_known() -> None:
    scene = Scene(2)
    await scene.begun()
    await scene.perhaps_committed()
    abort = asyncio.create_task(scene.runner.abort())
    (await scene.asked(EndTxnRequest)).bad(InvalidTxnStateError("nothing to end"), fatal=True)
    (await scene.asked(DescribeTransactionsRequest)).bad(UnsupportedVersionError("too old"))
    with pytest.raises(InvalidTxnStateError) as raised:
        await abort
    assert raised.value.fatal
    assert raised.value.maybe_written
    assert scene.coordinators.is_quiet


@pytest.mark.parametrize("committed", [True, False])
async def test_a_prepared_transaction_that_somebody_else_has_committed(version: int, committed: bool) -> None:
    """Another producer may own the id since; the commit of a committed transaction still succeeds."""
    scene = Scene(version)
    await scene.prepared()
    end = asyncio.create_task(scene.runner.commit() if committed else scene.runner.abort())
    (await scene.asked(EndTxnRequest)).bad(fenced(), fatal=True)
    if version == 2:
        (await scene.asked(DescribeTransactionsRequest)).good(described(scene, "Empty", 2))
    with pytest.raises(ProducerFencedError) as raised:
        await end
    assert raised.value.fatal
    assert raised.value.maybe_written
    assert scene.coordinators.is_quiet


async def test_an_abort_of_a_prepared_transaction_that_was_aborted_for_its_age() -> None:
    scene = Scene(2)
    await scene.prepared()
    abort = asyncio.create_task(scene.runner.abort())
    (await scene.asked(EndTxnRequest)).bad(fenced(), fatal=True)
    (await scene.asked(DescribeTransactionsRequest)).good(described(scene, "CompleteAbort", 1))
    (await scene.asked(InitProducerIdRequest)).good(epoch(2))
    await abort
    assert scene.state is S.READY


async def test_a_young_prepared_transaction_that_somebody_else_has_aborted() -> None:
    """Its age says nothing about who ended it, so the coordinator is asked who has the transactional id."""
    scene = Scene(2)
    await scene.prepared(old=False)
    commit = asyncio.create_task(scene.runner.commit())
    (await scene.asked(EndTxnRequest)).bad(fenced(), fatal=True)
    (await scene.asked(DescribeTransactionsRequest)).good(described(scene, "CompleteAbort", 1))
    (await scene.asked(InitProducerIdRequest)).good(epoch(2))
    with pytest.raises(InvalidProducerEpochError) as raised:
        await commit
    assert raised.value.abortable
    await scene.runner.abort()
    assert scene.state is S.READY


async def test_a_leader_knows_a_newer_epoch(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    assert scene.runner.epoch_refused(InvalidProducerEpochError("old"))
    assert scene.runner.epoch_refused(InvalidProducerEpochError("the next batch hears the same"))
    (await scene.asked(InitProducerIdRequest)).good(epoch(3))
    await turns()
    assert scene.coordinators.is_quiet
    assert scene.state is S.ABORTABLE_ERROR
    await scene.runner.abort()
    assert scene.coordinators.is_quiet
    assert scene.sequences.epoch == 3


@pytest.mark.parametrize("call", ["commit", "prepare"])
async def test_a_leader_that_takes_back_what_it_said_of_the_epoch(version: int, call: str) -> None:
    """The coordinator has been asked already, which ends the transaction: it would hit the next, or a prepared one."""
    scene = Scene(version)
    await scene.begun()
    assert scene.runner.epoch_refused(InvalidProducerEpochError("old"))
    question = await scene.asked(InitProducerIdRequest)
    ending = asyncio.create_task(getattr(scene.runner, call)())
    await turns()
    assert scene.coordinators.is_quiet
    question.good(epoch(3))
    with pytest.raises(InvalidProducerEpochError) as raised:
        await ending
    assert raised.value.abortable
    await scene.runner.abort()
    assert scene.state is S.READY


async def test_a_leader_knows_a_newer_epoch_in_a_young_transaction(version: int) -> None:
    """It can't have timed out. The coordinator is not asked, or it would take the id back from the newer producer."""
    scene = Scene(version)
    await scene.begun(old=False)
    scene.runner.epoch_refused(InvalidProducerEpochError("old"))
    await turns()
    assert scene.coordinators.is_quiet
    assert scene.state is S.FATAL_ERROR
    with pytest.raises(ProducerFencedError, match=r"newer producer has the transactional id 'id'.*timeout_ms=1000"):
        await scene.runner.commit()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
async def test_a_leader_that_knows_a_newer_epoch_ends_nothing_in_the_middle_of_its_answer(version: int) -> None:
    """The answer's batches are still being worked on, and an eager task would fail them all."""
    scene = Scene(version)
    await scene.begun(old=False)
    loop = asyncio.get_running_loop()
    make_tasks_eager(loop)
    try:
        assert scene.runner.epoch_refused(InvalidProducerEpochError("old"))
    finally:
        loop.set_task_factory(None)
    assert scene.state is S.IN_TRANSACTION
    await turns()
    assert scene.state is S.FATAL_ERROR


@pytest.mark.parametrize("error", [ProducerFencedError, InvalidTxnStateError])
async def test_the_end_of_a_young_transaction_is_refused(error: type[KafkaError]) -> None:
    scene = Scene(2)
    await scene.begun(old=False)
    commit = asyncio.create_task(scene.runner.commit())
    (await scene.asked(EndTxnRequest)).bad(error("refused"), fatal=True)
    with pytest.raises(ProducerFencedError) as raised:
        await commit
    assert raised.value.fatal
    assert not raised.value.maybe_written
    assert scene.coordinators.is_quiet


async def test_a_leader_knows_a_newer_epoch_and_the_broker_is_old() -> None:
    scene = Scene(1)
    await scene.begun()
    assert scene.runner.epoch_refused(InvalidProducerEpochError("old"))
    (await scene.asked(InitProducerIdRequest)).bad(UnsupportedVersionError("too old"))
    await turns()
    assert scene.state is S.ABORTABLE_ERROR
    assert not scene.runner.epoch_refused(InvalidProducerEpochError("nobody is asked any more"))


# --- the coordinator has forgotten the transactional id ---------------------------------------------------------------


def forgotten() -> InvalidProducerIdMappingError:
    return InvalidProducerIdMappingError("unknown")


def new_id() -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=PID + 1, producer_epoch=0)


async def is_over(scene: Scene) -> None:
    """There is nothing to end, and the next transaction begins with the new id, without another question."""
    with pytest.raises(InvalidProducerIdMappingError, match=r"'id'.*transactional\.id\.expiration\.ms") as raised:
        await scene.runner.commit()
    assert (raised.value.abortable, raised.value.fatal) == (True, False)
    await scene.runner.abort()
    await scene.runner.begin()
    assert scene.coordinators.is_quiet
    assert (scene.sequences.producer_id, scene.sequences.epoch) == (PID + 1, 0)


async def test_forgotten_as_the_first_partitions_are_added() -> None:
    scene = Scene(1)
    await scene.begun(sent=False)
    scene.partitions.may_send(TopicPartition("orders", 0))
    (await scene.asked(AddPartitionsToTxnRequest)).bad(forgotten(), fatal=True)
    question = await scene.asked(InitProducerIdRequest)
    assert (question.request.producer_id, question.request.producer_epoch) == (PID, 0)
    question.good(new_id())
    await turns()
    await is_over(scene)


async def test_forgotten_as_a_leader_learns() -> None:
    scene = Scene(2)
    await scene.begun()
    assert scene.runner.epoch_refused(forgotten())
    (await scene.asked(InitProducerIdRequest)).good(new_id())
    await turns()
    await is_over(scene)


async def test_offsets_that_begin_a_transaction_wait_for_the_end_of_the_previous_one() -> None:
    scene = Scene(2)
    await scene.begun_again()
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    (await scene.asked(DescribeTransactionsRequest)).good(described(scene, "PrepareCommit"))
    question = await scene.asked(DescribeTransactionsRequest)
    assert not scene.partitions.started
    question.good(described(scene, "CompleteCommit"))
    question = await scene.asked(TxnOffsetCommitRequest)
    assert not scene.partitions.may_send(TopicPartition("orders", 0))
    wakes = scene.records.wakes
    question.good(TxnOffsetCommitResponse(topics=[]))
    await sending
    assert scene.partitions.may_send(TopicPartition("orders", 0))
    assert scene.records.wakes > wakes


async def test_offsets_behind_a_batch_do_not_wait() -> None:
    scene = Scene(2)
    await scene.begun_again()
    scene.partitions.sent(TopicPartition("orders", 0))
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    (await scene.asked(TxnOffsetCommitRequest)).good(TxnOffsetCommitResponse(topics=[]))
    await sending


async def test_forgotten_as_offsets_are_sent(version: int) -> None:
    scene = Scene(version)
    await scene.begun(sent=False)
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    (await scene.asked(AddOffsetsToTxnRequest if version == 1 else TxnOffsetCommitRequest)).bad(forgotten(), fatal=True)
    (await scene.asked(InitProducerIdRequest)).good(new_id())
    with pytest.raises(InvalidProducerIdMappingError) as raised:
        await sending
    assert raised.value.abortable
    await is_over(scene)


async def test_all_who_find_it_forgotten_ask_once(version: int) -> None:
    """A second question under the old id would be refused as that of a fenced producer."""
    scene = Scene(version)
    await scene.begun(sent=False)
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    if version == 1:
        scene.partitions.may_send(TopicPartition("orders", 0))
        (await scene.asked(AddOffsetsToTxnRequest)).bad(forgotten(), fatal=True)
        (await scene.asked(AddPartitionsToTxnRequest)).bad(forgotten(), fatal=True)
    else:
        (await scene.asked(TxnOffsetCommitRequest)).bad(forgotten(), fatal=True)
        scene.runner.epoch_refused(forgotten())
    question = await scene.asked(InitProducerIdRequest)
    await turns()
    assert scene.coordinators.is_quiet
    question.good(new_id())
    with pytest.raises(InvalidProducerIdMappingError):
        await sending
    await turns()
    await is_over(scene)


async def test_forgotten_before_a_request_that_was_lost() -> None:
    """Nothing shows whether it began a transaction until the abort finds that there is none."""
    scene = Scene(1)
    await scene.begun(sent=False)
    scene.partitions.may_have_added()
    abort = asyncio.create_task(scene.runner.abort())
    (await scene.asked(EndTxnRequest)).bad(forgotten(), fatal=True)
    await abort
    begin = asyncio.create_task(scene.runner.begin())
    (await scene.asked(InitProducerIdRequest)).good(new_id())
    await begin


async def test_forgotten_before_records_that_were_lost() -> None:
    """With V2 a record begins the transaction, and the abort drops it without an answer."""
    scene = Scene(2)
    await scene.begun()
    abort = asyncio.create_task(scene.runner.abort())
    (await scene.asked(EndTxnRequest)).bad(forgotten(), fatal=True)
    (await scene.asked(InitProducerIdRequest)).good(new_id())
    await abort
    assert scene.state is S.READY


async def test_not_forgotten_but_taken_over(version: int) -> None:
    """A newer producer with another id is known by the same error; InitProducerId tells them apart."""
    scene = Scene(version)
    await scene.begun()
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    (await scene.asked(AddOffsetsToTxnRequest if version == 1 else TxnOffsetCommitRequest)).bad(forgotten(), fatal=True)
    (await scene.asked(InitProducerIdRequest)).bad(fenced(), fatal=True)
    with pytest.raises(ProducerFencedError) as raised:
        await sending
    assert raised.value.fatal
    assert scene.state is S.FATAL_ERROR


async def test_forgotten_by_brokers_that_can_not_tell() -> None:
    """Before 2.5 InitProducerId takes the id from whoever has it, so a producer that runs can't ask."""
    scene = Scene(1)
    await scene.begun(sent=False)
    scene.partitions.may_send(TopicPartition("orders", 0))
    (await scene.asked(AddPartitionsToTxnRequest)).bad(forgotten(), fatal=True)
    (await scene.asked(InitProducerIdRequest)).bad(UnsupportedVersionError("too old"), fatal=True)
    await turns()
    with pytest.raises(InvalidProducerIdMappingError) as raised:
        await scene.runner.commit()
    assert raised.value.fatal


# --- partitions and offsets -------------------------------------------------------------------------------------------


async def test_partitions_are_added_together() -> None:
    scene = Scene(1)
    await scene.begun(sent=False)
    for place in TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("orders", 0):
        assert not scene.partitions.may_send(place)
    question = await scene.asked(AddPartitionsToTxnRequest)
    assert [(topic.name, topic.partitions) for topic in question.request.topics] == [("orders", [0, 1])]
    question.good(AddPartitionsToTxnResponse(results_by_topic=[]))
    await turns()
    assert scene.records.wakes == 1
    assert scene.partitions.may_send(TopicPartition("orders", 1))


async def test_a_lost_answer_of_adding_partitions() -> None:
    """The lost request may arrive late and begin a transaction that never ends: the next one has a new epoch."""
    scene = Scene(1)
    await scene.begun(sent=False)
    scene.partitions.may_send(TopicPartition("orders", 0))
    question = await scene.asked(AddPartitionsToTxnRequest)
    question.lost()
    question.good(AddPartitionsToTxnResponse(results_by_topic=[]))
    commit = asyncio.create_task(scene.runner.commit())
    (await scene.asked(EndTxnRequest)).good()
    await commit
    await scene.begins_with_a_new_epoch()


@pytest.mark.parametrize("what", ["partitions", "group"])
@pytest.mark.parametrize("arrived", [True, False])
async def test_what_was_perhaps_added(arrived: bool, what: str) -> None:
    """Adding failed after a lost answer: an abort needs a request, and "there is nothing to end" is fine."""
    scene = Scene(1)
    await scene.begun(sent=False)
    refusal = RecordTooLargeError("for example")
    if what == "partitions":
        scene.partitions.may_send(TopicPartition("orders", 0))
        (await scene.asked(AddPartitionsToTxnRequest)).bad(refusal, maybe_written=True, abortable=True)
    else:
        sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
        (await scene.asked(AddOffsetsToTxnRequest)).bad(refusal, maybe_written=True, abortable=True)
        with pytest.raises(RecordTooLargeError):
            await sending
    await turns()
    assert scene.state is S.ABORTABLE_ERROR
    abort = asyncio.create_task(scene.runner.abort())
    question = await scene.asked(EndTxnRequest)
    if arrived:
        question.good()
    else:
        question.bad(InvalidTxnStateError("nothing to end"), fatal=True)
    await abort
    assert scene.state is S.READY
    await scene.begins_with_a_new_epoch()


@pytest.mark.parametrize("what", ["partitions", "group"])
async def test_what_was_perhaps_added_to_a_transaction_that_had_begun(what: str) -> None:
    """Arriving after the abort, the lost request would begin a transaction that nothing ends."""
    scene = Scene(1)
    await scene.begun()
    if what == "partitions":
        scene.partitions.may_send(TopicPartition("orders", 1))
        question = await scene.asked(AddPartitionsToTxnRequest)
    else:
        sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
        question = await scene.asked(AddOffsetsToTxnRequest)
    question.lost()
    question.bad(RecordTooLargeError("for example"), maybe_written=True, abortable=True)
    if what == "group":
        with pytest.raises(RecordTooLargeError):
            await sending
    await turns()
    assert scene.state is S.ABORTABLE_ERROR
    await scene.aborts()
    await scene.begins_with_a_new_epoch()


async def test_a_commit_that_was_lost_and_then_refused() -> None:
    """Arriving after the abort, the lost request would commit the next transaction half-way."""
    scene = Scene(1)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    question = await scene.asked(EndTxnRequest)
    question.lost()
    question.bad(RecordTooLargeError("for example"), maybe_written=True, abortable=True)
    with pytest.raises(RecordTooLargeError):
        await commit
    await scene.aborts()
    await scene.begins_with_a_new_epoch()


async def test_a_prepared_transaction_whose_commit_was_refused() -> None:
    """Others may still end it late, so the next one has a new epoch, whichever call ended this one."""
    scene = Scene(1)
    await scene.prepared()
    commit = asyncio.create_task(scene.runner.commit())
    (await scene.asked(EndTxnRequest)).bad(InvalidProducerEpochError("for example"), abortable=True)
    with pytest.raises(InvalidProducerEpochError):
        await commit
    await scene.aborts()
    await scene.begins_with_a_new_epoch()
    commit = asyncio.create_task(scene.runner.commit())
    await commit
    await scene.runner.begin()
    assert scene.coordinators.is_quiet


async def test_an_abort_waits_for_partitions_that_are_being_added() -> None:
    scene = Scene(1)
    await scene.begun(sent=False)
    scene.partitions.may_send(TopicPartition("orders", 0))
    adding = await scene.asked(AddPartitionsToTxnRequest)
    abort = asyncio.create_task(scene.runner.abort())
    await turns()
    assert scene.coordinators.is_quiet
    assert not adding.wanted()
    adding.good(AddPartitionsToTxnResponse(results_by_topic=[]))
    (await scene.asked(EndTxnRequest)).good()
    await abort


async def test_the_group_of_offsets_is_added_only_before_v2(version: int) -> None:
    scene = Scene(version)
    await scene.begun(sent=False)
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    if version == 1:
        (await scene.asked(AddOffsetsToTxnRequest)).good(AddOffsetsToTxnResponse())
    question = await scene.asked(TxnOffsetCommitRequest)
    assert (question.request.group_id, question.request.producer_id) == ("group", PID)
    question.good(TxnOffsetCommitResponse(topics=[]))
    await sending
    assert scene.partitions.started


async def test_offsets_are_refused(version: int) -> None:
    scene = Scene(version)
    await scene.begun(sent=False)
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    if version == 1:
        (await scene.asked(AddOffsetsToTxnRequest)).good(AddOffsetsToTxnResponse())
    (await scene.asked(TxnOffsetCommitRequest)).bad(RecordTooLargeError("for example"), abortable=True)
    with pytest.raises(RecordTooLargeError):
        await sending
    with pytest.raises(RecordTooLargeError):
        await scene.runner.commit()
    assert scene.coordinators.is_quiet


@pytest.mark.parametrize("ends", ["abort", "close"])
async def test_an_abort_gives_up_offsets_that_find_no_end(version: int, ends: str) -> None:
    """Offsets of a missing partition would be retried forever, and no other call could be made."""
    scene = Scene(version)
    await scene.begun()
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    if version == 1:
        (await scene.asked(AddOffsetsToTxnRequest)).good(AddOffsetsToTxnResponse())
    question = await scene.asked(TxnOffsetCommitRequest)
    assert question.wanted()
    ending = asyncio.create_task(scene.runner.abort() if ends == "abort" else scene.runner.close(None))
    await turns()
    assert not question.wanted()
    question.bad(UnknownTopicOrPartitionError("for example"))
    with pytest.raises(UnknownTopicOrPartitionError) as raised:
        await sending
    assert (raised.value.abortable, raised.value.fatal) == (True, False)
    end = await scene.asked(EndTxnRequest)
    assert not end.request.committed
    end.good(ended(1))
    await ending
    assert scene.state is S.READY


async def test_an_abort_does_not_hide_that_the_producer_is_fenced() -> None:
    scene = Scene(1)
    await scene.begun()
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    question = await scene.asked(AddOffsetsToTxnRequest)
    abort = asyncio.create_task(scene.runner.abort())
    await turns()
    question.bad(fenced())
    for call in (sending, abort):
        with pytest.raises(ProducerFencedError):
            await call
    assert scene.state is S.FATAL_ERROR


async def test_offsets_are_wanted_again_in_the_next_transaction() -> None:
    scene = Scene(2)
    await scene.begun(sent=False)
    await scene.runner.abort()
    await scene.runner.begin()
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    question = await scene.asked(TxnOffsetCommitRequest)
    assert question.wanted()
    question.good(TxnOffsetCommitResponse(topics=[]))
    await sending


@pytest.mark.parametrize("refused", [False, True])
async def test_a_lost_answer_to_offsets(version: int, refused: bool) -> None:
    """Arriving late, they would overwrite those of the next transaction; before V2 only a new epoch prevents that."""
    scene = Scene(version)
    await scene.begun(sent=False)
    sending = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    if version == 1:
        (await scene.asked(AddOffsetsToTxnRequest)).good(AddOffsetsToTxnResponse())
    question = await scene.asked(TxnOffsetCommitRequest)
    question.lost()
    if refused:
        question.bad(RecordTooLargeError("for example"), maybe_written=True, abortable=True)
    else:
        question.good(TxnOffsetCommitResponse(topics=[]))
    await asyncio.wait([sending])
    assert (sending.exception() is not None) is refused
    end = asyncio.create_task(scene.runner.abort() if refused else scene.runner.commit())
    (await scene.asked(EndTxnRequest)).good(ended(1))
    await end
    begin = asyncio.create_task(scene.runner.begin())
    if version == 1:
        (await scene.asked(InitProducerIdRequest)).good(epoch(1))
    await begin
    assert scene.coordinators.is_quiet


# --- max_block_ms passes ----------------------------------------------------------------------------------------------

Calls = Callable[[Scene], Awaitable[Any]]

CALLS: dict[str, Calls] = {
    "begin_transaction": lambda scene: scene.runner.begin(),
    "send_offsets_to_transaction": lambda scene: scene.runner.send_offsets(OFFSETS, GROUP),
    "prepare_transaction": lambda scene: scene.runner.prepare(),
    "commit_transaction": lambda scene: scene.runner.commit(),
    "abort_transaction": lambda scene: scene.runner.abort(),
}


def described(scene: Scene, state: str = "Ongoing", newer: int = 0) -> DescribeTransactionsResponse:
    """The coordinator's description of the id: with the scene's epoch, or one that is newer by this number."""
    told = DescribedState(
        transactional_id="id",
        transaction_state=state,
        producer_id=PID,
        producer_epoch=scene.sequences.epoch + newer,
        transaction_start_time_ms=77,
    )
    return DescribeTransactionsResponse(transaction_states=[told])


async def waiting(scene: Scene, name: str) -> None:
    """A scene in which the call has to wait for an answer."""
    if name == "begin_transaction":
        await scene.begun()
        commit = asyncio.create_task(scene.runner.commit())
        question = await scene.asked(EndTxnRequest)
        question.lost()
        question.good()
        await commit
    else:
        await scene.begun()


ANSWERS: dict[str, Callable[[Scene, Question], None]] = {
    "begin_transaction": lambda scene, question: question.good(epoch(1)),
    "send_offsets_to_transaction": lambda scene, question: question.bad(RecordTooLargeError("late"), abortable=True),
    "prepare_transaction": lambda scene, question: question.good(described(scene)),
    "commit_transaction": lambda scene, question: question.good(ended(1)),
    "abort_transaction": lambda scene, question: question.good(ended(1)),
}


@pytest.mark.parametrize("name", CALLS)
async def test_max_block_ms_passes(name: str) -> None:
    """The call raises, and goes on; the same call again gets its result."""
    scene = Scene(1)
    await waiting(scene, name)
    scene.hurry()
    scene.coordinators.last_error = ConnectionLostError("node 1 is gone")
    with pytest.raises(TransactionTimeoutError, match=rf"{name}\(\).*max_block_ms=30.*node 1 is gone") as raised:
        await CALLS[name](scene)
    assert raised.value.maybe_written is (name == "commit_transaction")
    question = await scene.coordinators.asked(
        {
            "begin_transaction": InitProducerIdRequest,
            "send_offsets_to_transaction": AddOffsetsToTxnRequest,
            "prepare_transaction": DescribeTransactionsRequest,
        }.get(name, EndTxnRequest)
    )
    with pytest.raises(TransactionTimeoutError):
        await CALLS[name](scene)  # still no answer
    scene.be_patient()
    ANSWERS[name](scene, question)
    await turns()
    if name == "send_offsets_to_transaction":
        with pytest.raises(RecordTooLargeError):
            await CALLS[name](scene)  # a new call, and the transaction can only be aborted
    else:
        result = await CALLS[name](scene)
        if name == "prepare_transaction":
            assert (result.producer_id, result.epoch, result.started_ms) == (PID, 0, 77)
    assert scene.coordinators.is_quiet


@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction", "prepare_transaction"])
async def test_max_block_ms_passes_before_the_records_end(name: str) -> None:
    scene = Scene(2)
    await scene.begun()
    scene.hurry()
    scene.records.pending = True
    with pytest.raises(TransactionTimeoutError) as raised:
        await CALLS[name](scene)
    assert raised.value.maybe_written is (name == "commit_transaction")  # it goes on
    assert scene.coordinators.is_quiet
    scene.be_patient()
    scene.records.all_end()
    question = await scene.asked(DescribeTransactionsRequest if name == "prepare_transaction" else EndTxnRequest)
    ANSWERS[name](scene, question)
    await turns()
    await CALLS[name](scene)


async def test_max_block_ms_passes_at_the_start() -> None:
    scene = Scene(2)
    with pytest.raises(TransactionTimeoutError, match=r"start\(\)"):
        await scene.runner.start(int(asyncio.get_running_loop().time() * 1000) + 20)


async def test_max_block_ms_passes_behind_a_commit(version: int) -> None:
    """The caller of abort has to know that the transaction may be committed."""
    scene = Scene(version)
    await scene.begun()
    scene.hurry()
    for call in (scene.runner.commit, scene.runner.abort):
        with pytest.raises(TransactionTimeoutError, match="commit_transaction") as raised:
            await call()
        assert raised.value.maybe_written
    (await scene.asked(EndTxnRequest)).good(ended(1))


async def test_max_block_ms_passes_in_an_abort_after_a_commit_in_doubt(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    await scene.perhaps_committed()
    scene.hurry()
    with pytest.raises(TransactionTimeoutError, match="abort_transaction") as raised:
        await scene.runner.abort()
    assert raised.value.maybe_written
    (await scene.asked(EndTxnRequest)).good(ended(1))


async def test_max_block_ms_passes_in_an_abort_of_what_is_prepared() -> None:
    """Another owner of the prepared transaction may have committed it."""
    scene = Scene(2)
    await scene.prepared()
    scene.hurry()
    with pytest.raises(TransactionTimeoutError, match="abort_transaction") as raised:
        await scene.runner.abort()
    assert raised.value.maybe_written
    (await scene.asked(EndTxnRequest)).good(ended(1))


async def test_max_block_ms_passes_in_the_abort_after_a_refused_commit(version: int) -> None:
    """It is known that it was not committed."""
    scene = Scene(version)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit(or_abort=True))
    question = await scene.asked(EndTxnRequest)
    commit.cancel()
    await asyncio.wait([commit])
    question.bad(RecordTooLargeError("for example"), abortable=True)
    abort = await scene.asked(EndTxnRequest)
    scene.hurry()
    with pytest.raises(TransactionTimeoutError) as raised:
        await scene.runner.commit()
    assert not raised.value.maybe_written
    abort.good(ended(1))


async def test_max_block_ms_passes_while_the_end_of_a_failed_producer_is_not_known(version: int) -> None:
    """EndTxn was sent, whatever else has failed since."""
    scene = Scene(version)
    await scene.begun()
    question = await left_commit(scene)
    scene.runner.failed(ProducerFailedError("a task has ended"))
    scene.hurry()
    with pytest.raises(TransactionTimeoutError) as raised:
        await scene.runner.commit()
    assert raised.value.maybe_written
    question.good(ended(1))


async def given_up(scene: Scene) -> None:
    """Offsets that hang need not wait any longer."""
    async with asyncio.timeout(GENEROUS_S):
        while not scene.runner._additions.offsets_given_up:
            await asyncio.sleep(0)


async def test_a_block_aborts_if_its_commit_never_comes_to_its_turn(version: int) -> None:
    """Offsets that wait for a partition that may never exist: nobody would end the transaction, or begin another."""
    scene = Scene(version)
    transaction = await scene.block()
    question = await left_offsets(scene, version)
    scene.hurry()
    end = asyncio.create_task(transaction.__aexit__(None, None, None))
    await turns()
    scene.be_patient()  # the abort has time
    await given_up(scene)
    question.bad(UnknownTopicOrPartitionError("no such partition"))
    abort = await scene.asked(EndTxnRequest)
    assert not abort.request.committed
    abort.good(ended(1))
    with pytest.raises(TransactionAbortedError, match="commit could not begin: send_offsets_to_transaction") as told:
        await end
    assert told.value.abortable
    assert not told.value.maybe_written
    assert isinstance(told.value.__cause__, TransactionTimeoutError)
    await scene.runner.begin()
    assert scene.state is S.IN_TRANSACTION


async def test_a_block_whose_offsets_hang_after_a_record_failed(version: int) -> None:
    """It raises the record's error, and is aborted too."""
    scene = Scene(version)
    transaction = await scene.block()
    question = await left_offsets(scene, version)
    scene.runner.batch_failed(RecordTooLargeError("for example"))
    scene.hurry()
    end = asyncio.create_task(transaction.__aexit__(None, None, None))
    await turns()
    scene.be_patient()  # the abort has time
    await given_up(scene)
    question.bad(UnknownTopicOrPartitionError("no such partition"))
    (await scene.asked(EndTxnRequest)).good(ended(1))
    with pytest.raises(RecordTooLargeError, match="for example"):
        await end
    assert scene.state is S.READY


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_abort_that_never_came_to_its_turn_goes_on(version: int, cancelled: bool, taken: bool) -> None:
    """Behind offsets that hang. A block asks for it only once: else no other transaction could ever begin."""
    scene = Scene(version)
    transaction = await scene.block()
    question = await left_offsets(scene, version)
    error = TransactionTimeoutError("offsets")
    if not cancelled:
        scene.hurry()
    end = asyncio.create_task(transaction.__aexit__(type(error), error, None))
    await given_up(scene)
    scene.be_patient()
    if cancelled:
        await turns()
        end.cancel()
        await asyncio.wait([end])
    else:
        await end
        (note,) = error.__notes__
        assert note.startswith("aborting the transaction failed too: send_offsets_to_transaction() of")
    begin = asyncio.create_task(scene.runner.begin())
    await turns()
    if taken:
        question.good(TxnOffsetCommitResponse(topics=[]))
    else:
        question.bad(UnknownTopicOrPartitionError("no such partition"))
    abort = await scene.asked(EndTxnRequest)
    assert not abort.request.committed
    abort.good(ended(1))
    await begin
    assert scene.runner.number == 2
    assert scene.state is S.IN_TRANSACTION


async def test_a_commit_behind_an_abort_that_goes_on(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    question = await left_offsets(scene, version)
    await left_abort(scene)
    commit = asyncio.create_task(scene.runner.commit())
    await turns()
    question.good(TxnOffsetCommitResponse(topics=[]))
    end = await scene.asked(EndTxnRequest)
    assert not end.request.committed
    end.good(ended(1))
    with pytest.raises(TransactionStateError, match="no open transaction"):
        await commit
    await scene.runner.abort()  # its outcome
    assert scene.coordinators.is_quiet


@pytest.mark.parametrize("time_s", [None, 0])
async def test_close_and_an_abort_that_goes_on(version: int, time_s: float | None) -> None:
    """Closing waits for it, if it has the time; after that nothing begins any more."""
    scene = Scene(version)
    await scene.begun()
    question = await left_offsets(scene, version)
    await left_abort(scene)
    close = asyncio.create_task(scene.runner.close(time_s))
    await turns()
    if time_s == 0:
        await close
    question.good(TxnOffsetCommitResponse(topics=[]))
    if time_s is None:
        end = await scene.asked(EndTxnRequest)
        await turns()
        assert not close.done()
        end.good(ended(1))
        await close
    await turns()
    assert scene.coordinators.is_quiet
    assert all(task.done() for task in scene.runner.tasks())


@pytest.mark.parametrize("fails", [False, True])
async def test_a_block_waits_for_a_commit_that_its_body_has_left(version: int, fails: bool) -> None:
    """A block that ends without an error is committed; if the commit fails, the block raises why, and is aborted."""
    scene = Scene(version)
    transaction = await scene.block()
    scene.partitions.sent(TopicPartition("orders", 0))
    question = await left_commit(scene)
    end = asyncio.create_task(transaction.__aexit__(None, None, None))
    await turns()
    assert not end.done()
    if fails:
        question.bad(TransactionAbortableError("for example"), abortable=True)
        abort = await scene.asked(EndTxnRequest)
        assert not abort.request.committed
        abort.good(ended(1))
        with pytest.raises(TransactionAbortableError):
            await end
    else:
        question.good(ended(1))
        await end
    assert scene.state is S.READY
    assert scene.coordinators.is_quiet


async def test_a_block_aborts_if_a_commit_that_its_body_has_left_has_failed(version: int) -> None:
    scene = Scene(version)
    transaction = await scene.block()
    scene.partitions.sent(TopicPartition("orders", 0))
    question = await left_commit(scene)
    question.bad(TransactionAbortableError("for example"), abortable=True)
    await turns()
    assert scene.state is S.ABORTABLE_ERROR
    end = asyncio.create_task(transaction.__aexit__(None, None, None))
    (await scene.asked(EndTxnRequest)).good(ended(1))
    with pytest.raises(TransactionAbortableError):
        await end
    assert scene.state is S.READY


@pytest.mark.parametrize("behind_offsets", [False, True])
async def test_a_block_leaves_what_another_task_prepares_meanwhile(version: int, behind_offsets: bool) -> None:
    """Whether it is committed is for another process to decide. The block waits for the end of the call."""
    scene = Scene(version)
    transaction = await scene.block()
    scene.partitions.sent(TopicPartition("orders", 0))
    offsets = await left_offsets(scene, version) if behind_offsets else None
    prepare = asyncio.create_task(scene.runner.prepare())
    await turns()
    end = asyncio.create_task(transaction.__aexit__(None, None, None))
    await turns()
    if offsets is not None:
        offsets.good(TxnOffsetCommitResponse(topics=[]))
    question = await scene.asked(DescribeTransactionsRequest)
    assert not end.done()
    question.good(described(scene))
    await end
    assert (await prepare).started_ms == 77
    assert scene.state is S.PREPARED
    assert scene.coordinators.is_quiet


async def test_a_block_aborts_if_another_task_prepares_in_vain(version: int) -> None:
    scene = Scene(version)
    transaction = await scene.block()
    scene.partitions.sent(TopicPartition("orders", 0))
    prepare = asyncio.create_task(scene.runner.prepare())
    question = await scene.asked(DescribeTransactionsRequest)
    end = asyncio.create_task(transaction.__aexit__(None, None, None))
    await turns()
    question.bad(TransactionAbortableError("for example"), abortable=True)
    abort = await scene.asked(EndTxnRequest)
    assert not abort.request.committed
    abort.good(ended(1))
    for call in (prepare, end):
        with pytest.raises(TransactionAbortableError):
            await call
    assert scene.state is S.READY


async def test_a_block_leaves_a_commit_alone_if_its_body_raises(version: int) -> None:
    """It goes on, and never turns into an abort."""
    scene = Scene(version)
    transaction = await scene.block()
    scene.partitions.sent(TopicPartition("orders", 0))
    question = await left_commit(scene)
    await transaction.__aexit__(ValueError, ValueError("in the body"), None)
    assert scene.state is S.COMMITTING
    question.good(ended(1))
    await scene.runner.commit()
    assert scene.state is S.READY


async def test_another_call_waits_for_one_that_was_left(version: int) -> None:
    """An abort behind a commit finds that the commit has succeeded; a begin continues."""
    scene = Scene(version)
    await scene.begun()
    scene.hurry()
    with pytest.raises(TransactionTimeoutError):
        await scene.runner.commit()
    with pytest.raises(TransactionTimeoutError, match="commit_transaction"):
        await scene.runner.abort()
    scene.be_patient()
    (await scene.asked(EndTxnRequest)).good(ended(1))
    await turns()
    with pytest.raises(TransactionStateError):
        await scene.runner.abort()
    await scene.runner.begin()
    assert scene.state is S.IN_TRANSACTION


@pytest.mark.parametrize("turns_before", range(1, 6))
@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction", "prepare_transaction"])
async def test_the_end_of_a_cancelled_call_waits_for_the_same_call_again(
    version: int, name: str, turns_before: int
) -> None:
    """Even if other calls wait for the cancelled one meanwhile, and are refused after it."""
    scene = Scene(version)
    await scene.begun(sent=False)
    first = asyncio.create_task(CALLS[name](scene))
    other = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    await turns(turns_before)
    first.cancel()
    result, *_ = await asyncio.gather(first, return_exceptions=True)
    if isinstance(result, asyncio.CancelledError):
        result = await CALLS[name](scene)
    if name == "prepare_transaction":
        assert result.is_empty
    else:
        assert scene.state is S.READY
    with pytest.raises(TransactionStateError):
        await other


@pytest.mark.parametrize("name", ["prepare_transaction", "commit_transaction", "send_offsets_to_transaction"])
async def test_a_call_that_waits_does_nothing_to_the_next_transaction(version: int, name: str) -> None:
    """One task aborts and begins again; another task's call was meant for the former transaction."""
    scene = Scene(version)
    await scene.begun()

    async def begin_again() -> None:
        await scene.runner.abort()
        await scene.runner.begin()

    again = asyncio.create_task(begin_again())
    question = await scene.asked(EndTxnRequest)
    late = asyncio.create_task(CALLS[name](scene))
    await turns()
    question.good(ended(1))
    await again
    with pytest.raises(TransactionStateError, match="does nothing to the next"):
        await late
    assert scene.state is S.IN_TRANSACTION
    assert scene.coordinators.is_quiet


async def test_an_abort_behind_a_commit_that_failed(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    scene.hurry()
    with pytest.raises(TransactionTimeoutError):
        await scene.runner.commit()
    scene.be_patient()
    (await scene.asked(EndTxnRequest)).bad(RecordTooLargeError("for example"), abortable=True)
    await turns()
    abort = asyncio.create_task(scene.runner.abort())
    question = await scene.asked(EndTxnRequest)
    assert not question.request.committed
    question.good(ended(1))
    await abort


@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction", "prepare_transaction"])
async def test_a_cancelled_call_goes_on(name: str) -> None:
    scene = Scene(2)
    await scene.begun()
    call = asyncio.create_task(cast(Coroutine[Any, Any, Any], CALLS[name](scene)))
    question = await scene.asked(DescribeTransactionsRequest if name == "prepare_transaction" else EndTxnRequest)
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    again = [asyncio.create_task(cast(Coroutine[Any, Any, Any], CALLS[name](scene))) for _ in range(2)]
    await turns()
    ANSWERS[name](scene, question)
    await asyncio.gather(*again)
    assert scene.coordinators.is_quiet


async def test_a_cancelled_begin_opens_nothing() -> None:
    scene = Scene(1)
    await waiting(scene, "begin_transaction")
    begin = asyncio.create_task(scene.runner.begin())
    question = await scene.asked(InitProducerIdRequest)
    begin.cancel()
    await asyncio.wait([begin])
    question.good(epoch(1))
    await turns()
    assert scene.state is S.READY
    assert not scene.records.admits
    await scene.runner.begin()
    assert scene.coordinators.is_quiet
    assert scene.state is S.IN_TRANSACTION


# --- close ------------------------------------------------------------------------------------------------------------


async def test_close_waits_for_a_commit(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    question = await scene.asked(EndTxnRequest)
    close = asyncio.create_task(scene.runner.close(None))
    await turns()
    assert not close.done()
    question.good(ended(1))
    await close
    await commit
    assert scene.runner.closed_over == 0
    assert scene.state is S.READY


async def test_close_aborts(version: int) -> None:
    """A ``transaction()`` block is told, because it would not learn of it otherwise."""
    scene = Scene(version)
    transaction = await scene.block()
    scene.partitions.sent(TopicPartition("orders", 0))
    close = asyncio.create_task(scene.runner.close(None))
    question = await scene.asked(EndTxnRequest)
    assert not question.request.committed
    with pytest.raises(ProducerClosedError, match="not committed"):
        await transaction.__aexit__(None, None, None)
    question.good(ended(1))
    await close
    assert scene.state is S.READY
    with pytest.raises(ProducerClosedError, match="not committed"):
        await transaction.__aexit__(None, None, None)
    error = ValueError("of the body")
    await transaction.__aexit__(ValueError, error, None)


async def left_offsets(scene: Scene, version: int) -> Question:
    """Send offsets and abandon the call; the next call waits for the answer."""
    offsets = asyncio.create_task(scene.runner.send_offsets(OFFSETS, GROUP))
    if version == 1:
        (await scene.asked(AddOffsetsToTxnRequest)).good(AddOffsetsToTxnResponse())
    question = await scene.asked(TxnOffsetCommitRequest)
    offsets.cancel()
    await asyncio.wait([offsets])
    return question


async def left_commit(scene: Scene) -> Question:
    """Commit and abandon the call, which goes on; the next call waits for the answer."""
    commit = asyncio.create_task(scene.runner.commit())
    question = await scene.asked(EndTxnRequest)
    commit.cancel()
    await asyncio.wait([commit])
    return question


async def left_abort(scene: Scene) -> None:
    """Abort, and abandon the call while it waits for its turn."""
    abort = asyncio.create_task(scene.runner.abort())
    await turns()
    abort.cancel()
    await asyncio.wait([abort])


async def test_close_while_a_commit_waits_for_its_turn(version: int) -> None:
    """Behind an abandoned call for offsets: closing aborts the transaction before the commit can start."""
    scene = Scene(version)
    transaction = await scene.block()
    question = await left_offsets(scene, version)
    close = asyncio.create_task(scene.runner.close(None))
    await turns()
    end = asyncio.create_task(transaction.__aexit__(None, None, None))
    await turns()
    question.good(TxnOffsetCommitResponse(topics=[]))
    (await scene.asked(EndTxnRequest)).good(ended(1))
    await close
    with pytest.raises(ProducerClosedError, match="not committed"):
        await end


async def test_close_waits_for_a_commit_that_was_next(version: int) -> None:
    """Both waited for offsets, the commit first: closing may not cut it short once it has its turn."""
    scene = Scene(version)
    await scene.begun()
    question = await left_offsets(scene, version)
    commit = asyncio.create_task(scene.runner.commit())
    await turns()
    close = asyncio.create_task(scene.runner.close(None))
    await turns()
    question.good(TxnOffsetCommitResponse(topics=[]))
    end = await scene.asked(EndTxnRequest)
    assert end.request.committed
    await turns()
    assert not close.done()
    end.good(ended(1))
    await close
    await commit
    assert scene.state is S.READY


async def test_close_waits_for_an_abort_that_was_next(version: int) -> None:
    """The offsets are given up, which spoils the transaction: the block that was about to commit it aborts it."""
    scene = Scene(version)
    transaction = await scene.block()
    question = await left_offsets(scene, version)
    end = asyncio.create_task(transaction.__aexit__(None, None, None))
    await turns()
    close = asyncio.create_task(scene.runner.close(None))
    await turns()
    question.bad(UnknownTopicOrPartitionError("no such partition"))
    abort = await scene.asked(EndTxnRequest)
    assert not abort.request.committed
    await turns()
    assert not close.done()
    abort.good(ended(1))
    await close
    with pytest.raises(UnknownTopicOrPartitionError):
        await end
    assert scene.state is S.READY


@pytest.mark.parametrize("call", ["prepare_transaction", "send_offsets_to_transaction"])
async def test_close_while_a_call_waits_for_its_turn(version: int, call: str) -> None:
    """Its error is about the closing, not about the state that the closing has caused."""
    scene = Scene(version)
    await scene.begun()
    question = await left_offsets(scene, version)
    close = asyncio.create_task(scene.runner.close(None))
    await turns()
    late = asyncio.create_task(CALLS[call](scene))
    await turns()
    question.good(TxnOffsetCommitResponse(topics=[]))
    (await scene.asked(EndTxnRequest)).good(ended(1))
    await close
    with pytest.raises(ProducerClosedError, match=rf"{call}\(\).*the producer was closed"):
        await late
    assert scene.coordinators.is_quiet
    assert scene.state is S.READY


async def test_close_without_time_to_abort(version: int) -> None:
    scene = Scene(version)
    transaction = await scene.block()
    await scene.runner.close(0)
    assert scene.coordinators.is_quiet
    with pytest.raises(ProducerClosedError, match="not committed"):
        await transaction.__aexit__(None, None, None)


async def test_close_leaves_a_prepared_transaction_alone() -> None:
    scene = Scene(2)
    await scene.prepared()
    await scene.runner.close(None)
    assert scene.coordinators.is_quiet
    assert scene.state is S.PREPARED
    assert scene.runner.closed_over == 0


async def test_close_is_cancelled_during_a_commit(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    await scene.asked(EndTxnRequest)
    close = asyncio.create_task(scene.runner.close(None))
    await turns()
    scene.runner.cut_short()
    await asyncio.wait_for(close, GENEROUS_S)
    with pytest.raises(ProducerClosedError, match=r"commit_transaction\(\) was cut short.*may have been") as raised:
        await commit
    assert raised.value.maybe_written
    assert not raised.value.retriable
    assert scene.coordinators.is_quiet


async def test_close_is_cancelled_before_the_commit_is_asked_for(version: int) -> None:
    """No EndTxn was sent, and none will be."""
    scene = Scene(version)
    await scene.begun()
    scene.records.pending = True
    commit = asyncio.create_task(scene.runner.commit())
    await turns()
    scene.runner.cut_short()
    with pytest.raises(ProducerClosedError, match=r"commit_transaction\(\) was cut short.*was not committed") as raised:
        await commit
    assert not raised.value.maybe_written
    assert scene.coordinators.is_quiet


@pytest.mark.parametrize("name", ["send_offsets_to_transaction", "prepare_transaction", "abort_transaction"])
async def test_close_is_cancelled_during_a_call_that_commits_nothing(name: str) -> None:
    scene = Scene(2)
    await scene.begun()
    call = asyncio.create_task(cast(Coroutine[Any, Any, Any], CALLS[name](scene)))
    await turns()
    scene.runner.cut_short()
    with pytest.raises(ProducerClosedError, match=rf"{name}\(\) was cut short.*was not committed") as raised:
        await call
    assert not raised.value.maybe_written


async def test_close_is_cancelled_during_an_abort_of_what_is_prepared() -> None:
    scene = Scene(2)
    await scene.prepared()
    abort = asyncio.create_task(scene.runner.abort())
    await scene.asked(EndTxnRequest)
    scene.runner.cut_short()
    with pytest.raises(ProducerClosedError, match="may have been") as raised:
        await abort
    assert raised.value.maybe_written


@pytest.mark.parametrize("next_call", ["commit_transaction", "abort_transaction"])
async def test_a_call_that_was_left_is_cut_short(version: int, next_call: str) -> None:
    """Its outcome is unknown: "nothing to abort" would sound like a commit."""
    scene = Scene(version)
    await scene.begun()
    await left_commit(scene)
    call = asyncio.create_task(cast(Coroutine[Any, Any, Any], CALLS[next_call](scene)))
    await turns()
    scene.runner.cut_short()
    with pytest.raises(ProducerClosedError, match="cut short because the producer was closed") as raised:
        await call
    assert raised.value.maybe_written


async def test_close_is_cancelled_before_it_aborts(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    scene.runner.cut_short()
    await scene.runner.close(None)
    assert scene.coordinators.is_quiet


# --- the producer fails meanwhile -------------------------------------------------------------------------------------


async def test_it_fails_while_the_end_is_under_way(version: int) -> None:
    """The coordinator's answer counts: the transaction is committed, and no other one can begin."""
    scene = Scene(version)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    question = await scene.asked(EndTxnRequest)
    scene.runner.failed(ProducerFailedError("a task has ended"))
    assert not question.wanted()
    question.good(ended(1))
    await commit
    assert scene.state is S.FATAL_ERROR
    with pytest.raises(ProducerFailedError):
        await scene.runner.begin()


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("maybe_written", [True, False])
async def test_it_fails_and_the_end_is_not_known(committed: bool, maybe_written: bool) -> None:
    scene = Scene(2)
    await scene.begun()
    call = asyncio.create_task(scene.runner.commit() if committed else scene.runner.abort())
    question = await scene.asked(EndTxnRequest)
    scene.runner.failed(ProducerFailedError("a task has ended"))
    question.bad(ConnectionLostError("the connection is gone"), maybe_written=maybe_written)
    with pytest.raises(ProducerFailedError) as raised:
        await call
    assert raised.value.maybe_written is (committed and maybe_written)


async def test_it_fails_before_an_abort_has_begun(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    abort = asyncio.create_task(scene.runner.abort())
    await asyncio.sleep(0)  # it was called, but its task has not run yet
    scene.runner.failed(ProducerFailedError("a task has ended"))
    with pytest.raises(ProducerFailedError):
        await abort
    assert scene.coordinators.is_quiet


async def test_it_fails_before_it_asks_for_a_new_epoch() -> None:
    scene = Scene(1)
    await waiting(scene, "begin_transaction")
    begin = asyncio.create_task(scene.runner.begin())
    await asyncio.sleep(0)  # it was called, but its task has not run yet
    scene.runner.failed(ProducerFailedError("a task has ended"))
    with pytest.raises(ProducerFailedError):
        await begin
    assert scene.coordinators.is_quiet
    assert not scene.records.broken_off, "a call that comes too late is no bug"


@pytest.mark.parametrize("answered", [True, False])
async def test_it_fails_while_it_gets_a_new_epoch(answered: bool) -> None:
    """Whatever the coordinator answers: without the failure, the request would have been repeated."""
    scene = Scene(1)
    await waiting(scene, "begin_transaction")
    begin = asyncio.create_task(scene.runner.begin())
    question = await scene.asked(InitProducerIdRequest)
    scene.runner.failed(ProducerFailedError("a task has ended"))
    assert not question.wanted()
    if answered:
        question.good(epoch(1))
    else:
        question.bad(CoordinatorLoadInProgressError("loading"))
    with pytest.raises(ProducerFailedError):
        await begin
    assert scene.state is S.FATAL_ERROR
    assert not scene.records.broken_off, "an answer that comes too late is no bug"


async def test_it_fails_while_it_prepares() -> None:
    scene = Scene(2)
    await scene.begun()
    prepare = asyncio.create_task(scene.runner.prepare())
    question = await scene.asked(DescribeTransactionsRequest)
    scene.runner.failed(ProducerFailedError("a task has ended"))
    question.good(described(scene))
    with pytest.raises(ProducerFailedError):
        await prepare


@pytest.mark.parametrize("answered", [True, False])
async def test_it_fails_while_it_starts(answered: bool) -> None:
    scene = Scene(2)
    start = asyncio.create_task(scene.runner.start(int(asyncio.get_running_loop().time() * 1000) + PATIENT_MS))
    question = await scene.asked(InitProducerIdRequest)
    scene.runner.failed(ProducerFailedError("a task has ended"))
    if answered:
        question.good(epoch(0))
    else:
        question.bad(CoordinatorLoadInProgressError("loading"))
    with pytest.raises(ProducerFailedError):
        await start


# --- a task of the producer is cancelled from outside -----------------------------------------------------------------


def task_named(name: str) -> asyncio.Task[Any]:
    (found,) = [task for task in asyncio.all_tasks() if task.get_name() == f"aioproducer {name}"]
    return found


@pytest.mark.parametrize("name", CALLS)
async def test_a_task_that_is_cancelled_is_told(name: str) -> None:
    """Its work is half done, and no call would lead on: the producer has failed."""
    scene = Scene(1)
    await waiting(scene, name)
    call = asyncio.ensure_future(CALLS[name](scene))
    await scene.coordinators.questions.get()
    task = task_named(name)
    task.cancel()
    scene.records.when_broken_off = lambda: scene.runner.failed(ProducerFailedError("was cancelled"))
    with pytest.raises(ProducerFailedError, match="was cancelled") as raised:
        await call
    assert raised.value.maybe_written is (name == "commit_transaction")
    assert scene.records.broken_off == [task]


async def test_a_task_that_adds_partitions_and_is_cancelled_is_told() -> None:
    """Batches would wait for those partitions without end."""
    scene = Scene(1)
    await scene.begun(sent=False)
    scene.partitions.may_send(TopicPartition("orders", 0))
    await scene.asked(AddPartitionsToTxnRequest)
    task = task_named("add partitions")
    task.cancel()
    await asyncio.wait([task])
    await turns()
    assert scene.records.broken_off == [task]


async def test_a_task_that_asks_for_the_epoch_and_is_cancelled_is_told(version: int) -> None:
    scene = Scene(version)
    await scene.begun()
    assert scene.runner.epoch_refused(InvalidProducerEpochError("newer"))
    await scene.asked(InitProducerIdRequest)
    task = task_named("ask for epoch")
    task.cancel()
    await asyncio.wait([task])
    await turns()
    assert scene.records.broken_off == [task]


async def test_a_bug_in_a_call_is_told() -> None:
    scene = Scene(2)
    await scene.begun()
    call = asyncio.create_task(scene.runner.abort())
    scene.records.when_broken_off = lambda: scene.runner.failed(ProducerFailedError("an internal error"))
    (await scene.asked(EndTxnRequest)).answer.set_exception(ZeroDivisionError("a bug"))
    with pytest.raises(ProducerFailedError, match="an internal error"):
        await call
    assert len(scene.records.broken_off) == 1


async def test_close_that_cuts_a_call_short_is_no_failure() -> None:
    scene = Scene(2)
    await scene.begun()
    commit = asyncio.create_task(scene.runner.commit())
    await scene.asked(EndTxnRequest)
    scene.runner.cut_short()
    with pytest.raises(ProducerClosedError):
        await commit
    assert not scene.records.broken_off
