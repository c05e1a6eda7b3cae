"""What a cluster runs on, with trainings that start no broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aioproducer.testing import ClusterError, runtime
from aioproducer.testing.command import Runtime
from aioproducer.testing.jars import KafkaJars
from aioproducer.testing.java import Java

JAVA = Java(Path("/java"), (25,))


class Training:
    """A training run; ``content`` is what the JVM writes, None for nothing."""

    def __init__(self, content: bytes | None = b"classes") -> None:
        self.content = content
        self.runs = 0

    def __call__(self, of: Runtime, archive: Path) -> None:
        self.runs += 1
        if self.content is not None:
            archive.write_bytes(self.content)


Prepared = Callable[[runtime.Train], Runtime]


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Prepared:
    """Prepares a Kafka 4.3.1 whose jars are in the cache ``tmp_path``."""
    monkeypatch.setenv("AIOPRODUCER_CACHE", str(tmp_path))
    monkeypatch.setattr(runtime, "find_java", lambda environ: JAVA)
    monkeypatch.setattr(runtime, "find_jars", lambda version, *_: KafkaJars(version, ()))
    return lambda training: runtime.prepare("4.3.1", print, training)


def test_one_training_makes_the_archive_of_all_sessions(prepared: Prepared, tmp_path: Path) -> None:
    training = Training()
    first, second = prepared(training), prepared(training)
    assert first == second
    assert training.runs == 1
    assert first.archive is not None
    assert first.archive.read_bytes() == b"classes"
    assert list((tmp_path / "archives").iterdir()) == [first.archive]


def test_a_java_that_makes_no_archive_is_asked_once(prepared: Prepared) -> None:
    training = Training(None)
    assert [prepared(training).archive for _ in range(2)] == [None, None]
    assert training.runs == 1


def test_after_a_failed_training_the_next_session_tries_again(prepared: Prepared, tmp_path: Path) -> None:
    def failing(of: Runtime, archive: Path) -> None:
        archive.write_bytes(b"half of the cla")
        raise ClusterError("broker 1 did not shut down within 120 s and was killed")

    assert prepared(failing).archive is None
    assert list((tmp_path / "archives").iterdir()) == []
    archive = prepared(Training()).archive
    assert archive is not None
    assert archive.read_bytes() == b"classes"


@pytest.mark.parametrize("blocked", ["lock", "archives"])
def test_a_cache_that_can_not_be_written_means_no_archive(prepared: Prepared, tmp_path: Path, blocked: str) -> None:
    """A directory in place of the file, or the other way round, as permissions do not stop root."""
    (tmp_path / "lock").mkdir() if blocked == "lock" else (tmp_path / "archives").touch()
    training = Training()
    assert prepared(training) == Runtime(JAVA, KafkaJars("4.3.1", ()))
    assert training.runs == 0
