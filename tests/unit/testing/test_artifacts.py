"""Jars that are fetched without their dependencies. With dependencies: test_jars.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.testing import DownloadError
from aioproducer.testing.artifacts import Artifacts, find_artifacts
from tests.unit.testing.test_jars import Repository, environ, repository

__all__ = ["environ", "repository"]

PLAIN = Artifacts("Tools 1.2.3", "tools-1.2.3", ("org.apache.kafka:kafka-tools:1.2.3",), dependencies=False)


def test_only_what_was_asked_for_is_fetched(repository: Repository, environ: dict[str, str], tmp_path: Path) -> None:
    lines: list[str] = []
    (jar,) = find_artifacts(PLAIN, tmp_path / "cache", lines.append, environ)
    assert jar.name == "kafka-tools-1.2.3.jar"
    assert lines == ["Tools 1.2.3: 1 of 1 jars"]
    assert not any("slf4j" in path or "kafka_2.13" in path for path in repository.requests)


def test_one_connection_serves_many_requests(repository: Repository, environ: dict[str, str], tmp_path: Path) -> None:
    """With a TLS handshake for each of hundreds of small files, Kafka's dependencies took three times as long."""
    find_artifacts(PLAIN, tmp_path / "cache", print, environ)
    assert repository.requests.total() > 1
    assert repository.connections == 1


def test_each_set_has_a_list_of_its_own(repository: Repository, environ: dict[str, str], tmp_path: Path) -> None:
    other = Artifacts("Core 1.2.3", "core-1.2.3", ("org.apache.kafka:kafka_2.13:1.2.3",), dependencies=False)
    first = find_artifacts(PLAIN, tmp_path / "cache", print, environ)
    second = find_artifacts(other, tmp_path / "cache", print, environ)
    asked = repository.requests.total()
    assert find_artifacts(PLAIN, tmp_path / "cache", print, environ) == first
    assert find_artifacts(other, tmp_path / "cache", print, environ) == second
    assert repository.requests.total() == asked


def test_a_cache_that_can_not_be_written_is_named_with_its_setting(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "cache"
    with pytest.raises(DownloadError, match=rf"Tools 1\.2\.3 can't be kept in {cache}: .*AIOPRODUCER_CACHE"):
        find_artifacts(PLAIN, cache, print, environ)


def test_a_full_cache_is_only_read(repository: Repository, environ: dict[str, str], tmp_path: Path) -> None:
    found = find_artifacts(PLAIN, tmp_path, print, environ)
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").mkdir()  # which can't be locked as a file
    assert find_artifacts(PLAIN, tmp_path, print, environ) == found


def test_what_is_not_there_is_named(environ: dict[str, str], tmp_path: Path) -> None:
    missing = Artifacts("Nothing 9", "nothing-9", ("org.apache.kafka:nothing:9",), dependencies=False)
    with pytest.raises(DownloadError, match=r"Nothing 9 could not be downloaded: .*nothing.*AIOPRODUCER_MAVEN_URL"):
        find_artifacts(missing, tmp_path / "cache", print, environ)
