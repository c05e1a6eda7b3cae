"""The accumulator's states: what makes a batch ready, what drains it, what requeues it, how it ends."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery import Delivery, watch
from aioproducer._produce import encode_produce_request, fixed_bytes
from aioproducer._producer_batch import ProducerBatch, TopicQueues
from aioproducer.compression import codec
from aioproducer.errors import DeliveryTimeoutError
from aioproducer.patient_timer import LATE_MS
from aioproducer.transaction.manager import TransactionManager
from tests.reference import record_batch as reference
from tests.unit.core import (
    TOPIC_ID,
    UNLIMITED,
    add_topic,
    allocated_blocks,
    batch_bytes,
    drain,
    drain_all,
    end,
    fail,
    filled,
    make_accumulator,
    numbers,
    put,
    read,
    split,
    without_allocation,
)

NOW = 1000


# --- ready: linger, full, memory, flush -------------------------------------------------------------------------------


def test_a_batch_is_ready_after_its_linger_and_not_before() -> None:
    """A batch is ready linger_ms after its first record, and not before."""
    accumulator = make_accumulator(linger_ms=5)
    topic = add_topic(accumulator)
    put(accumulator, topic, now_ms=NOW)
    put(accumulator, topic, now_ms=NOW + 3)
    assert accumulator.ready(NOW + 3) == ([], NOW + 5)
    assert accumulator.ready(NOW + 4) == ([], NOW + 5)
    assert accumulator.ready(NOW + 5)[0] == [1]
    (batch,) = drain(accumulator, now_ms=NOW + 5)
    assert (batch.record_count, batch.created_ms) == (2, NOW)


def behind_another() -> tuple[RecordAccumulator, TopicQueues]:
    """An accumulator with an open batch that is past its linger, behind one that waits to be sent."""
    accumulator = make_accumulator(linger_ms=5, delivery_timeout_ms=1000)
    topic = add_topic(accumulator)
    put(accumulator, topic, b"first")
    assert accumulator.ready(5)[0] == [1]
    put(accumulator, topic, b"second", now_ms=5)
    assert accumulator.ready(10) == ([1], 1000), "no deadline but that of delivery"
    return accumulator, topic


def test_gathers_behind_a_batch_that_waits() -> None:
    """A batch past its linger takes more records while older batches of its partition still wait."""
    accumulator, topic = behind_another()
    put(accumulator, topic, b"third", now_ms=50)
    (first,) = drain(accumulator, now_ms=60)
    (second,) = drain(accumulator, now_ms=60)
    assert [first.record_count, second.record_count] == [1, 2]
    put(accumulator, topic, b"fourth", now_ms=60)
    assert drain(accumulator, now_ms=60) == [], "a new batch lingers as long as any"
    assert accumulator.ready(65)[0] == [1]


def test_a_record_does_not_expire_with_one_of_an_outage_ago() -> None:
    """A batch gathers for an eighth of delivery_timeout_ms, so it takes no more of a record's time than that."""
    accumulator, topic = behind_another()
    put(accumulator, topic, b"third", now_ms=5 + 124)
    put(accumulator, topic, b"fourth", now_ms=5 + 125)
    assert [batch.record_count for batch in accumulator.expire(5 + 1000)] == [1, 2]
    (left,) = drain_all(accumulator, now_ms=5 + 1000)
    assert left.record_count == 1
    assert [batch.record_count for batch in accumulator.expire(5 + 125 + 1000)] == [1]


def test_flush_closes_what_gathers_behind_others() -> None:
    """A record after the flush goes into a new batch."""
    accumulator, topic = behind_another()
    accumulator.close_all()
    put(accumulator, topic, b"later", now_ms=20)
    batches = [*drain(accumulator, now_ms=20), *drain(accumulator, now_ms=20)]
    assert [batch.record_count for batch in batches] == [1, 1]
    assert drain(accumulator, now_ms=20) == []


def test_what_gathers_goes_when_those_before_it_expire() -> None:
    """A batch past its linger is sent as soon as it is the partition's first, for whatever reason."""
    accumulator, _ = behind_another()
    (expired,) = accumulator.expire(1000)
    fail(accumulator, expired)
    (second,) = drain(accumulator, now_ms=1000)
    end(accumulator, second)
    assert not accumulator.has_live_batches()


def test_what_gathers_may_expire() -> None:
    """It is as old as its first record, and takes no more records once it has expired."""
    accumulator, topic = behind_another()
    expired = accumulator.expire(1050)
    assert len(expired) == 2
    for batch in expired:
        fail(accumulator, batch)
    put(accumulator, topic, b"new", now_ms=2000)
    assert accumulator.ready(2000)[0] == []
    accumulator.close_all()
    assert [batch.record_count for batch in drain(accumulator, now_ms=2000)] == [1]


def test_an_awaited_batch_gathers_behind_a_batch_that_waits() -> None:
    """Cutting linger can't make it overtake the one before it, which backs off."""
    accumulator = make_accumulator(linger_ms=1000)
    topic = add_topic(accumulator)
    put(accumulator, topic, awaited=True)
    assert accumulator.ready(0)[0] == [1]
    (first,) = drain(accumulator)
    accumulator.requeue(first, 0, 100)
    for now_ms in range(1, 4):
        put(accumulator, topic, awaited=True, now_ms=now_ms)
        assert accumulator.ready(now_ms)[0] == []
    assert accumulator.ready(100)[0] == [1]
    assert drain(accumulator, now_ms=100) == [first]
    (second,) = drain(accumulator, now_ms=100)
    assert second.record_count == 3


@pytest.mark.parametrize("longest_linger_ms", [0, 2**63 - 1])
def test_lingers_without_end(longest_linger_ms: int) -> None:
    """The largest value, for programs that send only by flush()."""
    accumulator = make_accumulator(
        linger_ms=2**63 - 1, longest_linger_ms=longest_linger_ms, delivery_timeout_ms=2**31 - 1
    )
    put(accumulator, add_topic(accumulator), now_ms=NOW)
    assert accumulator.ready(NOW) == ([], NOW + 2**31 - 1)
    assert accumulator.ready(NOW + 1_000_000) == ([], NOW + 2**31 - 1)


def test_no_linger() -> None:
    """With linger_ms=0 a batch is ready at once."""
    accumulator = make_accumulator(linger_ms=0)
    put(accumulator, add_topic(accumulator), now_ms=NOW)
    assert accumulator.ready(NOW)[0] == [1]


def crowd(
    partitions: int,
    records_a_ms: int,
    *,
    until_ms: int,
    linger_ms: int = 5,
    longest_linger_ms: int = 100,
    busy_ns: int = 50_000,
) -> RecordAccumulator:
    """Records at a steady rate from 0 on, to that many partitions in turn; batches are drained each millisecond.

    Submitting them takes ``busy_ns`` of each millisecond.
    """
    accumulator = make_accumulator(linger_ms=linger_ms, longest_linger_ms=longest_linger_ms)
    topic = add_topic(accumulator, leaders=[1] * partitions)
    number = 0
    for now_ms in range(until_ms):
        for _ in range(records_a_ms):
            put(accumulator, topic, partition=number % partitions, now_ms=now_ms)
            number += 1
        accumulator.busy_ns += busy_ns
        assert accumulator.ready(now_ms)[0] == []
    return accumulator


def test_at_full_speed_many_partitions_linger_longer() -> None:
    """If batches would hold few records, they wait longer for more, up to a limit, and then all are sent."""
    accumulator = crowd(300, 20, until_ms=100)
    assert accumulator.ready(100)[0] == [1]
    batches = drain(accumulator, now_ms=100)
    assert len(batches) == 300
    assert {batch.record_count for batch in batches} == {6, 7}


def test_full_speed_has_looked_again_by_then() -> None:
    """While batches linger longer, the next check is one linger away, not in each turn of the loop."""
    accumulator = crowd(300, 200, until_ms=7)
    assert accumulator.ready(7) == ([], 12)


def test_enough_records_end_the_longer_linger() -> None:
    """From 64 records on, a batch's own cost is small."""
    accumulator = crowd(50, 200, until_ms=15)
    topic = add_topic(accumulator, leaders=[1] * 50)
    for partition in range(200):
        put(accumulator, topic, partition=partition % 50, now_ms=15)
    assert accumulator.ready(15)[0] == [1]
    assert {batch.record_count for batch in drain(accumulator, now_ms=15)} == {64}


def test_who_waits_for_what_was_submitted_ends_the_longer_linger() -> None:
    """A program that limits its pending records sends no more by itself: after two lingers all batches are sent."""
    accumulator = crowd(300, 200, until_ms=13, busy_ns=1_000_000)
    assert accumulator.ready(15)[0] == []
    assert accumulator.ready(20)[0] == [1]
    assert len(drain(accumulator, now_ms=20)) == 300


