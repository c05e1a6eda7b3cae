"""``python -m benchmarks.soak``: run the soak, print how it goes, write docs/soak.md."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import uvloop
from confluent_kafka import Consumer, TopicPartition

from aioproducer import Producer
from aioproducer.testing import KafkaCluster
from benchmarks.runner import MachineUsage
from benchmarks.soak import report
from benchmarks.soak.checks import Leftovers, checks
from benchmarks.soak.faults import BUSY_S, FREEZE_S, Faults
from benchmarks.soak.load import TASKS, Load, Tally
from benchmarks.soak.samples import Sample, Sampler, count_files, live_objects, open_files, used_bytes

REPOSITORY = Path(__file__).parent.parent.parent
FULL_MINUTES = 30.0
TOPICS = ("soak-a", "soak-b")
PARTITIONS = 6
TOPIC_CONFIG = {
    "min.insync.replicas": "2",
    # Old records are deleted at once: half an hour of full load is too much for the disk.
    "retention.bytes": str(32 << 20),
    "segment.bytes": str(16 << 20),
    "file.delete.delay.ms": "1000",
}
BROKER_CONFIG = {"log.retention.check.interval.ms": 3_000}
BUFFER_MEMORY = 32 << 20
PROGRESS_EVERY_S = 30.0
CORES_EVERY_S = 5.0
CALLBACKS_S = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Duration, interval between broker faults, and event loop."""

    minutes: float
    interval_s: float
    freeze_s: float
    loop: str


class CoresUsed:
    """CPU time of the brokers, which come and go, and of everything else."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._machine = MachineUsage()
        self._own = _own_seconds()
        self._before = _children_seconds()
        self._brokers: dict[int, float] = {}

    async def run(self) -> None:
        """Sample until cancelled; a broker's usage after its last sample counts as others'."""
        while True:
            await asyncio.sleep(CORES_EVERY_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Note the brokers' usage so far."""
        self._brokers |= _children_seconds()

    def result(self) -> report.Cores:
        """Cores used since creation."""
        elapsed_s = time.perf_counter() - self._began
        brokers_s = sum(used - self._before.get(pid, 0.0) for pid, used in self._brokers.items())
        return report.Cores(
            own=(_own_seconds() - self._own) / elapsed_s,
            brokers=brokers_s / elapsed_s,
            others=self._machine.strangers_cores(brokers_s),
        )


def _own_seconds() -> float:
    used = psutil.Process().cpu_times()
    return float(used.user + used.system)


def _children_seconds() -> dict[int, float]:
    found = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found[child.pid] = float(sum(child.cpu_times()[:2]))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak selected by the arguments; 1 if a check fails."""
    options = parser().parse_args(arguments)
    plan = Plan(options.minutes, options.interval, options.freeze, options.loop)
    soak = run(plan)
    for check in soak.checks:
        say(f"{'holds' if check.holds else 'DOES NOT HOLD'}: {check.what}: {check.found} ({check.bound})")
    out = options.output or REPOSITORY / "out"
    directory = out if options.output or plan.minutes < FULL_MINUTES else REPOSITORY / "docs"
    for path in report.write(soak, directory, out):
        say(f"written: {os.path.relpath(path)}")
    return 0 if soak.passed else 1


def parser() -> argparse.ArgumentParser:
    """Return the command line's description."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    made.add_argument("--minutes", type=float, default=FULL_MINUTES, help="a shorter run is written to out/")
    made.add_argument("--interval", type=float, default=45.0, help="seconds of peace between faults of brokers")
    made.add_argument("--freeze", type=float, default=FREEZE_S, help="seconds that a broker is frozen")
    made.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    made.add_argument("--output", type=Path, help="folder to write to (docs for a full run, else out)")
    return made


def say(text: str) -> None:
    """Print progress, flushed even if the output is a file."""
    print(text, flush=True)


def run(plan: Plan) -> report.Soak:
    """Start brokers, run the load, check the results."""
    cluster = KafkaCluster(3, properties=BROKER_CONFIG, start_timeout_s=BUSY_S, progress=say)
    with cluster, temporary_folder() as temporary:
        for topic in TOPICS:
            cluster.create_topic(topic, PARTITIONS, configs=TOPIC_CONFIG)
        factory = uvloop.new_event_loop if plan.loop == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(soak(plan, cluster, temporary))


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for only this process's temporary files, so that they can be counted."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before


