"""The samples taken each second."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import sys
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from aioproducer import Producer
from benchmarks.soak.load import Tally

PERIOD_S = 1.0
LAG_PERIOD_S = 0.01
LIVING = frozenset(
    f"aioproducer.{name}"
    for name in (
        "_accumulator", "_admission", "_producer_batch", "batch_outcomes", "engine", "flushes", "memory_queue",
        "metadata", "net.client", "net.connection", "net.deadlines", "net.dialer", "net.features", "net.idle",
        "net.in_flight", "net.node", "net.nodes", "net.write_buffer", "producer", "producer_id", "sealer", "sender",
        "transaction.manager",
    )
)  # fmt: skip
"""Modules whose objects live and die with a producer."""
LINUX_FILES = Path("/proc/self/fd")
LINUX_SCHEDULE = Path("/proc/self/schedstat")


@dataclass(frozen=True, slots=True)
class Sample:
    """One second.

    Attributes:
        at_s: since the start of the load.
        rss_bytes: resident memory of this process.
        blocks: memory blocks allocated by Python, a measure of live objects.
        tasks: of the event loop.
        descriptors: open files, including sockets.
        sockets: open sockets; -1 if the system does not report them.
        temporary_files: in the folder for temporary files used only by this process.
        pool_bytes: buffer memory in use.
        pending: records accepted and not ended.
        acked: records acknowledged since the start.
        lag_ms: the greatest delay of a timer in this second.
        collection_ms: the longest garbage collection of this second; it blocks the loop, and grows with the objects of
            the program: here a callback for each pending record.
        queued_ms: time of this second that this process waited for a CPU; 0 if the system does not report it.
        faulty: whether a broker was down, frozen or catching up.
    """

    at_s: float
    rss_bytes: int
    blocks: int
    tasks: int
    descriptors: int
    sockets: int
    temporary_files: int
    pool_bytes: int
    pending: int
    acked: int
    lag_ms: float
    collection_ms: float
    queued_ms: float
    faulty: bool


FIELDS = len(dataclasses.fields(Sample))
_KINDS = {"bool": bool, "float": float, "int": int}


def _sample(figures: Sequence[float]) -> Sample:
    kinds = (_KINDS[str(each.type)] for each in dataclasses.fields(Sample))
    return Sample(*(kind(figure) for kind, figure in zip(kinds, figures, strict=True)))


class Lag:
    """Timer delay: the worst since the last read."""

    def __init__(self) -> None:
        self._worst_s = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self._worst_s = max(self._worst_s, loop.time() - due)

    def take_ms(self) -> float:
        """Return the worst so far, and reset."""
        worst_s, self._worst_s = self._worst_s, 0.0
        return worst_s * 1_000


class Collections:
    """Duration of garbage collections: the longest since the last read."""

    def __init__(self) -> None:
        self._began = 0.0
        self._worst_s = 0.0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._worst_s = max(self._worst_s, time.perf_counter() - self._began)

    def take_ms(self) -> float:
        """Return the longest so far, and reset."""
        worst_s, self._worst_s = self._worst_s, 0.0
        return worst_s * 1_000


class Sampler:
    """Samples the process, the producer and the loop."""

    def __init__(
        self, producer: Producer, tally: Tally, temporary: Path, faulty: Callable[[], bool], began: float
    ) -> None:
        self._figures = array("d")  # flat: thousands of objects of our own would look like a leak of Python blocks
        self._producer = producer
        self._tally = tally
        self._temporary = temporary
        self._faulty = faulty
        self._began = began
        self._process = psutil.Process()
        self._lag = Lag()
        self._collections = Collections()
        self._queued_ms = queued_ms()

    @property
    def last(self) -> Sample | None:
        """The latest one; None if there is none yet."""
        return _sample(self._figures[-FIELDS:]) if self._figures else None

    @property
    def samples(self) -> list[Sample]:
        """All of them, newly created."""
        return [_sample(self._figures[at : at + FIELDS]) for at in range(0, len(self._figures), FIELDS)]

    async def run(self) -> None:
        """Take a sample each second until cancelled."""
        with self._collections:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._lag.run())
                await self._go_on()

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            self._figures.extend(dataclasses.astuple(self.take()))

    def take(self) -> Sample:
        """Take one sample."""
        queued_before, self._queued_ms = self._queued_ms, queued_ms()
        return Sample(
            at_s=round(time.monotonic() - self._began, 3),
            rss_bytes=self._process.memory_info().rss,
            blocks=sys.getallocatedblocks(),
            tasks=len(asyncio.all_tasks()),
            descriptors=self._process.num_fds(),
            sockets=open_sockets(),
            temporary_files=count_files(self._temporary),
            pool_bytes=used_bytes(self._producer),
            pending=self._tally.pending,
            acked=self._tally.acked,
            lag_ms=round(self._lag.take_ms(), 1),
            collection_ms=round(self._collections.take_ms(), 1),
            queued_ms=round(self._queued_ms - queued_before, 1),
            faulty=self._faulty(),
        )


def used_bytes(producer: Producer) -> int:
    """Bytes of the producer's buffer memory in use."""
    metrics = producer.metrics()["producer-metrics"]
    return int(metrics["buffer-total-bytes"] - metrics["buffer-available-bytes"])


def count_files(folder: Path) -> int:
    """Number of files and folders in a folder, at any depth."""
    return sum(1 for _ in folder.rglob("*"))


def open_files() -> set[str]:
    """The targets of this process's open descriptors; empty if the system does not report them."""
    if not LINUX_FILES.exists():
        return set()
    found = set()
    for entry in os.scandir(LINUX_FILES):
        try:
            found.add(os.readlink(entry.path))
        except FileNotFoundError:  # the one that lists the folder, or one just closed
            continue
    return found


def open_sockets() -> int:
    """Number of open sockets of this process; -1 if the system does not report it."""
    return sum(target.startswith("socket:") for target in open_files()) if LINUX_FILES.exists() else -1


def queued_ms() -> float:
    """How long this process's main thread was ready to run but had no CPU; 0 if unknown."""
    try:
        return int(LINUX_SCHEDULE.read_text().split()[1]) / 1e6
    except (OSError, IndexError, ValueError):
        return 0.0


def live_objects() -> Counter[str]:
    """Objects of the producer's own classes known to the garbage collector after a collection, by class."""
    gc.collect()
    return Counter(type(one).__qualname__ for one in gc.get_objects() if _is_ours(type(one)))


def _is_ours(kind: type) -> bool:
    return kind.__module__ in LIVING if isinstance(kind.__module__, str) else False
