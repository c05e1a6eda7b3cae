"""The log of what is to be committed, cut off at every point."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aioproducer.errors import ConfigError
from aioproducer.records import PreparedTransaction
from aioproducer.spark import commit_log, storage
from aioproducer.spark.commit_log import CommitLog, Winners
from aioproducer.spark.storage import Storage

FIRST = PreparedTransaction("p-q-0-0", 1000, 3, 2)
SECOND = PreparedTransaction("p-q-1-0", 1001, 0, 2)
BATCH = Winners("7", (FIRST, SECOND))


class Crash(BaseException):
    """The driver dies here."""


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    return CommitLog(Storage(str(tmp_path / "log")))


def again(tmp_path: Path) -> CommitLog:
    """The log as the next driver finds it."""
    return CommitLog(Storage(str(tmp_path / "log")))


def test_an_empty_log_has_nothing(log: CommitLog) -> None:
    assert log.unfinished() == []
    assert log.committed() == frozenset()
    log.withdraw("7")


def test_winners_are_there_for_the_next_driver(log: CommitLog, tmp_path: Path) -> None:
    log.record(BATCH)
    assert again(tmp_path).unfinished() == [BATCH]
    assert again(tmp_path).committed() == frozenset()


def test_a_finished_batch_is_committed(log: CommitLog, tmp_path: Path) -> None:
    log.record(BATCH)
    log.finish("7")
    assert again(tmp_path).unfinished() == []
    assert again(tmp_path).committed() == {"7"}
    log.finish("7")
    assert again(tmp_path).committed() == {"7"}


def test_a_withdrawn_batch_leaves_nothing(log: CommitLog, tmp_path: Path) -> None:
    log.record(BATCH)
    log.withdraw("7")
    assert again(tmp_path).unfinished() == []
    assert list((tmp_path / "log").iterdir()) == []


def test_a_crash_while_finishing_leaves_a_committed_batch(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``committed`` is written before ``winners`` is removed, and wins."""
    log.record(BATCH)

    def crash(self: Storage, name: str) -> None:
        raise Crash

    monkeypatch.setattr(Storage, "remove", crash)
    with pytest.raises(Crash):
        log.finish("7")
    assert again(tmp_path).unfinished() == []
    assert again(tmp_path).committed() == {"7"}


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_crash_while_recording_leaves_no_record(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, step, crash)
        with pytest.raises(Crash):
            log.record(BATCH)
    assert again(tmp_path).unfinished() == []
    log.record(BATCH)
    assert again(tmp_path).unfinished() == [BATCH]


def test_a_record_is_on_disk_before_it_has_its_name(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File, then name, then directory."""
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(descriptor: int) -> None:
        steps.append("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        fsync(descriptor)

    def note_replace(source: str, target: str) -> None:
        steps.append("name")
        replace(source, target)

    monkeypatch.setattr(storage.os, "fsync", note_fsync)
    monkeypatch.setattr(storage.os, "replace", note_replace)
    log.record(BATCH)
    assert steps == ["file", "name", "directory"]


def test_names_of_any_kind(log: CommitLog, tmp_path: Path) -> None:
    batch = Winners("job/2013-01-01 ä.winners", (FIRST,))
    log.record(batch)
    assert again(tmp_path).unfinished() == [batch]
    log.finish(batch.batch)
    assert again(tmp_path).committed() == {batch.batch}


def test_the_log_does_not_grow_for_ever(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "KEPT", 3)
    for number in range(8, 13):
        log.finish(str(number))
    assert log.committed() == {"10", "11", "12"}


def test_uris_of_local_files(tmp_path: Path) -> None:
    Storage(f"file:{tmp_path}/a").write("x", b"1")
    Storage(f"file://{tmp_path}/a").write("y", b"2")
    found = Storage(str(tmp_path / "a"))
    assert found.names() == ["x", "y"]
    assert found.read("y") == b"2"


def test_a_file_system_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"nothing://x can't be used: .*option transactionLog"):
        Storage("nothing://x")
