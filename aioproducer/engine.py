"""Engine: every part of a producer that runs between start() and close()."""

from __future__ import annotations

import asyncio
import copy
import logging
import random
import time
import weakref
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aioproducer._admission import Admission
from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer._producer_batch import ProducerBatch
from aioproducer.batch_outcomes import BatchOutcomes, of_batch
from aioproducer.client_logger import ClientLogger
from aioproducer.config.batching import accumulator_of
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.coordinator import Coordinators
from aioproducer.deadline import Deadline
from aioproducer.errors import (
    BrokerError,
    KafkaError,
    ProducerClosedError,
    ProducerFailedError,
)
from aioproducer.failure_report import FailureReport
from aioproducer.flushes import Flushes
from aioproducer.log_limit import WARN_EVERY_MS, LogLimit
from aioproducer.memory_queue import MemoryQueue
from aioproducer.message_text import excerpt, listed
from aioproducer.metadata import Metadata
from aioproducer.metrics import ProducerMetrics
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.net.sasl.authenticator import SaslAuthenticator
from aioproducer.producer_id import ProducerIdRequest
from aioproducer.records import PartitionInfo, TopicPartition
from aioproducer.sealer import Sealer
from aioproducer.sender import Sender
from aioproducer.telemetry.client_telemetry import ClientTelemetry
from aioproducer.transaction.manager import TransactionManager
from aioproducer.transaction.partitions import TransactionPartitions
from aioproducer.transaction.records import TransactionRecords
from aioproducer.transaction.runner import TransactionRunner
from aioproducer.turns import Turns

logger: logging.Logger = logging.getLogger("aioproducer.engine")

T = TypeVar("T")

ROOM_BYTES = 512 * 1024
"""Room that ready() waits for: far more than a block, so that callers do not stop for each block, yet little enough to
be filled within a few milliseconds, which is how long they then hold the loop."""


