"""The transaction log, with crashes at every point."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aioproducer.errors import ConfigError
from aioproducer.records import PreparedTransaction
from aioproducer.spark import commit_log, storage
from aioproducer.spark.batch_names import batch_write
from aioproducer.spark.commit_log import CommitLog, Winners
from aioproducer.spark.errors import SparkWriteError
from aioproducer.spark.storage import Storage

FIRST = PreparedTransaction("p-q-0-0", 1000, 3, 2)
SECOND = PreparedTransaction("p-q-1-0", 1001, 0, 2)
OTHER_DIGITS = "\u0660" * 11 + "\u0667"
"""Arabic digits, which Python reads as 7."""
BATCH = Winners("q:7", (FIRST, SECOND), "spark-q-7.jsonl")


class Crash(BaseException):
    """The driver dies here."""


@pytest.fixture
def log(tmp_path: Path) -> CommitLog:
    return CommitLog(Storage(str(tmp_path / "log")))


def again(tmp_path: Path) -> CommitLog:
    """The log as found by the next driver."""
    return CommitLog(Storage(str(tmp_path / "log")))


def test_an_empty_log_has_nothing(log: CommitLog) -> None:
    assert log.unfinished() == []
    assert log.committed() == frozenset()
    log.withdraw(BATCH)


def test_winners_are_there_for_the_next_driver(log: CommitLog, tmp_path: Path) -> None:
    log.record(BATCH)
    assert again(tmp_path).unfinished() == [BATCH]
    assert again(tmp_path).committed() == frozenset()


def test_a_finished_batch_is_committed(log: CommitLog, tmp_path: Path) -> None:
    log.record(BATCH)
    log.finish("q:7")
    assert again(tmp_path).unfinished() == []
    assert again(tmp_path).committed() == {"q:7"}
    log.finish("q:7")
    assert again(tmp_path).committed() == {"q:7"}


def test_a_finished_batch_has_its_number_of_rows(log: CommitLog, tmp_path: Path) -> None:
    counted = Winners("q:8", (FIRST,), rows=1_500)
    log.record(counted)
    assert again(tmp_path).unfinished() == [counted]
    log.finish("q:8", 1_500)
    log.finish("q:7")
    assert again(tmp_path).rows("q:8") == 1_500
    assert again(tmp_path).rows("q:7") is None
    assert again(tmp_path).rows("q:6") is None


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"[" * 100_000, b"{}", b"7", b"\xff", b'{"rows": null}', b'{"rows": "7"}', b'{"rows": true}']
)
def test_a_number_of_rows_that_is_none(log: CommitLog, tmp_path: Path, data: bytes) -> None:
    log.finish("q:7", 1_500)
    (tmp_path / "log" / "q%3A7.committed").write_bytes(data)
    assert log.rows("q:7") is None


def test_a_withdrawn_batch_leaves_nothing(log: CommitLog, tmp_path: Path) -> None:
    log.record(BATCH)
    log.withdraw(BATCH)
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
        log.finish("q:7")
    assert again(tmp_path).unfinished() == []
    assert again(tmp_path).committed() == {"q:7"}


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_crash_while_recording_leaves_no_record(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def crash(*_: object) -> None:
        raise Crash

    (tmp_path / "log").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(storage.os, step, crash)
        with pytest.raises(Crash):
            log.record(BATCH)
    assert again(tmp_path).unfinished() == []
    # An audit reads statements through Spark, which ignores names that begin with a dot.
    assert [path.name[0] for path in (tmp_path / "log").iterdir()] == ["."]
    log.record(BATCH)
    assert again(tmp_path).unfinished() == [BATCH]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_file_that_cannot_be_written_is_removed(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(storage.os, step, fail)
    with pytest.raises(OSError, match="the disk is full"):
        log.record(BATCH)
    assert list((tmp_path / "log").iterdir()) == []


def test_a_record_is_on_disk_before_it_has_its_name(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the directory itself; then file, name and directory."""
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
    assert steps == ["directory", "file", "name", "directory"]


def test_what_an_old_driver_records_is_another_record(log: CommitLog, tmp_path: Path) -> None:
    """It was considered dead, and the next one has recorded the batch meanwhile; it withdraws only its own record."""
    log.record(BATCH)
    late = Winners("q:7", (SECOND,))
    again(tmp_path).record(late)
    assert sorted(log.unfinished(), key=str) == sorted([BATCH, late], key=str)
    log.withdraw(late)
    assert log.unfinished() == [BATCH]


