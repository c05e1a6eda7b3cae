"""How long does a task wait for its record's acknowledgement, when 200 of them send at once as in a web server?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import SENDERS
from benchmarks.plan import CPU, P50, P99, RATE, Bench, Case

TASKS = 200

BENCH: Final = Bench(
    slug="web",
    question=__doc__,
    server="broker",
    cases=(
        Case("200 tasks, linger 5 ms", 100, "none", linger_ms=5, pattern="tasks", tasks=TASKS),
        Case("200 tasks, linger 0", 100, "none", linger_ms=0, pattern="tasks", tasks=TASKS, quick=False),
        Case("gather of 200, linger 5 ms", 100, "none", linger_ms=5, pattern="gather", tasks=TASKS, quick=False),
    ),
    clients=SENDERS,
    measures=(RATE, P50, P99, CPU),
)
