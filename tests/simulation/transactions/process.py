"""One process: a producer with its transactional id, and the program that writes transactions with it.

The program handles errors as docs/transactions.md says: it repeats calls that may be repeated, or gives up
waiting and continues with the next transaction; after an abortable error it aborts; after a fatal one it closes the
producer. It is cancelled in the middle of its calls, closed by another task, or killed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioproducer.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    MessageTooLargeError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
    TransactionStateError,
    TransactionTimeoutError,
    UnsupportedVersionError,
)
from aioproducer.records import ConsumerGroupMetadata, PreparedTransaction
from aioproducer.transaction.state import TransactionState
from tests.simulation.producer import SimulatedProducer
from tests.simulation.program import Program, UserError
from tests.simulation.records import Sent
from tests.simulation.transactions.ledger import GROUP, Fate, Ledger, Written

if TYPE_CHECKING:
    from tests.simulation.transactions.run import TransactionRun

SLACK_S = 0.05
"""By how much a call may exceed max_block_ms: a few turns of the loop."""

MOST_TRIES = 4

IN_CALM = (
    UserError,
    MessageTooLargeError,
    ProducerFencedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    UnsupportedVersionError,
    TransactionStateError,
)
"""Errors that can occur without faults: large records, newer producers, transactions that take too long."""

ENDS = {"commit": "commit_transaction", "abort": "abort_transaction", "prepare": "prepare_transaction"}


@dataclass(slots=True)
class Told:
    """A call's outcome: cancelled, a result, or an error."""

    result: Any = None
    error: BaseException | None = None
    cancelled: bool = False

    @property
    def ok(self) -> bool:
        """Whether the call returned."""
        return self.error is None and not self.cancelled

    @property
    def fatal(self) -> bool:
        """Whether nothing more can be done with this producer."""
        return isinstance(self.error, (ProducerClosedError, ProducerFailedError)) or (
            isinstance(self.error, KafkaError) and self.error.fatal
        )

    @property
    def tells_nothing(self) -> bool:
        """Whether the transaction's outcome, and what to do next, stay unknown."""
        in_another_state = isinstance(self.error, (TransactionTimeoutError, TransactionStateError))
        return self.cancelled or self.fatal or in_another_state


class TransactionalProgram(Program):
    """A program that records to which transaction each record belongs."""

    ledger: Ledger
    process: Process

    async def chore(self, task: int) -> None:
        """One chore: sending, or something else at the same time."""
        chores = (
            (self.submit_some, 6),
            (self.burst, 2),
            (self.send_one, 3),
            (self.send_several, 1),
            (self.send_many, 1),
            (self.flush, 1),
            (self.wait_for_some, 2),
            (self.pause, 4),
            (self.cancel_something, 2),
        )
        await self._rng.choices([chore for chore, _ in chores], [weight for _, weight in chores])[0](task)

    async def pause(self, task: int) -> None:
        await asyncio.sleep(self._rng.choice((0, 0.001, 0.01, 0.1, self._rng.uniform(0, 1.0))))

    async def burst(self, task: int) -> None:
        try:
            await super().burst(task)
        except (KafkaError, ProducerClosedError) as error:
            self._story.tell("burst: %r", type(error).__name__)

    def _begin(self, record: Sent) -> None:
        super()._begin(record)
        if (one := self.process.open_transaction()) is not None:
            self.ledger.sent(record, one)


