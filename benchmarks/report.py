"""Medians, spreads and ratios; the table on the terminal, docs/benchmarks.md and its pictures."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import psutil
from rich.table import Table

from benchmarks.peers import WEB_PACKAGES, Client
from benchmarks.plan import Bench, Measure
from benchmarks.runner import Run

CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")

INTRODUCTION = """\
# Benchmarks

Written by `{command}` on {today}; tables that were measured again since say so. All clients run in one plan, one after
the other and round by round, each round in a newly drawn order, each run in a fresh process. Cells: **median**
(least-most) of the rounds, and the median's ratio to the first row's. CPU time is user and system time of the client's
whole process between the end of a warm-up and the end of the last record; import, start and closing are not included.
CPU seconds per million records are the steadiest figure; records/s also depends on how the client and the server share
the machine's cores.

The same for all: acks=all, idempotence on, 6 partitions, 16-byte keys, murmur2 partitioning, the same JSON values from
a pool made beforehand, the client's own default batch size, and uvloop for clients that run on asyncio. A run counts
only if the client saw every record end and the server has exactly as many records. Where the gaps of the event loop are
measured, the garbage collector skips everything that was imported (`gc.freeze()` after the warm-up): scanning it takes
13 ms, in any client's program. The gaps are shown twice, the second time without the time that the loop's thread, ready
to run, waited for a processor: where two cores carry client, compressor, server and the kernel's own threads, some of
the longest gaps are not the client's to shorten.

Before each run against a broker on this machine, as much memory as the run writes, plus 1 GiB, is touched for a moment:
memory that a virtual machine has given back to its host costs seconds per gigabyte to fetch again, which would be
charged to the broker.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """Median and spread of one figure, in the measure's unit, and the median's ratio to the reference client's."""

    median: float
    least: float
    most: float
    ratio: float | None

    def text(self, strong: str = "") -> str:
        """Return ``median (least-most) ratio``; ``strong`` is put on both sides of the median."""
        spread = "" if self.least == self.most else f" ({number(self.least)}-{number(self.most)})"
        ratio = "" if self.ratio is None else f" {number(self.ratio)}x"
        return f"{strong}{number(self.median)}{strong}{spread}{ratio}"


@dataclass(frozen=True, slots=True)
class Grid:
    """One measure of one bench: a row per client, a column per case. The first client with figures is the reference."""

    measure: Measure
    columns: tuple[str, ...]
    rows: dict[str, tuple[Cell | None, ...]]


class Part(Protocol):
    """The answer to one question in the document."""

    @property
    def question(self) -> str:
        """The heading, which identifies it for a later answer to the same question."""

    def markdown(self) -> list[str]:
        """Return the lines, heading included."""

    def draw(self, directory: Path) -> list[Path]:
        """Write its pictures and return their paths."""


@dataclass(frozen=True, slots=True)
class Section:
    """The report's section on one bench."""

    bench: Bench
    clients: list[Client]
    server: str
    runs: list[Run]
    grids: list[Grid]

    @property
    def question(self) -> str:
        """The bench's."""
        return self.bench.question

    @property
    def picture(self) -> str:
        """The picture's file name."""
        return f"benchmarks-{self.bench.slug}.svg"

    def markdown(self) -> list[str]:
        """Return its tables, its picture, and the use of each client."""
        lines = [f"## {self.question}", "", f"Server: {self.server}. {self.verified()}", ""]
        for one in self.grids:
            rows = [(client, *cells_text(cells)) for client, cells in one.rows.items()]
            lines += [
                f"{one.measure.title[0].upper()}{one.measure.title[1:]}:",
                "",
                *table(("client", *one.columns), rows),
                "",
            ]
        lines += [f"![{self.grids[0].measure.title}]({self.picture})", ""] if self.grids else []
        return [*lines, "How each client is used:", "", *(f"- `{one.name}`: {one.use}" for one in self.clients), ""]

    def draw(self, directory: Path) -> list[Path]:
        """Draw the first measure, if there are figures."""
        if not self.grids:
            return []
        path = directory / self.picture
        write_picture(self, path)
        return [path]

    def verified(self) -> str:
        """Return the number of runs, and in how many of them client and server agreed."""
        good = sum(not run.problems for run in self.runs)
        strangers = [run.strangers_cores for run in self.runs if not run.problems]
        busy = f" Other programs used {statistics.median(strangers):.2f} cores meanwhile (median)." if strangers else ""
        return f"{len(self.runs)} runs, {good} verified: the server counted as many records as were acknowledged.{busy}"


def section(bench: Bench, clients: list[Client], server: str, runs: list[Run]) -> Section:
    """Create the tables of one bench; runs with problems do not count."""
    grids = [grid(measure, bench, clients, [run for run in runs if not run.problems]) for measure in bench.measures]
    return Section(bench, clients, server, runs, [one for one in grids if one.rows])


def grid(measure: Measure, bench: Bench, clients: list[Client], runs: list[Run]) -> Grid:
    """Create one table."""
    rows: dict[str, tuple[Cell | None, ...]] = {}
    reference: tuple[Cell | None, ...] = (None,) * len(bench.cases)
    for client in clients:
        cells = tuple(
            cell([run.figures[measure.key] * measure.scale for run in of_case(runs, client, case.name, measure)], first)
            for case, first in zip(bench.cases, reference, strict=True)
        )
        if any(cells):
            reference = reference if rows else cells
            rows[client.name] = cells
    return Grid(measure, tuple(case.name for case in bench.cases), rows)


def of_case(runs: list[Run], client: Client, case: str, measure: Measure) -> list[Run]:
    """Return the runs with this figure."""
    return [run for run in runs if run.client == client.name and run.case == case and measure.key in run.figures]


