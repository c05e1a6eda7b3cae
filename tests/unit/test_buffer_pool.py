"""The memory of the records, through the accumulator, which alone allocates and releases it."""

from __future__ import annotations

import gc
import io
import struct
import threading
import weakref
from collections import Counter
from itertools import cycle, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aioproducer._accumulator import RecordAccumulator
from aioproducer._buffer_pool import Buffer, BufferPool
from aioproducer._producer_batch import ProducerBatch
from aioproducer.errors import DeliveryTimeoutError
from tests.reference.record_batch import Cursor, PlainRecord, encoded_section
from tests.unit.core import UNLIMITED, add_topic, allocated_blocks, drain, drain_all, end, make_accumulator, put

TOTAL = 6000
BLOCK = 100


def views_of(batch: ProducerBatch) -> list[memoryview]:
    return [part for part in batch.payload() if isinstance(part, memoryview)]


def buffer_of(view: memoryview) -> Buffer:
    assert isinstance(view.obj, Buffer)
    return view.obj


def followed() -> Counter[str]:
    """The number of the producer's objects that the garbage collector tracks, by class."""
    classes = (type(each) for each in gc.get_objects())
    return Counter(each.__name__ for each in classes if str(each.__module__).startswith("aioproducer."))


class Owner:
    """Records the pool's available memory at each notification of a late release."""

    def __init__(self, pool: BufferPool) -> None:
        self.pool = pool
        self.told: list[int] = []
        pool.call_on_late_return(self.note)

    def note(self) -> None:
        self.told.append(self.pool.available_bytes)


