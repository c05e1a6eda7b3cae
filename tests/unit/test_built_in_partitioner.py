"""Which partition the accumulator chooses: by key, sticky and adaptive without one, round robin, or explicit."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from aioproducer._accumulator import RecordAccumulator
from aioproducer._producer_batch import PartitionQueue, ProducerBatch
from tests.unit.core import (
    TOPIC_ID,
    add_topic,
    drain,
    drain_all,
    end,
    make_accumulator,
    put,
)


def keyless(
    accumulator: RecordAccumulator, count: int, *, size: int = 100, now_ms: int = 0
) -> collections.Counter[int]:
    """Append keyless records, drain everything, and count the records of each partition."""
    topic = accumulator.topic("orders")
    assert topic is not None
    for _ in range(count):
        put(accumulator, topic, bytes(size), partition=-1, now_ms=now_ms)
    counts: collections.Counter[int] = collections.Counter()
    for node in 1, 2, -1:
        for batch in drain_all(accumulator, node, now_ms=now_ms):
            counts[batch.partition] += batch.record_count
            end(accumulator, batch)
    return counts


def test_sticks_to_a_partition() -> None:
    """Keyless records go to one partition until it has about sticky_size bytes, so that batches fill up."""
    accumulator = make_accumulator(batch_size=1000, sticky_size=1000, linger_ms=1000)
    topic = add_topic(accumulator, leaders=[1] * 10)
    for _ in range(60):
        put(accumulator, topic, bytes(100), partition=-1)
    batches = drain_all(accumulator)
    assert [batch.record_count for batch in batches] in ([8] * 7 + [4], [4] + [8] * 7) or sorted(
        batch.record_count for batch in batches
    ) == [4] + [8] * 7


def test_the_batch_that_is_left_does_not_linger() -> None:
    """No record without a key comes to it any more, so that waiting would only delay its records."""
    accumulator = make_accumulator(batch_size=1000, sticky_size=1000, linger_ms=1000)
    topic = add_topic(accumulator, leaders=[1] * 10)
    for _ in range(8):
        put(accumulator, topic, bytes(100), partition=-1)
    assert not drain(accumulator)
    put(accumulator, topic, bytes(100), partition=-1)
    assert [batch.record_count for batch in drain(accumulator)] == [8]


def test_sticky_is_uniform() -> None:
    """Over many batches every partition gets its share, even at full speed."""
    accumulator = make_accumulator(batch_size=200, sticky_size=200)
    add_topic(accumulator, leaders=[1] * 4)
    total: collections.Counter[int] = collections.Counter()
    for _ in range(1000):
        total += keyless(accumulator, 2)
    assert set(total) == {0, 1, 2, 3}
    assert all(400 <= count <= 600 for count in total.values()), total


def test_sticky_leaves_a_lingering_partition_in_the_end() -> None:
    """Even if records are so rare that each is sent alone, they change partition after about sticky_size bytes."""
    accumulator = make_accumulator(batch_size=1000, sticky_size=1000, linger_ms=0)
    topic = add_topic(accumulator, leaders=[1] * 100)
    visits: list[int] = []
    for _ in range(300):
        put(accumulator, topic, bytes(79), partition=-1)  # 100 bytes with a record's largest overhead, and the header
        (batch,) = drain_all(accumulator)
        visits.append(batch.partition)
        end(accumulator, batch)
    lengths = collections.Counter(len(run) for run in _runs(visits))
    # 162 bytes each: the seventh exceeds sticky_size, and no batch is half filled then.
    assert lengths[7] > 30, lengths


def _runs(values: list[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs


def test_sticky_avoids_partitions_without_a_leader() -> None:
    """Keyless records go where there is a leader; to any partition if there is none."""
    accumulator = make_accumulator(batch_size=200, sticky_size=200)
    add_topic(accumulator, leaders=[-1, 1, -1, 1])
    assert set(keyless(accumulator, 100)) == {1, 3}
    accumulator.update_topic("orders", TOPIC_ID, [(-1, 1)] * 4)
    assert set(keyless(accumulator, 100)) == {0, 1, 2, 3}


def test_keyless_records_leave_a_partition_that_loses_its_leader() -> None:
    """They do not wait for the end of its share: a program that awaits each record would take hours for that."""
    accumulator = make_accumulator()
    add_topic(accumulator, leaders=[1] * 3)
    (stuck,) = keyless(accumulator, 1)
    accumulator.update_topic("orders", TOPIC_ID, [(-1 if number == stuck else 1, 1) for number in range(3)])
    (healthy,) = keyless(accumulator, 1)
    assert healthy != stuck


def test_keyless_records_go_to_the_first_partition_that_gets_a_leader_again() -> None:
    """Chosen while no partition had a leader, a partition is not kept once another one has."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=[-1] * 3)
    put(accumulator, topic, partition=-1)
    (chosen,) = {batch.partition for batch in drain_all(accumulator, -1)}
    led = (chosen + 1) % 3
    accumulator.update_topic("orders", TOPIC_ID, [(1 if number == led else -1, 1) for number in range(3)])
    assert set(keyless(accumulator, 5)) == {led}


