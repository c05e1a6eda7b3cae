"""What runs in a task: it sends its rows to Kafka. All it knows of the query is the Sink, which Spark pickles."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from aioproducer.spark.background import Background, background, in_transaction
from aioproducer.spark.batch_names import micro_batch
from aioproducer.spark.chunks import CHUNK_ROWS, Chunk, arrow_chunks, row_chunks
from aioproducer.spark.columns import Columns
from aioproducer.spark.exactly_once import query_prefix, transactional_id
from aioproducer.spark.marking import TaskAudit, write_name
from aioproducer.spark.options import SinkOptions, Transactional
from aioproducer.spark.outcome import Outcome, TaskMessage, TaskStatement
from aioproducer.spark.sending import TaskSend
from aioproducer.spark.totals import count_in

QUERY_ID = "sql.streaming.queryId"
"""Local property of Spark's tasks: the query's id, unchanged by a restart from its checkpoint."""

BATCH_ID = "streaming.sql.batchId"
"""Local property: the number of the micro-batch. Source: StreamExecution, MicroBatchExecution."""


@dataclass(frozen=True, slots=True)
class Sink:
    """How one query writes to Kafka.

    Args:
        is_stream: whether the tasks belong to a micro-batch. The local properties don't tell: with ``foreachBatch``,
            batch writes, maybe several, have them too.
        batch: name in the log of a batch write with transactions.
        claim: the driver's claim of the transaction log.
        committed: batches already committed, which must not be written again.
        write: name of a batch write without transactions.
    """

    options: SinkOptions
    columns: Columns
    is_stream: bool = False
    batch: str = ""
    claim: str = ""
    committed: frozenset[str] = frozenset()
    write: str = ""

    def write_batches(self, batches: Iterator[Any]) -> TaskMessage:
        """Write Arrow batches in a task."""
        # Each dead letter's row must be known.
        most = None if self.options.dead_letter_topic is None else CHUNK_ROWS
        audit = self._audit()
        return self._write(
            batches, arrow_chunks(batches, self.columns, most, audit), audit, lambda batch: batch.num_rows
        )

    def write_rows(self, rows: Iterator[Any]) -> TaskMessage:
        """Write rows in a task."""
        audit = self._audit()
        return self._write(rows, row_chunks(rows, self.columns, audit), audit, lambda row: 1)

    def _write(
        self,
        source: Iterator[Any],
        chunks: Iterator[Chunk],
        audit: TaskAudit | None,
        rows_in: Callable[[Any], int],
    ) -> TaskMessage:
        context = TaskContext.get()
        assert context is not None
        if self.options.transactional is None:
            message = self._write_at_least_once(context, chunks, audit)
        elif self._batch(context) in self.committed:
            # A driver committed this batch and died before Spark knew; or a job was repeated.
            skipped = sum(map(rows_in, source))
            message = TaskMessage(Outcome(), context.partitionId(), self._batch(context), self.claim, skipped=skipped)
        else:
            message = self._write_in_transaction(context, chunks, self.options.transactional, audit)
        if audit is not None and (lines := audit.statement()):
            message.statement = TaskStatement(self._write_name(context), lines)
        count_in(self.options.totals, message.outcome)
        return message

    def _batch(self, context: TaskContext) -> str:
        return micro_batch(*_micro_batch(context)) if self.is_stream else self.batch

    def _write_name(self, context: TaskContext) -> str:
        """The same for all attempts, including those of a restarted query."""
        if self.is_stream:
            query, number = _micro_batch(context)
            return f"{write_name(query)}-{number}"
        transactional = self.options.transactional
        return write_name(self.write) if transactional is None else write_name(transactional.log, self.batch)

    def _audit(self) -> TaskAudit | None:
        context = TaskContext.get()
        if not self.options.audit or context is None:
            return None
        producer = f"{self._write_name(context)}-{context.partitionId()}"
        return TaskAudit(producer, uuid.uuid4().hex[:8], self.options.topic)

    def _write_at_least_once(
        self, context: TaskContext, chunks: Iterator[Chunk], audit: TaskAudit | None
    ) -> TaskMessage:
        partition = context.partitionId()
        there = background()
        idle_s = self.options.idle_timeout_ms / 1000
        with there.inside(there.producers.borrow(self.options.producer, idle_s)) as producer:
            send = TaskSend(producer, self.options, partition, audit)
            return TaskMessage(_send_all(there, send, chunks), partition)

    def _write_in_transaction(
        self, context: TaskContext, chunks: Iterator[Chunk], transactional: Transactional, audit: TaskAudit | None
    ) -> TaskMessage:
        partition = context.partitionId()
        batch = self._batch(context)
        first = next(chunks, None)
        if first is None:
            return TaskMessage(Outcome(), partition, batch, self.claim)
        name = transactional_id(
            query_prefix(transactional.prefix, transactional.log),
            self.claim,
            partition=partition,
            attempt=context.attemptNumber(),
            task_attempt_id=context.taskAttemptId(),
        )
        there = background()
        with there.inside(in_transaction({**self.options.producer, "transactional.id": name})) as producer:
            send = TaskSend(producer, self.options, partition, audit)
            outcome = _send_all(there, send, itertools.chain((first,), chunks))
            return TaskMessage(outcome, partition, batch, self.claim, there.run(producer.prepare_transaction()))


def _micro_batch(context: TaskContext) -> tuple[str, str]:
    query, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    assert query is not None
    assert number is not None
    return query, number


def _send_all(there: Background, send: TaskSend, chunks: Iterable[Chunk]) -> Outcome:
    """Pass the chunks on while Spark produces the next ones."""
    handed_over: Future[None] | None = None
    try:
        for chunk in chunks:
            if handed_over is not None:
                handed_over.result()
            handed_over = there.start(send.put(chunk))
        if handed_over is not None:
            handed_over.result()
        return there.run(send.finish())
    except BaseException:
        there.run(send.cancel())
        raise
