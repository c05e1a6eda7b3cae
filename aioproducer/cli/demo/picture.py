"""The picture of a run: throughput and latency over time."""

from __future__ import annotations

from pathlib import Path

from aioproducer.cli.demo.publish import Published
from aioproducer.cli.demo.report import MEGA, percentile

SLICES = 60
LATENCIES = ((50.0, "p50"), (99.0, "p99"), (100.0, "max"))


def by_slice(published: Published, slices: int = SLICES) -> list[list[float]]:
    """Latencies in ms, ascending, of the records acknowledged in each of several equal time slices."""
    width_s = max(published.acked_s) / slices
    groups: list[list[float]] = [[] for _ in range(slices)]
    for admitted_s, acked_s in zip(published.admitted_s, published.acked_s, strict=True):
        groups[min(int(acked_s / width_s), slices - 1)].append(1000 * (acked_s - admitted_s))
    for group in groups:
        group.sort()
    return groups


def draw(published: Published, path: Path, title: str) -> None:
    """Write the picture as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = by_slice(published)
    width_s = max(published.acked_s) / len(groups)
    middles_s = [(number + 0.5) * width_s for number in range(len(groups))]
    figure = Figure(figsize=(10, 7), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    throughput, latency = figure.subplots(2, 1, sharex=True)

    megabytes = published.payload_bytes / len(published.acked_s) / MEGA
    rates = [len(group) / width_s for group in groups]
    throughput.bar(middles_s, rates, width=width_s, color="#4c72b0")
    throughput.set_ylabel("records/s acknowledged")
    throughput.yaxis.set_major_formatter("{x:,.0f}")
    right = throughput.secondary_yaxis("right", functions=(lambda x: x * megabytes, lambda x: x / megabytes))
    right.set_ylabel("MB/s of keys and values")

    filled = [(at_s, group) for at_s, group in zip(middles_s, groups, strict=True) if group]
    for percent, name in LATENCIES:
        latency.plot(
            [at_s for at_s, _ in filled], [percentile(group, percent) for _, group in filled], marker=".", label=name
        )
    latency.set_yscale("log")
    latency.set_ylabel("submit to ack, ms")
    latency.set_xlabel("seconds since the first record")
    latency.legend()
    latency.grid(alpha=0.3, which="both")
    figure.savefig(path, dpi=120)
