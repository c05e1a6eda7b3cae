"""The number of processors available to this process, with the files of a simulated system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aioproducer import processors
from aioproducer.processors import processor_count


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Eight processors, and no control groups yet."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(processors, "CONTROL_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(processors, "OWN_GROUP", tmp_path / "own")


def write(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)


def test_without_control_groups() -> None:
    assert processor_count() == 8


def test_where_the_system_does_not_tell_of_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert processor_count() == 3
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert processor_count() == 1


@pytest.mark.parametrize(
    ("limit", "count"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8)],
)
def test_a_container(tmp_path: Path, limit: str, count: int) -> None:
    """It sees only its own group; a fraction of a processor counts as one."""
    write(tmp_path, {"own": "0::/\n", "groups/cpu.max": limit + "\n"})
    assert processor_count() == count


def test_the_least_of_the_groups_around_counts(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "own": "0::/system.slice/shop.service\n",
            "groups/system.slice/shop.service/cpu.max": "max 100000\n",
            "groups/system.slice/cpu.max": "300000 100000\n",
            "cpu.max": "100000 100000\n",  # outside of the groups
        },
    )
    assert processor_count() == 3


@pytest.mark.parametrize(("quota", "count"), [("-1", 8), ("250000", 3)])
def test_control_groups_of_version_1(tmp_path: Path, quota: str, count: int) -> None:
    write(
        tmp_path,
        {
            "own": "11:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n",
            "groups/cpu/docker/abc/cpu.cfs_quota_us": quota + "\n",
            "groups/cpu/docker/abc/cpu.cfs_period_us": "100000\n",
        },
    )
    assert processor_count() == count


@pytest.mark.parametrize("text", ["", "100000", "100000 0", "many 100000", "\0"])
def test_files_that_make_no_sense_are_no_bound(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"own": "0::/\n", "groups/cpu.max": text})
    assert processor_count() == 8


def test_a_group_whose_name_is_no_text(tmp_path: Path) -> None:
    """The name of a folder may be any bytes."""
    group = Path(os.fsdecode(b"caf\xe9"))
    (tmp_path / "own").write_bytes(b"0::/caf\xe9\n")
    write(tmp_path, {f"groups/{group}/cpu.max": "200000 100000\n"})
    assert processor_count() == 2


def test_lines_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"own": "weird\n\n0::/shop\n", "groups/shop/cpu.max": "200000 100000\n"})
    assert processor_count() == 2


def test_this_machine_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert 1 <= processor_count() <= (os.cpu_count() or 1)
