"""``aioproducer produce`` from its options to its exit code."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from signal import Signals

from rich.console import Console

from aioproducer import KafkaError, Producer
from aioproducer.cli.loop import run_in_loop, signals_to
from aioproducer.cli.outcome import DONE, SOME_FAILED, CommandError, one_line
from aioproducer.cli.produce.feed import RowFeed
from aioproducer.cli.produce.job import Counts, Job
from aioproducer.cli.produce.progress import show_progress
from aioproducer.cli.produce.rejects import Rejects
from aioproducer.cli.produce.rows import Format, Parser, format_of, parser_of
from aioproducer.cli.produce.source import LineSource

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Input:
    """What is read, and how."""

    path: str
    """A file, or ``-``."""
    parse: Parser
    rejects: Path


def plan(path: str, kind: Format | None, key_field: str | None, rejects: Path | None) -> Input:
    """Complete the options by their defaults.

    Raises:
        CommandError: they contradict each other, or the rejects file would be the input.
    """
    if rejects is None and path == STDIN:
        raise CommandError("--rejects FILE is needed with standard input: what fails has to go somewhere")
    chosen = Path(path + ".rejects") if rejects is None else rejects
    with suppress(OSError):
        if path != STDIN and os.path.samefile(path, chosen):
            raise CommandError(f"--rejects {chosen} is the input itself")
    return Input(path, parser_of(kind or format_of(path), key_field), chosen)


def run(producer: Producer, topic: str, what: Input) -> int:
    """Send everything, say how it went, and return the exit code.

    Raises:
        CommandError: nothing was sent: the input can't be read, or the cluster or the topic can't be used.
    """
    with _open(what.path) as source:
        run = _Run(producer, topic, what, source)
        return run_in_loop(run.main())


def _open(path: str) -> LineSource:
    try:
        # Unbuffered, see LineSource. Standard input stays open when its copy is closed.
        return LineSource(FileIO(os.dup(0)) if path == STDIN else FileIO(path))
    except OSError as error:
        raise CommandError(f"{path} can't be read: {error.strerror}") from error


class _Run:
    """The states of a run: connecting, sending, closing. A signal ends the first and the last at once.

    While it sends, a first signal only ends the reading, and what was read is sent; a second one gives that up.
    """

    def __init__(self, producer: Producer, topic: str, what: Input, source: LineSource) -> None:
        self._producer = producer
        self._topic = topic
        self._what = what
        self._source = source
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._feed: RowFeed | None = None
        self._signal: Signals | None = None
        self._task: asyncio.Task[int] | None = None

    async def main(self) -> int:
        """The whole run."""
        self._task = asyncio.current_task()
        with signals_to(self._on_signal):
            try:
                await self._connect()
                return await self._send()
            except asyncio.CancelledError:
                if self._signal is None:
                    raise
                print("interrupted before anything was sent", file=sys.stderr)
                return 128 + self._signal
            finally:
                await self._producer.close(timeout=0)

    def _on_signal(self, number: Signals) -> None:
        first = self._signal is None
        self._signal = self._signal or number
        if first and self._feed is not None:
            self._console.print("stopping: what was read is being sent; Ctrl-C again gives up")
            self._feed.stop()
        elif self._task is not None:
            self._task.cancel()

    async def _connect(self) -> None:
        try:
            await self._producer.start()
            await self._producer.partitions_for(self._topic)
        except KafkaError as error:
            raise CommandError(one_line(error)) from error

    async def _send(self) -> int:
        with Rejects(self._what.rejects) as rejects:
            self._feed = RowFeed(self._source, self._what.parse)
            job = Job(self._producer, self._topic, self._feed, rejects)
            start_s = time.perf_counter()
            with show_progress(self._console, self._source, job.counts), self._feed_closed():
                try:
                    await job.run()
                except asyncio.CancelledError:
                    if self._signal is None:
                        raise
            elapsed_s = time.perf_counter() - start_s
        self._summarize(job, rejects, elapsed_s)
        return self._exit_code(job)

    @contextmanager
    def _feed_closed(self) -> Iterator[None]:
        assert self._feed is not None
        try:
            yield
        finally:
            self._feed.close()

    def _summarize(self, job: Job, rejects: Rejects, elapsed_s: float) -> None:
        counts = job.counts
        print(
            f"read {counts.read}, acked {counts.acked}, failed {counts.failed}, rejected {counts.rejected} "
            f"in {elapsed_s:.2f} s ({counts.acked / elapsed_s:.0f} records/s)"
        )
        if rejects.problem is not None:
            print(f"aioproducer: rejects are missing in {rejects.path}: {rejects.problem}", file=sys.stderr)
        elif rejects.count:
            print(f"rejects with their reasons: {rejects.path}", file=sys.stderr)
        if job.trouble is not None:
            print(f"aioproducer: ended after line {counts.last_line}: {job.trouble}", file=sys.stderr)
        if self._signal is not None:
            print(f"interrupted after line {counts.last_line}", file=sys.stderr)

    def _exit_code(self, job: Job) -> int:
        if self._signal is not None:
            return 128 + self._signal
        counts: Counts = job.counts
        return DONE if counts.acked == counts.read and job.trouble is None else SOME_FAILED
