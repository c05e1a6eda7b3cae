"""The soak test finds the faults that it looks for, and a short run finds nothing."""

from __future__ import annotations

import dataclasses
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.soak import checks, report
from benchmarks.soak.__main__ import main
from benchmarks.soak.checks import Leftovers, trend
from benchmarks.soak.faults import Fault
from benchmarks.soak.load import Tally
from benchmarks.soak.samples import Sample

MIB = 1 << 20
BEFORE = 40 * MIB
BUFFER = 32 * MIB
GOOD = Leftovers(pool_bytes=0, tasks=0, files=(), temporary_files=0, objects=Counter(), logged=1_800_000)


def half_an_hour(
    growth_bytes: float = 0, block_growth: float = 0, rss_bytes: int = 100 * MIB, pool_bytes: int = 30 * MIB
) -> list[Sample]:
    """One sample per second, noisy like real ones, growing by this much from the first to the last."""
    rng = random.Random(1)
    samples = []
    for second in range(1, 1_801):
        share, pending = second / 1_800, rng.randrange(60_000)
        samples.append(
            Sample(
                at_s=float(second),
                rss_bytes=int(rss_bytes + growth_bytes * share + rng.randrange(-MIB, MIB)),
                blocks=int(200_000 * (1 + block_growth * share) + 3 * pending),
                tasks=35,
                descriptors=20,
                sockets=4,
                temporary_files=0,
                pool_bytes=pool_bytes,
                pending=pending,
                acked=1_000 * second,
                lag_ms=rng.random() * 100,
                collection_ms=1.0,
                queued_ms=0.0,
                faulty=False,
            )
        )
    return samples


def ended(acked: int = 1_800_000, failed: int = 0, unsure: int = 0, lost: int = 0) -> Tally:
    return Tally(accepted=acked + failed + lost, acked=acked, failed=failed, unsure=unsure)


def broken(samples: list[Sample] | None = None, tally: Tally | None = None, left: Leftovers = GOOD) -> list[str]:
    """The checks that fail."""
    found = checks.checks(samples or half_an_hour(), tally or ended(), left, BEFORE, BUFFER)
    return [check.what for check in found if not check.holds]


def test_a_good_run_passes() -> None:
    assert broken() == []


def test_slow_growth_is_found() -> None:
    """10 MiB in half an hour, with noise of 2, are found; 4 are tolerated."""
    assert broken(half_an_hour(growth_bytes=4 * MIB)) == []
    assert broken(half_an_hour(growth_bytes=12 * MIB)) == ["trend of resident memory after the warm-up"]


def test_growth_of_objects_is_found() -> None:
    """Even if resident memory does not show it, and the blocks of pending records hide it."""
    assert broken(half_an_hour(block_growth=0.2)) == ["trend of Python's memory blocks after the warm-up"]


def test_a_short_run_shows_no_trend() -> None:
    """The first minute, in which the load reaches its peaks, does not count as a leak."""
    minute = half_an_hour(growth_bytes=600 * MIB)[:60]
    assert broken(minute) == []


def test_too_much_memory_is_found() -> None:
    assert broken(half_an_hour(rss_bytes=400 * MIB)) == ["most resident memory"]
    assert broken(half_an_hour(pool_bytes=BUFFER + 1)) == ["most buffer memory in use"]
    assert broken(half_an_hour(pool_bytes=0)) == ["most buffer memory in use"]


def test_records_that_are_missing_are_found() -> None:
    """Failed records with maybe_written may be in the log or not; all others are counted exactly."""
    assert broken(tally=ended(lost=1)) == ["accepted - acknowledged - failed"]
    assert broken(tally=ended(acked=1_800_001)) == ["records in the logs, by another client"]
    assert broken(tally=ended(acked=1_799_999)) == ["records in the logs, by another client"]
    assert broken(tally=ended(acked=1_799_999, failed=1)) == ["records in the logs, by another client"]
    assert broken(tally=ended(acked=1_799_999, failed=1, unsure=1)) == []


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"pool_bytes": 1}, "buffer memory in use after flush"),
        ({"tasks": 1}, "tasks left after close"),
        ({"files": ("socket:[1]",)}, "sockets and files left open after close"),
        ({"temporary_files": 1}, "temporary files left after close"),
        ({"objects": Counter({"Connection": 1})}, "objects of the producer left after close"),
    ],
)
def test_leftovers_are_found(change: dict[str, object], what: str) -> None:
    assert broken(left=dataclasses.replace(GOOD, **change)) == [what]  # type: ignore[arg-type]


def test_trend_is_not_moved_by_outliers() -> None:
    at_s = [float(second) for second in range(600)]
    values = [10.0 + 0.01 * second for second in range(600)]
    for second in range(100, 200):
        values[second] = 1_000.0
    assert trend(at_s, values) == pytest.approx(5.99, rel=0.1)
    assert trend([1.0], [5.0]) == 0.0


def passed() -> report.Soak:
    """A run without faults."""
    samples, tally = half_an_hour(), ended()
    return report.Soak(
        minutes=30, loop="uvloop", kafka="4.3.1", tasks=23, samples=samples, faults=[Fault("kill", 1, 60.0, 70.0)],
        tally=tally, cores=report.Cores(0.5, 1.0, 0.1), checks=checks.checks(samples, tally, GOOD, BEFORE, BUFFER),
    )  # fmt: skip


def test_the_report_shows_what_was_found_over_the_whole_run(tmp_path: Path) -> None:
    """The report shows the findings, with lines that cover the whole run."""
    soak = passed()
    paths = report.write(soak, tmp_path, tmp_path / "raw")
    assert [path.name for path in paths] == ["soak.md", "soak.svg", "soak.csv"]
    document = paths[0].read_text()
    assert "Everything that was checked holds." in document
    assert "| 27.0-30.0 | 1,000 |" in document
    assert "1 kills" in document
    assert len(paths[2].read_text().splitlines()) == 1_801
    failed = dataclasses.replace(soak, checks=[*soak.checks, checks.Check("one more", "1", "0", False)])
    assert "**Of the checks 1 do not hold.**" in report.markdown(failed)


def test_the_page_says_what_the_next_run_will_say() -> None:
    """Paragraph by paragraph, ignoring the figures: text written by hand would be overwritten."""
    page = (Path(__file__).parents[2] / "docs" / "soak.md").read_text()
    assert paragraphs(page) == paragraphs(report.markdown(passed()))


def paragraphs(page: str) -> list[str]:
    """Without tables, and without what changes each time: figures, errors and faults."""
    found = []
    for one in page.split("\n\n"):
        text = re.sub(r"[0-9][0-9.,-]*", "0", " ".join(one.split()))
        if not text.startswith("|") and "of the checks" not in text.lower() and "was checked holds" not in text:
            found.append(re.sub(r"errors: .*?(?= 0 other)|had: .*", "", text))
    return found


@pytest.mark.broker
@pytest.mark.slow
def test_a_short_soak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A minute with a restart, a kill and a freeze."""
    assert main(["--minutes", "1", "--interval", "5", "--freeze", "5", "--output", str(tmp_path)]) == 0, (
        capsys.readouterr().out
    )