@pytest.mark.parametrize(
    ("partitions", "busy_ns", "linger_ms", "longest_linger_ms"),
    [
        pytest.param(300, 49_000, 5, 100, id="not as busy"),
        pytest.param(14, 50_000, 5, 100, id="few partitions"),
        pytest.param(300, 1_000_000, 5, 0, id="linger set"),
        pytest.param(300, 1_000_000, 0, 0, id="no linger"),
    ],
)
def test_else_linger_is_what_was_asked_for(
    partitions: int, busy_ns: int, linger_ms: int, longest_linger_ms: int
) -> None:
    """For programs that do more than submit, with few partitions, and with a linger that was set."""
    accumulator = crowd(
        partitions, 200, until_ms=linger_ms, linger_ms=linger_ms, longest_linger_ms=longest_linger_ms, busy_ns=busy_ns
    )
    put(accumulator, add_topic(accumulator, "other"), now_ms=linger_ms)
    assert accumulator.ready(linger_ms)[0] == [1]


def test_deadlines_by_age() -> None:
    """The next deadline is that of the oldest open batch of any partition."""
    accumulator = make_accumulator(linger_ms=10)
    topic = add_topic(accumulator, leaders=[1, 2, 1])
    for partition, now_ms in (2, NOW), (1, NOW + 1), (0, NOW + 4):
        put(accumulator, topic, partition=partition, now_ms=now_ms)
    assert accumulator.ready(NOW + 4) == ([], NOW + 10)
    assert accumulator.ready(NOW + 10) == ([1], NOW + 11)
    assert accumulator.ready(NOW + 11)[0] == [1, 2]


def test_delivery_deadline() -> None:
    """With nothing open, the deadline is that of the oldest batch's delivery."""
    accumulator = make_accumulator(delivery_timeout_ms=500)
    topic = add_topic(accumulator)
    assert accumulator.ready(NOW) == ([], -1)
    put(accumulator, topic, now_ms=NOW)
    accumulator.ready(NOW + 5)
    (batch,) = drain(accumulator, now_ms=NOW + 5)
    put(accumulator, topic, now_ms=NOW + 7)
    accumulator.close_all()
    assert accumulator.ready(NOW + 8) == ([1], NOW + 500)
    end(accumulator, batch)
    assert accumulator.ready(NOW + 8) == ([1], NOW + 507)


def test_full_batch_is_ready() -> None:
    """A batch that has no room for the next record closes and is ready; the record opens another."""
    accumulator = make_accumulator(batch_size=200)
    topic = add_topic(accumulator)
    put(accumulator, topic, bytes(100), now_ms=NOW)
    assert accumulator.ready(NOW)[0] == []
    put(accumulator, topic, bytes(100), now_ms=NOW)
    assert accumulator.ready(NOW)[0] == [1]
    (batch,) = drain(accumulator, now_ms=NOW)
    assert batch.record_count == 1
    assert accumulator.ready(NOW) == ([], NOW + 5)


@pytest.mark.parametrize(("size", "batches"), [(128, 1), (129, 2)])
def test_batch_size_counts_the_header(size: int, batches: int) -> None:
    """batch_size limits the batch as sent: 61 bytes of header, and each record with its length prefix."""
    accumulator = make_accumulator(batch_size=61 + (7 + 50) + (9 + 128))
    topic = add_topic(accumulator)
    put(accumulator, topic, bytes(50))
    put(accumulator, topic, bytes(size))
    assert len(drain_all(accumulator)) == batches


def test_record_above_the_batch_size() -> None:
    """It gets its own batch."""
    accumulator = make_accumulator(batch_size=100)
    topic = add_topic(accumulator)
    for size in 10, 500, 10:
        put(accumulator, topic, bytes(size))
    assert [batch.record_count for batch in drain_all(accumulator)] == [1, 1, 1]


def test_compression_ratio_fills_batches() -> None:
    """Compressed batches take as many plain bytes as should fit by the topic's ratio, with a margin of 5%."""
    accumulator = make_accumulator(batch_size=1061, sticky_size=1061, compresses=True, max_request_size=5000)
    topic = add_topic(accumulator)

    def compress(ratio: float) -> None:
        put(accumulator, topic, bytes(91))
        (batch,) = drain_all(accumulator)
        assert batch.size_bytes == 100
        batch.seal(bytes(int(ratio * 100)), 1)
        end(accumulator, batch)

    def fill() -> int:
        for _ in range(30):
            put(accumulator, topic, bytes(91))
        first, *others = drain_all(accumulator)
        for batch in (first, *others):
            end(accumulator, batch)
        return first.size_bytes

    compress(0.5)
    assert fill() == 900  # the ratio falls by 0.005 a batch at most
    for _ in range(99):
        compress(0.5)
    assert fill() == 1900  # with one more record, 0.5 x 1.05 of the size would be above 1,000
    compress(0.9)
    assert fill() == 1000  # it rises at once


def test_plain_bytes_of_a_compressed_batch_are_bounded() -> None:
    """However well a topic compresses, a batch holds at most max_request_size before compression."""
    accumulator = make_accumulator(batch_size=200, compresses=True, max_request_size=1000)
    topic = add_topic(accumulator)
    for _ in range(200):
        topic.observe_ratio(0.0)
    for _ in range(30):
        put(accumulator, topic, bytes(100))
    for batch in drain_all(accumulator):
        assert batch.wire_bytes <= 1000


def test_memory_short_cuts_linger() -> None:
    """When a call waits for memory, open batches are sent once nothing is in flight that would free some."""
    accumulator = make_accumulator(linger_ms=1000)
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, partition=0, now_ms=NOW)
    accumulator.close_all()
    (first,) = drain(accumulator, now_ms=NOW)
    put(accumulator, topic, partition=1, now_ms=NOW)
    accumulator.memory_short = True
    assert accumulator.ready(NOW)[0] == []
    end(accumulator, first)
    assert accumulator.ready(NOW)[0] == [1]


def test_memory_short_waits_for_what_is_ready() -> None:
    """An open batch is not sent before those that are ready anyway."""
    accumulator = make_accumulator(linger_ms=1000, batch_size=200)
    topic = add_topic(accumulator, leaders=[1, 2])
    put(accumulator, topic, bytes(100), partition=0, now_ms=NOW)
    put(accumulator, topic, bytes(100), partition=0, now_ms=NOW)
    put(accumulator, topic, partition=1, now_ms=NOW)
    accumulator.memory_short = True
    assert accumulator.ready(NOW)[0] == [1]


def test_memory_short_waits_for_what_is_compressed() -> None:
    """Nor before those that workers compress, which will free memory: it would have only a record or two."""
    accumulator = make_accumulator(linger_ms=1000, compresses=True)
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, bytes(1000), partition=0, now_ms=NOW)
    (first,) = sealing(accumulator)
    put(accumulator, topic, partition=1, now_ms=NOW)
    accumulator.memory_short = True
    assert accumulator.ready(NOW)[0] == []
    accumulator.sealed(first, None, 0)
    assert [batch.partition for batch in drain(accumulator, now_ms=NOW)] == [0]
    assert accumulator.ready(NOW)[0] == []
    end(accumulator, first)
    assert accumulator.ready(NOW)[0] == [1]


def test_a_batch_without_memory_to_grow_waits_for_what_is_under_way() -> None:
    """It takes more records once memory is free, instead of being sent half filled."""
    accumulator = make_accumulator(linger_ms=1000, batch_size=65536, buffer_memory=40_000)
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, bytes(12_000), partition=0, now_ms=NOW)
    accumulator.close_all()
    (first,) = drain(accumulator, now_ms=NOW)
    put(accumulator, topic, bytes(1000), partition=1, now_ms=NOW)
    assert accumulator.append(topic, 1, None, bytes(30_000), None, NOW, NOW) is None
    assert accumulator.ready(NOW)[0] == []
    end(accumulator, first)
    put(accumulator, topic, bytes(30_000), partition=1, now_ms=NOW)
    accumulator.close_all()
    assert [batch.record_count for batch in drain(accumulator, now_ms=NOW)] == [2]


def test_a_batch_without_memory_to_grow_goes_if_nothing_is_under_way() -> None:
    """Nothing else would free memory before its linger ends."""
    accumulator = make_accumulator(linger_ms=1000, batch_size=65536, buffer_memory=40_000)
    topic = add_topic(accumulator)
    put(accumulator, topic, bytes(4000), now_ms=NOW)
    assert accumulator.append(topic, 0, None, bytes(38_000), None, NOW, NOW) is None
    assert accumulator.ready(NOW)[0] == [1]


