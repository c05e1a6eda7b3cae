"""One run of one client in its own process: ``python -m benchmarks.worker JOB`` prints one JSON line.

The measured section lasts from the end of a warm-up to the last record's end. It excludes import, start, connecting,
creating the payloads and closing. CPU time is that of the whole process, so a client's threads count.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import os
import resource
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from benchmarks import payloads
from benchmarks.payloads import KeyValue
from benchmarks.peers import (
    METRICS_PUBLISHERS,
    PUBLISHERS,
    SENDERS,
    TOPIC_PUBLISHERS,
    TRANSACTION_SENDERS,
    WEB_CLIENTS,
    Client,
)
from benchmarks.peers.base import Ends, Sender, Settings
from benchmarks.plan import Pattern

WARMUP_SECONDS_SHARE = 0.2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run; `plan.Case` says what the patterns mean.

    Attributes:
        records: number sent in the measured section, for the pattern ``publish``.
        seconds: its length, for the other patterns.
    """

    client: str
    pattern: Pattern
    value_bytes: int
    settings: Settings
    warmup_records: int = 0
    records: int = 0
    tasks: int = 0
    rate: int = 0
    ticker: bool = False
    http: str = ""
    gc_frozen: bool = False
    seconds: float = 0.0

    def to_json(self) -> str:
        """Return the argument of the worker's command line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(**{**values, "settings": Settings(**values["settings"])})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one run.

    Attributes:
        sent: all records, warm-up included; `failed` of them were not acknowledged.
        records: acknowledged records, or answered requests, in the measured section, which took `seconds` and
            `cpu_seconds` (user and system).
        latencies_ms: p50, p99 and p99.9 of the wait for an acknowledgement; empty for the pattern ``publish``.
        events: events a web application published in the background in the measured section.
        started: when the measured section began, in seconds of the monotonic clock; only for the pattern ``publish``.
        gaps_ms: p99.9 and maximum delay of a 1 ms ticker, and the same without its thread's waits for a CPU (Linux);
            empty without a ticker.
    """

    sent: int
    failed: int
    records: int
    seconds: float
    cpu_seconds: float
    peak_rss_bytes: int
    latencies_ms: dict[str, float] = dataclasses.field(default_factory=dict)
    gaps_ms: dict[str, float] = dataclasses.field(default_factory=dict)
    events: int = 0
    started: float = 0.0


class ProcessorWait:
    """How long a thread was ready to run but had no CPU, because other threads and the kernel used them all.

    Source: the second number of /proc/thread-self/schedstat (Linux), in nanoseconds.
    """

    def __init__(self) -> None:
        try:
            self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._schedstat = -1

    @property
    def known(self) -> bool:
        """Whether this system reports it."""
        return self._schedstat >= 0

    def seconds(self) -> float:
        """Return the time so far of the thread that created this."""
        return int(os.pread(self._schedstat, 100, 0).split()[1]) / 1e9 if self.known else 0.0

    def close(self) -> None:
        """Stop reading."""
        if self.known:
            os.close(self._schedstat)


class Ticker:
    """Repeatedly sleeps for a millisecond inside the block, and records how late it woke."""

    TICK_S = 0.001

    def __init__(self) -> None:
        self._late = array("d")
        self._late_running = array("d")

    async def __aenter__(self) -> Ticker:
        self._wait = ProcessorWait()
        self._begin()
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._note_lateness()  # of a tick still due when the block ended
        self._task.cancel()
        await asyncio.wait([self._task])
        self._wait.close()

    async def _tick(self) -> None:
        while True:
            self._begin()
            await asyncio.sleep(self.TICK_S)
            self._note_lateness()

    def _begin(self) -> None:
        self._waited = self._wait.seconds()
        self._due = time.perf_counter() + self.TICK_S

    def _note_lateness(self) -> None:
        late = max(0.0, time.perf_counter() - self._due)  # timers with millisecond resolution may fire early
        self._late.append(late)
        if self._wait.known:
            self._late_running.append(max(0.0, late - (self._wait.seconds() - self._waited)))

    def gaps_ms(self) -> dict[str, float]:
        """Return p99.9 and maximum; empty if it never ran."""
        found = {}
        for prefix, late in (("", self._late), ("running_", self._late_running)):
            if late:
                found[f"{prefix}p99_9"] = percentiles_ms(late)["p99_9"]
                found[f"{prefix}max"] = max(late) * 1e3
        return found


