"""The load: records go in by one of the producer's calls, latencies and counts come out.

With a throughput the load is open: record i is due at i / throughput seconds, and its latency counts from then, whether
or not the producer was ready for it. A stall thus shows in the latency of every record that had to wait, not only of
the one in progress. Without a throughput a latency begins with the call.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from aioproducer import (
    BufferExhaustedError,
    Delivery,
    KafkaError,
    MetadataTimeoutError,
    MetadataUnavailableError,
    Producer,
    Record,
    SendManyError,
)
from aioproducer.cli.outcome import one_line
from aioproducer.cli.perf.latency import Histogram
from aioproducer.cli.perf.payloads import Make

BURST = 256
"""Records per turn of the loop: well below a millisecond's worth."""
LEAST_NAP_S, LONGEST_NAP_S = 0.001, 0.1


def _first(error: BaseException) -> BaseException:
    """The root cause inside an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Mode(StrEnum):
    """The call that sends records."""

    SUBMIT_NOWAIT = "submit_nowait"
    SUBMIT = "submit"
    SEND = "send"
    SEND_MANY = "send_many"


@dataclass(slots=True)
class Stats:
    """How the measured records ended."""

    sent: int = 0
    """Passed to the producer, or refused by it."""
    acked: int = 0
    acked_bytes: int = 0
    """Of keys and values."""
    failed: int = 0
    committed: int = 0
    """Acknowledged, in committed transactions."""
    errors: Counter[str] = field(default_factory=Counter)
    latencies: Histogram = field(default_factory=Histogram)

    def ack(self, latency_s: float, size_bytes: int) -> None:
        """Count an acknowledged record."""
        self.acked += 1
        self.acked_bytes += size_bytes
        self.latencies.add(int(latency_s * 1_000_000))

    def fail(self, error: BaseException, count: int = 1) -> None:
        """Count failed records."""
        self.failed += count
        self.errors[getattr(error, "name", type(error).__name__)] += count


class Load:
    """Sends numbered records until there are enough, or until ``stop``.

    Args:
        rate: records per second; None for no limit.
        concurrency: how many calls are awaited at a time, for SEND and SEND_MANY.
        chunk: most records per SEND_MANY.
        transaction_s: how long each transaction takes in records, in seconds; None without transactions.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        make: Make,
        *,
        mode: Mode,
        rate: float | None,
        concurrency: int,
        chunk: int,
        transaction_s: float | None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._make = make
        self._rate = rate
        self._concurrency = concurrency
        self._chunk = chunk
        self._transaction_s = transaction_s
        self._send = {
            Mode.SUBMIT_NOWAIT: self._submit_nowait,
            Mode.SUBMIT: self._submit,
            Mode.SEND: self._send_each,
            Mode.SEND_MANY: self._send_many,
        }[mode]
        self.stats = Stats()
        self.stopped = False
        self.trouble: str | None = None
        """Why the load ended early; None if it did not."""
        self._turn = asyncio.Lock()
        self._next = self._first = self._last = 0
        self._start_s = 0.0
        self._until_s: float | None = None

    def stop(self) -> None:
        """Send no more."""
        self.stopped = True

    def reset(self) -> None:
        """Reset the counts."""
        self.stats = Stats()

    async def run(self, count: int) -> Stats:
        """Send ``count`` more records, and wait until each has ended; returns how they ended."""
        self._first, self._last = self._next, self._next + count
        self._start_s = time.perf_counter()
        try:
            if self._transaction_s is None:
                await self._send()
                await self._producer.flush()
            else:
                while self._more():
                    await self._transact(self._transaction_s)
        except (KafkaError, ExceptionGroup) as error:
            self._end_early(error)
        return self.stats

    def _end_early(self, error: BaseException) -> None:
        """The next record would meet the same trouble, after the same wait."""
        self.trouble = one_line(_first(error))
        self.stopped = True

    async def _transact(self, length_s: float) -> None:
        before = self.stats.acked
        await self._producer.begin_transaction()
        self._until_s = time.perf_counter() + length_s
        await self._send()
        await self._producer.flush()
        await self._producer.commit_transaction()
        self.stats.committed += self.stats.acked - before

    # --- the schedule -------------------------------------------------------------------------------------------------

    def _more(self) -> bool:
        return self._next < self._last and not self.stopped

    def _goes_on(self) -> bool:
        return self._more() and (self._until_s is None or time.perf_counter() < self._until_s)

    def _due_s(self, number: int) -> float:
        """When a record is due; now if there is no schedule."""
        if self._rate is None:
            return time.perf_counter()
        return self._start_s + (number - self._first) / self._rate

    async def _wait_for_due(self, at_most: int) -> int:
        """How many records may go now; gives the loop at least one turn if none may."""
        if self._rate is None:
            return max(min(self._last - self._next, at_most), 0)
        early_s = self._due_s(self._next) - time.perf_counter()
        if early_s > 0:
            await asyncio.sleep(min(max(early_s, LEAST_NAP_S), LONGEST_NAP_S))
        # Other tasks may have taken some meanwhile.
        due = int((time.perf_counter() - self._start_s) * self._rate) + 1 - (self._next - self._first)
        return max(min(due, self._last - self._next, at_most), 0)

    # --- the calls ----------------------------------------------------------------------------------------------------

    async def _submit_nowait(self) -> None:
        submit, make, topic, ended = self._producer.submit_nowait, self._make, self._topic, self._ender()
        paced = self._rate is not None
        while self._goes_on():
            count = await self._wait_for_due(BURST)
            before, is_known = self._next, True
            due_s = time.perf_counter()  # without a schedule, all records of a turn share one start
            for number in range(self._next, self._next + count):
                value, key = make(number)
                if paced:
                    due_s = self._due_s(number)
                try:
                    delivery = submit(topic, value, key=key)
                except BufferExhaustedError:
                    break  # it stays due
                except MetadataUnavailableError:
                    is_known = False
                    break
                except KafkaError as error:
                    self._refuse(error)
                    continue
                self._next += 1
                delivery.add_done_callback(partial(ended, due_s, len(value) if key is None else len(value) + len(key)))
            self.stats.sent += self._next - before
            if not is_known:
                await self._producer.partitions_for(self._topic)
            await self._producer.ready()

    async def _submit(self) -> None:
        ended = self._ender()
        while self._goes_on():
            for _ in range(await self._wait_for_due(BURST)):
                value, key = self._make(self._next)
                due_s = self._due_s(self._next)
                try:
                    delivery = await self._producer.submit(self._topic, value, key=key)
                except KafkaError as error:
                    self.stats.sent += 1
                    self._refuse(error)
                    if isinstance(error, MetadataTimeoutError):
                        self._end_early(error)
                        return
                    continue
                self._next += 1
                self.stats.sent += 1
                delivery.add_done_callback(partial(ended, due_s, len(value) + len(key or b"")))

    def _refuse(self, error: KafkaError) -> None:
        if error.fatal:
            raise error
        self._next += 1
        self.stats.fail(error)

    def _ender(self) -> Callable[[float, int, Delivery], None]:
        """The done callback of a record: knows when it was due, its size, and how it ended."""
        stats, add, clock = self.stats, self.stats.latencies.add, time.perf_counter

        def ended(due_s: float, size_bytes: int, delivery: Delivery) -> None:
            error = delivery.exception()
            if error is not None:
                stats.fail(error)
                return
            stats.acked += 1
            stats.acked_bytes += size_bytes
            add(int((clock() - due_s) * 1_000_000))

        return ended

    async def _send_each(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, self._last - self._next)):
                group.create_task(self._sender())

    async def _sender(self) -> None:
        while True:
            async with self._turn:  # one task at a time waits for the next due record
                while self._goes_on() and not await self._wait_for_due(1):
                    pass
                if not self._goes_on():
                    return
                number = self._next
                self._next += 1
            self.stats.sent += 1
            due_s = self._due_s(number)
            value, key = self._make(number)
            try:
                await self._producer.send(self._topic, value, key=key)
            except KafkaError as error:
                if error.fatal:
                    raise
                self.stats.fail(error)
                if isinstance(error, MetadataTimeoutError):
                    self._end_early(error)
            else:
                self.stats.ack(time.perf_counter() - due_s, len(value) + len(key or b""))

    async def _send_many(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._concurrency, self._last - self._next)):
                group.create_task(self._many_sender())

    async def _many_sender(self) -> None:
        """A record's latency ends when its call returns: records have no individual end."""
        while self._goes_on():
            count = await self._wait_for_due(self._chunk)
            if not count:
                continue
            first = self._next
            self._next += count
            self.stats.sent += count
            began_s = time.perf_counter()
            sizes: list[int] = []
            records = self._records(first, count, sizes)
            try:
                result = await self._producer.send_many(self._topic, records, raise_on_error=False)
            except SendManyError as error:  # no memory or metadata for too long: admitted records have ended
                result = error.result
                self._end_early(error)
            ended_s = time.perf_counter()
            errors = dict(result.errors)
            good = [index for index in range(len(sizes)) if index not in errors][: result.acked]
            for index in good:
                due_s = began_s if self._rate is None else self._due_s(first + index)
                self.stats.ack(ended_s - due_s, sizes[index])
            for refusal in errors.values():
                self.stats.fail(refusal)
            if unnamed := count - result.acked - len(errors):
                self.stats.fail(KafkaError("further errors of the call, or not admitted"), unnamed)

    def _records(self, first: int, count: int, sizes: list[int]) -> Iterator[Record]:
        for number in range(first, first + count):
            value, key = self._make(number)
            sizes.append(len(value) + len(key or b""))
            yield Record(value, key=key)