def test_a_batch_that_gets_no_memory_at_all_is_none() -> None:
    """It was never queued, so that closing it would count one that is open for closed, and leave it to linger."""
    accumulator = make_accumulator(linger_ms=1000, batch_size=65536, buffer_memory=40_000)
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, bytes(4000), partition=0, now_ms=NOW)
    assert accumulator.append(topic, 1, None, bytes(38_000), None, NOW, NOW) is None
    accumulator.close_all()
    assert [batch.partition for batch in drain(accumulator, now_ms=NOW)] == [0]


def test_memory_short_waits_no_longer_than_a_moment() -> None:
    """Batches in flight may be at a broker that hangs: the others get their batches nevertheless."""
    accumulator = make_accumulator(linger_ms=10_000)
    topic = add_topic(accumulator, leaders=[1, 2])
    put(accumulator, topic, partition=0, now_ms=NOW)
    accumulator.close_all()
    drain(accumulator, now_ms=NOW)
    put(accumulator, topic, partition=1, now_ms=NOW)
    assert accumulator.ready(NOW) == ([], NOW + 10_000)
    accumulator.memory_short = True
    assert accumulator.ready(NOW + 1) == ([], NOW + 50)
    assert accumulator.ready(NOW + 50)[0] == [2]


def test_a_batch_without_memory_to_grow_goes_after_a_moment() -> None:
    """The same if no call waits, and the program just retries."""
    accumulator = make_accumulator(linger_ms=10_000, batch_size=65536, buffer_memory=40_000)
    topic = add_topic(accumulator, leaders=[1, 2])
    put(accumulator, topic, bytes(12_000), partition=0, now_ms=NOW)
    accumulator.close_all()
    drain(accumulator, now_ms=NOW)
    put(accumulator, topic, bytes(1000), partition=1, now_ms=NOW)
    for later, nodes in (49, []), (50, [2]):
        assert accumulator.append(topic, 1, None, bytes(30_000), None, NOW, NOW + later) is None
        assert accumulator.ready(NOW + later)[0] == nodes


@pytest.mark.parametrize("failing", range(40))
def test_memory_that_runs_out_during_an_append(failing: int) -> None:
    """At whichever allocation: the buffer goes on with the next record."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator)
    with suppress(MemoryError):
        without_allocation(failing, lambda: accumulator.append(topic, 0, None, b"first", None, NOW, NOW))
    put(accumulator, topic, b"second")
    batches = drain_all(accumulator)
    values = [record.value for batch in batches for record in read(batch)]
    assert values in ([b"first", b"second"], [b"second"])
    for batch in batches:
        end(accumulator, batch)
    assert not accumulator.has_live_batches()


def test_close_all() -> None:
    """A flush makes every open batch ready, for all brokers at once."""
    accumulator = make_accumulator(linger_ms=1000)
    topic = add_topic(accumulator, leaders=[1, 2, -1])
    for partition in range(3):
        put(accumulator, topic, partition=partition)
    accumulator.close_all()
    assert accumulator.ready(NOW)[0] == [1, 2, -1]


# --- ready: what send() asks for --------------------------------------------------------------------------------------


def test_awaited_cuts_linger() -> None:
    """A batch with a record of send() is sent in the next pass if its broker has no request to answer."""
    accumulator = make_accumulator(linger_ms=1000)
    topic = add_topic(accumulator)
    put(accumulator, topic, now_ms=NOW)
    put(accumulator, topic, now_ms=NOW, awaited=True)
    put(accumulator, topic, now_ms=NOW)
    assert accumulator.ready(NOW)[0] == [1]
    (batch,) = drain(accumulator, now_ms=NOW)
    assert batch.record_count == 3


def test_awaited_waits_for_a_busy_broker() -> None:
    """While its broker has a request to answer, the batch takes more records; the answer, or linger, ends that."""
    accumulator = make_accumulator(linger_ms=1000)
    topic = add_topic(accumulator, leaders=[1, 2])
    put(accumulator, topic, now_ms=NOW, awaited=True, partition=0)
    put(accumulator, topic, now_ms=NOW, awaited=True, partition=1)
    assert accumulator.ready(NOW, {1: 1})[0] == [2]
    assert accumulator.ready(NOW + 999, {1: 1})[0] == [2]
    put(accumulator, topic, now_ms=NOW + 999, awaited=True, partition=0)
    assert accumulator.ready(NOW + 999, {})[0] == [2, 1]
    assert [batch.record_count for batch in drain(accumulator, 1, now_ms=NOW + 999)] == [2]


def test_awaited_batch_lingers_no_longer_than_others() -> None:
    """A busy broker does not delay it beyond linger."""
    accumulator = make_accumulator(linger_ms=5)
    put(accumulator, add_topic(accumulator), now_ms=NOW, awaited=True)
    assert accumulator.ready(NOW + 4, {1: 1})[0] == []
    assert accumulator.ready(NOW + 5, {1: 1})[0] == [1]


def test_awaited_batch_that_is_full() -> None:
    """A full batch does not need linger cut, and is not closed twice."""
    accumulator = make_accumulator(batch_size=200, linger_ms=1000)
    topic = add_topic(accumulator)
    put(accumulator, topic, bytes(100), awaited=True)
    put(accumulator, topic, bytes(100))
    assert accumulator.ready(0, {1: 1})[0] == [1]
    assert [batch.record_count for batch in drain(accumulator)] == [1]
    assert accumulator.ready(0)[0] == []


# --- waking the sender ------------------------------------------------------------------------------------------------


class Wakes:
    def __init__(self, accumulator: RecordAccumulator) -> None:
        self.count = 0
        accumulator.on_wake = self.wake

    def wake(self) -> None:
        self.count += 1


def test_wakes_once_until_ready() -> None:
    """The sender is woken by the first open batch, then not again before it has called ready()."""
    accumulator = make_accumulator(batch_size=200)
    wakes = Wakes(accumulator)
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, bytes(100))
    put(accumulator, topic, bytes(100))
    put(accumulator, topic, bytes(100), partition=1, awaited=True)
    assert wakes.count == 1
    accumulator.ready(0)
    assert wakes.count == 1, "it is looking"
    assert len(drain(accumulator)) == 2
    put(accumulator, topic, b"", partition=1)
    assert wakes.count == 1, "it knows the deadline"
    put(accumulator, topic, bytes(100))
    assert wakes.count == 2, "a full batch"
    accumulator.ready(0)
    assert accumulator.ready(1_000)[0] == [1]
    assert wakes.count == 2, "lingers end while it is looking"


def test_wakes_for_the_first_that_lingers_after_one_that_lingered_too_long() -> None:
    """A batch that was past its linger when it closed did not count as lingering any more."""
    accumulator, topic = behind_another()
    drain(accumulator, now_ms=60)
    (second,) = drain(accumulator, now_ms=60)
    assert second.record_count == 1
    accumulator.ready(60)
    wakes = Wakes(accumulator)
    put(accumulator, topic, b"third", now_ms=60)
    assert wakes.count == 1


def test_linger_ends_behind_a_batch_that_ended_unseen() -> None:
    """The oldest batch may be closed, sent and acknowledged before the sender looks at lingers again."""
    accumulator = make_accumulator(linger_ms=5)
    topic = add_topic(accumulator)
    put(accumulator, topic)
    (first,) = drain_all(accumulator)
    put(accumulator, topic)
    end(accumulator, first)
    assert accumulator.ready(0)[1] == 5
    assert accumulator.ready(5)[0] == [1]


def test_wakes_for_send() -> None:
    """A record of send() wakes it even if its batch has been open for a while."""
    accumulator = make_accumulator(linger_ms=1000)
    wakes = Wakes(accumulator)
    topic = add_topic(accumulator)
    put(accumulator, topic)
    accumulator.ready(0)
    put(accumulator, topic, awaited=True)
    put(accumulator, topic, awaited=True)
    assert wakes.count == 2


@pytest.mark.parametrize("how", ["requeue", "back off", "new leader", "sealed", "unmute"])
def test_wakes_for_what_comes_back(how: str) -> None:
    """Whatever makes a batch ready, or sets an earlier deadline, wakes it."""
    accumulator = make_accumulator(compresses=how == "sealed", mutes=how == "unmute")
    topic = add_topic(accumulator, leaders=[-1 if how == "new leader" else 1])
    put(accumulator, topic)
    accumulator.close_all()
    batches, unsealed = accumulator.drain(1, UNLIMITED, NOW, lambda _: True, 0)
    if how == "unmute":
        put(accumulator, topic)
        accumulator.close_all()
    accumulator.ready(NOW)
    wakes = Wakes(accumulator)
    if how == "requeue":
        accumulator.requeue(batches[0], NOW, NOW)
    elif how == "back off":
        accumulator.requeue(batches[0], NOW, NOW + 10)
    elif how == "new leader":
        accumulator.update_topic("orders", TOPIC_ID, [(1, 0)])
    elif how == "sealed":
        accumulator.sealed(unsealed[0], None, 0)
    else:
        end(accumulator, batches[0])
    assert wakes.count == 1


# --- drain ------------------------------------------------------------------------------------------------------------


def test_one_batch_a_partition() -> None:
    """A request holds at most one batch per partition; the next one is in the next request."""
    accumulator = make_accumulator(batch_size=200)
    topic = add_topic(accumulator, leaders=[1, 1])
    for _ in range(3):
        put(accumulator, topic, bytes(100), partition=0)
        put(accumulator, topic, bytes(100), partition=1)
    accumulator.close_all()
    rounds = [drain(accumulator) for _ in range(4)]
    assert [[batch.partition for batch in batches] for batches in rounds] == [[0, 1], [0, 1], [0, 1], []]
    assert [numbers(batches) for batches in rounds] == [[1, 2], [3, 4], [5, 6], []]
    assert accumulator.in_flight_batches == 6


def test_request_is_bounded() -> None:
    """A request ends before the batch that would make it too large; the remaining ones come first the next time."""
    accumulator = make_accumulator(batch_size=300)
    topic = add_topic(accumulator, leaders=[1] * 4)
    for partition in range(4):
        put(accumulator, topic, bytes(100), partition=partition)
    accumulator.close_all()
    two = topic.frame_bytes + 2 * (10 + 61 + 109)
    assert [batch.partition for batch in drain(accumulator, max_bytes=two)] == [0, 1]
    assert [batch.partition for batch in drain(accumulator, max_bytes=two - 1)] == [2]
    assert [batch.partition for batch in drain(accumulator, max_bytes=1)] == [3], "the first goes at any size"
    assert accumulator.ready(NOW)[0] == []


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_no_frame_is_larger_than_max_request_size(version: int, compression: str) -> None:
    """Everything around the batches counts, and growth of random data in compression; yet little space is unused."""
    rng = random.Random(version)
    client_id = rng.choice([None, b"", b"client" * 20])
    accumulator = make_accumulator(batch_size=300, compresses=compression != "none")
    for number in range(60):
        name = f"t{number}-" + "x" * rng.choice([1, 120, 240])
        topic = add_topic(accumulator, name, leaders=[1] * rng.choice([1, 9, 300]))
        for partition in range(topic.partitions):
            put(accumulator, topic, rng.randbytes(rng.choice([0, 100, 500])), partition=partition)
    accumulator.close_all()
    frames = []
    while batches := drain(accumulator, max_bytes=20_000 - fixed_bytes(client_id, b"id")):
        for batch in batches:
            if compression != "none":
                batch.seal(codec(compression).compress(b"".join(batch.payload())), codec(compression).attribute)
        frames.append(sum(map(len, encode_produce_request(version, 1, client_id, b"id", -1, 1, batches))))
    assert len(frames) > 30
    assert max(frames) <= 20_000
    assert sum(frames) / len(frames) > 14_000


def test_partitions_take_turns() -> None:
    """A partition that always has batches is not served twice before another one is served once."""
    accumulator = make_accumulator(batch_size=200)
    topic = add_topic(accumulator, leaders=[1] * 3)
    for _ in range(4):
        for partition in range(3):
            put(accumulator, topic, bytes(100), partition=partition)
    accumulator.close_all()
    served = [drain(accumulator, max_bytes=1)[0].partition for _ in range(12)]
    assert [sorted(served[at : at + 3]) for at in range(0, 12, 3)] == [[0, 1, 2]] * 4


def test_refused_batches_stay() -> None:
    """Batches that may not be sent yet stay ready, in order, and don't block other partitions."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=[1, 1, 1])
    for partition in range(3):
        put(accumulator, topic, partition=partition)
    accumulator.close_all()
    batches, _ = accumulator.drain(1, UNLIMITED, NOW, lambda batch: batch.partition != 1, 0)
    assert [batch.partition for batch in batches] == [0, 2]
    assert accumulator.ready(NOW)[0] == [1]
    assert [batch.partition for batch in drain(accumulator)] == [1]


