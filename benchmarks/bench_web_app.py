"""How many requests a second does a FastAPI application answer when each waits for its record's acknowledgement?"""

from __future__ import annotations

from typing import Final

from benchmarks.peers import WEB_CLIENTS
from benchmarks.plan import ANSWER_P50, ANSWER_P99, REQUEST_CPU, REQUESTS, Bench, Case

CONNECTIONS = 64


def case(name: str, http: str, *, gc_frozen: bool) -> Case:
    """One way to run uvicorn; linger 0, for that is where the other clients answer soonest."""
    return Case(
        name,
        100,
        "none",
        linger_ms=0,
        pattern="requests",
        tasks=CONNECTIONS,
        http=http,
        gc_frozen=gc_frozen,
        quick=False,
    )


BENCH: Final = Bench(
    slug="web-app",
    question=__doc__,
    server="broker",
    cases=(
        case("h11", "h11", gc_frozen=False),
        case("h11, gc.freeze()", "h11", gc_frozen=True),
        case("httptools", "httptools", gc_frozen=False),
        case("httptools, gc.freeze()", "httptools", gc_frozen=True),
    ),
    clients=tuple(client for client in WEB_CLIENTS if client.name != "confluent-aio"),
    measures=(REQUESTS, REQUEST_CPU, ANSWER_P50, ANSWER_P99),
)
