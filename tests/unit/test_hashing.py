"""murmur2 against Kafka's own hashes and against plain Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._hashing import murmur2
from tests.reference import murmur2 as reference
from tests.unit.core import add_topic, drain_all, make_accumulator, put

VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "vectors.json").read_text())["murmur2"]

each_vector = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["key_hex"][:24] or "empty")


@each_vector
def test_hash_is_kafkas(vector: dict[str, Any]) -> None:
    """The hash of every golden key equals what Kafka's Utils.murmur2 gave, and so does the reference's."""
    key = bytes.fromhex(vector["key_hex"])
    assert murmur2(key) == vector["hash_signed"]
    assert reference.murmur2(key) == vector["hash_signed"]


@each_vector
@pytest.mark.parametrize("partitions", [1, 3, 7, 12, 100, 1000])
def test_partition_is_kafkas(vector: dict[str, Any], partitions: int) -> None:
    """A keyed record goes to the partition that Kafka's own partitioner chooses, even if it has no leader."""
    accumulator = make_accumulator()
    topic = add_topic(accumulator, leaders=[-1] * partitions)
    put(accumulator, topic, key=bytes.fromhex(vector["key_hex"]), partition=-1)
    (batch,) = drain_all(accumulator, -1)
    assert batch.partition == vector[f"p{partitions}"]


@given(st.binary(max_size=200))
def test_hash_of_any_key(key: bytes) -> None:
    """Any bytes hash as in plain Python."""
    assert murmur2(key) == reference.murmur2(key)


@given(st.binary(min_size=4, max_size=64), st.integers(0, 3))
def test_hash_does_not_depend_on_alignment(key: bytes, shift: int) -> None:
    """Each length of the tail hashes as in plain Python."""
    assert murmur2(key[shift:]) == reference.murmur2(key[shift:])


@pytest.mark.parametrize("wrong", [None, "text", bytearray(b"x"), 5])
def test_only_bytes(wrong: Any) -> None:
    """Anything but bytes is refused, not hashed in some form."""
    with pytest.raises(TypeError):
        murmur2(wrong)
