"""Batches that are too large for a broker: split into pieces, together with their records' Deliveries."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery import Delivery, count_in
from aioproducer._producer_batch import TopicQueues
from aioproducer._tally import Tally
from aioproducer.compression import codec
from aioproducer.errors import KafkaError
from aioproducer.records import RecordMetadata
from tests.unit.core import (
    add_topic,
    drain,
    drain_all,
    end,
    fail,
    filled,
    make_accumulator,
    put,
    read,
    split,
    without_allocation,
)
from tests.unit.waiting import turns

NOW = 1000
HEADER_BYTES = 61


def test_split_keeps_records() -> None:
    """The pieces hold the same records in the same order, are smaller, and take the batch's place."""
    accumulator = make_accumulator()
    batch, _ = filled(accumulator, 20, now_ms=NOW)
    before = read(batch)
    topic = accumulator.topic("orders")
    assert topic is not None
    put(accumulator, topic, b"behind", now_ms=NOW)
    pieces = split(accumulator, batch, now_ms=NOW)
    assert len(pieces) >= 2
    assert [record for piece in pieces for record in read(piece)] == before
    assert all(piece.size_bytes <= -(-sum(p.size_bytes for p in pieces) // 2) for piece in pieces)
    assert all(piece.created_ms == NOW and piece.parent is batch for piece in pieces)
    assert batch.ended
    assert drain_all(accumulator, now_ms=NOW)[: len(pieces)] == pieces
    assert [piece.serial for piece in pieces] == [batch.serial] * len(pieces)
    assert [piece.order for piece in pieces] == [(batch.serial, i) for i in range(len(pieces))]


def test_split_respects_the_batch_size() -> None:
    """A batch above batch_size, filled by its compression ratio, is split into pieces of that size."""
    accumulator = make_accumulator(batch_size=500, compresses=True)
    topic = add_topic(accumulator)
    for _ in range(200):
        topic.observe_ratio(0.0)
    batch, _ = filled(accumulator, 40, now_ms=NOW)
    assert batch.wire_bytes > 4000
    pieces = split(accumulator, batch, now_ms=NOW)
    assert len(pieces) > 8
    assert all(piece.wire_bytes <= 500 for piece in pieces)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 400), min_size=2, max_size=30))
def test_split_always_helps(sizes: list[int]) -> None:
    """Whatever the records, there are two pieces or more, each smaller than the batch."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator)
    for i, size in enumerate(sizes):
        put(accumulator, topic, bytes(size), timestamp_ms=10**15 * (i % 2))
    (batch,) = drain_all(accumulator)
    before, size = read(batch), batch.wire_bytes
    pieces = split(accumulator, batch, now_ms=NOW)
    assert len(pieces) >= 2
    assert all(piece.wire_bytes < size for piece in pieces)
    assert [record for piece in pieces for record in read(piece)] == before


def test_split_of_a_compressed_batch() -> None:
    """The pieces of a compressed batch are to be compressed again."""
    accumulator = make_accumulator(compresses=True)
    batch, _ = filled(accumulator, 20, now_ms=NOW)
    before = read(batch)
    plain = bytes(batch.contents())
    batch.seal(codec("gzip").compress(plain), codec("gzip").attribute)
    pieces = accumulator.split(batch, plain, NOW)
    assert not any(piece.sealed for piece in pieces)
    assert [record for piece in pieces for record in read(piece)] == before


def test_batches_after_a_split_are_filled_as_if_nothing_compressed() -> None:
    """Until they have shown how much smaller they get."""
    accumulator = make_accumulator(batch_size=1061, compresses=True, max_request_size=5000)
    topic = add_topic(accumulator)
    for _ in range(100):
        topic.observe_ratio(0.5)
    for _ in range(19):
        put(accumulator, topic, bytes(91), now_ms=NOW)
    (batch,) = drain_all(accumulator, now_ms=NOW)
    plain = bytes(batch.contents())
    assert len(plain) == 1900
    batch.seal(bytes(950), 1)
    accumulator.split(batch, plain, NOW)
    for piece in drain_all(accumulator, now_ms=NOW):
        end(accumulator, piece)
    assert topic.batch_limit == HEADER_BYTES + 475
    for _ in range(19):
        put(accumulator, topic, bytes(91), now_ms=NOW)
    first, *_ = drain_all(accumulator, now_ms=NOW)
    assert first.size_bytes == 400


def test_split_continues_sequences() -> None:
    """The pieces have the batch's producer id and epoch, and continue its sequences, even over the wraparound."""
    accumulator = make_accumulator()
    batch, _ = filled(accumulator, 10, now_ms=NOW)
    batch.set_producer_state(7, 3, 2**31 - 4, True)
    batch.maybe_written = batch.in_doubt = True
    batch.attempts = 2
    batch.last_error = KafkaError("last")
    pieces = split(accumulator, batch, now_ms=NOW)
    sequence = 2**31 - 4
    for piece in pieces:
        assert (piece.producer_id, piece.producer_epoch, piece.base_sequence) == (7, 3, sequence)
        assert (piece.transactional, piece.attempts, piece.last_error) == (True, 1, batch.last_error)
        assert piece.maybe_written
        assert piece.in_doubt
        sequence = (sequence + piece.record_count) % 2**31


