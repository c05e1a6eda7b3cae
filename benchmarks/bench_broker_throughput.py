"""How many records a second reach a real Kafka on the same machine, and what does a million of them cost?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import PUBLISHERS
from benchmarks.plan import CPU, MEMORY, RATE, RECORD_CASES, SERVER_CPU, Bench

BENCH: Final = Bench(
    slug="broker-throughput",
    question=__doc__,
    server="broker",
    cases=RECORD_CASES,
    clients=PUBLISHERS,
    measures=(RATE, CPU, SERVER_CPU, MEMORY),
)
