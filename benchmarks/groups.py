"""Which part of the work a function of the measured process does, by its name and library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Group:
    """Functions that do one job.

    Attributes:
        library, function: patterns that must both match; the first matching group counts.
        per_record: whether it runs for each record, independent of its batch.
        color: in pictures.
    """

    name: str
    use: str
    library: str
    function: str
    per_record: bool
    color: str


COPY: Final = Group("copying", "memcpy and memmove, whoever calls them", r"", r"mem(cpy|move)", True, "#e9a03b")
CHECKSUM: Final = Group("CRC-32C", "the package crc32c", r"crc32c", r"", False, "#edd56b")
CODEC: Final = Group("compression", "the codec's library", r"lz4|zstd|libz\b|zlib|snappy", r"", False, "#7f4f9a")
OTHER: Final = Group("other", "memory allocation of the C library, the loader", r"", r"", False, "#c8c8c8")

GROUPS: Final = (
    COPY,
    CHECKSUM,
    CODEC,
    Group("murmur2", "the key's hash: `_hashing`", r"/_hashing\.", r"", True, "#f2b5a7"),
    Group(
        "the call",
        "arguments, checks and what is returned: `_admission`, `_arguments`; `_feed` and `_arrow` in their place",
        r"/(_admission|_arguments|_feed|_arrow\w*)\.",
        r"",
        True,
        "#8c1c2f",
    ),
    Group(
        "append",
        "partition, batch, varints: `_accumulator`, `_producer_batch`, `_record_batch`, `_buffer_pool`",
        r"/(_accumulator|_built_in_partitioner|_producer_batch|_record_batch|_buffer_pool)\.",
        r"",
        True,
        "#d1495b",
    ),
    Group(
        "Deliveries",
        "how each record ended, for the program: `_delivery`, `_tally`, `_outcomes`",
        r"/(_delivery\w*|_tally|_outcomes)\.",
        r"",
        True,
        "#e88a96",
    ),
    Group("requests", "numbers, bytes of requests and answers: the rest", r"/aioproducer/", r"", False, "#b88b8f"),
    Group("clock", "reading the system's clocks", r"vdso", r"", True, "#9fc1a2"),
    Group("event loop", "uvloop", r"uvloop", r"", False, "#5b8e7d"),
    Group("kernel", "mostly the copy into the socket", r"kernel|unknown", r"", False, "#4a5a75"),
    Group(
        "interpreter",
        "CPython: the program's own loop, and what of the producer is Python",
        r"python",
        r"",
        False,
        "#8d99ae",
    ),
    OTHER,
)
"""The order matters: libraries of Python packages also have Python in their names."""


def group_of(function: str, library: str) -> Group:
    """Return the function's group."""
    return next(group for group in GROUPS if re.search(group.library, library) and re.search(group.function, function))
