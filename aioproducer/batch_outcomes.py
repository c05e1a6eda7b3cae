"""BatchOutcomes: how each batch ends, given the broker's answer or the lack of one.

    answer                                      what happens
    ------------------------------------------  ---------------------------------------------------------------------
    no error, or DUPLICATE_SEQUENCE_NUMBER      acknowledged
    the broker lost its state, the batch is in  acknowledged: it is in the log
    doubt, and one behind it was acknowledged
    MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE  split if it has more than one record: the pieces take its place;
                                                failed if it is in doubt
    retriable, or the broker lost its state     queued again in its partition's order, after a back-off
    no answer: the connection ended             the same, and the batch is in doubt until a later answer settles it
    another id or epoch, in a transaction       queued again, until the coordinator has told why
    anything else, or no retries left           failed
    delivery_timeout_ms is over                 failed at once, wherever it is; if in flight, it keeps its memory until
                                                the answer or the end of its connection

Source: org.apache.kafka.clients.producer.internals.Sender. errors.py says what each code proves.
"""

from __future__ import annotations

import copy
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from aioproducer._outcomes import acknowledge, acknowledge_good
from aioproducer.backoff import RequestBackoff
from aioproducer.client_logger import ClientLogger
from aioproducer.error_codes import Code
from aioproducer.errors import BrokerError, DeliveryTimeoutError, KafkaError, broker_error, error_class
from aioproducer.log_limit import WARN_EVERY_MS, LogLimit
from aioproducer.message_text import excerpt
from aioproducer.transaction.state import aborted

if TYPE_CHECKING:
    from aioproducer._accumulator import RecordAccumulator
    from aioproducer._produce import PartitionProduceResponse
    from aioproducer._producer_batch import ProducerBatch
    from aioproducer.config.producer_config import ProducerConfig
    from aioproducer.metrics import ProducerMetrics
    from aioproducer.sealer import Sealer
    from aioproducer.transaction.manager import TransactionManager

logger: logging.Logger = logging.getLogger("aioproducer.batch_outcomes")

TOO_LARGE = frozenset((Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE))
"""Above the topic's limit, or above the size of one log segment."""
LOST_STATE = frozenset((Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID))
"""Codes that prove a numbered batch is not in the log; resending it in order, or an epoch bump, cures them."""
IDENTITY_REFUSED = frozenset((Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING))
"""The cluster has another epoch or id for this producer; in transactions the coordinator can say why."""
RECORD_REFUSED = frozenset((Code.INVALID_RECORD, Code.INVALID_TIMESTAMP))
"""Codes that prove, for a batch of one record, that the broker will never take it."""
NUMBER_REFUSED = LOST_STATE | IDENTITY_REFUSED
"""Codes about the batch's id, epoch and sequence, which another batch with the same ones would get as well."""
WARN_FROM_ATTEMPTS = 5
"""How often a broker refuses a batch, or a connection ends, before that is worth a warning: with the default back-off,
in 1.5 s.
"""
MOST_WARNED = 20
"""The most topics that are named for an error in WARN_EVERY_MS: thousands may have the same trouble."""

MOST_NAMED = 3
"""The most records that the error of their batch tells about; each has its own error besides."""


