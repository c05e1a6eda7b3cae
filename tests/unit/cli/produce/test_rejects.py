"""The rejects file."""

from __future__ import annotations

import base64
import errno
import json
import os
from pathlib import Path

import pytest

from aioproducer.cli.outcome import CommandError
from aioproducer.cli.produce.rejects import Rejects
from aioproducer.cli.produce.rows import Row


def test_each_row_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "rejects"
    with Rejects(path) as rejects:
        rejects.write(Row(3, "{é".encode()), "not JSON")
        rejects.write(Row(70, b"two\nlines"), "too late", maybe_written=True)
        rejects.write(Row(80, b"\xff"), "not UTF-8")
        assert rejects.count == 3
    assert rejects.problem is None
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"line_number": 3, "error": "not JSON", "line": "{é"},
        {"line_number": 70, "error": "too late", "line": "two\nlines", "maybe_written": True},
        {"line_number": 80, "error": "not UTF-8", "line_base64": base64.b64encode(b"\xff").decode()},
    ]


def test_the_file_is_that_of_this_run(tmp_path: Path) -> None:
    path = tmp_path / "rejects"
    path.write_text("of an earlier run\n")
    with Rejects(path) as rejects:
        rejects.write(Row(1, b"x"), "bad")
    assert len(path.read_text().splitlines()) == 1
    with Rejects(path):
        pass
    assert not path.exists()


def test_a_file_that_may_not_be_removed_stays_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a directory of somebody else, as tests that run as root don't have it."""

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    path = tmp_path / "rejects"
    path.write_text("of an earlier run\n")
    monkeypatch.setattr(Path, "unlink", refuse)
    with Rejects(path) as rejects:
        pass
    assert rejects.problem is None
    assert path.read_text() == ""


def test_special_files_stay() -> None:
    with Rejects(Path(os.devnull)):
        pass
    assert Path(os.devnull).exists()


@pytest.mark.skipif(not Path("/dev/fd/2").exists(), reason="needs names for open files")
@pytest.mark.parametrize("rows", [0, 1])
def test_standard_error_that_goes_to_a_file_keeps_its_content_and_its_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], rows: int
) -> None:
    """/dev/stderr is such a link too, which root may remove."""
    path = tmp_path / "stderr"
    path.symlink_to("/dev/fd/2")
    os.write(2, b"before\n")
    with Rejects(path) as rejects:
        for number in range(rows):
            rejects.write(Row(number, b"x"), "bad")
    os.write(2, b"after\n")
    first, *rejected, last = capfd.readouterr().err.splitlines()
    assert (first, last) == ("before", "after")
    assert len(rejected) == rows
    assert path.is_symlink()


def test_a_file_that_is_standard_output_stays(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out"
    path.write_text("before\n")
    with path.open("a") as file, capfd.disabled():
        before = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with Rejects(path):
                pass
        finally:
            os.dup2(before, 1)
            os.close(before)
    assert path.read_text() == "before\n"


def test_a_link_stays(tmp_path: Path) -> None:
    path = tmp_path / "link"
    path.symlink_to(tmp_path / "rejects")
    with Rejects(path):
        pass
    assert path.is_symlink()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_noted_and_ends_nothing() -> None:
    with Rejects(Path("/dev/full")) as rejects:
        for number in range(10_000):
            rejects.write(Row(number, b"x"), "bad")
        assert rejects.count == 10_000
    assert rejects.problem == "No space left on device"


def test_an_impossible_path_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "none" / "rejects"
    with pytest.raises(CommandError, match=r"rejects can't be written: No such file or directory"):
        Rejects(path)
