"""Partitioners of other clients; tests/broker/test_partitioning.py compares them with librdkafka itself."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from aioproducer import PartitionInfo, Producer, Record
from aioproducer._hashing import fnv1a
from aioproducer.partitioners import BUILT_IN, LIBRDKAFKA
from tests.unit.core import add_topic, drain_all, make_accumulator, put
from tests.unit.producing_broker import ProducingBroker

PARTITIONS = tuple(PartitionInfo("orders", number, 1, (1,), (1,), ()) for number in range(7))
KEYS = [b"", b"a", b"\xff\x00", *(random.Random(5).randbytes(size) for size in range(200))]


def compiled(name: str, key: bytes | None, *, partitions: int = 7, records: int = 1) -> list[int]:
    """The partitions that the accumulator chooses."""
    accumulator = make_accumulator(partitioner=name)
    topic = add_topic(accumulator, leaders=[1] * partitions)
    for _ in range(records):
        put(accumulator, topic, key=key, partition=-1)
    return [batch.partition for batch in drain_all(accumulator) for _ in range(batch.record_count)]


@pytest.mark.parametrize(("key", "expected"), [(b"", 0x811C9DC5 - (1 << 32)), (b"a", 0xE40C292C - (1 << 32))])
def test_fnv1a_is_the_published_hash_without_its_sign(key: bytes, expected: int) -> None:
    assert fnv1a(key) == abs(expected)


@pytest.mark.parametrize("name", ["consistent", "murmur2", "fnv1a"])
def test_no_key_is_as_an_empty_one(name: str) -> None:
    chosen = {LIBRDKAFKA[name]("orders", key, b"v", PARTITIONS) for key in (None, b"", None)}
    assert len(chosen) == 1
    assert chosen <= set(range(7))


@pytest.mark.parametrize("name", ["consistent_random", "murmur2_random", "fnv1a_random"])
def test_records_without_a_key_are_left_to_the_built_in_choice(name: str) -> None:
    assert LIBRDKAFKA[name]("orders", None, b"v", PARTITIONS) is BUILT_IN


@pytest.mark.parametrize(("name", "key"), [("random", b"k"), ("random", None), ("consistent_random", b"")])
def test_a_random_choice_reaches_every_partition(name: str, key: bytes | None) -> None:
    chosen = Counter(LIBRDKAFKA[name]("orders", key, b"v", PARTITIONS) for _ in range(2_000))
    assert set(chosen) == set(range(7))


# --- compiled ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in LIBRDKAFKA if name != "random"])
@pytest.mark.parametrize("partitions", [1, 7, 1000])
def test_the_accumulator_puts_keys_where_the_functions_do(name: str, partitions: int) -> None:
    infos = [PartitionInfo("orders", number, 1, (1,), (1,), ()) for number in range(partitions)]
    for key in KEYS:
        function = LIBRDKAFKA["murmur2"] if name == "murmur2_random" else LIBRDKAFKA[name]
        if key or name != "consistent_random":
            assert compiled(name, key, partitions=partitions) == [function("orders", key, b"v", infos)]


def test_crc_32_is_the_published_one() -> None:
    assert compiled("consistent", b"123456789", partitions=10_007) == [0xCBF43926 % 10_007]


@pytest.mark.parametrize("name", ["consistent", "murmur2", "fnv1a"])
def test_the_accumulator_takes_no_key_for_an_empty_one(name: str) -> None:
    assert compiled(name, None, records=20) == compiled(name, b"", records=20)


@pytest.mark.parametrize("name", ["consistent_random", "murmur2_random", "fnv1a_random", "sticky"])
def test_the_accumulator_keeps_records_without_a_key_together(name: str) -> None:
    assert len(set(compiled(name, None, records=20))) == 1
    accumulator = make_accumulator(partitioner=name, batch_size=200, sticky_size=200)
    topic = add_topic(accumulator, leaders=[1] * 7)
    shares = {put(accumulator, topic, bytes(100), partition=-1).partition for _ in range(200)}
    assert shares == set(range(7))


@pytest.mark.parametrize(("name", "key"), [("random", b"k"), ("random", None), ("consistent_random", b"")])
def test_the_accumulator_puts_some_records_anywhere(name: str, key: bytes | None) -> None:
    assert set(compiled(name, key, records=500)) == set(range(7))


@pytest.mark.parametrize("partitions", [2, 7, 64, 1000])
def test_the_accumulator_chooses_each_partition_equally_often(partitions: int) -> None:
    """By the chi-square of single choices and of pairs in a row, within five deviations."""
    chosen = compiled_in_order("random", partitions=partitions, records=20 * partitions)
    assert chi_square(Counter(chosen), partitions) < partitions + 5 * (2 * partitions) ** 0.5
    few = compiled_in_order("random", partitions=5, records=1_000)
    assert chi_square(Counter(pairwise(few)), 25) < 25 + 5 * 50**0.5


@pytest.mark.parametrize(("name", "key"), [("random", None), ("consistent_random", b"")])
def test_random_choices_are_those_of_the_seed(name: str, key: bytes | None) -> None:
    first, again, other = (compiled_in_order(name, key=key, records=100, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("name", ["random", "consistent_random"])
def test_no_record_asks_python_for_its_random_partition(name: str) -> None:
    rng = random.Random(1)
    accumulator = make_accumulator(partitioner=name, random=rng)
    topic = add_topic(accumulator, leaders=[1] * 7)
    before = rng.getstate()
    put(accumulator, topic, key=b"", partition=-1)
    assert rng.getstate() == before


def compiled_in_order(
    name: str, *, key: bytes | None = None, partitions: int = 7, records: int, seed: int = 1
) -> list[int]:
    accumulator = make_accumulator(partitioner=name, seed=seed)
    topic = add_topic(accumulator, leaders=[1] * partitions)
    return [put(accumulator, topic, key=key, partition=-1).partition for _ in range(records)]


def chi_square(counts: Counter[Any], kinds: int) -> float:
    expected = counts.total() / kinds
    return sum((count - expected) ** 2 for count in counts.values()) / expected + (kinds - len(counts)) * expected


def test_the_accumulator_knows_every_partitioner() -> None:
    for name in LIBRDKAFKA:
        make_accumulator(partitioner=name)
    with pytest.raises(KeyError):
        make_accumulator(partitioner="unknown")


@pytest.mark.parametrize("name", [name for name in LIBRDKAFKA if name != "random"])
async def test_every_way_to_send_puts_keys_where_the_function_does(name: str) -> None:
    function = LIBRDKAFKA["murmur2"] if name == "murmur2_random" else LIBRDKAFKA[name]
    keys = [f"customer-{number}".encode() for number in range(30)]
    expected = [function("orders", key, None, PARTITIONS) for key in keys]
    async with (
        ProducingBroker({"orders": 7}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, partitioner_class=LIBRDKAFKA[name]) as producer,
    ):
        assert producer._preparation.is_trivial, "it runs Python code for each record"
        await producer.partitions_for("orders")
        deliveries = [producer.submit_nowait("orders", key=key) for key in keys]
        assert [(await delivery).partition for delivery in deliveries] == expected
        await producer.send_many("orders", [Record(key=key) for key in keys])
        await producer.send_arrow("orders", pa.table({"key": keys, "value": keys}))
        found = {partition: [one.key for one in records] for (_, partition), records in broker.log.items()}
    assert found == {
        partition: 3 * [key for key, chosen in zip(keys, expected, strict=True) if chosen == partition]
        for partition in set(expected)
    }
