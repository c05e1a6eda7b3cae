"""The numbers of a run, and the table that shows them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from aioproducer.cli.demo.publish import Published
from aioproducer.cli.demo.read_back import CHECKS, Verdict

PERCENTILES = (50.0, 99.0, 99.9, 100.0)
MEGA = 1e6


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value not exceeded by at least ``percent`` % of the values (nearest rank).

    Args:
        ordered: ascending, not empty.
    """
    # In integer thousandths: 99.9 % of 1,000 must be 999, not 999.0000000000001.
    rank = -(-len(ordered) * round(percent * 1000) // 100_000)
    return ordered[max(rank, 1) - 1]


def latencies_ms(published: Published) -> list[float]:
    """From each submit's return to its ack, ascending."""
    pairs = zip(published.admitted_s, published.acked_s, strict=True)
    return sorted(1000 * (acked - admitted) for admitted, acked in pairs)


def table(published: Published, verdict: Verdict, target: str) -> Table:
    """All results in two columns."""
    count, seconds = len(published.acked_s), published.seconds
    ordered = latencies_ms(published)
    result = Table(title=f"{count:,} flights to {target}", show_header=False, title_justify="left")
    result.add_column(style="bold")
    result.add_column(justify="right")
    rate = count / seconds
    rows = [
        ("published in", f"{seconds:.2f} s"),
        ("throughput", f"{rate:,.0f} records/s, {published.payload_bytes / MEGA / seconds:.1f} MB/s"),
        ("client CPU", f"{published.cpu_seconds / count * MEGA:.2f} s per million records"),
        ("batches", f"{published.batches:,}, {count / published.batches:,.0f} records each"),
        (
            "compression (lz4)",
            f"{published.payload_bytes / MEGA:.1f} MB to {published.batch_bytes / MEGA:.1f} MB, "
            f"{published.payload_bytes / published.batch_bytes:.1f} : 1",
        ),
        *((f"latency {_name(percent)}", f"{percentile(ordered, percent):.1f} ms") for percent in PERCENTILES),
        ("read back by confluent-kafka", f"{verdict.records:,} records in {verdict.seconds:.2f} s"),
    ]
    for name, text in rows:
        result.add_row(name, text)
    result.add_section()
    for check in CHECKS:
        broken = verdict.broken[check]
        result.add_row(check, f"[red]{broken:,} wrong[/]" if broken else "[green]all right[/]")
    return result


def _name(percent: float) -> str:
    return "max" if percent == 100 else f"p{percent:g}"
