"""Every answer, and a missing one, and what happens to the batch."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from aioproducer._delivery import Delivery
from aioproducer._producer_batch import ProducerBatch
from aioproducer.batch_outcomes import MOST_WARNED, BatchOutcomes
from aioproducer.compression import codec
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.error_codes import Code
from aioproducer.errors import (
    BrokerError,
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    ProducerClosedError,
    RecordTooLargeError,
    RequestTimedOutError,
    TransactionAbortedError,
    error_class,
)
from aioproducer.metrics import ProducerMetrics
from aioproducer.net.connection import not_written
from aioproducer.records import TopicPartition
from aioproducer.sealer import Sealer
from aioproducer.transaction.manager import TransactionManager
from aioproducer.transaction.partitions import TransactionPartitions
from tests.unit.core import UNLIMITED, add_topic, drain_all, filled, make_accumulator, messages_of, put, read

NOW = 1000
PID = 4000


@dataclass
class Answer:
    """The attributes of an answer that the outcomes use."""

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    error_message: str | None = None
    record_errors: list[tuple[int, str | None]] | None = field(default_factory=list)


class Bench:
    """Outcomes with everything that they update."""

    def __init__(
        self,
        *,
        idempotent: bool = True,
        unreachable: KafkaError | None = None,
        asks_about_epochs: bool = False,
        transaction: TransactionPartitions | None = None,
        **configs: Any,
    ) -> None:
        config = ProducerConfig.parse({"bootstrap_servers": "unused:1", "enable_idempotence": idempotent, **configs})
        loop = asyncio.get_running_loop()
        self.accumulator = make_accumulator(
            loop=loop, delivery_timeout_ms=config.delivery_timeout_ms, compresses=config.compression_type != "none"
        )
        self.sequences = TransactionManager(idempotent=idempotent, transaction_partitions=transaction)
        self.sequences.set_producer_id(PID, 0)
        self.metrics = ProducerMetrics(2, 30_000)
        self.failed: list[KafkaError] = []
        """What the transaction was told."""
        self.outcomes = BatchOutcomes(
            config,
            accumulator=self.accumulator,
            sequences=self.sequences,
            sealer=Sealer(config, loop=loop, accumulator=self.accumulator, on_sealed=lambda: None),
            metrics=self.metrics,
            rng=random.Random(1),
            on_failure=self.failed.append,
            on_old_epoch=lambda error: asks_about_epochs,
            why_not_sent=lambda batch: unreachable,
        )
        self.introduce()

    def introduce(self) -> None:
        """Make the producer known to the leader, with sequences starting at 0 again."""
        batch, _ = self.sent(1)
        self.answer(batch, Answer(0))
        self.sequences._books_of(batch).next = 0

    def sent(self, count: int = 3, *, size: int = 100) -> tuple[ProducerBatch, list[Delivery]]:
        """A batch of that many records, with sequences and in flight."""
        batch, deliveries = filled(self.accumulator, count, size=size, now_ms=NOW)
        assert self.sequences.may_send(batch)
        self.sequences.number_all([batch])
        self.sequences.request_ended([batch])  # the partition is part of its transaction now
        batch.attempts += 1
        return batch, deliveries

    def resend(self, *, now_ms: int) -> ProducerBatch:
        """Send the requeued batch again."""
        self.accumulator.ready(now_ms)
        (batch,), _ = self.accumulator.drain(1, UNLIMITED, now_ms, self.sequences.may_send, UNLIMITED)
        self.sequences.number_all([batch])
        batch.attempts += 1
        return batch

    def answer(self, batch: ProducerBatch, answer: Answer, *, now_ms: int = NOW) -> BrokerError | None:
        return self.outcomes.answered(batch, answer, "node 1", now_ms)  # type: ignore[arg-type]

    def lose(self, batch: ProducerBatch, error: KafkaError | None = None, *, now_ms: int = NOW) -> None:
        self.outcomes.unanswered(batch, error or ConnectionLostError("gone", maybe_written=True), now_ms)

    def metric(self, name: str) -> float:
        value: float = self.metrics.snapshot(NOW)["producer-metrics"][name]
        return value


def is_queued(batch: ProducerBatch) -> bool:
    return not batch.in_flight and not batch.ended and len(batch.queue) > 0


def failures(deliveries: list[Delivery]) -> set[type]:
    return {type(delivery.exception()) for delivery in deliveries}


# --- acknowledged -----------------------------------------------------------------------------------------------------


async def test_an_acknowledged_batch_has_offsets_and_frees_its_memory() -> None:
    """No error: the records have their offsets, the memory is free, the partition continues."""
    bench = Bench()
    batch, deliveries = bench.sent()
    assert bench.answer(batch, Answer(0, 42)) is None
    assert [delivery.result().offset for delivery in deliveries] == [42, 43, 44]
    assert batch.ended
    assert bench.accumulator.pool.used_bytes == 0
    assert bench.sent()[0].base_sequence == 3


async def test_log_append_time() -> None:
    """The broker's time is passed on."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.answer(batch, Answer(0, 0, 1_800_000_000_000))
    assert {delivery.result().timestamp_ms for delivery in deliveries} == {1_800_000_000_000}