def test_split_without_sequences() -> None:
    """Pieces of an unnumbered batch are unnumbered."""
    accumulator = make_accumulator()
    batch, _ = filled(accumulator, 10, now_ms=NOW)
    assert all(not piece.has_sequence for piece in split(accumulator, batch, now_ms=NOW))


def test_split_takes_no_pool_memory() -> None:
    """A split works with an empty pool, and the batch's blocks are released at once."""
    accumulator = make_accumulator(buffer_memory=2048 + 8192)
    batch, _ = filled(accumulator, 20, now_ms=NOW)
    assert accumulator.pool.available_bytes == 0
    pieces = split(accumulator, batch, now_ms=NOW)
    assert accumulator.pool.used_bytes == 0
    for piece in drain_all(accumulator):
        end(accumulator, piece)
    assert accumulator.pool.used_bytes == 0
    assert not accumulator.has_live_batches()
    assert all(piece.ended for piece in pieces)


def test_split_batch_lives_until_its_last_piece() -> None:
    """A flush that covers a split batch waits for all its pieces."""
    accumulator = make_accumulator()
    batch, _ = filled(accumulator, 10, now_ms=NOW)
    split(accumulator, batch, now_ms=NOW)
    first, *others = drain_all(accumulator)
    assert accumulator.live_record_count(batch.serial) == 10
    end(accumulator, first)
    assert accumulator.live_record_count(batch.serial) == 10 - first.record_count
    assert accumulator.oldest_live_serial() == batch.serial
    for piece in others:
        end(accumulator, piece)
    assert accumulator.oldest_live_serial() == -1
    assert accumulator.live_record_count(batch.serial) == 0


def test_pieces_released_twice() -> None:
    """Releasing a piece twice counts once."""
    accumulator = make_accumulator()
    batch, _ = filled(accumulator, 10, now_ms=NOW)
    split(accumulator, batch, now_ms=NOW)
    first, *others = drain_all(accumulator)
    end(accumulator, first)
    accumulator.release(first)
    assert accumulator.has_live_batches()
    for piece in others:
        end(accumulator, piece)
        accumulator.release(piece)
    assert not accumulator.has_live_batches()


def test_nested_split() -> None:
    """A piece may be split again; the order of all pieces stays that of the records."""
    accumulator = make_accumulator()
    batch, deliveries = filled(accumulator, 16, now_ms=NOW)
    topic = accumulator.topic("orders")
    assert topic is not None
    put(accumulator, topic, b"behind", now_ms=NOW)
    pieces = split(accumulator, batch, now_ms=NOW)
    batches = drain_all(accumulator, now_ms=NOW)
    assert batches[:-1] == pieces
    inner = split(accumulator, pieces[0], now_ms=NOW)
    for other in reversed(pieces[1:]):
        accumulator.requeue(other, NOW, NOW)
    accumulator.requeue(batches[-1], NOW, NOW)
    again = drain_all(accumulator, now_ms=NOW)
    assert again == [*inner, *pieces[1:], batches[-1]]
    offset = 100
    for each in again[:-1]:
        end(accumulator, each, offset)
        offset += each.record_count
    assert [delivery.result().offset for delivery in deliveries] == list(range(100, 116))
    end(accumulator, again[-1])
    assert not accumulator.has_live_batches()


def test_pieces_end_apart() -> None:
    """Each Delivery follows its record into its piece, independently of the other pieces."""
    accumulator = make_accumulator()
    batch, deliveries = filled(accumulator, 10, now_ms=NOW)
    split(accumulator, batch, now_ms=NOW)
    first, second, *others = drain_all(accumulator)
    assert not any(delivery.done() for delivery in deliveries)
    end(accumulator, first, 50)
    second.fail(KafkaError("second"), None, False)
    accumulator.release(second)
    for i, delivery in enumerate(deliveries):
        if i < first.record_count:
            assert delivery.result() == RecordMetadata("orders", 0, 50 + i, 1_000_000 + i, -1 if i % 2 else 1, 100)
        elif i < first.record_count + second.record_count:
            assert str(delivery.exception()) == "second"
        else:
            assert not delivery.done()
    for piece in others:
        end(accumulator, piece)
    assert all(delivery.done() for delivery in deliveries)


