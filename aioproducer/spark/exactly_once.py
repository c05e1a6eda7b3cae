"""QueryTransactions: what the driver does with the transactions prepared by the tasks of one query.

    settle   before the first task of a batch: claim the log, finish what an earlier driver began to commit, write its
             audit statement if it did not, abort whatever else is open under the query's ids. So a batch is never
             written while an earlier attempt at it may still become visible
    commit   record the winners, check that nobody else has claimed the log, write the audit statement, check that all
             are open, commit them all, record that; then abort the losers
    abort    abort everything that is open, but never what is recorded

The record makes the commit atomic: once it exists the batch will be committed, by this driver or the next; before that,
it will not. Whatever a driver that dies in between leaves, the next one's ``settle`` can decide (see ``recovery``).
Each transaction of a batch is committed by its own request, so a reader may briefly see part of the batch.

The previous driver may not be dead but slow, or cut off from whatever started the next one. Once the log is claimed, it
commits only what it recorded before (then both commit the same), and aborts nothing it finds later: each driver checks
the claims after recording, before it gives up what is lost, and between finding open transactions and aborting them.
The tasks of two claims share no transactional id, so they can't fence each other.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from aioproducer.errors import ConfigError, KafkaError, TransactionStateError
from aioproducer.records import PreparedTransaction
from aioproducer.spark.batch_names import is_single, micro_batch_of
from aioproducer.spark.commit_log import CommitLog, Winners, claim_number, new_id
from aioproducer.spark.errors import SparkWriteError, TakenOverError
from aioproducer.spark.in_turn import all_in_turn, in_turn
from aioproducer.spark.recovery import Plan, Prepared, Verdict, plan
from aioproducer.spark.storage import Storage
from aioproducer.transaction.outcome import TransactionListing, TransactionOutcome
from aioproducer.transactions import OPEN_STATES

logger: logging.Logger = logging.getLogger("aioproducer.spark")

SLOTS = 8
"""Ids per attempt number that the attempts at one task are spread over, see transactional_id()."""

NAMED = 10
"""The most transactional ids that a message names."""

TURNS = 8
"""Number of claims after which task ids repeat."""


class Transactions(Protocol):
    """The requests to the cluster; see ``aioproducer.transactions.TransactionClient``."""

    async def outcome(self, prepared: PreparedTransaction) -> TransactionOutcome:
        """How a transaction ended, or that it is open."""
        ...

    async def commit(self, prepared: PreparedTransaction) -> None:
        """Commit it; no error if it is already committed."""
        ...

    async def abort(self, prepared: PreparedTransaction) -> None:
        """Abort it; raises TransactionStateError if it is committed."""
        ...

    async def list_transactions(
        self, prefix: str = "", *, states: Collection[str] = ()
    ) -> Sequence[TransactionListing]:
        """The transactions with an id prefix that are in one of the given states."""
        ...

    async def fence(self, transactional_id: str) -> None:
        """Abort what is open under an id, and fence its producer."""
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """The current claim, and what is already done.

    Args:
        claim: of the log; batches are committed and aborted under it.
        committed: batches that must not be written again.
    """

    claim: str
    committed: frozenset[str]


def query_prefix(prefix: str, location: str) -> str:
    """The prefix of a query's transactional ids.

    Args:
        location: of its log, which no other query shares and which survives restarts.
    """
    return f"{prefix}-{hashlib.sha256(location.encode()).hexdigest()[:12]}-"


def transactional_id(query: str, claim: str, *, partition: int, attempt: int, task_attempt_id: int) -> str:
    """The id of one attempt at one task.

    Attempts of a batch must not share an id: the second would fence the first, which may have won already. Attempt
    numbers distinguish them, but restart at 0 when Spark repeats a whole stage while tasks of its first attempt still
    run; the application-wide attempt id distinguishes most of those. Nor may the tasks of a driver that is still alive
    share an id with those of the next; among eight successive claims none do. Ids are few and reused by later batches:
    that fences what is left of much earlier ones, and a broker remembers each id for 7 days.

    Args:
        claim: the driver's, from ``settle``.
    """
    return f"{query}{claim_number(claim) % TURNS}-{partition}-{attempt}-{task_attempt_id % SLOTS}"


class QueryTransactions:
    """The driver's view of one query's transactions.

    Args:
        log: used by this query alone.
        query: prefix of its transactional ids.
        statements: where audit statements are written; None for nowhere.
        topic: of all rows; empty if they have it themselves.
    """

    def __init__(
        self,
        log: CommitLog,
        transactions: Transactions,
        query: str,
        statements: Storage | None = None,
        topic: str = "",
    ) -> None:
        self._log = log
        self._transactions = transactions
        self._query = query
        self._statements = statements
        self._topic = topic

    async def settle(self, job: str = "") -> Settled:
        """Take the log over, and end what earlier batches and attempts left.

        Args:
            job: the batch that is going to be written, if it is not a micro-batch.
        Raises:
            TakenOverError: another driver did so at the same time.
            SparkWriteError: a batch is torn, see recovery; the query must not continue until somebody has decided.
            ConfigError: the job was done before, to another topic.
        """
        claim = self._log.claim()
        self._log.tidy()
        given_up = set()
        for winners in self._log.unfinished():
            if winners.batch not in given_up:
                logger.warning("batch %s was recorded but not finished: finishing it", winners.batch)
                own = self._record_anew(winners, claim)
                if await self._finish(own, await self._outcomes(own), untouched=False):
                    given_up.add(winners.batch)
                else:
                    # Its driver may not have written it. After the commits, which must not wait long.
                    self._state(own)
                    self._log.finish(own.batch, own.rows, own.topic)
        await self._abort_open(claim)
        if not job:
            return Settled(claim, self._log.committed())
        if not self._log.is_committed(job):
            return Settled(claim, frozenset())
        before = self._log.topic(job)
        if before and self._topic and before != self._topic:
            raise ConfigError(
                f"batch {job} was committed before, to topic {before}, and would not be written to {self._topic}: each "
                "write needs a jobId of its own"
            )
        return Settled(claim, frozenset({job}))

    async def commit(
        self,
        claim: str,
        batch: str,
        prepared: Iterable[PreparedTransaction],
        statement: tuple[str, bytes] = ("", b""),
        rows: int | None = None,
    ) -> bool:
        """Make a batch visible: all its transactions or none. Returns False if it had been committed before.

        Args:
            claim: the one the batch was written under.
            statement: file and content of the audit statement, valid once the batch is committed.
            rows: how many the batch has, whether tasks wrote or skipped them; None if unknown.
        Raises:
            TakenOverError: another driver has claimed the log since; this one has committed nothing.
            SparkWriteError: nothing was committed, as transactions were lost meanwhile; or the batch is torn; or it is
                recorded, but not all of it could be committed.
            KafkaError: the cluster could not be asked, and nothing was committed.
            OSError: log or statement could not be written, and nothing was committed; or all of it was, and it is a
                batch that may be asked for again.
        """
        is_new = not self._log.is_committed(batch)
        if is_new:
            file, stated = statement
            open_ones = tuple(one for one in prepared if not one.is_empty)
            if open_ones:
                await self._commit(
                    Winners(batch, open_ones, file, stated.decode(), claim, rows=rows, topic=self._topic)
                )
            else:
                self._check(claim)
                self._log.finish(batch, rows, self._topic)
        await self._abort_losers(claim)
        if not is_new:
            self._check_same(batch, rows)
        return is_new

    def _check_same(self, batch: str, rows: int | None) -> None:
        """Of a batch that was committed before: log what is not written again; refuse what can't be the same."""
        before = self._log.rows(batch)
        told = "" if rows is None else f": {rows:,} rows are not written again"
        if micro_batch_of(batch) is None:
            # A scheduler may repeat a job, but rows of another one would be lost.
            logger.warning("batch %s was committed before%s; each job needs a jobId of its own", batch, told)
        elif rows is None or before in (None, rows):
            # A driver died after its commit, and before Spark had noted that.
            logger.info("batch %s was committed before%s", batch, told)
        else:
            place = self._log.place_of_end(batch)
            raise SparkWriteError(
                f"batch {batch} was committed before, with {before:,} rows, and now has {rows:,}: the transaction log "
                "is ahead of the checkpoint, or its query gives other rows when it is repeated. To have these rows "
                f"written, remove {place}, and those of later micro-batches; to have them skipped, empty it"
            )

    async def _commit(self, winners: Winners) -> None:
        """Record a batch, and commit what is recorded."""
        try:
            self._record(winners)
            self._state(winners)
            outcomes = await self._outcomes(winners)
        except (KafkaError, OSError) as error:
            self._take_back(winners, error)
            raise
        lost = await self._finish(winners, outcomes, untouched=True)
        if lost:
            await self._abort_losers(winners.claim)
            raise SparkWriteError(
                f"batch {winners.batch}: nothing was committed, as these transactions had been aborted: "
                f"{_names(lost)}. The broker aborts a transaction after kafka.transaction.timeout.ms, counted "
                "from a task's first row to the commit of the batch"
            )
        try:
            self._log.finish(winners.batch, winners.rows, winners.topic)
        except OSError as error:
            if not is_single(winners.batch):
                raise  # asked for again, it will be found committed
            logger.warning(
                "batch %s is committed, but the transaction log can't be written; the next write does so: %s",
                winners.batch, str(error),
            )  # fmt: skip

    async def abort(self, claim: str = "") -> None:
        """Abort what is open, except what is recorded and will thus be committed.

        Args:
            claim: the one the batch was written under; empty if no task reported it: then the log is claimed anew.
        """
        try:
            await self._abort_open(claim or self._log.claim())
        except TakenOverError as error:
            logger.warning("nothing is aborted: %s", str(error))

    async def _abort_losers(self, claim: str) -> None:
        """Abort what nobody will commit; the batch does not depend on it."""
        try:
            await self._abort_open(claim)
        except (KafkaError, OSError, SparkWriteError) as error:
            # The next settle() does it, or the broker after its timeout.
            logger.warning("transactions of losing attempts could not be aborted: %s", str(error))

    async def _abort_open(self, claim: str) -> None:
        """Abort what is open under the query's ids and not recorded.

        The claims are checked between finding and aborting, so nothing found belongs to a driver that claims later.
        """
        recorded = {one.transactional_id for winners in self._log.unfinished() for one in winners.transactions}
        if recorded:
            logger.warning("%d transactions are on record and stay open; a restart commits them", len(recorded))
        found = await self._transactions.list_transactions(self._query, states=OPEN_STATES)
        self._check(claim)
        wanted = [one.transactional_id for one in found if one.transactional_id not in recorded]
        await all_in_turn(self._transactions.fence, wanted)

    def _record(self, winners: Winners) -> None:
        """Record what will be committed, if this driver still may."""
        self._log.record(winners)
        try:
            self._check(winners.claim)
        except TakenOverError:
            # Nobody has touched it: the other driver acts on its own records.
            self._log.withdraw(winners)
            raise

    def _record_anew(self, winners: Winners, claim: str) -> Winners:
        """Record a batch under this driver's claim: the driver that recorded it may be alive, and remove its record."""
        own = replace(winners, claim=claim, record=new_id())
        self._record(own)
        self._log.withdraw(winners)
        return own

    def _check(self, claim: str) -> None:
        if not self._log.is_claimed_by(claim):
            raise TakenOverError(
                f"another driver has begun to write with this transaction log, {self._log.place}: this one commits "
                "nothing more, and the other one commits what this one had recorded, unless the brokers have aborted "
                "it. Two queries, or two concurrent writes, must not share a log"
            )

    async def _outcomes(self, winners: Winners) -> list[TransactionOutcome]:
        """The outcome of each transaction of a batch."""
        return await all_in_turn(self._transactions.outcome, winners.transactions)

    async def _finish(self, winners: Winners, outcomes: Sequence[TransactionOutcome], *, untouched: bool) -> Prepared:
        """Commit what is recorded, or withdraw the record; returns the transactions that made it withdraw."""
        found = plan(winners.transactions, outcomes, untouched=untouched)
        if found.lost:
            # A driver that has claimed the log since may have given the batch up and written it again, or have
            # committed it, and their outcome is unknown because their ids were used again.
            self._check(winners.claim)
        if found.verdict is Verdict.TORN:
            raise self._torn(winners, found)
        if found.verdict is Verdict.WITHDRAW:
            await self._give_up(winners, found)
            return found.lost
        try:
            await all_in_turn(self._transactions.commit, found.open)
        except KafkaError as error:
            raise SparkWriteError(
                f"batch {winners.batch} is recorded, but could not be committed in full: {error}. {_advice(winners)}"
            ) from error
        return ()

    async def _give_up(self, winners: Winners, found: Plan) -> None:
        """Abort the rest of a batch of which nothing is committed, and remove its record."""
        logger.warning("batch %s: nothing is committed, as some were aborted: %s", winners.batch, _names(found.lost))
        ends = await in_turn(self._transactions.abort, found.open)
        committed = [one for one, end in zip(found.open, ends, strict=True) if isinstance(end, TransactionStateError)]
        if committed:
            # By the driver that recorded it, just now.
            raise self._torn(winners, replace(found, open=(), committed=tuple(committed)))
        for end in ends:
            if end is not None:
                raise end
        self._unstate(winners)
        self._log.give_up(winners)

    def _take_back(self, winners: Winners, cause: Exception) -> None:
        """Remove a record, if there is one, of which this driver has committed nothing.

        Raises:
            SparkWriteError: it may still be there, and would be committed.
        """
        try:
            self._unstate(winners)
            self._log.withdraw(winners)
        except OSError as error:
            raise SparkWriteError(
                f"batch {winners.batch} could not be committed: {cause}; nor could its record be removed: {error}. "
                f"If there is a file {self._log.place_of(winners)}: {_advice(winners)}"
            ) from cause
        # From here on only this driver would know that nothing is committed.
        self._check(winners.claim)

    def _state(self, winners: Winners) -> None:
        """Write the audit statement."""
        if self._statements is not None and winners.statement:
            self._statements.write(winners.statement, winners.stated.encode())

    def _unstate(self, winners: Winners) -> None:
        """Remove the audit statement, unless another driver has claimed the log: then it may be that driver's.

        Before the record, without which nobody knows of it. A driver that is frozen between look and removal, until the
        other one has written its statement, does remove that: then an audit knows less, but no record is affected.
        """
        if self._statements is not None and winners.statement and self._log.is_claimed_by(winners.claim):
            self._statements.remove(winners.statement)

    def _torn(self, winners: Winners, found: Plan) -> SparkWriteError:
        return SparkWriteError(
            f"batch {winners.batch} is torn: committed: {_names(found.committed) or 'none for certain'}; lost: "
            f"{_names(found.lost)}; open: {_names(found.open) or 'none'}. To have the batch written again, which "
            f"duplicates what is committed of it, remove {self._log.place_of(winners)}"
        )


def _advice(winners: Winners) -> str:
    """What the user can do about a batch whose commit was cut short."""
    if is_single(winners.batch):
        return (
            "The next write with this transactionLog commits what is missing. Do not write these rows again, or they "
            "will be duplicated; the option jobId makes a write repeatable"
        )
    return "It will be committed, not written again, when the query is restarted, or the job repeated with its jobId"


def _names(transactions: Prepared) -> str:
    names = [one.transactional_id for one in transactions[:NAMED]]
    if (more := len(transactions) - NAMED) > 0:
        names.append(f"and {more:,} more")
    return ", ".join(names)
