"""How long does another endpoint take to answer while the application publishes 20,000 events/s in the background?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import WEB_CLIENTS
from benchmarks.plan import ANSWER_P50, ANSWER_P99, EVENTS, REQUESTS, Bench, Case

EVENTS_PER_SECOND = 20_000

BENCH: Final = Bench(
    slug="web-background",
    question=__doc__,
    server="broker",
    cases=(
        Case("64 connections", 100, "none", pattern="beside", tasks=64, rate=EVENTS_PER_SECOND, quick=False),
        Case("8 connections", 100, "none", pattern="beside", tasks=8, rate=EVENTS_PER_SECOND, quick=False),
    ),
    clients=tuple(client for client in WEB_CLIENTS if client.name != "confluent-aio tuned"),
    measures=(ANSWER_P99, ANSWER_P50, REQUESTS, EVENTS),
)
