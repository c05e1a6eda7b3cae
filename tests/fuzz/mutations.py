"""Seeded mutations, as caused by faults of memory, networks and peers."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

NUMBERS = (
    *(struct.pack(">b", value) for value in (-1, 0, 1, 127, -128)),
    *(struct.pack(">h", value) for value in (-1, 0, 1, 0x7FFF, -0x8000)),
    *(struct.pack(">i", value) for value in (-1, 0, 1, 0x7FFFFFFF, -0x80000000, 0x00FFFFFF)),
    *(struct.pack(">q", value) for value in (-1, 0, 0x7FFFFFFFFFFFFFFF, -0x8000000000000000)),
    *(b"\x80", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
)
"""Edge values of lengths, counts and varints."""
LONGEST = 1 << 14


def mutated(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """The input with one to five mutations; pieces may come from ``others``."""
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        rng.choice(_DAMAGES)(damaged, others, rng)
    return bytes(damaged[:LONGEST])


def _flip(data: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _count(data: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    """Change a number by one, for lengths that are almost right."""
    if data:
        at = rng.randrange(len(data))
        data[at] = (data[at] + rng.choice((-1, 1))) % 256


def _overwrite(data: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    number = rng.choice(NUMBERS)
    at = rng.randrange(len(data) + 1)
    data[at : at + len(number)] = number


def _insert(data: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(NUMBERS) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1, 9))


def _cut(data: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _remove(data: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.randrange(1, 9)]


def _repeat(data: bytearray, _: Sequence[bytes], rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = data[at : at + rng.randrange(1, 33)]


def _splice(data: bytearray, others: Sequence[bytes], rng: random.Random) -> None:
    other = rng.choice(others)
    at = rng.randrange(len(data) + 1)
    data[at:] = other[rng.randrange(len(other) + 1) :]


_DAMAGES = (_flip, _set, _count, _overwrite, _overwrite, _insert, _cut, _remove, _repeat, _splice)