async def test_time_of_a_batch_that_the_leader_has() -> None:
    """It answers the largest timestamp of the batch as the append time, whatever the topic's timestamp type."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.lose(batch)
    bench.answer(bench.resend(now_ms=NOW + 500), Answer(0, 0, 1_000_002))
    assert [delivery.result().timestamp_ms for delivery in deliveries] == [1_000_000, 1_000_001, 1_000_002]


@pytest.mark.parametrize(("lost", "append_time_ms"), [(False, 1_000_002), (True, 1_000_003)])
async def test_append_time_close_to_the_records(lost: bool, append_time_ms: int) -> None:
    """A batch that was not sent before is no duplicate; nor can another time be that of the records."""
    bench = Bench()
    batch, deliveries = bench.sent()
    if lost:
        bench.lose(batch)
        batch = bench.resend(now_ms=NOW + 500)
    bench.answer(batch, Answer(0, 0, append_time_ms))
    assert {delivery.result().timestamp_ms for delivery in deliveries} == {append_time_ms}


async def test_duplicate_is_success() -> None:
    """DUPLICATE_SEQUENCE_NUMBER says that the batch was written before; its offset is not known."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.lose(batch)
    assert bench.answer(bench.resend(now_ms=NOW + 500), Answer(46, 99)) is None
    assert [delivery.result().offset for delivery in deliveries] == [-1, -1, -1]


# --- each code --------------------------------------------------------------------------------------------------------

RETRIED = [2, 3, 5, 6, 7, 9, 13, 19, 20, 56, 72, 74, 75, 89, 100, 103]
FAILED = [-1, 17, 21, 29, 31, 32, 35, 42, 43, 44, 47, 48, 49, 53, 54, 76, 87, 90, 120, 12345]
TOO_LARGE = [10, 18]
IN_DOUBT = {-1, 3, 6, 7, 13, 20, 56, 12345}
FATAL = {31, 35, 53, 90}


@pytest.mark.parametrize("code", RETRIED)
async def test_a_retriable_code_requeues_the_batch_after_a_back_off(code: int) -> None:
    """A retriable code requeues the batch, with its sequence, after a back-off."""
    bench = Bench(retry_backoff_ms=100)
    batch, deliveries = bench.sent()
    error = bench.answer(batch, Answer(code, error_message="told"))
    assert isinstance(error, error_class(code))
    assert is_queued(batch)
    assert batch.base_sequence == 0
    assert batch.last_error is error
    assert NOW + 80 <= batch.retry_at_ms <= NOW + 120
    assert not any(delivery.done() for delivery in deliveries)
    assert batch.maybe_written == batch.in_doubt == (code in IN_DOUBT)
    assert bench.metric("record-retry-total") == 3
    bench.answer(bench.resend(now_ms=NOW + 120), Answer(0, 7))
    assert deliveries[0].result().offset == 7


@pytest.mark.parametrize("code", FAILED)
async def test_any_other_code_ends_the_batch_with_an_error_that_says_why(code: int) -> None:
    """Any other code ends the batch; the error names topic, partition, broker and what the broker said."""
    bench = Bench()
    batch, deliveries = bench.sent()
    error = bench.answer(batch, Answer(code, error_message="told"))
    assert isinstance(error, error_class(code))
    assert error.fatal == (code in FATAL)
    assert batch.ended
    told = deliveries[0].exception()
    assert told is not None
    assert failures(deliveries) == {error_class(code)}
    for part in "orders-0", "node 1", error_class(code).name, "3 records", "attempt 1", "told":
        assert part in str(told)
    assert told.maybe_written == (code in IN_DOUBT)
    assert bench.accumulator.pool.used_bytes == 0
    assert bench.metric("record-error-total") == 3


def test_every_code_is_decided() -> None:
    """The two lists and the specially handled codes cover everything that a broker answers to Produce."""
    assert not set(RETRIED) & set(FAILED)
    assert all(error_class(code).retriable for code in RETRIED)
    assert not any(error_class(code).retriable for code in [*FAILED, *TOO_LARGE])


async def test_unknown_code() -> None:
    """An unknown code fails the batch, and its number is in the message."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.answer(batch, Answer(12345))
    assert "12345" in str(deliveries[0].exception())


async def test_failure_leaves_no_gap() -> None:
    """A batch that was certainly not written passes its sequences on to the next one."""
    bench = Bench()
    batch, _ = bench.sent()
    bench.answer(batch, Answer(87))
    assert bench.sent()[0].base_sequence == 0
    assert bench.sequences.epoch == 0


async def test_batches_that_are_dropped_between_attempts_leave_no_gap() -> None:
    """All of them pass their sequences on, the last first."""
    bench = Bench()
    dropped = [bench.sent() for _ in range(3)]
    assert [batch.base_sequence for batch, _ in dropped] == [0, 3, 6]
    for batch, _ in dropped:
        bench.answer(batch, Answer(19))
    bench.outcomes.drop_unsent(lambda batch: ProducerClosedError("dropped"), NOW, also_in_doubt=False)
    assert failures([delivery for _, deliveries in dropped for delivery in deliveries]) == {ProducerClosedError}
    assert bench.accumulator.pool.used_bytes == 0
    assert bench.sent()[0].base_sequence == 0
    assert bench.sequences.epoch == 0


async def test_failure_in_doubt_bumps() -> None:
    """One that may have been written is followed by a new epoch."""
    bench = Bench()
    batch, _ = bench.sent()
    bench.answer(batch, Answer(-1))
    assert bench.sequences.epoch == 1


async def test_refused_epoch_bumps() -> None:
    """INVALID_PRODUCER_EPOCH fails the batch, and the partition starts again under a new epoch."""
    bench = Bench()
    batch, _ = bench.sent()
    bench.answer(batch, Answer(47))
    assert bench.sequences.epoch == 1


@pytest.mark.parametrize("named", [None, [(1, "bad")]], ids=["the batch", "one record"])
async def test_an_error_tells_topic_and_partition(named: list[tuple[int, str | None]] | None) -> None:
    """Code that counts losses by topic has no need to read the text."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.answer(batch, Answer(87, record_errors=named or []))
    errors = [delivery.exception() for delivery in deliveries]
    assert {(error.topic, error.partition) for error in errors if error is not None} == {("orders", 0)}


