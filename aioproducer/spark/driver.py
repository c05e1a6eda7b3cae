"""What runs on the driver: before the tasks, and after they end. Spark has a Python process for each, new or used.

Without transactions there is nothing to do but log. With them, see exactly_once.py.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from aioproducer.audit.statement import as_text
from aioproducer.config.producer_config import underscored
from aioproducer.spark.background import start_patiently
from aioproducer.spark.batch_names import batch_write
from aioproducer.spark.commit_log import CommitLog
from aioproducer.spark.errors import SparkWriteError
from aioproducer.spark.exactly_once import QueryTransactions, Settled, query_prefix
from aioproducer.spark.options import SinkOptions
from aioproducer.spark.outcome import TaskMessage, total
from aioproducer.spark.storage import Storage
from aioproducer.spark.task import Sink
from aioproducer.transactions import TransactionClient

logger: logging.Logger = logging.getLogger("aioproducer.spark")


def prepare(sink: Sink) -> Sink:
    """Before a batch's first task: end what earlier batches left, and tell the tasks what is already done."""
    transactional = sink.options.transactional
    if transactional is None:
        return sink
    _show_log()

    batch = "" if sink.is_stream else batch_write(transactional.job)

    async def settle() -> Settled:
        async with _transactions(sink.options) as transactions:
            return await transactions.settle(batch)

    settled = asyncio.run(settle())
    return replace(sink, batch=batch, claim=settled.claim, committed=settled.committed)


def commit(sink: Sink, messages: Sequence[object], what: str) -> None:
    """Make the tasks' output visible, and log it.

    Args:
        what: name of the write, for the log.
    """
    _show_log()
    told = [one for one in messages if isinstance(one, TaskMessage)]
    if len(told) < len(messages):
        # Spark's continuous trigger does this: rows never reach Python, but the checkpoint would advance past them.
        raise SparkWriteError(
            f"{what}: not every task was called with its rows, so nothing is committed. Spark has no Python writers "
            "for the continuous trigger; stop the query, and use another trigger"
        )
    statement, written = _statement(messages), total(told)
    if sink.options.transactional is None:
        statements = _statements(sink.options)
        if statements is not None and statement[0]:
            statements.write(*statement)
    else:
        rows = written.records + written.dead_letters + sum(one.skipped for one in told)
        if not asyncio.run(_commit(sink, told, statement, rows)):
            return
    logger.info("%s: %s", what, written)


async def _commit(sink: Sink, messages: Sequence[TaskMessage], statement: tuple[str, bytes], rows: int) -> bool:
    """Commit the batch; returns False if it had been committed before."""
    batches = {message.batch for message in messages} - {""}
    if len(batches) > 1 or (sink.batch and batches - {sink.batch}):
        raise SparkWriteError(
            f"the tasks of one batch wrote different batches, {', '.join(sorted(batches))}; nothing is committed"
        )
    prepared = [message.prepared for message in messages if message.prepared is not None]
    async with _transactions(sink.options) as transactions:
        for batch in batches:  # none if the DataFrame has no partitions
            return await transactions.commit(_claim(messages), batch, prepared, statement, rows)
    return True


def _claim(messages: Sequence[object]) -> str:
    """The claim the tasks wrote under, from their messages; empty if none has it. A stream writer does not know it."""
    return min((one.claim for one in messages if isinstance(one, TaskMessage)), default="")


def abort(sink: Sink, messages: Sequence[object], what: str) -> None:
    """Abort what the tasks of a failed batch wrote; without transactions, log what is in the topics.

    Args:
        what: name of the write, for the log.
    """
    _show_log()
    if sink.options.transactional is not None:

        async def abort() -> None:
            async with _transactions(sink.options) as transactions:
                await transactions.abort(sink.claim or _claim(messages))

        asyncio.run(abort())
        logger.warning("%s failed", what)
        return
    done = total(messages)
    if done.records or done.dead_letters:
        logger.warning("%s failed; its successful tasks have written %s", what, done)


def _statement(messages: Sequence[object]) -> tuple[str, bytes]:
    """File and content of the audit statement; both empty if no task has one."""
    said = [one.statement for one in messages if isinstance(one, TaskMessage) and one.statement is not None]
    if not said:
        return "", b""
    return f"{said[0].write}.jsonl", as_text([line for one in said for line in one.lines]).encode()


def _statements(options: SinkOptions) -> Storage | None:
    return None if options.audit_statements is None else Storage(options.audit_statements, "auditStatements")


@asynccontextmanager
async def _transactions(options: SinkOptions) -> AsyncIterator[QueryTransactions]:
    transactional = options.transactional
    assert transactional is not None
    log = CommitLog(Storage(transactional.log))
    client = TransactionClient(**underscored(options.producer))
    await start_patiently(client, options.producer)
    try:
        prefix = query_prefix(transactional.prefix, transactional.log)
        yield QueryTransactions(log, client, prefix, _statements(options), options.topic or "")
    finally:
        await client.close()


def _show_log() -> None:
    """Log to standard error, which Spark forwards, if the process has no logging set up.

    Spark's own logging of its workers has a handler, but leaves the level at WARNING.
    """
    if not logging.getLogger().handlers and not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
