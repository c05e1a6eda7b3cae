"""The histogram of latencies."""

from __future__ import annotations

import random

import pytest

from aioproducer.cli.perf.latency import Histogram


def histogram(*latencies_us: int) -> Histogram:
    found = Histogram()
    for each in latencies_us:
        found.add(each)
    return found


def test_an_empty_one_has_zeros() -> None:
    empty = Histogram()
    assert (empty.count, empty.mean_us, empty.least_us, empty.largest_us) == (0, 0.0, 0, 0)
    assert empty.percentiles([50, 99]) == [0.0, 0.0]
    assert list(empty.buckets()) == empty.grouped() == []


@pytest.mark.parametrize("value", [0, 1, 127, 128, 129, 255, 256, 1_000, 65_535, 65_536, 10**9, 2**43])
def test_every_value_lies_in_its_bucket(value: int) -> None:
    (bucket,) = histogram(value).buckets()
    assert bucket.from_us <= value < bucket.to_us
    assert bucket.to_us - bucket.from_us <= max(1, value / 64)


def test_buckets_meet() -> None:
    found = list(histogram(*range(3_000)).buckets())
    assert [each.to_us for each in found[:-1]] == [each.from_us for each in found[1:]]
    assert sum(each.count for each in found) == 3_000


def test_percentiles_are_near_the_true_ones() -> None:
    rng = random.Random(1)
    values = sorted(int(rng.lognormvariate(8, 1.5)) for _ in range(20_000))
    found = histogram(*values)
    assert found.count == len(values)
    assert found.mean_us == pytest.approx(sum(values) / len(values))
    assert (found.least_us, found.largest_us) == (values[0], values[-1])
    wanted = [1, 50, 90, 99, 99.9, 100]
    for percent, told in zip(wanted, found.percentiles(wanted), strict=True):
        true = values[max(round(percent / 100 * len(values)) - 1, 0)]
        assert told == pytest.approx(true, rel=0.02, abs=1), percent


def test_below_zero_is_zero() -> None:
    """A clock that is read twice may return the same time."""
    assert histogram(-5).least_us == 0


def test_what_was_added_since() -> None:
    found = histogram(*[100] * 99)
    before = found.snapshot()
    for _ in range(10):
        found.add(5_000)
    assert found.since(before, [50]) == pytest.approx([5_000], rel=0.02)
    assert found.percentiles([50]) == [100]
    assert found.since(found.snapshot(), [50]) == [0.0]


def test_wide_buckets_for_people() -> None:
    found = histogram(50, 150, 150, 10_000).grouped(per_power=1)
    assert sum(each.count for each in found) == 4
    assert (found[0].from_us, found[0].count) == (0, 1)
    assert any(each.count == 0 for each in found), "gaps are filled"
    assert [each.to_us for each in found[:-1]] == [each.from_us for each in found[1:]]
    assert found[-1].from_us <= 10_000 < found[-1].to_us
