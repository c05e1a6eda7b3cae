"""Runs many seeds on all processors of the machine.

There are three kinds of runs, each with its own seeds: 17 has a producer without transactions, t17 one with them,
m17 a cluster that requests its metrics.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.run import Outcome

CPU_LIMIT_S = 60
"""The limit for one run. Runs take hundredths of a second, but an endless loop in one turn would never stop."""

CHUNK = 20

TRANSACTIONS = "t"
"""The prefix of seeds with transactions."""
METRICS = "m"
"""The prefix of seeds with a cluster that requests metrics."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run, small enough to be sent to another process."""

    seed: str
    complaints: tuple[str, ...]
    report: str
    digest: str
    records: int
    acked: int
    requests: int
    turns: int
    virtual_s: float


class HangsError(Exception):
    """A run has used more CPU time than any run needs."""


def simulation(seed: str) -> Outcome:
    """Run one seed of any kind."""
    from tests.simulation.run import simulate
    from tests.simulation.telemetry import simulate_telemetry
    from tests.simulation.transactions.run import simulate_transactions

    if seed.startswith(TRANSACTIONS):
        return simulate_transactions(int(seed.removeprefix(TRANSACTIONS)))
    if seed.startswith(METRICS):
        return simulate_telemetry(int(seed.removeprefix(METRICS)))
    return simulate(int(seed))


def one(seed: str) -> Result:
    """Run one seed, with a limit for its CPU time."""

    def hangs(number: int, frame: FrameType | None) -> None:
        raise HangsError(f"the run does not end; it is at {frame}")

    previous = signal.signal(signal.SIGVTALRM, hangs)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_LIMIT_S)
    try:
        outcome = simulation(seed)
    except Exception as error:
        return Result(
            seed, (f"the simulation itself failed: {error!r}",), f"seed {seed}: {error!r}", "", 0, 0, 0, 0, 0.0
        )
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
    gc.collect(1)
    return Result(
        seed,
        tuple(outcome.complaints),
        outcome.report() if outcome.failed else "",
        outcome.story.digest() if outcome.failed else "",
        outcome.records,
        outcome.acked,
        outcome.requests,
        outcome.turns,
        outcome.virtual_s,
    )


def several(seeds: Iterable[str]) -> list[Result]:
    """Run some seeds one after the other."""
    return [one(seed) for seed in seeds]


def prepare() -> None:
    """What a process does once before its first run."""
    import tests.simulation.telemetry
    import tests.simulation.transactions.run  # noqa: F401

    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()


def many(seeds: Sequence[str], *, jobs: int | None = None) -> Iterator[Result]:
    """Run seeds, in no particular order.

    Args:
        jobs: number of processes; None for one per processor.
    """
    jobs = jobs or os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=prepare) as pool:
        chunks = (seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK))
        running = {pool.submit(several, chunk) for chunk in itertools.islice(chunks, 2 * jobs)}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                running |= {pool.submit(several, chunk) for chunk in itertools.islice(chunks, len(done))}
                for future in done:
                    yield from future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def run(
    seeds: Sequence[str], *, jobs: int | None = None, most: int = 10, say: Callable[[str], None] = print
) -> list[Result]:
    """Run seeds with progress; the results that failed, at most ``most`` of them."""
    began = told = time.monotonic()
    failed: list[Result] = []
    done = records = requests = 0
    virtual_s = 0.0
    for result in many(seeds, jobs=jobs):
        done += 1
        records, requests, virtual_s = (
            records + result.records,
            requests + result.requests,
            virtual_s + result.virtual_s,
        )
        if result.complaints:
            failed.append(result)
            say(f"seed {result.seed}: {result.complaints[0]}")
            if len(failed) >= most:
                break
        if time.monotonic() - told > 10:
            told = time.monotonic()
            say(f"{done:,} of {len(seeds):,} seeds, {len(failed)} failed, {done / (told - began) * 60:,.0f} a minute")
    seconds = time.monotonic() - began
    say(
        f"{done:,} seeds in {seconds:,.0f} s ({done / seconds * 60:,.0f} a minute), {len(failed)} failed; {records:,} "
        f"records, {requests:,} requests, {virtual_s / 3600:,.1f} hours of the producer's time"
    )
    return failed


def parse(text: str) -> list[str]:
    """``1000`` is the first thousand, ``5000-6000`` those from 5000 up to 6000; ``t1000`` with transactions."""
    kind = text[:1] if text.startswith((TRANSACTIONS, METRICS)) else ""
    first, dash, last = text.removeprefix(kind).partition("-")
    return [f"{kind}{seed}" for seed in (range(int(first), int(last)) if dash else range(int(first)))]


def main(arguments: list[str]) -> int:
    """The command: counts or ranges of seeds; or ``seed N`` for one with its story."""
    if arguments[:1] == ["seed"]:
        prepare()
        outcome = simulation(arguments[1])
        sys.stdout.write(outcome.report() + "\n")
        return int(outcome.failed)
    parser = argparse.ArgumentParser(description="The producer under seeded faults.")
    parser.add_argument("seeds", nargs="*", default=["2000", "t2000"], help="5000, 5000-6000; t5000 with transactions")
    parser.add_argument("--jobs", type=int)
    options = parser.parse_args(arguments)
    failed = [result for text in options.seeds for result in run(parse(text), jobs=options.jobs)]
    for result in failed[:3]:
        sys.stdout.write(f"\n{result.report}\n")
    return int(bool(failed))