def test_all_records_of_a_finished_batch_are_removed(log: CommitLog, tmp_path: Path) -> None:
    log.record(BATCH)
    log.record(Winners("q:7", (SECOND,)))
    log.finish("q:7")
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["q%3A7.committed"]


@pytest.mark.parametrize("name", ["job:2013-01-01 ä.winners", "job:a.b/c.committed", "job:.hidden", "q:7"])
def test_names_of_any_kind(log: CommitLog, tmp_path: Path, name: str) -> None:
    batch = Winners(name, (FIRST,))
    log.record(batch)
    assert again(tmp_path).unfinished() == [batch]
    log.finish(name)
    assert again(tmp_path).is_committed(name)
    assert not again(tmp_path).is_committed(f"{name}8")
    assert again(tmp_path).unfinished() == []


def test_the_log_of_a_stream_does_not_grow_for_ever(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_log, "KEPT", 3)
    for query in ("q", "another"):
        for number in range(8, 13):
            log.finish(f"{query}:{number}")
    assert log.committed() == {f"{query}:{number}" for query in ("q", "another") for number in (10, 11, 12)}


def test_a_batch_that_is_done_again_late_stays(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a query that continues from an old copy of its checkpoint."""
    monkeypatch.setattr(commit_log, "KEPT", 3)
    log.finish("q:12")
    log.finish("q:2")
    assert log.committed() == {"q:2", "q:12"}


def test_a_batch_is_noted_once(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """To replace a file, HDFS removes it first; two drivers may finish the same batch."""
    log.finish("q:7")
    monkeypatch.setattr(Storage, "write", refuse)
    log.finish("q:7")
    assert log.committed() == {"q:7"}


def test_jobs_are_never_forgotten(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler may repeat a job at any time."""
    monkeypatch.setattr(commit_log, "KEPT", 3)
    jobs = {f"job:2024-01-{day:02}" for day in range(1, 11)}
    for job in sorted(jobs, reverse=True):
        log.finish(job)
        log.finish(batch_write(None))
    assert all(log.is_committed(job) for job in jobs)
    assert not log.is_committed("job:2024-01-11")


def test_a_job_is_done_as_fast_after_many_others(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object store lists a thousand names for each request."""
    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "fsync", lambda _: None)
        for number in range(1_000):
            log.finish(f"job:{number}")
    listed = 0
    names = Storage.names

    def count(self: Storage) -> list[str]:
        nonlocal listed
        listed += len(found := names(self))
        return found

    monkeypatch.setattr(Storage, "names", count)
    batch = Winners("job:one more", (FIRST,), claim=log.claim())
    log.record(batch)
    assert log.unfinished() == [batch]
    log.finish(batch.batch)
    assert log.is_committed(batch.batch)
    assert log.unfinished() == []
    assert listed < 50


def test_the_record_of_a_finished_job_is_removed(log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next driver, if the one that finished it has died."""
    log.record(Winners("job:x", (FIRST,)))
    log.record(Winners("job:y", (SECOND,)))
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "remove", refuse)
        log.finish("job:x")
    assert [one.batch for one in log.unfinished()] == ["job:y"]
    log.tidy()
    log.withdraw(log.unfinished()[0])
    assert Storage.names(log._storage) == []


def test_writes_without_a_name_leave_nothing(log: CommitLog, tmp_path: Path) -> None:
    batch = Winners(batch_write(None), (FIRST,))
    log.record(batch)
    log.finish(batch.batch)
    assert list((tmp_path / "log").iterdir()) == []


def test_winners_that_were_left_are_gone_before_their_batch_is_forgotten(
    log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise they would count as unfinished."""
    monkeypatch.setattr(commit_log, "KEPT", 3)
    log.record(Winners("q:1", (FIRST,)))
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "remove", refuse)
        log.finish("q:1")
    assert len(list((tmp_path / "log").iterdir())) == 2
    for number in range(2, 9):
        log.finish(f"q:{number}")
        assert log.unfinished() == []
    assert log.committed() == {"q:6", "q:7", "q:8"}


def refuse(self: Storage, name: str, data: bytes = b"") -> None:
    raise OSError(f"{name} can't be written or removed")


def test_uris_of_local_files(tmp_path: Path) -> None:
    Storage(f"file:{tmp_path}/a").write("x", b"1")
    Storage(f"file://{tmp_path}/a").write("y", b"2")
    found = Storage(str(tmp_path / "a"))
    assert found.names() == ["x", "y"]
    assert found.read("y") == b"2"


def test_a_file_system_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"nothing://x can't be used: .*option transactionLog"):
        Storage("nothing://x")


def test_a_file_of_somebody_else_is_left_alone(log: CommitLog, tmp_path: Path) -> None:
    log.record(BATCH)
    (tmp_path / "log" / "notes.committed").write_bytes(b"kept")
    log.finish("q:7")
    assert "q:7" in again(tmp_path).committed()
    assert (tmp_path / "log" / "notes.committed").read_bytes() == b"kept"


def test_who_claims_later_has_the_log(log: CommitLog, tmp_path: Path) -> None:
    assert log.is_claimed_by("000000000000.0")
    first = log.claim()
    assert log.is_claimed_by(first)
    second = again(tmp_path).claim()
    assert second > first
    assert not log.is_claimed_by(first)
    assert log.is_claimed_by(second)
    log.tidy()
    assert [path.name for path in (tmp_path / "log").iterdir()] == [f"{second}.claim"]


def test_no_two_claims_have_the_same_number(log: CommitLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if another driver looks for the newest claim at the same time."""
    write = Storage.write

    def write_both(self: Storage, name: str, data: bytes) -> None:
        monkeypatch.setattr(Storage, "write", write)
        write(self, "000000000001.00000000.claim", b"")
        write(self, name, data)

    monkeypatch.setattr(Storage, "write", write_both)
    assert log.claim().startswith("000000000002.")


def test_files_whose_digits_are_others_are_no_claims(log: CommitLog, tmp_path: Path) -> None:
    """Python parses them as numbers, but their names would sort after all real claims forever."""
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"{OTHER_DIGITS}.0123abcd.claim").touch()
    claims = [log.claim() for _ in range(2)]
    assert [claim.split(".")[0] for claim in claims] == ["000000000001", "000000000002"]
    assert log.is_claimed_by(claims[1])


def test_files_whose_digits_are_others_are_no_batches(log: CommitLog, tmp_path: Path) -> None:
    """They must not make a real batch look old."""
    log.finish("q:7")
    (tmp_path / "log" / f"q%3A{chr(0x0661)}{OTHER_DIGITS}.committed").touch()
    log.tidy()
    assert "q:7" in log.committed()


def test_what_the_highest_claim_has_recorded_counts(log: CommitLog) -> None:
    """Older records of a batch are its sources, or come from drivers that have given way."""
    old, new = Winners("q:7", (SECOND,), claim="000000000001.a"), Winners("q:7", (FIRST,), claim="000000000002.a")
    other = Winners("q:8", (SECOND,), claim="000000000001.a")
    for each in (old, new, other):
        log.record(each)
    assert sorted(log.unfinished(), key=str) == sorted([new, other], key=str)
    log.give_up(new)
    assert log.unfinished() == [other]


def test_the_record_of_an_older_version(log: CommitLog, tmp_path: Path) -> None:
    """It had no claims."""
    log.record(BATCH)
    (path,) = (tmp_path / "log").iterdir()
    said = json.loads(path.read_text())
    del said["claim"]
    path.write_text(json.dumps(said))
    assert again(tmp_path).unfinished() == [BATCH]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"transactions": 1}',
        b'{"transactions": [{}]}',
        b"\xff",
        b'{"transactions": [], "claim": 7}',
        b'{"transactions": [], "rows": "7"}',
        b'{"transactions": [], "claim": "000000000007.0123abcd", "statement": null}',
        b'{"transactions": [], "statement": "../../orders.jsonl", "stated": ""}',
        b'{"transactions": [], "statement": "/../orders.jsonl", "stated": ""}',
        b'{"transactions": [{"transactional_id": 7, "producer_id": 1000, "epoch": 0}]}',
        b'{"transactions": [{"transactional_id": "p", "producer_id": "1000", "epoch": 0}]}',
        b'{"transactions": [{"transactional_id": "p", "producer_id": 1000, "epoch": 0, "is_empty": 1}]}',
    ],
)
def test_a_record_that_is_none_is_named(log: CommitLog, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "q%3A7.0123abcd.winners").write_bytes(data)
    with pytest.raises(SparkWriteError, match=r"q%3A7\.0123abcd\.winners is not a transaction log's record"):
        log.unfinished()


def test_records_and_claims_of_somebody_else_are_left_alone(log: CommitLog, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for name in ("notes.winners", "notes.claim"):
        (tmp_path / "log" / name).write_bytes(b"kept")
    assert log.unfinished() == []
    assert log.claim().startswith("000000000001.")
    log.tidy()
    assert len(list((tmp_path / "log").glob("notes.*"))) == 2
