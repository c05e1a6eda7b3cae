"""``python -m benchmarks``: run the benches, print their tables, write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import bench_instructions, bench_profile, report
from benchmarks.bench_broker_throughput import BENCH as BROKER_THROUGHPUT
from benchmarks.bench_client_cost import BENCH as CLIENT_COST
from benchmarks.bench_distance import BENCH as DISTANCE
from benchmarks.bench_latency import BENCH as LATENCY
from benchmarks.bench_loop import BENCH as LOOP
from benchmarks.bench_metrics import BENCH as METRICS
from benchmarks.bench_partitions import BENCH as PARTITIONS
from benchmarks.bench_start import BENCH as START
from benchmarks.bench_tls import BENCH as TLS
from benchmarks.bench_topics import BENCH as TOPICS
from benchmarks.bench_transactions import BENCH as TRANSACTIONS
from benchmarks.bench_web import BENCH as WEB
from benchmarks.bench_web_app import BENCH as WEB_APP
from benchmarks.bench_web_background import BENCH as WEB_BACKGROUND
from benchmarks.peers import (
    METRICS_PUBLISHERS,
    PUBLISHERS,
    SENDERS,
    TOPIC_PUBLISHERS,
    TRANSACTION_SENDERS,
    WEB_CLIENTS,
    Client,
)
from benchmarks.plan import DISTANCE_MS, FULL, METRICS_INTERVAL_MS, QUICK, WARM_UP, Bench, Effort
from benchmarks.runner import Run, as_json, run_bench
from benchmarks.servers import Server, SinkServer, broker

BENCHES = (
    CLIENT_COST,
    BROKER_THROUGHPUT,
    TLS,
    DISTANCE,
    WEB,
    WEB_APP,
    WEB_BACKGROUND,
    LATENCY,
    LOOP,
    PARTITIONS,
    TOPICS,
    METRICS,
    START,
    TRANSACTIONS,
)
STUDIES = (bench_profile, bench_instructions)
"""Studies of this producer alone, not comparisons."""
CLIENTS = (*PUBLISHERS, *TOPIC_PUBLISHERS, *METRICS_PUBLISHERS, *SENDERS, *TRANSACTION_SENDERS, *WEB_CLIENTS)
SLUGS = [*(bench.slug for bench in BENCHES), *(study.SLUG for study in STUDIES)]
FILE_WIDTH = 160
"""Line width in characters without a terminal; about that of the tables."""
REPOSITORY = Path(__file__).parent.parent
DOCS = REPOSITORY / "docs"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments select; 1 if a run could not be verified."""
    options = parser().parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else arguments
    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    benches = [bench for bench in BENCHES if not options.only or bench.slug in options.only]
    if options.quick:
        benches = [bench.shortened() for bench in benches if bench.quick or options.only]
    chosen = [client for client in CLIENTS if not options.clients or client.name in options.clients]
    available, skipped = sort_out(chosen)
    studies = [] if options.clients or (options.quick and not options.only) else chosen_studies(options, skipped)
    for line in skipped:
        console.print(f"skipped: {line}", style="yellow")
    effort = effort_of(options)
    parts: list[report.Section] = []
    with contextlib.ExitStack() as stack:
        servers: dict[str, Server] = {}
        for bench in benches:
            if bench.server not in servers:
                servers[bench.server] = start_server(bench, options.bootstrap, console, stack)
                warm_up(servers[bench.server], quick=options.quick, console=console)
            clients = [client for client in bench.clients if client in available]
            parts.append(run_part(bench, clients, servers[bench.server], effort, console))
    answers, troubles = run_studies(studies, effort, console)
    failed = bool(troubles) or any(run.problems for part in parts for run in part.runs)
    finish(parts, answers, skipped, options, console)
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    """Return the command line's description."""
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("--quick", action="store_true", help="about 80 seconds: one round of short runs, written to out/")
    made.add_argument("--only", action="append", choices=SLUGS, help="this bench; repeatable")
    names = sorted({client.name for client in CLIENTS})
    made.add_argument(
        "--clients", action="append", choices=names, metavar="NAME", help=f"repeatable; {', '.join(names)}"
    )
    made.add_argument("--bootstrap", metavar="HOST:PORT", help="a cluster that is there, instead of one of its own")
    made.add_argument("--repeats", type=int, help="rounds; a median and its spread need three")
    made.add_argument(
        "--update", action="store_true", help="put the tables of these benches into docs/benchmarks.md, the rest stays"
    )
    made.add_argument("--output", type=Path, help="folder to write to (docs for all benches and clients, else out)")
    return made