@pytest.mark.parametrize("code", [45, 59])
async def test_lost_state(code: int) -> None:
    """OUT_OF_ORDER and UNKNOWN_PRODUCER_ID for a numbered batch: an epoch bump and a retry."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.answer(batch, Answer(code))
    assert is_queued(batch)
    assert not batch.has_sequence
    assert bench.sequences.epoch == 1
    again = bench.resend(now_ms=NOW + 500)
    assert (again.producer_epoch, again.base_sequence) == (1, 0)
    bench.answer(again, Answer(0, 5))
    assert deliveries[0].result().offset == 5


@pytest.mark.parametrize("code", [45, 59])
@pytest.mark.parametrize("version", [None, 1, 2])
async def test_lost_state_behind_which_a_batch_was_acknowledged(code: int, version: int | None) -> None:
    """What the leader may have it has, as it took the one behind it; only the offset is lost."""
    bench = Bench(transaction=version and open_transaction(version))
    (first, deliveries), (second, _) = bench.sent(), bench.sent()
    bench.answer(first, Answer(Code.REQUEST_TIMED_OUT))
    bench.answer(second, Answer(0, 5))
    bench.answer(bench.resend(now_ms=NOW + 500), Answer(code))
    assert [delivery.result().offset for delivery in deliveries] == [-1, -1, -1]
    assert bench.sequences.epoch == 0
    assert bench.failed == []
    assert bench.sent()[0].base_sequence == 6


async def test_lost_state_of_a_batch_that_no_attempt_wrote() -> None:
    """Then the leader took the one behind it because it did not know the producer any more."""
    bench = Bench()
    (first, _), (second, _) = bench.sent(), bench.sent()
    bench.answer(first, Answer(Code.NOT_ENOUGH_REPLICAS))
    bench.answer(second, Answer(0, 5))
    bench.answer(bench.resend(now_ms=NOW + 500), Answer(45))
    assert is_queued(first)


@pytest.mark.parametrize("code", [45, 59])
@pytest.mark.parametrize("explained", ["by nothing", "by an older batch", "by a lost answer", "by a new topic"])
async def test_a_loss_that_the_cluster_has_acknowledged_before_is_told(
    caplog: pytest.LogCaptureFixture, code: int, explained: str
) -> None:
    """Nothing but lost records, or a forgotten producer, explains why the number of the first batch is refused."""
    bench = Bench()
    if explained == "by a new topic":
        bench.accumulator.update_topic("orders", bytes(16), [(1, 0)])
    batch, _ = bench.sent()
    if explained == "by an older batch":
        batch, _ = bench.sent()
    if explained == "by a lost answer":
        bench.lose(batch)
        batch = bench.resend(now_ms=NOW + 500)
    bench.answer(batch, Answer(code), now_ms=NOW + 500)
    told = [text for text in messages_of(caplog) if "it has lost records that it had acknowledged" in text]
    assert len(told) == (explained == "by nothing")
    assert all(text.startswith("orders-0: node 1 answered ") for text in told)


async def test_a_refusal_that_lasts_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """By topic and error; not for a few retries, such as during an election."""
    bench = Bench(retry_backoff_ms=100)
    batch, _ = bench.sent()
    for attempt in range(1, 18):
        now_ms = NOW + 5000 * attempt
        bench.answer(batch, Answer(19), now_ms=now_ms)
        assert len(caplog.records) == (0 if attempt < 5 else 1 if attempt < 17 else 2)
        batch = bench.resend(now_ms=now_ms + 4000)
    assert "NOT_ENOUGH_REPLICAS" in caplog.text
    assert "attempt 5" in caplog.text
    assert "sent again until delivery_timeout_ms=120000 is over" in caplog.text


async def test_a_connection_that_ends_at_each_attempt_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that finds the request too large just hangs up, and takes the next connection."""
    bench = Bench(retry_backoff_ms=100)
    batch, _ = bench.sent()
    for attempt in range(1, 8):
        now_ms = NOW + 5000 * attempt
        hung_up = ConnectionLostError("node 1 (kafka:9092) closed the connection", maybe_written=True)
        bench.lose(batch, hung_up, now_ms=now_ms)
        assert len(caplog.records) == (0 if attempt < 5 else 1)
        batch = bench.resend(now_ms=now_ms + 4000)
    assert messages_of(caplog, "aioproducer.batch_outcomes") == [
        "orders-0: node 1 (kafka:9092) closed the connection, attempt 5; sent again until "
        "delivery_timeout_ms=120000 is over"
    ]


