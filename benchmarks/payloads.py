"""The records every client sends: the same keys and JSON values, created before anything is measured."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator

KeyValue = tuple[bytes, bytes]

KEY_BYTES = 16
POOL_RECORDS = 8_192
"""Distinct records: one of six partitions sees 160 KB of small ones before a repetition, beyond lz4's window."""

WORDS = (
    "order",
    "paid",
    "ship",
    "cart",
    "user",
    "item",
    "price",
    "total",
    "stock",
    "store",
    "city",
    "street",
    "north",
    "south",
    "east",
    "west",
    "green",
    "blue",
    "red",
    "small",
    "large",
    "first",
    "last",
    "early",
    "late",
    "open",
    "close",
    "retry",
    "cancel",
    "refund",
    "email",
    "phone",
    "mobile",
    "desktop",
    "session",
    "click",
    "view",
    "search",
)


def pool(value_bytes: int, records: int = POOL_RECORDS, seed: int = 20_260_101) -> list[KeyValue]:
    """Return pairs of a 16-byte key and a JSON value of exactly ``value_bytes``, the same for the same seed."""
    rng = random.Random(seed)
    return [(b"user-%011d" % rng.randrange(10**11), json_value(rng, value_bytes)) for _ in range(records)]


def json_value(rng: random.Random, size_bytes: int) -> bytes:
    """Return a JSON object of exactly ``size_bytes`` ASCII bytes: a few numbers, then filler words."""
    event = {
        "id": f"{rng.getrandbits(48):012x}",
        "at": 1_700_000_000_000 + rng.randrange(10**10),
        "n": rng.randrange(1_000),
    }
    head = json.dumps(event, separators=(",", ":"))[:-1] + ',"text":"'
    missing = size_bytes - len(head) - len('"}')
    if missing < 0:
        raise ValueError(f"a value has at least {size_bytes - missing} bytes, not {size_bytes}")
    text = ""
    while len(text) < missing:
        text += f"{rng.choice(WORDS)} {rng.randrange(10_000)} "
    return f'{head}{text[:missing]}"}}'.encode("ascii")


def stream(records: list[KeyValue], count: int) -> Iterator[KeyValue]:
    """Return an iterator of ``count`` records, cycling through the pool from its first."""
    return itertools.islice(itertools.cycle(records), count)