def test_drain_of_an_unknown_broker() -> None:
    """It has no batches."""
    assert drain(make_accumulator(), 99) == []


def test_a_partition_without_sequences_sends_one_batch_at_a_time() -> None:
    """With one request in flight per connection and no sequences, a partition sends one batch at a time."""
    accumulator = make_accumulator(batch_size=200, mutes=True)
    topic = add_topic(accumulator, leaders=[1, 1])
    for _ in range(2):
        put(accumulator, topic, bytes(100), partition=0)
    put(accumulator, topic, bytes(100), partition=1)
    accumulator.close_all()
    first, other = drain(accumulator)
    assert first.queue.muted
    assert drain(accumulator) == []
    accumulator.requeue(first, NOW, NOW)
    assert not first.queue.muted
    assert drain(accumulator) == [first], "the one that failed goes before the one behind it"
    end(accumulator, first)
    (second,) = drain(accumulator)
    assert second.serial == 2
    fail(accumulator, second)
    end(accumulator, other)
    assert not second.queue.muted


# --- sealing ----------------------------------------------------------------------------------------------------------


def sealing(accumulator: RecordAccumulator, *, inline_limit: int = 0) -> list[ProducerBatch]:
    accumulator.close_all()
    batches, unsealed = accumulator.drain(1, UNLIMITED, NOW, lambda _: True, inline_limit)
    assert not batches
    return unsealed


def test_large_batch_is_given_out_to_be_compressed() -> None:
    """A batch above the inline limit is given to a worker, and is sent once it comes back."""
    accumulator = make_accumulator(compresses=True)
    put(accumulator, add_topic(accumulator), bytes(1000))
    (batch,) = sealing(accumulator)
    assert not batch.sealed
    assert accumulator.ready(NOW)[0] == []
    plain = bytes(batch.contents())
    accumulator.sealed(batch, codec("zstd").compress(plain), codec("zstd").attribute)
    assert batch.sealed
    assert accumulator.ready(NOW)[0] == [1]
    assert drain(accumulator, now_ms=NOW) == [batch]
    told = reference.decoded(batch_bytes(batch))
    assert told.attributes == 4
    assert codec("zstd").decompress(told.section, 2000) == plain


def test_small_batches_share_the_inline_limit() -> None:
    """The limit is for what the loop compresses per request, not per batch."""
    accumulator = make_accumulator(compresses=True)
    topic = add_topic(accumulator, leaders=[1] * 3)
    for partition in range(3):
        put(accumulator, topic, bytes(1000), partition=partition)
    accumulator.close_all()
    batches, unsealed = accumulator.drain(1, UNLIMITED, NOW, lambda _: True, 2500)
    assert ([batch.partition for batch in batches], [batch.partition for batch in unsealed]) == ([0, 1], [2])


def test_nothing_overtakes_a_batch_in_the_worker() -> None:
    """The next batch of its partition waits, even if it needs no worker; other partitions don't."""
    accumulator = make_accumulator(batch_size=2000, compresses=True)
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, bytes(1900))
    put(accumulator, topic, bytes(200))
    (large,) = sealing(accumulator, inline_limit=500)
    put(accumulator, topic, bytes(10), partition=1)
    accumulator.close_all()
    batches, _ = accumulator.drain(1, UNLIMITED, NOW, lambda _: True, 500)
    assert [batch.partition for batch in batches] == [1]
    accumulator.sealed(large, None, 0)
    assert drain(accumulator, now_ms=NOW) == [large]
    assert numbers(drain(accumulator, now_ms=NOW)) == [2]


def test_compression_that_does_not_pay() -> None:
    """A batch that would grow is sent uncompressed, and later batches of the topic are filled accordingly."""
    accumulator = make_accumulator(compresses=True)
    put(accumulator, add_topic(accumulator), b"x" * 20)
    (batch,) = sealing(accumulator)
    accumulator.sealed(batch, b"y" * 1000, 1)
    assert (batch.sealed, batch.compressed, batch.attributes) == (True, None, 0)
    assert reference.decoded(batch_bytes(batch)).attributes == 0


def test_no_more_is_compressed_ahead_than_two_requests() -> None:
    """For a broker that accepts nothing, not everything is compressed."""
    accumulator = make_accumulator(batch_size=1000, compresses=True, max_request_size=1000)
    topic = add_topic(accumulator, leaders=[1] * 10)
    for partition in range(10):
        put(accumulator, topic, bytes(900), partition=partition)
    ahead = sealing(accumulator)
    assert len(ahead) == 3
    assert accumulator.take_unsealed(1, NOW, lambda _: True, 0) == []
    for batch in ahead:
        accumulator.sealed(batch, b"small", 1)
    ahead = accumulator.take_unsealed(1, NOW, lambda _: True, 0)
    assert len(ahead) == 2
    for batch in ahead:
        accumulator.sealed(batch, bytes(900), 1)
    assert sealing_goes_on(accumulator) == (5, 0)
    assert sealing_goes_on(accumulator) == (0, 3)


