"""TransactionRunner: begins, prepares, commits and aborts the transactions of one producer.

Theory of operation. Each call that has to ask a broker runs in a task of the producer, one after the other
(``TransactionCalls``).

    commit   no more records -> all admitted records have ended -> EndTxn(commit) -> READY
    abort    no more records -> drop unsent batches, wait for sent ones -> EndTxn(abort) -> READY
    prepare  no more records -> all admitted records have ended -> PREPARED

A failed record spoils the transaction: unsent batches are dropped at once, and commit raises the record's error without
asking the coordinator. The coordinator is not asked either if nothing was sent.

Epochs. With transactions V2 (KIP-890) each EndTxn gives the next epoch, so late requests are fenced. Before V2 the
epoch stays, and the next ``begin_transaction`` gets a new one from InitProducerId (KIP-360) if something is left that
must not take effect late: a gap in the sequences, or an EndTxn, AddPartitionsToTxn, AddOffsetsToTxn or TxnOffsetCommit
that was written but not answered, whatever became of its repetitions.

Why a broker refuses the epoch is found out by ``EpochInquiry``.

Source: KIP-98, KIP-360, KIP-447 (offsets), KIP-890; org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, Protocol

from aioproducer.client_logger import ClientLogger
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.coordinator import Answered, Coordinators
from aioproducer.error_codes import Code
from aioproducer.errors import (
    InvalidProducerEpochError,
    KafkaError,
    ProducerClosedError,
    ProducerFencedError,
    TransactionStateError,
    TransactionTimeoutError,
    UnsupportedVersionError,
)
from aioproducer.patient_timer import PatientTimeout
from aioproducer.protocol.init_producer_id import InitProducerIdResponse
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, PreparedTransaction, TopicPartition
from aioproducer.transaction.additions import TransactionAdditions
from aioproducer.transaction.calls import TransactionCalls, broke_off
from aioproducer.transaction.completion import CompletionWait
from aioproducer.transaction.epoch_inquiry import EpochInquiry
from aioproducer.transaction.fate import TransactionFate
from aioproducer.transaction.head_start import HeadStart
from aioproducer.transaction.manager import NO_EPOCH, NO_PRODUCER_ID, TransactionManager
from aioproducer.transaction.outcome import TransactionDescription, TransactionOutcome, outcome_after_end
from aioproducer.transaction.partitions import TransactionPartitions
from aioproducer.transaction.requests import TransactionRequests
from aioproducer.transaction.state import TransactionState, TransactionStates, aborted

logger: logging.Logger = logging.getLogger("aioproducer.transaction")

NOTHING_TO_END = frozenset((Code.INVALID_TXN_STATE, Code.INVALID_PRODUCER_ID_MAPPING))

FEATURE = "transaction.version"

ENDS = frozenset({"commit_transaction", "abort_transaction"})

UNENDED = frozenset({TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR})
"""States that only a commit or an abort leaves, neither of which was requested."""

GOES_ON = {"start": "", "send_offsets_to_transaction": "; it goes on until it succeeds or the transaction is aborted"}
"""What becomes of a call that has timed out, unless repeating it gives its outcome."""


class Records(Protocol):
    """What a transaction needs from the rest of the producer."""

    def admit(self, admits: bool) -> None:
        """Admit records, or refuse them and those that wait to be admitted."""

    def ended(self) -> asyncio.Future[None]:
        """Send all admitted records without lingering; the future is done when all have ended, in whatever way."""

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Drop a waiter that nobody waits for any more."""

    def drop_unsent(self, cause: KafkaError | None, *, also_in_doubt: bool) -> None:
        """Fail batches not in flight as aborted; ``also_in_doubt``: also those that may have been written."""

    def observed(self) -> None:
        """The failures up to here are reported by other means than a flush."""

    def wake_sender(self) -> None:
        """Batches that were held back may go now."""

    def failed(self, error: KafkaError) -> None:
        """The producer can do nothing more."""

    def broke_off(self, task: asyncio.Task[Any]) -> None:
        """A task has ended in the middle of its work: neither can the producer go on."""

    def timed(self, call: str, elapsed_ms: int) -> None:
        """A call has ended; for the metrics."""


