"""Sequences, outcomes and accumulator together against a model of a partition's leader that fails at random.

No loop and no clock: steps are drawn from a seeded generator, so that a failing seed can be repeated. The model
checks what a broker checks: epochs, sequences, and repetitions among the last five batches of a producer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioproducer._delivery import Delivery
from aioproducer._producer_batch import ProducerBatch
from aioproducer.batch_outcomes import BatchOutcomes
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import (
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from aioproducer.metrics import ProducerMetrics
from aioproducer.sealer import Sealer
from aioproducer.transaction.manager import MAX_EPOCH, TransactionManager
from tests.unit.core import TOPIC_ID, UNLIMITED, make_accumulator, read

PARTITIONS = 2
OK, DUPLICATE = 0, 46
OUT_OF_ORDER, INVALID_EPOCH = 45, 47
NOT_LEADER, TIMED_OUT, TOO_FEW_REPLICAS, TOO_FEW_AFTER_APPEND = 6, 7, 19, 20
TOO_LARGE, INVALID_RECORD, UNAUTHORIZED = 10, 87, 29
UNKNOWN_TOPIC_ID = 100
LATEST_COPY_MS = 900
"""How late a leader that wakes up reads the rest of an old connection, after it has answered on a new one."""


@dataclass
class Answer:
    """The attributes of an answer that the outcomes use."""

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    error_message: str | None = None
    record_errors: list[tuple[int, str | None]] = field(default_factory=list)


@dataclass
class Copy:
    """A copy of a batch as it was sent."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    numbers: list[int]

    @classmethod
    def of(cls, batch: ProducerBatch) -> Copy:
        numbers = [int(record.value or b"") for record in read(batch)]
        return cls(batch.producer_id, batch.producer_epoch, batch.base_sequence, numbers)


@dataclass
class ProducerState:
    """What a leader remembers of a producer."""

    epoch: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """(first sequence, last sequence, offset) of the last five."""


class Leader:
    """One partition's log, and the checks before it."""

    def __init__(self, rng: random.Random, max_batch_bytes: int) -> None:
        self.rng = rng
        self.max_batch_bytes = max_batch_bytes
        self.log: list[int] = []
        self.producers: dict[int, ProducerState] = {}

    def handle(self, batch: ProducerBatch, refuses: float) -> Answer:
        if batch.wire_bytes > self.max_batch_bytes:
            return Answer(TOO_LARGE)
        if self.rng.random() < refuses:
            return Answer(
                self.rng.choice([NOT_LEADER, TOO_FEW_REPLICAS, TOO_FEW_REPLICAS, INVALID_RECORD, UNAUTHORIZED])
            )
        answer = self.append(Copy.of(batch))
        if answer.error_code == OK and self.rng.random() < refuses:
            return Answer(self.rng.choice([TIMED_OUT, TOO_FEW_AFTER_APPEND]))
        return answer

    def append(self, batch: Copy) -> Answer:
        first = batch.base_sequence
        last = (first + len(batch.numbers) - 1) % 2**31
        state = self.producers.get(batch.producer_id)
        if state is not None and batch.producer_epoch < state.epoch:
            return Answer(INVALID_EPOCH)
        if state is not None and batch.producer_epoch == state.epoch:
            for known_first, known_last, offset in state.batches:
                if (known_first, known_last) == (first, last):
                    return Answer(OK, offset) if self.rng.random() < 0.5 else Answer(DUPLICATE)
            if first != (state.batches[-1][1] + 1) % 2**31:
                return Answer(OUT_OF_ORDER)
        elif state is not None and first != 0:
            return Answer(OUT_OF_ORDER)
        if state is None or batch.producer_epoch > state.epoch:
            state = self.producers[batch.producer_id] = ProducerState(batch.producer_epoch)
        offset = len(self.log)
        self.log += batch.numbers
        state.batches = [*state.batches[-4:], (first, last, offset)]
        return Answer(OK, offset)