class Section:
    """Wall and CPU time of a ``with`` block."""

    def __enter__(self) -> Section:
        self._cpu_seconds = cpu_seconds()
        self.started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.started
        self.cpu_seconds = cpu_seconds() - self._cpu_seconds


def cpu_seconds() -> float:
    """Return the user and system time of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_rss_bytes() -> int:
    """Return the greatest resident size so far.

    On Linux a child inherits its parent's peak in ``ru_maxrss``; VmHWM is the process's own.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


async def publish(job: Job, client: Client) -> Outcome:
    """Send a number of records as fast as the client can."""
    publisher = client.publisher(job.settings)
    pool = payloads.pool(job.value_bytes)
    await publisher.start()
    warmup = await publisher.publish_pool(pool, job.warmup_records)
    if job.ticker:
        # Else the collector now and then traverses all imported objects, for 13 ms unrelated to any client.
        gc.collect()
        gc.freeze()
    ticker = Ticker()
    async with ticker if job.ticker else contextlib.nullcontext():
        with Section() as section:
            ends = await publisher.publish_pool(pool, job.records)
    peak = peak_rss_bytes()
    await publisher.stop()
    return Outcome(
        sent=warmup.acked + warmup.failed + ends.acked + ends.failed,
        failed=warmup.failed + ends.failed,
        records=ends.acked,
        seconds=section.seconds if ends.seconds is None else ends.seconds,
        cpu_seconds=section.cpu_seconds if ends.cpu_seconds is None else ends.cpu_seconds,
        peak_rss_bytes=peak if ends.peak_rss_bytes is None else ends.peak_rss_bytes,
        gaps_ms=ticker.gaps_ms(),
        started=section.started,
    )


async def wait(job: Job, client: Client) -> Outcome:
    """Send for some seconds; each record's task waits for its acknowledgement."""
    sender = client.sender(job.settings)
    pool = payloads.pool(job.value_bytes)
    records = payloads.stream(pool, sys.maxsize)
    pattern = {"tasks": in_tasks, "gather": in_gathers, "paced": in_step}[job.pattern]
    width = job.rate if job.pattern == "paced" else job.tasks
    latencies = array("d")
    await sender.start()
    warmup = await pattern(sender, records, width, job.seconds * WARMUP_SECONDS_SHARE, lambda seconds: None)
    with Section() as section:
        ends = await pattern(sender, records, width, job.seconds, latencies.append)
    peak = peak_rss_bytes()
    await sender.stop()
    return Outcome(
        sent=warmup.acked + warmup.failed + ends.acked + ends.failed,
        failed=warmup.failed + ends.failed,
        records=ends.acked,
        seconds=section.seconds,
        cpu_seconds=section.cpu_seconds,
        peak_rss_bytes=peak,
        latencies_ms=percentiles_ms(latencies),
    )


async def ask(job: Job, client: Client) -> Outcome:
    """Send requests to a web application for some seconds; CPU and memory are the application's."""
    from benchmarks import web_worker  # its imports would count as memory of the other patterns' clients
    from benchmarks.web_app import WebJob

    web_job = WebJob(client.name, job.settings, job.http, job.gc_frozen)
    if job.pattern == "requests":
        done = await web_worker.awaited(web_job, job.tasks, job.seconds)
    else:
        done = await web_worker.beside(web_job, job.tasks, job.rate, job.seconds)
    return Outcome(
        sent=done.sent,
        failed=done.failed,
        records=done.answers.good,
        seconds=done.answers.seconds,
        cpu_seconds=done.cpu_seconds,
        peak_rss_bytes=done.rss_bytes,
        latencies_ms=percentiles_ms(done.answers.waits),
        events=done.events,
    )


