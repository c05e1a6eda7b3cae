"""What does a million records cost the client, when the server does next to nothing?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import PUBLISHERS
from benchmarks.plan import CPU, MEMORY, RATE, RECORD_CASES, SERVER_CPU, Bench

BENCH: Final = Bench(
    slug="client-cost",
    question=__doc__,
    server="sink",
    cases=RECORD_CASES,
    clients=PUBLISHERS,
    measures=(CPU, RATE, MEMORY, SERVER_CPU),
)