class Run:
    """A producer's core and its leaders, moved by a generator of chance."""

    def __init__(self, seed: int, *, epoch: int = 0, max_batch_bytes: int = 10_000, **configs: object) -> None:
        self.rng = random.Random(seed)
        config = ProducerConfig.parse({"bootstrap_servers": "unused:1", **configs})
        self.accumulator = make_accumulator(seed=seed, batch_size=150, linger_ms=0, delivery_timeout_ms=3000)
        self.sequences = TransactionManager(idempotent=True)
        self.sequences.set_producer_id(1, epoch)
        self.loop = asyncio.new_event_loop()
        self.outcomes = BatchOutcomes(
            config,
            accumulator=self.accumulator,
            sequences=self.sequences,
            sealer=Sealer(config, loop=self.loop, accumulator=self.accumulator, on_sealed=lambda: None),
            metrics=ProducerMetrics(2, 30_000),
            rng=self.rng,
            on_failure=lambda error: None,
            on_old_epoch=lambda error: False,
            why_not_sent=lambda batch: None,
        )
        self.now_ms = 0
        self.leader_epoch = 0
        self.node = 1
        self.topic_id = TOPIC_ID
        self.leaders = [Leader(self.rng, max_batch_bytes) for _ in range(PARTITIONS)]
        self.former: list[Leader] = []
        """The leaders of deleted topics."""
        self.requests: list[list[ProducerBatch]] = []
        """Requests in flight to the current leader, oldest first."""
        self.answers: list[list[tuple[ProducerBatch, Answer]]] = []
        """Requests handled by the leader, whose answers are still in flight."""
        self.left: list[tuple[int, Copy]] = []
        """Partitions and batches on an abandoned connection that the leader has not read yet."""
        self.left_until_ms: int | None = None
        """The latest time at which the leader reads the rest; None while it is frozen."""
        self.deliveries: list[tuple[int, Delivery]] = []
        self.update_topic()

    def update_topic(self) -> None:
        self.accumulator.update_topic("orders", self.topic_id, [(self.node, self.leader_epoch)] * PARTITIONS)

    # --- steps --------------------------------------------------------------------------------------------------------

    def admit(self) -> None:
        topic = self.accumulator.topic("orders")
        assert topic is not None
        for _ in range(self.rng.randrange(1, 6)):
            number = len(self.deliveries)
            value = b"%012d" % number
            partition = number % PARTITIONS
            delivery = self.accumulator.append(topic, partition, None, value, None, self.now_ms, self.now_ms)
            assert delivery is not None
            self.deliveries.append((number, delivery))

    def send(self) -> None:
        if self.sequences.needs_producer_id:
            self.sequences.set_producer_id(self.rng.randrange(2, 10**6), 0)
        self.accumulator.ready(self.now_ms)
        while len(self.requests) + len(self.answers) < 5:
            batches, _ = self.accumulator.drain(self.node, UNLIMITED, self.now_ms, self.sequences.may_send, UNLIMITED)
            if not batches:
                return
            for batch in batches:
                self.sequences.number_all([batch])
                batch.attempts += 1
            self.requests.append(batches)

    def handle(self, refuses: float) -> None:
        """The leader handles the next request."""
        if self.requests:
            if self.left and self.left_until_ms is None:
                self.left_until_ms = self.now_ms + LATEST_COPY_MS
            batches = self.requests.pop(0)
            self.answers.append([(batch, self.leaders[batch.partition].handle(batch, refuses)) for batch in batches])

    def answer(self) -> None:
        """The next answer arrives."""
        if self.answers:
            for batch, answer in self.answers.pop(0):
                self.outcomes.answered(batch, answer, "broker", self.now_ms)  # type: ignore[arg-type]

    def disconnect(self) -> None:
        """The connection ends: unread requests and all answers are lost."""
        lost = [[batch for batch, _ in answers] for answers in self.answers] + self.requests
        self.requests, self.answers = [], []
        for batches in lost:
            for batch in batches:
                self.outcomes.unanswered(batch, ConnectionLostError("gone", maybe_written=True), self.now_ms)

    def stand_still(self) -> None:
        """The leader freezes, and the connection is abandoned: it reads the rest some time later."""
        if self.left_until_ms is not None:
            self.read_the_rest()  # two freezes within a second are not covered by the guarantee
        self.left += [(batch.partition, Copy.of(batch)) for batches in self.requests for batch in batches]
        self.left_until_ms = None
        self.disconnect()
        self.wait(4000)

    def read_the_rest(self) -> None:
        """The leader reads the rest of the abandoned connection; its answers are lost."""
        left, self.left = self.left, []
        for partition, copy in left:
            self.leaders[partition].append(copy)

    def move_leader(self) -> None:
        """The partitions move; requests to the old leader end without an answer."""
        self.left = []
        self.leader_epoch += 1
        self.node = 3 - self.node
        self.update_topic()
        self.disconnect()

    def make_topic_again(self) -> None:
        """The topic is recreated; requests in flight have the old id. Answers may still arrive."""
        self.answers += [[(batch, Answer(UNKNOWN_TOPIC_ID)) for batch in batches] for batches in self.requests]
        self.requests = []
        self.former += self.leaders
        self.leaders = [Leader(self.rng, leader.max_batch_bytes) for leader in self.leaders]
        self.topic_id = self.rng.randbytes(16)
        self.leader_epoch = 0
        self.update_topic()

    def lower_the_limit(self) -> None:
        """max.message.bytes is lowered, but so that one record still fits."""
        for leader in self.leaders:
            leader.max_batch_bytes = max(90, leader.max_batch_bytes - 30)

    def wait(self, most_ms: int) -> None:
        self.now_ms += self.rng.randrange(most_ms)
        if self.left_until_ms is not None and self.now_ms >= self.left_until_ms:
            self.read_the_rest()
        self.outcomes.expire(self.now_ms)

    def go(self, steps: int, trouble: float, *rare: Callable[[Run], None]) -> None:
        """Do that many random steps, a few of which are of the rare kinds."""
        for _ in range(steps):
            if rare and self.rng.random() < 0.02:
                self.rng.choice(rare)(self)
            step = self.rng.random()
            if step < 0.25:
                self.admit()
            elif step < 0.5:
                self.send()
            elif step < 0.7:
                self.handle(trouble)
            elif step < 0.9:
                self.answer()
            elif step < 0.9 + trouble / 10:
                self.rng.choice([self.disconnect, self.move_leader])()
            else:
                self.wait(2000 if self.rng.random() < trouble / 10 else 200)

    def settle(self) -> None:
        """Let everything end, without further faults."""
        for _ in range(400):
            self.wait(300)
            self.send()
            self.handle(0)
            self.answer()
            if not self.accumulator.has_live_batches():
                return
        raise AssertionError("something never ends")

    # --- what has to hold ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        assert self.accumulator.pool.used_bytes == 0
        assert self.accumulator.in_flight_batches == 0
        every = self.leaders + self.former
        written = {number for leader in every for number in leader.log}
        for leader in every:
            assert leader.log == sorted(set(leader.log)), "a partition holds records twice, or out of order"
        for number, delivery in self.deliveries:
            assert delivery.done()
            error = delivery.exception()
            if error is None:
                offset = delivery.result().offset
                assert number in written, "acknowledged and not in the log"
                offsets = [leader.log.index(number) for leader in every if number in leader.log]
                assert offset in (-1, *offsets), "acknowledged with another offset"
            elif not error.maybe_written:
                assert number not in written, f"surely not in the log, it said: {error}"

    @property
    def failed(self) -> int:
        return sum(delivery.exception() is not None for _, delivery in self.deliveries)


