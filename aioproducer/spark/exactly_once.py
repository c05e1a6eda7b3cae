"""QueryTransactions: what the driver does with the transactions that the tasks of one query have prepared.

    settle   before the first task of a batch: finish what a driver before has begun to commit, say what it may not have
             said of that, abort whatever else is open under the query's ids; so a batch is never written while an
             earlier attempt at it may come to light
    commit   record the winners, say what an audit is to find, see that all are open, commit them all, note that they
             are; then abort the losers
    abort    abort everything that is open, but never what is on record

The record is what makes it all or none: from the moment it is there the batch is committed, by this driver or by the
next one; before, it is not. A driver that dies in between leaves nothing that the next one's ``settle`` can't decide
(see ``recovery``). The commits of a batch are single requests, so a reader may see a part of it for a moment.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection, Iterable
from typing import Protocol

from aioproducer.errors import KafkaError
from aioproducer.records import PreparedTransaction
from aioproducer.spark.batch_names import is_single
from aioproducer.spark.commit_log import CommitLog, Winners
from aioproducer.spark.errors import SparkWriteError
from aioproducer.spark.recovery import Plan, Prepared, Verdict, plan
from aioproducer.spark.storage import Storage
from aioproducer.transaction_outcome import TransactionOutcome

logger: logging.Logger = logging.getLogger("aioproducer.spark")

SLOTS = 8
"""By how many ids the attempts at one task may differ beyond their attempt number, see transactional_id()."""


class Transactions(Protocol):
    """What is asked of the cluster; ``aioproducer.transactions.TransactionClient``."""

    async def outcome(self, prepared: PreparedTransaction) -> TransactionOutcome:
        """What has become of a transaction."""
        ...

    async def commit(self, prepared: PreparedTransaction) -> None:
        """Commit it; also if it is committed already."""
        ...

    async def abort_transactions(
        self, prefix: str, *, keep: Collection[PreparedTransaction | str] = ()
    ) -> Collection[object]:
        """Abort whatever is open under ids with a prefix."""
        ...


def query_prefix(prefix: str, location: str) -> str:
    """What the transactional ids of a query begin with.

    Args:
        location: of its log, which no other query shares and which stays over restarts.
    """
    return f"{prefix}-{hashlib.sha256(location.encode()).hexdigest()[:12]}-"


def transactional_id(query: str, *, partition: int, attempt: int, task_attempt_id: int) -> str:
    """The id of one attempt at one task.

    Attempts of a batch must not share one, for the second would fence the first, which may have won already. Attempt
    numbers tell them apart, but count from 0 again when Spark does a whole stage again while tasks of its first attempt
    still run; the number of the attempt in the application tells most of those. Few ids, used again by later batches,
    fence what is left of earlier ones, and a broker remembers each for 7 days.
    """
    return f"{query}{partition}-{attempt}-{task_attempt_id % SLOTS}"


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

    async def settle(self) -> frozenset[str]:
        """End what earlier batches and attempts have left; the batches that are committed and not to be written again.

        Raises:
            SparkWriteError: a batch is torn, see recovery; the query must not go on before somebody has decided.
        """
        self._log.tidy()
        ended = set()
        for winners in self._log.unfinished():
            if winners.batch not in ended:
                logger.warning("batch %s was recorded and not finished: finishing it", winners.batch)
                if not await self._finish(winners, untouched=False):
                    ended.add(winners.batch)
        await self._transactions.abort_transactions(self._query)
        return self._log.committed()

    async def commit(
        self, batch: str, prepared: Iterable[PreparedTransaction], statement: tuple[str, bytes] = ("", b"")
    ) -> None:
        """Make a batch visible: all of its transactions, or none.

        Args:
            statement: file and content of what an audit is to find once the batch is committed.
        Raises:
            SparkWriteError: nothing was committed, as transactions were lost meanwhile; or the batch is torn; or it is
                on record, and the cluster could not be asked for all of it.
            KafkaError: the cluster could not be asked, and nothing was committed.
        """
        if batch not in self._log.committed():
            file, stated = statement
            winners = Winners(batch, tuple(one for one in prepared if not one.is_empty), file, stated.decode())
            if winners.transactions:
                self._log.record(winners)
                self._state(winners)
                lost = await self._finish(winners, untouched=True)
                if lost:
                    raise SparkWriteError(
                        f"batch {batch}: nothing was committed, for these transactions were aborted before: "
                        f"{_names(lost)}. The broker does that after kafka.transaction.timeout.ms, counted from a "
                        "task's first row to the commit of the batch"
                    )
            else:
                self._log.finish(batch)
        try:
            await self._transactions.abort_transactions(self._query, keep=self._recorded())
        except (KafkaError, OSError) as error:
            # The batch is there. The next settle() does this again, or the broker in its time.
            logger.warning("transactions of attempts that lost could not be aborted: %s", error)

    async def abort(self) -> None:
        """Abort what is open, but for what is on record and so going to be committed."""
        recorded = self._recorded()
        if recorded:
            logger.warning("%d transactions are on record and stay open; a restart commits them", len(recorded))
        await self._transactions.abort_transactions(self._query, keep=recorded)

    def _recorded(self) -> list[PreparedTransaction]:
        return [one for winners in self._log.unfinished() for one in winners.transactions]

    async def _finish(self, winners: Winners, *, untouched: bool) -> Prepared:
        """Commit what is on record, or withdraw the record; the transactions for which it had to be withdrawn."""
        try:
            outcomes = await asyncio.gather(*(self._transactions.outcome(one) for one in winners.transactions))
        except KafkaError:
            if untouched:
                self._withdraw(winners)
            raise
        found = plan(winners.transactions, outcomes, untouched=untouched)
        if found.verdict is Verdict.TORN:
            raise self._torn(winners, found)
        if found.verdict is Verdict.WITHDRAW:
            logger.warning("batch %s: none is committed, for some were aborted: %s", winners.batch, _names(found.lost))
            self._withdraw(winners)
            await self._transactions.abort_transactions(self._query, keep=self._recorded())
            return found.lost
        ends = await asyncio.gather(*(self._transactions.commit(one) for one in found.open), return_exceptions=True)
        for end in ends:
            if isinstance(end, KafkaError):
                raise SparkWriteError(
                    f"batch {winners.batch} is on record, and could not be committed in full: {end}. {_advice(winners)}"
                ) from end
            if end is not None:
                raise end
        if not untouched:
            # The driver that has recorded it may not have come to that. After the commits, which may not wait for long.
            self._state(winners)
        self._log.finish(winners.batch)
        return ()

    def _state(self, winners: Winners) -> None:
        """Say what an audit is to find."""
        if self._statements is not None and winners.statement:
            self._statements.write(winners.statement, winners.stated.encode())

    def _withdraw(self, winners: Winners) -> None:
        """Note that nothing is committed; the statement first, for without the record nobody knows of it."""
        if self._statements is not None and winners.statement:
            self._statements.remove(winners.statement)
        self._log.withdraw(winners)

    def _torn(self, winners: Winners, found: Plan) -> SparkWriteError:
        return SparkWriteError(
            f"batch {winners.batch} is torn: committed are {_names(found.committed) or 'none for certain'}, lost are "
            f"{_names(found.lost)}, open are {_names(found.open) or 'none'}. To have the batch written again, with "
            f"what is committed of it twice, remove {self._log.place_of(winners)}"
        )


def _advice(winners: Winners) -> str:
    """What to do about a batch whose commit was cut short."""
    if is_single(winners.batch):
        return (
            "The next write with this transactionLog commits the rest. Do not write these rows again, or they are "
            "there twice; the option jobId makes a write repeatable"
        )
    return "It is committed, not written again, when the query is restarted, or the job repeated under its jobId"


def _names(transactions: Prepared) -> str:
    return ", ".join(one.transactional_id for one in transactions)
