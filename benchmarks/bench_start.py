"""How long does it take from a new client to its first acknowledgement?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import SENDERS
from benchmarks.plan import CPU, START, Bench, Case

SLOW = "confluent-aio"
"""Its defaults wait a second for more records."""

BENCH: Final = Bench(
    slug="start",
    question=__doc__,
    server="broker",
    cases=(Case("start, send, close", 100, "none", pattern="start"),),
    clients=tuple(client for client in SENDERS if client.name != SLOW),
    measures=(START, CPU),
)
