"""The view of a running load: live bars on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from aioproducer.cli.perf.load import Load
from aioproducer.cli.perf.report import Interval, bar, milliseconds

REDRAWS_PER_S = 4
_WIDTH = 30
_SHOWN = (50.0, 95.0, 99.0, 99.9)
_SPARKS = "▁▂▃▄▅▆▇█"


class Watch:
    """Splits a run into intervals, one per call of ``tick``."""

    def __init__(self, load: Load, buffer_used: Callable[[], float]) -> None:
        self._load = load
        self._buffer_used = buffer_used
        self.intervals: list[Interval] = []
        self.begin()

    def begin(self) -> None:
        """Restart, from the load's current counts."""
        self.intervals.clear()
        self._start_s = self._last_s = time.perf_counter()
        self._note_counts()

    def _note_counts(self) -> None:
        stats = self._load.stats
        self._acked, self._bytes, self._failed = stats.acked, stats.acked_bytes, stats.failed
        self._counts = stats.latencies.snapshot()

    def tick(self) -> Interval:
        """End an interval."""
        now_s, stats = time.perf_counter(), self._load.stats
        p50_us, p99_us = stats.latencies.since(self._counts, (50.0, 99.0))
        interval = Interval(
            at_s=now_s - self._start_s,
            length_s=now_s - self._last_s,
            acked=stats.acked - self._acked,
            acked_bytes=stats.acked_bytes - self._bytes,
            p50_ms=p50_us / 1000,
            p99_ms=p99_us / 1000,
            buffer_used=self._buffer_used(),
            failed=stats.failed - self._failed,
        )
        self._last_s = now_s
        self._note_counts()
        self.intervals.append(interval)
        return interval


class Screen:
    """The live view; rich's own thread draws it from the loop's counts."""

    def __init__(self, load: Load, watch: Watch, wanted: int) -> None:
        self._load = load
        self._watch = watch
        self._wanted = wanted

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The current picture."""
        stats = self._load.stats
        ended = stats.acked + stats.failed
        table = Table.grid(padding=(0, 1))
        table.add_column(justify="right")
        table.add_column(width=_WIDTH)
        table.add_column()
        failed = f", {stats.failed:,} failed" if stats.failed else ""
        table.add_row(
            "records", bar(ended / self._wanted, _WIDTH), f"{stats.acked:,} of {self._wanted:,} acked{failed}"
        )
        recent = list(self._watch.intervals[-_WIDTH:])
        if recent:
            rates = [each.records_per_s for each in recent]
            last = recent[-1]
            mb_per_s = last.acked_bytes / last.length_s / 1e6
            table.add_row("rate", sparks(rates), f"{last.records_per_s:,.0f} records/s, {mb_per_s:.1f} MB/s")
            table.add_row("buffer", bar(last.buffer_used, _WIDTH), f"{100 * last.buffer_used:.0f} %")
        found = stats.latencies.percentiles(_SHOWN)
        largest = stats.latencies.largest_us or 1
        for percent, us in zip(_SHOWN, found, strict=True):
            table.add_row(f"p{percent:g}", bar(us / largest, _WIDTH), f"{milliseconds(us / 1000)} ms")
        table.add_row("max", bar(1.0, _WIDTH), f"{milliseconds(largest / 1000)} ms")
        yield table

    def live(self, console: Console, wanted: bool) -> AbstractContextManager[Any]:
        """Show it while the block runs, if enabled."""
        if not wanted:
            return nullcontext()
        return Live(self, console=console, refresh_per_second=REDRAWS_PER_S, transient=True)


def sparks(values: list[float]) -> str:
    """Values as a row of small columns."""
    most = max(values, default=0.0)
    return "".join(_SPARKS[round(value / most * (len(_SPARKS) - 1))] if most else _SPARKS[0] for value in values)


def line(interval: Interval) -> Text:
    """An interval as a line."""
    mb_per_s = interval.acked_bytes / interval.length_s / 1e6 if interval.length_s else 0.0
    failed = f"  {interval.failed:,} failed" if interval.failed else ""
    return Text(
        f"{interval.at_s:8.1f} s  {interval.records_per_s:12,.0f} records/s  {mb_per_s:8.2f} MB/s  "
        f"p50 {milliseconds(interval.p50_ms):>6} ms  p99 {milliseconds(interval.p99_ms):>6} ms  "
        f"buffer {100 * interval.buffer_used:3.0f} %{failed}"
    )