async def soak(plan: Plan, cluster: KafkaCluster, temporary: Path) -> report.Soak:
    """Run the load while brokers come and go, then check what is left."""
    configs = {"bootstrap_servers": cluster.bootstrap_servers, "compression_type": "lz4"}
    await warm_up(configs)
    logged_before = await asyncio.to_thread(log_ends, cluster.bootstrap_servers)
    tasks_before, files_before, objects_before = asyncio.all_tasks(), open_files(), live_objects()
    rss_before = psutil.Process().memory_info().rss
    tally, faults, cores = Tally(), Faults(cluster, plan.interval_s, plan.freeze_s), CoresUsed()
    samples, pool_bytes = await under_load(plan, configs, temporary, tally, faults, cores)
    await counted(tally)
    await asyncio.to_thread(cores.look)
    used = cores.result()
    left = Leftovers(
        pool_bytes=pool_bytes,
        tasks=len(asyncio.all_tasks() - tasks_before),
        files=tuple(sorted(open_files() - files_before)),
        temporary_files=count_files(temporary),
        objects=live_objects() - objects_before,
        logged=await asyncio.to_thread(log_ends, cluster.bootstrap_servers) - logged_before,
    )
    return report.Soak(
        minutes=plan.minutes,
        loop=plan.loop,
        kafka=cluster.version,
        tasks=TASKS,
        samples=samples,
        faults=faults.done,
        tally=tally,
        cores=used,
        checks=checks(samples, tally, left, rss_before, BUFFER_MEMORY),
    )


async def under_load(
    plan: Plan, configs: dict[str, Any], temporary: Path, tally: Tally, faults: Faults, cores: CoresUsed
) -> tuple[list[Sample], int]:
    """Run the load; returns the samples, and the buffer memory still in use after the last flush.

    Nothing here outlives the call, so anything left of the producer afterwards is its own fault.
    """
    producer = Producer(buffer_memory=BUFFER_MEMORY, **configs)
    await producer.start()
    began = time.monotonic()
    sampler = Sampler(producer, tally, temporary, lambda: bool(faults.now), began)
    load = Load(producer, list(TOPICS), tally, configs)
    watchers = sampler.run(), cores.run(), progress(plan, sampler, tally, faults)
    watching = [asyncio.create_task(one) for one in watchers]
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            tasks.create_task(faults.run(began))
            tasks.create_task(stop_after(plan.minutes * 60, load, faults))
        await producer.flush()
        pool_bytes = used_bytes(producer)
    finally:
        for task in watching:
            task.cancel()
        ended = await asyncio.gather(*watching, return_exceptions=True)
        await producer.close()
    for error in ended:
        if isinstance(error, Exception):
            raise error
    return sampler.samples, pool_bytes


async def warm_up(configs: dict[str, Any]) -> None:
    """Create everything made once and kept, such as worker threads and imports, before anything is counted."""
    async with Producer(**configs) as producer:
        for topic in TOPICS:
            await producer.send(topic, None, partition=0)


async def counted(tally: Tally) -> None:
    """Let the done callbacks run, a few hundred per turn of the loop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CALLBACKS_S):
            while tally.pending:  # noqa: ASYNC110
                await asyncio.sleep(0)


async def stop_after(seconds: float, load: Load, faults: Faults) -> None:
    """End the faults in time for the cluster to heal, then the load."""
    await asyncio.sleep(seconds)
    faults.stop()
    load.stop()


async def progress(plan: Plan, sampler: Sampler, tally: Tally, faults: Faults) -> None:
    """Print progress now and then."""
    acked_before = 0
    while True:
        await asyncio.sleep(PROGRESS_EVERY_S)
        last = sampler.last
        if last is None:
            continue
        say(
            f"{last.at_s / 60:5.1f} of {plan.minutes:g} min: "
            f"{(last.acked - acked_before) / PROGRESS_EVERY_S:,.0f} records/s, "
            f"RSS {last.rss_bytes / (1 << 20):.0f} MiB, {last.tasks} tasks, {last.descriptors} descriptors, "
            f"{last.pending:,} pending, {tally.failed:,} failed, lag {last.lag_ms:.0f} ms"
            + (f"; {faults.now}" if faults.now else "")
        )
        acked_before = last.acked


def log_ends(bootstrap: str) -> int:
    """Sum of all end offsets, read by confluent-kafka; the offsets still count deleted records."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "soak", "log_level": 1})
    try:
        partitions = [TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
        return sum(reader.get_watermark_offsets(one, timeout=60)[1] for one in partitions)
    finally:
        reader.close()


if __name__ == "__main__":
    sys.exit(main())
