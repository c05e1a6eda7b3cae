"""Percentiles, table and picture."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from aioproducer.cli.demo.picture import by_slice, draw
from aioproducer.cli.demo.publish import Published
from aioproducer.cli.demo.read_back import Verdict
from aioproducer.cli.demo.report import latencies_ms, percentile, table


def published(count: int = 1000) -> Published:
    """One record a millisecond, record n acknowledged n % 10 + 1 ms later."""
    admitted = array("d", (number / 1000 for number in range(count)))
    acked = array("d", ((number + number % 10 + 1) / 1000 for number in range(count)))
    empty = array("q", bytes(8 * count))
    return Published(
        admitted,
        acked,
        array("i", bytes(4 * count)),
        empty,
        seconds=2.0,
        cpu_seconds=0.5,
        payload_bytes=4_000_000,
        batch_bytes=1_000_000,
        batches=10,
    )


@given(st.lists(st.floats(0, 1e6), min_size=1).map(sorted), st.sampled_from([0.1, 50.0, 99.0, 99.9, 100.0]))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(ordered: list[float], percent: float) -> None:
    value = percentile(ordered, percent)
    assert value in ordered
    not_above = sum(one <= value for one in ordered)
    below = sum(one < value for one in ordered)
    assert not_above * 1000 >= len(ordered) * round(percent * 10)
    assert below * 1000 < len(ordered) * round(percent * 10)


def test_known_percentiles() -> None:
    ordered = [float(number) for number in range(1, 1001)]
    assert [percentile(ordered, percent) for percent in (50.0, 99.0, 99.9, 100.0)] == [500, 990, 999, 1000]
    assert percentile([7.0], 50.0) == 7.0


def test_latencies_are_from_submit_to_ack() -> None:
    assert latencies_ms(published(3)) == pytest.approx([1, 2, 3])


def test_the_table_has_the_numbers() -> None:
    verdict = Verdict(records=1000, seconds=1.5)
    verdict.broken["values"] = 3
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table(published(), verdict, "somewhere"))
    console.file.close()
    text = console.export_text()
    assert "1,000 flights to somewhere" in text
    for name, shown in {
        "throughput": "500 records/s, 2.0 MB/s",
        "client CPU": "500.00 s per million records",
        "batches": "10, 100 records each",
        "compression (lz4)": "4.0 MB to 1.0 MB, 4.0 : 1",
        "latency p50": "5.0 ms",
        "latency max": "10.0 ms",
        "values": "3 wrong",
        "keys": "all right",
    }.items():
        (line,) = [line for line in text.splitlines() if name in line]
        assert shown in line


def test_slices_hold_every_record_once() -> None:
    groups = by_slice(published(), slices=7)
    assert sum(map(len, groups)) == 1000
    assert all(group == sorted(group) for group in groups)
    # The records came evenly, so no slice has much more than its share.
    assert max(map(len, groups)) < 1000 / 7 + 15


@pytest.mark.parametrize("count", [1, 1000])
def test_the_picture_is_a_png(count: int, tmp_path: Path) -> None:
    path = tmp_path / "demo.png"
    draw(published(count), path, "a title")
    assert path.read_bytes().startswith(b"\x89PNG")
