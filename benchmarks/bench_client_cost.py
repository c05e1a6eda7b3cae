"""What does a million records cost the client, when the server does next to nothing?"""

from __future__ import annotations

import sys
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

if __name__ == "__main__":
    from benchmarks.__main__ import main

    sys.exit(main(["--only", BENCH.slug, *sys.argv[1:]]))
