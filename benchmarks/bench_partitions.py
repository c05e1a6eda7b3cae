"""Does a record cost the same, whether its topic has one partition or a thousand?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import PUBLISHERS
from benchmarks.plan import CPU, RATE, Bench, Case

CLIENTS = ("aioproducer submit_nowait", "aioproducer submit", "franz-go", "confluent", "aiokafka")

BENCH: Final = Bench(
    slug="partitions",
    question=__doc__,
    server="sink",
    cases=tuple(
        Case(f"{count:,} partition{'s' if count > 1 else ''}", 100, "none", partitions=count, quick=False)
        for count in (1, 10, 100, 1_000)
    ),
    clients=tuple(client for client in PUBLISHERS if client.name in CLIENTS),
    measures=(CPU, RATE),
)