def test_a_key_ignores_leaders() -> None:
    """The partition of a key depends on the key alone."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=[1, 1, 1])
    put(accumulator, topic, key=b"key", partition=-1)
    (before,) = drain_all(accumulator)
    accumulator.update_topic("orders", TOPIC_ID, [(-1, 1)] * 3)
    put(accumulator, topic, key=b"key", partition=-1)
    (after,) = drain_all(accumulator, -1)
    assert before.partition == after.partition


def test_empty_key_is_a_key() -> None:
    """Only null counts as no key."""
    accumulator = make_accumulator(batch_size=200, sticky_size=200)
    topic = add_topic(accumulator, leaders=[1] * 12)
    for _ in range(50):
        put(accumulator, topic, bytes(100), key=b"", partition=-1)
    assert {batch.partition for batch in drain_all(accumulator)} == {9}


def test_ignored_keys() -> None:
    """With partitioner_ignore_keys a key does not choose."""
    accumulator = make_accumulator(batch_size=200, sticky_size=200, partitioner="sticky")
    topic = add_topic(accumulator, leaders=[1] * 12)
    for _ in range(50):
        put(accumulator, topic, bytes(100), key=b"same", partition=-1)
    assert len({batch.partition for batch in drain_all(accumulator)}) > 5


class Choices:
    """Records which partitions are chosen for keyless records.

    Args:
        leaders: the leaders of the partitions of its topic.
        waiting: how many batches wait in each partition.
    """

    def __init__(self, leaders: list[int], *, waiting: list[int] | None = None, **options: Any) -> None:
        self.accumulator = make_accumulator(batch_size=1000, sticky_size=1000, **options)
        self.topic = add_topic(self.accumulator, leaders=[1] * len(leaders))
        for partition in range(len(leaders)):
            put(self.accumulator, self.topic, partition=partition)
        batches = drain_all(self.accumulator)
        self.queues = [batch.queue for batch in batches]
        for batch in batches:
            end(self.accumulator, batch)
        self.accumulator.update_topic("orders", TOPIC_ID, [(leader, 0) for leader in leaders])
        for partition, length in enumerate(waiting or []):
            for _ in range(length):
                put(self.accumulator, self.topic, partition=partition)
                self.accumulator.close_all()

    @property
    def lengths(self) -> list[int]:
        return [len(queue) for queue in self.queues]

    def add(self, count: int, *, now_ms: int = 0) -> list[int]:
        """The partitions chosen for that many keyless records, each as large as a batch."""
        chosen = []
        for _ in range(count):
            before = self.lengths
            put(self.accumulator, self.topic, bytes(2000), partition=-1, now_ms=now_ms)
            (partition,) = (at for at, length in enumerate(self.lengths) if length != before[at])
            chosen.append(partition)
        return chosen

    def count(self, draws: int) -> collections.Counter[int]:
        """How often each partition is chosen while the queues stay as they are."""
        counts: collections.Counter[int] = collections.Counter()
        for _ in range(draws):
            (partition,) = self.add(1)
            self.accumulator.close_all()
            self._drop_newest(self.queues[partition])
            counts[partition] += 1
        return counts

    def _drop_newest(self, queue: PartitionQueue) -> None:
        taken: list[ProducerBatch] = []
        while len(queue):
            taken += self.accumulator.drain(queue.leader, 1, 0, lambda batch: batch.queue is queue, 0)[0]
        end(self.accumulator, taken.pop())
        for batch in taken:
            self.accumulator.requeue(batch, 0, 0)


@pytest.mark.parametrize(
    ("lengths", "weights"),
    [([0, 0, 0], [1, 1, 1]), ([3, 0, 1], [1, 4, 3]), ([5, 5, 0], [1, 1, 6]), ([2, 2, 2], [1, 1, 1])],
)
def test_adaptive_weights(lengths: list[int], weights: list[int]) -> None:
    """The chance of a partition is (longest queue + 1) - its own queue (KIP-794)."""
    draws = 600
    counts = Choices([1, 1, 1], waiting=lengths).count(draws)
    for partition, weight in enumerate(weights):
        share = weight / sum(weights)
        deviation = (draws * share * (1 - share)) ** 0.5
        assert abs(counts[partition] - draws * share) < 4 * deviation, counts


@pytest.mark.parametrize("waiting", [[9, 0], [0, 9]])
def test_not_adaptive(waiting: list[int]) -> None:
    """With adaptive partitioning off, queues do not count."""
    counts = Choices([1, 1], waiting=waiting, adaptive=False).count(400)
    assert all(160 <= counts[partition] <= 240 for partition in (0, 1)), counts


def test_availability_timeout() -> None:
    """Brokers to which nothing could be sent for longer than the timeout are skipped until they are available."""
    choices = Choices([1, 2], availability_timeout_ms=50)
    choices.accumulator.node_stalled(2, 100)
    assert set(choices.add(40, now_ms=150)) == {0, 1}
    assert set(choices.add(40, now_ms=151)) == {0}
    drain(choices.accumulator, 2)
    assert set(choices.add(40, now_ms=151)) == {0, 1}


@pytest.mark.parametrize("end", ["expired", "moved"])
def test_a_broker_for_which_nothing_waits_any_more_is_tried_again(end: str) -> None:
    """A record shows whether it is back; without one it would be skipped for ever."""
    choices = Choices([1, 2], availability_timeout_ms=50)
    put(choices.accumulator, choices.topic, partition=1)
    choices.accumulator.close_all()
    choices.accumulator.node_stalled(2, 0)
    assert set(choices.add(40, now_ms=1000)) == {0}
    if end == "expired":
        assert choices.accumulator.expire(120_000)
    else:
        choices.accumulator.update_topic("orders", TOPIC_ID, [(1, 1), (1, 1)])
        choices.accumulator.update_topic("orders", TOPIC_ID, [(1, 2), (2, 2)])
        drain(choices.accumulator, 1)
    assert 1 in choices.add(40, now_ms=500_001)


def test_no_availability_timeout() -> None:
    """Without the timeout an unavailable broker gets its share."""
    choices = Choices([1, 2], adaptive=False)
    choices.accumulator.node_stalled(2, 0)
    assert set(choices.add(40, now_ms=10**6)) == {0, 1}


def test_stall_counts_from_its_beginning() -> None:
    """A broker is skipped as long as it is unavailable, however often that is noticed."""
    choices = Choices([1, 2], availability_timeout_ms=50)
    for now_ms in range(0, 100, 10):
        choices.accumulator.node_stalled(2, now_ms)
    assert set(choices.add(40, now_ms=51)) == {0}


def test_all_left_out() -> None:
    """If all brokers would be skipped, none is."""
    choices = Choices([1, 2], availability_timeout_ms=50)
    choices.accumulator.node_stalled(1, 0)
    choices.accumulator.node_stalled(2, 0)
    assert set(choices.add(40, now_ms=1000)) == {0, 1}


def test_near_leaders_are_preferred() -> None:
    """Keyless records go to partitions led in the program's own rack, as long as there is one that has a leader."""
    choices = Choices([1, 2, 3, 2])
    choices.accumulator.prefer(frozenset({2, 9}))
    assert set(choices.add(40)) == {1, 3}
    choices.accumulator.update_topic("orders", TOPIC_ID, [(1, 1), (-1, 1), (3, 1), (2, 1)])
    assert set(choices.add(40)) == {3}
    choices.accumulator.update_topic("orders", TOPIC_ID, [(1, 2), (-1, 2), (3, 2), (-1, 2)])
    assert set(choices.add(40)) == {0, 2}