def sealing_goes_on(accumulator: RecordAccumulator) -> tuple[int, int]:
    batches, unsealed = accumulator.drain(1, UNLIMITED, NOW, lambda _: True, 0)
    return len(batches), len(unsealed)


def test_leader_moves_while_sealing() -> None:
    """A batch that comes back from the worker goes to the leader of that time."""
    accumulator = make_accumulator(compresses=True)
    put(accumulator, add_topic(accumulator), bytes(1000))
    (batch,) = sealing(accumulator)
    accumulator.update_topic("orders", TOPIC_ID, [(2, 1)])
    accumulator.sealed(batch, b"small", 1)
    assert accumulator.ready(NOW)[0] == [2]
    assert drain(accumulator, 2, now_ms=NOW) == [batch]


def test_sealed_batches_that_move_take_no_place_at_their_former_broker() -> None:
    accumulator = make_accumulator(compresses=True, batch_size=1 << 19, max_request_size=1 << 19)
    topic = add_topic(accumulator, leaders=[1] * 4)
    for partition in range(4):
        put(accumulator, topic, bytes(500_000), partition=partition)
    ahead = sealing(accumulator)
    for batch in ahead:
        accumulator.sealed(batch, bytes(490_000), 3)
    waiting = {*range(4)} - {batch.partition for batch in ahead}
    assert waiting
    leaders = [(1 if partition in waiting else 2, 1) for partition in range(4)]
    accumulator.update_topic("orders", TOPIC_ID, leaders)
    assert {batch.partition for batch in sealing(accumulator)} == waiting
    moved = [batch for _ in ahead for batch in accumulator.drain(2, 1 << 19, 0, lambda _: True, 0)[0]]
    assert moved == ahead


def test_what_may_not_be_sent_is_not_sealed_ahead() -> None:
    """It would take the place of batches that may be sent, for as long as another broker's answer takes."""
    accumulator = make_accumulator(compresses=True, batch_size=1 << 19, max_request_size=1 << 19)
    topic = add_topic(accumulator, leaders=[1] * 4)
    for partition in range(4):
        put(accumulator, topic, bytes(500_000), partition=partition)
    accumulator.close_all()
    batches, unsealed = accumulator.drain(1, 1 << 20, 0, lambda batch: batch.partition == 3, 0)
    assert (batches, [batch.partition for batch in unsealed]) == ([], [3])


def test_what_is_compressed_ahead_keeps_the_order_of_the_rest() -> None:
    """What may not go yet, is compressed already, or is left to the loop stays where it was."""
    accumulator = make_accumulator(compresses=True)
    topic = add_topic(accumulator, leaders=[1] * 5)
    for partition in range(5):
        put(accumulator, topic, bytes(1000 if partition in (1, 3, 4) else 100), partition=partition)
    accumulator.close_all()
    (first,) = accumulator.take_unsealed(1, NOW, lambda batch: batch.partition == 3, 500)
    assert (first.partition, accumulator.take_unsealed(1, NOW, lambda _: False, 500)) == (3, [])
    accumulator.sealed(first, b"small", 1)
    ahead = accumulator.take_unsealed(1, NOW, lambda _: True, 500)
    assert [batch.partition for batch in ahead] == [1, 4]
    assert [batch.partition for batch in drain(accumulator, now_ms=NOW)] == [0, 2, 3]
    for batch in ahead:
        accumulator.sealed(batch, b"small", 1)
    assert [batch.partition for batch in drain(accumulator, now_ms=NOW)] == [1, 4]


def test_few_partitions_are_looked_at_to_compress_ahead() -> None:
    """That happens whenever the sender wakes; with thousands of small batches it would take as long as sending them."""
    accumulator = make_accumulator(compresses=True)
    topic = add_topic(accumulator, leaders=[1] * 1000)
    for partition in range(1000):
        put(accumulator, topic, bytes(100), partition=partition)
    accumulator.close_all()
    asked: list[int] = []

    def may_send(batch: ProducerBatch) -> bool:
        asked.append(batch.partition)
        return False

    for _ in range(2):
        assert accumulator.take_unsealed(1, NOW, may_send, 0) == []
    assert asked == [*range(64)] * 2


def test_release_while_sealing() -> None:
    """A batch that expires in the worker fails at once; its memory returns when the worker is done with it."""
    accumulator = make_accumulator(compresses=True, delivery_timeout_ms=100)
    delivery = put(accumulator, add_topic(accumulator), bytes(1000), now_ms=0)
    accumulator.close_all()
    _, (batch,) = accumulator.drain(1, UNLIMITED, 0, lambda _: True, 0)
    contents = batch.contents()
    assert accumulator.expire(100) == [batch]
    fail(accumulator, batch)
    assert delivery.done()
    assert accumulator.has_live_batches()
    assert accumulator.pool.used_bytes == 2048
    assert len(contents) > 1000
    del contents
    accumulator.sealed(batch, b"small", 1)
    assert not accumulator.has_live_batches()
    assert accumulator.pool.used_bytes == 0
    assert accumulator.ready(100) == ([], -1)


def test_expire_after_sealing() -> None:
    """The same for a batch that was sealed but could not be sent; there is no worker left to wait for."""
    accumulator = make_accumulator(compresses=True, delivery_timeout_ms=100, max_request_size=1000)
    topic = add_topic(accumulator, leaders=[1, 1, 1])
    for round_ms in 0, 1000, 2000:  # the count of what is being compressed for the broker is right afterwards, too
        for partition in range(3):
            put(accumulator, topic, bytes(900), partition=partition, now_ms=round_ms)
        accumulator.close_all()
        _, batches = accumulator.drain(1, UNLIMITED, round_ms, lambda _: True, 0)
        assert len(batches) == 3
        for batch in batches:
            accumulator.sealed(batch, None, 0)
        assert accumulator.expire(round_ms + 100) == batches
        for batch in batches:
            fail(accumulator, batch)
        assert not accumulator.has_live_batches()
        assert accumulator.pool.used_bytes == 0


# --- back to the queue ------------------------------------------------------------------------------------------------


def many(accumulator: RecordAccumulator, count: int) -> list[ProducerBatch]:
    """That many batches of one partition, in flight."""
    topic = accumulator.topic("orders") or add_topic(accumulator)
    for _ in range(count):
        put(accumulator, topic)
        accumulator.close_all()
    return [drain(accumulator)[0] for _ in range(count)]


@settings(max_examples=40)
@given(st.permutations(range(6)), st.integers(0, 5))
def test_order_of_creation_survives_retries(order: list[int], waiting: int) -> None:
    """In whatever order batches are requeued, and however many wait, they are sent in the order of creation."""
    accumulator = make_accumulator()
    batches = many(accumulator, 6)
    topic = accumulator.topic("orders")
    assert topic is not None
    for _ in range(waiting):
        put(accumulator, topic)
        accumulator.close_all()
    for at in order:
        accumulator.requeue(batches[at], 0, 0)
    assert numbers(drain_all(accumulator)) == list(range(1, 7 + waiting))


def test_back_off() -> None:
    """A requeued batch is ready when its back-off ends; batches behind it wait, too."""
    accumulator = make_accumulator(linger_ms=0)
    (batch,) = many(accumulator, 1)
    put(accumulator, batch.queue.topic, now_ms=NOW)
    accumulator.requeue(batch, NOW, NOW + 100)
    assert not batch.in_flight
    assert accumulator.in_flight_batches == 0
    assert accumulator.ready(NOW) == ([], NOW + 100)
    assert accumulator.ready(NOW + 99) == ([], NOW + 100)
    assert drain(accumulator, now_ms=NOW + 99) == []
    assert accumulator.ready(NOW + 100)[0] == [1]
    assert numbers(drain_all(accumulator, now_ms=NOW + 100)) == [1, 2]