class BatchOutcomes:
    """Ends batches or queues them again; keeps accumulator, sequences and metrics in step.

    Args:
        on_failure: called for each failed batch, except those failed by ``fail_all`` and ``drop_unsent``.
        on_old_epoch: called when a leader knows a newer epoch, or its coordinator not the producer id; returns True if
            the batch is to wait for the outcome.
        why_not_sent: returns why a batch can't go out, for messages.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        accumulator: RecordAccumulator,
        sequences: TransactionManager,
        sealer: Sealer,
        metrics: ProducerMetrics,
        rng: random.Random,
        on_failure: Callable[[KafkaError], None],
        on_old_epoch: Callable[[KafkaError], bool],
        why_not_sent: Callable[[ProducerBatch], KafkaError | None],
    ) -> None:
        self._logger = ClientLogger(logger, config.client_id)
        self.given_up: int = 0
        """The number of records failed by ``fail_all``."""
        self._on_failure = on_failure
        self._on_old_epoch = on_old_epoch
        self._why_not_sent = why_not_sent
        self._retries = config.retries
        self._delivery_timeout_ms = config.delivery_timeout_ms
        self._accumulator = accumulator
        self._sequences = sequences
        self._sealer = sealer
        self._metrics = metrics
        self._rng = rng
        self._warnings = defaultdict[int | None, LogLimit](lambda: LogLimit(WARN_EVERY_MS, MOST_WARNED))
        self._backoff = RequestBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    def answered(
        self, batch: ProducerBatch, answer: PartitionProduceResponse, broker: object, now_ms: int
    ) -> BrokerError | None:
        """End the batch according to its answer, or queue it again; returns the broker's error, if there was one.

        Args:
            broker: the one that answered, for messages.
        """
        if answer.error_code in (0, Code.DUPLICATE_SEQUENCE_NUMBER):
            offset = answer.base_offset if answer.error_code == 0 else -1
            self.acknowledge(batch, offset, answer.log_append_time_ms)
            return None
        if answer.error_code in LOST_STATE and batch.in_doubt and batch.followed:
            self.acknowledge(batch, -1, -1)
            return None
        batch.maybe_written = batch.maybe_written or error_class(answer.error_code).in_doubt
        error = _refusal(batch, answer, broker)
        if answer.error_code in TOO_LARGE and self._may_split(batch):
            self._split(batch, now_ms)
        elif self._retriable(batch, error) or (error.code in IDENTITY_REFUSED and self._on_old_epoch(error)):
            self._warn(batch, error, str(error), now_ms)
            self._retry(batch, error, now_ms, in_doubt=error.in_doubt)
        else:
            self.fail(batch, error, now_ms, in_doubt=error.in_doubt, named=answer.record_errors)
        return error

    def unanswered(self, batch: ProducerBatch, error: KafkaError, now_ms: int) -> None:
        """The connection ended before the answer; ``error.maybe_written``: anything was handed to the transport."""
        in_doubt = error.maybe_written
        batch.maybe_written = batch.maybe_written or in_doubt
        own = type(error)(f"{batch.topic}-{batch.partition}: {error}")
        own.maybe_written = batch.maybe_written  # also False, where the class's default may differ
        own.__cause__ = error.__cause__
        if not batch.failed_early and batch.attempts <= self._retries:
            self._warn(batch, own, f"{own}, attempt {batch.attempts}", now_ms)
            self._retry(batch, own, now_ms, in_doubt=in_doubt)
        else:
            self.fail(batch, own, now_ms, in_doubt=in_doubt)

    def acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time_ms: int) -> None:
        """The batch is in the log, with the guarantee of ``acks``; -1 for values the broker did not report."""
        acknowledge(self._sequences, self._accumulator, batch, base_offset, log_append_time_ms)

    def acknowledge_good(
        self, batches: list[ProducerBatch], answers: list[PartitionProduceResponse]
    ) -> list[tuple[ProducerBatch, PartitionProduceResponse]]:
        """Acknowledge the batches answered without an error; returns the others, for ``answered``."""
        return acknowledge_good(self._sequences, self._accumulator, batches, answers)

    def fail(
        self,
        batch: ProducerBatch,
        error: KafkaError,
        now_ms: int,
        *,
        in_doubt: bool = False,
        named: Iterable[tuple[int, str | None]] | None = None,
    ) -> None:
        """End the batch without an acknowledgement.

        Args:
            in_doubt: after the last attempt it is unknown whether the batch is in the log.
            named: records that the broker named as the cause, by index (KIP-467).
        """
        if in_doubt:
            self._sequences.unanswered(batch)
        self._sequences.failed(batch, number_refused=error.code in NUMBER_REFUSED)
        if not batch.failed_early:
            told = self._as_told(error)
            by_record = _by_record(batch, error, dict(named or ()))
            self._metrics.record_errors(batch.topic, batch.record_count, now_ms)
            batch.fail(told, by_record and {index: self._as_told(own) for index, own in by_record.items()})
            self._on_failure(told)
        self._accumulator.release(batch)

    def expire(self, now_ms: int) -> bool:
        """Fail every batch past ``delivery_timeout_ms``, whatever its state; returns whether there was one."""
        batches = self._accumulator.expire(now_ms)
        for batch in batches:
            if batch.in_flight:
                batch.maybe_written = True
            error = self._as_told(self._timeout(batch))
            self._end_early(batch, error, now_ms, unobserved=True)
            self._on_failure(error)
            if batch.in_flight:
                self._sequences.expired_in_flight(batch)
            else:
                self._sequences.failed(batch)
                self._accumulator.release(batch)
        return bool(batches)

    def fail_all(
        self, error_of: Callable[[ProducerBatch], KafkaError], now_ms: int, *, unobserved: bool
    ) -> Callable[[], None]:
        """Fail all that has not ended; the returned function frees the memory, once no connection is left."""
        self.given_up += self._accumulator.live_record_count(self._accumulator.last_serial)
        batches = self._accumulator.take_all()
        for batch in batches:
            if batch.in_flight:
                batch.maybe_written = True
            self._end_early(batch, error_of(batch), now_ms, unobserved=unobserved)

        def release() -> None:
            self._sequences.drop_all()
            for batch in batches:
                self._accumulator.release(batch)

        return release

    def drop_unsent(
        self,
        error_of: Callable[[ProducerBatch], KafkaError],
        now_ms: int,
        *,
        also_in_doubt: bool,
        unobserved: bool = False,
    ) -> None:
        """Fail what is not in flight.

        Args:
            also_in_doubt: fail those too that an earlier attempt may have written; else they go on until that is known.
            unobserved: whether somebody has to observe it, as it is neither the program's doing nor an earlier failure.
        """
        batches = self._accumulator.take_unsent(also_in_doubt)
        for batch in batches:
            self._end_early(batch, error_of(batch), now_ms, unobserved=unobserved)
        for batch in reversed(batches):  # so that sequences can be rolled back
            self._sequences.failed(batch)
            self._accumulator.release(batch)

    def _drop(self, batch: ProducerBatch, error: KafkaError, now_ms: int, *, in_doubt: bool = False) -> None:
        self._end_early(batch, error, now_ms, unobserved=False)
        if in_doubt:
            self._sequences.unanswered(batch)
        self._sequences.failed(batch)
        self._accumulator.release(batch)

    def _end_early(self, batch: ProducerBatch, error: KafkaError, now_ms: int, *, unobserved: bool) -> None:
        self._metrics.record_errors(batch.topic, batch.record_count, now_ms)
        batch.fail(error, None, unobserved)

    def _as_told(self, error: KafkaError) -> KafkaError:
        """The error as the program gets it: a transaction with a failed record can only be aborted."""
        if self._sequences.transaction_partitions is None or error.fatal:
            return error
        return error.marked(abortable=True)

    def _timeout(self, batch: ProducerBatch) -> DeliveryTimeoutError:
        # A batch that was never sent, or not sent again, has no error of its own to explain that.
        not_sent = None if batch.in_flight else self._why_not_sent(batch)
        cause = not_sent or batch.last_error
        last = f"the last error was: {cause}" if cause is not None else "no broker answered in time"
        error = DeliveryTimeoutError(
            f"{batch.topic}-{batch.partition}: {batch.record_count:,} records were not acknowledged within "
            f"delivery_timeout_ms={self._delivery_timeout_ms} ({batch.attempts} attempts; {last})",
            maybe_written=batch.maybe_written,
        )
        error.__cause__ = cause
        return error

    def _retriable(self, batch: ProducerBatch, error: BrokerError) -> bool:
        if batch.failed_early or batch.attempts > self._retries:
            return False
        return error.retriable or (error.code in LOST_STATE and self._sequences.cures(batch))

    def _may_split(self, batch: ProducerBatch) -> bool:
        """Not if an earlier attempt may have written it, before the limit was lowered.

        A broker recognises a batch by its first and last sequence, so it would not recognise the pieces as duplicates.
        """
        return batch.record_count > 1 and not batch.failed_early and not batch.in_doubt

    def _retry(self, batch: ProducerBatch, error: KafkaError, now_ms: int, *, in_doubt: bool) -> None:
        """Queue the batch again in its partition's order, after a back-off; drop it if its transaction is dropped."""
        partitions = self._sequences.transaction_partitions
        if partitions is not None and partitions.gives_up(in_doubt or batch.in_doubt):
            where = f"{batch.topic}-{batch.partition}"
            told = aborted(f"{where}: not sent again, as the transaction is aborted", error, batch.maybe_written)
            self._drop(batch, told, now_ms, in_doubt=in_doubt)
            return
        batch.last_error = error
        self._metrics.record_retries(batch.topic, batch.record_count, now_ms)
        # The batch has ended by delivery_timeout_ms; the configured back-off may exceed the largest time.
        delay_ms = min(self._backoff.delay_ms(batch.attempts - 1, self._rng, error.code), self._delivery_timeout_ms)
        self._accumulator.requeue(batch, now_ms, now_ms + delay_ms)
        if error.code in LOST_STATE:
            self._sequences.out_of_order(batch, now_ms)
        elif in_doubt:
            self._sequences.unanswered(batch)
        else:
            self._sequences.settle(batch)

    def _warn(self, batch: ProducerBatch, error: KafkaError, told: str, now_ms: int) -> None:
        """Log a trouble that lasts, or that shows a loss; once a minute for each topic and error, and not for all."""
        if error.code in LOST_STATE:
            if not self._sequences.shows_loss(batch):
                return
            more = "it has lost records that it had acknowledged, or forgot this producer"
        elif batch.attempts >= WARN_FROM_ATTEMPTS:
            more = f"sent again until delivery_timeout_ms={self._delivery_timeout_ms} is over"
        else:
            return
        limit = self._warnings[error.code]
        if limit.allows(now_ms, batch.topic):
            rest = "; for a minute no others are told of" if limit.full else ""
            self._logger.warning("%s; %s%s", told, more, rest)

    def _split(self, batch: ProducerBatch, now_ms: int) -> None:
        """Split a batch that the broker rejected as too large, and queue the pieces in its place."""
        self._logger.info(
            "%s-%d: a batch of %d bytes is too large for the broker; splitting it",
            batch.topic,
            batch.partition,
            batch.wire_bytes,
        )
        pieces = self._accumulator.split(batch, self._sealer.plain(batch), now_ms)
        self._metrics.record_batch_split(now_ms)
        self._sequences.split(batch, pieces)