class Engine:
    """The parts of a started producer, their tasks, and their waiters.

    It holds its producer weakly, so that dropping the producer without close() is noticed.

    Args:
        ended: called when the producer can do nothing more.
        rng: the only source of randomness: back-off jitter, partitions of keyless records, order of brokers.
        clocks: (the loop's seconds, wall seconds) in place of all clocks, for loops in which time stands still.
    """

    def __init__(
        self,
        config: ProducerConfig,
        loop: asyncio.AbstractEventLoop,
        ended: weakref.WeakMethod[Callable[[KafkaError], None]],
        *,
        rng: random.Random,
        clocks: tuple[Callable[[], float], Callable[[], float]] | None = None,
    ) -> None:
        self._logger = ClientLogger(logger, config.client_id)
        self._config = config
        self._ended = ended
        self.loop = loop
        self.clocks = clocks
        self._ledger = DeliveryLedger()
        self._ledger.loop = loop
        self.failures = FailureReport(self._ledger, config.on_error, self._logger)
        self._admission: weakref.ref[Admission] | None = None
        self.turns = Turns(loop, self._turn_begun)
        self._sequences = TransactionManager(
            idempotent=config.enable_idempotence,
            transaction_partitions=TransactionPartitions() if config.transactional_id is not None else None,
        )
        self.transaction: TransactionRunner | None = None
        self.accumulator = accumulator_of(config, self._ledger, rng)
        self.memory_queue = MemoryQueue(loop, self._queueing_changed)
        self._metrics = ProducerMetrics(config.metrics_num_samples, config.metrics_sample_window_ms)
        self._warnings_of_columns = LogLimit(WARN_EVERY_MS)
        self._warnings_of_rack = LogLimit(WARN_EVERY_MS)
        self.flushes = Flushes(
            loop=loop,
            accumulator=self.accumulator,
            ledger=self._ledger,
            failures=self.failures,
            metrics=self._metrics,
            on_begin=self._flush_begun,
            unreachable_too=lambda: self.unreachable_too,
        )
        self._client = NetworkClient(
            config,
            loop=loop,
            rng=rng,
            on_internal_error=self._internal_error,
            authenticate=self._authenticator(rng) if config.uses_sasl else None,
            metrics=self._metrics,
        )
        self._metadata = Metadata(config, self._client, loop=loop, rng=rng, on_fatal=self._internal_error)
        self._metadata.on_cluster_change = self._cluster_changed
        self._metadata.has_records = self.accumulator.holds_topic
        self._metadata.on_other_cluster = self._other_cluster
        self._register_gauges()
        self._producer_id = ProducerIdRequest(
            config,
            loop=loop,
            client=self._client,
            sequences=self._sequences,
            rng=rng,
            on_refused=self._producer_id_refused,
            on_done=lambda: self._sender.wake(),
            on_fatal=self._fatal,
        )
        self._sealer = Sealer(config, loop=loop, accumulator=self.accumulator, on_sealed=self._progressed)
        self._outcomes = BatchOutcomes(
            config,
            accumulator=self.accumulator,
            sequences=self._sequences,
            sealer=self._sealer,
            metrics=self._metrics,
            rng=rng,
            on_failure=self._record_failed,
            on_old_epoch=self._epoch_refused,
            why_not_sent=self._why_not_sent,
        )
        self.telemetry = ClientTelemetry(
            config,
            loop=loop,
            client=self._client,
            metrics=self._metrics,
            rng=rng,
            wall_time_s=time.time if clocks is None else clocks[1],
        )
        self._sender = Sender(
            config,
            loop=loop,
            accumulator=self.accumulator,
            sequences=self._sequences,
            client=self._client,
            metadata=self._metadata,
            metrics=self._metrics,
            sealer=self._sealer,
            outcomes=self._outcomes,
            on_progress=self._progressed,
            on_fatal=self._fatal,
            request_producer_id=self._producer_id.start,
        )
        self.accumulator.pool.call_on_late_return(self._memory_came_late)
        if config.transactional_id is not None:
            self.transaction = self._transaction_runner(rng)
        self._tasks: list[asyncio.Task[Any]] = []
        self._turned_away: dict[Callable[[KafkaError], object], asyncio.Task[Any] | None] = {}
        """Functions to call when admission ends, and the task in which each caller waits."""
        self.closers: set[asyncio.Task[Any] | None] = set()
        """Tasks that wait for the end of close()."""
        self._failure: KafkaError | None = None
        self._stopping = False

    def _authenticator(self, rng: random.Random) -> Callable[[Connection], Awaitable[None]]:
        return SaslAuthenticator(
            self._config, loop=self.loop, rng=rng, on_internal_error=self._internal_error
        ).authenticate

    def _transaction_runner(self, rng: random.Random) -> TransactionRunner:
        coordinators = Coordinators(
            self._config,
            loop=self.loop,
            client=self._client,
            rng=rng,
            request_metadata=self._metadata.request_update,
        )
        return TransactionRunner(
            self._config,
            loop=self.loop,
            coordinators=coordinators,
            sequences=self._sequences,
            feature=self._client.feature,
            records=TransactionRecords(
                loop=self.loop,
                accumulator=self.accumulator,
                ledger=self._ledger,
                flushes=self.flushes,
                outcomes=self._outcomes,
                metrics=self._metrics,
                admit=self._admit_records,
                on_progress=self._progressed,
                on_fatal=self._fatal,
                on_broken_off=self._task_ended,
                wake_sender=self._sender.wake,
            ),
        )

    def _register_gauges(self) -> None:
        pool = self.accumulator.pool
        for name, read in {
            "buffer-total-bytes": lambda: pool.total_bytes,
            "buffer-available-bytes": lambda: pool.available_bytes,
            "waiting-threads": lambda: len(self.memory_queue),
            "connection-count": lambda: self._client.connection_count,
            "requests-in-flight": lambda: self._client.in_flight_count,
            "metadata-age": lambda: self._metadata.age_ms(self.now_ms()) / 1000,
        }.items():
            self._metrics.register_gauge(name, read)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id; None if it has none, or before it has answered."""
        return self._metadata.cluster_id

    def tell_cluster_id(self, tell: Callable[[str], None]) -> None:
        """Call ``tell`` with the cluster's id, now if it is known, and with each new one."""
        self._metadata.on_cluster_id = tell
        if self.cluster_id is not None:
            tell(self.cluster_id)

    @property
    def unreachable(self) -> KafkaError | None:
        """Why no broker can be reached at the moment.

        While the bootstrap connection is up, brokers are retried only for records: without records this may be out of
        date, and a caller waiting for it to improve would wait forever.
        """
        if self._client.bootstrapped and not self.pending:
            return None
        return self._client.unreachable

    @property
    def unreachable_too(self) -> str:
        """``unreachable`` as the end of a message about records that can't leave; empty if a broker is connected."""
        return "" if (error := self.unreachable) is None else f"; {error}"

    @property
    def pending(self) -> int:
        """Records that have not ended."""
        return self.accumulator.live_record_count(self.accumulator.last_serial)

    @property
    def transaction_number(self) -> int | None:
        """The number of the current or last transaction; None outside of a transactional producer."""
        return None if self.transaction is None else self.transaction.number

    @property
    def given_up(self) -> int:
        """Records that failed because nobody waits for them any more."""
        return self._outcomes.given_up

    def attach(self, admission: Admission) -> None:
        """Tell the compiled path from now on when records may be admitted, and when a caller queues for memory."""
        self._admission = weakref.ref(admission)

    def _turn_begun(self) -> None:
        if self._admission is not None and (admission := self._admission()) is not None:
            admission._turn_taken()

    def _admit_records(self, admits: bool) -> None:
        if self._admission is not None and (admission := self._admission()) is not None:
            admission._admit_records(admits)
        if not admits:
            self.memory_queue.memory_freed()  # callers that wait for memory find out that it is too late

    # --- life cycle ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        deadline_ms = self.now_ms() + self._config.max_block_ms
        await self._metadata.bootstrap(deadline_ms)
        self._run(self._sender.run(), "sender")
        self._run(self._metadata.run(), "metadata")
        if self.transaction is not None:
            await self.transaction.start(deadline_ms)
        elif self._sequences.needs_producer_id:
            self._producer_id.start()

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self.loop.create_task(work, name=f"aioproducer {name}")
        self._tasks.append(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        """A task has ended that should run until ``stop``, or in the middle of its work: others would wait forever."""
        if self._stopping:
            return
        cause = None if task.cancelled() else task.exception()
        told = (
            "was cancelled (has its event loop ended?)" if cause is None else f"ended with an internal error: {cause!r}"
        )
        error = ProducerFailedError(f"the task {task.get_name()!r} {told}", cause=cause)
        self._fatal(error)

    def _internal_error(self, cause: BaseException) -> None:
        self._fatal(ProducerFailedError(f"an internal error: {cause!r}", cause=cause))

    def _fatal(self, error: KafkaError) -> None:
        """The producer can do nothing more: fail everything pending, and everything later, with this one error."""
        if self._failure is not None or self._stopping:
            return
        self._failure = error
        self._logger.error("the producer has failed: %s", str(error))
        if self.transaction is not None:
            self.transaction.failed(error)
        if (ended := self._ended()) is not None:
            ended(error)
        self.turn_away(self.failure_of(error))
        self.fail_all(lambda batch: self.failure_of(error, batch), unobserved=True)
        self._drop_failed()

    def failure_of(self, error: KafkaError, batch: ProducerBatch | None = None) -> KafkaError:
        """The error for a call or a pending record after the producer failed with ``error``.

        In transactions ``error`` itself, which says whether another producer took over; else an error that names it.
        """
        in_log = batch is not None and batch.maybe_written
        if self.transaction is not None and isinstance(error, BrokerError):
            twin = copy.copy(error)
            twin.maybe_written = in_log
            return twin
        where = f"{batch.topic}-{batch.partition}: " if batch is not None else ""
        return ProducerFailedError(f"{where}the producer has failed: {error}", cause=error, maybe_written=in_log)

    def _why_not_sent(self, batch: ProducerBatch) -> KafkaError | None:
        """Why a batch can't go out: no leader, no connection to it, a throttle, no producer id, or its transaction."""
        if batch.queue.leader not in self._metadata.cluster.brokers:
            return self._metadata.why_no_leader(batch.topic, batch.partition)
        if self.transaction is not None:
            refusal = self.transaction.why_not_sent(TopicPartition(batch.topic, batch.partition))
            if refusal is not None:
                return refusal
        return self._client.error_of(batch.queue.leader) or self._producer_id.last_error

    def _producer_id_refused(self, error: KafkaError) -> None:
        self._outcomes.drop_unsent(
            lambda batch: of_batch(error, batch), self.now_ms(), also_in_doubt=False, unobserved=True
        )
        self._progressed()

    def _record_failed(self, error: KafkaError) -> None:
        if self.transaction is not None:
            self.transaction.batch_failed(error)

    def _epoch_refused(self, error: KafkaError) -> bool:
        return self.transaction is not None and self.transaction.epoch_refused(error)

    def turn_away(self, error: KafkaError) -> None:
        """Refuse the callers that wait to be admitted."""
        self.memory_queue.refuse_all(error)
        self._metadata.close(error)
        for tell, task in list(self._turned_away.items()):
            if task not in self.closers:  # else this would cut short the wait of close()
                tell(error)

    @contextmanager
    def telling_who_is_turned_away(self, tell: Callable[[KafkaError], object]) -> Iterator[None]:
        """Call ``tell`` if admission ends in this block, which waits for records of the program, perhaps forever."""
        self._turned_away[tell] = asyncio.current_task()
        try:
            yield
        finally:
            del self._turned_away[tell]

    def fail_all(self, error_of: Callable[[ProducerBatch], KafkaError], *, unobserved: bool) -> None:
        if self.transaction is not None and self.accumulator.has_live_batches():
            # First, so that a commit that waits for their ends does not take them for successes.
            self.transaction.batch_failed(
                ProducerClosedError("the producer was closed before all records of the transaction had ended")
            )
        if not unobserved:
            self.flushes.cut_off()
        self._sender.fail_all(error_of, unobserved=unobserved)

    async def stop(self, deadline: Deadline | None = None) -> None:
        """End tasks and connections; the caller has already failed all records that had not ended.

        Args:
            deadline: for program code in a task that ignores its cancellation, and for worker threads that compress,
                which can't be stopped.
        """
        deadline = deadline or Deadline(self.loop, None)
        self.drop()
        if not await deadline.bound(self._ended_tasks()):
            self._logger.warning(
                "close(timeout=%s): a connection had not ended; does the token provider ignore its cancellation?",
                deadline.timeout,
            )
        self._metadata.close()
        await deadline.bound(self._sealer.close())

    async def _ended_tasks(self) -> None:
        await self.telemetry.stop()
        if tasks := self._all_tasks():
            await asyncio.wait(tasks)  # not gather, which waits for them even when cancelled
            for task in tasks:
                _ = task.cancelled() or task.exception()  # retrieved: nobody is left to handle it
        await self._client.close()

    def drop(self) -> None:
        """Like ``stop``, without waiting for tasks and connections to end."""
        self._stopping = True
        self.telemetry.drop()
        for task in self._all_tasks():
            task.cancel()
        self._sealer.drop()
        self._client.drop()
        self.accumulator.pool.keep_nothing()  # the program may keep the producer, or an error that refers to it

    def _all_tasks(self) -> list[asyncio.Task[Any]]:
        tasks = [*self._tasks]
        if self._producer_id.task is not None:
            tasks.append(self._producer_id.task)
        if self.transaction is not None:
            tasks.extend(self.transaction.tasks())
        return tasks

    def _drop_failed(self) -> None:
        """The producer has failed: end what still runs, once the transaction's calls have reported their outcome."""
        running = [task for task in self.transaction.tasks() if not task.done()] if self.transaction is not None else []
        if running:
            running[0].add_done_callback(lambda _: self._drop_failed())
        else:
            self.drop()

    def abandon(self) -> None:
        """The producer was dropped unclosed: end what runs. The garbage collector may call this anywhere."""

        def end() -> None:
            self._stopping = True
            self.turn_away(ProducerClosedError("the producer was dropped without close()"))
            self.fail_all(
                lambda batch: ProducerClosedError(
                    f"{batch.topic}-{batch.partition}: the producer was dropped without close()",
                    maybe_written=batch.maybe_written,
                ),
                unobserved=True,
            )
            self.drop()

        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(end)

    def fail_after_loop(self, error_of: Callable[[ProducerBatch], KafkaError]) -> int:
        """Fail what is pending after the loop was closed and runs nothing any more; returns the number of records."""
        pending = self.pending
        self._ledger.deadlines.clear()  # a Delivery kept by the program must not keep tasks and their sockets alive
        self._outcomes.fail_all(error_of, self.now_ms(), unobserved=False)
        return pending

    # --- topics -------------------------------------------------------------------------------------------------------

    async def wait_for_topic(self, topic: str, partition: int | None, deadline_ms: int) -> None:
        began_ms = self.now_ms()
        await self._metadata.wait_for_topic(topic, partition=partition, deadline_ms=deadline_ms)
        self._metrics.record_metadata_wait(self.now_ms() - began_ms, self.now_ms())

    def want_topic(self, topic: str) -> None:
        """Have the metadata of a topic fetched, for a later call."""
        self._metadata.need(topic, self.now_ms())

    def keep_topics(self, topics: Iterable[str]) -> None:
        """Never forget these topics, however long no record is sent to them."""
        self._metadata.keep(topics)

    def is_known(self, topic: str, partition: int | None) -> bool:
        known = self.accumulator.topic(topic)
        return known is not None and known.partitions > (partition or 0)

    def partitions_of(self, topic: str) -> tuple[PartitionInfo, ...]:
        return self._metadata.cluster.partitions(topic) or ()

    def _cluster_changed(self, topics: Collection[str]) -> None:
        if self._config.partitioner_rack_aware:
            self._prefer_own_rack()
        for name in topics:
            topic = self._metadata.cluster.topics.get(name)
            if topic is None:
                self.accumulator.forget_topic(name)
            elif topic.partitions or self.accumulator.topic(name) is not None:
                # No partitions any more: the topic is gone. Queued records wait for it to come back, new ones for its
                # metadata.
                leaders = [(state.leader, state.leader_epoch) for state in topic.partitions]
                self.accumulator.update_topic(name, topic.topic_id, leaders)
        if self._admission is not None and (admission := self._admission()) is not None:
            admission._look_again()
        self._sender.wake()

    def _prefer_own_rack(self) -> None:
        rack, brokers = self._config.client_rack, self._metadata.cluster.brokers.values()
        near = frozenset(broker.node_id for broker in brokers if broker.rack == rack)
        if brokers and not near and self._warnings_of_rack.allows(self.now_ms()):
            racks = sorted({broker.rack for broker in brokers if broker.rack})
            self._logger.warning(
                "no broker is in client_rack=%s, so none is preferred; the brokers' racks: %s",
                rack,
                excerpt(listed(racks)) or "none",
            )
        self.accumulator.prefer(near)

    def _other_cluster(self, before: str, now: str) -> None:
        """Another cluster has taken the place of the known one, and no connection to that is left."""
        told = f"bootstrap_servers lead to another cluster now: its id is {now}, not {before}"
        if self.transaction is not None:
            self._fatal(ProducerFailedError(f"{told}; transactions can't continue there"))
            return
        self._logger.warning("%s; records that have not been acknowledged go there", told)
        self._producer_id.start_over()
        self._sequences.start_over()

    # --- memory -------------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    @property
    def used_bytes(self) -> int:
        return self.accumulator.pool.used_bytes

    def has_room(self, wanted_bytes: int = 0) -> bool:
        """Whether there is room for more than a block, and for ``wanted_bytes``."""
        pool = self.accumulator.pool
        return pool.available_bytes >= max(wanted_bytes, min(pool.total_bytes // 4, ROOM_BYTES))

    def _queueing_changed(self, queueing: bool) -> None:
        if self._admission is not None and (admission := self._admission()) is not None:
            admission._queueing = queueing
        if queueing:
            self._sender.wake()  # short memory makes open batches ready

    def _memory_came_late(self) -> None:
        """Called where the last view of an ended batch went away: a transport or a worker thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._progressed)

    def _progressed(self) -> None:
        """Batches ended or memory came back: wake their waiters."""
        self.memory_queue.memory_freed()
        if self.flushes.waiters:
            self.flushes.progressed()

    def _flush_begun(self) -> None:
        self._sender.wake()
        self._progressed()

    async def wait_for_memory(self, attempt: Callable[[], T | None], deadline_ms: int) -> T | None:
        """Queue for memory; returns None if ``attempt`` had not succeeded by the deadline."""
        began_ms = self.now_ms()
        result = await self.memory_queue.take_turn(attempt, deadline_ms)
        self._metrics.record_buffer_wait(self.now_ms() - began_ms, self.now_ms())
        if result is None:
            self._metrics.record_buffer_exhausted(self.now_ms())
        return result

    def refused_for_memory(self) -> None:
        """Count a record that could not wait."""
        self._metrics.record_buffer_exhausted(self.now_ms())

    def warn_of_column(self, argument: str, column: str) -> None:
        """``send_arrow`` got a name that no column has: allowed, as data may lack columns, but it may be misspelt."""
        if self._warnings_of_columns.allows(self.now_ms(), argument):
            self._logger.warning("send_arrow: %s=%r names no column of the data, so none is used", argument, column)

    async def written(self, timeout: float | None) -> None:
        """Wait until ``acks=0`` records that count as ended have left the process: closing would drop them."""
        timeout_ms = self._config.request_timeout_ms if timeout is None else int(timeout * 1000)
        await self._client.written(self.now_ms() + timeout_ms)

    def metrics_snapshot(self) -> dict[str, dict[str, Any]]:
        return self._metrics.snapshot(self.now_ms())
