"""Fetching Kafka's jars, from a Maven repository on the loopback."""

from __future__ import annotations

import io
import os
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from aioproducer.testing import ClusterError, DownloadError
from aioproducer.testing.jars import KafkaJars, find_jars

POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>
<dependencies>{dependencies}</dependencies></project>"""
DEPENDENCY = """<dependency><groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version></dependency>"""


def jar(*entries: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in entries:
            archive.writestr(entry, f"content of {entry}" * 100)
    return file.getvalue()


class Repository:
    """A Maven repository with a Kafka 1.2.3, and a list of the answers to corrupt."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.spoiled: dict[str, list[int | bytes]] = {}
        self.requests: Counter[str] = Counter()
        self.connections = 0
        slf4j = ("org.slf4j", "slf4j-api", "1.7.99")
        kafka = ("org.apache.kafka", "kafka_2.13", "1.2.3")
        self.add(*kafka, ["kafka/Kafka.class", "kafka/tools/StorageTool.class"], slf4j)
        connect = ("org.apache.kafka", "connect-runtime", "1.2.3")
        tool = "org/apache/kafka/tools/DumpLogSegments.class"
        self.add("org.apache.kafka", "kafka-tools", "1.2.3", [tool], kafka, connect)
        self.add(*slf4j, ["org/slf4j/Logger.class"])
        self.add("org.slf4j", "slf4j-simple", "1.7.99", ["org/slf4j/impl/SimpleLogger.class"], slf4j)

    def add(self, group: str, name: str, version: str, entries: list[str], *dependencies: tuple[str, str, str]) -> None:
        path = f"/{group.replace('.', '/')}/{name}/{version}/{name}-{version}"
        listed = "".join(DEPENDENCY.format(*one) for one in dependencies)
        pom = POM.format(group=group, name=name, version=version, dependencies=listed)
        self.files[f"{path}.pom"] = pom.encode()
        self.files[f"{path}.jar"] = jar(*entries)

    def answer(self, path: str) -> tuple[int, bytes]:
        self.requests[path] += 1
        name = path.rpartition("/")[2]
        if self.spoiled.get(name):
            spoiled = self.spoiled[name].pop(0)
            return (spoiled, b"") if isinstance(spoiled, int) else (200, spoiled)
        return (200, self.files[path]) if path in self.files else (404, b"")


@pytest.fixture
def repository() -> Repository:
    return Repository()


