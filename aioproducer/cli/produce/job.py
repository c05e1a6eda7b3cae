"""The work of ``aioproducer produce`` for lines: rows in, counts out.

Every row read ends as exactly one of acked, failed or rejected, so ``read = acked + failed + rejected`` at the end,
even after Ctrl-C or when the cluster goes away.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from aioproducer import BufferExhaustedError, Delivery, KafkaError, MetadataTimeoutError, Producer, ProducerClosedError
from aioproducer.cli.outcome import CommandError, one_line
from aioproducer.cli.produce.feed import RowFeed
from aioproducer.cli.produce.rejects import Rejects
from aioproducer.cli.produce.rows import Row


@dataclass(slots=True)
class Counts:
    """Rows by how they ended."""

    read: int = 0
    acked: int = 0
    failed: int = 0
    """Passed to the producer, not acknowledged."""
    rejected: int = 0
    """Never passed to the producer, or refused by it."""
    last_line: int = 0
    """The first line of the last row read."""


class Job:
    """Sends the rows of a feed to a topic and closes the producer."""

    def __init__(self, producer: Producer, topic: str, feed: RowFeed, rejects: Rejects) -> None:
        self._producer = producer
        self._topic = topic
        self._feed = feed
        self._rejects = rejects
        self.counts = Counts()
        self.trouble: str | None = None
        """Why the run ended before its input did; None if it did not."""
        self._open = 0
        """Deliveries not yet reported as ended."""
        self._told = asyncio.Event()

    @property
    def place(self) -> str:
        """The last row read."""
        return f"line {self.counts.last_line}"

    def stop(self) -> None:
        """Stop reading; rows already read are sent."""
        self._feed.stop()

    async def run(self) -> None:
        """Send every row of the feed, and wait until each has ended. On cancellation it fails those that have not.

        Raises:
            CommandError: the input was unusable from the start.
        """
        try:
            await self._send_all()
            await self._producer.close()
        finally:
            self._feed.close()
            try:
                await self._producer.close(timeout=0)
            finally:
                await self._wait_until_told()

    async def _wait_until_told(self) -> None:
        """Wait for the done callbacks, which a close without time leaves to the loop; another Ctrl-C has no effect.

        All records have ended, so this takes no longer than writing the rejects.
        """
        self._told.clear()
        while self._open:
            with suppress(asyncio.CancelledError):
                await self._told.wait()

    async def _send_all(self) -> None:
        try:
            async for rows in self._feed:
                for row in rows:
                    self.counts.read += 1
                    self.counts.last_line = row.line_number
                    await self._send(row)
        except (CommandError, OSError) as error:
            # The system's error for a read names neither the file nor standard input.
            text = one_line(error)
            if isinstance(error, OSError):
                text = f"the input can't be read: {error.strerror or text}"
            if not self.counts.read:
                raise CommandError(text) from error
            self.trouble = text

    async def _send(self, row: Row) -> None:
        """Put one row in the producer's buffer or the rejects."""
        if row.error is not None:
            self._reject(row, row.error)
        elif self.trouble is not None:
            self._reject(row, f"not sent: {self.trouble}")
        else:
            try:
                delivery = await self._producer.submit(self._topic, row.value, key=row.key)
            except KafkaError as error:
                self._reject(row, one_line(error))
                self._judge(error)
            except asyncio.CancelledError:
                # It may be in the buffer: after that, submit gives the event loop its turns.
                self._fail(row, "given up: interrupted", maybe_written=True)
                raise
            else:
                self._open += 1
                delivery.add_done_callback(partial(self._ended, row))

    def _judge(self, error: KafkaError) -> None:
        """Give up if the next row would fail too: else each of millions would wait for max_block_ms."""
        lasting = isinstance(error, (BufferExhaustedError, MetadataTimeoutError, ProducerClosedError))
        if lasting or error.fatal:
            self.trouble = one_line(error)
            self._feed.stop()

    def _reject(self, row: Row, reason: str) -> None:
        self.counts.rejected += 1
        self._rejects.write(row, reason)

    def _fail(self, row: Row, reason: str, *, maybe_written: bool) -> None:
        self.counts.failed += 1
        self._rejects.write(row, reason, maybe_written=maybe_written)

    def _ended(self, row: Row, delivery: Delivery) -> None:
        self._open -= 1
        if not self._open:
            self._told.set()
        error = delivery.exception()
        if error is None:
            self.counts.acked += 1
        else:
            self._fail(row, one_line(error), maybe_written=getattr(error, "maybe_written", False))
