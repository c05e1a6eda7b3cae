"""The pictures of an audit."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aioproducer.spark.audit.pictures import MOST_BUCKETS, coarser, draw

NOON = datetime(2026, 1, 31, 12)
LATENCIES = [f"{what}_{which}_ms" for what in ("append", "ack") for which in ("p50", "p99", "max")]


def row(number: int, **fields: Any) -> dict[str, Any]:
    counts = {"found": 1_000, "missing": number, "duplicated": 0, "out_of_order": 2 * number}
    return {"bucket": NOON + timedelta(minutes=number), **counts, **dict.fromkeys(LATENCIES), **fields}


@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize("latencies", [0, 3, 6])
def test_the_legends_have_the_counts_and_unknown_latencies_are_not_drawn(
    tmp_path: Path, times: int, latencies: int
) -> None:
    """The legend has the counts, because one record among millions can't be seen; unknown values are not drawn."""
    known = dict.fromkeys(LATENCIES[:latencies], 10)
    by_time = [row(number, **(known if number % 2 == 0 else {})) for number in range(times)]
    places = [{"topic": "orders", "partition": partition, **row(1)} for partition in (0, 1, None)]
    paths = draw(by_time, places, tmp_path / "new", "audit of orders")
    assert [path.name for path in paths] == ["audit-time.svg", "audit-partitions.svg"]
    over_time, by_partition = (path.read_text() for path in paths)
    for text in ("audit of orders", f"found: {1_000 * times:,}", f"missing: {sum(range(times)):,}"):
        assert f"<!-- {text} -->" in over_time
    assert ("ms to the broker" in over_time) == (latencies >= 3)
    assert ("ms to the acknowledgement" in over_time) == (latencies == 6)
    for text in ("orders-0", "orders-unknown", "missing: 3", "out of order: 6"):
        assert f"<!-- {text} -->" in by_partition


def test_the_same_rows_give_the_same_file(tmp_path: Path) -> None:
    files = []
    for directory in ("a", "b"):
        paths = draw([row(1)], [{"topic": "t", "partition": 0, **row(1)}], tmp_path / directory, "title")
        files.append([path.read_bytes() for path in paths])
    assert files[0] == files[1]


def test_thousands_of_buckets_are_drawn_as_fewer_longer_ones(tmp_path: Path) -> None:
    """Bars thinner than a pixel show nothing, and take minutes to draw; no count gets lost."""
    known = dict.fromkeys(LATENCIES[:3], 10)
    by_time = [row(number, **(known | {"append_max_ms": number})) for number in range(2_000) if number not in (5, 700)]
    over_time, _ = draw(by_time, [], tmp_path, "t")
    text = over_time.read_text()
    assert text.count('<g id="patch_') < 4 * MOST_BUCKETS + 100
    for name, count in (("found", 1_998_000), ("missing", sum(range(2_000)) - 705)):
        assert f"<!-- {name}: {count:,} -->" in text
    drawn = coarser(by_time)
    assert drawn[0] == {**row(0 + 1 + 2 + 3 + 4), **known, "bucket": NOON, "found": 5_000, "append_max_ms": 4}
    assert (drawn[1]["bucket"], drawn[1]["found"]) == (NOON + timedelta(minutes=5), 4_000)


def test_of_many_partitions_those_with_errors_are_drawn(tmp_path: Path) -> None:
    """The legend has the counts of all of them."""
    places = [{"topic": "orders", "partition": number, **row(int(number == 99))} for number in range(100)]
    _, by_partition = draw([row(1)], places, tmp_path, "audit")
    text = by_partition.read_text()
    for shown in ("audit: by partition, 40 of 100", "orders-0", "orders-38", "orders-99", "found: 100,000"):
        assert f"<!-- {shown} -->" in text
    assert "<!-- missing: 1 -->" in text
    assert "<!-- orders-39 -->" not in text