@pytest.fixture
def environ(repository: Repository, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment that makes a resolve use this repository."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            repository.connections += 1
            super().setup()

        def do_GET(self) -> None:
            status, content = repository.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        home = tmp_path / "home"
        yield {**os.environ, "HOME": str(home), "AIOPRODUCER_MAVEN_URL": f"http://127.0.0.1:{server.server_port}"}
        server.shutdown()
        thread.join()


def names(jars: KafkaJars) -> list[str]:
    return sorted(path.name for path in jars.jars)


WANTED = ["kafka-tools-1.2.3.jar", "kafka_2.13-1.2.3.jar", "slf4j-api-1.7.99.jar", "slf4j-simple-1.7.99.jar"]


def test_the_jars_and_their_dependencies_are_fetched_once(
    repository: Repository, environ: dict[str, str], tmp_path: Path
) -> None:
    lines: list[str] = []
    found = find_jars("1.2.3", tmp_path / "cache", lines.append, environ)
    assert names(found) == WANTED
    assert lines[0] == "Kafka 1.2.3: finding out which jars it needs"
    assert lines[-1] == "Kafka 1.2.3: 4 of 4 jars"
    asked = repository.requests.total()
    assert find_jars("1.2.3", tmp_path / "cache", lines.append, environ) == found
    assert repository.requests.total() == asked
    assert not any("connect" in path for path in repository.requests)


def test_neither_java_nor_maven_is_needed(environ: dict[str, str], tmp_path: Path) -> None:
    bare = {name: value for name, value in environ.items() if name not in ("JAVA_HOME", "PATH")}
    found = find_jars("1.2.3", tmp_path / "cache", print, {**bare, "PATH": str(tmp_path)})
    assert names(found) == WANTED


def test_a_jar_that_went_missing_is_fetched_again(
    repository: Repository, environ: dict[str, str], tmp_path: Path
) -> None:
    found = find_jars("1.2.3", tmp_path / "cache", print, environ)
    lost = found.jars[0]
    lost.unlink()
    assert find_jars("1.2.3", tmp_path / "cache", print, environ) == found
    assert lost.exists()


def test_a_jar_that_was_cut_short_is_fetched_again(
    repository: Repository, environ: dict[str, str], tmp_path: Path
) -> None:
    found = find_jars("1.2.3", tmp_path / "cache", print, environ)
    content = found.jars[0].read_bytes()
    found.jars[0].write_bytes(content[:-9])
    for _ in range(2):
        assert find_jars("1.2.3", tmp_path / "cache", print, environ) == found
        assert found.jars[0].read_bytes() == content


@pytest.mark.parametrize("spoiled", [503, b"no zip at all", jar("a")[:-9]], ids=["status", "not a jar", "cut short"])
def test_a_failed_download_is_tried_again(
    repository: Repository, environ: dict[str, str], tmp_path: Path, spoiled: int | bytes
) -> None:
    repository.spoiled["slf4j-api-1.7.99.jar"] = [spoiled]
    lines: list[str] = []
    found = find_jars("1.2.3", tmp_path / "cache", lines.append, environ)
    assert names(found) == WANTED
    assert [line for line in lines if line.startswith("trying org.slf4j:slf4j-api:jar:1.7.99 again: ")], lines
    (path,) = (one for one in found.jars if one.name == "slf4j-api-1.7.99.jar")
    assert zipfile.is_zipfile(path)


@pytest.mark.parametrize("page", [b"<html><body>Sign in</body></html>", b"<!doctype html><p>Sign in"])
def test_a_page_in_place_of_a_pom_is_not_kept(
    repository: Repository, environ: dict[str, str], tmp_path: Path, page: bytes
) -> None:
    repository.spoiled["slf4j-api-1.7.99.pom"] = [page]
    lines: list[str] = []
    assert names(find_jars("1.2.3", tmp_path / "cache", lines.append, environ)) == WANTED
    told = "trying org.slf4j:slf4j-api:pom:1.7.99 again: ValueError: slf4j-api-1.7.99.pom is not "
    assert [line for line in lines if line.startswith(told)], lines


def test_a_version_that_is_not_there_is_a_readable_error_and_leaves_nothing_half(
    repository: Repository, environ: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(DownloadError, match=r"Kafka 9\.9\.9 could not be .*kafka_2.13.*AIOPRODUCER_MAVEN_URL"):
        find_jars("9.9.9", tmp_path / "cache", print, environ)
    assert list((tmp_path / "cache").glob("kafka-*.json")) == []
    assert list((tmp_path / "cache").glob("staging-*/**/*.jar")) == []


def test_what_a_killed_download_left_is_not_used(environ: dict[str, str], tmp_path: Path) -> None:
    left = tmp_path / "cache" / "staging-1" / "org" / "part.jar"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PK")
    assert names(find_jars("1.2.3", tmp_path / "cache", print, environ)) == WANTED
    assert not left.exists()


def test_parallel_sessions_share_one_download(repository: Repository, environ: dict[str, str], tmp_path: Path) -> None:
    found: list[KafkaJars] = []
    threads = [
        threading.Thread(target=lambda: found.append(find_jars("1.2.3", tmp_path / "cache", print, environ)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [names(one) for one in found] == [WANTED] * 3
    downloads = {path: count for path, count in repository.requests.items() if path.endswith(".jar")}
    assert set(downloads.values()) == {1}


def test_tools_are_found_in_whichever_package_they_are(environ: dict[str, str], tmp_path: Path) -> None:
    found = find_jars("1.2.3", tmp_path / "cache", print, environ)
    assert found.tool("StorageTool") == "kafka.tools.StorageTool"
    assert found.tool("DumpLogSegments") == "org.apache.kafka.tools.DumpLogSegments"
    with pytest.raises(ClusterError, match=r"Kafka 1\.2\.3 has no tool Nothing"):
        found.tool("Nothing")


def test_the_class_path_is_in_the_order_of_the_jars() -> None:
    assert KafkaJars("1", (Path("/b.jar"), Path("/a.jar"))).class_path == "/b.jar:/a.jar"