async def begin(job: Job, client: Client) -> Outcome:
    """Create a client, start it, send one record and close it, for some seconds; closing is not timed."""
    records = payloads.stream(payloads.pool(job.value_bytes, records=1), sys.maxsize)
    latencies = array("d")
    good = failed = 0
    deadline = time.perf_counter() + job.seconds
    with Section() as section:
        while time.perf_counter() < deadline:
            sender = client.sender(job.settings)
            started = time.perf_counter()
            await sender.start()
            if await timed(sender, next(records), lambda _: latencies.append(time.perf_counter() - started)):  # noqa: B023
                good += 1
            else:
                failed += 1
            await sender.stop()
    return Outcome(
        sent=good + failed,
        failed=failed,
        records=good,
        seconds=section.seconds,
        cpu_seconds=section.cpu_seconds,
        peak_rss_bytes=peak_rss_bytes(),
        latencies_ms=percentiles_ms(latencies),
    )


async def timed(sender: Sender, record: KeyValue, took: Callable[[float], None], started: float | None = None) -> bool:
    """Send one record and report its seconds, counted from now or from when it was due; False if it failed."""
    if started is None:
        started = time.perf_counter()
    try:
        await sender.send(*record)
    except Exception as error:
        print(f"a record failed: {error!r}", file=sys.stderr)
        return False
    took(time.perf_counter() - started)
    return True


async def in_tasks(
    sender: Sender, records: Iterator[KeyValue], tasks: int, seconds: float, took: Callable[[float], None]
) -> Ends:
    """Run ``tasks`` tasks, each sending one record after the other, until the time is over."""
    deadline = time.perf_counter() + seconds
    acked = failed = 0

    async def one_by_one() -> None:
        nonlocal acked, failed
        while time.perf_counter() < deadline:
            if await timed(sender, next(records), took):
                acked += 1
            else:
                failed += 1

    await asyncio.gather(*(one_by_one() for _ in range(tasks)))
    return Ends(acked, failed)


async def in_gathers(
    sender: Sender, records: Iterator[KeyValue], tasks: int, seconds: float, took: Callable[[float], None]
) -> Ends:
    """Repeatedly send ``tasks`` records at once and wait for all, until the time is over."""
    deadline = time.perf_counter() + seconds
    acked = failed = 0
    while time.perf_counter() < deadline:
        good = await asyncio.gather(*(timed(sender, record, took) for record in islice(records, tasks)))
        acked += sum(good)
        failed += len(good) - sum(good)
    return Ends(acked, failed)


async def in_step(
    sender: Sender, records: Iterator[KeyValue], rate: int, seconds: float, took: Callable[[float], None]
) -> Ends:
    """Send ``rate`` records per second, each when due; a late start counts as waiting."""
    began = time.perf_counter()
    tasks = []
    for number in range(round(rate * seconds)):
        due = began + number / rate
        if (early := due - time.perf_counter()) > 0:
            await asyncio.sleep(early)
        tasks.append(asyncio.create_task(timed(sender, next(records), took, due)))
    good = await asyncio.gather(*tasks)
    return Ends(sum(good), len(good) - sum(good))


def percentiles_ms(seconds: array[float]) -> dict[str, float]:
    """Return p50, p99 and p99.9 in milliseconds; empty without values."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    shares = {"p50": 0.5, "p99": 0.99, "p99_9": 0.999}
    return {name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3 for name, share in shares.items()}


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the loop recommended by the asyncio clients: uvloop, if installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def run(job: Job) -> Outcome:
    """Run the job."""
    known = {
        "publish": (*PUBLISHERS, *TOPIC_PUBLISHERS, *METRICS_PUBLISHERS),
        "requests": WEB_CLIENTS,
        "beside": WEB_CLIENTS,
    }
    clients = {client.name: client for client in known.get(job.pattern, (*SENDERS, *TRANSACTION_SENDERS))}
    pattern = {"publish": publish, "start": begin, "requests": ask, "beside": ask}.get(job.pattern, wait)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(pattern(job, clients[job.client]))


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(run(Job.from_json(sys.argv[1])))))