def test_back_offs_end_in_their_order() -> None:
    """The earliest end of a back-off is the next deadline."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=[1, 1, 1])
    for partition in range(3):
        put(accumulator, topic, partition=partition)
    batches = drain_all(accumulator)
    for batch, wait_ms in zip(batches, [30, 10, 20], strict=True):
        accumulator.requeue(batch, NOW, NOW + wait_ms)
    deadlines: list[int] = []
    for _ in range(3):
        deadlines.append(accumulator.ready(deadlines[-1] if deadlines else NOW)[1])
    assert deadlines == [NOW + 10, NOW + 20, NOW + 30]
    accumulator.ready(NOW + 30)
    assert [batch.partition for batch in drain(accumulator, now_ms=NOW + 30)] == [1, 2, 0]


def test_backs_off_again() -> None:
    """A second back-off of the same batch, also up to the same time, replaces the first."""
    accumulator = make_accumulator()
    (batch,) = many(accumulator, 1)
    for _ in range(3):
        accumulator.requeue(batch, NOW, NOW + 50)
        accumulator.update_topic("orders", TOPIC_ID, [(1, batch.queue.leader_epoch + 1)])
        assert drain(accumulator, now_ms=NOW) == [batch]
    accumulator.requeue(batch, NOW, NOW + 80)
    assert accumulator.ready(NOW + 50)[0] == []
    assert accumulator.ready(NOW + 80)[0] == [1]


def test_stale_back_off_of_an_ended_batch() -> None:
    """The end of a back-off does nothing to a batch that ended meanwhile."""
    accumulator = make_accumulator(delivery_timeout_ms=20)
    (batch,) = many(accumulator, 1)
    accumulator.requeue(batch, 10, 100)
    assert accumulator.expire(20) == [batch]
    fail(accumulator, batch)
    assert accumulator.ready(100) == ([], -1)


# --- leaders ----------------------------------------------------------------------------------------------------------


def test_leader_moves() -> None:
    """Ready batches move to the new leader, to the end of its queue."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=[1, 2])
    put(accumulator, topic, partition=0)
    put(accumulator, topic, partition=1)
    accumulator.close_all()
    accumulator.update_topic("orders", TOPIC_ID, [(2, 1), (2, 0)])
    assert accumulator.ready(0)[0] == [2]
    assert [batch.partition for batch in drain(accumulator, 2)] == [1, 0]
    assert drain(accumulator, 1) == []


def test_open_batch_moves_too() -> None:
    """An open batch goes to the partition's leader at the time when it closes."""
    accumulator = make_accumulator()
    put(accumulator, add_topic(accumulator))
    accumulator.update_topic("orders", TOPIC_ID, [(7, 1)])
    accumulator.close_all()
    assert accumulator.ready(0)[0] == [7]


def test_no_leader() -> None:
    """Without a leader a batch is ready at node -1, which causes a metadata request; a new leader takes it over."""
    accumulator = make_accumulator()
    put(accumulator, add_topic(accumulator))
    accumulator.close_all()
    accumulator.update_topic("orders", TOPIC_ID, [(-1, 1)])
    assert accumulator.ready(0)[0] == [-1]
    accumulator.update_topic("orders", TOPIC_ID, [(3, 2)])
    assert accumulator.ready(0)[0] == [3]


@pytest.mark.parametrize(("leader", "epoch", "goes"), [(2, 1, True), (1, 1, True), (2, 0, False), (1, 0, False)])
def test_newer_leader_ends_a_back_off(leader: int, epoch: int, goes: bool) -> None:
    """A batch that backs off is ready at once if the leader epoch rose, otherwise after its back-off (KIP-951)."""
    accumulator = make_accumulator()
    (batch,) = many(accumulator, 1)
    accumulator.requeue(batch, NOW, NOW + 100)
    accumulator.update_topic("orders", TOPIC_ID, [(leader, epoch)])
    assert accumulator.ready(NOW)[0] == ([leader] if goes else [])
    assert drain(accumulator, leader, now_ms=NOW) == ([batch] if goes else [])
    if not goes:
        assert accumulator.ready(NOW + 100)[0] == [leader]


def test_newer_leader_ends_the_back_off_of_all() -> None:
    """Including those behind the first: none of them has been refused by the new leader."""
    accumulator = make_accumulator()
    batches = many(accumulator, 3)
    for batch in batches:
        accumulator.requeue(batch, NOW, NOW + 100)
    accumulator.update_topic("orders", TOPIC_ID, [(2, 1)])
    went = []
    while drained := drain(accumulator, 2, now_ms=NOW):
        went += drained
    assert went == batches


def test_no_back_off_for_what_went_to_a_former_leader() -> None:
    """It was known that the leader had moved before the former one answered."""
    accumulator = make_accumulator()
    (batch,) = many(accumulator, 1)
    accumulator.update_topic("orders", TOPIC_ID, [(2, 1)])
    accumulator.requeue(batch, NOW, NOW + 100)
    assert drain(accumulator, 2, now_ms=NOW) == [batch]
    accumulator.requeue(batch, NOW, NOW + 100)
    assert drain(accumulator, 2, now_ms=NOW) == []


def test_leader_moves_while_in_flight() -> None:
    """A batch that comes back goes to the new leader."""
    accumulator = make_accumulator()
    (batch,) = many(accumulator, 1)
    accumulator.update_topic("orders", TOPIC_ID, [(2, 1)])
    accumulator.requeue(batch, NOW, NOW)
    assert accumulator.ready(NOW)[0] == [2]


def test_more_partitions() -> None:
    """New partitions are used once they are known; existing batches stay where they are."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator)
    put(accumulator, topic)
    assert topic.partitions == 1
    accumulator.update_topic("orders", TOPIC_ID, [(1, 0), (2, 0)])
    assert topic.partitions == 2
    put(accumulator, topic, partition=1)
    assert [batch.partition for batch in drain_all(accumulator, 1) + drain_all(accumulator, 2)] == [0, 1]


def test_fewer_partitions() -> None:
    """If a topic is recreated with fewer partitions, the batches of the others have no leader."""
    accumulator = make_accumulator(delivery_timeout_ms=100)
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, partition=1)
    accumulator.close_all()
    put(accumulator, topic, key=b"key", partition=-1)
    accumulator.update_topic("orders", bytes(16), [(1, 0)])
    assert topic.partitions == 1
    accumulator.close_all()
    assert drain(accumulator, 1) == []
    assert accumulator.ready(0)[0] == [-1]
    put(accumulator, topic, key=b"key", partition=-1)
    (batch,) = drain_all(accumulator, 1)
    assert batch.partition == 0
    assert {batch.partition for batch in accumulator.expire(100)} == {0, 1}


def test_fewer_partitions_and_more_again() -> None:
    """They get their leaders back when the topic grows again."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, partition=1)
    accumulator.close_all()
    accumulator.update_topic("orders", TOPIC_ID, [(1, 0)])
    accumulator.update_topic("orders", TOPIC_ID, [(1, 0), (2, 0)])
    assert accumulator.ready(0)[0] == [2]
    (batch,) = drain(accumulator, 2)
    assert batch.partition == 1


def test_topic_id_is_the_latest() -> None:
    """A batch is sent with the topic's current id."""
    accumulator = make_accumulator()
    (batch,) = many(accumulator, 1)
    assert batch.topic_id == TOPIC_ID
    accumulator.update_topic("orders", b"another id 16 by", [(1, 0)])
    assert batch.topic_id == b"another id 16 by"


