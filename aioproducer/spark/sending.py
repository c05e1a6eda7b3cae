"""TaskSend: sends all rows of one task, chunk by chunk; runs in the producer's event loop.

Chunks are admitted one after the other, so that the rows of a task keep their order, but a chunk need not wait for the
acknowledgements of earlier ones: ``put`` returns when its rows are in the buffer. ``finish`` waits for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aioproducer.errors import RecordTooLargeError, SendManyError, TransactionAbortedError
from aioproducer.producer import Producer
from aioproducer.records import BatchResult, Record, RecordMetadata, TopicPartition
from aioproducer.spark.bad_rows import (
    BadRow,
    RowPlace,
    by_column,
    dead_letter,
    is_bad_row,
    shortened,
    was_refused_by_broker,
)
from aioproducer.spark.chunks import Chunk, RowChunk
from aioproducer.spark.errors import SparkWriteError
from aioproducer.spark.marking import TaskAudit
from aioproducer.spark.options import SinkOptions
from aioproducer.spark.outcome import Outcome
from aioproducer.spark.rows import payload_bytes


class TaskSend:
    """Sends the rows of one task.

    Args:
        partition: of the DataFrame.
        audit: is told how the rows it marked ended.
    """

    def __init__(
        self, producer: Producer, options: SinkOptions, partition: int, audit: TaskAudit | None = None
    ) -> None:
        self._audit = audit
        self._producer = producer
        self._options = options
        self._partition = partition
        self._rows = 0
        self._sends: set[asyncio.Task[None]] = set()
        self._admission = asyncio.Lock()
        self._failure: BaseException | None = None
        self._outcome = Outcome()
        self._missing: dict[str, int] = {}

    async def put(self, chunk: Chunk) -> None:
        """Send a chunk; returns when its rows are in the buffer.

        Raises:
            SparkWriteError: rows of this or an earlier chunk can't be written.
        """
        await self._check()
        admitted = asyncio.Event()
        async with self._admission:
            send = asyncio.create_task(self._send(chunk, self._rows, admitted.set))
            self._rows += chunk.rows
            self._sends.add(send)
            send.add_done_callback(self._ended)
            send.add_done_callback(lambda _: admitted.set())
            await admitted.wait()
        await self._check()

    async def finish(self) -> Outcome:
        """Wait until every row has ended; returns the outcome.

        Raises:
            SparkWriteError: rows can't be written.
        """
        while self._sends and self._failure is None:
            await asyncio.wait(self._sends, return_when=asyncio.FIRST_COMPLETED)
        await self._check()
        return self._outcome

    async def cancel(self) -> None:
        """Stop waiting; rows already in the buffer are still delivered."""
        for send in self._sends:
            send.cancel()
        if self._sends:
            await asyncio.wait(self._sends)

    def _ended(self, send: asyncio.Task[None]) -> None:
        self._sends.discard(send)
        error = None if send.cancelled() else send.exception()
        if error is not None and (self._failure is None or (_is_aborted(self._failure) and not _is_aborted(error))):
            self._failure = error

    async def _check(self) -> None:
        if self._failure is None:
            return
        if _is_aborted(self._failure) and self._sends:
            await asyncio.wait(self._sends)  # one of them knows the row that spoiled the transaction
        raise self._failure

    async def _send(self, chunk: Chunk, first_row: int, admitted: Callable[[], object]) -> None:
        try:
            result = await chunk.send(self._producer, self._options.topic, admitted, self._missing)
        except (SendManyError, TransactionAbortedError) as error:
            raise SparkWriteError(f"partition {self._partition}, from row {first_row} on: {error}") from error
        self._count_in(result, chunk.second)
        lost = await self._take_care(chunk, first_row, result) if result.failed else 0
        self._outcome.bytes += chunk.bytes - lost

    async def _take_care(self, chunk: Chunk, first_row: int, result: BatchResult) -> int:
        """Handle each failed row; returns the bytes of those that became dead letters."""
        # The broker's refusal of one row leaves a transaction no way but to be aborted.
        spoiled = self._options.transactional is not None and any(map(_was_refused, result.errors))
        if self._options.dead_letter_topic is None or spoiled:
            # Rows that only shared a batch with a bad one may stand before it.
            index, error = next(filter(_is_at_fault, result.errors), result.errors[0])
            row = self._bad_row(chunk, first_row, index, error)
            others = f" ({result.failed:,} rows of {chunk.rows:,} failed)" if result.failed > 1 else ""
            raise self._failed(row.place, row.error, others) from row.error
        failed = [self._bad_row(chunk, first_row, index, error) for index, error in result.errors]
        # The broker refuses whole batches. Nobody else may send now, so that only bad rows are refused again.
        async with self._admission:
            await self._producer.flush()
            dead = [row for row in failed if not was_refused_by_broker(row.error)]
            dead += await self._sift([row for row in failed if was_refused_by_broker(row.error)], chunk.second)
            await self._bury(dead)
        return payload_bytes(row.record for row in dead)

    def _bad_row(self, chunk: Chunk, first_row: int, index: int, error: Exception) -> BadRow:
        record = chunk.record(index)
        place = RowPlace(self._partition, first_row + index)
        return BadRow(place, record, by_column(error, record, self._options.topic))

    def _count_in(self, result: BatchResult, second: int) -> None:
        self._outcome.records += result.acked
        self._outcome.add_offsets(self._options.topic or "", result.offsets)
        if self._audit is not None:
            self._audit.acked(second, result.offsets)

    async def _sift(self, refused: list[BadRow], second: int) -> list[BadRow]:
        """Write rows refused only because of others in their batch; returns those that are themselves at fault.

        Brokers name these since Kafka 2.4. Otherwise they are looked for by halves.
        """
        bad, rest = _told(refused)
        groups = [rest] if rest else []
        while groups:
            group = groups.pop()
            told, rest = _told(await self._send_again(group, second))
            if told:
                groups += [rest] if rest else []
            elif len(group) == 1:
                told = rest
            else:
                half = (len(rest) + 1) // 2
                # The first half is popped next, so that rows keep their order.
                groups += [part for part in (rest[half:], rest[:half]) if part]
            bad += told
        return sorted(bad, key=lambda row: row.place.row)

    async def _send_again(self, rows: list[BadRow], second: int) -> list[BadRow]:
        """Send rows as one chunk; returns those that are refused again."""
        chunk = RowChunk([row.record for row in rows])
        result = await chunk.send(self._producer, self._options.topic, lambda: None, self._missing)
        self._count_in(result, second)
        for index, error in result.errors:
            if not (was_refused_by_broker(error) or is_bad_row(error)):  # all others would meet it as well
                raise self._failed(rows[index].place, error) from error
        return [BadRow(rows[index].place, rows[index].record, error) for index, error in result.errors]

    async def _bury(self, rows: Sequence[BadRow]) -> None:
        """Write dead letters, all of them at once: what is wrong with one row may be wrong with every other."""
        for row in rows:
            if not is_bad_row(row.error):
                raise self._failed(row.place, row.error) from row.error
        ends = await asyncio.gather(*(self._send_letter(self._letter(row)) for row in rows), return_exceptions=True)
        failed = [(index, end) for index, end in enumerate(ends) if isinstance(end, Exception)]
        if failed:
            index, failure = next(filter(_is_at_fault, failed), failed[0])
            raise self._failed(rows[index].place, failure, " (as a dead letter)") from failure
        for metadata in ends:
            assert isinstance(metadata, RecordMetadata)
            self._outcome.dead_letters += 1
            if metadata.offset >= 0:
                place = TopicPartition(metadata.topic, metadata.partition)
                self._outcome.add_offsets(metadata.topic, {place: [(metadata.offset, metadata.offset)]})

    def _letter(self, row: BadRow) -> Record:
        # A dead letter is no longer a record of the topic that its mark counts.
        record = row.record if self._audit is None else self._audit.failed(row.record)
        return dead_letter(record, row.error, row.place)

    async def _send_letter(self, letter: Record) -> RecordMetadata:
        topic = self._options.dead_letter_topic
        assert topic is not None
        try:
            return await self._producer.send(topic, letter.value, key=letter.key, headers=letter.headers)
        except RecordTooLargeError:
            short = shortened(letter)
            return await self._producer.send(topic, short.value, key=short.key, headers=short.headers)

    def _failed(self, place: RowPlace, error: Exception, more: str = "") -> SparkWriteError:
        hint = ""
        if self._options.transactional is not None and was_refused_by_broker(error):
            hint = "; no row that a broker refuses can become a dead letter in a transaction"
        elif is_bad_row(error) and self._options.dead_letter_topic is None:
            hint = "; the option deadLetterTopic has a place for rows like this"
        return SparkWriteError(f"{place}{more}: {type(error).__name__}: {error}{hint}")


def _told(rows: Sequence[BadRow]) -> tuple[list[BadRow], list[BadRow]]:
    """The rows of which the broker tells that they are at fault, and the others."""
    parts: tuple[list[BadRow], list[BadRow]] = [], []
    for row in rows:
        is_told = getattr(row.error, "record_refused", False) and is_bad_row(row.error)
        parts[0 if is_told else 1].append(row)
    return parts


def _was_refused(failed: tuple[int, Exception]) -> bool:
    return was_refused_by_broker(failed[1])


def _is_at_fault(failed: tuple[int, Exception]) -> bool:
    _, error = failed
    if was_refused_by_broker(error):
        return getattr(error, "record_refused", False)
    return not isinstance(error, TransactionAbortedError)


def _is_aborted(error: BaseException | None) -> bool:
    """Whether it only tells that another record has failed the transaction."""
    while error is not None and not isinstance(error, TransactionAbortedError):
        error = error.__cause__
    return error is not None