class PoolMachine(RuleBasedStateMachine):
    """Pool memory in use is that of live batches and of views that outlive them, and never exceeds the total."""

    def __init__(self) -> None:
        super().__init__()
        self.accumulator = make_accumulator(
            batch_size=BLOCK, sticky_size=BLOCK, buffer_memory=TOTAL, max_request_size=TOTAL, compresses=True
        )
        self.pool = self.accumulator.pool
        self.topic = add_topic(self.accumulator, leaders=[1, 1, 1])
        for _ in range(200):
            self.topic.observe_ratio(0.0)  # batches may chain blocks
        self.now_ms = 0
        self.in_flight: list[ProducerBatch] = []
        self.sealing: list[ProducerBatch] = []
        self.late: list[tuple[memoryview, bytes]] = []
        self.late_returns = 0
        self.expected_late_returns = 0
        self.pool.call_on_late_return(self.count_late_return)
        self.shorted = False

    def count_late_return(self) -> None:
        self.late_returns += 1

    @rule(partition=st.integers(0, 2), size=st.one_of(st.integers(0, 300), st.integers(0, TOTAL)))
    def append(self, partition: int, size: int) -> None:
        available = self.pool.available_bytes
        delivery = self.accumulator.append(self.topic, partition, None, bytes(size), None, 0, self.now_ms)
        if delivery is None:
            assert size + 20 > available, "refused although there was room"
            assert self.pool.available_bytes == available
        else:
            assert self.pool.available_bytes <= available

    @rule()
    def drain(self) -> None:
        self.accumulator.close_all()
        for batch in drain(self.accumulator):
            self.in_flight.append(batch)

    @rule()
    def give_to_workers(self) -> None:
        self.accumulator.close_all()
        _, unsealed = self.accumulator.drain(1, UNLIMITED, self.now_ms, lambda _: False, 0)
        self.sealing += unsealed

    @precondition(lambda self: self.sealing)
    @rule(data=st.data(), pays=st.booleans())
    def sealed(self, data: st.DataObject, pays: bool) -> None:
        batch = data.draw(st.sampled_from(self.sealing))
        self.sealing.remove(batch)
        self.accumulator.sealed(batch, b"" if pays else bytes(batch.contents()), 1)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), keep_views=st.booleans())
    def acknowledge(self, data: st.DataObject, keep_views: bool) -> None:
        batch = self.take_one(data)
        if keep_views and batch.parent is None:  # pieces of a split have separate memory
            self.late += [(view, bytes(view)) for view in views_of(batch)]
        batch.complete(0, -1)
        self.accumulator.release(batch)
        assert batch.memory_bytes == 0

    @precondition(lambda self: any(not batch.failed_early for batch in self.in_flight))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        batch = data.draw(st.sampled_from([batch for batch in self.in_flight if not batch.failed_early]))
        self.in_flight.remove(batch)
        self.accumulator.requeue(batch, self.now_ms, self.now_ms)

    @property
    def splittable(self) -> list[ProducerBatch]:
        return [
            batch for batch in self.in_flight if not batch.sealed and not batch.failed_early and batch.record_count > 1
        ]

    @precondition(lambda self: self.splittable)
    @rule(data=st.data(), keep_views=st.booleans())
    def split(self, data: st.DataObject, keep_views: bool) -> None:
        batch = data.draw(st.sampled_from(self.splittable))
        self.in_flight.remove(batch)
        if keep_views and batch.parent is None:
            self.late += [(view, bytes(view)) for view in views_of(batch)]
        self.accumulator.split(batch, bytes(batch.contents()), self.now_ms)
        assert batch.memory_bytes == 0

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def drop_view(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.late) - 1))
        view, content = self.late.pop(at)
        assert view == content, "memory that a transport may still read was written"
        last = buffer_of(view).views == 1
        available, capacity = self.pool.available_bytes, buffer_of(view).capacity
        del view
        self.expected_late_returns += last
        assert self.pool.available_bytes == available + capacity * last

    @rule()
    def expire(self) -> None:
        self.now_ms += self.accumulator.delivery_timeout_ms
        for batch in self.accumulator.expire(self.now_ms):
            batch.fail(DeliveryTimeoutError("late"), None, False)
            if not batch.in_flight:
                self.accumulator.release(batch)

    def take_one(self, data: st.DataObject) -> ProducerBatch:
        batch = data.draw(st.sampled_from(self.in_flight))
        self.in_flight.remove(batch)
        return batch

    @property
    def late_bytes(self) -> int:
        return sum(buffer.capacity for buffer in {buffer_of(view) for view, _ in self.late})

    @invariant()
    def within_bounds(self) -> None:
        assert 0 <= self.pool.used_bytes <= TOTAL
        assert self.pool.used_bytes + self.pool.available_bytes == TOTAL
        assert self.late_returns == self.expected_late_returns

    @rule()
    def all_is_accounted_for(self) -> None:
        """If all batches are known, their memory is all that is in use."""
        for batch in self.sealing:
            self.accumulator.sealed(batch, None, 0)
        self.sealing.clear()
        self.in_flight += drain_all(self.accumulator, now_ms=self.now_ms)
        own = sum(batch.memory_bytes for batch in self.in_flight if batch.parent is None)
        assert self.pool.used_bytes == own + self.late_bytes

    def teardown(self) -> None:
        self.all_is_accounted_for()
        for batch in self.in_flight:
            end(self.accumulator, batch)
        assert not self.accumulator.has_live_batches()
        assert self.accumulator.oldest_live_serial() == -1
        assert self.pool.used_bytes == self.late_bytes
        while self.late:
            self.late.pop()
        assert self.pool.used_bytes == 0
        assert self.accumulator.in_flight_batches == 0


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=40)