def test_forget_topic() -> None:
    """A topic is forgotten only if it has no live batches: open, waiting or in flight."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=[1, 1])
    assert not accumulator.forget_topic("unknown")
    put(accumulator, topic, partition=1)
    assert not accumulator.forget_topic("orders"), "open"
    accumulator.close_all()
    assert not accumulator.forget_topic("orders"), "waiting"
    (batch,) = drain(accumulator)
    assert not accumulator.forget_topic("orders"), "in flight: it may have to be queued again"
    end(accumulator, batch)
    assert accumulator.forget_topic("orders")
    assert accumulator.topic("orders") is None
    assert add_topic(accumulator) is not topic


# --- expiry -----------------------------------------------------------------------------------------------------------


def test_expires_open_batch() -> None:
    """An open batch expires, and the next record opens another."""
    accumulator = make_accumulator(linger_ms=1000, delivery_timeout_ms=100)
    topic = add_topic(accumulator)
    put(accumulator, topic, now_ms=NOW)
    assert accumulator.expire(NOW + 99) == []
    (batch,) = accumulator.expire(NOW + 100)
    assert batch.ended
    assert batch.failed_early
    assert accumulator.expire(NOW + 100) == []
    fail(accumulator, batch)
    put(accumulator, topic, now_ms=NOW + 100)
    (other,) = drain_all(accumulator, now_ms=NOW + 100)
    assert other.serial == 2


def test_expires_waiting_batch() -> None:
    """A waiting batch expires; the one behind it is then ready."""
    accumulator = make_accumulator(delivery_timeout_ms=100)
    topic = add_topic(accumulator)
    for now_ms in NOW, NOW + 50:
        put(accumulator, topic, now_ms=now_ms)
        accumulator.close_all()
    (batch,) = accumulator.expire(NOW + 100)
    fail(accumulator, batch)
    assert accumulator.ready(NOW + 100)[0] == [1]
    assert numbers(drain(accumulator, now_ms=NOW + 100)) == [2]


def test_expires_backing_off_batch() -> None:
    """A batch that backs off does not outlive its time."""
    accumulator = make_accumulator(delivery_timeout_ms=100)
    topic = add_topic(accumulator)
    put(accumulator, topic, now_ms=NOW)
    (batch,) = drain_all(accumulator, now_ms=NOW)
    accumulator.requeue(batch, NOW + 10, NOW + 500)
    put(accumulator, topic, now_ms=NOW + 90)
    accumulator.close_all()
    assert accumulator.expire(NOW + 100) == [batch]
    fail(accumulator, batch)
    assert accumulator.ready(NOW + 100)[0] == [1], "what was behind it goes"


def test_expires_in_flight() -> None:
    """A batch in flight is reported once, and keeps its memory until its request has ended."""
    accumulator = make_accumulator(delivery_timeout_ms=100)
    topic = add_topic(accumulator)
    put(accumulator, topic, now_ms=NOW)
    (batch,) = drain_all(accumulator, now_ms=NOW)
    assert accumulator.expire(NOW + 100) == [batch]
    assert (batch.in_flight, batch.ended, batch.failed_early) == (True, False, True)
    batch.fail(DeliveryTimeoutError("late"), None, False)
    assert accumulator.expire(NOW + 1000) == []
    assert accumulator.pool.used_bytes == 2048
    assert accumulator.oldest_live_serial() == batch.serial
    assert accumulator.live_record_count(UNLIMITED) == 0
    assert accumulator.take_all() == []
    accumulator.release(batch)
    assert accumulator.pool.used_bytes == 0
    assert accumulator.in_flight_batches == 0


def test_expires_oldest_first() -> None:
    """All batches that are too old are returned, oldest first, over all partitions."""
    accumulator = make_accumulator(delivery_timeout_ms=100)
    topic = add_topic(accumulator, leaders=[1, 2, 3])
    for partition in 2, 0, 1:
        put(accumulator, topic, partition=partition, now_ms=NOW + partition)
    # Time advances with each call; the first record of partition 2 came at NOW + 2.
    assert [batch.partition for batch in accumulator.expire(NOW + 102)] == [2, 0, 1]


@pytest.mark.parametrize("late_ms", [LATE_MS, 60_000])
def test_what_expires_while_the_loop_is_held_up_gets_a_moment(late_ms: int) -> None:
    """Once: also if the loop is held up again."""
    accumulator = make_accumulator(delivery_timeout_ms=100)
    topic = add_topic(accumulator)
    put(accumulator, topic, now_ms=NOW)
    (batch,) = drain_all(accumulator, now_ms=NOW)
    held_ms = NOW + 100 + late_ms
    assert accumulator.expire(held_ms) == []
    assert accumulator.ready(held_ms) == ([], held_ms + LATE_MS)
    assert accumulator.expire(held_ms + LATE_MS - 1) == []
    assert accumulator.expire(held_ms + LATE_MS) == [batch]

    put(accumulator, topic, now_ms=held_ms + 200)
    accumulator.close_all()
    assert accumulator.expire(held_ms + 200 + 100 + late_ms) == [], "the next one gets its own"
    assert len(accumulator.expire(held_ms + 10 * late_ms + 1_000)) == 1


def test_who_is_a_little_late_gets_no_moment() -> None:
    accumulator = make_accumulator(delivery_timeout_ms=100)
    topic = add_topic(accumulator)
    put(accumulator, topic, now_ms=NOW)
    assert len(accumulator.expire(NOW + 100 + LATE_MS - 1)) == 1


def test_a_moment_ends_with_what_it_was_for() -> None:
    """The answer was there; the next batch is held up by another block."""
    accumulator = make_accumulator(delivery_timeout_ms=100)
    topic = add_topic(accumulator)
    put(accumulator, topic, now_ms=NOW)
    (batch,) = drain_all(accumulator, now_ms=NOW)
    assert accumulator.expire(NOW + 1_000) == []
    end(accumulator, batch)
    put(accumulator, topic, now_ms=NOW + 1_001)
    assert accumulator.expire(NOW + 1_002) == []
    assert accumulator.expire(NOW + 2_000) == []
    assert len(accumulator.expire(NOW + 2_000 + LATE_MS)) == 1


def test_take_all() -> None:
    """All live batches are returned, in whatever state they are."""
    accumulator = make_accumulator(compresses=True, batch_size=1000)
    topic = add_topic(accumulator, leaders=[1] * 4)
    put(accumulator, topic, partition=0)
    assert len(drain_all(accumulator)) == 1
    put(accumulator, topic, bytes(900), partition=1)
    (in_worker,) = sealing(accumulator)
    put(accumulator, topic, partition=2)
    (backing_off,) = drain_all(accumulator)
    backing_off.in_doubt = True
    accumulator.requeue(backing_off, NOW, NOW + 100)
    put(accumulator, topic, partition=3)
    taken = accumulator.take_all()
    assert [batch.partition for batch in taken] == [0, 1, 2, 3]
    assert [batch.in_flight for batch in taken] == [True, False, False, False]
    for batch in taken:
        fail(accumulator, batch)
    assert accumulator.oldest_live_serial() == in_worker.serial, "the worker still reads it"
    accumulator.sealed(in_worker, b"", 1)
    assert not accumulator.has_live_batches()
    assert accumulator.pool.used_bytes == 0
    assert accumulator.ready(UNLIMITED) == ([], -1)


@pytest.mark.parametrize("also_in_doubt", [False, True])
def test_take_unsent(also_in_doubt: bool) -> None:
    """What is in flight stays, and goes on as before; what may be in the log already stays unless it is asked for."""
    accumulator = make_accumulator(compresses=True, batch_size=1000)
    topic = add_topic(accumulator, leaders=[1] * 4)
    put(accumulator, topic, partition=0)
    (in_flight,) = drain_all(accumulator)
    put(accumulator, topic, bytes(900), partition=1)
    (in_worker,) = sealing(accumulator)
    put(accumulator, topic, partition=2)
    (in_doubt,) = drain_all(accumulator)
    in_doubt.in_doubt = True
    accumulator.requeue(in_doubt, NOW, NOW)
    put(accumulator, topic, partition=3)
    taken = accumulator.take_unsent(also_in_doubt)
    assert [batch.partition for batch in taken] == ([1, 2, 3] if also_in_doubt else [1, 3])
    for batch in taken:
        fail(accumulator, batch)
    accumulator.sealed(in_worker, None, 0)
    accumulator.requeue(in_flight, NOW, NOW)
    left = [in_flight] if also_in_doubt else [in_flight, in_doubt]
    assert sorted(drain(accumulator), key=lambda batch: batch.serial) == left
    for batch in left:
        assert batch.in_flight
        end(accumulator, batch)
    assert not accumulator.has_live_batches()


def test_live_records() -> None:
    """What a flush still waits for, up to its last batch."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator)
    for count in 1, 2, 3:
        for _ in range(count):
            put(accumulator, topic)
        accumulator.close_all()
    assert [accumulator.live_record_count(serial) for serial in range(5)] == [0, 1, 3, 6, 6]
    first, second, third = drain_all(accumulator)
    end(accumulator, second)
    assert accumulator.live_record_count(3) == 4
    assert accumulator.oldest_live_serial() == 1
    end(accumulator, first)
    assert accumulator.oldest_live_serial() == 3
    fail(accumulator, third)
    assert accumulator.oldest_live_serial() == -1
    assert accumulator.live_record_count(3) == 0


def test_release_twice() -> None:
    """A batch that is released twice, by the end of its request and of the producer, is released once."""
    accumulator = make_accumulator()
    first, second = many(accumulator, 2)
    end(accumulator, first)
    accumulator.release(first)
    assert accumulator.in_flight_batches == 1
    assert accumulator.pool.used_bytes == 2048
    end(accumulator, second)
    assert accumulator.pool.used_bytes == 0


