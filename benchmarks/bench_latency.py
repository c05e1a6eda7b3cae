"""How long does a record wait for its acknowledgement at a steady 5,000 records a second?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import SENDERS
from benchmarks.plan import CPU, P50, P99, Bench, Case

RATE = 5_000

BENCH: Final = Bench(
    slug="latency",
    question=__doc__,
    server="broker",
    cases=(
        Case("5,000/s, linger 5 ms", 100, "none", linger_ms=5, pattern="paced", rate=RATE),
        Case("5,000/s, linger 0", 100, "none", linger_ms=0, pattern="paced", rate=RATE, quick=False),
    ),
    clients=SENDERS,
    measures=(P99, P50, CPU),
)