async def test_of_thousands_of_topics_with_one_trouble_a_few_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """A cluster without enough replicas refuses them all; other errors are told all the same."""
    bench = Bench(retry_backoff_ms=100, idempotent=False)
    for number in range(MOST_WARNED + 3):
        put(bench.accumulator, add_topic(bench.accumulator, f"topic{number}"), b"value", now_ms=NOW)
    batches = drain_all(bench.accumulator, now_ms=NOW)
    for code in (19, 20):
        caplog.clear()
        for batch in batches:
            batch.attempts = 5
            bench.answer(batch, Answer(code))
        told = [text.partition("-0: ")[0] for text in messages_of(caplog)]
        assert told == [batch.topic for batch in batches[:MOST_WARNED]]
        assert ["no others" in text for text in caplog.messages] == [False] * (MOST_WARNED - 1) + [True]
        bench.accumulator.ready(NOW + 100_000)
        batches = drain_all(bench.accumulator, now_ms=NOW + 100_000)
    batches[-1].attempts = 5
    bench.answer(batches[-1], Answer(19), now_ms=NOW + 100_000)
    assert messages_of(caplog)[-1].startswith(f"{batches[-1].topic}-0: ")
    assert len(caplog.messages) == MOST_WARNED + 1


@pytest.mark.parametrize("code", [45, 59])
async def test_lost_state_without_idempotence(code: int) -> None:
    """For an unnumbered batch, a retry would not help against these codes."""
    bench = Bench(idempotent=False)
    batch, deliveries = bench.sent()
    bench.answer(batch, Answer(code))
    assert failures(deliveries) == {error_class(code)}


async def test_retries_run_out() -> None:
    """After `retries` retries the error is final."""
    bench = Bench(retries=2)
    batch, deliveries = bench.sent()
    now_ms = NOW
    for _ in range(2):
        bench.answer(batch, Answer(19), now_ms=now_ms)
        assert is_queued(batch)
        now_ms += 5000
        bench.resend(now_ms=now_ms)
    bench.answer(batch, Answer(19), now_ms=now_ms)
    assert failures(deliveries) == {error_class(19)}
    assert "attempt 3" in str(deliveries[0].exception())


