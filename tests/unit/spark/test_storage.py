"""How locations are resolved, and what file systems say of files that are missing."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import fs

from aioproducer.errors import ConfigError
from aioproducer.spark import storage
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


def core_site(directory: Path, *properties: tuple[str, str]) -> None:
    directory.mkdir()
    told = "".join(f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties)
    (directory / "core-site.xml").write_text(f"<configuration>{told}</configuration>")


@pytest.mark.usefixtures("no_hadoop")
@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ([("fs.default.name", "hdfs://old:8020")], "hdfs://old:8020/cp"),
        ([("\n  fs.defaultFS\n", "hdfs://nn:8020")], "hdfs://nn:8020/cp"),
        ([("fs.defaultFS", "hdfs://first:8020"), ("fs.defaultFS", "hdfs://last:8020")], "hdfs://last:8020/cp"),
        ([("fs.trash.interval", "60")], "/cp"),
    ],
    ids=["old name", "indented", "twice", "not set"],
)
def test_a_default_file_system_is_read_as_hadoop_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: list[tuple[str, str]], found: str
) -> None:
    """Taken for local, the log of a checkpoint on HDFS would be lost with the driver's machine."""
    core_site(tmp_path / "conf", *properties)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "conf"))
    assert resolved("/cp", "checkpointLocation") == found


@pytest.mark.usefixtures("no_hadoop")
def test_configs_of_hadoop_are_looked_for_as_spark_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable may name several directories; the first file counts, that in Spark's own directory above all."""
    core_site(tmp_path / "hadoop", ("fs.defaultFS", "hdfs://hadoop:8020"))
    core_site(tmp_path / "spark", ("fs.defaultFS", "hdfs://spark:8020"))
    (tmp_path / "hive").mkdir()
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path / "spark"))
    monkeypatch.setenv("HADOOP_CONF_DIR", f"{tmp_path}/hive:{tmp_path}/hadoop")
    assert resolved("/cp", "checkpointLocation") == "hdfs://hadoop:8020/cp"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "spark"))
    assert resolved("/cp", "checkpointLocation") == "hdfs://spark:8020/cp"


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


@pytest.mark.parametrize("scheme", ["hdfs", "HDFS", "viewfs", "mock"])
def test_what_hdfs_needs_is_told(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """Spark's environment for Python has none of it, and pyarrow lists all places where there is no libjvm.so."""

    def fail(location: str) -> None:
        raise OSError("Unable to load libjvm\ndlopen(/a) failed\ndlopen(/b) failed")

    monkeypatch.setattr(storage.fs, "FileSystem", SimpleNamespace(from_uri=fail))
    with pytest.raises(ConfigError) as raised:
        Storage(f"{scheme}://nn:8020/log")
    assert str(raised.value).startswith(
        f"{scheme}://nn:8020/log can't be used: Unable to load libjvm; option transactionLog"
    )
    assert ("hadoop classpath --glob" in str(raised.value)) == (scheme != "mock")


@pytest.mark.parametrize("location", ["s3://[x", "hdfs://]:9/log"])
def test_an_address_that_can_not_be_read(location: str) -> None:
    with pytest.raises(ConfigError, match=r"(s3|hdfs):.* can't be used: .*; option transactionLog"):
        Storage(location)
    with pytest.raises(ConfigError, match=r"(s3|hdfs):.* can't be used: .*; option checkpointLocation"):
        resolved(location, "checkpointLocation")


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("s3://key:hunter2@b/log?regon=x", "s3://key:***@b/log?*** can't be used: Unexpected query parameter"),
        ("s3://key:hunter2@b c/log", "s3://key:***@b c/log can't be used: Cannot parse URI: 's3://key:***@b c/log'"),
        ("s3://key:hun/ter2@b/log", "s3://key:***@b/log can't be used: Cannot parse URI: 's3://key:***@b/log'"),
        ("s3a://bucket/log?token=hunter2", "s3a://bucket/log?*** can't be used: Unrecognized filesystem type in URI"),
        ("s3://key:hunter2@[x/log", "s3://key:***@[x/log can't be used: "),
        (
            "s3a://key:hunter2#@b/",
            "s3a://key:***@b/ can't be used: Unrecognized filesystem type in URI: s3a://key:***@",
        ),
        ("s3a://bucket/log@1:2", "s3a://bucket/log@1:2 can't be used: Unrecognized filesystem type in URI"),
    ],
)
def test_an_error_does_not_tell_the_credentials_of_a_location(location: str, told: str) -> None:
    """Spark writes it, and what caused it, into its logs."""
    with pytest.raises(ConfigError) as raised:
        Storage(location)
    text = "".join(traceback.format_exception(raised.value))
    assert str(raised.value).startswith(told)
    assert "hunter2" not in text
    assert "hun/ter2" not in text


