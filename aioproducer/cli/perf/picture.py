"""A run as a picture: rate and latencies over time, and the latency distribution."""

from __future__ import annotations

from pathlib import Path

from aioproducer.cli.perf.report import Result, latency_ms, milliseconds

SUFFIXES = (".svg", ".png", ".pdf")


def draw(path: Path, result: Result) -> None:
    """Write the picture, in the format given by the suffix. Needs matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    rate, spread = figure.subplots(2, 1)
    times = [each.at_s for each in result.intervals]
    rate.plot(times, [each.records_per_s for each in result.intervals], color="tab:blue")
    rate.set_ylim(bottom=0)
    rate.set_xlabel("seconds")
    rate.set_ylabel("records/s acknowledged", color="tab:blue")
    delay = rate.twinx()
    delay.plot(times, [each.p99_ms for each in result.intervals], color="tab:red", label="p99")
    delay.plot(times, [each.p50_ms for each in result.intervals], color="tab:orange", label="p50")
    delay.set_ylim(bottom=0)
    delay.set_ylabel("latency, ms")
    delay.legend(loc="upper right")
    buckets = result.stats.latencies.grouped(per_power=4)
    edges = [each.from_us / 1000 for each in buckets]
    widths = [(each.to_us - each.from_us) / 1000 for each in buckets]
    spread.bar(edges, [each.count for each in buckets], widths, align="edge", color="tab:blue", edgecolor="white")
    if buckets:
        spread.set_xscale("log")
        spread.set_xlim(max(edges[0], 0.05), edges[-1] + widths[-1])
    for name, value in latency_ms(result.stats.latencies).items():
        if name in ("p50", "p99", "p99.9") and value > 0:
            spread.axvline(value, color="tab:red", linestyle=":")
            spread.text(value, 0.97, f" {name} {milliseconds(value)}", transform=spread.get_xaxis_transform(), va="top")
    spread.set_xlabel("latency, ms")
    spread.set_ylabel("records")
    facts = result.as_dict()
    figure.suptitle(
        f"{result.stats.acked:,} records acknowledged in {result.took_s:.1f} s: "
        f"{facts['records_per_s']:,.0f} records/s, {facts['mb_per_s']:.1f} MB/s"
    )
    figure.savefig(path)