@pytest.mark.parametrize(
    ("code", "waits_ms"),
    [
        (Code.NOT_ENOUGH_REPLICAS, (100, 200, 400, 800, 1000, 1000, 1000)),
        (Code.CONCURRENT_TRANSACTIONS, (1, 2, 4, 8, 16, 32, 64, 100)),
    ],
)
async def test_back_off_grows(code: int, waits_ms: tuple[int, ...]) -> None:
    """Each retry waits longer, up to retry_backoff_max_ms; less if only the previous transaction has to end."""
    bench = Bench(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    batch, _ = bench.sent()
    now_ms, waits = NOW, []
    for _ in waits_ms:
        bench.answer(batch, Answer(code), now_ms=now_ms)
        retry_at_ms = batch.retry_at_ms or now_ms  # 0: at once
        waits.append(retry_at_ms - now_ms)
        now_ms = retry_at_ms
        bench.resend(now_ms=now_ms)
    for wait, base in zip(waits, waits_ms, strict=True):
        assert int(0.8 * base) <= wait <= 1.2 * base


async def test_back_off_without_end() -> None:
    """With the longest possible back-off, the batch waits for its delivery timeout."""
    bench = Bench(retry_backoff_ms=2**63 - 1, retry_backoff_max_ms=2**63 - 1)
    batch, deliveries = bench.sent()
    bench.answer(batch, Answer(19))
    assert bench.accumulator.ready(NOW + 119_999) == ([], NOW + 120_000)
    assert bench.outcomes.expire(NOW + 120_000)
    assert failures(deliveries) == {DeliveryTimeoutError}


async def test_maybe_written_is_sticky() -> None:
    """Once an attempt ended without a clear answer, a later refusal does not prove that the record is absent."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.lose(batch)
    bench.resend(now_ms=NOW + 500)
    bench.answer(batch, Answer(29))
    assert all(delivery.exception().maybe_written for delivery in deliveries)  # type: ignore[union-attr]


async def test_an_attempt_that_surely_did_not_leave_says_nothing_of_the_one_before() -> None:
    bench = Bench(retries=1)
    batch, deliveries = bench.sent()
    bench.lose(batch)
    bench.lose(bench.resend(now_ms=NOW + 500), not_written(ConnectionLostError("closed before")))
    assert failures(deliveries) == {ConnectionLostError}
    assert all(delivery.exception().maybe_written for delivery in deliveries)  # type: ignore[union-attr]


# --- errors of single records -----------------------------------------------------------------------------------------


def refused(deliveries: list[Delivery]) -> list[bool]:
    return [error.record_refused for delivery in deliveries if (error := delivery.exception()) is not None]


async def test_one_named_record() -> None:
    """If the broker names one record, it gets the batch's error, and the others one that blames their batch."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.answer(batch, Answer(32, record_errors=[(1, "too old")]))
    first, second, third = (delivery.exception() for delivery in deliveries)
    assert type(second) is InvalidTimestampError
    assert "too old" in str(second)
    assert type(first) is type(third) is InvalidRecordError
    assert "not among them" in str(first)
    assert refused(deliveries) == [False, True, False]


async def test_several_named_records() -> None:
    """If it names several, they get INVALID_RECORD with their own message, or else with the code's name."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.answer(batch, Answer(32, record_errors=[(0, "first"), (2, None), (77, "no such record")]))
    assert failures(deliveries) == {InvalidRecordError}
    texts = [str(delivery.exception()) for delivery in deliveries]
    assert "first" in texts[0]
    assert "not among them" in texts[1]
    assert "INVALID_RECORD" in texts[2]
    assert refused(deliveries) == [True, False, True]


async def test_the_batch_error_tells_why_too() -> None:
    """It is the one in ``DeliveryErrors`` and at ``on_error``, where no record has its own."""
    bench = Bench()
    batch, _ = bench.sent(7)
    named = [(index, f"reason {index}") for index in (77, 0, 2, 3, 4)]
    error = bench.answer(batch, Answer(87, error_message="One or more were rejected", record_errors=named))
    assert str(error).endswith(
        "(One or more were rejected; record 0 of the batch: reason 0; record 2 of the batch: reason 2; "
        "record 3 of the batch: reason 3; and 1 more)"
    )


@pytest.mark.parametrize("code", [32, 87])
@pytest.mark.parametrize("count", [1, 2])
async def test_a_broker_that_names_no_record(code: int, count: int) -> None:
    """It refuses the only record, or any of several."""
    bench = Bench()
    batch, deliveries = bench.sent(count)
    bench.answer(batch, Answer(code))
    assert refused(deliveries) == [count == 1] * count


async def test_a_forbidden_topic_says_nothing_against_the_record() -> None:
    bench = Bench()
    batch, deliveries = bench.sent(1)
    bench.answer(batch, Answer(29))
    assert refused(deliveries) == [False]


async def test_named_records_may_be_written_by_an_earlier_attempt() -> None:
    """An earlier attempt in doubt sets maybe_written in the errors of single records as well."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.lose(batch)
    bench.resend(now_ms=NOW + 500)
    bench.answer(batch, Answer(87, record_errors=[(1, "bad")]))
    assert all(delivery.exception().maybe_written for delivery in deliveries)  # type: ignore[union-attr]


# --- too large --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", TOO_LARGE)
async def test_a_batch_too_large_for_the_broker_is_split(code: int) -> None:
    """A batch that is too large for the broker is split; that counts as neither retry nor failure."""
    bench = Bench(retries=0, idempotent=False)
    batch, deliveries = bench.sent(8)
    error = bench.answer(batch, Answer(code))
    assert isinstance(error, error_class(code))
    assert batch.ended
    records, offset = [], 0
    while not deliveries[-1].done():
        piece = bench.resend(now_ms=NOW)
        records += read(piece)
        bench.answer(piece, Answer(0, offset))
        offset += piece.record_count
    assert [record.timestamp_ms for record in records] == list(range(1_000_000, 1_000_008))
    assert [delivery.result().offset for delivery in deliveries] == list(range(8))
    assert bench.metric("batch-split-total") >= 1


@pytest.mark.parametrize("code", TOO_LARGE)
async def test_split_of_a_compressed_batch(code: int) -> None:
    """A compressed batch is split by its original records."""
    bench = Bench(compression_type="zstd")
    batch, deliveries = bench.sent(8)
    expected = read(batch)
    batch.seal(codec("zstd").compress(batch.contents()), codec("zstd").attribute)
    assert batch.compressed is not None
    bench.answer(batch, Answer(code))
    records = []
    while not deliveries[-1].done():
        piece = bench.resend(now_ms=NOW)
        records += read(piece)
        bench.answer(piece, Answer(0))
    assert records == expected


@pytest.mark.parametrize("code", TOO_LARGE)
async def test_no_split_in_doubt(code: int) -> None:
    """A batch that may have been written is not split: a broker would accept the pieces as new batches."""
    bench = Bench()
    batch, deliveries = bench.sent(8)
    bench.lose(batch)
    batch = bench.resend(now_ms=NOW + 2000)
    bench.answer(batch, Answer(code), now_ms=NOW + 2000)
    assert failures(deliveries) == {error_class(code)}
    assert all(error is not None and error.maybe_written for error in (one.exception() for one in deliveries))
    assert not bench.accumulator.has_live_batches()
    batch, _ = bench.sent(1)
    assert (batch.producer_epoch, batch.base_sequence) == (1, 0)


@pytest.mark.parametrize("code", TOO_LARGE)
async def test_split_is_no_attempt(code: int) -> None:
    """A piece has as many retries as its batch had left before it was refused as too large."""
    bench = Bench(retries=1, idempotent=False)
    batch, deliveries = bench.sent(2)
    bench.answer(batch, Answer(code))
    piece = bench.resend(now_ms=NOW)
    bench.answer(piece, Answer(19))
    assert not deliveries[0].done()
    bench.answer(bench.resend(now_ms=NOW + 2000), Answer(0, 7))
    assert deliveries[0].result().offset == 7


@pytest.mark.parametrize("code", TOO_LARGE)
async def test_single_record_too_large(code: int) -> None:
    """A single record can't be split: it fails with an error that is also a RecordTooLargeError."""
    bench = Bench()
    batch, deliveries = bench.sent(1)
    bench.answer(batch, Answer(code))
    assert failures(deliveries) == {error_class(code)}
    assert isinstance(deliveries[0].exception(), RecordTooLargeError)


@pytest.mark.parametrize("code", TOO_LARGE)
async def test_split_down_to_single_records(code: int) -> None:
    """Pieces that are too large are split again, down to single records, which then fail."""
    bench = Bench()
    batch, deliveries = bench.sent(4)
    bench.answer(batch, Answer(code))
    now_ms = NOW
    while not all(delivery.done() for delivery in deliveries):
        now_ms += 2000
        piece = bench.resend(now_ms=now_ms)
        bench.answer(piece, Answer(code), now_ms=now_ms)
    assert failures(deliveries) == {error_class(code)}
    assert not bench.accumulator.has_live_batches()


# --- no answer --------------------------------------------------------------------------------------------------------


async def test_unanswered_and_maybe_written() -> None:
    """A lost connection leaves the batch in doubt and requeues it with its sequence."""
    bench = Bench()
    batch, deliveries = bench.sent()
    bench.lose(batch)
    assert is_queued(batch)
    assert (batch.maybe_written, batch.in_doubt, batch.base_sequence) == (True, True, 0)
    assert isinstance(batch.last_error, ConnectionLostError)
    assert "orders-0: gone" in str(batch.last_error)
    bench.answer(bench.resend(now_ms=NOW + 500), Answer(0, 3))
    assert deliveries[0].result().offset == 3


async def test_unanswered_and_not_written() -> None:
    """If nothing was handed to the connection, there is no doubt."""
    bench = Bench()
    batch, _ = bench.sent()
    bench.lose(batch, not_written(ConnectionLostError("closed before")))
    assert is_queued(batch)
    assert (batch.maybe_written, batch.in_doubt) == (False, False)
    bench = Bench(idempotent=False, retries=0)
    batch, deliveries = bench.sent()
    bench.lose(batch, not_written(ConnectionLostError("closed before")))
    error = deliveries[0].exception()
    assert isinstance(error, ConnectionLostError)
    assert not error.maybe_written


async def test_unanswered_without_retries() -> None:
    """Without retries a lost connection fails the batch, and the error says that it may have been written."""
    bench = Bench(idempotent=False, retries=0)
    batch, deliveries = bench.sent()
    cause = OSError("reset")
    error = RequestTimedOutError("silent", maybe_written=True)
    error.__cause__ = cause
    bench.lose(batch, error)
    told = deliveries[0].exception()
    assert isinstance(told, RequestTimedOutError)
    assert told.maybe_written
    assert told.__cause__ is cause
    assert "orders-0: silent" in str(told)


# --- expiry -----------------------------------------------------------------------------------------------------------


async def test_expired_in_the_queue() -> None:
    """A batch that could not be sent in time fails with the known reason."""
    bench = Bench(delivery_timeout_ms=30_005)
    delivery = put(bench.accumulator, add_topic(bench.accumulator), now_ms=NOW)
    assert not bench.outcomes.expire(NOW + 30_004)
    assert bench.outcomes.expire(NOW + 30_005)
    assert not bench.outcomes.expire(NOW + 30_005)
    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert isinstance(error, TimeoutError)
    assert not error.maybe_written
    for part in "orders-0: 1 records", "delivery_timeout_ms=30005", "0 attempts", "no broker answered in time":
        assert part in str(error)
    assert not bench.accumulator.has_live_batches()
    assert bench.metric("record-error-total") == 1


async def test_expired_after_an_error() -> None:
    """The message contains the last error, which is also the cause."""
    bench = Bench()
    batch, deliveries = bench.sent()
    last = bench.answer(batch, Answer(19))
    bench.outcomes.expire(NOW + 120_000)
    error = deliveries[0].exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert error.__cause__ is last
    assert "1 attempts; the last error was: orders-0" in str(error)
    assert not error.maybe_written


@pytest.mark.parametrize("attempts", [0, 1])
async def test_expired_behind_a_broker_that_can_not_be_reached(attempts: int) -> None:
    """The message says why the leader can't be reached, not how the previous connection ended."""
    unreachable = ConnectionLostError("no connection to kafka:9092: refused")
    bench = Bench(unreachable=unreachable)
    if attempts:
        batch, (delivery,) = bench.sent(1)
        bench.lose(batch)
    else:
        delivery = put(bench.accumulator, add_topic(bench.accumulator), now_ms=NOW)
    bench.outcomes.expire(NOW + 120_000)
    error = delivery.exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert error.__cause__ is unreachable
    assert f"({attempts} attempts; the last error was: no connection to kafka:9092: refused)" in str(error)
    assert error.maybe_written == bool(attempts)


async def test_expired_in_flight_at_a_broker_that_was_away() -> None:
    """A batch in flight still waits for its answer, whatever is known about the broker."""
    bench = Bench(unreachable=ConnectionLostError("no connection to kafka:9092: refused"))
    _, deliveries = bench.sent()
    bench.outcomes.expire(NOW + 120_000)
    assert "1 attempts; no broker answered in time" in str(deliveries[0].exception())


@pytest.mark.parametrize("end", ["acknowledged", "retriable", "failed", "too large", "lost"])
async def test_expired_in_flight(end: str) -> None:
    """A batch in flight fails at once with maybe_written, but keeps its memory until its request has ended."""
    bench = Bench()
    batch, deliveries = bench.sent()
    assert bench.outcomes.expire(NOW + 120_000)
    error = deliveries[0].exception()
    assert isinstance(error, DeliveryTimeoutError)
    assert error.maybe_written
    assert bench.accumulator.pool.used_bytes > 0
    if end == "lost":
        bench.lose(batch)
    else:
        codes = {"acknowledged": 0, "retriable": 7, "failed": 87, "too large": 10}
        bench.answer(batch, Answer(codes[end]))
    assert not bench.accumulator.has_live_batches()
    assert bench.accumulator.pool.used_bytes == 0
    assert failures(deliveries) == {DeliveryTimeoutError}
    assert bench.metric("record-error-total") == 3
    assert bench.sequences.epoch == (0 if end == "acknowledged" else 1)


async def test_expired_in_the_worker() -> None:
    """A batch that is being compressed fails at once; its memory is freed when the worker is done."""
    bench = Bench(compression_type="gzip")
    delivery = put(bench.accumulator, add_topic(bench.accumulator), bytes(1000), now_ms=NOW)
    bench.accumulator.close_all()
    _, (batch,) = bench.accumulator.drain(1, UNLIMITED, NOW, bench.sequences.may_send, 0)
    assert bench.outcomes.expire(NOW + 120_000)
    assert isinstance(delivery.exception(), DeliveryTimeoutError)
    assert bench.accumulator.has_live_batches()
    bench.accumulator.sealed(batch, b"x", 1)
    assert not bench.accumulator.has_live_batches()


async def test_expired_pieces() -> None:
    """Pieces expire by the age of their batch."""
    bench = Bench()
    batch, deliveries = bench.sent(8)
    bench.answer(batch, Answer(10))
    first = bench.resend(now_ms=NOW)
    bench.answer(first, Answer(0, 0))
    second = bench.resend(now_ms=NOW)
    assert bench.outcomes.expire(NOW + 120_000)
    assert [type(delivery.exception()) for delivery in deliveries] == [type(None)] * first.record_count + [
        DeliveryTimeoutError
    ] * (8 - first.record_count)
    last = deliveries[-1].exception()
    assert isinstance(last, DeliveryTimeoutError)
    assert not last.maybe_written
    bench.lose(second)
    assert not bench.accumulator.has_live_batches()


async def test_an_expired_record_that_nobody_looked_at_counts() -> None:
    bench = Bench()
    put(bench.accumulator, add_topic(bench.accumulator), now_ms=NOW)
    bench.outcomes.expire(NOW + 120_000)
    assert bench.accumulator.ledger.unobserved_count == 1


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_a_batch_that_expired_between_attempts_leaves_no_gap(in_doubt: bool) -> None:
    """The next batch gets its sequence, or a new epoch if it may have been written."""
    bench = Bench()
    batch, _ = bench.sent()
    if in_doubt:
        bench.lose(batch)
    else:
        bench.answer(batch, Answer(Code.NOT_ENOUGH_REPLICAS))
    bench.outcomes.expire(NOW + 120_000)
    batch, _ = bench.sent(1)
    assert (batch.producer_epoch, batch.base_sequence) == (int(in_doubt), 0)


# --- in a transaction -------------------------------------------------------------------------------------------------


def open_transaction(version: int) -> TransactionPartitions:
    transaction = TransactionPartitions()
    transaction.begin(version)
    if version < 2:
        transaction.added([TopicPartition("orders", 0)])
    return transaction


@pytest.mark.parametrize("version", [1, 2])
async def test_sent_again_while_the_transaction_is_open(version: int) -> None:
    bench = Bench(transaction=open_transaction(version))
    lost, _ = bench.sent()
    bench.lose(lost)
    assert is_queued(lost)
    refused = bench.resend(now_ms=NOW + 2000)
    bench.answer(refused, Answer(Code.NOT_ENOUGH_REPLICAS))
    assert is_queued(refused)


@pytest.mark.parametrize("version", [1, 2])
async def test_refused_when_the_transaction_is_being_aborted(version: int) -> None:
    """A batch that is certainly not in the log is not retried: it is dropped with its transaction."""
    transaction = open_transaction(version)
    bench = Bench(transaction=transaction)
    batch, deliveries = bench.sent()
    transaction.sending = False
    bench.answer(batch, Answer(Code.NOT_ENOUGH_REPLICAS))
    assert failures(deliveries) == {TransactionAbortedError}
    assert not any(delivery.exception().maybe_written for delivery in deliveries)  # type: ignore[union-attr]
    assert bench.accumulator.pool.used_bytes == 0
    assert bench.metric("record-error-total") == 3
    assert bench.metric("record-retry-total") == 0


async def test_in_doubt_when_the_transaction_is_being_aborted() -> None:
    """Before V2 a batch in doubt is retried until the leader answers, so that no copy arrives after the end."""
    transaction = open_transaction(1)
    bench = Bench(transaction=transaction)
    batch, deliveries = bench.sent()
    transaction.sending = False
    bench.lose(batch)
    assert is_queued(batch)
    again = bench.resend(now_ms=NOW + 2000)
    assert again is batch
    bench.answer(batch, Answer(Code.NOT_ENOUGH_REPLICAS))
    assert is_queued(batch), "that tells of this attempt alone"
    bench.answer(bench.resend(now_ms=NOW + 4000), Answer(Code.DUPLICATE_SEQUENCE_NUMBER))
    assert failures(deliveries) == {type(None)}


async def test_in_doubt_when_the_transaction_is_being_aborted_with_v2() -> None:
    """The next epoch fences a late copy, so there is no need to wait."""
    transaction = open_transaction(2)
    bench = Bench(transaction=transaction)
    batch, deliveries = bench.sent()
    transaction.sending = False
    bench.lose(batch)
    assert failures(deliveries) == {TransactionAbortedError}
    assert all(delivery.exception().maybe_written for delivery in deliveries)  # type: ignore[union-attr]
    assert bench.accumulator.pool.used_bytes == 0
    assert bench.sequences.has_gap


@pytest.mark.parametrize("code", [45, 47, 49, 59])
async def test_a_refused_number_needs_a_new_epoch(code: int) -> None:
    """The leader expects another number, so the next transaction can't give this one to its first batch."""
    transaction = open_transaction(1)
    bench = Bench(transaction=transaction)
    batch, deliveries = bench.sent()
    bench.answer(batch, Answer(code))
    assert failures(deliveries) == {error_class(code)}
    assert bench.sequences.has_gap


def flags_of(deliveries: list[Delivery]) -> set[tuple[bool, bool]]:
    errors = [delivery.exception() for delivery in deliveries]
    return {(error.abortable, error.fatal) for error in errors}  # type: ignore[union-attr]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "code", [-1, Code.MESSAGE_TOO_LARGE, 29, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_RECORD]
)
async def test_a_failed_record_tells_that_its_transaction_can_only_be_aborted(version: int, code: int) -> None:
    """Whatever the same error means elsewhere."""
    bench = Bench(transaction=open_transaction(version))
    batch, deliveries = bench.sent(1)
    bench.answer(batch, Answer(code))
    assert failures(deliveries) == {error_class(code)}
    assert flags_of(deliveries) == {(True, False)}


