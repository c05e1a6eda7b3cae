"""One run of ``aioproducer produce``, for any input: its stages, its signals, its final report."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Protocol

from rich.console import Console

from aioproducer import KafkaError, Producer
from aioproducer.cli.loop import run_in_loop, signals_to
from aioproducer.cli.outcome import DONE, SOME_FAILED, CommandError, drop_output, one_line
from aioproducer.cli.produce.job import Counts
from aioproducer.cli.produce.progress import Amount, show_progress
from aioproducer.cli.produce.rejects import STDOUT, Rejects


class Work(Protocol):
    """Sends the rows of one input."""

    counts: Counts
    trouble: str | None
    """Why it ended before its input did; None if it did not."""

    @property
    def place(self) -> str:
        """The last row read."""
        ...

    async def run(self) -> None:
        """Send every row, and wait until each has ended. On cancellation it fails those that have not."""
        ...

    def stop(self) -> None:
        """Stop reading."""
        ...


def run_session(producer: Producer, topic: str, source: Amount, rejects: Path, begin: Callable[[Rejects], Work]) -> int:
    """Send everything, report the result, and return the exit code.

    Args:
        begin: creates the work, in the loop, once the topic is known.
    Raises:
        CommandError: nothing was sent: the input, the cluster or the topic can't be used.
    """
    return run_in_loop(_Session(producer, topic, source, rejects, begin).main())


class _Console(Console):
    """A console that survives a broken pipe: the Ctrl-C being handled has also ended the ``tee`` after this command."""

    def on_broken_pipe(self) -> None:
        """Continue, where rich would end the process."""


class _Session:
    """The stages of a run: connecting, sending, closing. A signal ends the first and last at once.

    During sending, a first signal only ends reading, and rows already read are sent; a second one gives up on them.
    """

    def __init__(
        self, producer: Producer, topic: str, source: Amount, rejects: Path, begin: Callable[[Rejects], Work]
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._source = source
        self._rejects = rejects
        self._begin = begin
        self._console = _Console(stderr=True, highlight=False, soft_wrap=True)
        self._work: Work | None = None
        self._signal: Signals | None = None
        self._task: asyncio.Task[int] | None = None

    async def main(self) -> int:
        self._task = asyncio.current_task()
        with signals_to(self._on_signal):
            try:
                await self._connect()
                return await self._send()
            except asyncio.CancelledError:
                if self._signal is None:
                    raise
                _tell("interrupted before anything was sent")
                return 128 + self._signal
            finally:
                await self._producer.close(timeout=0)

    def _on_signal(self, number: Signals) -> None:
        first = self._signal is None
        self._signal = self._signal or number
        if first and self._work is not None:
            self._work.stop()
            with suppress(OSError):
                self._console.print("stopping: sending the rows already read; press Ctrl-C again to give up")
        elif self._task is not None:
            self._task.cancel()

    async def _connect(self) -> None:
        try:
            await self._producer.start()
            await self._producer.partitions_for(self._topic)
        except KafkaError as error:
            raise CommandError(one_line(error)) from error

    async def _send(self) -> int:
        with Rejects(self._rejects) as rejects:
            self._work = work = self._begin(rejects)
            began_s = time.perf_counter()
            with show_progress(self._console, self._source, work.counts):
                try:
                    await work.run()
                except asyncio.CancelledError:
                    if self._signal is None:
                        raise
            took_s = time.perf_counter() - began_s
        self._summarize(work, rejects, took_s)
        return self._exit_code(work)

    def _summarize(self, work: Work, rejects: Rejects, took_s: float) -> None:
        counts = work.counts
        told = (
            f"read {counts.read}, acked {counts.acked}, failed {counts.failed}, rejected {counts.rejected} "
            f"in {took_s:.2f} s ({counts.acked / took_s:.0f} records/s)"
        )
        if rejects.path == STDOUT:  # which is theirs alone: a program may read it
            _tell(told)
        else:
            _tell_output(told)
        if rejects.problem is not None:
            _tell(f"aioproducer: rejects are missing from {rejects.path}: {rejects.problem}")
        elif rejects.count:
            _tell(f"rejects and their reasons: {rejects.path}")
        if work.trouble is not None:
            _tell(f"aioproducer: stopped after {work.place}: {work.trouble}")
        if self._signal is not None:
            _tell(f"interrupted after {work.place}")

    def _exit_code(self, work: Work) -> int:
        if self._signal is not None:
            return 128 + self._signal
        return DONE if work.counts.acked == work.counts.read and work.trouble is None else SOME_FAILED


def _tell_output(text: str) -> None:
    """Print to standard output; if it can't be written, to standard error."""
    try:
        print(text, flush=True)
    except OSError:
        drop_output()
        _tell(text)


def _tell(text: str) -> None:
    """Print to standard error, if it can be written: the exit code is about the rows, and does not depend on that."""
    with suppress(OSError):
        print(text, file=sys.stderr)
