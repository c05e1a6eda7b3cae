"""The runs in which a web server publishes: this process sends requests, the application is measured."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator

import psutil

from benchmarks import payloads
from benchmarks.http_load import Answers, Connection, connect, load, request
from benchmarks.web_app import WebJob

WARMUP_SECONDS_SHARE = 0.4
"""More than for other runs: an application's first thousand requests are slow."""
END_TIMEOUT_S = 60
WITHOUT = "without Kafka"
"""The client that publishes nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class WebRun:
    """The result of one run.

    Attributes:
        sent: records passed to the producer in the whole run.
        answers: answers in the measured section, which took the application ``cpu_seconds`` in all its threads.
        events: events published in the background meanwhile.
    """

    sent: int
    failed: int
    answers: Answers
    cpu_seconds: float
    rss_bytes: int
    events: int


async def awaited(job: WebJob, connections: int, seconds: float) -> WebRun:
    """Each request carries an event, and is answered when Kafka has it."""
    async with serving(job) as (address, process):
        links = [await connect(address) for _ in range(connections)]
        requests = events()
        warmup = await load(links, requests, seconds * WARMUP_SECONDS_SHARE)
        cpu_before = cpu_seconds(process)
        answers = await load(links, requests, seconds)
        used, rss = cpu_seconds(process) - cpu_before, process.memory_info().rss
        close(links)
    sent = 0 if job.client == WITHOUT else warmup.good + answers.good
    return WebRun(sent, warmup.failed + answers.failed, answers, used, rss, 0)


async def beside(job: WebJob, connections: int, rate: int, seconds: float) -> WebRun:
    """Requests unrelated to Kafka, while ``rate`` events per second are published in the background."""
    async with serving(job) as (address, process):
        control, *links = [await connect(address) for _ in range(connections + 1)]
        requests = itertools.repeat(request("GET", "/other"))
        if job.client != WITHOUT:
            await control.ask(request("POST", f"/background?rate={rate}"))
        warmup = await load(links, requests, seconds * WARMUP_SECONDS_SHARE)
        cpu_before, events_before = cpu_seconds(process), await published(control)
        answers = await load(links, requests, seconds)
        events_after = await published(control)
        used, rss = cpu_seconds(process) - cpu_before, process.memory_info().rss
        sent = json.loads(await control.ask(request("DELETE", "/background")))["events"]
        close([control, *links])
    return WebRun(sent, warmup.failed + answers.failed, answers, used, rss, events_after - events_before)


def events() -> Iterator[bytes]:
    """Requests with the benches' own records: the key is the customer, the value the text."""
    pool = [
        request("POST", "/events", json.dumps({"customer": key.decode(), "text": value.decode()}).encode())
        for key, value in payloads.pool(100)
    ]
    return itertools.cycle(pool)


async def published(control: Connection) -> int:
    """Number of events published in the background."""
    return int(json.loads(await control.ask(request("GET", "/background")))["events"])


def close(links: list[Connection]) -> None:
    """Close the connections, which the application would wait for at shutdown."""
    for link in links:
        link.close()


@contextlib.asynccontextmanager
async def serving(job: WebJob) -> AsyncIterator[tuple[tuple[str, int], psutil.Process]]:
    """Run the application during a block; then stop it, which sends what it still has.

    Raises:
        RuntimeError: it ended with an error, or too early.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.web_app", job.to_json(), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        port = await process.stdout.readline()
        if not port:
            raise RuntimeError(f"the application has not started: exit code {await process.wait()}")
        yield ("127.0.0.1", int(port)), psutil.Process(process.pid)
        process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(process.wait(), END_TIMEOUT_S)
        if code not in (0, -signal.SIGTERM):
            raise RuntimeError(f"the application ended with exit code {code}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def cpu_seconds(process: psutil.Process) -> float:
    """Return the user and system time of the application, all threads."""
    used = process.cpu_times()
    return float(used.user + used.system)
