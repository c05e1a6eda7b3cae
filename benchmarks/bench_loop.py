"""How long is the event loop held while a client publishes at full speed?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import PUBLISHERS
from benchmarks.plan import GAP_MAX, GAP_P99_9, RATE, RUNNING_MAX, RUNNING_P99_9, Bench, Case

MIB = 1024 * 1024
ON_THE_LOOP = ("aioproducer", "aiokafka")

BENCH: Final = Bench(
    slug="loop",
    question=__doc__,
    server="sink",
    cases=(
        Case("100 B none", 100, "none", ticker=True),
        Case("1 KB zstd, batches of 1 MiB", 1_024, "zstd", batch_size=MIB, ticker=True, quick=False),
        Case("1 KB gzip, batches of 1 MiB", 1_024, "gzip", batch_size=MIB, ticker=True, quick=False),
    ),
    clients=tuple(client for client in PUBLISHERS if client.package in ON_THE_LOOP),
    measures=(GAP_P99_9, GAP_MAX, RUNNING_P99_9, RUNNING_MAX, RATE),
)
