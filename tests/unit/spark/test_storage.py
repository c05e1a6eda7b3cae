"""Where a location leads."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.spark.storage import Storage


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/cp#1/log?2", "/cp#1/log?2"),
        ("file:/cp#1/log?2", "/cp#1/log?2"),
        ("file:///cp;x/a%20b/", "/cp;x/a%20b"),
        ("file://localhost/cp", "/cp"),
        ("FILE:/cp", "/cp"),
    ],
)
def test_a_local_path_is_taken_whole(location: str, path: str) -> None:
    """As Hadoop does, which Spark's own checkpoints are written with: nothing is a query, a fragment or an escape."""
    assert Storage(location).path("name") == f"{path}/name"


def test_a_path_without_a_root_is_one_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Storage("a#1").path("name") == f"{tmp_path}/a#1/name"
