"""Runs the plan: every client in a fresh process, clients interleaved, each run checked."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from benchmarks.peers import Client
from benchmarks.peers.base import Settings
from benchmarks.plan import Bench, Case, Effort
from benchmarks.servers import Server, Visit
from benchmarks.worker import Job, Outcome

TIMEOUT_S = 180
REPOSITORY = Path(__file__).parent.parent


@dataclass(slots=True)
class Run:
    """One run of one client.

    Attributes:
        figures: by the keys of `plan.Measure`; empty if the run failed.
        problems: why it does not count; empty for a run in which client and server agree on every record.
        strangers_cores: cores used by other programs meanwhile.
    """

    bench: str
    case: str
    client: str
    repeat: int
    figures: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    strangers_cores: float = 0.0


def planned(bench: Bench, clients: list[Client], repeats: int) -> Iterator[tuple[int, Case, Client]]:
    """Yield repeat, case and client in running order.

    Round by round, so that a slow minute affects all clients alike, and each round in a different order, so that no
    client always follows the same one, whose writes a broker may still be busy with. Every plan has the same orders.
    """
    for repeat in range(repeats):
        for case in bench.cases:
            order = list(clients)
            random.Random(f"{bench.slug}, {case.name}, {repeat}").shuffle(order)
            for client in order:
                yield repeat, case, client


def run_bench(
    bench: Bench, clients: list[Client], server: Server, effort: Effort, started: Callable[[str], None]
) -> Iterator[Run]:
    """Run one bench and yield each run as it ends; calls ``started`` with what begins."""
    for repeat, case, client in planned(bench, clients, effort.repeats):
        started(f"{bench.slug}: {case.name}, {client.name}, {repeat + 1} of {effort.repeats}")
        yield run_once(Run(bench.slug, case.name, client.name, repeat), case, client, server, effort)


def run_once(run: Run, case: Case, client: Client, server: Server, effort: Effort) -> Run:
    """Run one client once and fill in the result."""
    usage = MachineUsage()
    outcome = None
    with server.visit(case.codec, case.partitions, effort.payload_bytes(client, case)) as visit:
        job = job_for(case, client, visit, effort)
        done = work(job) if job.settings.bootstrap else "this server has no listener for TLS"
        if isinstance(done, Outcome):
            outcome = done
            visit.sent = outcome.sent * (2 if case.transactional else 1)
    if outcome is None:
        run.problems.append(str(done))
        return run
    run.problems += problems(job, outcome) + visit.problems
    run.figures = figures(outcome, visit)
    run.strangers_cores = usage.strangers_cores(0.0 if server.reaped else visit.server_cpu_seconds or 0.0)
    return run


def job_for(case: Case, client: Client, visit: Visit, effort: Effort) -> Job:
    """Return the worker's job."""
    settings = Settings(
        bootstrap=visit.tls_bootstrap if case.tls else visit.bootstrap,
        topic=visit.topic,
        topics=case.topics,
        codec=case.codec,
        linger_ms=case.linger_ms,
        batch_size=case.batch_size,
        ca_pem=visit.ca_pem if case.tls else "",
    )
    publishes = case.pattern == "publish"
    return Job(
        client=client.name,
        pattern=case.pattern,
        value_bytes=case.value_bytes,
        settings=settings,
        warmup_records=effort.warmup_records(client, case) if publishes else 0,
        records=effort.records(client, case) if publishes else 0,
        tasks=case.tasks,
        rate=case.rate,
        ticker=case.ticker,
        http=case.http,
        gc_frozen=case.gc_frozen,
        seconds=0.0 if publishes else effort.seconds,
    )


def work(job: Job, under: Sequence[str] = ()) -> Outcome | str:
    """Run the job in a separate process; a string says why it did not finish.

    Args:
        under: a command that runs and observes it, such as ``perf record``.
    """
    command = [*under, sys.executable, "-m", "benchmarks.worker", job.to_json()]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return f"not done after {TIMEOUT_S} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def problems(job: Job, outcome: Outcome) -> list[str]:
    """Return the problems reported by the client itself."""
    found = [f"{outcome.failed} records failed"] if outcome.failed else []
    asked = job.warmup_records + job.records
    if job.pattern == "publish" and outcome.sent != asked:
        found.append(f"{outcome.sent} records ended, not {asked}")
    return found


def figures(outcome: Outcome, visit: Visit) -> dict[str, float]:
    """Return the compared figures."""
    if not outcome.records:
        return {}
    found = {
        "cpu_seconds_per_million": outcome.cpu_seconds / outcome.records * 1e6,
        "records_per_second": outcome.records / outcome.seconds,
        "peak_rss_bytes": float(outcome.peak_rss_bytes),
        **{f"{name}_ms": value for name, value in outcome.latencies_ms.items()},
        **{f"gap_{name}_ms": value for name, value in outcome.gaps_ms.items()},
    }
    if outcome.events:
        found["events_per_second"] = outcome.events / outcome.seconds
    if visit.server_cpu_seconds is not None and outcome.sent:
        found["server_cpu_seconds_per_million"] = visit.server_cpu_seconds / outcome.sent * 1e6
    return found


class MachineUsage:
    """How busy the machine is, excluding client, server and this program."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._busy_seconds = self._busy()
        self._own_seconds = self._own()

    def strangers_cores(self, server_cpu_seconds: float) -> float:
        """Return the cores used by others since creation, given the usage of a server that still runs."""
        own = self._own() - self._own_seconds + server_cpu_seconds
        return max(0.0, (self._busy() - self._busy_seconds - own) / (time.perf_counter() - self._started))

    @staticmethod
    def _busy() -> float:
        times = psutil.cpu_times()._asdict()
        return float(sum(times.get(name, 0.0) for name in ("user", "nice", "system", "irq", "softirq")))

    @staticmethod
    def _own() -> float:
        total = 0.0
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            used = resource.getrusage(who)
            total += used.ru_utime + used.ru_stime
        return total


def as_json(runs: list[Run]) -> list[dict[str, object]]:
    """Return the raw figures."""
    return [asdict(run) for run in runs]
