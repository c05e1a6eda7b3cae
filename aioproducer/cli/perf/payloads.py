"""The content of the records. The same number gives the same record, so that two runs send the same."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from aioproducer.cli.outcome import CommandError

POOL_BYTES = 8 * 1024 * 1024
"""Bytes of random letters, used repeatedly: longer than any codec's window, so that it finds no repetition."""
MOST_VALUES = 65_536
LARGEST_BYTES = 256 * 1024 * 1024 - 1
"""Largest value or key; all are held in memory."""
KEYS = 10_000
"""Number of keys; fewer if they are too large for the pool."""
_LETTERS = bytes(ord("A") + byte % 26 for byte in range(256))

Make = Callable[[int], tuple[bytes, "bytes | None"]]
"""A record's number to its value and key."""


def random_letters(record_size: int, key_size: int, seed: int = 0) -> Make:
    """Records of capital letters, like those of kafka-producer-perf-test.

    Args:
        key_size: bytes; 0 for records without key.
    """
    rng = random.Random(seed)
    count = min(max(POOL_BYTES // max(record_size, 1), 1), MOST_VALUES)
    values = [rng.randbytes(record_size).translate(_LETTERS) for _ in range(count)]
    return _cycle(values, _keys(rng, key_size))


def from_file(path: Path, delimiter: str, key_size: int, seed: int = 0) -> Make:
    """Records from the pieces of a file, in random order.

    Args:
        delimiter: not empty; bytes that are not UTF-8 as ``os.fsdecode`` represents them.
    Raises:
        CommandError: it can't be read, or has no pieces.
    """
    try:
        pieces = [piece for piece in path.read_bytes().split(os.fsencode(delimiter)) if piece]
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}") from error
    if not pieces:
        raise CommandError(f"{path} has no payloads")
    rng = random.Random(seed)
    rng.shuffle(pieces)
    return _cycle(pieces, _keys(rng, key_size))


def _cycle(values: list[bytes], keys: list[bytes]) -> Make:
    count = len(values)
    if not keys:
        return lambda number: (values[number % count], None)
    return lambda number: (values[number % count], keys[number % len(keys)])


def _keys(rng: random.Random, size: int) -> list[bytes]:
    count = min(max(POOL_BYTES // size, 1), KEYS) if size else 0
    return [rng.randbytes(size).translate(_LETTERS) for _ in range(count)]
