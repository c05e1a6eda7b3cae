"""Does a record cost the same, whether the program writes to one topic or to ten thousand?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import TOPIC_PUBLISHERS
from benchmarks.plan import CPU, MEMORY, RATE, Bench, Case

BENCH: Final = Bench(
    slug="topics",
    question=__doc__,
    server="sink",
    cases=tuple(
        Case(f"{count:,} topic{'s' if count > 1 else ''}", 100, "none", partitions=1, topics=count, quick=False)
        for count in (1, 10, 100, 1_000, 10_000)
    ),
    clients=TOPIC_PUBLISHERS,
    measures=(CPU, RATE, MEMORY),
)