def cell(values: list[float], reference: Cell | None) -> Cell | None:
    """Create one cell, if there are figures for it."""
    if not values:
        return None
    median = statistics.median(values)
    ratio = median / reference.median if reference is not None and reference.median else None
    return Cell(median, min(values), max(values), ratio)


def number(value: float) -> str:
    """Format with about three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def terminal_tables(part: Section) -> list[Table]:
    """Return the tables for the terminal."""
    return [terminal_table(part.bench, one) for one in part.grids]


def terminal_table(bench: Bench, one: Grid) -> Table:
    """Return one table for the terminal."""
    better = "less is better" if one.measure.less_is_better else "more is better"
    table = Table(title=f"{bench.slug}: {one.measure.title} ({better})", title_justify="left")
    table.add_column("client")
    for column in one.columns:
        table.add_column(column, justify="right")
    for client, cells in one.rows.items():
        table.add_row(client, *("-" if one_cell is None else one_cell.text() for one_cell in cells))
    return table


def machine() -> list[tuple[str, str]]:
    """Return what the figures depend on, besides the clients."""
    memory_gib = psutil.virtual_memory().total / 2**30
    return [
        ("processor", f"{processor()}, {psutil.cpu_count()} cores"),
        ("memory", f"{memory_gib:.0f} GiB"),
        ("system", system()),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
    ]


def processor() -> str:
    """Return the processor's name, as far as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def system() -> str:
    """Return the system's name and its TCP limits for data in flight, which affect the cost of sending."""
    try:
        control = f", TCP with {CONGESTION_CONTROL.read_text().strip()}"
    except OSError:
        control = ""
    return f"{platform.system()} {platform.release()}{control}"


def versions(clients: Sequence[Client]) -> list[tuple[str, str]]:
    """Return the versions of the measured packages, each once."""
    found = {client.package: client.version() for client in clients}
    try:
        uvloop = importlib.metadata.version("uvloop")
    except importlib.metadata.PackageNotFoundError:
        uvloop = "not installed: plain asyncio"
    if "confluent-kafka" in found:
        from confluent_kafka import libversion

        found["librdkafka"] = libversion()[0]
    if "fastapi" in found:
        found |= {package: importlib.metadata.version(package) for package in WEB_PACKAGES}
    return [*found.items(), ("uvloop", uvloop)]


def markdown(parts: Sequence[Part], skipped: list[str], command: str) -> str:
    """Return docs/benchmarks.md."""
    clients = [client for part in parts if isinstance(part, Section) for client in part.clients]
    lines = [
        INTRODUCTION.format(command=command, today=f"{datetime.now(UTC):%Y-%m-%d}"),
        *table(("what", "version"), [*machine(), *versions(clients)]),
        "",
        *(f"Skipped: {one}\n" for one in skipped),
    ]
    for part in parts:
        lines += part.markdown()
    return "\n".join(lines)


def cells_text(cells: tuple[Cell | None, ...]) -> list[str]:
    """Return the cells of a row for the document."""
    return ["-" if one is None else one.text("**") for one in cells]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def write_picture(part: Section, path: Path) -> None:
    """Draw the bench's first measure: a group of bars per case, the spread as a line."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = part.bench.slug  # same figures, same file
    import matplotlib.pyplot as plt

    one = part.grids[0]
    figure, axes = plt.subplots(1, len(one.columns), figsize=(3.4 * len(one.columns), 0.42 * len(one.rows) + 1.2))
    names = list(one.rows)
    for index, axis in enumerate(axes if len(one.columns) > 1 else [axes]):
        cells = [one.rows[name][index] for name in names]
        values = [0.0 if c is None else c.median for c in cells]
        spread = [[0.0 if c is None else getattr(c, side) for c in cells] for side in ("least", "most")]
        below = [value - least for value, least in zip(values, spread[0], strict=True)]
        above = [most - value for value, most in zip(values, spread[1], strict=True)]
        colors = ["#d1495b" if name.startswith("aioproducer") else "#8d99ae" for name in names]
        bars = axis.barh(names, values, color=colors, xerr=[below, above], ecolor="#444444")
        axis.bar_label(bars, [number(value) for value in values], padding=4, fontsize=8)
        axis.set_title(one.columns[index], fontsize=10)
        axis.set_xlim(0, max(*spread[1], 1e-9) * 1.25)
        axis.invert_yaxis()
        axis.tick_params(labelsize=8, labelleft=index == 0)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{one.measure.title} ({'less' if one.measure.less_is_better else 'more'} is better)", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def update(parts: Sequence[Part], command: str, directory: Path) -> list[Path]:
    """Put these sections into the existing benchmarks.md, replacing their old versions or at its end."""
    document = directory / "benchmarks.md"
    opening, *sections = document.read_text(encoding="utf-8").split("\n## ")
    known = {one.partition("\n")[0]: one.rstrip("\n") for one in sections}
    note = f"Measured on {datetime.now(UTC):%Y-%m-%d} by `{command}`, separately from the rest."
    for part in parts:
        heading, *lines = part.markdown()
        known[part.question] = "\n".join([heading.removeprefix("## "), "", note, *lines]).rstrip("\n")
    document.write_text("\n\n## ".join([opening.rstrip("\n"), *known.values()]) + "\n", encoding="utf-8")
    return [document, *draw(parts, directory)]


def write(parts: Sequence[Part], skipped: list[str], command: str, directory: Path) -> list[Path]:
    """Write benchmarks.md and its pictures and return their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    document = directory / "benchmarks.md"
    document.write_text(markdown(parts, skipped, command), encoding="utf-8")
    return [document, *draw(parts, directory)]


def draw(parts: Sequence[Part], directory: Path) -> list[Path]:
    """Draw the sections that have pictures."""
    return [path for part in parts for path in part.draw(directory)]