def of_batch(error: KafkaError, batch: ProducerBatch) -> KafkaError:
    """The reason why a batch can't be sent, as its own error: an earlier attempt may have written it."""
    own = copy.copy(error)
    own.args = (f"{batch.topic}-{batch.partition}: {error}",)
    own.maybe_written = batch.maybe_written
    return own


def _refusal(batch: ProducerBatch, answer: PartitionProduceResponse, broker: object) -> BrokerError:
    kind = error_class(answer.error_code)
    told = "; ".join(_reasons(batch, answer))
    error = broker_error(
        answer.error_code,
        f"{batch.topic}-{batch.partition}: {broker} answered {kind.name} to a batch of {batch.record_count:,} records "
        f"and {batch.wire_bytes:,} bytes, attempt {batch.attempts}: {kind.meaning}{told and f' ({told})'}",
        maybe_written=batch.maybe_written,
    )
    error.record_refused = batch.record_count == 1 and error.code in RECORD_REFUSED
    return error


def _reasons(batch: ProducerBatch, answer: PartitionProduceResponse) -> Iterator[str]:
    """What the broker says of the batch, and of the first of the records that it named."""
    if answer.error_message:
        yield excerpt(answer.error_message)
    named = [(index, reason) for index, reason in answer.record_errors or () if reason and index < batch.record_count]
    for index, reason in named[:MOST_NAMED]:
        yield f"record {index} of the batch: {excerpt(reason)}"
    if len(named) > MOST_NAMED:
        yield f"and {len(named) - MOST_NAMED} more"


def _by_record(batch: ProducerBatch, error: KafkaError, named: dict[int, str | None]) -> dict[int, KafkaError] | None:
    """One error per record if the broker named some: their own, and for the rest that they shared the batch."""
    if not named:
        return None
    where, in_log = f"{batch.topic}-{batch.partition}", batch.maybe_written
    kind = type(error) if len(named) == 1 else error_class(Code.INVALID_RECORD)
    shared = error_class(Code.INVALID_RECORD)(
        f"{where}: part of a batch with invalid records; this one was not among them", maybe_written=in_log
    )
    refused = {
        index: kind(f"{where}: the broker refused the record: {excerpt(reason or kind.name)}", maybe_written=in_log)
        for index, reason in named.items()
    }
    for own in refused.values():
        own.record_refused = True
    return {index: refused.get(index, shared) for index in range(batch.record_count)}
