"""docs/soak.md, its picture, and the samples as a table for other programs."""

from __future__ import annotations

import csv
import dataclasses
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.report import machine, table
from benchmarks.soak.checks import Check, mib
from benchmarks.soak.faults import Fault
from benchmarks.soak.load import Tally
from benchmarks.soak.samples import Sample

ROWS = 10
"""Number of summary lines for the run."""

INTRODUCTION = """\
# Soak

Written by `make soak MINUTES={minutes:g}` on {today}. One producer under full load for {minutes:g} minutes, from
{tasks} tasks that use it in every possible way (`benchmarks/soak/load.py`), against three real brokers on the same
machine, which are restarted, killed or frozen one after the other (`benchmarks/soak/faults.py`). The process was
sampled every second (`benchmarks/soak/samples.py`). Does anything grow, stay behind, or get lost?

{verdict}
"""


@dataclass(frozen=True, slots=True)
class Cores:
    """CPU time per second of the run: of the producer's process, the brokers, and everything else."""

    own: float
    brokers: float
    others: float


@dataclass(frozen=True, slots=True)
class Soak:
    """All results of one run."""

    minutes: float
    loop: str
    kafka: str
    tasks: int
    samples: Sequence[Sample]
    faults: Sequence[Fault]
    tally: Tally
    cores: Cores
    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.holds for check in self.checks)


def markdown(soak: Soak) -> str:
    """Return the document."""
    broken = sum(not check.holds for check in soak.checks)
    verdict = "Everything that was checked holds." if soak.passed else f"**Of the checks {broken} do not hold.**"
    lines = [
        INTRODUCTION.format(
            minutes=soak.minutes, today=f"{datetime.now(UTC):%Y-%m-%d}", tasks=soak.tasks, verdict=verdict
        ),
        *table(("what", "found", "has to be", ""), [_check_row(check) for check in soak.checks]),
        "",
        "![Throughput, memory, objects and lag over the run](soak.svg)",
        "",
        "## Over time",
        "",
        *table(HEAD, rows(soak.samples)),
        "",
        "Medians over the seconds; a second figure is the maximum. Lag is how late a timer of 10 ms fired at worst.",
        "Collection is the longest garbage collection: it blocks the loop, and takes long here because the load has a",
        "callback on each pending record. Both are stretched when the machine runs other programs: queued is how much",
        "of a second the process was ready to run while another had the processor.",
        "",
        *_load_lines(soak),
        "",
        *table(("what", ""), [*machine(), ("event loop", soak.loop), ("Kafka", f"{soak.kafka}, three brokers")]),
        "",
    ]
    return "\n".join(lines)


HEAD = (
    "minutes", "records/s", "resident", "Python blocks", "tasks", "sockets", "descriptors", "temporary files",
    "buffer in use", "pending", "lag, ms", "collection, ms", "queued, ms",
)  # fmt: skip


