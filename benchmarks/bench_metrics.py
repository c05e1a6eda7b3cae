"""What do metrics that are read every second cost at full speed?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import METRICS_PUBLISHERS
from benchmarks.plan import CPU, RATE, Bench, Case

BENCH: Final = Bench(
    slug="metrics",
    question=__doc__,
    server="sink that wants metrics",
    cases=(Case("100 B none", 100, "none", quick=False),),
    clients=METRICS_PUBLISHERS,
    measures=(CPU, RATE),
)