async def test_named_records_tell_it_too() -> None:
    bench = Bench(transaction=open_transaction(2))
    batch, deliveries = bench.sent(3)
    bench.answer(batch, Answer(Code.INVALID_RECORD, record_errors=[(1, "no")]))
    assert flags_of(deliveries) == {(True, False)}
    assert refused(deliveries) == [False, True, False]


async def test_lost_and_expired_records_tell_it_too() -> None:
    bench = Bench(transaction=open_transaction(2), retries=1)
    lost, of_lost = bench.sent()
    bench.lose(lost)
    bench.lose(bench.resend(now_ms=NOW + 2000))
    _, of_expired = bench.sent()
    bench.outcomes.expire(NOW + 120_000)
    assert failures(of_lost) == {ConnectionLostError}
    assert failures(of_expired) == {DeliveryTimeoutError}
    assert flags_of(of_lost + of_expired) == {(True, False)}


async def test_the_transaction_hears_of_every_failure() -> None:
    """Of one that the broker refused, of one that was not sent in time, and of one in flight for too long."""
    bench = Bench(transaction=open_transaction(2))
    refused, (first,) = bench.sent(1)
    bench.answer(refused, Answer(29))
    second = put(bench.accumulator, refused.queue.topic, now_ms=NOW)
    bench.outcomes.expire(NOW + 120_000)
    _, (third,) = bench.sent(1)
    bench.outcomes.expire(NOW + 120_000)
    assert [type(error) for error in bench.failed] == [error_class(29), DeliveryTimeoutError, DeliveryTimeoutError]
    assert [str(error) for error in bench.failed] == [str(delivery.exception()) for delivery in (first, second, third)]