def test_pieces_expire_together() -> None:
    """The batch's age counts: its pieces expire as it would, each once, except those that have ended."""
    accumulator = make_accumulator(delivery_timeout_ms=100)
    batch, _ = filled(accumulator, 16, now_ms=NOW)
    pieces = split(accumulator, batch, now_ms=NOW)
    first, second = drain(accumulator, now_ms=NOW) + drain(accumulator, now_ms=NOW)
    end(accumulator, first)
    expired = accumulator.expire(NOW + 100)
    assert expired == pieces[1:]
    assert [piece.in_flight for piece in expired] == [piece is second for piece in expired]
    for piece in expired:
        fail(accumulator, piece)
    assert not accumulator.has_live_batches()
    assert accumulator.expire(NOW + 1000) == []
    assert accumulator.ready(NOW + 1000) == ([], -1)


def test_backed_off_piece() -> None:
    """A piece backs off and comes back before its siblings."""
    accumulator = make_accumulator()
    batch, _ = filled(accumulator, 16, now_ms=NOW)
    pieces = split(accumulator, batch, now_ms=NOW)
    (first,) = drain(accumulator, now_ms=NOW)
    accumulator.requeue(first, NOW, NOW + 50)
    assert drain(accumulator, now_ms=NOW + 49) == []
    assert accumulator.ready(NOW + 49)[0] == []
    assert accumulator.ready(NOW + 50)[0] == [1]
    assert drain_all(accumulator, now_ms=NOW + 50) == pieces


def test_callbacks_follow_a_split() -> None:
    """Callbacks attached before the split are called in order, for each record when its piece ends."""
    loop = asyncio.new_event_loop()
    try:
        accumulator = make_accumulator(loop=loop)
        batch, deliveries = filled(accumulator, 10, now_ms=NOW)
        called: list[int] = []
        for i in reversed(range(10)):
            deliveries[i].add_done_callback(lambda _, i=i: called.append(i))  # type: ignore[misc]
        split(accumulator, batch, now_ms=NOW)
        first, *others = drain_all(accumulator)
        end(accumulator, first)
        loop.run_until_complete(asyncio.sleep(0))
        assert called == list(range(first.record_count))
        for piece in others:
            end(accumulator, piece)
        loop.run_until_complete(asyncio.sleep(0))
        assert called == list(range(10))
    finally:
        loop.close()


async def test_awaits_follow_a_split() -> None:
    """Tasks that awaited before the split wake when the piece of their record ends, and not before."""
    accumulator = make_accumulator(loop=asyncio.get_running_loop())
    batch, deliveries = filled(accumulator, 10, now_ms=NOW)

    async def wait(delivery: Delivery) -> int:
        return (await delivery).offset

    tasks = [asyncio.create_task(wait(delivery)) for delivery in deliveries]
    await asyncio.sleep(0)
    split(accumulator, batch, now_ms=NOW)
    first, *others = drain_all(accumulator)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    end(accumulator, first, 0)
    assert await asyncio.gather(*tasks[: first.record_count]) == list(range(first.record_count))
    assert not tasks[first.record_count].done()
    offset = first.record_count
    for piece in others:
        end(accumulator, piece, offset)
        offset += piece.record_count
    assert await asyncio.gather(*tasks) == list(range(10))


def test_observation_follows_a_split() -> None:
    """Whether a Delivery was observed or dropped, before or after the split, is known when the piece fails."""
    accumulator = make_accumulator()
    batch, deliveries = filled(accumulator, 12, now_ms=NOW)
    with pytest.raises(asyncio.InvalidStateError):
        deliveries[0].result()
    del deliveries[6:9]  # dropped before
    split(accumulator, batch, now_ms=NOW)
    del deliveries[3:6]  # dropped after
    for piece in drain_all(accumulator):
        piece.fail(KafkaError("no"))
        accumulator.release(piece)
    assert accumulator.ledger.unobserved_count == 6
    for delivery in deliveries:
        assert delivery.exception() is not None
    deliveries.clear()
    assert accumulator.ledger.unobserved_count == 6