def test_block_is_reused() -> None:
    """A released block is reused, so a steady load allocates nothing."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator)
    put(accumulator, topic)
    (batch,) = drain_all(accumulator)
    first = buffer_of(views_of(batch)[0])
    end(accumulator, batch)
    put(accumulator, topic)
    (batch,) = drain_all(accumulator)
    assert buffer_of(views_of(batch)[0]) is first


def test_block_under_a_view_is_not_reused() -> None:
    """While a transport may still read it, a released block is not reused; then the owner is notified."""
    accumulator = make_accumulator(buffer_memory=2048)
    owner = Owner(accumulator.pool)
    topic = add_topic(accumulator)
    put(accumulator, topic, b"first")
    (batch,) = drain_all(accumulator)
    (view,) = views_of(batch)
    second_view = memoryview(view)
    end(accumulator, batch)
    assert accumulator.append(topic, 0, None, b"x", None, 0, 0) is None
    del view
    assert not owner.told
    assert b"first" in bytes(second_view)
    second_view.release()
    assert owner.told == [2048]
    assert accumulator.append(topic, 0, None, b"x", None, 0, 0) is not None


def test_a_view_that_an_exception_releases() -> None:
    """The owner is notified, and the exception goes on."""
    accumulator = make_accumulator()
    owner = Owner(accumulator.pool)
    put(accumulator, add_topic(accumulator))
    (batch,) = drain_all(accumulator)
    views = views_of(batch)
    end(accumulator, batch)
    del batch
    with pytest.raises(struct.error):
        struct.unpack("0s", views.pop())
    assert owner.told == [accumulator.pool.total_bytes]


def test_views_that_end_before_the_release_are_not_late() -> None:
    """Without a late view, the owner is not notified: it knows of its own release."""
    accumulator = make_accumulator()
    owner = Owner(accumulator.pool)
    put(accumulator, add_topic(accumulator))
    (batch,) = drain_all(accumulator)
    for view in views_of(batch):
        view.release()
    end(accumulator, batch)
    assert not owner.told
    assert accumulator.pool.used_bytes == 0


def test_the_last_piece_of_the_budget() -> None:
    """The rest of the budget can be used even if it is less than a block, and is returned with the same size."""
    accumulator = make_accumulator(buffer_memory=2048 + 100)
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, partition=0)
    put(accumulator, topic, bytes(50), partition=1)
    assert accumulator.pool.available_bytes == 0
    for batch in drain_all(accumulator):
        end(accumulator, batch)
    assert accumulator.pool.available_bytes == 2048 + 100


def test_a_record_may_take_the_whole_budget() -> None:
    accumulator = make_accumulator(buffer_memory=3000)
    topic = add_topic(accumulator)
    overhead = 9  # the lengths of record and value have two bytes each
    assert accumulator.append(topic, 0, None, bytes(3001 - overhead), None, 0, 0) is None
    put(accumulator, topic, bytes(3000 - overhead))
    assert accumulator.pool.available_bytes == 0


def test_large_record_takes_its_own_size() -> None:
    """A record above the block size is charged its own size, and its block is not kept."""
    accumulator = make_accumulator(buffer_memory=200_000)
    topic = add_topic(accumulator)
    put(accumulator, topic, bytes(150_000))
    assert 150_000 < accumulator.pool.used_bytes < 150_030
    assert accumulator.append(topic, 0, None, bytes(60_000), None, 0, 0) is None
    (batch,) = drain_all(accumulator)
    end(accumulator, batch)
    assert accumulator.pool.used_bytes == 0


def test_no_memory_changes_nothing() -> None:
    """A record without memory leaves the open batch unchanged, but closes it: a batch that can't grow is full."""
    accumulator = make_accumulator(buffer_memory=500, batch_size=300, compresses=True)
    topic = add_topic(accumulator)
    put(accumulator, topic, b"a" * 200)
    used = accumulator.pool.used_bytes
    assert accumulator.append(topic, 0, None, b"b" * 400, None, 0, 0) is None
    assert accumulator.pool.used_bytes == used
    (batch,) = drain(accumulator)
    assert batch.record_count == 1
    assert accumulator.appended_records == 1


def test_a_batch_begins_small() -> None:
    """Its first block has 2 KiB, or 4 or 8 if the record needs that, the next 16: thousands of them fit the budget."""
    accumulator = make_accumulator(batch_size=1 << 20)
    topic = add_topic(accumulator, leaders=[1] * 4)
    put(accumulator, topic)
    assert accumulator.pool.used_bytes == 2048
    put(accumulator, topic, bytes(2048))
    assert accumulator.pool.used_bytes == 2048 + 16384
    put(accumulator, topic, bytes(2048), partition=1)
    assert accumulator.pool.used_bytes == 2048 + 16384 + 4096
    put(accumulator, topic, bytes(4096), partition=2)
    assert accumulator.pool.used_bytes == 2048 + 16384 + 4096 + 8192
    put(accumulator, topic, bytes(8192), partition=3)
    assert accumulator.pool.used_bytes == 2048 + 16384 + 4096 + 8192 + 16384


