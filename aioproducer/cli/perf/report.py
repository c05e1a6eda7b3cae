"""The results of a run: numbers for people and for programs, and latency bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aioproducer.cli.perf.latency import Bucket, Histogram
from aioproducer.cli.perf.load import Stats
from aioproducer.cli.tables import print_table
from aioproducer.strict_json import without_nan
from aioproducer.version import VERSION

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)
_BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Interval:
    """One interval of a run."""

    at_s: float
    """Its end, since the measurement began."""
    length_s: float
    acked: int
    acked_bytes: int
    p50_ms: float
    p99_ms: float
    buffer_used: float
    """Used fraction of buffer_memory at its end, 0 to 1."""
    failed: int = 0

    @property
    def records_per_s(self) -> float:
        """Acknowledged."""
        return self.acked / self.length_s if self.length_s else 0.0


@dataclass(slots=True)
class Result:
    """A whole run."""

    options: Mapping[str, Any]
    stats: Stats
    took_s: float
    """From the first record to the end of the last."""
    warmup: int = 0
    """Records sent before, which do not count."""
    intervals: list[Interval] = field(default_factory=list)
    trouble: str | None = None
    interrupted: bool = False
    transactional: bool = False
    metrics: Mapping[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        stats = self.stats
        return {
            "aioproducer": VERSION,
            "options": dict(self.options),
            "sent": stats.sent,
            "acked": stats.acked,
            "failed": stats.failed,
            **({"committed": stats.committed} if self.transactional else {}),
            "errors": dict(stats.errors),
            "warmup_records": self.warmup,
            "took_s": self.took_s,
            "records_per_s": self._per_s(stats.acked),
            "mb_per_s": self._per_s(stats.acked_bytes) / 1e6,
            "latency_ms": latency_ms(stats.latencies),
            "histogram": [asdict(bucket) for bucket in stats.latencies.buckets()],
            "intervals": [asdict(each) for each in self.intervals],
            "interrupted": self.interrupted,
            "trouble": self.trouble,
            **({} if self.metrics is None else {"metrics": without_nan(self.metrics)}),
        }

    def _per_s(self, amount: float) -> float:
        return amount / self.took_s if self.took_s > 0 else 0.0


def latency_ms(histogram: Histogram) -> dict[str, float]:
    """Mean, extremes and percentiles in ms, by name."""
    found = dict(zip(PERCENTILES, histogram.percentiles(PERCENTILES), strict=True))
    return {
        "min": histogram.least_us / 1000,
        "avg": histogram.mean_us / 1000,
        **{f"p{percent:g}": us / 1000 for percent, us in found.items()},
        "max": histogram.largest_us / 1000,
    }


def show(console: Console, result: Result) -> None:
    """Print the summary and the bars."""
    facts = result.as_dict()
    stats = result.stats
    counts = f"{stats.sent:,} sent, {stats.acked:,} acked, {stats.failed:,} failed"
    if result.transactional:
        counts += f", {stats.committed:,} committed"
    console.print(
        f"{counts} in {result.took_s:.2f} s: {facts['records_per_s']:,.0f} records/s, {facts['mb_per_s']:.2f} MB/s"
    )
    if stats.latencies.count:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("latency", style="bold")
        for name in facts["latency_ms"]:
            table.add_column(name, justify="right")
        table.add_row("ms", *(milliseconds(value) for value in facts["latency_ms"].values()))
        print_table(console, table)
        for line in bars(stats.latencies.grouped()):
            console.print(line)
    for name, count in stats.errors.most_common():
        console.print(Text(f"failed: {count:,} with {name}", "red"))


def milliseconds(value: float) -> str:
    """With three significant digits."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def bars(buckets: Sequence[Bucket]) -> list[Text]:
    """A histogram as lines of text."""
    most = max((each.count for each in buckets), default=0)
    total = sum(each.count for each in buckets)
    lines = []
    for each in buckets:
        line = Text(f"{milliseconds(each.from_us / 1000):>8} to {milliseconds(each.to_us / 1000):>6} ms ")
        line.append(f"{bar(each.count / most, _BAR_WIDTH):<{_BAR_WIDTH}}", "cyan")
        line.append(f" {each.count:>12,} {100 * each.count / total:6.2f} %")
        lines.append(line)
    return lines


def bar(part: float, width: int) -> str:
    """A bar that fills a fraction of a width; tiny non-zero values still show."""
    eighths = round(min(max(part, 0.0), 1.0) * width * 8)
    if part > 0:
        eighths = max(eighths, 1)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
