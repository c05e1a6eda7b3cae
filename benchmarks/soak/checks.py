"""The checks at the end: nothing grew, nothing stayed behind, no record is missing."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.soak.load import Tally
from benchmarks.soak.samples import Sample

WARM_UP_SHARE = 0.2
"""The first part of the run, while caches fill and arenas reach their size."""
PIECE_S = 10.0
"""The trend uses medians of pieces this long, so that one restart or one busy second has no effect."""
MOST_GROWTH_BYTES = 8 << 20
"""How much the trend of resident memory may rise over the whole measurement."""
TREND_NEEDS_S = 600.0
"""A shorter run shows only peaks of the load, no trend: then the limit for peaks applies."""
MOST_BLOCK_GROWTH_SHARE = 0.1
"""The same for Python's memory blocks, without those of pending records, as a share of the rest."""
MOST_OVER_BUFFER_BYTES = 64 << 20
"""How far resident memory may exceed its initial value plus buffer_memory plus the needs of pending records:
compressed batches and requests in flight are not in the pool."""
PENDING_RECORD_BYTES = 300
"""What the program itself holds per unfinished record: its Delivery, the callback on it, their lists."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    what: str
    found: str
    bound: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is there after the end that was not there before the beginning.

    Attributes:
        logged: records in the topics, counted by another client.
        objects: of the producer's classes, by name, after a garbage collection.
    """

    pool_bytes: int
    tasks: int
    files: tuple[str, ...]
    temporary_files: int
    objects: Counter[str]
    logged: int


def checks(
    samples: Sequence[Sample], tally: Tally, left: Leftovers, rss_before_bytes: int, buffer_memory: int
) -> list[Check]:
    """Check a run."""
    steady = measured(samples)
    growth_bytes = trend([one.at_s for one in steady], [one.rss_bytes for one in steady])
    block_growth = idle_block_growth(steady)
    most_rss = max(one.rss_bytes for one in samples)
    pending_bytes = PENDING_RECORD_BYTES * max(one.pending for one in samples)
    growth_bound = pending_bytes + MOST_OVER_BUFFER_BYTES
    if steady[-1].at_s - steady[0].at_s >= TREND_NEEDS_S:
        growth_bound = MOST_GROWTH_BYTES
    rss_bound = rss_before_bytes + buffer_memory + pending_bytes + MOST_OVER_BUFFER_BYTES
    most_pool = max(one.pool_bytes for one in samples)
    unaccounted = tally.accepted - tally.acked - tally.failed
    return [
        Check("trend of resident memory after the warm-up", mib(growth_bytes), f"at most {mib(growth_bound)}",
              growth_bytes <= growth_bound),
        Check("trend of Python's memory blocks after the warm-up", f"{block_growth:+.1%}",
              f"at most {MOST_BLOCK_GROWTH_SHARE:+.0%}", block_growth <= MOST_BLOCK_GROWTH_SHARE),
        Check("most resident memory", mib(most_rss),
              f"{mib(rss_before_bytes)} before + buffer_memory={mib(buffer_memory)} + {PENDING_RECORD_BYTES} bytes for "
              f"each record pending at most + {mib(MOST_OVER_BUFFER_BYTES)} = {mib(rss_bound)}",
              most_rss <= rss_bound),
        Check("most buffer memory in use", mib(most_pool), f"buffer_memory={mib(buffer_memory)}",
              0 < most_pool <= buffer_memory),
        Check("accepted - acknowledged - failed", f"{unaccounted:,}", "0", unaccounted == 0),
        Check("records in the logs, by another client", f"{left.logged:,}", _log_bound(tally),
              tally.acked <= left.logged <= tally.acked + tally.unsure),
        Check("buffer memory in use after flush", f"{left.pool_bytes:,} bytes", "0", left.pool_bytes == 0),
        Check("tasks left after close", str(left.tasks), "0", left.tasks == 0),
        Check("sockets and files left open after close", ", ".join(left.files) or "0", "0", not left.files),
        Check("temporary files left after close", str(left.temporary_files), "0", left.temporary_files == 0),
        Check("objects of the producer left after close",
              ", ".join(f"{count} {name}" for name, count in left.objects.items()) or "0", "0", not left.objects),
    ]  # fmt: skip


def measured(samples: Sequence[Sample]) -> list[Sample]:
    """The samples after the warm-up."""
    return list(samples[int(len(samples) * WARM_UP_SHARE) :])


def trend(at_s: Sequence[float], values: Sequence[float]) -> float:
    """The rise of a straight line through the values, from first to last (Theil-Sen, of piecewise medians).

    The median of the slopes between all pairs of points is unaffected by outliers, up to a quarter of the points.
    """
    pieces: dict[int, list[float]] = {}
    for moment, value in zip(at_s, values, strict=True):
        pieces.setdefault(int((moment - at_s[0]) / PIECE_S), []).append(value)
    points = [(number * PIECE_S, statistics.median(piece)) for number, piece in pieces.items()]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(points, 2)]
    return statistics.median(slopes) * (at_s[-1] - at_s[0]) if slopes else 0.0


def idle_block_growth(samples: Sequence[Sample]) -> float:
    """Trend of the memory blocks not owned by pending records, as a share of these blocks.

    Each pending record has a few blocks; their number is the slope of a straight line through blocks over pending
    records.
    """
    blocks, pending = [one.blocks for one in samples], [one.pending for one in samples]
    if len(set(pending)) < 2:
        each, idle = 0.0, statistics.median(blocks)
    else:
        each, idle = statistics.linear_regression(pending, blocks)
    rest = [have - each * count for have, count in zip(blocks, pending, strict=True)]
    return trend([one.at_s for one in samples], rest) / idle


def mib(size_bytes: float) -> str:
    """Bytes in readable form."""
    return f"{size_bytes / (1 << 20):.1f} MiB"


def _log_bound(tally: Tally) -> str:
    if not tally.unsure:
        return f"{tally.acked:,} acknowledged"
    return f"{tally.acked:,} acknowledged, and of {tally.unsure:,} failed ones that may be there any"
