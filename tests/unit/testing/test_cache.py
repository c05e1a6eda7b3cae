"""Where the cache is, and that its users wait for each other."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from aioproducer.testing.cache import cache_directory, locked, write_whole
from aioproducer.testing.errors import DownloadError


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache/aioproducer"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/fast"}, "/fast/aioproducer"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "relative"}, "/home/me/.cache/aioproducer"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/fast", "AIOPRODUCER_CACHE": "/mine"}, "/mine"),
        ({"HOME": "/home/me", "AIOPRODUCER_CACHE": ""}, "/home/me/.cache/aioproducer"),
    ],
)
def test_where_it_is(environ: dict[str, str], directory: str) -> None:
    assert cache_directory(environ) == Path(directory)


@pytest.mark.parametrize("environ", [{}, {"AIOPRODUCER_CACHE": "~/cache"}])
def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """A container may run under any user id, also one that the system does not know."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(DownloadError, match="AIOPRODUCER_CACHE names one"):
        cache_directory(environ)


def test_one_at_a_time_and_the_other_says_that_it_waits(tmp_path: Path) -> None:
    events: list[str] = []
    waiting = threading.Event()

    def progress(line: str) -> None:
        events.append(line)
        waiting.set()

    def second() -> None:
        with locked(tmp_path, progress):
            events.append("second")

    other = threading.Thread(target=second)
    with locked(tmp_path, events.append):
        other.start()
        assert waiting.wait(30)
        events.append("first")
    other.join(30)
    assert events == [f"waiting for another process that fills {tmp_path}", "first", "second"]


def test_the_lock_ends_with_an_exception(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path, print):
        raise KeyError
    lines: list[str] = []
    with locked(tmp_path, lines.append):
        assert lines == []


def test_a_file_is_written_whole_and_leaves_no_part(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_writers_of_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One writes all of it between two steps of another."""
    path = tmp_path / "file"
    replace = Path.replace

    def after_another(part: Path, target: Path) -> Path:
        monkeypatch.undo()
        write_whole(path, b"other")
        return replace(part, target)

    monkeypatch.setattr(Path, "replace", after_another)
    write_whole(path, b"own")
    assert path.read_bytes() == b"own"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "file", b"one")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_script_is_written_executable(tmp_path: Path) -> None:
    write_whole(tmp_path / "script", b"#!/bin/sh\n", mode=0o755)
    assert (tmp_path / "script").stat().st_mode & 0o777 == 0o755