class Process:
    """One producer and its program, see the module's docstring."""

    def __init__(
        self, run: TransactionRun, transactional_id: str, number: int, transaction_timeout_ms: int | None = None
    ) -> None:
        self.name = f"{transactional_id}{number}"
        self.transactional_id = transactional_id
        self.number = number
        self.transaction_timeout_ms = transaction_timeout_ms or run.scenario.transaction_timeout_ms
        self.producer: SimulatedProducer = run.make_producer(self.name, transactional_id, self.transaction_timeout_ms)
        self.started: tuple[int, int] | None = None
        """Its first producer id and epoch, which show which of several producers fenced which."""
        self.over = False
        """Whether its producer can no longer be used."""
        self._run = run
        self._scenario = run.scenario
        self._rng = random.Random(run.rng.getrandbits(64))
        self._loop = run.loop
        self._ledger = run.ledger
        self._open: dict[int, Written] = {}
        """Open transactions by the producer's number for them."""
        self._began_s = 0.0
        """When its latest transaction began."""
        self._left: Written | None = None
        """The transaction for which the program has stopped waiting."""
        self.closing = False
        self._senders: list[asyncio.Task[None]] = []
        self._rivals: list[asyncio.Task[None]] = []
        self._rivals_rng = run.rivals_of(self.name)
        self._calls: dict[asyncio.Task[Any], None] = {}
        self.program = TransactionalProgram(run.scenario, self.producer, self._rng, run.books, run.story, run.broken)
        self.program.ledger, self.program.process = run.ledger, self

    def __str__(self) -> str:
        return self.name

    def open_transaction(self) -> Written | None:
        """The transaction to which a record sent now belongs."""
        engine = self.producer.engine
        if engine is None or engine.transaction is None or not engine.transaction.states.admits:
            return None
        return self._written_as(engine.transaction.number)

    def _written_as(self, number: int) -> Written:
        """The transaction with this number: a sender may see it before the program that began it continues."""
        if number not in self._open:
            self._open[number] = self._ledger.begin(self.name)
        return self._open[number]

    # --- its life -----------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Run the process from start to end."""
        work = self._loop.create_task(self._work(), name=f"{self} works")
        waits_s = self._rng.uniform(0, self._scenario.chaos_s) if self._rng.random() < self._scenario.crashes else None
        await asyncio.wait([work], timeout=waits_s)
        if work.done():
            work.result()
            await self._end(self._rng.random() < self._scenario.crashes / 3)
        else:
            crash = self._rng.random() < 0.6
            if crash:
                self._crash()
                work.cancel()
                await asyncio.wait([work])
                await self._bury()
            else:
                await self._close()
                await asyncio.wait([work], timeout=5)
                if not work.done():
                    self._run.broken("%s: a call goes on 5 s after close(); %s", self, self._run.where())
                    work.cancel()
                    await asyncio.wait([work])
                if not work.cancelled():
                    work.result()
        for task in self._senders:
            task.cancel()
        if self._senders:
            await asyncio.wait(self._senders)
        await self._rivals_end()
        await self.program.look_at_the_rest()
        await self.program.close_again()

    async def _rivals_end(self) -> None:
        """Check that the rivals' calls have ended with the producer."""
        if self._rivals:
            _, going_on = await asyncio.wait(self._rivals, timeout=5)
            for task in going_on:
                self._run.broken("%s: %s goes on 5 s after close(); %s", self, task.get_name(), self._run.where())
                task.cancel()
            await asyncio.wait(self._rivals)
            for task in self._rivals:
                if not task.cancelled():
                    task.result()

    async def _work(self) -> None:
        if not await self._start():
            return
        for _ in range(self._rng.randint(1, self._scenario.rounds)):
            if self.over or self.closing or self._run.closing:
                break
            await self._one_transaction()
            await asyncio.sleep(self._rng.choice((0, 0, 0.001, 0.1, 0.5)))
        if self._run.closing and not self.over and not self.closing:
            await self._run.works_again(self)

    async def _start(self) -> bool:
        while not (self.closing or self._run.closing):
            began_s = self._loop.time()
            try:
                await self.producer.start()
            except KafkaError as error:
                self._run.story.tell("%s: start: %s", self, str(error).replace("\n", ";"))
                if error.fatal:
                    self.over = True
                    return False
                await asyncio.sleep(0.05)
            else:
                self.note_start()
                self._run.story.tell("%s has started", self)
                self._run.invariants.watch_also(self.producer)
                return True
            finally:
                self._in_time("start", began_s, 2 * self._scenario.ms("max_block_ms") / 1000)
        return False

    def note_start(self) -> None:
        """The producer has got its epoch."""
        assert self.producer.engine is not None
        sequences = self.producer.engine._sequences
        self.started = sequences.producer_id, sequences.epoch

    async def abort_what_is_open(self) -> None:
        """Make room for the next transaction."""
        engine = self.producer.engine
        assert engine is not None
        assert engine.transaction is not None
        states = engine.transaction.states
        if states.is_open or states.error is not None or states.state is TransactionState.PREPARED:
            if self._left is not None:
                self._left.called("abort by itself")
            await self.producer.abort_transaction()

    async def _end(self, crash: bool) -> None:
        if crash:
            self._crash()
            await self._bury()
        else:
            await self._close()

    async def _close(self) -> None:
        self.closing = True
        await self.program.close()

    def _crash(self) -> None:
        """End as by kill -9: the process sends nothing more, and its state no longer counts."""
        self._run.story.tell("%s is killed", self)
        self.closing = True
        self._run.network.kill(self.name)

    async def _bury(self) -> None:
        for task in (*self._senders, *self._calls):
            task.cancel()
        for record in self._run.books.records:
            record.closed_off = True
        closing = self._loop.create_task(self.producer.close(0))
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await self.program.close_again()

    # --- one transaction ----------------------------------------------------------------------------------------------

    async def _one_transaction(self) -> None:
        if self._rng.random() < 0.4:
            await self._in_a_block()
            return
        if (one := await self._begin()) is not None:
            await self._send_in(one)
            wish = self._rng.choices(("commit", "abort", "prepare"), (6, 2, 3 * self._scenario.prepares))[0]
            await self._finish(one, wish)

    async def _begin(self) -> Written | None:
        told = await self._call("begin_transaction", self.producer.begin_transaction)
        if told.ok:
            return self._begun()
        if told.fatal:
            self._note_fatal(None, told)
        elif isinstance(told.error, TransactionTimeoutError) or told.cancelled:
            return None
        elif self._left is not None:
            left = self._left
            if not isinstance(told.error, TransactionStateError):
                # The abandoned call was a commit, which has failed.
                self._note_abortable(left, told, "begin")
            await self._finish(left, "abort")
        else:
            self._run.broken("%s: begin_transaction() raised %r", self, told.error)
            self.over = True
        return None

    def _begun(self) -> Written:
        left, self._left = self._left, None
        if left is not None and not left.has_rivals:
            only = list(left.calls)
            if only == ["commit"]:
                self._ledger.told(left, Fate.COMMITTED, f"the next begin of {self}")
            elif only == ["abort"]:
                self._ledger.told(left, Fate.ABORTED, f"the next begin of {self}")
        engine = self.producer.engine
        assert engine is not None
        assert engine.transaction is not None
        self._began_s = self._loop.time()
        return self._written_as(engine.transaction.number)

    async def _in_a_block(self) -> None:
        """``async with producer.transaction()``, cancelled anywhere or not."""
        stage, one = "begin", None
        raises = self._rng.random() < 0.2

        async def block() -> None:
            nonlocal stage, one
            async with self.producer.transaction():
                one, stage = self._begun(), "body"
                error = await self._send_in(one)
                if error is not None and self._rng.random() < 0.8:
                    stage = "abort"
                    raise error
                if raises:
                    stage = "abort"
                    raise UserError("in the transaction")
                if self._scenario.contests:
                    self._begin_rivals(one)
                    await self._a_moment()
                stage = "commit"
                one.called("commit")

        limit_s = 10 * self._scenario.ms("max_block_ms") / 1000 + self._scenario.ms("delivery_timeout_ms") / 1000 + 60
        told = await self._call("transaction()", block, limit_s, cancels=0.25, longest_s=2.0)
        if one is None:
            if told.fatal:
                self._note_fatal(None, told)
            elif self._left is not None and not told.ok and not isinstance(told.error, TransactionTimeoutError):
                await self._finish(self._left, "abort")
            return
        if told.ok:
            if list(one.calls) == ["commit"]:  # else another task may have aborted it in the body's place
                self._ledger.told(one, Fate.COMMITTED, f"the block of {self}")
            return
        if one.has_rivals and isinstance(told.error, TransactionStateError):
            return  # one of them has ended it
        if stage in ("body", "abort"):
            one.called("abort")
            notes = getattr(told.error, "__notes__", ())
            if told.cancelled and stage == "body":
                one.muddled = True  # the abort itself may have been cancelled
            elif not notes and not told.cancelled and not one.has_rivals:
                self._ledger.told(one, Fate.ABORTED, f"the block of {self}")
            if told.fatal or (notes and self._failed()):
                self.over = True
            elif notes or told.cancelled:
                self._left, one.muddled = one, True
            return
        if told.cancelled or isinstance(told.error, TransactionTimeoutError):
            one.muddled = True
            one.called("abort by itself")
            if self._rng.random() < 0.7:
                await self._finish(one, "commit")
            else:
                self._left = one
        elif told.fatal:
            self._note_fatal(one, told)
        else:
            self._note_abortable(one, told, "block")
            one.called("abort by itself")
            one.muddled = True
            self._left = one

    def _failed(self) -> bool:
        return self.producer.has_failed or self.closing

    async def _a_moment(self) -> None:
        """Let the other tasks begin their calls, or even end them."""
        assert self._rivals_rng is not None
        await asyncio.sleep(self._rivals_rng.choice((0, 0.002, 0.05, 0.3)))

    async def _send_in(self, one: Written) -> BaseException | None:
        """Send records from several tasks, and perhaps offsets; returns the error for the offsets."""
        tasks = [
            self._loop.create_task(self._sender(number), name=f"{self} sends")
            for number in range(self._rng.choice((0, 1, 1, 2)))
        ]
        self._senders = [task for task in self._senders if not task.done()] + tasks
        error = None
        try:
            if self._rng.random() < 0.4:
                error = await self._send_offsets(one)
            if tasks and self._rng.random() < 0.9:
                await asyncio.wait(tasks)
            if self._rng.random() < 0.1:
                await asyncio.sleep(self._rng.uniform(0, 3))
        finally:
            if self._rng.random() < 0.9:
                for task in tasks:
                    task.cancel()
        return error

    async def _sender(self, number: int) -> None:
        for _ in range(self._rng.choice((1, 1, 2))):
            if self.closing:
                break
            await self.program.chore(number)

    async def _send_offsets(self, one: Written) -> BaseException | None:
        model = self._run.model.coordinators.group(GROUP)
        group = ConsumerGroupMetadata(GROUP)
        if model.members:
            group = ConsumerGroupMetadata(GROUP, model.generation_id, "member")
        one.offsets_sent = True
        told = await self._call(
            "send_offsets_to_transaction", lambda: self.producer.send_offsets_to_transaction(one.offsets(), group)
        )
        if told.ok:
            one.offsets_taken = True
        elif told.cancelled or isinstance(told.error, TransactionTimeoutError):
            one.muddled = True
        elif not told.fatal and not isinstance(told.error, TransactionStateError):
            self._note_abortable(one, told, "send_offsets_to_transaction")
        elif not told.fatal:
            # Only possible through a late request of the previous transaction, of which there is none.
            self._run.broken("%s: send_offsets_to_transaction() raised %r", self, told.error)
        return told.error

    # --- its end ------------------------------------------------------------------------------------------------------

    async def _finish(self, one: Written, wish: str) -> None:
        """Repeat the call until the outcome is known, or leave that to the next step."""
        self._left = None
        for _ in range(MOST_TRIES):
            if self.closing or self.over:
                return
            self._begin_rivals(one)
            one.called(wish)
            told = await self._call(ENDS[wish], getattr(self.producer, ENDS[wish]))
            if told.ok and wish == "prepare":
                if await self._prepared(one, told.result):
                    return
                wish = self._rng.choice(("commit", "commit", "abort"))
                continue
            if told.ok:
                fate = Fate.COMMITTED if wish == "commit" else Fate.ABORTED
                self._ledger.told(one, fate, f"{ENDS[wish]}() of {self}")
                return
            if told.fatal:
                self._note_fatal(one, told)
                return
            if told.cancelled or isinstance(told.error, TransactionTimeoutError):
                one.muddled = True
                if self._rng.random() < 0.3:
                    break
                if self._rng.random() < 0.3:
                    wish = self._rng.choice(("commit", "abort"))
            elif isinstance(told.error, TransactionStateError):
                self._note_wrong_state(one, told, wish)
                return
            elif wish == "abort":
                self._run.broken("%s: abort_transaction() raised %r", self, told.error)
                self.over = True
                return
            else:
                self._note_abortable(one, told, wish)
                wish = "abort"
        self._left = one

    async def _prepared(self, one: Written, prepared: PreparedTransaction) -> bool:
        """Whether another process ends the transaction instead of this producer."""
        one.prepared = prepared
        others = self._rng.choice((0, 0, 1, 1, 2))
        for _ in range(others):
            wish = self._rng.choices(("commit", "abort"), (3, 1))[0]
            self._run.decide(one, wish)
        if others and self._rng.random() < 0.6:
            self.over = True  # for this program
            return True
        return False

    # --- other tasks that call at the same time -----------------------------------------------------------------------

    def _begin_rivals(self, one: Written) -> None:
        """Tasks that end the transaction as well, or send offsets in it, at about the same time."""
        rng = self._rivals_rng
        if rng is None:
            return
        for _ in range(rng.choice((0, 1, 1, 2))):
            wish = rng.choices(("commit", "abort", "offsets"), (3, 2, 1))[0]
            waits_s = rng.choice((0, 0, 0.001, rng.uniform(0, 0.3)))
            self._rivals.append(self._loop.create_task(self._rival(one, wish, waits_s), name=f"{self}'s other {wish}"))

    async def _rival(self, one: Written, wish: str, waits_s: float) -> None:
        """A rival task; its results count like the program's, and a wrong state is possible for both."""
        await asyncio.sleep(waits_s)
        engine = self.producer.engine
        if self.closing or self.over or engine is None or engine.transaction is None:
            return
        if not engine.transaction.states.is_open or self._written_as(engine.transaction.number) is not one:
            return
        one.muddled = True
        if wish == "offsets":
            await self._rival_offsets(one)
            return
        one.has_rivals = True
        one.called(wish)
        told = await self._call(ENDS[wish], getattr(self.producer, ENDS[wish]), by="another task of ")
        if told.ok:
            fate = Fate.COMMITTED if wish == "commit" else Fate.ABORTED
            self._ledger.told(one, fate, f"{ENDS[wish]}() of another task of {self}")
        elif wish == "abort" and not told.tells_nothing:
            self._run.broken("%s: abort_transaction() of another task raised %r", self, told.error)
        elif not told.tells_nothing:
            self._note_abortable(one, told, "commit_transaction() of another task")

    async def _rival_offsets(self, one: Written) -> None:
        one.offsets_sent = True
        told = await self._call(
            "send_offsets_to_transaction",
            lambda: self.producer.send_offsets_to_transaction(one.offsets(), ConsumerGroupMetadata(GROUP)),
            by="another task of ",
        )
        if told.ok:
            one.offsets_taken = True
        elif not told.tells_nothing:
            self._note_abortable(one, told, "send_offsets_to_transaction() of another task")

    def _note_abortable(self, one: Written, told: Told, by: str) -> None:
        error = told.error
        if isinstance(error, InvalidProducerEpochError) and self._is_undisturbed():
            self._run.broken("%s: %s has taken no time, and is told: %s", self, one, error)
        if not isinstance(error, KafkaError) or not error.abortable:
            self._run.broken("%s: %s raised %r, which tells nothing of what to do", self, by, error)
            self.over = True
            return
        if one.prepared is not None:
            return  # another call may have ended it
        one.spoilt = one.spoilt or f"{by} of {self} said {type(error).__name__}: {error}"
        if Fate.COMMITTED in one.fates:
            self._run.broken("%s: %s", one, one.spoilt)

    def _is_undisturbed(self) -> bool:
        """Whether nothing can have fenced this producer, or aborted its transaction.

        If requests may arrive late, those of its own start can.
        """
        calm = self._scenario.calm and not self._scenario.overlaps and not self._scenario.prepares
        return calm and self._loop.time() - self._began_s < self.transaction_timeout_ms / 1000

    def _note_fatal(self, one: Written | None, told: Told) -> None:
        """The producer can no longer be used; without ``maybe_written`` no commit was requested."""
        self.over = True
        error = told.error
        closed = isinstance(error, ProducerClosedError) or self.closing
        if isinstance(error, ProducerFencedError) and self._is_undisturbed():
            self._run.broken("%s is fenced, and by nobody: %s", self, error)
        if one is None or closed or one.muddled or one.prepared is not None:
            return
        if isinstance(error, KafkaError) and not error.maybe_written:
            one.spoilt = one.spoilt or f"{type(error).__name__} of {self}: {error}"
            self._ledger.told(one, Fate.ABORTED, f"{type(error).__name__} of {self}")

    def _note_wrong_state(self, one: Written, told: Told, wish: str) -> None:
        """There is nothing left to end; if only one other call was ever made, that shows how the transaction ended."""
        if not one.muddled:
            self._run.broken("%s: %r", one, told.error)
            self.over = True
        elif one.has_rivals or one.spoilt is not None:
            pass  # a commit was refused, or may have been, and a later abort was not awaited
        elif list(one.calls) == ["commit", "abort"] and wish == "abort":
            self._ledger.told(one, Fate.COMMITTED, f"the wrong state of {self}")
        elif list(one.calls) == ["abort", "commit"] and wish == "commit":
            self._ledger.told(one, Fate.ABORTED, f"the wrong state of {self}")

    # --- one call -----------------------------------------------------------------------------------------------------

    async def _call(
        self,
        name: str,
        work: Callable[[], Awaitable[Any]],
        limit_s: float | None = None,
        cancels: float = 0.12,
        longest_s: float = 0.5,
        by: str = "",
    ) -> Told:
        """Make a call, and perhaps cancel it; it has to end in time."""
        run = self._run
        rng = self._rivals_rng if by and self._rivals_rng is not None else self._rng
        limit_s = self._scenario.ms("max_block_ms") / 1000 if limit_s is None else limit_s
        began_s = self._loop.time()
        run.story.tell("%s%s: %s", by, self, name)

        async def called() -> Any:
            return await work()

        task = self._loop.create_task(called(), name=f"{self} {name}")
        self._calls[task] = None
        if rng.random() < cancels:
            await asyncio.wait([task], timeout=rng.choice((0, 0, 0.001, 0.01, rng.uniform(0, longest_s))))
            if not task.done():
                task.cancel()
        await asyncio.wait([task])
        del self._calls[task]
        self._in_time(name, began_s, limit_s)
        if task.cancelled():
            run.story.tell("%s%s: %s was cancelled", by, self, name)
            return Told(cancelled=True)
        error = task.exception()
        if error is None:
            return Told(task.result())
        run.story.tell("%s%s: %s: %s", by, self, name, repr(error))
        if not isinstance(error, (KafkaError, UserError)):
            run.broken("%s: %s raised %r", self, name, error)
            self.over = True
        if self._scenario.calm and not isinstance(error, IN_CALM) and not self.closing:
            run.broken("%s: nothing goes wrong, and %s raised %r", self, name, error)
        took_s = self._loop.time() - began_s
        is_early = took_s < limit_s - 0.002 and name != "transaction()" and not self._failed()
        if isinstance(error, TransactionTimeoutError) and is_early:
            run.broken("%s: %s gave up after %.3f s, max_block_ms=%d", self, name, took_s, limit_s * 1000)
        return Told(error=error)

    def _in_time(self, name: str, began_s: float, limit_s: float) -> None:
        took_s = self._loop.time() - began_s
        if took_s > limit_s + SLACK_S:
            self._run.broken("%s: %s took %.3f s, %.3f s are allowed", self, name, took_s, limit_s)