def rows(samples: Sequence[Sample]) -> list[tuple[str, ...]]:
    """Summarize the samples, in intervals of equal length."""
    size = -(-len(samples) // ROWS)
    found = []
    before = (0.0, 0)
    for start in range(0, len(samples), size):
        part = samples[start : start + size]
        last = part[-1]
        rate = (last.acked - before[1]) / (last.at_s - before[0])
        found.append(
            (
                f"{before[0] / 60:.1f}-{last.at_s / 60:.1f}",
                f"{rate:,.0f}",
                mib(_median(part, "rss_bytes")),
                f"{_median(part, 'blocks'):,.0f}",
                f"{_median(part, 'tasks'):.0f}",
                f"{_median(part, 'sockets'):.0f}",
                f"{_median(part, 'descriptors'):.0f}",
                f"{_median(part, 'temporary_files'):.0f}",
                mib(_median(part, "pool_bytes")),
                f"{_median(part, 'pending'):,.0f}",
                _median_and_most(part, "lag_ms"),
                _median_and_most(part, "collection_ms"),
                f"{_median(part, 'queued_ms'):.0f}",
            )
        )
        before = (last.at_s, last.acked)
    return found


def write(soak: Soak, directory: Path, raw: Path) -> list[Path]:
    """Write soak.md and soak.svg, and the samples as soak.csv to ``raw``; return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    raw.mkdir(parents=True, exist_ok=True)
    document, picture, figures = directory / "soak.md", directory / "soak.svg", raw / "soak.csv"
    document.write_text(markdown(soak), encoding="utf-8")
    write_picture(soak, picture)
    with figures.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(field.name for field in dataclasses.fields(Sample))
        writer.writerows(dataclasses.astuple(sample) for sample in soak.samples)
    return [document, picture, figures]


def write_picture(soak: Soak, path: Path) -> None:
    """Draw the samples over time, with the brokers' faults in the background."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "soak"  # same figures, same file
    import matplotlib.pyplot as plt

    minutes = [one.at_s / 60 for one in soak.samples]
    acked = [0, *(one.acked for one in soak.samples)]
    times = [0.0, *(one.at_s for one in soak.samples)]
    rates = [(acked[i + 1] - acked[i]) / (times[i + 1] - times[i]) / 1_000 for i in range(len(soak.samples))]
    panels = (
        ("thousand records/s", [("", rates)]),
        ("MiB", [("resident memory", _scaled(soak, "rss_bytes")), ("buffer in use", _scaled(soak, "pool_bytes"))]),
        ("", [(name, _values(soak, name)) for name in ("tasks", "descriptors", "sockets")]),
        (
            "ms",
            [
                ("worst lag of the second", _values(soak, "lag_ms")),
                ("longest garbage collection", _values(soak, "collection_ms")),
            ],
        ),
    )
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 8), sharex=True)
    for axis, (unit, lines) in zip(axes, panels, strict=True):
        for fault in soak.faults:
            axis.axvspan(fault.began_s / 60, fault.ended_s / 60, color=FAULT_COLORS[fault.what], alpha=0.25, lw=0)
        for (label, values), color in zip(lines, LINE_COLORS, strict=False):
            axis.plot(minutes, values, label=label, color=color, lw=0.8, rasterized=True)
        axis.set_ylabel(unit, fontsize=8)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        if lines[0][0]:
            axis.legend(fontsize=7, loc="upper right", ncols=3, frameon=False)
    for what, color in FAULT_COLORS.items():
        axes[0].fill_between([], [], color=color, alpha=0.25, label=what)
    axes[0].legend(fontsize=7, loc="upper right", ncols=3, frameon=False)
    axes[-1].set_xlabel("minutes", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


FAULT_COLORS = {"restart": "#2a9d8f", "kill": "#d1495b", "freeze": "#457b9d"}
LINE_COLORS = ("#333333", "#e09f3e", "#6a4c93")


def _check_row(check: Check) -> tuple[str, ...]:
    return check.what, check.found, check.bound, "holds" if check.holds else "**does not hold**"


def _load_lines(soak: Soak) -> list[str]:
    tally = soak.tally
    kinds = Counter(fault.what for fault in soak.faults)
    happened = ", ".join(f"{count} {what}s" for what, count in sorted(kinds.items())) or "nothing"
    errors = ", ".join(f"{count:,} {name}" for name, count in sorted(tally.errors.items())) or "none"
    cores = soak.cores
    return [
        "## Load",
        "",
        f"{tally.accepted:,} records were accepted, {tally.acked:,} acknowledged, {tally.failed:,} failed; errors:",
        f"{errors}. {tally.producers:,} other producers came and went meanwhile. The brokers had: {happened}.",
        "",
        f"Throughput is what the machine left over: the producer's process used {cores.own:.2f} cores, the brokers",
        f"{cores.brokers:.2f}, other programs {cores.others:.2f}. For speed, see docs/benchmarks.md.",
    ]


def _median(part: Sequence[Sample], name: str) -> float:
    return float(statistics.median(getattr(one, name) for one in part))


def _median_and_most(part: Sequence[Sample], name: str) -> str:
    return f"{_median(part, name):.0f} ({max(getattr(one, name) for one in part):.0f})"


def _values(soak: Soak, name: str) -> list[float]:
    return [getattr(one, name) for one in soak.samples]


def _scaled(soak: Soak, name: str) -> list[float]:
    return [value / (1 << 20) for value in _values(soak, name)]