def run(
    seed: int, *, trouble: float, steps: int = 250, rare: tuple[Callable[[Run], None], ...] = (), **options: object
) -> Run:
    attempt = Run(seed, **options)  # type: ignore[arg-type]
    try:
        attempt.go(steps, trouble, *rare)
        attempt.settle()
        attempt.check()
    finally:
        attempt.loop.close()
    return attempt


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=100)
@given(seeds, st.sampled_from([0.02, 0.1, 0.3]))
def test_exactly_once_in_order(seed: int, trouble: float) -> None:
    """Acknowledged records are in the log once, in the order of admission, whatever fails."""
    run(seed, trouble=trouble)


@settings(max_examples=50)
@given(seeds)
def test_with_splits(seed: int) -> None:
    """The same with a leader that accepts only small batches."""
    run(seed, trouble=0.1, max_batch_bytes=90)


@settings(max_examples=100)
@given(seeds)
@example(19165)  # the old log refuses the first batch when the new one is known; the second is written and in doubt
def test_with_a_topic_that_is_made_again(seed: int) -> None:
    """The same with a topic that is recreated: none of its logs has duplicates, or records out of order."""
    run(seed, trouble=0.3, rare=(Run.make_topic_again,))


@settings(max_examples=50)
@given(seeds)
def test_with_a_limit_that_is_lowered(seed: int) -> None:
    """The same if a batch that is written but not acknowledged is refused as too large when it is retried."""
    run(seed, trouble=0.3, rare=(Run.lower_the_limit,), max_batch_bytes=300)


@settings(max_examples=100)
@given(seeds)
@example(122)  # the copy on the old connection is written after the retried batch was refused
def test_with_a_leader_that_stands_still(seed: int) -> None:
    """The same if a leader answers on a new connection before it has read the rest of the abandoned one."""
    run(seed, trouble=0.3, rare=(Run.stand_still, Run.read_the_rest))


@settings(max_examples=30)
@given(seeds)
def test_over_the_last_epoch(seed: int) -> None:
    """The same beyond the last epoch, when a new producer id is requested."""
    run(seed, trouble=0.3, epoch=MAX_EPOCH - 1)


@settings(max_examples=30)
@given(seeds, st.integers(1, 3))
def test_with_few_retries(seed: int, retries: int) -> None:
    """The same with batches that fail after few retries."""
    run(seed, trouble=0.3, retries=retries)


@pytest.mark.parametrize("seed", range(5))
def test_no_trouble_no_failure(seed: int) -> None:
    """If nothing goes wrong, everything is acknowledged, under one epoch, with its offset."""
    attempt = run(seed, trouble=0)
    assert attempt.failed == 0
    assert attempt.sequences.epoch == 0
    assert all(delivery.result().offset >= 0 for _, delivery in attempt.deliveries)


def test_trouble_is_trouble() -> None:
    """The runs do include what they test: failures, epoch bumps, retries and batches in doubt."""
    attempts = [run(seed, trouble=0.3) for seed in range(20)]
    assert sum(attempt.failed for attempt in attempts) > 50
    assert sum(attempt.sequences.epoch for attempt in attempts) > 20
    errors: list[KafkaError | None] = [delivery.exception() for a in attempts for _, delivery in a.deliveries]
    assert {DeliveryTimeoutError, InvalidRecordError, TopicAuthorizationFailedError} <= {type(each) for each in errors}
    assert {True, False} == {error.maybe_written for error in errors if error is not None}