# --- all together -----------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_random_walk(seed: int) -> None:
    """Through a thousand random steps each record ends exactly once, in order per partition, and memory is freed."""
    rng = random.Random(seed)
    accumulator = make_accumulator(
        seed=seed,
        batch_size=300,
        sticky_size=300,
        buffer_memory=6000,
        delivery_timeout_ms=400,
        max_request_size=2000,
        mutes=True,
    )
    topic = add_topic(accumulator, leaders=[1, 2, 1])
    now_ms, epoch, admitted = 0, 0, 0
    in_flight: dict[int, list[ProducerBatch]] = {1: [], 2: [], 3: []}
    acked: list[tuple[int, int]] = []
    deliveries: list[Delivery] = []
    for _ in range(150):
        step = rng.random()
        now_ms += rng.randrange(10)
        if step < 0.5:
            value = b"%d" % admitted + b"." * rng.choice([0, 50, 250])
            delivery = accumulator.append(topic, rng.choice([-1, 0, 1, 2]), None, value, None, 5, now_ms)
            if delivery is not None:
                deliveries.append(delivery)
                admitted += 1
        elif step < 0.7:
            for node in accumulator.ready(now_ms)[0]:
                if node > 0 and not in_flight[node]:
                    in_flight[node] += drain(accumulator, node, now_ms=now_ms, max_bytes=2000)
        elif step < 0.95:
            node = rng.choice([1, 2, 3])
            batches, in_flight[node] = in_flight[node], []
            for batch in batches:
                _answer(accumulator, batch, rng, now_ms, acked)
        elif step < 0.97:
            epoch += 1
            accumulator.update_topic("orders", TOPIC_ID, [(rng.choice([1, 2, 3, -1]), epoch) for _ in range(3)])
        for batch in accumulator.expire(now_ms):
            batch.fail(DeliveryTimeoutError("late"), None, False)
            if not batch.in_flight:
                accumulator.release(batch)
    accumulator.close_all()
    accumulator.update_topic("orders", TOPIC_ID, [(1, epoch + 1)] * 3)
    for batches in in_flight.values():
        for batch in batches:
            _ack(accumulator, batch, acked)
    now_ms += 300
    accumulator.ready(now_ms)
    while batches := drain(accumulator, now_ms=now_ms):
        for batch in batches:
            _ack(accumulator, batch, acked)
    assert accumulator.pool.used_bytes == 0
    assert not accumulator.has_live_batches()
    assert accumulator.in_flight_batches == 0
    assert all(delivery.done() for delivery in deliveries)
    assert len(acked) == sum(delivery.exception() is None for delivery in deliveries)
    for partition in range(3):
        order = [number for of, number in acked if of == partition]
        assert order == sorted(set(order))


def _ack(accumulator: RecordAccumulator, batch: ProducerBatch, acked: list[tuple[int, int]]) -> None:
    if not batch.failed_early:
        acked += [(batch.partition, int((record.value or b"").split(b".")[0])) for record in read(batch)]
        batch.complete(0, -1)
    accumulator.release(batch)


def _answer(
    accumulator: RecordAccumulator, batch: ProducerBatch, rng: random.Random, now_ms: int, acked: list[tuple[int, int]]
) -> None:
    """Requeued batches still precede later ones: one batch per partition is in flight."""
    kind = rng.random()
    if batch.failed_early or kind < 0.5:
        _ack(accumulator, batch, acked)
    elif kind < 0.8 or batch.record_count == 1:
        accumulator.requeue(batch, now_ms, now_ms + rng.randrange(30))
    elif kind < 0.9:
        split(accumulator, batch, now_ms=NOW)
    else:
        fail(accumulator, batch)


def test_topics_are_found_by_any_str_of_their_name() -> None:
    """However many topics come and go: by the same str as before, and by an equal one."""
    accumulator = make_accumulator()
    names = [f"topic-{number}" for number in range(5_000)]
    topics: dict[str, TopicQueues] = {}

    def all_are_found() -> None:
        for name in names:
            for called in (name, name, "".join([*name])):
                assert accumulator.topic(called) is topics.get(name)

    for number, name in enumerate(names):
        topics[name] = add_topic(accumulator, name)
        assert accumulator.topic(names[number // 2]) is topics[names[number // 2]]
    all_are_found()
    for name in names[::2]:
        assert accumulator.forget_topic(name)
        del topics[name]
    all_are_found()
    for name in names[::4]:
        topics[name] = add_topic(accumulator, name)
    assert len({*topics.values()}) == 3_750
    all_are_found()
    for name in [*topics]:
        assert accumulator.forget_topic(name)
        assert not accumulator.forget_topic(name)
    topics.clear()
    all_are_found()


def test_forgotten_topics_are_let_go() -> None:
    """A program that uses thousands of topics for a short time gets their memory back, though others stay."""

    def alive() -> int:
        gc.collect()
        return sum(type(each) is TopicQueues for each in gc.get_objects())

    before = alive()
    accumulator = make_accumulator()
    names = [f"topic-{number}" for number in range(1_000)]
    for name in names:
        add_topic(accumulator, name)
    for name in names:
        assert accumulator.topic(name) is not None
    for name in names[10:]:
        assert accumulator.forget_topic(name)
    assert alive() - before <= 20


def test_no_memory_for_more_partitions() -> None:
    """Whichever allocation fails: the topic is complete after the next update."""
    leaders = [(1, 0)] * 12

    def fails_at(allocation: int) -> bool:
        accumulator = make_accumulator()
        topic = add_topic(accumulator)
        failed = False
        try:
            without_allocation(allocation, lambda: accumulator.update_topic("orders", TOPIC_ID, leaders))
        except MemoryError:
            failed = True
        accumulator.update_topic("orders", TOPIC_ID, leaders)
        for partition in range(len(leaders)):
            put(accumulator, topic, partition=partition)
        assert [batch.partition for batch in drain_all(accumulator)] == [*range(len(leaders))]
        return failed

    allocation = 1
    while fails_at(allocation):
        allocation += 1
    assert allocation > 1


def test_ended_batches_are_garbage() -> None:
    """Nothing keeps a batch, its result, or its pieces alive once they have ended."""
    accumulator = make_accumulator(delivery_timeout_ms=100)

    def work() -> None:
        for _ in range(20):
            batch, deliveries = filled(accumulator, 8, now_ms=NOW)
            split(accumulator, batch, now_ms=NOW)
            batch.queue.topic.forget_limit()  # or the next eight records would be two batches
            for piece in drain_all(accumulator, now_ms=NOW):
                accumulator.requeue(piece, NOW, NOW + 10)
            accumulator.ready(NOW + 10)
            for piece in drain_all(accumulator, now_ms=NOW + 10):
                end(accumulator, piece)
            assert deliveries[0].done()

    work()
    before = allocated_blocks()
    work()
    assert allocated_blocks() <= before + 10


def test_a_long_queue_can_be_dropped() -> None:
    """As when a producer is dropped in an outage: freeing any number of batches does not overflow the stack."""
    before = allocated_blocks()
    accumulator = make_accumulator(batch_size=1, buffer_memory=1 << 30)
    topic = add_topic(accumulator)
    for _ in range(100_000):
        put(accumulator, topic)
    del accumulator, topic
    assert allocated_blocks() - before < 1_000


def test_many_ready_partitions_can_be_dropped() -> None:
    """The same goes for the queue of a broker, also in a thread, whose stack may be small (128 KiB on Alpine Linux)."""

    ended: list[bool] = []

    def life() -> None:
        accumulator = make_accumulator(batch_size=1)
        topic = add_topic(accumulator, leaders=[1] * 50_000)
        for partition in range(50_000):
            put(accumulator, topic, partition=partition)
        accumulator.close_all()
        del accumulator, topic
        gc.collect()
        ended.append(True)

    usual = threading.stack_size(256 << 10)
    thread = threading.Thread(target=life)
    thread.start()
    thread.join()
    threading.stack_size(usual)
    assert ended


def test_what_waits_for_records_goes_with_the_accumulator() -> None:
    """A producer that was never closed, and whose loop is gone, ends no record: callbacks lead back to Deliveries."""

    class Program:
        def told(self, delivery: Delivery) -> None:
            raise AssertionError("the record has not ended")

    accumulator = make_accumulator()
    batch, (first, second, *_) = filled(accumulator, 8)
    programs = [Program() for _ in range(3)]
    watch(first, programs[0].told)
    split(accumulator, batch)
    watch(second, programs[1].told)
    watch(put(accumulator, batch.queue.topic), programs[2].told)
    gone = [weakref.ref(program) for program in programs]
    del accumulator, batch, first, second, _, programs
    gc.collect()
    assert [program() for program in gone] == [None] * 3


def test_batches_in_every_state_can_be_dropped() -> None:
    """The collector does not track batches, so the accumulator breaks the cycles that they are part of."""

    def life() -> None:
        accumulator = make_accumulator()
        topic = add_topic(accumulator, leaders=[1] * 4)
        sequences = TransactionManager(idempotent=True)
        sequences.set_producer_id(7, 0)
        for partition in range(4):
            for _ in range(8):
                put(accumulator, topic, partition=partition, now_ms=NOW)
        in_flight, split_up, waiting, _ = drain_all(accumulator)
        sequences.number_all([in_flight, split_up, waiting])
        accumulator.split(split_up, bytes(split_up.contents()), NOW)
        accumulator.requeue(waiting, NOW, NOW + 10)
        put(accumulator, topic)

    for _ in range(3):
        life()
    before = allocated_blocks()
    for _ in range(20):
        life()
    assert allocated_blocks() - before < 20