@pytest.mark.parametrize("code", [Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING])
async def test_a_batch_waits_while_the_coordinator_is_asked_why_its_epoch_is_refused(code: int) -> None:
    bench = Bench(transaction=open_transaction(2), asks_about_epochs=True)
    batch, _ = bench.sent()
    bench.answer(batch, Answer(code))
    assert is_queued(batch)
    assert bench.failed == []


async def test_a_fatal_error_of_a_record_stays_fatal() -> None:
    """An abort would not help."""
    bench = Bench(transaction=open_transaction(2))
    batch, deliveries = bench.sent()
    bench.answer(batch, Answer(53))
    assert flags_of(deliveries) == {(False, True)}


async def test_without_transactions_the_class_tells_the_flags() -> None:
    bench = Bench()
    batch, deliveries = bench.sent(1)
    bench.answer(batch, Answer(Code.MESSAGE_TOO_LARGE))
    assert flags_of(deliveries) == {(False, False)}


# --- everything at once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unobserved", [True, False])
async def test_fail_all(unobserved: bool) -> None:
    """Everything fails once with the given error; memory is free once no connection is left."""
    bench = Bench(compression_type="gzip")
    in_flight, first = bench.sent(4)
    split, second = bench.sent(4)
    bench.answer(in_flight, Answer(10))
    bench.answer(split, Answer(45))
    piece = bench.resend(now_ms=NOW)
    open_one = put(bench.accumulator, split.queue.topic, now_ms=NOW)
    deliveries = [*first, *second, open_one]
    release = bench.outcomes.fail_all(
        lambda batch: ProducerClosedError("closed", maybe_written=batch.maybe_written), NOW, unobserved=unobserved
    )
    assert failures(deliveries) == {ProducerClosedError}
    assert [d.exception().maybe_written for d in first] == [  # type: ignore[union-attr]
        number < piece.record_count for number in range(4)
    ]
    bench.lose(piece)
    release()
    assert not bench.accumulator.has_live_batches()
    assert bench.accumulator.pool.used_bytes == 0
    assert bench.accumulator.in_flight_batches == 0
    bench.outcomes.fail_all(lambda _: KafkaError("again"), NOW, unobserved=unobserved)()
    assert failures(deliveries) == {ProducerClosedError}
    assert bench.metric("record-error-total") == 9


async def test_fail_all_counts_what_nobody_looked_at() -> None:
    """Failures due to the caller's own close don't count as unobserved; those of a failed producer do."""
    for unobserved in True, False:
        bench = Bench()
        _, deliveries = bench.sent(3)
        bench.outcomes.fail_all(lambda _: KafkaError("no"), NOW, unobserved=unobserved)()
        deliveries.clear()
        assert bench.accumulator.ledger.unobserved_count == (3 if unobserved else 0)