class Local:
    """The local file system, of which a subclass changes some calls."""

    type_name = "for example"

    def __init__(self) -> None:
        self.local = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.local, name)


class Hdfs(Local):
    """Errors as HDFS has them through pyarrow.

    Source: hdfsDelete in Hadoop's libhdfs; StatSelector and GetFileInfo in Arrow's filesystem/hdfs.cc.
    """

    type_name = "hdfs"
    is_away = False

    def get_file_info(self, selector: Any) -> Any:
        try:
            self.check()
            return self.local.get_file_info(fs.FileSelector(selector.base_dir))
        except OSError:
            if selector.allow_not_found:  # any error of a look at the directory itself means that it is not there
                return []
            raise

    def delete_file(self, path: str) -> None:
        self.check()
        if not Path(path).exists():
            raise OSError(errno.EIO, "HDFS delete failed")
        self.local.delete_file(path)

    def check(self) -> None:
        if self.is_away:
            raise OSError(errno.EIO, "HDFS list directory failed")


def on(monkeypatch: pytest.MonkeyPatch, file_system: object, tmp_path: Path) -> Storage:
    """A directory, not there yet, on this file system."""
    monkeypatch.setattr(storage, "_file_system", lambda *_: (file_system, str(tmp_path / "log")))
    return Storage("hdfs://nn/log")


@pytest.mark.parametrize("location", ["log", "mock:///log", "hdfs"])
def test_what_is_missing(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that does not exist has no files, and a file that does not exist need not be removed."""
    monkeypatch.chdir(tmp_path)
    files = on(monkeypatch, Hdfs(), tmp_path) if location == "hdfs" else Storage(location)
    assert files.names() == []
    files.remove("a")
    files.write("b", b"")
    files.remove("a")
    assert files.names() == ["b"]
    files.remove("b")
    assert files.names() == []


def test_a_directory_that_can_not_be_listed_is_not_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a driver would overlook the claims of others, and what is on record."""
    hdfs = Hdfs()
    files = on(monkeypatch, hdfs, tmp_path)
    files.write("a", b"")
    hdfs.is_away = True
    with pytest.raises(OSError, match="list directory failed"):
        files.names()
    with pytest.raises(OSError, match="list directory failed"):
        files.remove("a")
    hdfs.is_away = False
    assert files.names() == ["a"]


def test_a_file_that_can_not_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hdfs = Hdfs()
    files = on(monkeypatch, hdfs, tmp_path)
    files.write("a", b"")

    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "HDFS delete failed")

    monkeypatch.setattr(hdfs, "delete_file", refuse)
    with pytest.raises(OSError, match="delete failed"):
        files.remove("a")


class NoRename(Local):
    """As Azure's blob storage without hierarchical namespace."""

    def move(self, source: str, target: str) -> None:
        raise NotImplementedError("Move is not implemented here")


def test_a_file_system_that_can_not_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = on(monkeypatch, NoRename(), tmp_path)
    with pytest.raises(ConfigError, match=r"log can't be used: Move is not implemented here; option transactionLog"):
        files.write("a", b"")
    assert list((tmp_path / "log").iterdir()) == []


def test_the_scheme_of_hadoop_is_unknown_to_pyarrow() -> None:
    with pytest.raises(ConfigError, match=r"s3a://bucket/log can't be used: .*; option transactionLog"):
        Storage("s3a://bucket/log")
