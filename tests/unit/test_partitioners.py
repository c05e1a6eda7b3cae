"""Partitioners of other clients; tests/broker/test_partitioning.py compares them with librdkafka itself."""

from __future__ import annotations

from collections import Counter

import pytest

from aioproducer import PartitionInfo
from aioproducer._hashing import fnv1a
from aioproducer.partitioners import BUILT_IN, LIBRDKAFKA

PARTITIONS = tuple(PartitionInfo("orders", number, 1, (1,), (1,), ()) for number in range(7))


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