def effort_of(options: argparse.Namespace) -> Effort:
    """Return how long it may take."""
    effort = QUICK if options.quick else FULL
    if options.repeats is None:
        return effort
    return Effort(repeats=options.repeats, share=effort.share, seconds=effort.seconds)


def sort_out(clients: Sequence[Client]) -> tuple[list[Client], list[str]]:
    """Return the clients that can run here, and why the others can't."""
    reasons = {client: client.missing() for client in clients}
    available = [client for client, reason in reasons.items() if reason is None]
    return available, sorted({reason for reason in reasons.values() if reason is not None})


def start_server(bench: Bench, bootstrap: str | None, console: Console, stack: contextlib.ExitStack) -> Server:
    """Return the bench's server; a Kafka of our own lives as long as the stack."""
    if bench.server == "sink":
        return SinkServer()
    if bench.server == "sink that wants metrics":
        return SinkServer(METRICS_INTERVAL_MS)
    if bench.server == "distant sink":
        return SinkServer(answer_delay_ms=DISTANCE_MS)
    with console.status("starting Kafka"):
        return stack.enter_context(broker(bootstrap, 3 if bench.server == "three brokers" else 1))


def warm_up(server: Server, *, quick: bool, console: Console) -> None:
    """Warm up a cold server; these runs are not counted."""
    if server.warms_up:
        bench = BROKER_THROUGHPUT.shortened() if quick else BROKER_THROUGHPUT
        with console.status("warming Kafka up"):
            client = next(client for client in PUBLISHERS if client.name == "confluent")
            for _ in run_bench(bench, [client], server, WARM_UP, lambda text: None):
                pass


def run_part(bench: Bench, clients: list[Client], server: Server, effort: Effort, console: Console) -> report.Section:
    """Run one bench, show its progress, print its tables."""
    total = len(bench.cases) * len(clients) * effort.repeats
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    runs: list[Run] = []
    console.rule(bench.question)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(bench.slug, total=total)
        for run in run_bench(bench, clients, server, effort, lambda text: progress.update(task, description=text)):
            runs.append(run)
            progress.advance(task)
            for problem in run.problems:
                progress.console.print(f"{run.client}, {run.case}: {problem}", style="red", markup=False)
            if not console.is_terminal:
                console.print(f"{len(runs)} of {total}: {run.client}, {run.case}", markup=False)
    part = report.section(bench, clients, server.describe(), runs)
    for table in report.terminal_tables(part):
        console.print(table)
    console.print(part.verified())
    return part


def chosen_studies(options: argparse.Namespace, skipped: list[str]) -> list[ModuleType]:
    """Return the studies possible here; adds the reasons for others to the skipped ones."""
    reasons = {study: study.missing() for study in STUDIES if not options.only or study.SLUG in options.only}
    skipped += [reason for reason in reasons.values() if reason is not None]
    return [study for study, reason in reasons.items() if reason is None]


def run_studies(studies: list[ModuleType], effort: Effort, console: Console) -> tuple[list[report.Part], list[str]]:
    """Run them, showing progress; returns the answers and the problems."""
    answers: list[report.Part] = []
    troubles: list[str] = []
    for study in studies:
        console.rule(study.QUESTION)
        found, wrong = study.answer(effort, functools.partial(console.print, markup=False))
        answers.append(found)
        troubles += wrong
    for trouble in troubles:
        console.print(trouble, style="red", markup=False)
    for one in answers:
        console.print(Markdown("\n".join(one.markdown())))
    return answers, troubles


def finish(
    parts: list[report.Section],
    answers: list[report.Part],
    skipped: list[str],
    options: argparse.Namespace,
    console: Console,
) -> None:
    """Write the files; only a full run writes docs/."""
    partial = options.quick or options.only or options.clients or skipped
    directory = options.output or REPOSITORY / ("out" if partial else "docs")
    command = "make bench" if not partial else "python -m benchmarks"
    everything = [*parts, *answers]
    if options.update:
        paths = report.update(everything, f"python -m benchmarks {' '.join(options.arguments)}", options.output or DOCS)
    else:
        paths = report.write(everything, skipped, command, directory)
    raw = (options.output or REPOSITORY / "out") / "benchmarks.json"
    raw.parent.mkdir(exist_ok=True)
    raw.write_text(json.dumps([as_json(part.runs) for part in parts], indent=1))
    for path in (*paths, raw):
        console.print(f"written: {os.path.relpath(path)}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
