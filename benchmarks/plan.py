"""The parts of a bench: cases, clients, and the server they publish to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from benchmarks.payloads import KEY_BYTES
from benchmarks.peers import Client

Pattern = Literal["publish", "tasks", "gather", "paced", "start", "requests", "beside"]
ServerKind = Literal["sink", "sink that wants metrics", "distant sink", "broker", "three brokers"]
METRICS_INTERVAL_MS = 1_000
DISTANCE_MS = 100
"""How late a distant sink answers: about the round trip between two continents."""

SMALL_VALUE_BYTES = 100
LARGE_VALUE_SHARE = 0.4
"""Large records are slower for every client, so a run of the same length needs fewer of them."""


@dataclass(frozen=True, slots=True)
class Case:
    """One column of a table; the same for each client.

    Attributes:
        pattern: ``publish`` sends a number of records at full speed; in ``tasks``, ``tasks`` tasks each send and wait
            repeatedly for some seconds; ``gather`` repeatedly sends ``tasks`` records at once and waits for all;
            ``paced`` sends ``rate`` records per second, without waiting for earlier acknowledgements; ``start``
            repeatedly creates a client, starts it, sends one record and closes it; in ``requests``, ``tasks``
            connections send requests to a web application that answers each when its record is acknowledged; in
            ``beside`` they request something else, while the application publishes ``rate`` records per second.
        topics: number of topics the records go to in turn, with ``partitions`` each.
        tls: whether the records go over TLS.
        ticker: whether a task that wakes every millisecond measures how long the event loop is blocked.
        http: the request parser of a web application, ``h11`` or ``httptools``.
        transactional: whether each record is a transaction, whose marker takes an offset too.
        gc_frozen: whether it calls ``gc.freeze()`` and collects less often.
        share: part of a client's usual number of records, where all are slower than usual.
        quick: whether it is in the short plan too.
    """

    name: str
    value_bytes: int
    codec: str
    linger_ms: int = 5
    pattern: Pattern = "publish"
    tasks: int = 0
    rate: int = 0
    batch_size: int | None = None
    partitions: int = 6
    topics: int = 1
    ticker: bool = False
    tls: bool = False
    transactional: bool = False
    http: str = "httptools"
    gc_frozen: bool = False
    share: float = 1.0
    quick: bool = True


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a run.

    Attributes:
        key: its name in `runner.Run.figures`.
        scale: factor from the figure to the unit shown.
    """

    key: str
    title: str
    unit: str
    scale: float
    less_is_better: bool


CPU = Measure("cpu_seconds_per_million", "client CPU seconds per million records", "s", 1, True)
RATE = Measure("records_per_second", "records/s, thousands", "k/s", 1e-3, False)
SERVER_CPU = Measure("server_cpu_seconds_per_million", "server CPU seconds per million records", "s", 1, True)
MEMORY = Measure("peak_rss_bytes", "peak resident memory of the client, MB", "MB", 1e-6, True)
P50 = Measure("p50_ms", "wait for the acknowledgement, p50 ms", "ms", 1, True)
P99 = Measure("p99_ms", "wait for the acknowledgement, p99 ms", "ms", 1, True)
START = Measure("p50_ms", "start() to the first acknowledgement, median ms", "ms", 1, True)
TRANSACTIONS = Measure("records_per_second", "transactions/s", "/s", 1, False)
TRANSACTION_P50 = Measure("p50_ms", "from its begin to the end of its commit, p50 ms", "ms", 1, True)
TRANSACTION_P99 = Measure("p99_ms", "from its begin to the end of its commit, p99 ms", "ms", 1, True)
TRANSACTION_CPU = Measure("cpu_seconds_per_million", "client CPU, us a transaction", "us", 1, True)
REQUESTS = Measure("records_per_second", "requests/s", "/s", 1, False)
REQUEST_CPU = Measure("cpu_seconds_per_million", "CPU of the application, us a request", "us", 1, True)
ANSWER_P50 = Measure("p50_ms", "wait for the answer, p50 ms", "ms", 1, True)
ANSWER_P99 = Measure("p99_ms", "wait for the answer, p99 ms", "ms", 1, True)
EVENTS = Measure("events_per_second", "events/s published in the background, thousands", "k/s", 1e-3, False)
GAP_P99_9 = Measure("gap_p99_9_ms", "what the loop was held beyond 1 ms, p99.9 ms", "ms", 1, True)
GAP_MAX = Measure("gap_max_ms", "what the loop was held beyond 1 ms, longest ms", "ms", 1, True)
RUNNING_P99_9 = Measure(
    "gap_running_p99_9_ms", "the same without its thread's wait for a processor, p99.9 ms", "ms", 1, True
)
RUNNING_MAX = Measure(
    "gap_running_max_ms", "the same without its thread's wait for a processor, longest ms", "ms", 1, True
)


@dataclass(frozen=True, slots=True)
class Bench:
    """One question, answered by one table per measure; the first measure is also drawn."""

    slug: str
    question: str
    server: ServerKind
    cases: tuple[Case, ...]
    clients: tuple[Client, ...]
    measures: tuple[Measure, ...]

    @property
    def quick(self) -> bool:
        """Whether it is part of the short plan."""
        return any(case.quick for case in self.cases)

    def shortened(self) -> Bench:
        """Return the bench with its cases of the short plan; if it has none there, with all."""
        return replace(self, cases=tuple(case for case in self.cases if case.quick)) if self.quick else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The size of a run.

    Attributes:
        repeats: rounds; in each one every client runs every case once.
        share: share of a client's usual number of records.
        seconds: length of a run that waits for acknowledgements.
    """

    repeats: int
    share: float
    seconds: float

    def records(self, client: Client, case: Case) -> int:
        """Return the number of records in the measured section, in whole thousands."""
        share = self.share * case.share * (1 if case.value_bytes <= SMALL_VALUE_BYTES else LARGE_VALUE_SHARE)
        return max(2_000, round(client.records * share / 1_000) * 1_000)

    def warmup_records(self, client: Client, case: Case) -> int:
        """Return the number of warm-up records: a tenth, and enough to fill every partition's batch once."""
        return max(2_000, self.records(client, case) // 10)

    def payload_bytes(self, client: Client, case: Case) -> int:
        """Return the bytes of keys and values, warm-up included, if the run is limited by records, not seconds."""
        records = self.records(client, case) + self.warmup_records(client, case)
        return records * (KEY_BYTES + case.value_bytes) if case.pattern == "publish" else 0


FULL = Effort(repeats=3, share=1.0, seconds=5.0)
QUICK = Effort(repeats=1, share=0.1, seconds=1.0)
WARM_UP = Effort(repeats=1, share=0.5, seconds=2.0)
"""Uncounted runs on a cold broker: else the first client pays for the JVM's compiler."""

RECORD_CASES = (
    Case("100 B none", 100, "none"),
    Case("1 KB none", 1_024, "none", quick=False),
    Case("100 B lz4", 100, "lz4", quick=False),
    Case("1 KB lz4", 1_024, "lz4", quick=False),
)