def test_only_what_is_in_flight_can_be_split() -> None:
    """Splitting a batch that waits, or whose Deliveries have failed, is refused, and nothing changes."""
    accumulator = make_accumulator(delivery_timeout_ms=100)
    batch, _ = filled(accumulator, 4, now_ms=NOW)
    plain = bytes(batch.contents())
    accumulator.requeue(batch, NOW, NOW)
    with pytest.raises(ValueError, match="in flight"):
        accumulator.split(batch, plain, NOW)
    assert drain(accumulator, now_ms=NOW) == [batch]
    accumulator.expire(NOW + 100)
    batch.fail(KafkaError("no"), None, False)
    with pytest.raises(ValueError, match="in flight"):
        accumulator.split(batch, plain, NOW)
    accumulator.release(batch)
    assert not accumulator.has_live_batches()


# The first that is not needed for the split itself is the pool's, for a block that comes back.
@pytest.mark.filterwarnings("ignore:.*BufferPool.give_back:pytest.PytestUnraisableExceptionWarning")
def test_a_batch_that_can_not_be_split_for_want_of_memory_is_in_flight() -> None:
    """At whichever allocation: it ends as any other, and is no longer counted as in flight then."""

    def fails_at(allocation: int) -> bool:
        accumulator = make_accumulator()
        batch, deliveries = filled(accumulator, 20, now_ms=NOW)
        plain = bytes(batch.contents())
        try:
            without_allocation(allocation, lambda: accumulator.split(batch, plain, NOW))
        except MemoryError:
            assert batch.in_flight
            assert accumulator.in_flight_batches == 1
            fail(accumulator, batch)
            assert accumulator.in_flight_batches == 0
            assert all(delivery.done() for delivery in deliveries)
            assert not accumulator.has_live_batches()
            return True
        return False

    allocation = 1
    while fails_at(allocation):
        allocation += 1
    assert allocation > 20


@pytest.mark.filterwarnings("ignore:.*BufferPool.give_back:pytest.PytestUnraisableExceptionWarning")
async def test_those_that_wait_for_records_of_a_batch_that_can_not_be_split_hear_of_its_end() -> None:
    """A send_many, and done callbacks: none of them has moved to the pieces."""
    loop = asyncio.get_running_loop()
    told: list[Delivery] = []

    def fails_at(allocation: int) -> bool:
        accumulator, tally = make_accumulator(loop=loop), Tally("orders")
        batch, deliveries = filled(accumulator, 20, now_ms=NOW)
        for delivery in deliveries[::2]:
            count_in(delivery, tally)
        for delivery in deliveries[1::2] * 2:
            delivery.add_done_callback(told.append)
        plain = bytes(batch.contents())
        try:
            without_allocation(allocation, lambda: accumulator.split(batch, plain, NOW))
        except MemoryError:
            fail(accumulator, batch)
            assert all(delivery.done() for delivery in deliveries)
            assert (tally.pending, tally.failed) == (0, 10)
            assert accumulator.ledger.callbacks_waiting == 20
            return True
        return False

    allocation = 1
    while fails_at(allocation):
        allocation += 1
        await turns(2)
        assert len(told) == 20
        told.clear()
    assert allocation > 20


def test_the_memory_of_pieces_goes_back_to_the_system() -> None:
    """It is not part of the budget, so the pool would never free it."""
    accumulator = make_accumulator()
    batch, _ = filled(accumulator, 20, now_ms=NOW)
    split(accumulator, batch, now_ms=NOW)
    assert accumulator.outside.used_bytes > 0
    for piece in drain_all(accumulator, now_ms=NOW):
        end(accumulator, piece)
    assert (accumulator.outside.used_bytes, accumulator.outside.idle_bytes) == (0, 0)


# --- what is learned of the topic's limit -----------------------------------------------------------------------------

KEPT_MS = 600_000
"""How long a limit is kept before larger batches are tried."""


def sizes(accumulator: RecordAccumulator, topic: TopicQueues, *, now_ms: int = NOW, partition: int = 0) -> list[int]:
    """The sizes of the batches of 300 records of 100 bytes, without the last batch."""
    for _ in range(300):
        put(accumulator, topic, bytes(100), partition=partition, now_ms=now_ms)
    batches = drain_all(accumulator, now_ms=now_ms)
    for batch in batches:
        end(accumulator, batch)
    return [batch.wire_bytes for batch in batches[:-1]]


def refuse(accumulator: RecordAccumulator, topic: TopicQueues, count: int, *, now_ms: int = NOW) -> int:
    """Have a batch refused and its pieces accepted; returns the size of a batch with half of the records."""
    for _ in range(count):
        put(accumulator, topic, bytes(100), now_ms=now_ms)
    (batch,) = drain_all(accumulator, now_ms=now_ms)
    half = HEADER_BYTES + batch.size_bytes // 2
    split(accumulator, batch, now_ms=now_ms)
    for piece in drain_all(accumulator, now_ms=now_ms):
        end(accumulator, piece)
    return half


