"""Numbers that the documentation promises are those of the constants in the code.

The tests of a module use its constants by their names, and would not notice another value.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer import (
    batch_outcomes,
    cluster,
    failure_report,
    log_limit,
    metadata,
    patient_timer,
    sealer,
    sender,
    start_count,
)
from aioproducer.config import batching
from aioproducer.integrations.schema_registry import http_limits
from aioproducer.net import client, dialer, node, nodes
from aioproducer.net.sasl import scram, token_cache
from aioproducer.spark import exactly_once
from aioproducer.telemetry import client_telemetry
from aioproducer.transaction import manager

DOCS = Path(__file__).parent.parent / "docs"
NUMBERS: list[tuple[str, str, object, object]] = [
    (
        "security.md",
        "asks for fewer than 4,096 iterations, or for more than a million, is refused",
        (scram.MIN_ITERATIONS, scram.MAX_ITERATIONS),
        (4_096, 1_000_000),
    ),
    (
        "security.md",
        "or has not finished after 5 seconds, the last token is used while it is valid, and the next attempt follows "
        "after 10 seconds",
        (token_cache.PATIENCE_S, token_cache.RETRY_MS),
        (5, 10_000),
    ),
    (
        "troubleshooting.md",
        "more than 20 producers were started within a minute",
        (start_count.MANY, start_count.WITHIN_MS),
        (20, 60_000),
    ),
    ("observability.md", "(at most once in ten seconds)", failure_report.LOG_FAILURES_EVERY_MS, 10_000),
    (
        "observability.md",
        "(each at most once a minute for a topic, and for 20 topics)",
        (log_limit.WARN_EVERY_MS, batch_outcomes.MOST_WARNED),
        (60_000, 20),
    ),
    ("security.md", "Once it has refused for 5 seconds", node.REFUSAL_LASTS_MS, 5_000),
    ("observability.md", "one last time, for at most a quarter of a second", client_telemetry.LAST_PUSH_S, 0.25),
    ("deployment.md", "one thread fewer than the limit has cores, at most four", sealer.MOST_WORKERS, 4),
    ("guarantees.md", "what waits gets 0.1 s more, once", patient_timer.LATE_MS, 100),
    ("guarantees.md", "more than a second after it first refused the repeated batch", manager.LATE_COPY_MS, 1_000),
    ("guarantees.md", "after a second, the producer asks another broker", nodes.SLOW_MS, 1_000),
    ("guarantees.md", "that does not accept the connection within 1.5 s gets", dialer.ACCEPT_MS, 1_500),
    ("serialization.md", "An answer of more than 10 MiB is refused", http_limits.MAX_ANSWER_BYTES, 10 << 20),
    ("architecture.md", "waits for the last one, for at most a second", client.LAST_ANSWERS_MS, 1_000),
    ("architecture.md", "A broker that has been sent 1 MB in a turn", sender.WRITTEN_A_TURN, 1_000_000),
    (
        "architecture.md",
        "is read in steps of 4 KiB, and merged and adopted in steps of 256 topics and partitions",
        (metadata.STEP_BYTES, cluster.STEP),
        (4 << 10, 256),
    ),
    ("architecture.md", "counts from the fifth such answer in a row on", cluster.OUTDATED_BELIEVED, 5),
    ("architecture.md", "up to fifty times the default", batching.LINGER_STRETCH, 50),
    ("architecture.md", "Tasks of eight claims in a row share no transactional id", exactly_once.TURNS, 8),
]


@pytest.mark.parametrize(("page", "promise", "found", "promised"), NUMBERS, ids=lambda each: str(each)[:40])
def test_constants_are_as_promised(page: str, promise: str, found: object, promised: object) -> None:
    """A constant is changed together with the sentence that promises it."""
    assert promise in " ".join((DOCS / page).read_text().split())
    assert found == promised
