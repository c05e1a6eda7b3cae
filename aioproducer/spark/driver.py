"""What runs on the driver: before the tasks, and when they have ended. Spark starts a Python process for each of these.

Without transactions there is nothing to do but to tell. With them see exactly_once.py.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from aioproducer.audit.statement import as_text
from aioproducer.spark.commit_log import CommitLog
from aioproducer.spark.exactly_once import QueryTransactions, query_prefix
from aioproducer.spark.options import SinkOptions
from aioproducer.spark.outcome import TaskMessage, total
from aioproducer.spark.storage import Storage
from aioproducer.spark.task import Sink
from aioproducer.transactions import TransactionClient

logger: logging.Logger = logging.getLogger("aioproducer.spark")


def prepare(sink: Sink) -> Sink:
    """Before the first task of a batch: end what earlier ones have left, and tell the tasks what is done already."""
    transactional = sink.options.transactional
    if transactional is None:
        return sink
    _show_log()

    async def settle() -> frozenset[str]:
        async with _transactions(sink.options) as transactions:
            return await transactions.settle()

    return replace(sink, job=transactional.job or f"job-{uuid.uuid4().hex}", committed=asyncio.run(settle()))


def commit(sink: Sink, messages: Sequence[object], batch: str) -> None:
    """Make visible what the tasks have written, and log it.

    Args:
        batch: the number of a micro-batch, or the name of a batch write.
    """
    _show_log()
    _state(sink.options, messages)
    if sink.options.transactional is not None:
        prepared = [one.prepared for one in messages if isinstance(one, TaskMessage) and one.prepared is not None]

        async def commit() -> None:
            async with _transactions(sink.options) as transactions:
                await transactions.commit(batch, prepared)

        asyncio.run(commit())
    logger.info("%s: %s", _what(batch), total(messages))


def abort(sink: Sink, messages: Sequence[object], batch: str) -> None:
    """End what the tasks of a failed batch have written; without transactions, log what stands in the topics."""
    _show_log()
    if sink.options.transactional is not None:

        async def abort() -> None:
            async with _transactions(sink.options) as transactions:
                await transactions.abort()

        asyncio.run(abort())
        logger.warning("%s failed", _what(batch))
        return
    done = total(messages)
    if done.records or done.dead_letters:
        logger.warning("%s failed; its tasks that ended well have written %s", _what(batch), done)


def _state(options: SinkOptions, messages: Sequence[object]) -> None:
    """Write down what an audit is to find; before it is committed, for a driver that dies then has promised it."""
    said = [one.statement for one in messages if isinstance(one, TaskMessage) and one.statement is not None]
    if options.audit_statements is not None and said:
        text = as_text([line for one in said for line in one.lines])
        Storage(options.audit_statements, "auditStatements").write(f"{said[0].write}.jsonl", text.encode())


def _what(batch: str) -> str:
    return f"micro-batch {batch}" if batch.isdigit() else "batch write"


@asynccontextmanager
async def _transactions(options: SinkOptions) -> AsyncIterator[QueryTransactions]:
    transactional = options.transactional
    assert transactional is not None
    log = CommitLog(Storage(transactional.log))
    configs = {name.replace(".", "_"): value for name, value in options.producer.items()}
    async with TransactionClient(**configs) as client:
        yield QueryTransactions(log, client, query_prefix(transactional.prefix, transactional.log))


def _show_log() -> None:
    """Write the log to standard error, which Spark passes on, in a process in which nobody has set up logging."""
    if not logging.getLogger().handlers and not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
