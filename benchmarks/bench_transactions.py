"""How many transactions a second can one producer commit, if each has one record and begins when the last one ended?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import TRANSACTION_SENDERS
from benchmarks.plan import TRANSACTION_CPU, TRANSACTION_P50, TRANSACTION_P99, TRANSACTIONS, Bench, Case

BENCH: Final = Bench(
    slug="transactions",
    question=__doc__,
    server="three brokers",
    cases=(Case("one record", 100, "none", pattern="tasks", tasks=1, transactional=True, quick=False),),
    clients=TRANSACTION_SENDERS,
    measures=(TRANSACTIONS, TRANSACTION_P50, TRANSACTION_P99, TRANSACTION_CPU),
)
