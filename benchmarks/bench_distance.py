"""How many records a second reach a cluster whose answers take 100 ms?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.peers import PUBLISHERS
from benchmarks.plan import CPU, MEMORY, RATE, RECORD_CASES, Bench

CLIENTS = ("aioproducer submit_nowait", "librdkafka", "franz-go", "java", "confluent", "aiokafka")

BENCH: Final = Bench(
    slug="distance",
    question=__doc__,
    server="distant sink",
    cases=tuple(replace(case, share=0.25, quick=False) for case in RECORD_CASES),
    clients=tuple(client for client in PUBLISHERS if client.name in CLIENTS),
    measures=(RATE, CPU, MEMORY),
)