def test_no_near_leader() -> None:
    """Where none is near, or all near ones are out of reach, records go anywhere."""
    choices = Choices([1, 2, 3], availability_timeout_ms=50)
    choices.accumulator.prefer(frozenset({9}))
    assert set(choices.add(60)) == {0, 1, 2}
    choices.accumulator.prefer(frozenset({2}))
    choices.accumulator.node_stalled(2, 0)
    assert set(choices.add(60, now_ms=50)) == {1}
    assert set(choices.add(60, now_ms=51)) == {0, 2}
    choices.accumulator.prefer(frozenset())
    drain(choices.accumulator, 2)
    assert set(choices.add(60, now_ms=51)) == {0, 1, 2}


def test_near_partitions_with_long_queues_get_less() -> None:
    """Queues of others don't count."""
    choices = Choices([1, 1, 2], waiting=[3, 0, 90])
    choices.accumulator.prefer(frozenset({1}))
    draws = 500
    counts = choices.count(draws)
    assert counts[2] == 0
    assert abs(counts[0] - draws / 5) < 4 * (draws * 0.2 * 0.8) ** 0.5, counts


def test_a_key_ignores_racks() -> None:
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=[1, 1, 1])
    put(accumulator, topic, key=b"key", partition=-1)
    (before,) = drain_all(accumulator)
    for near in range(3):
        accumulator.update_topic("orders", TOPIC_ID, [(2 if each == near else 1, near + 1) for each in range(3)])
        accumulator.prefer(frozenset({2}))
        put(accumulator, topic, key=b"key", partition=-1)
        (after,) = drain_all(accumulator, 1) + drain_all(accumulator, 2)
        assert before.partition == after.partition