def test_a_batch_that_has_grown_takes_large_blocks() -> None:
    """From 32 KiB on, blocks have 64 KiB: the fewer blocks, the less a batch costs."""
    accumulator = make_accumulator(batch_size=1 << 20)
    pool = accumulator.pool
    topic = add_topic(accumulator)
    sizes = [0]
    while sizes[-1] < 200 * 1024:
        put(accumulator, topic, bytes(1024))
        if pool.used_bytes != sizes[-1]:
            sizes.append(pool.used_bytes)
    steps = [after - before for before, after in pairwise(sizes)]
    assert steps == [2048, *[16384] * 2, *[65536] * 3]
    (batch,) = drain_all(accumulator)
    blocks = {buffer_of(view) for view in views_of(batch)}
    end(accumulator, batch)
    assert pool.idle_bytes == sizes[-1]
    for _ in range(200):
        put(accumulator, topic, bytes(1024))
    (batch,) = drain_all(accumulator)
    assert {buffer_of(view) for view in views_of(batch)} == blocks


def record_of(size: int) -> bytes:
    """The value of a record that takes that many bytes with its lengths."""
    values = (bytes(size - around) for around in range(7, 12))
    return next(value for value in values if len(encoded_section([PlainRecord(0, None, value)])) == size)


@pytest.mark.parametrize(
    ("left", "size", "block"),
    [
        (4 * 65536, 1024, 65536),
        (4 * 65536 - 1, 1024, 16384),
        (4 * 65536, 16384, 65536),
        (4 * 65536, 16385, 16385),
    ],
)
def test_where_large_blocks_begin(left: int, size: int, block: int) -> None:
    """At 32 KiB, if four of them are left, for records that would also fit into ordinary ones."""
    accumulator = make_accumulator(batch_size=1 << 20, buffer_memory=2 * 16384 + left)
    topic = add_topic(accumulator)
    for _ in range(2):
        put(accumulator, topic, record_of(16384))
    assert accumulator.pool.available_bytes == left
    put(accumulator, topic, record_of(size))
    assert left - accumulator.pool.available_bytes == block


@pytest.mark.parametrize(
    ("held", "left", "size", "block"),
    [
        (2048, 2 * 4096, 1024, 4096),
        (2048, 2 * 4095, 1024, 2048),
        (2048, 2 * 4095, 1025, 4096),
        (16384, 2 * 1500, 100, 2048),
        (16392, 2 * 2000, 100, 4000),
    ],
)
def test_the_share_of_a_batch(held: int, left: int, size: int, block: int) -> None:
    """Its next block is no larger than its share of what is left, but has room for two records, and an eighth more."""
    accumulator = make_accumulator(batch_size=1 << 20, buffer_memory=held + 2048 + left)
    topic = add_topic(accumulator, leaders=[1, 1])
    put(accumulator, topic, record_of(held), partition=0)
    put(accumulator, topic, record_of(2048), partition=1)
    assert accumulator.pool.available_bytes == left
    put(accumulator, topic, record_of(size))
    assert left - accumulator.pool.available_bytes == block


@given(st.lists(st.integers(0, 40_000), min_size=1, max_size=40))
def test_a_record_lies_in_one_block(sizes: list[int]) -> None:
    """Each block holds whole records, and ends only where the next one does not fit."""
    accumulator = make_accumulator(batch_size=4 << 20, buffer_memory=64 << 20)
    topic = add_topic(accumulator)
    for size in sizes:
        put(accumulator, topic, bytes(size))
    (batch,) = drain_all(accumulator)
    room = count = 0
    for view in views_of(batch):
        section = Cursor(bytes(view))
        while section.at < len(view):
            start = section.at
            section.take(section.varint())
            assert section.at - start > room, "it would have fitted into the block before"
            room = 0
            count += 1
        room = buffer_of(view).capacity - buffer_of(view).used
    assert count == len(sizes)


