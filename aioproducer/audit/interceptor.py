"""Audit: the interceptor that marks the records of a producer, and states how they ended.

Theory of operation. A record gets its sequence number in ``on_send``. The number is returned if the record fails before
another one got a number, and is surely not in the log: a program that submits until the buffer is full leaves no gaps.
The numbers of an aborted transaction are reused under the next attempt, so a read_committed reader finds no gap either.
What remains are numbers whose record failed while later ones did not; the statement lists them.

Records end in any order. A statement covers numbers up to the first whose record or transaction has not ended.

    on_send -> open -> on_acknowledgement -> ended -> all before it ended, transaction committed -> stated
                |                                                  |
                `--- number returned                               `--- abort: forgotten, numbers reused

A worker thread writes the files, as a disk may be slow; the loop writes the last lines if no thread is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from aioproducer.audit.mark import HEADER, PRODUCER_NAME
from aioproducer.audit.statement import FAILED, TopicStatement, as_text, closing
from aioproducer.errors import ConfigError, KafkaError
from aioproducer.forks import ForkWatch
from aioproducer.log_limit import WARN_EVERY_MS, LogLimit
from aioproducer.records import Record, RecordMetadata

RUNS_A_LINE = 1_000
"""Runs after which a line is written early: building a longer one would block the event loop."""

logger: logging.Logger = logging.getLogger("aioproducer.audit")

_audits: ForkWatch[Audit] = ForkWatch(lambda audit: audit._begin())


class _Topic:
    """The numbers of one topic."""

    __slots__ = ("begin", "ended", "next", "statement")

    def __init__(self, statement: TopicStatement) -> None:
        self.next = 0
        self.begin = 0
        """The first number of the open transaction."""
        self.ended: dict[int, tuple[int, int, int]] = {}
        """Time in ms, partition or FAILED, and latency in ms of ended records not yet stated, by number."""
        self.statement = statement


class Audit:
    """Marks each record with producer instance, sequence number and time; for one producer.

        Producer(..., interceptors=[Audit("orders-service", statements="/var/lib/audit")])

    It costs as much as any interceptor, plus 60 bytes per record before compression. ``aioproducer audit`` compares the
    topics with the marks and the statements. Put it after all other interceptors, so that they see unmarked records.

    Args:
        name: the producer's name in reports; a random part is added, so that each instance, and each process forked
            later, has a unique name.
        statements: directory for the file in which this producer states how its records ended; None for none.
            Without it, records lost after the last one found go unnoticed.
        interval_s: minimum interval between writes; the rest is written when the producer is closed.
        clock: seconds since the epoch.
    Raises:
        ConfigError: the name has characters unsuitable for a file name, or would create a hidden file.
    """

    def __init__(
        self,
        name: str = "",
        *,
        statements: str | os.PathLike[str] | None = None,
        interval_s: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._directory = None if statements is None else Path(statements)
        self._interval_s = interval_s
        self._clock = clock
        self._begin()
        if not PRODUCER_NAME.fullmatch(self.producer):
            raise ConfigError(
                f"name={name!r} of an Audit: up to 80 letters, digits and ._- are needed, and no . or _ to begin with"
            )
        _audits.add(self)

    def _begin(self) -> None:
        """Take a new, unused name: what a process sends is never in another process's statement."""
        part = secrets.token_hex(6)
        self.producer: str = f"{self._name}-{part}" if self._name else part
        self._path = None if self._directory is None else self._directory / f"{self.producer}.jsonl"
        self._prefix = self.producer.encode() + b";0;"
        self._attempts = 0
        self._in_transaction = False
        self._is_closed = False
        self._topics: dict[str, _Topic] = {}
        self._open: dict[bytes | int, tuple[_Topic, int, int, bytes]] = {}
        """Topic, number, time in ms and header value of records that have not ended, by this value.

        Records of several topics may have equal values: all but one of them are here by their value's identity.
        """
        self._timer: asyncio.TimerHandle | None = None
        self._lines: deque[dict[str, Any]] = deque()
        self._size_bytes = 0
        """Size of the file's complete lines."""
        self._writing = threading.Lock()
        self._warnings = LogLimit(WARN_EVERY_MS)

    def __repr__(self) -> str:
        return f"Audit({self.producer!r})"

    # --- what the producer calls --------------------------------------------------------------------------------------

    def on_send(self, record: Record) -> Record:
        """The record with its mark."""
        assert record.topic is not None
        headers = record.headers
        # First, as it may raise: then no number is taken.
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
        topic = self._topics.get(record.topic)
        if topic is None:
            topic = self._topics[record.topic] = _Topic(TopicStatement(self.producer, record.topic))
        time_ms = int(self._clock() * 1000)
        value = b"%b%d;%d" % (self._prefix, topic.next, time_ms)
        self._open[value if value not in self._open else id(value)] = topic, topic.next, time_ms, value
        topic.next += 1
        return Record(
            record.value,
            record.key,
            topic=record.topic,
            partition=record.partition,
            headers=[*pairs, (HEADER, value)],
            timestamp_ms=record.timestamp_ms,
        )

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Any) -> None:
        """A record has ended."""
        found = next((pair[1] for pair in reversed(headers or ()) if pair[0] == HEADER), None)
        entry = self._open.pop(id(found), None)
        if entry is None and isinstance(found, bytes):  # the first with this value, which may be a copy by now
            entry = self._open.pop(found, None)
        if entry is None:
            return  # from an aborted transaction
        topic, number, time_ms, _ = entry
        if error is not None and not error.maybe_written and number == topic.next - 1:
            topic.next = number
            # The record's call may have begun before the open transaction: the number now belongs to this one.
            topic.begin = min(topic.begin, number)
        elif self._path is not None:
            latency_ms = int(self._clock() * 1000) - time_ms
            topic.ended[number] = time_ms, FAILED if metadata is None else metadata.partition, latency_ms
            if number == topic.statement.next:
                self._settle(topic)
        if self._is_closed and not self._open:
            self._write_rest()

    def on_transaction_begin(self) -> None:
        """Records sent from now on count once the transaction is committed."""
        self._in_transaction = True
        for topic in self._topics.values():
            topic.begin = topic.next

    def on_transaction_end(self, committed: bool) -> None:
        """The transaction was committed, or its records will never be visible."""
        self._in_transaction = False
        if not committed:
            for topic in self._topics.values():
                for number in range(topic.begin, topic.next):
                    topic.ended.pop(number, None)
                topic.next = topic.begin
            self._open = {key: entry for key, entry in self._open.items() if entry[1] < entry[0].begin}
            self._attempts += 1
            self._prefix = f"{self.producer};{self._attempts};".encode()
        for topic in self._topics.values():
            self._settle(topic)

    def close(self) -> None:
        """The producer is closed: write the rest of the statement to its file.

        The statement is marked as complete once the ends of all records are known. Some may arrive later, because
        ``close`` left callbacks no time, or never, because their loop is closed.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._path is not None:
            self._is_closed = True
            self._write_rest()

    # --- the statement ------------------------------------------------------------------------------------------------

    async def written(self) -> None:
        """Wait until all statements so far are in the file.

        Raises:
            OSError: the file can't be written.
        """
        if self._path is not None:
            self._take()
            try:
                writing = asyncio.get_running_loop().run_in_executor(None, self._write)
            except RuntimeError:  # no worker thread, and a caller is waiting
                self._write()
            else:
                await writing

    def _settle(self, topic: _Topic) -> None:
        """Move what is certain into the statement."""
        statement, ended = topic.statement, topic.ended
        while statement.next in ended and not (self._in_transaction and statement.next >= topic.begin):
            time_ms, partition, latency_ms = ended.pop(statement.next)
            second = time_ms // 1000
            statement.ended(second, partition)
            if partition != FAILED:
                statement.latency(partition, second, latency_ms)
        if statement.runs >= RUNS_A_LINE:
            self._take()
            self._write_soon()
        elif statement.runs and self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._take()
        self._write_soon()

    def _take(self) -> None:
        for topic in self._topics.values():
            line = topic.statement.take()
            if line is not None:
                self._lines.append(line)

    def _write_rest(self) -> None:
        self._take()
        if not self._open:
            self._lines.append(closing(self.producer))
        self._write_soon(last=True)

    def _write_soon(self, *, last: bool = False) -> None:
        try:
            job = asyncio.get_running_loop().run_in_executor(None, self._write)
        except RuntimeError as error:  # no worker thread
            if last:  # better block the loop once than lose facts known only here
                self._write_here()
            else:
                self._not_written(error)
        else:
            job.add_done_callback(self._written)

    def _write_here(self) -> None:
        try:
            self._write()
        except OSError as error:
            self._not_written(error)

    def _written(self, job: asyncio.Future[None]) -> None:
        if not job.cancelled() and (error := job.exception()) is not None:
            self._not_written(error)

    def _not_written(self, error: BaseException) -> None:
        """Keep the lines, to be written with the next ones."""
        if self._is_closed or self._warnings.allows(int(time.monotonic() * 1000), str(error)):
            logger.warning("the statement of %s can't be written to %s: %s", self.producer, self._path, str(error))

    def _write(self) -> None:
        """Append the lines to the file; one thread at a time."""
        assert self._path is not None
        with self._writing:
            lines = list(self._lines)
            if not lines:
                return
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with open(self._path, "ab") as file:
                if file.tell() > self._size_bytes:  # an earlier write failed halfway
                    file.truncate(self._size_bytes)
                file.write(as_text(lines).encode())
                size_bytes = file.seek(0, os.SEEK_END)
            self._size_bytes = size_bytes
            for _ in lines:
                self._lines.popleft()
