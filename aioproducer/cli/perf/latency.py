"""Latencies as a histogram whose size does not grow with their number. Pure.

Up to 128 us each microsecond has a bucket; above, each power of two has 64 of them, so a percentile is off by at most
1.6 %. Count, mean, minimum and maximum are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_BITS = 6
_PARTS = 1 << _BITS


@dataclass(frozen=True, slots=True)
class Bucket:
    """The number of latencies with ``from_us <= latency < to_us``."""

    from_us: int
    to_us: int
    count: int


class Histogram:
    """Counts of latencies in microseconds."""

    def __init__(self) -> None:
        self.sum_us = 0
        self.largest_us = 0
        self._least_us: int | None = None
        self._counts = [0] * (_PARTS * 40)

    def add(self, latency_us: int) -> None:
        """Count a latency, negative ones as zero. Called for every record, so kept minimal."""
        value = latency_us if latency_us > 0 else 0
        shift = value.bit_length() - _BITS - 1
        if shift > 0:
            self._counts[(shift << _BITS) + (value >> shift)] += 1
        else:
            self._counts[value] += 1
        self.sum_us += value
        if value > self.largest_us:
            self.largest_us = value
        if self._least_us is None or value < self._least_us:
            self._least_us = value

    @property
    def count(self) -> int:
        """Number of latencies."""
        return sum(self._counts)

    @property
    def least_us(self) -> int:
        """The minimum, 0 if there are none."""
        return self._least_us or 0

    @property
    def mean_us(self) -> float:
        """Their mean, 0 if there are none."""
        count = self.count
        return self.sum_us / count if count else 0.0

    def buckets(self) -> Iterator[Bucket]:
        """The non-empty buckets, ascending."""
        for index, count in enumerate(self._counts):
            if count:
                yield Bucket(*_limits(index), count)

    def percentiles(self, wanted: Sequence[float]) -> list[float]:
        """For each percentage, ascending, the percentile in us; zeros if there are no latencies."""
        return _percentiles(self._counts, self.count, self.largest_us, wanted)

    def snapshot(self) -> list[int]:
        """The current counts, for ``since``."""
        return list(self._counts)

    def since(self, before: Sequence[int], wanted: Sequence[float]) -> list[float]:
        """The percentiles of what was added after a snapshot."""
        added = [now - then for now, then in zip(self._counts, before, strict=True)]
        return _percentiles(added, sum(added), self.largest_us, wanted)

    def grouped(self, per_power: int = 2) -> list[Bucket]:
        """A few wide buckets for display, each twice as wide as the one ``per_power`` before; gaps are filled."""
        found: dict[int, int] = {}
        edges = _edges(per_power, self.largest_us)
        at = 0
        for bucket in self.buckets():
            while edges[at + 1] <= bucket.from_us:
                at += 1
            found[at] = found.get(at, 0) + bucket.count
        if not found:
            return []
        return [Bucket(edges[i], edges[i + 1], found.get(i, 0)) for i in range(min(found), max(found) + 1)]


def _limits(index: int) -> tuple[int, int]:
    # Above the first 64 the index is (shift << 6) + a number from 64 to 127.
    shift = max((index >> _BITS) - 1, 0)
    base = index - (shift << _BITS)
    return base << shift, (base + 1) << shift


def _percentiles(counts: Sequence[int], total: int, largest_us: int, wanted: Sequence[float]) -> list[float]:
    found: list[float] = []
    if not total:
        return [0.0] * len(wanted)
    seen = 0
    targets = list(wanted)
    for index, count in enumerate(counts):
        seen += count
        while targets and count and seen >= targets[0] / 100 * total:
            targets.pop(0)
            begin, end = _limits(index)
            found.append(min((begin + end - 1) / 2, largest_us))
        if not targets:
            break
    return found


def _edges(per_power: int, largest_us: int) -> list[int]:
    edges, exponent = [0], 0
    while edges[-1] <= largest_us:
        edge = round(100 * 2 ** (exponent / per_power))  # the first at 100 us
        edges.append(edge)
        exponent += 1
    return edges