@pytest.mark.parametrize("size", [6_000, 9_000, 14_000, 17_000, 33_000, 60_000])
def test_most_of_the_blocks_is_used(size: int) -> None:
    """Whatever the record size, at most a fourth of a large batch's memory is unused at the ends of blocks."""
    accumulator = make_accumulator(batch_size=1 << 20)
    topic = add_topic(accumulator)
    for _ in range(900_000 // size):
        put(accumulator, topic, bytes(size))
    (batch,) = drain_all(accumulator)
    assert batch.memory_bytes < 1.3 * batch.size_bytes


def test_no_large_blocks_where_memory_is_scarce() -> None:
    """The rest of the budget is shared by many batches."""
    accumulator = make_accumulator(batch_size=1 << 20, buffer_memory=300_000)
    topic = add_topic(accumulator)
    for _ in range(100):
        put(accumulator, topic, bytes(1024))
    assert accumulator.pool.used_bytes == 2048 + 7 * 16384


@pytest.mark.parametrize("size", [10, 100, 1_000, 4_000])
@pytest.mark.parametrize("batches", [20, 100, 500])
@pytest.mark.parametrize("share", [6_000, 12_000, 24_000, 48_000])
def test_many_batches_share_the_budget(share: int, batches: int, size: int) -> None:
    """If those that ask first took whole blocks, nothing would be left to others: all had to go with a few records."""
    share = max(share, 6 * size)
    accumulator = make_accumulator(batch_size=1 << 20, buffer_memory=batches * share)
    topic = add_topic(accumulator, leaders=[1] * batches)
    partitions = cycle(range(batches))
    while accumulator.append(topic, next(partitions), None, bytes(size), None, 0, 0) is not None:
        pass
    assert accumulator.pool.available_bytes < accumulator.pool.total_bytes / 4
    filled = [batch.size_bytes for batch in drain_all(accumulator)]
    assert len(filled) == batches
    assert min(filled) > 0.6 * share


def test_a_block_of_a_shared_budget_has_room_for_two_records() -> None:
    """Others would be unused for the most part."""
    accumulator = make_accumulator(batch_size=1 << 20, buffer_memory=100 * (2048 + 1500))
    topic = add_topic(accumulator, leaders=[1] * 100)
    for partition in range(100):
        put(accumulator, topic, bytes(1_100), partition=partition)
    left = accumulator.pool.available_bytes
    put(accumulator, topic, bytes(1_100), partition=0)
    assert left - accumulator.pool.available_bytes == 4096
    put(accumulator, topic, bytes(900), partition=0)
    put(accumulator, topic, bytes(900), partition=1)
    assert left - accumulator.pool.available_bytes == 4096


def test_no_more_is_held_than_the_budget() -> None:
    """Blocks kept for reuse are freed when blocks of other sizes are needed."""
    accumulator = make_accumulator(buffer_memory=10 * 16384, batch_size=1 << 20)
    pool = accumulator.pool
    topic = add_topic(accumulator, leaders=[1] * 80)
    for _ in range(3):
        for partition in range(80):
            put(accumulator, topic, partition=partition)
        assert (pool.available_bytes, pool.idle_bytes) == (0, 0)
        for batch in drain_all(accumulator):
            end(accumulator, batch)
        assert (pool.used_bytes, pool.idle_bytes) == (0, 80 * 2048)
        for _ in range(10):
            put(accumulator, topic, bytes(16384 - 20))
            assert pool.used_bytes + pool.idle_bytes <= pool.total_bytes
        for batch in drain_all(accumulator):
            end(accumulator, batch)
        assert pool.idle_bytes == 10 * 16384


def test_a_pool_that_has_ended_keeps_nothing() -> None:
    """Blocks released later are not kept either."""
    accumulator = make_accumulator(batch_size=1 << 20)
    pool = accumulator.pool
    topic = add_topic(accumulator, leaders=[1] * 10)
    for late in False, True:
        for partition in range(10):
            for _ in range(20):
                put(accumulator, topic, bytes(10_000), partition=partition)
        batches = drain_all(accumulator)
        for batch in batches if late else batches[:5]:
            end(accumulator, batch)
        if late:
            assert pool.idle_bytes == 0
        else:
            assert pool.idle_bytes > 0
            pool.keep_nothing()
            assert pool.idle_bytes == 0
            for batch in batches[5:]:
                end(accumulator, batch)
        assert (pool.used_bytes, pool.idle_bytes) == (0, 0)


def test_large_blocks_make_room_too() -> None:
    accumulator = make_accumulator(buffer_memory=1 << 20, batch_size=1 << 20)
    pool = accumulator.pool
    topic = add_topic(accumulator, leaders=[1] * 400)
    for _ in range(500):
        put(accumulator, topic, bytes(1024))
    for batch in drain_all(accumulator):
        end(accumulator, batch)
    assert pool.idle_bytes == 2048 + 2 * 16384 + 8 * 65536
    for partition in range(400):
        put(accumulator, topic, partition=partition)
        assert pool.used_bytes + pool.idle_bytes <= pool.total_bytes
    assert pool.idle_bytes < 65536 * 4


def test_block_size_follows_small_batches() -> None:
    """Blocks have 16 KiB, or the batch size if that is less."""
    assert make_accumulator(batch_size=1 << 20).pool.block_bytes == 16384
    assert make_accumulator(batch_size=500).pool.block_bytes == 500
    assert make_accumulator(batch_size=0).pool.block_bytes == 1


def test_views_are_read_only() -> None:
    """Sent data can't be modified through a view."""
    accumulator = make_accumulator()
    put(accumulator, add_topic(accumulator))
    (batch,) = drain_all(accumulator)
    (view,) = views_of(batch)
    assert view.readonly
    assert (view.format, view.itemsize, view.ndim, view.contiguous) == ("B", 1, 1, True)
    with pytest.raises(TypeError):
        view[0] = 1
    with pytest.raises(TypeError, match="read-write"):
        io.BytesIO(b"x").readinto(buffer_of(view))


def test_blocks_live_as_long_as_a_view() -> None:
    """A view keeps its block alive after accumulator, pool and batch are gone."""
    accumulator = make_accumulator()
    put(accumulator, add_topic(accumulator), b"payload")
    (batch,) = drain_all(accumulator)
    (view,) = views_of(batch)
    end(accumulator, batch)
    del batch, accumulator
    gc.collect()
    assert b"payload" in bytes(view)


def test_a_pool_that_is_dropped_leaves_nothing() -> None:
    """The blocks that it has kept for reuse do not keep it alive."""

    def life() -> None:
        accumulator = make_accumulator()
        put(accumulator, add_topic(accumulator))
        (batch,) = drain_all(accumulator)
        end(accumulator, batch)
        assert accumulator.pool.idle_bytes

    life()
    before = allocated_blocks()
    for _ in range(50):
        life()
    assert allocated_blocks() - before < 50


def test_owner_that_is_gone_is_not_told() -> None:
    """The pool does not keep it alive."""
    accumulator = make_accumulator()
    owner = Owner(accumulator.pool)
    told = owner.told
    put(accumulator, add_topic(accumulator))
    (batch,) = drain_all(accumulator)
    (view,) = views_of(batch)
    end(accumulator, batch)
    del owner
    del view
    assert not told
    assert accumulator.pool.used_bytes == 0


def test_views_that_go_together_with_the_pool() -> None:
    """The garbage collector may free them in any order, without an exception."""
    accumulator = make_accumulator()
    owner = Owner(accumulator.pool)
    ring: list[object] = [accumulator, owner]
    ring.append(ring)
    put(accumulator, add_topic(accumulator))
    (batch,) = drain_all(accumulator)
    ring.append(views_of(batch))
    end(accumulator, batch)
    gone = weakref.ref(owner)
    del accumulator, batch, ring, owner
    gc.collect()
    assert gone() is None


def test_collector_does_not_follow_what_is_sent() -> None:
    """There may be thousands of batches and blocks, and each pass of the collector would visit all of them."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=[1] * 100)
    gc.collect()
    before = followed()
    for partition in range(100):
        put(accumulator, topic, bytes(3000), partition=partition)
        put(accumulator, topic, bytes(3000), partition=partition)
    assert followed() == before


def test_a_batch_of_many_blocks_is_dropped() -> None:
    """A live batch is dropped in a thread with a small stack: blocks are freed one by one, not recursively."""
    accumulators: list[RecordAccumulator] = []

    def fill_and_drop() -> None:
        accumulators.append(make_accumulator(batch_size=1 << 30, buffer_memory=1 << 30))
        topic = add_topic(accumulators[0])
        for _ in range(6000):
            put(accumulators[0], topic, bytes(16384))
        accumulators.clear()
        del topic
        gc.collect()

    before = threading.stack_size(64 << 10)
    try:
        thread = threading.Thread(target=fill_and_drop)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert not accumulators


def test_a_pool_of_nothing() -> None:
    """With no memory at all nothing is admitted."""
    accumulator = make_accumulator(buffer_memory=0)
    assert accumulator.append(add_topic(accumulator), 0, None, None, None, 0, 0) is None
    pool = BufferPool(0, 1)
    assert (pool.total_bytes, pool.available_bytes, pool.used_bytes) == (0, 0, 0)
