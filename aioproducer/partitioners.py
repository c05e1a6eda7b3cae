"""Partitioners of other clients, for ``partitioner_class``: keys go to the partitions that those clients choose.

Each is ``f(topic, key, value, partitions)`` on serialized keys. The default puts keys where Kafka's Java client does,
like ``murmur2_random`` here. A producer that is given one of these functions does not call it: the same choice is part
of the compiled core (``BuiltInPartitioner``) and costs a record nothing.

Source: the config ``partitioner`` of librdkafka; the hash of Sarama is FNV-1a as well.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final, SupportsIndex, TypeAlias

from aioproducer._hashing import fnv1a as _fnv1a
from aioproducer._hashing import murmur2 as _murmur2
from aioproducer.records import PartitionInfo

_choice = random.Random()


class BuiltIn(Enum):
    """The type of BUILT_IN."""

    BUILT_IN = "the built-in choice"


BUILT_IN: Final = BuiltIn.BUILT_IN
"""A ``partitioner_class`` function may return this to leave the choice to the built-in partitioner."""

Partitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, tuple[PartitionInfo, ...]], SupportsIndex | BuiltIn]
"""A function of topic, key, value and partitions; key and value are serialized bytes."""


def consistent(topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[PartitionInfo]) -> int:
    """CRC-32 of the key; a missing key counts as an empty one."""
    return zlib.crc32(key or b"") % len(partitions)


def consistent_random(
    topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[PartitionInfo]
) -> int | BuiltIn:
    """CRC-32 of the key, librdkafka's default; an empty key goes anywhere, keyless records go batch by batch."""
    if key:
        return zlib.crc32(key) % len(partitions)
    return BUILT_IN if key is None else _choice.randrange(len(partitions))


def murmur2(topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[PartitionInfo]) -> int:
    """The Java client's hash of the key; a missing key counts as an empty one."""
    return (_murmur2(key or b"") & 0x7FFFFFFF) % len(partitions)


def murmur2_random(
    topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[PartitionInfo]
) -> int | BuiltIn:
    """The Java client's hash of the key; keyless records go batch by batch. The same as leaving the config out."""
    return BUILT_IN


def fnv1a(topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[PartitionInfo]) -> int:
    """FNV-1a of the key, as in Sarama; a missing key counts as an empty one."""
    return _fnv1a(key or b"") % len(partitions)


def fnv1a_random(
    topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[PartitionInfo]
) -> int | BuiltIn:
    """FNV-1a of the key, as in Sarama; keyless records go batch by batch."""
    return BUILT_IN if key is None else _fnv1a(key) % len(partitions)


def anywhere(topic: str, key: bytes | None, value: bytes | None, partitions: Sequence[PartitionInfo]) -> int:
    """Any partition, whatever the key; librdkafka's ``random``."""
    return _choice.randrange(len(partitions))


LIBRDKAFKA = MappingProxyType(
    {
        "consistent": consistent,
        "consistent_random": consistent_random,
        "murmur2": murmur2,
        "murmur2_random": murmur2_random,
        "fnv1a": fnv1a,
        "fnv1a_random": fnv1a_random,
        "random": anywhere,
    }
)
"""Partitioners by the values of librdkafka's config ``partitioner``."""
