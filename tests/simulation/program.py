"""The program that uses the producer: some tasks, each with a list of chores chosen by the seed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from aioproducer._delivery import Delivery, watch
from aioproducer.errors import (
    BufferExhaustedError,
    DeliveryErrors,
    FlushTimeoutError,
    KafkaError,
    ProducerClosedError,
    SendManyError,
)
from aioproducer.records import BatchResult, Record
from tests.simulation.producer import SimulatedProducer
from tests.simulation.records import Books, Flush, Look, Sent, State
from tests.simulation.scenario import Scenario
from tests.simulation.story import Story


class UserError(Exception):
    """The exception raised by the program's own code."""


class Program:
    """The program of one run, see the module's docstring."""

    def __init__(
        self,
        scenario: Scenario,
        producer: SimulatedProducer,
        rng: random.Random,
        books: Books,
        story: Story,
        broken: Callable[..., None],
    ) -> None:
        self._scenario = scenario
        self._producer = producer
        self._rng = rng
        self._books = books
        self._story = story
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._held: list[tuple[Sent, Delivery]] = []
        self._cancelled: dict[asyncio.Task[Any], None] = {}
        self.background: dict[asyncio.Task[Any], None] = {}
        self.closing = False
        """Whether the tasks should begin nothing more."""

    # --- what there is to do ------------------------------------------------------------------------------------------

    async def run(self, number: int) -> None:
        """One task's chores, until the faults are over or all are done."""
        if (self._scenario.leaves or self._scenario.restarts or self._scenario.diverges) and number == 0:
            await self.stream(number)
            return
        await asyncio.sleep(self._rng.choice((0, 0, self._rng.uniform(0, self._scenario.chaos_s))))
        chores = (
            (self.submit_some, 6),
            (self.burst, 6),
            (self.send_one, 5),
            (self.send_several, 3),
            (self.send_many, 2),
            (self.flush, 3),
            (self.wait_for_some, 3),
            (self.pause, 8),
            (self.cancel_something, 4),
            (self.look_around, 1),
            (self.collect_garbage, 1),
        )
        work, weights = [chore for chore, _ in chores], [weight for _, weight in chores]
        for _ in range(self._rng.choice(self._scenario.chores)):
            if self.closing:
                break
            await self._rng.choices(work, weights)[0](number)

    async def pause(self, task: int) -> None:
        long_s = self._rng.uniform(0, self._scenario.chaos_s / 3)
        await asyncio.sleep(self._rng.choice((0, 0.001, 0.01, 0.1, long_s)))

    async def submit_some(self, task: int) -> None:
        for _ in range(self._rng.choice((1, 2, 10))):
            record = self._record(task)
            if not await self.submit(record) and isinstance(record.error, TimeoutError):
                break

    async def submit(self, record: Sent) -> bool:
        """Submit a record; returns whether it was admitted."""
        self._begin(record)
        ahead = self._producer.waiting_for_memory()
        try:
            delivery = await self._producer.submit(record.topic, record.value, **self._options(record))
        except asyncio.CancelledError:
            self._refused(record, None)
            raise
        except Exception as error:
            self._refused(record, error)
            return False
        self._producer.overtook(record.number, ahead)
        self._admitted(record, delivery)
        return True

    async def burst(self, task: int) -> None:
        """The full-speed pattern."""
        for _ in range(self._rng.choice((3, 10, 30))):
            for _ in range(3):
                record = self._record(task)
                self._begin(record)
                ahead = self._producer.waiting_for_memory()
                try:
                    delivery = self._producer.submit_nowait(record.topic, record.value, **self._options(record))
                except BufferExhaustedError as error:
                    self._refused(record, error)
                    try:
                        await self._producer.ready()
                    except BufferExhaustedError:
                        return
                    except ProducerClosedError:
                        return
                except Exception as error:
                    self._refused(record, error)
                    await asyncio.sleep(0.01)
                    break
                else:
                    self._producer.overtook(record.number, ahead)
                    self._admitted(record, delivery)
                    break
            else:
                return

    async def stream(self, task: int) -> None:
        """One record after the other until the faults are over, so that whatever goes wrong meets some in flight."""
        while not self.closing:
            record = self._record(task)
            self._begin(record)
            try:
                delivery = self._producer.submit_nowait(record.topic, record.value, **self._options(record))
            except Exception as error:
                self._refused(record, error)
            else:
                self._admitted(record, delivery)
            await asyncio.sleep(self._rng.choice((0, 0.005, 0.02, 0.05)))

    async def send_one(self, task: int) -> None:
        await self.send(self._record(task))

    async def send(self, record: Sent) -> bool:
        """Send a record; returns whether it was acknowledged."""
        self._begin(record)
        record.look = Look.AS_SEND
        try:
            metadata = await self._producer.send(record.topic, record.value, **self._options(record))
        except asyncio.CancelledError:
            self._refused(record, None)
            raise
        except Exception as error:
            if not isinstance(error, KafkaError):
                self._broken("send raised %r", error)
            self._books.heard(record, self._loop.time(), None, error)
            self._story.tell("record %d: %s", record.number, _told(error))
            return False
        record.admitted = self._books.next_step()
        self._books.heard(record, self._loop.time(), metadata, None)
        self._story.tell("record %d: acked at %d of %d", record.number, metadata.offset, metadata.partition)
        return True

    async def send_several(self, task: int) -> None:
        records = [self._record(task) for _ in range(self._rng.choice((2, 5, 12)))]
        await asyncio.gather(*(self.send(record) for record in records))

    async def send_many(self, task: int) -> None:
        """One call for some records, from a plain or async iterable that may raise in the middle."""
        rng = self._rng
        topic = self._topic()
        records = [self._record(task) for _ in range(rng.choice((1, 5, 20, 60)))]
        for record in records:
            record.topic, record.look = topic, Look.AS_SEND
        raises_at = rng.randrange(len(records)) if rng.random() < 0.1 else -1
        taken: list[Sent] = []
        raised = False

        def take(record: Sent) -> Any:
            nonlocal raised
            if record is records[raises_at] and raises_at >= 0:
                raised = True
                raise UserError("the iterable")
            if taken:
                taken[-1].admitted = self._books.next_step()
            self._begin(record)
            taken.append(record)
            if record.key is not None or record.partition is not None or record.headers or record.timestamp_ms:
                return Record(record.value, **self._options(record))
            return record.value

        async def slowly() -> AsyncIterator[Any]:
            for record in records:
                if rng.random() < 0.1:
                    await asyncio.sleep(rng.choice((0, 0.001, 0.05)))
                yield take(record)

        source = slowly() if rng.random() < 0.4 else (take(record) for record in records)
        self._story.tell("send_many of %d from record %d on", len(records), records[0].number)
        try:
            result = await self._producer.send_many(topic, source, raise_on_error=rng.random() < 0.5)
        except asyncio.CancelledError:
            for record in taken:
                record.state, record.admitted = State.CANCELLED, None
            raise
        except SendManyError as error:
            result = error.result
            if raised and not isinstance(error.__cause__, UserError):
                self._broken("send_many met %r, not what its iterable raised", error.__cause__)
        except KafkaError as error:
            if taken:
                self._broken("send_many raised %r after it had taken %d records", error, len(taken))
            return
        self._sent_many(taken, result)

    def _sent_many(self, taken: list[Sent], result: BatchResult) -> None:
        self._story.tell("send_many: %d acked, %d failed", result.acked, result.failed)
        errors = dict(result.errors)
        if result.acked + result.failed != len(taken) or len(errors) != result.failed:
            self._broken(
                "send_many took %d records, and tells of %d acked, %d failed, %d errors",
                len(taken),
                result.acked,
                result.failed,
                len(errors),
            )
        ranges = {key: value for key, value in result.offsets.items() if isinstance(key, int)}
        told = sum(last - first + 1 for spans in ranges.values() for first, last in spans)
        for index, record in enumerate(taken):
            record.error = errors.get(index)
            if record.error is not None:
                record.state, record.admitted = State.FAILED, None
                continue
            record.state = State.ACKED
            record.admitted = self._books.next_step() if record.admitted is None else record.admitted
            if told == result.acked:
                record.spans = ranges

    async def flush(self, task: int) -> None:
        timeout = self._rng.choice((None, None, 0, 0.01, 1.0))
        await self.flush_for(timeout)

    async def flush_for(self, timeout: float | None) -> None:
        flush = Flush(self._books.next_step(), self._loop.time())
        self._books.flushes.append(flush)
        self._story.tell("flush(%s)", timeout)
        try:
            await self._producer.flush(timeout)
        except FlushTimeoutError:
            flush.outcome = "timeout"
            if timeout is None:
                self._broken("flush() without a timeout raised FlushTimeoutError")
        except DeliveryErrors as error:
            flush.outcome, flush.record_count = "errors", error.record_count
        except ProducerClosedError:
            flush.outcome = "closed"
        except asyncio.CancelledError:
            flush.outcome = "cancelled"
            raise
        else:
            flush.outcome = "done"
        finally:
            flush.ended, flush.ended_s = self._books.next_step(), self._loop.time()
            self._story.tell("flush(%s): %s %d", timeout, flush.outcome, flush.record_count)
        if timeout is not None and self._loop.time() - flush.began_s > timeout + 0.1:
            self._broken("flush(%s) took %.3f s", timeout, self._loop.time() - flush.began_s)

    async def wait_for_some(self, task: int) -> None:
        """Observe records that have not been observed yet."""
        for _ in range(min(len(self._held), self._rng.choice((1, 3, 10)))):
            if not self._held:
                return
            record, delivery = self._held.pop(self._rng.randrange(len(self._held)))
            await self._look_at(record, delivery)

    async def _look_at(self, record: Sent, delivery: Delivery) -> None:
        record.looked = True
        if delivery.done() and self._rng.random() < 0.3:
            delivery.exception()
            return
        try:
            await delivery
        except KafkaError as error:
            if record.state is State.ACKED:
                self._broken("%s raises %r", record, error)

    async def cancel_something(self, task: int) -> None:
        """Begin a call, and cancel it at some await."""
        chore = self._rng.choice(
            (
                self.submit_some,
                self.send_one,
                self.send_many,
                self.send_several,
                self.flush,
                self.burst,
                self.look_around,
            )
        )
        victim = self._loop.create_task(chore(task))
        await asyncio.sleep(self._rng.choice((0, 0, 0, 0.001, 0.01, self._rng.uniform(0, 0.3))))
        for _ in range(self._rng.choice((0, 0, 1, 2, 3))):
            await asyncio.sleep(0)
        victim.cancel()
        await asyncio.wait([victim])
        if not victim.cancelled() and (error := victim.exception()) is not None:
            raise error

    async def look_around(self, task: int) -> None:
        with contextlib.suppress(KafkaError):
            await self._producer.partitions_for(self._topic())
        self._producer.metrics()

    async def collect_garbage(self, task: int) -> None:
        gc.collect()

    async def look_at_the_rest(self) -> None:
        """Observe the records that the program intended to observe later."""
        while self._held:
            await self._look_at(*self._held.pop())

    # --- one record ---------------------------------------------------------------------------------------------------

    def _topic(self) -> str:
        if self._rng.random() < 0.02:
            return self._rng.choice(("nowhere", "not a topic!"))
        return self._rng.choice(list(self._scenario.topics))

    def _record(self, task: int) -> Sent:
        rng = self._rng
        topic = self._topic()
        number = len(self._books.records)
        size = rng.choice((0, 10, 10, 100, 100, 300, rng.randrange(1000), rng.randrange(6000)))
        if rng.random() < 0.9:
            size = min(size, max(self._scenario.ms("buffer_memory"), 2000) // 4)
        look = rng.choices((Look.AT_ONCE, Look.LATER, Look.NEVER), (4, 3, 2))[0]
        record = Sent(
            number=number,
            task=task,
            topic=topic,
            partition=rng.randrange(self._scenario.topics.get(topic, 1)) if rng.random() < 0.3 else None,
            key=b"key %d" % rng.randrange(20) if rng.random() < 0.4 else None,
            value=b"%d:" % number + rng.randbytes(size // 2) + bytes(size - size // 2),
            headers=[("number", b"%d" % number), ("none", None)] if rng.random() < 0.1 else None,
            timestamp_ms=rng.randrange(1, 1 << 40) if rng.random() < 0.05 else None,
            look=look,
            began=self._books.next_step(),
            began_s=self._loop.time(),
        )
        self._books.records.append(record)
        return record

    def _begin(self, record: Sent) -> None:
        record.state, record.began, record.began_s = State.CALLING, self._books.next_step(), self._loop.time()

    def _options(self, record: Sent) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for name in ("key", "partition", "headers", "timestamp_ms"):
            if (value := getattr(record, name)) is not None:
                options[name] = value
        return options

    def _refused(self, record: Sent, error: BaseException | None) -> None:
        record.error = error
        record.state = State.CANCELLED if error is None else State.REFUSED
        record.ended_s = self._loop.time()
        self._story.tell("record %d: %s", record.number, "cancelled" if error is None else _told(error))
        if error is not None and not isinstance(error, KafkaError):
            self._broken("submit raised %r", error)
        waited_ms = (record.ended_s - record.began_s) * 1000
        if error is not None and waited_ms > self._scenario.ms("max_block_ms") + 1000:
            self._broken(
                "%s: refused after %d ms, max_block_ms=%d", record, waited_ms, self._scenario.ms("max_block_ms")
            )

    def _admitted(self, record: Sent, delivery: Delivery) -> None:
        record.admitted, record.admitted_s = self._books.next_step(), self._loop.time()
        record.state = State.PENDING
        if record.look is Look.AT_ONCE:
            delivery.add_done_callback(lambda delivery: self._ended(record, delivery))
        else:
            watch(delivery, lambda delivery: self._ended(record, delivery))
            if record.look is Look.LATER:
                self._held.append((record, delivery))

    def _ended(self, record: Sent, delivery: Delivery) -> None:
        error = delivery.peek_exception()
        self._books.heard(record, self._loop.time(), None if error is not None else delivery.result(), error)
        if error is not None:
            self._story.tell("record %d: %s", record.number, _told(error))
        else:
            assert record.metadata is not None
            self._story.tell(
                "record %d: acked at %d of %d", record.number, record.metadata.offset, record.metadata.partition
            )

    # --- the end ------------------------------------------------------------------------------------------------------

    async def probe(self, limit_s: float) -> None:
        """Without faults, each partition has to accept a record within the time limit."""
        until_s = self._loop.time() + limit_s
        for topic, partition in self._producer.partitions_of_model():
            while True:
                record = self._record(-1)
                record.topic, record.partition, record.key = topic, partition, None
                record.value = b"%d:probe" % record.number
                if await self.send(record):
                    break
                if self._producer.has_failed or self._scenario.fatal:
                    return
                if self._loop.time() > until_s:
                    self._broken(
                        "%s-%d takes no records %.0f s after everything works again: %s",
                        topic,
                        partition,
                        limit_s,
                        record.error,
                    )
                    return
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Close the producer in one of the possible ways."""
        rng = self._rng
        timeout = rng.choice((None, None, None, 0, 0.05, 1.0))
        self.closing = True
        closing = [self._loop.create_task(self._close(timeout))]
        if rng.random() < 0.2:
            closing.append(self._loop.create_task(self._close(None)))
        if rng.random() < 0.2:
            await asyncio.sleep(rng.choice((0, 0.001, 0.05)))
            self._story.tell("close() is cancelled")
            for record in self._books.records:
                record.closed_off = True
            closing[0].cancel()
        await asyncio.wait(closing)
        for task in closing:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def close_again(self) -> None:
        """If close was cancelled, wait for its end."""
        await self._close(None)

    async def _close(self, timeout: float | None) -> None:
        flush = Flush(self._books.next_step(), self._loop.time(), "close")
        self._books.flushes.append(flush)
        self._story.tell("close(%s)", timeout)
        if timeout is not None:
            for record in self._books.records:
                record.closed_off = True
        try:
            await self._producer.close(timeout)
        except DeliveryErrors as error:
            flush.outcome, flush.record_count = "errors", error.record_count
        except asyncio.CancelledError:
            flush.outcome = "cancelled"
            raise
        else:
            flush.outcome = "done" if timeout is None else "perhaps a timeout"
        finally:
            flush.ended, flush.ended_s = self._books.next_step(), self._loop.time()
            self._story.tell("close(%s): %s %d", timeout, flush.outcome, flush.record_count)
        if timeout is not None and self._loop.time() - flush.began_s > timeout + 0.5:
            self._broken("close(%s) took %.3f s", timeout, self._loop.time() - flush.began_s)


class Interceptor:
    """Counts its calls."""

    def __init__(self, books: Books, rng: random.Random) -> None:
        self._books = books
        self._rng = rng

    def on_send(self, record: Record) -> Record:
        sent = self._books.records[number_of(record.value)]
        sent.intercepted += 1
        if self._rng.random() < 0.02:
            raise UserError("on_send")
        return record

    def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
        if self._rng.random() < 0.02:
            raise UserError("on_acknowledgement")


def serializer(rng: random.Random) -> Callable[[Any], Awaitable[bytes]]:
    """A serializer that takes some time, and sometimes raises."""

    async def serialize(value: bytes) -> bytes:
        if rng.random() < 0.5:
            await asyncio.sleep(rng.choice((0, 0.001, 0.02)))
        if rng.random() < 0.03:
            raise UserError("a serializer")
        return value

    return serialize


def number_of(value: bytes | None) -> int:
    """The number of the record with this value."""
    assert value is not None
    return int(value[: value.index(b":")])


def _told(error: BaseException) -> str:
    doubt = " (maybe written)" if getattr(error, "maybe_written", False) else ""
    return f"{type(error).__name__}{doubt}"
