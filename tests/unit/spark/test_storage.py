"""How locations are resolved."""

from __future__ import annotations

from pathlib import Path

import pytest

from aioproducer.errors import ConfigError
from aioproducer.spark.storage import HADOOP_CONFIGS, Storage, resolved


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
    """As in Hadoop, which writes Spark's own checkpoints: there are no queries, fragments or escapes."""
    assert Storage(location).path("name") == f"{path}/name"


@pytest.mark.parametrize("path", ["bucket/cp#1", "bucket/cp#1#2", "bucket/#/log"])
def test_a_number_sign_is_a_letter_of_a_uri_too(path: str) -> None:
    """Cut off there, the checkpoints cp#1 and cp#2 would share one log."""
    assert Storage(f"mock:///{path}").path("name") == f"{path}/name"


def test_a_path_without_a_root_is_one_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Storage("a#1").path("name") == f"{tmp_path}/a#1/name"


@pytest.fixture
def no_hadoop(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in HADOOP_CONFIGS:
        monkeypatch.delenv(variable, raising=False)


def hadoop(monkeypatch: pytest.MonkeyPatch, directory: Path, file_system: str) -> None:
    text = (
        f"<configuration><property><name>fs.defaultFS</name><value> {file_system} </value></property></configuration>"
    )
    (directory / "core-site.xml").write_text(text)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(directory))


@pytest.mark.usefixtures("no_hadoop")
@pytest.mark.parametrize("location", ["/cp", "file:/cp", "file:///cp", "/cp/"])
def test_one_local_directory_has_one_name(location: str) -> None:
    """The name of a query's transactions must not depend on how the path is written."""
    assert resolved(location, "transactionLog") == "/cp"


@pytest.mark.usefixtures("no_hadoop")
def test_a_location_is_absolute_for_every_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved("log", "transactionLog") == f"{tmp_path}/log"


@pytest.mark.usefixtures("no_hadoop")
@pytest.mark.parametrize(
    ("default", "location", "found"),
    [
        ("hdfs://nn:8020/", "/cp", "hdfs://nn:8020/cp"),
        ("hdfs://nn:8020", "s3://bucket/cp/", "s3://bucket/cp"),
        ("hdfs://nn:8020", "file:/cp", "/cp"),
        ("file:///", "/cp", "/cp"),
    ],
)
def test_a_location_without_a_scheme_is_where_spark_looks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default: str, location: str, found: str
) -> None:
    hadoop(monkeypatch, tmp_path, default)
    assert resolved(location, "checkpointLocation") == found


@pytest.mark.usefixtures("no_hadoop")
def test_a_relative_location_on_a_file_system_of_hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hadoop(monkeypatch, tmp_path, "hdfs://nn:8020")
    with pytest.raises(ConfigError, match=r"cp is relative, .* hdfs://nn:8020: option transactionLog"):
        resolved("cp", "transactionLog")


@pytest.mark.usefixtures("no_hadoop")
def test_configs_of_hadoop_that_are_no_xml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hadoop(monkeypatch, tmp_path, "<")
    with pytest.raises(ConfigError, match=r"core-site\.xml can't be read"):
        resolved("/cp", "transactionLog")


@pytest.mark.parametrize("location", ["s3://[x", "hdfs://]:9/log"])
def test_an_address_that_can_not_be_read(location: str) -> None:
    with pytest.raises(ConfigError, match=r"(s3|hdfs):.* can't be used: .*; option transactionLog"):
        Storage(location)
    with pytest.raises(ConfigError, match=r"(s3|hdfs):.* can't be used: .*; option checkpointLocation"):
        resolved(location, "checkpointLocation")
