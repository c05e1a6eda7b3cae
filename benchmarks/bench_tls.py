"""What does TLS cost: records a second into a real Kafka over TLS, and the CPU of a million of them?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import PUBLISHERS
from benchmarks.plan import CPU, RATE, SERVER_CPU, Bench, Case

CLIENTS = ("aioproducer submit_nowait", "confluent", "aiokafka")

BENCH: Final = Bench(
    slug="tls",
    question=__doc__,
    server="broker",
    cases=(
        Case("1 KB", 1_024, "none", quick=False),
        Case("1 KB TLS", 1_024, "none", tls=True, quick=False),
        Case("1 KB lz4 TLS", 1_024, "lz4", tls=True, quick=False),
    ),
    clients=tuple(client for client in PUBLISHERS if client.name in CLIENTS),
    measures=(RATE, CPU, SERVER_CPU),
)