def test_later_batches_are_smaller_than_one_that_was_refused() -> None:
    """In all partitions of the topic, but not in other topics, which keep batch_size."""
    accumulator = make_accumulator()
    orders, audit = add_topic(accumulator, leaders=(1, 1)), add_topic(accumulator, "audit")
    assert min(sizes(accumulator, orders)) > 16_000
    limit = refuse(accumulator, orders, 100)
    for partition in 0, 1:
        assert limit - 120 < min(sizes(accumulator, orders, partition=partition))
        assert max(sizes(accumulator, orders, partition=partition)) <= limit
    assert min(sizes(accumulator, audit)) > 16_000


def test_a_batch_that_is_open_takes_no_more_than_the_limit() -> None:
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=(1, 1))
    batch, _ = filled(accumulator, 100, now_ms=NOW)
    for _ in range(80):
        put(accumulator, topic, bytes(100), partition=1, now_ms=NOW)
    split(accumulator, batch, now_ms=NOW)
    put(accumulator, topic, bytes(100), partition=1, now_ms=NOW)
    assert [each.record_count for each in drain_all(accumulator, now_ms=NOW) if each.partition == 1] == [80, 1]


def test_one_that_was_filled_before_is_cut_to_the_limit_at_once() -> None:
    """Not to half of its size, which the broker would refuse again."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator)
    for _ in range(280):
        put(accumulator, topic, bytes(100), now_ms=NOW)
    first, second, *_ = drain_all(accumulator, now_ms=NOW)
    pieces = split(accumulator, first, now_ms=NOW)
    again = drain_all(accumulator, now_ms=NOW)
    assert again == pieces
    smallest = split(accumulator, pieces[0], now_ms=NOW)[0].wire_bytes
    assert max(piece.wire_bytes for piece in split(accumulator, second, now_ms=NOW)) <= smallest * 1.1


def test_the_limit_is_one_of_bytes_as_they_go_out() -> None:
    """A compressed batch is refused because of its compressed size."""
    accumulator = make_accumulator(compresses=True, max_request_size=1 << 20)
    topic = add_topic(accumulator)
    batch, _ = filled(accumulator, 100, now_ms=NOW)
    plain = bytes(batch.contents())
    batch.seal(bytes(2_000), 1)
    accumulator.split(batch, plain, NOW)
    assert topic.batch_limit == HEADER_BYTES + 1_000


def test_no_limit_is_kept_for_ever() -> None:
    """After ten minutes batches of twice the size are tried; if they are refused, the limit is what it was."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator)
    limit = refuse(accumulator, topic, 100)
    assert max(sizes(accumulator, topic, now_ms=NOW + KEPT_MS - 1)) <= limit
    now_ms = NOW + KEPT_MS
    refuse(accumulator, topic, 60, now_ms=now_ms)
    assert topic.batch_limit == limit
    now_ms += KEPT_MS
    assert limit < min(sizes(accumulator, topic, now_ms=now_ms)) <= 2 * limit
    assert max(sizes(accumulator, topic, now_ms=now_ms + 1)) <= 2 * limit
    assert min(sizes(accumulator, topic, now_ms=now_ms + KEPT_MS)) > 16_000
    assert topic.batch_limit == accumulator.batch_size


def test_a_limit_that_no_longer_stands_is_not_kept() -> None:
    """A batch of just that size is refused when larger ones may be tried again."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator)
    limit = refuse(accumulator, topic, 60)
    smaller = refuse(accumulator, topic, 30, now_ms=NOW + KEPT_MS)
    assert smaller == HEADER_BYTES + (limit - HEADER_BYTES) // 2
    assert topic.batch_limit == smaller


def test_a_topic_that_is_made_again_has_another_limit() -> None:
    accumulator = make_accumulator()
    topic = add_topic(accumulator)
    refuse(accumulator, topic, 100)
    accumulator.update_topic("orders", bytes(16), [(1, 1)])
    assert min(sizes(accumulator, topic)) > 16_000


def test_a_topic_that_is_made_again_has_no_limit_that_stood() -> None:
    """Its first refusal is answered by half of what was refused, whatever the former topic took."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator)
    refuse(accumulator, topic, 60)
    sizes(accumulator, topic, now_ms=NOW + KEPT_MS)
    accumulator.update_topic("orders", bytes(16), [(1, 1)])
    assert refuse(accumulator, topic, 50, now_ms=NOW + KEPT_MS) == topic.batch_limit