class TransactionRunner:
    """The transactions of one producer, which has a ``transactional_id``."""

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        coordinators: Coordinators,
        sequences: TransactionManager,
        feature: Callable[[str], int],
        records: Records,
    ) -> None:
        assert config.transactional_id is not None
        assert sequences.transaction_partitions is not None
        self.states: TransactionStates = TransactionStates()
        self.number: int = 0
        """The number of the current or last transaction."""
        self.on_begin: Callable[[], None] | None = None
        self.on_end: Callable[[bool], None] | None = None
        """Called with whether the transaction was committed; not for a prepared one that another process ends."""
        self.closed_over: int = 0
        """Number of the transaction open when the producer was closed: it is aborted if time allows."""
        self.transactional_id: str = config.transactional_id
        self._logger = ClientLogger(logger, config.client_id)
        self._transaction_timeout_ms = config.transaction_timeout_ms
        self._max_block_ms = config.max_block_ms
        self._loop = loop
        self._coordinators = coordinators
        self._requests = TransactionRequests(coordinators, config.transactional_id)
        self._sequences = sequences
        self._partitions: TransactionPartitions = sequences.transaction_partitions
        self._feature = feature
        self._records = records
        self._calls = TransactionCalls(
            loop=loop,
            timed_out=self._timed_out,
            cut_short=self._cut_short,
            on_end=self._task_ended,
            logger=self._logger,
        )
        self._completion = CompletionWait(
            loop=loop,
            requests=TransactionRequests(coordinators.for_one_call(), config.transactional_id),
            completed=records.wake_sender,
            on_end=self._task_ended,
        )
        self._partitions.holds_back = self._completion.holds_back
        head_start = HeadStart(loop, records.wake_sender)
        self._partitions.give_head_start = head_start.give
        self._partitions.head_start_is_over = head_start.is_over
        self._additions = TransactionAdditions(
            loop=loop,
            requests=self._requests,
            partitions=self._partitions,
            states=self.states,
            who=lambda: self._who,
            lost=self._may_come_late,
            refused=self._addition_refused,
            given_up=self._spoil,
            added=records.wake_sender,
            previous_complete=self._completion.wait,
            on_end=self._task_ended,
        )
        self._inquiry = EpochInquiry(
            loop=loop,
            transactional_id=config.transactional_id,
            transaction_timeout_ms=config.transaction_timeout_ms,
            fate=lambda: self._fate,
            initialize=lambda: self._initialize(*self._who),
            fatal=self._fatal,
            spoil=self._spoil,
            on_end=self._task_ended,
        )
        self._waiter: asyncio.Future[None] | None = None
        self._new_epoch_due = False
        self._version = 1
        self._hurried = False
        self._is_over = False
        """Whether no call may begin by itself any more."""
        self._fate = TransactionFate()

    def why_not_sent(self, partition: TopicPartition) -> KafkaError | None:
        """Why the coordinator has not added a partition that batches wait for; None if none waits for that."""
        return self._coordinators.last_error if partition in self._partitions.wanted else None

    # --- life cycle ---------------------------------------------------------------------------------------------------

    async def start(self, deadline_ms: int) -> None:
        """Init-transactions: fence older producers of the id, end what they left open, and get an epoch."""
        began_ms = self._now_ms()
        self.states.move(TransactionState.INITIALIZING)
        try:
            async with PatientTimeout(self._loop, deadline_ms):
                await self._initialize(NO_PRODUCER_ID, NO_EPOCH)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise self._timed_out("start", began_ms) from self._coordinators.last_error
        self._raise_if_fatal()
        self.states.move(TransactionState.READY)
        self._records.timed("init", self._now_ms() - began_ms)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks to cancel when the producer ends."""
        tasks = (self._additions.adding, self._completion.asking, self._inquiry.asking, self._calls.latest)
        return [task for task in tasks if task is not None]

    async def close(self, timeout: float | None) -> None:
        """Wait for a running call, and abort an open transaction that is not prepared, if time allows."""
        timeout_ms = self._max_block_ms if timeout is None else max(0, int(timeout * 1000))
        deadline_ms = self._now_ms() + timeout_ms
        self._additions.offsets_given_up = True
        try:
            if self.states.state is not TransactionState.FATAL_ERROR:
                await self._calls.wait_for_latest(deadline_ms)
        except KafkaError as error:
            self._logger.warning("a call of a transaction failed while the producer was closing: %s", str(error))
        if self.states.is_open:
            self.closed_over = self.number
        if self.states.is_open and self._calls.latest is None and timeout_ms and not self._hurried:
            try:
                await self._calls.run("abort_transaction", self._start_abort(), deadline_ms)
            except KafkaError as error:
                self._logger.warning(
                    "the open transaction of %r could not be aborted; the coordinator aborts it after "
                    "transaction_timeout_ms=%d: %s", self.transactional_id, self._transaction_timeout_ms, str(error),
                )  # fmt: skip
        self._is_over = True

    def cut_short(self) -> None:
        """``close`` was cancelled: stop waiting."""
        self._hurried = self._is_over = True
        for task in self.tasks():
            task.cancel()

    # --- the calls ----------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        deadline_ms = self._deadline_ms()
        began_ms = self._now_ms()
        await self._turn("begin_transaction", deadline_ms)
        self.states.check("begin_transaction")
        version = self._newest_version()
        if self._new_epoch_due or version > self._version:
            await self._calls.run("begin_transaction", self._bump(), deadline_ms)
        self.states.call("begin_transaction")
        self._version = version
        self.number += 1
        self._calls.forget_latest()
        self._partitions.begin(version)
        self._fate = TransactionFate(began_ms=self._now_ms())
        if self.on_begin is not None:
            self.on_begin()
        self._records.admit(True)
        self._records.timed("begin", self._now_ms() - began_ms)

    async def prepare(self) -> PreparedTransaction:
        deadline_ms = self._deadline_ms()
        if (same := await self._turn("prepare_transaction", deadline_ms)) is not None:
            shared: PreparedTransaction = same.result()
            return shared
        self.states.call("prepare_transaction")
        self._records.admit(False)
        began_ms = self._now_ms()
        prepared: PreparedTransaction = await self._calls.run("prepare_transaction", self._prepare(), deadline_ms)
        self._records.timed("prepare", self._now_ms() - began_ms)
        return prepared

    async def commit(self, *, or_abort: bool = False) -> None:
        """Commit; with ``or_abort``, as at the end of a block, a transaction that can't be committed is aborted before
        the error is raised, and one that was prepared while this call waited for its turn is left as it is.
        """
        deadline_ms = self._deadline_ms()
        number = self.number
        try:
            same = await self._turn("commit_transaction", deadline_ms)
        except TransactionTimeoutError as error:
            if or_abort and self.states.state in UNENDED and self.number == number:
                await self._abort_unrequested(error)
            raise
        try:
            if same is not None:
                same.result()
                return
            if or_abort and self.states.state is TransactionState.PREPARED:
                return
            self.states.call("commit_transaction")
        except KafkaError:
            if or_abort and self.states.state is TransactionState.ABORTABLE_ERROR:
                await self._abort_after_failure(self._calls.run("abort_transaction", self._start_abort(), deadline_ms))
            raise
        self._records.admit(False)
        await self._calls.run("commit_transaction", self._commit(or_abort), deadline_ms)

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        deadline_ms = self._deadline_ms()
        await self._turn("send_offsets_to_transaction", deadline_ms)
        self.states.check("send_offsets_to_transaction")
        self._additions.offsets_given_up = False  # left over from an abort that was cancelled while it waited
        if offsets:
            await self._calls.run("send_offsets_to_transaction", self._send_offsets(offsets, group), deadline_ms)

    async def abort(self) -> None:
        deadline_ms = self._deadline_ms()
        self._additions.offsets_given_up = True
        number = self.number
        try:
            same = await self._turn("abort_transaction", deadline_ms)
        except (TransactionTimeoutError, asyncio.CancelledError):
            self._abort_in_turn(number)
            raise
        if same is not None:
            same.result()
            return
        self.states.check("abort_transaction")
        await self._calls.run("abort_transaction", self._start_abort(), deadline_ms)

    def _abort_in_turn(self, number: int) -> None:
        """Abort when the call ahead has ended: a block, or a caller that was cancelled, does not ask again."""

        def abort(ahead: asyncio.Task[Any]) -> None:
            is_next = self._calls.latest in (None, ahead) and not (self._is_over or ahead.cancelled())
            if is_next and self.number == number and self.states.allows("abort_transaction"):
                self._calls.start("abort_transaction", self._start_abort())

        if (ahead := self._calls.latest) is not None:
            ahead.add_done_callback(abort)

    async def _abort_unrequested(self, timeout: TransactionTimeoutError) -> NoReturn:
        """Abort a transaction whose commit never came to its turn: nobody would end it, or begin another one."""
        spoilt_by = self.states.error
        await self._abort_after_failure(self.abort())
        if spoilt_by is not None:
            raise copy.copy(spoilt_by) from timeout
        raise aborted("the transaction was aborted, because its commit could not begin", timeout)

    async def _abort_after_failure(self, abort: Awaitable[None]) -> None:
        try:
            await abort
        except KafkaError as error:
            self._logger.warning(
                "a transaction that could not be committed could not be aborted either: %s", str(error)
            )

    # --- one call after the other -------------------------------------------------------------------------------------

    async def _turn(self, name: str, deadline_ms: int) -> asyncio.Task[Any] | None:
        """Wait for a call that was left behind or belongs to another task; returns its task if it is the same call.

        Raises:
            ProducerClosedError: the producer was closed meanwhile, which may have cut the other call short.
            TransactionStateError: another transaction began meanwhile, which is not the one the caller meant.
            TransactionTimeoutError: the other call has not ended in time.
        """
        number = self.number
        if (same := await self._calls.turn(name, deadline_ms)) is not None:
            return same
        if 0 < self.closed_over == number:
            raise closed_meanwhile(name)
        if self.number != number:
            raise TransactionStateError(
                f"{name}() waited for another call while its transaction ended; it does nothing to the next one"
            )
        return None

    def _timed_out(self, name: str, began_ms: int) -> TransactionTimeoutError:
        last = self._coordinators.last_error
        told = f"; the last error was: {last}" if last is not None else ""
        goes_on = GOES_ON.get(name, "; it goes on, and the same call again waits for its end")
        error = TransactionTimeoutError(
            f"{name}() of transactional id {self.transactional_id!r} had not ended after "
            f"{self._now_ms() - began_ms} ms (max_block_ms={self._max_block_ms}){goes_on}{told}",
            # A commit that goes on may still send EndTxn.
            maybe_written=name in ENDS and (self._fate.in_doubt or self.states.state is TransactionState.COMMITTING),
        )
        error.__cause__ = last
        return error

    def _cut_short(self, name: str) -> KafkaError:
        in_doubt = name in ENDS and self._fate.in_doubt
        if self.states.error is not None and not self._alive() and not self._hurried:
            failure = copy.copy(self.states.error)
            failure.maybe_written = in_doubt
            return failure
        if name == "begin_transaction":
            told = "no transaction was begun"
        else:
            told = f"the transaction {'may have been' if in_doubt else 'was not'} committed"
        return ProducerClosedError(
            f"{name}() was cut short because the producer was closed; {told}", maybe_written=in_doubt
        )

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        """Unless ``close`` cancelled it, a task that broke off leaves a state that no call leaves: nothing goes on."""
        if broke_off(task) and not self._hurried:
            self._records.broke_off(task)

    def _deadline_ms(self) -> int:
        return self._now_ms() + self._max_block_ms

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # --- the work, in the producer's task -----------------------------------------------------------------------------

    async def _prepare(self) -> PreparedTransaction:
        await self._all_acknowledged()
        self._partitions.sending = False
        started_ms = -1
        if self._partitions.started:
            try:
                described = await self._requests.describe()
            except UnsupportedVersionError:
                pass  # the process that ends it has to do without
            except KafkaError as error:
                self._refused(error)
                raise copy.copy(self.states.error or error) from error.__cause__
            else:
                self._check_still_open(described)
                started_ms = described.started_ms
            self._raise_if_fatal()
        self._fate.prepared = True  # from here on others may end it, whatever happens here
        self.states.move(TransactionState.PREPARED)
        return PreparedTransaction(
            transactional_id=self.transactional_id,
            producer_id=self._sequences.producer_id,
            epoch=self._sequences.epoch,
            transaction_version=self._partitions.version,
            is_empty=not self._partitions.started,
            started_ms=started_ms,
        )

    def _check_still_open(self, described: TransactionDescription) -> None:
        if described.state != "Ongoing" or (described.producer_id, described.epoch) != self._who:
            error = InvalidProducerEpochError(
                f"the transaction of {self.transactional_id!r} is not open any more: the coordinator aborted it after "
                f"transaction_timeout_ms={self._transaction_timeout_ms}, or for a newer producer (it is in the state "
                f"{described.state})"
            )
            self._spoil(error)
            raise copy.copy(self.states.error or error)

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        began_ms = self._now_ms()
        try:
            await self._additions.send_offsets(offsets, group)
        finally:
            self._records.timed("send-offsets", self._now_ms() - began_ms)

    async def _commit(self, or_abort: bool) -> None:
        began_ms = self._now_ms()
        try:
            await self._all_acknowledged()
            await self._end(committed=True)
        except KafkaError:
            if or_abort and self.states.state is TransactionState.ABORTABLE_ERROR:
                await self._abort_after_failure(self._start_abort())
            raise
        finally:
            self._records.timed("commit", self._now_ms() - began_ms)

    async def _start_abort(self) -> None:
        began_ms = self._now_ms()
        self._raise_if_fatal()
        self.states.move(TransactionState.ABORTING)
        try:
            self._records.admit(False)
            self._partitions.sending = False
            self._records.drop_unsent(None, also_in_doubt=self._drops_in_doubt())
            for task in (self._additions.adding, self._inquiry.asking):
                if task is not None:
                    await asyncio.wait([task])
            await self._all_ended()
            if self._sequences.has_gap and self._partitions.version < 2:
                self._new_epoch_due = True
            await self._end(committed=False)
        finally:
            self._records.observed()
            self._records.timed("abort", self._now_ms() - began_ms)

    async def _all_acknowledged(self) -> None:
        await self._all_ended()
        self._raise_if_spoilt()
        if self._inquiry.asking is not None:
            # A leader has refused the epoch, then accepted it. The answer may still end this transaction, or the next.
            await asyncio.wait([self._inquiry.asking])
            self._raise_if_spoilt()

    async def _all_ended(self) -> None:
        """Wait until every record has ended; a commit stops waiting once the transaction is spoilt."""
        waiter = self._waiter = self._records.ended()
        try:
            await waiter
        finally:
            self._waiter = None
            self._records.forget(waiter)

    def _raise_if_fatal(self) -> None:
        """Raise a fatal error that occurred before the call's task ran, or while it waited for an answer."""
        if not self._alive() and self.states.error is not None:
            raise copy.copy(self.states.error)

    def _raise_if_spoilt(self) -> None:
        if self.states.error is not None:
            self._records.observed()
            raise copy.copy(self.states.error)

    async def _end(self, *, committed: bool) -> None:
        """EndTxn, unless there is nothing to end; afterwards the producer is ready for the next transaction."""
        partitions = self._partitions
        if partitions.started and not self._fate.ended_by_broker:
            try:
                self._fate.commit_asked = committed
                await self._end_at_coordinator(committed)
            except KafkaError as error:
                self._fate.commit_asked = False
                self._fate.maybe_committed = self._fate.maybe_committed or (committed and error.maybe_written)
                has_ended = isinstance(error, ProducerFencedError) or error.code in NOTHING_TO_END
                if has_ended:
                    self._fate.maybe_committed = await self._may_be_committed()
                is_unclear = partitions.version >= 2 or self._is_ambiguous(error)
                if has_ended and is_unclear and not self._fate.maybe_committed:
                    await asyncio.wait([self._inquiry.begin(error)])
                else:
                    self._refused(error)
                if self.states.error is not None:
                    told = copy.copy(self.states.error)
                    # Whatever ended the producer meanwhile, the coordinator may have carried out the request.
                    told.maybe_written = told.maybe_written or self._fate.maybe_committed
                    raise told from error.__cause__
            if self._fate.prepared and partitions.version < 2:
                # Another process may be about to end it too, and must not end the next transaction instead.
                self._new_epoch_due = True
        partitions.end()
        if self._alive():  # else this transaction ended properly, but none follows it
            self.states.move(TransactionState.READY)
        if self.on_end is not None:
            self.on_end(committed)

    async def _may_be_committed(self) -> bool:
        """Whether an EndTxn refused because there is nothing to end may have come after a commit.

        A commit, by us or by another process with the prepared transaction, gives a new epoch, as an abort does. With
        V2 the coordinator can tell which it was.
        """
        may_be = self._fate.maybe_committed or self._fate.prepared
        if not may_be or self._partitions.version < 2:
            return may_be
        try:
            described = await self._requests.describe()
        except KafkaError as error:
            self._logger.info("the outcome of the transaction of %r is unknown: %s", self.transactional_id, str(error))
            return True
        return outcome_after_end(*self._who, described) is not TransactionOutcome.ABORTED

    async def _end_at_coordinator(self, committed: bool) -> None:
        is_v2 = self._partitions.version >= 2
        began_s = self._loop.time()
        try:
            answer = await self._requests.end(
                *self._who, committed=committed, is_v2=is_v2, wanted=self._alive, lost=self._may_come_late
            )
        except KafkaError as error:
            unstarted = not committed and not self._fate.maybe_committed and self._partitions.doubtful
            if error.code in NOTHING_TO_END and unstarted:
                self._new_epoch_due = True
                return  # the request that starts it has not arrived (it still may), so there is nothing to end
            raise
        if is_v2:
            self._take_epoch(answer.response.producer_id, answer.response.producer_epoch)
            self._completion.ended(began_s)
        elif self._partitions.doubtful:
            self._new_epoch_due = True

    @property
    def _who(self) -> tuple[int, int]:
        """Producer id and epoch."""
        return self._sequences.producer_id, self._sequences.epoch

    def _alive(self) -> bool:
        return self.states.state is not TransactionState.FATAL_ERROR

    def _take_epoch(self, producer_id: int, epoch: int) -> None:
        if producer_id >= 0:
            self._sequences.set_producer_id(producer_id, epoch)

    # --- epochs -------------------------------------------------------------------------------------------------------

    async def _initialize(self, producer_id: int, epoch: int) -> Answered[InitProducerIdResponse]:
        try:
            answer = await self._requests.init_producer_id(
                self._transaction_timeout_ms, producer_id, epoch, wanted=self._alive
            )
        except KafkaError:
            self._raise_if_fatal()  # the reason why the last answer's error was not waited out
            raise
        self._sequences.set_producer_id(answer.response.producer_id, answer.response.producer_epoch)
        self._version = self._newest_version()
        return answer

    def _newest_version(self) -> int:
        """The newest version of transactions that the cluster has finalized and that this producer knows."""
        return 2 if self._feature(FEATURE) >= 2 else 1

    def _may_come_late(self) -> None:
        """A lost request: if it comes late, it must not act on the next transaction, or begin one that never ends."""
        if self._partitions.version < 2:
            self._new_epoch_due = True

    async def _bump(self) -> None:
        """Get the next epoch, so that requests still under way with the old one are refused (KIP-360)."""
        self._raise_if_fatal()
        self.states.move(TransactionState.INITIALIZING)
        try:
            await self._initialize(*self._who)
            self._raise_if_fatal()
        except UnsupportedVersionError as error:
            told = UnsupportedVersionError(
                f"the producer needs a new epoch after a failed transaction, and only Kafka 2.5 or newer gives "
                f"one to a running producer; close it and make a new one: {error}"
            )
            self._fatal(told)
            raise copy.copy(self.states.error or told) from error
        except KafkaError as error:
            self._fatal(error)
            raise
        self._new_epoch_due = False
        self.states.move(TransactionState.READY)

    # --- errors -------------------------------------------------------------------------------------------------------

    def batch_failed(self, error: KafkaError) -> None:
        """A record has failed: its transaction can only be aborted."""
        self._spoil(error)

    async def _addition_refused(self, error: KafkaError) -> None:
        if self._is_ambiguous(error):
            await asyncio.wait([self._inquiry.begin(error)])
        elif self.states.error is None:
            self._refused(error)

    def _refused(self, error: KafkaError) -> None:
        """A coordinator answered with a permanent error; during an abort nothing is left to try."""
        if error.abortable and self.states.state is not TransactionState.ABORTING:
            self._spoil(error)
        else:
            self._fatal(error)

    def _spoil(self, error: KafkaError) -> None:
        if self.states.fail(error):
            self._partitions.sending = False
            self._records.admit(False)
            self._give_up_waiting()
            # Not now: the caller may be iterating over the batches that would be dropped.
            self._loop.call_soon(self._drop_spoilt)

    def _drop_spoilt(self) -> None:
        if self.states.state is TransactionState.ABORTABLE_ERROR:
            self._records.drop_unsent(self.states.error, also_in_doubt=self._drops_in_doubt())

    def _drops_in_doubt(self) -> bool:
        return self._partitions.version >= 2 or self._fate.ended_by_broker

    def _is_ambiguous(self, error: KafkaError) -> bool:
        """Whether a coordinator's refusal may mean that a newer producer has the transactional id, or something less.

        Before V2 a fenced producer stays fenced, even if only its transaction took too long.
        """
        if isinstance(error, ProducerFencedError):
            return self._partitions.version >= 2
        return error.code == Code.INVALID_PRODUCER_ID_MAPPING

    def epoch_refused(self, error: KafkaError) -> bool:
        """A leader knows a newer epoch, or another id; True if the coordinator is asked why, and the batch may wait."""
        if not self._partitions.sending:
            return False
        self._inquiry.begin(error)
        return True

    def _fatal(self, error: KafkaError) -> None:
        if self.states.fail_fatally(error):
            self._partitions.sending = False
            self._give_up_waiting()
            self._records.failed(self.states.error or error)

    def failed(self, error: KafkaError) -> None:
        """The producer has failed, for whatever reason."""
        if self.states.fail_fatally(error):
            self._partitions.sending = False
            self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def closed_meanwhile(name: str) -> ProducerClosedError:
    """The error for a call after the producer was closed by someone else."""
    return ProducerClosedError(
        f"{name}() came too late: the producer was closed while the transaction was open, so it was not committed"
    )
