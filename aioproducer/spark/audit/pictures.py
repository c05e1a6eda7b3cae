"""The pictures of an audit: findings over time and by partition, and latencies."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FINDINGS = (("missing", "#d1495b"), ("duplicated", "#edae49"), ("out_of_order", "#66388c"))
"""Kinds of errors and their colours."""
FOUND = "#30638e"
COUNTS = ("found", *(name for name, _ in FINDINGS))
LATENCIES = (("p50", "#30638e"), ("p99", "#edae49"), ("max", "#d1495b"))
LATENCY_NAMES = {"append": "to the broker", "ack": "to the acknowledgement"}
MOST_PARTITIONS = 40
MOST_BUCKETS = 400
"""More bars are thinner than a pixel; tens of thousands would take minutes to draw, and again in a browser."""

Rows = Sequence[Mapping[str, Any]]


def draw(by_time: Rows, by_partition: Rows, directory: Path, title: str) -> list[Path]:
    """Write audit-time.svg and audit-partitions.svg; returns their paths.

    Args:
        by_time: bucket, found, missing, duplicated, out_of_order, and append_p50_ms to ack_max_ms (or None) of the
            slowest partition; ascending.
        by_partition: topic, partition (or None), and the same counts.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    pictures = {}
    with mpl.rc_context({"svg.hashsalt": "aioproducer", "font.size": 9}):  # same rows, same file
        latency = [name for name in LATENCY_NAMES if any(row[f"{name}_max_ms"] is not None for row in by_time)]
        figure = Figure(figsize=(9, 3 + 2.2 * len(latency)), layout="constrained")
        _over_time(figure, coarser(by_time), latency, title)
        pictures["audit-time.svg"] = figure
        shown = telling(by_partition)
        figure = Figure(figsize=(9, 1.4 + 0.28 * len(shown)), layout="constrained")
        parts = f", {len(shown)} of {len(by_partition):,}" if len(shown) < len(by_partition) else ""
        _by_partition(figure.subplots(), shown, by_partition, f"{title}: by partition{parts}")
        pictures["audit-partitions.svg"] = figure
        directory.mkdir(parents=True, exist_ok=True)
        for name, each in pictures.items():
            each.savefig(directory / name, metadata={"Date": None})
    return [directory / name for name in pictures]


def coarser(rows: Rows) -> Rows:
    """The rows of ``by_time``, or, if they are too many, of buckets that are a multiple as long."""
    if len(rows) <= MOST_BUCKETS:
        return rows
    first = rows[0]["bucket"]
    length = min(after["bucket"] - before["bucket"] for before, after in itertools.pairwise(rows))
    length *= -(-((rows[-1]["bucket"] - first) // length + 1) // MOST_BUCKETS)
    groups = itertools.groupby(rows, key=lambda row: (row["bucket"] - first) // length)
    return [{"bucket": first + number * length, **_together(list(group))} for number, group in groups]


def _together(rows: Rows) -> dict[str, Any]:
    """The sums of the counts, and the highest latencies."""
    counts = {name: sum(row[name] for row in rows) for name in COUNTS}
    latencies = [f"{what}_{name}_ms" for what in LATENCY_NAMES for name, _ in LATENCIES]
    return counts | {
        name: max((row[name] for row in rows if row[name] is not None), default=None) for name in latencies
    }


def _over_time(figure: Figure, rows: Rows, latency: Sequence[str], title: str) -> None:
    figure.suptitle(title)
    panels = figure.subplots(1 + len(latency), 1, sharex=True, squeeze=False)[:, 0]
    times = [row["bucket"] for row in rows]
    width = _width(times)
    counts = panels[0]
    bottom = [0] * len(rows)
    for name, colour in (("found", FOUND), *FINDINGS):
        values = [row[name] for row in rows]
        # A few missing records among millions must be visible: print the number too.
        counts.bar(times, values, width=width, bottom=bottom, color=colour, align="edge", label=_legend(name, values))
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    counts.set_ylabel("records")
    _finish(counts)
    for panel, what in zip(panels[1:], latency, strict=True):
        for name, colour in LATENCIES:
            points = [(row["bucket"], row[f"{what}_{name}_ms"]) for row in rows]
            points = [(time, value) for time, value in points if value is not None]
            panel.plot([p[0] for p in points], [p[1] for p in points], marker=".", color=colour, label=name)
        panel.set_ylabel(f"ms {LATENCY_NAMES[what]}")
        panel.set_ylim(bottom=0)
        _finish(panel)
    panels[-1].set_xlabel("time of sending, UTC")
    panels[-1].tick_params(axis="x", rotation=20)


def telling(rows: Rows) -> Rows:
    """At most MOST_PARTITIONS of the rows, in their order: those with the most errors."""
    errors = [sum(row[name] for name, _ in FINDINGS) for row in rows]
    most = sorted(range(len(rows)), key=lambda place: -errors[place])[:MOST_PARTITIONS]
    return [rows[place] for place in sorted(most)]


def _by_partition(axes: Axes, rows: Rows, of: Rows, title: str) -> None:
    names = [f"{row['topic']}-{'unknown' if row['partition'] is None else row['partition']}" for row in rows]
    left = [0] * len(rows)
    for name, colour in (("found", FOUND), *FINDINGS):
        values = [row[name] for row in rows]
        axes.barh(names, values, left=left, color=colour, label=_legend(name, [row[name] for row in of]))
        left = [low + value for low, value in zip(left, values, strict=True)]
    axes.set_title(title)
    axes.invert_yaxis()
    axes.set_xlabel("records")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_ylabel() == "records":
        axes.yaxis.set_major_formatter("{x:,.0f}")


def _legend(name: str, values: Sequence[int]) -> str:
    return f"{name.replace('_', ' ')}: {sum(values):,}"


def _width(times: Sequence[datetime]) -> float:
    """Width of a bar, in days (matplotlib's unit): the shortest distance between two times."""
    distances = [(after - before).total_seconds() for before, after in itertools.pairwise(times)]
    return 0.95 * min(distances, default=60.0) / 86_400
