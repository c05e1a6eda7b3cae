"""QueryTransactions: what the driver does with the transactions that the tasks of one query have prepared.

    settle   before the first task of a batch: claim the log, finish what a driver before has begun to commit, say what
             it may not have said of that, abort whatever else is open under the query's ids; so a batch is never
             written while an earlier attempt at it may come to light
    commit   record the winners, see that nobody else has claimed the log, say what an audit is to find, see that all
             are open, commit them all, note that they are; then abort the losers
    abort    abort everything that is open, but never what is on record

The record is what makes it all or none: from the moment it is there the batch is committed, by this driver or by the
next one; before, it is not. A driver that dies in between leaves nothing that the next one's ``settle`` can't decide
(see ``recovery``). The commits of a batch are single requests, so a reader may see a part of it for a moment.

The driver before may not be dead, only slow, or cut off from whoever started the next one. From the claim on it commits
nothing that it has not recorded before (then both commit the same), and aborts nothing that it finds later: each looks
at the claims after it has recorded, and between finding what is open and aborting that. The tasks of two claims share
no transactional id, so they can't fence each other.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from aioproducer.errors import KafkaError, TransactionStateError
from aioproducer.records import PreparedTransaction
from aioproducer.spark.batch_names import is_single
from aioproducer.spark.commit_log import CommitLog, Winners, claim_number, new_id
from aioproducer.spark.errors import SparkWriteError, TakenOverError
from aioproducer.spark.recovery import Plan, Prepared, Verdict, plan
from aioproducer.spark.storage import Storage
from aioproducer.transaction.outcome import TransactionListing, TransactionOutcome
from aioproducer.transactions import OPEN_STATES

logger: logging.Logger = logging.getLogger("aioproducer.spark")

SLOTS = 8
"""By how many ids the attempts at one task may differ beyond their attempt number, see transactional_id()."""

TURNS = 8
"""After how many claims their tasks have the same ids again."""


class Transactions(Protocol):
    """What is asked of the cluster; ``aioproducer.transactions.TransactionClient``."""

    async def outcome(self, prepared: PreparedTransaction) -> TransactionOutcome:
        """What has become of a transaction."""
        ...

    async def commit(self, prepared: PreparedTransaction) -> None:
        """Commit it; also if it is committed already."""
        ...

    async def abort(self, prepared: PreparedTransaction) -> None:
        """Abort it; raises TransactionStateError if it is committed."""
        ...

    async def list_transactions(
        self, prefix: str = "", *, states: Collection[str] = ()
    ) -> Sequence[TransactionListing]:
        """The transactions in one of some states under ids with a prefix."""
        ...

    async def fence(self, transactional_id: str) -> None:
        """Abort what is open under an id, and keep its producer from going on."""
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """Whose turn it is, and what is done already.

    Args:
        claim: of the log; batches are committed and aborted under it.
        committed: batches that are not to be written again.
    """

    claim: str
    committed: frozenset[str]


def query_prefix(prefix: str, location: str) -> str:
    """What the transactional ids of a query begin with.

    Args:
        location: of its log, which no other query shares and which stays over restarts.
    """
    return f"{prefix}-{hashlib.sha256(location.encode()).hexdigest()[:12]}-"


def transactional_id(query: str, claim: str, *, partition: int, attempt: int, task_attempt_id: int) -> str:
    """The id of one attempt at one task.

    Attempts of a batch must not share one, for the second would fence the first, which may have won already. Attempt
    numbers tell them apart, but count from 0 again when Spark does a whole stage again while tasks of its first attempt
    still run; the number of the attempt in the application tells most of those. Nor must the tasks of a driver that
    still lives share one with those of the next; of eight claims in a row none do. Few ids, used again by later
    batches, fence what is left of much earlier ones, and a broker remembers each for 7 days.

    Args:
        claim: of the driver, as ``settle`` gave it.
    """
    return f"{query}{claim_number(claim) % TURNS}-{partition}-{attempt}-{task_attempt_id % SLOTS}"


class QueryTransactions:
    """The transactions of one query, as its driver sees them.

    Args:
        log: of this query alone.
        query: what its transactional ids begin with.
        statements: where it says what an audit is to find; None for nowhere.
    """

    def __init__(
        self, log: CommitLog, transactions: Transactions, query: str, statements: Storage | None = None
    ) -> None:
        self._log = log
        self._transactions = transactions
        self._query = query
        self._statements = statements

    async def settle(self) -> Settled:
        """Take the log over, and end what earlier batches and attempts have left.

        Raises:
            TakenOverError: somebody else has done so at the same time.
            SparkWriteError: a batch is torn, see recovery; the query must not go on before somebody has decided.
        """
        claim = self._log.claim()
        self._log.tidy()
        given_up = set()
        for winners in self._log.unfinished():
            if winners.batch not in given_up:
                logger.warning("batch %s was recorded but not finished: finishing it", winners.batch)
                own = self._record_anew(winners, claim)
                if await self._finish(own, untouched=False):
                    given_up.add(winners.batch)
        await self._abort_open(claim)
        return Settled(claim, self._log.committed())

    async def commit(
        self, claim: str, batch: str, prepared: Iterable[PreparedTransaction], statement: tuple[str, bytes] = ("", b"")
    ) -> None:
        """Make a batch visible: all of its transactions, or none.

        Args:
            claim: under which the batch was written.
            statement: file and content of what an audit is to find once the batch is committed.
        Raises:
            TakenOverError: another driver has claimed the log since; this one has committed nothing.
            SparkWriteError: nothing was committed, as transactions were lost meanwhile; or the batch is torn; or it is
                on record, and the cluster could not be asked for all of it.
            KafkaError: the cluster could not be asked, and nothing was committed.
        """
        if batch not in self._log.committed():
            file, stated = statement
            open_ones = tuple(one for one in prepared if not one.is_empty)
            if open_ones:
                winners = Winners(batch, open_ones, file, stated.decode(), claim)
                self._record(winners)
                self._state(winners)
                lost = await self._finish(winners, untouched=True)
                if lost:
                    await self._abort_losers(claim)
                    raise SparkWriteError(
                        f"batch {batch}: nothing was committed, as these transactions had been aborted: "
                        f"{_names(lost)}. The broker aborts a transaction after kafka.transaction.timeout.ms, counted "
                        "from a task's first row to the commit of the batch"
                    )
            else:
                self._check(claim)
                self._log.finish(batch)
        await self._abort_losers(claim)

    async def abort(self, claim: str = "") -> None:
        """Abort what is open, but for what is on record and so going to be committed.

        Args:
            claim: under which the batch was written; empty if no task has told it, then the log is claimed anew.
        """
        try:
            await self._abort_open(claim or self._log.claim())
        except TakenOverError as error:
            logger.warning("nothing is aborted: %s", str(error))

    async def _abort_losers(self, claim: str) -> None:
        """Abort what nobody will commit; what becomes of the batch does not hang on that."""
        try:
            await self._abort_open(claim)
        except (KafkaError, OSError, SparkWriteError) as error:
            # The next settle() does this again, or the broker in its time.
            logger.warning("transactions of losing attempts could not be aborted: %s", str(error))

    async def _abort_open(self, claim: str) -> None:
        """Abort what is open under the query's ids and is not on record.

        The look at the claims stands between finding and aborting: what was found is not of a driver that claims later.
        """
        recorded = {one.transactional_id for winners in self._log.unfinished() for one in winners.transactions}
        if recorded:
            logger.warning("%d transactions are on record and stay open; a restart commits them", len(recorded))
        found = await self._transactions.list_transactions(self._query, states=OPEN_STATES)
        self._check(claim)
        wanted = [one.transactional_id for one in found if one.transactional_id not in recorded]
        await _all(self._transactions.fence(one) for one in wanted)

    def _record(self, winners: Winners) -> None:
        """Put on record what is going to be committed, if this driver may."""
        self._log.record(winners)
        try:
            self._check(winners.claim)
        except TakenOverError:
            # Nobody has touched it: the other driver acts on records of its own.
            self._log.withdraw(winners)
            raise

    def _record_anew(self, winners: Winners, claim: str) -> Winners:
        """Have a batch on record under this driver's claim; whoever has recorded it may live, and take that back."""
        own = replace(winners, claim=claim, record=new_id())
        self._record(own)
        self._log.withdraw(winners)
        return own

    def _check(self, claim: str) -> None:
        if not self._log.is_claimed_by(claim):
            raise TakenOverError(
                f"another driver has begun to write with this transaction log, {self._log.place}: this one commits "
                "nothing more, and the other one commits what this one had recorded. Two queries, or two concurrent "
                "writes, must not share a log"
            )

    async def _finish(self, winners: Winners, *, untouched: bool) -> Prepared:
        """Commit what is on record, or withdraw the record; the transactions for which it had to be withdrawn."""
        try:
            outcomes = await asyncio.gather(*(self._transactions.outcome(one) for one in winners.transactions))
        except KafkaError:
            if untouched:
                self._take_back(winners)
            raise
        found = plan(winners.transactions, outcomes, untouched=untouched)
        if found.verdict is Verdict.TORN:
            raise self._torn(winners, found)
        if found.verdict is Verdict.WITHDRAW:
            await self._give_up(winners, found)
            return found.lost
        try:
            await _all(self._transactions.commit(one) for one in found.open)
        except KafkaError as error:
            raise SparkWriteError(
                f"batch {winners.batch} is recorded, but could not be committed in full: {error}. {_advice(winners)}"
            ) from error
        if not untouched:
            # The driver that has recorded it may not have come to that. After the commits, which may not wait for long.
            self._state(winners)
        self._log.finish(winners.batch)
        return ()

    async def _give_up(self, winners: Winners, found: Plan) -> None:
        """Abort what is left of a batch of which nothing is committed, and take its record back."""
        logger.warning("batch %s: nothing is committed, as some were aborted: %s", winners.batch, _names(found.lost))
        ends = await asyncio.gather(*(self._transactions.abort(one) for one in found.open), return_exceptions=True)
        committed = [one for one, end in zip(found.open, ends, strict=True) if isinstance(end, TransactionStateError)]
        if committed:
            # By the driver that has recorded it, just now.
            raise self._torn(winners, replace(found, open=(), committed=tuple(committed)))
        for end in ends:
            if end is not None:
                raise end
        self._unstate(winners)
        self._log.give_up(winners)

    def _take_back(self, winners: Winners) -> None:
        """Take a record back of which this driver has committed nothing."""
        if self._log.is_claimed_by(winners.claim):
            self._unstate(winners)
        self._log.withdraw(winners)
        # From here on "nothing is committed" would be this driver's word alone.
        self._check(winners.claim)

    def _state(self, winners: Winners) -> None:
        """Say what an audit is to find."""
        if self._statements is not None and winners.statement:
            self._statements.write(winners.statement, winners.stated.encode())

    def _unstate(self, winners: Winners) -> None:
        """Take back what was said; before the record, for without that nobody knows of it."""
        if self._statements is not None and winners.statement:
            self._statements.remove(winners.statement)

    def _torn(self, winners: Winners, found: Plan) -> SparkWriteError:
        return SparkWriteError(
            f"batch {winners.batch} is torn: committed: {_names(found.committed) or 'none for certain'}; lost: "
            f"{_names(found.lost)}; open: {_names(found.open) or 'none'}. To have the batch written again, which "
            f"duplicates what is committed of it, remove {self._log.place_of(winners)}"
        )


async def _all(ends: Iterable[Awaitable[None]]) -> None:
    """Wait for all of them, and raise what the first has raised."""
    for end in await asyncio.gather(*ends, return_exceptions=True):
        if end is not None:
            raise end


def _advice(winners: Winners) -> str:
    """What to do about a batch whose commit was cut short."""
    if is_single(winners.batch):
        return (
            "The next write with this transactionLog commits the rest. Do not write these rows again, or they will be "
            "duplicated; the option jobId makes a write repeatable"
        )
    return "It will be committed, not written again, when the query is restarted, or the job repeated with its jobId"


def _names(transactions: Prepared) -> str:
    return ", ".join(one.transactional_id for one in transactions)