def test_round_robin() -> None:
    """Records, even with keys, rotate over all partitions with a leader; over all partitions if none has one."""
    accumulator = make_accumulator(partitioner="round_robin")
    topic = add_topic(accumulator, leaders=[1, -1, 1])
    assert keyless(accumulator, 10) == {0: 5, 2: 5}
    for _ in range(10):
        put(accumulator, topic, key=b"same", partition=-1)
    assert sorted(batch.record_count for batch in drain_all(accumulator)) == [5, 5]
    accumulator.update_topic("orders", TOPIC_ID, [(-1, 1)] * 3)
    assert sorted(keyless(accumulator, 9).values()) == [3, 3, 3]


def test_round_robin_in_order() -> None:
    """One partition after the other."""
    accumulator = make_accumulator(partitioner="round_robin", batch_size=100)
    topic = add_topic(accumulator, leaders=[1] * 3)
    for _ in range(6):
        put(accumulator, topic, bytes(100), partition=-1)
    batches = sorted(drain_all(accumulator), key=lambda batch: batch.serial)
    assert [batch.partition for batch in batches] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("partitioner", ["round_robin", "murmur2_random"])
def test_a_leader_may_have_the_number_zero(partitioner: str) -> None:
    accumulator = make_accumulator(partitioner=partitioner, batch_size=200, sticky_size=200)
    topic = add_topic(accumulator, leaders=[0, 1, -1])
    chosen = {put(accumulator, topic, bytes(100), partition=-1).partition for _ in range(100)}
    assert chosen == {0, 1}


def test_explicit_partition_wins() -> None:
    """A partition named by the caller is used, even with a key, with round robin, or without a leader."""
    everything: list[dict[str, Any]] = [{}, {"partitioner": "round_robin"}, {"partitioner": "consistent"}]
    for options in everything:
        accumulator = make_accumulator(**options)
        topic = add_topic(accumulator, leaders=[1, 1, -1])
        put(accumulator, topic, key=b"key", partition=2)
        (batch,) = drain_all(accumulator, -1)
        assert batch.partition == 2


def test_sticky_partition_that_is_gone() -> None:
    """Keyless records do not stick to a partition that no longer exists."""
    accumulator = make_accumulator(seed=3)
    topic = add_topic(accumulator, leaders=[1] * 50)
    put(accumulator, topic, partition=-1)
    accumulator.update_topic("orders", TOPIC_ID, [(1, 0)])
    put(accumulator, topic, partition=-1)
    assert {batch.partition for batch in drain_all(accumulator)} == {0}


def test_same_seed_same_choices() -> None:
    """The given generator is the only source of randomness."""
    runs = []
    for _ in range(2):
        accumulator = make_accumulator(batch_size=200, sticky_size=200, seed=11)
        topic = add_topic(accumulator, leaders=[1] * 20)
        for _ in range(100):
            put(accumulator, topic, bytes(100), partition=-1)
        runs.append([batch.partition for batch in drain_all(accumulator)])
    assert runs[0] == runs[1]
