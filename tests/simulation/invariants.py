"""What always holds, checked during a run and after it. The numbers are those of "What always holds" in
docs/architecture.md."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aioproducer.errors import DuplicateSequenceNumberError, ProducerClosedError
from tests.reference.murmur2 import murmur2
from tests.simulation.chaos import Chaos
from tests.simulation.link import Link
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.producer import SimulatedProducer
from tests.simulation.program import number_of
from tests.simulation.records import Books, Flush, Look, Sent, State, maybe_written
from tests.simulation.scenario import Scenario

if TYPE_CHECKING:
    from aioproducer.testing.fake.frames import RequestFrame
    from aioproducer.testing.fake.model import ClusterModel
    from aioproducer.testing.fake.partition import Partition
    from aioproducer.testing.fake.partition_log import LogRecord
    from aioproducer.testing.fake.topology import Topic

SLACK_S = 0.1


class Invariants:
    """The checks of one run, see the module's docstring."""

    def __init__(
        self,
        scenario: Scenario,
        books: Books,
        model: ClusterModel,
        chaos: Chaos,
        network: SimulatedNetwork,
        loop: SimulatedLoop,
        broken: Callable[..., None],
    ) -> None:
        self._scenario = scenario
        self._books = books
        self._model = model
        self._chaos = chaos
        self._network = network
        self._loop = loop
        self._broken = broken
        self._attempts: dict[tuple[object, ...], tuple[int, float, Any]] = {}
        network.on_request = self._request
        network.on_answer = self._answer

    # --- how long things may take -------------------------------------------------------------------------------------

    def recovery_s(self) -> float:
        """How long after the last fault everything has to work again."""
        scenario = self._scenario
        return (
            2.0
            + (
                2 * scenario.ms("request_timeout_ms")
                + 2 * scenario.ms("retry_backoff_max_ms")
                + 2 * scenario.ms("reconnect_backoff_max_ms")
                + 2 * scenario.ms("socket_connection_setup_timeout_max_ms")
                + 2 * self._chaos.throttle_ms
                + scenario.ms("delivery_timeout_ms")
            )
            / 1000
        )

    def patience_s(self) -> float:
        """How long any call without its own timeout may take."""
        scenario = self._scenario
        return self.recovery_s() + (scenario.ms("delivery_timeout_ms") + scenario.ms("max_block_ms")) / 1000 + 5

    # --- during the run -----------------------------------------------------------------------------------------------

    def watch(self, producer: SimulatedProducer) -> None:
        """Check each turn of the loop from now on."""
        engine = producer.engine
        assert engine is not None
        pool = engine.accumulator.pool
        total = pool.total_bytes

        def look() -> None:
            if pool.used_bytes > total:
                self._broken("%d bytes in use, buffer_memory=%d", pool.used_bytes, total)

        self._loop.on_turn = look

    def _request(self, link: Link, request: RequestFrame) -> None:
        """14: retries respect their back-off."""
        if request.api_name != "Produce" or request.message.acks == 0:
            return
        for key, partition in self._batches(request):
            attempts, answered_s, met = self._attempts.get(key, (0, -1.0, None))
            # A new leader is tried at once, and so is the leader of a recreated topic.
            if attempts and answered_s >= 0 and met is partition and partition.leader_epoch == 0 and link.is_held:
                wait_ms = 0.8 * min(
                    self._scenario.ms("retry_backoff_ms") * 2 ** (attempts - 1),
                    self._scenario.ms("retry_backoff_max_ms"),
                )
                waited_ms = (self._loop.time() - answered_s) * 1000
                if waited_ms < wait_ms - 3:
                    self._broken(
                        "%s: attempt %d of a batch for %s-%d came %.0f ms after the answer to the last one, not %.0f",
                        link,
                        attempts + 1,
                        key[0],
                        key[1],
                        waited_ms,
                        wait_ms,
                    )
            self._attempts[key] = (attempts + 1, -1.0, partition)

    def _answer(self, link: Link, request: RequestFrame) -> None:
        if request.api_name != "Produce" or request.message.acks == 0:
            return
        for key, _ in self._batches(request):
            attempts, _, met = self._attempts.get(key, (1, -1.0, None))
            self._attempts[key] = (attempts, self._loop.time(), met)

    def _batches(self, request: RequestFrame) -> list[tuple[tuple[object, ...], Any]]:
        found = []
        for data in request.message.topic_data:
            topic = (
                self._model.topic_by_id(data.topic_id) if request.version >= 13 else self._model.topics.get(data.name)
            )
            for one in data.partition_data:
                partition = topic.partition(one.index) if topic is not None else None
                if partition is not None:
                    found.append(((topic.name, one.index, bytes(one.records[57:])), partition))
        return found

    # --- after it -----------------------------------------------------------------------------------------------------

    def after_the_end(self, producer: SimulatedProducer) -> None:
        """Everything that has to hold once the producer is closed."""
        self._nothing_left(producer)
        assert producer.engine is not None
        self._ends(producer.engine.accumulator.appended_records)
        self._logs()
        self._unobserved()
        for context in self._loop.errors:
            self._broken("nobody took: %s %r", context.get("message"), context.get("exception"))

    def _nothing_left(self, producer: SimulatedProducer) -> None:
        """3, 6: no memory, task, timer or connection is left."""
        engine = producer.engine
        assert engine is not None
        pool, accumulator = engine.accumulator.pool, engine.accumulator
        if pool.used_bytes:
            self._broken("%d bytes of the buffer are in use after close", pool.used_bytes)
        if accumulator.has_live_batches():
            self._broken("batches live after close")
        if live := accumulator.live_record_count(accumulator.last_serial):
            self._broken("%d records have not ended after close", live)
        if engine.waiting:
            self._broken("%d callers wait for memory after close", len(engine.waiting))
        if self._loop.jobs:
            self._broken("%d jobs run in worker threads after close", self._loop.jobs)
        if self._network.transports:
            self._broken("%d connections are left after close", len(self._network.transports))
        tasks = sorted(
            task.get_name() for task in asyncio.all_tasks(self._loop) if task is not asyncio.current_task(self._loop)
        )
        if tasks:
            self._broken("tasks are left after close: %s", tasks)
        timers = [repr(timer) for timer in self._loop.timers() if not _is_ours(timer)]
        if timers:
            self._broken("timers are left after close: %s", timers)

    def _ends(self, appended: int) -> None:
        """1, 15: every record ended once and in time; ``appended`` is how many the producers accepted."""
        delivery_s = self._scenario.ms("delivery_timeout_ms") / 1000
        block_s = self._scenario.ms("max_block_ms") / 1000
        for record in self._books.records:
            if record.state in (State.PENDING, State.CALLING):
                self._broken("%s has not ended", record)
            if record.ends > 1:
                self._broken("%s has ended %d times", record, record.ends)
            if record.admitted_s is not None and record.ended_s is not None:
                took_s = record.ended_s - record.admitted_s
                if took_s > delivery_s + SLACK_S:
                    self._broken("%s took %.3f s, delivery_timeout_ms=%d", record, took_s, delivery_s * 1000)
            elif record.ends and record.ended_s - record.began_s > delivery_s + block_s + SLACK_S + 1:
                self._broken("%s took %.3f s in all", record, record.ended_s - record.began_s)
            if type(record.error) is ProducerClosedError and record.admitted is not None and not record.closed_off:
                self._broken("%s, though nobody had closed the producer in a hurry", record)
            if isinstance(record.error, DuplicateSequenceNumberError):
                self._broken("%s, though the broker has it", record)
            if self._chaos.dead_s is not None and record.ended_s is not None:
                late_s = record.ended_s - max(self._chaos.dead_s, record.began_s)
                if late_s > 1 and not self._scenario.serializers:
                    self._broken("%s ended %.1f s after a task of the producer did", record, late_s)
        known = [record for record in self._books.records if record.admitted is not None]
        perhaps = [
            record
            for record in self._books.records
            if record.state is State.CANCELLED or (record.state is State.FAILED and record.admitted is None)
        ]
        if not len(known) <= appended <= len(known) + len(perhaps):
            self._broken(
                "the producer took %d records, the program knows of %d to %d",
                appended,
                len(known),
                len(known) + len(perhaps),
            )

    # --- the logs -----------------------------------------------------------------------------------------------------

    def _logs(self) -> None:
        """2, 8: what is in the log, how often, and in which order."""
        places: dict[int, list[tuple[int, int, LogRecord]]] = {}
        for generation, topic in enumerate(self._chaos.topics):
            for partition in topic.partitions:
                log = partition.log.read()
                self._replicas(topic, partition)
                self._one_log(topic, partition.index, log)
                for entry in log:
                    if (number := _number(entry.value)) is not None:
                        places.setdefault(number, []).append((generation, partition.index, entry))
        exact = self._scenario.idempotent and not self._scenario.loses_state
        for record in self._books.records:
            self._one_record(record, places.get(record.number, []), exact)

    def _replicas(self, topic: Topic, partition: Partition) -> None:
        """All replicas have what the leader has, once everything works again."""
        for node_id, replica in partition.logs.items():
            if topic in self._model.topics.values() and replica.read() != partition.log.read():
                self._broken("%s-%d is another one at broker %d", topic.name, partition.index, node_id)

    def _one_log(self, topic: Topic, index: int, log: list[LogRecord]) -> None:
        latest = -1
        seen: set[int] = set()
        last: Sent | None = None
        ordered = self._is_ordered(topic)
        for entry in log:
            number = _number(entry.value)
            if number is None or number >= len(self._books.records):
                self._broken("%s-%d holds at %d what nobody sent", topic.name, index, entry.offset)
                continue
            record = self._books.records[number]
            first, _ = number not in seen, seen.add(number)
            self._same(record, topic, index, entry)
            if not first or not ordered:
                continue
            if not self._scenario.idempotent and record.state is not State.ACKED:
                continue
            admitted = record.admitted
            if admitted is not None and admitted < latest and last is not None:
                self._broken(
                    "%s-%d: %s is at %d, behind %s, which was sent after it",
                    topic.name,
                    index,
                    record,
                    entry.offset,
                    last,
                )
            if record.began > latest:
                latest, last = record.began, record

    def _is_ordered(self, topic: Topic) -> bool:
        if self._scenario.idempotent:
            return not self._scenario.loses_state
        return self._scenario.configs["max_in_flight_requests_per_connection"] == 1 and self._scenario.acks != 0

    def _same(self, record: Sent, topic: Topic, index: int, entry: LogRecord) -> None:
        headers = tuple(record.headers or ())
        if (entry.key, entry.value, entry.headers) != (record.key, record.value, headers):
            self._broken("%s is not what stands at %d of %s-%d", record, entry.offset, topic.name, index)
        if topic.name != record.topic or record.partition not in (None, index):
            self._broken("%s is in %s-%d", record, topic.name, index)
        if record.timestamp_ms not in (None, entry.timestamp_ms):
            self._broken("%s has time %d at %d of %s-%d", record, entry.timestamp_ms, entry.offset, topic.name, index)

    def _one_record(self, record: Sent, places: list[tuple[int, int, LogRecord]], exact: bool) -> None:
        if record.state is State.REFUSED and places:
            self._broken("%s was not admitted, and is in the log", record)
        if record.state is State.FAILED and places and not maybe_written(record.error):
            self._broken("%s is in the log, and maybe_written is False", record)
        if exact:
            generations = [generation for generation, _, _ in places]
            if len(set(generations)) < len(generations):
                where = [f"{index}@{entry.offset}" for _, index, entry in places]
                self._broken("%s is in the log more than once: %s", record, where)
        if record.state is not State.ACKED or self._scenario.loses_records:
            return
        if not places and self._scenario.acks != 0:
            self._broken("%s is not in the log", record)
        if record.spans is not None and not any(
            first <= entry.offset <= last for _, index, entry in places for first, last in record.spans.get(index, ())
        ):
            self._broken("%s is not where send_many says: %s", record, record.spans)
        metadata = record.metadata
        if metadata is None:
            return
        if metadata.offset >= 0 and not any(
            entry.offset == metadata.offset and index == metadata.partition for _, index, entry in places
        ):
            self._broken("%s is not at %d of partition %d", record, metadata.offset, metadata.partition)
        if record.key is not None and record.partition is None and "partitioner_class" not in self._scenario.configs:
            most = max(len(topic.partitions) for topic in self._chaos.topics if topic.name == record.topic)
            hashed = murmur2(record.key) & 0x7FFFFFFF
            if metadata.partition not in [hashed % count for count in range(1, most + 1)]:
                self._broken("%s with key %r went to partition %d", record, record.key, metadata.partition)

    # --- failures that nobody looked at -------------------------------------------------------------------------------

    def _unobserved(self) -> None:
        """9: each unobserved failure is reported once."""
        surely = [
            r for r in self._books.records if r.look is Look.NEVER and r.state is State.FAILED and not r.closed_off
        ]
        perhaps = [
            r
            for r in self._books.records
            if (r.look is Look.LATER and r.state is State.FAILED)
            or (r.look is Look.NEVER and r.state is State.FAILED and r.closed_off)
            or r.state is State.CANCELLED
        ]
        told = self._books.on_error_records
        if not len(surely) <= told <= len(surely) + len(perhaps):
            self._broken(
                "on_error was told of %d records, nobody looked at %d to %d failures",
                told,
                len(surely),
                len(surely) + len(perhaps),
            )
        early: list[tuple[Flush, int]] = []
        for flush in sorted(self._books.flushes, key=lambda flush: flush.ended or 0):
            if flush.outcome in ("done", "errors") and flush.ended is not None:
                early.append((flush, flush.record_count - self._one_flush(flush, surely, perhaps, early)))

    def _one_flush(self, flush: Flush, surely: list[Sent], perhaps: list[Sent], early: list[tuple[Flush, int]]) -> int:
        """How many failures a flush had to report.

        It may report more, of records that came and failed while it waited; a later flush then reports that many fewer.
        ``early`` are the flushes that ended before, with the numbers of such failures.
        """

        def covered(record: Sent) -> bool:
            return record.admitted is not None and record.admitted < flush.began

        def told_before(record: Sent) -> bool:
            return any(
                other is not flush
                and other.ended is not None
                and other.ended < flush.began
                and other.outcome not in ("timeout", "cancelled")
                and record.admitted < other.began
                for other in self._books.flushes
            )

        def meanwhile(other: Flush) -> list[Sent]:
            if other.ended is None or other.ended >= flush.began:
                return []
            return [each for each in due if each.admitted >= other.began and each.ended_s <= other.ended_s]

        due = [record for record in surely if covered(record) and not told_before(record)]
        least = max(len(due) - sum(min(count, len(meanwhile(other))) for other, count in early), 0)
        if flush.outcome == "done" and least:
            self._broken("%s at step %d kept quiet about %s", flush.what, flush.began, due[0])
        if flush.outcome == "errors":
            most = len(surely) + len(perhaps)
            if not least <= flush.record_count <= most:
                self._broken(
                    "%s told of %d failed records, there are %d to %d", flush.what, flush.record_count, least, most
                )
        for record in self._books.records:
            if covered(record) and record.ended_s is not None and record.ended_s > flush.ended_s + 0.002:
                self._broken("%s ended after the %s that covers it", record, flush.what)
                break
        return least


def _number(value: bytes | None) -> int | None:
    try:
        return number_of(value)
    except (ValueError, AssertionError):
        return None


def _is_ours(timer: asyncio.TimerHandle) -> bool:
    """Whether a timer belongs to the simulation, not to the producer."""
    callback: Any = timer._callback  # type: ignore[attr-defined]
    while isinstance(callback, functools.partial):
        callback = callback.func
    return str(getattr(callback, "__module__", "")).startswith("tests.simulation")
