"""``aioproducer demo`` as a separate process: with an existing Kafka, with one that it starts, and interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from aioproducer.cli.demo import run as run_module
from aioproducer.cli.demo.flights import COUNT, read_flights
from aioproducer.cli.outcome import CommandError
from aioproducer.protocol.metadata import MetadataRequest
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S
from tests.broker.readers import read_topic

pytestmark = pytest.mark.broker

SCRIPT = Path(sys.executable).with_name("aioproducer")
LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the command until it ends."""
    return subprocess.run([SCRIPT, "demo", *options], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@contextmanager
def demonstrating(*options: str, mark: str = "") -> Iterator[subprocess.Popen[str]]:
    """The running command; ``mark`` is in the environment of all its processes."""
    with subprocess.Popen(
        [SCRIPT, "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "AIOPRODUCER_TEST_MARK": mark},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll other processes until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def demo_topics(cluster: KafkaCluster) -> set[str]:
    """The demo's topics that exist."""
    topics = cluster.ask(MetadataRequest(topics=None)).topics
    return {topic.name or "" for topic in topics if (topic.name or "").startswith("aioproducer-demo-")}


def commands_of(mark: str) -> list[str]:
    """The commands of all processes with this mark in their environment."""
    found = []
    for directory in Path("/proc").iterdir():
        with suppress(OSError):
            if directory.name.isdigit() and mark.encode() in (directory / "environ").read_bytes():
                found.append((directory / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def test_all_flights_come_back(kafka: KafkaCluster, tmp_path: Path) -> None:
    """The main purpose: a real data set through the public API, read back and compared by another client."""
    before = demo_topics(kafka)
    result = demo("--bootstrap", kafka.bootstrap_servers, "--output", str(tmp_path / "out"))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count(f"{COUNT}/{COUNT}") == 2  # acknowledged, and read back
    for row in ("throughput", "batches", "compression (lz4)", "latency p50", "latency p99.9", "latency max"):
        assert row in result.stdout
    assert result.stdout.count("all right") == 6
    assert result.stdout.endswith("Every record came back as sent.\n")
    picture = tmp_path / "out" / "demo.png"
    assert f"picture: {picture}\n" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert demo_topics(kafka) == before


def test_what_stands_in_the_topic(kafka: KafkaCluster, tmp_path: Path) -> None:
    """A check of the demo's own comparison: the tests' own reader compares the records with the data set."""
    before = demo_topics(kafka)
    options = ["--records", "3000", "--keep-topic", "--output", str(tmp_path)]
    assert demo("--bootstrap", kafka.bootstrap_servers, *options).returncode == 0
    (topic,) = demo_topics(kafka) - before
    by_partition = read_topic(kafka, topic)
    assert len(by_partition) == 6
    found = [(one.key, one.value, one.timestamp_ms) for records in by_partition.values() for one in records]
    flights = read_flights(3000)
    assert sorted(found, key=repr) == sorted(flights, key=repr)
    order = {flight: index for index, flight in enumerate(flights)}
    for records in by_partition.values():
        indices = [order[one.key, one.value or b"", one.timestamp_ms] for one in records]
        assert indices == sorted(indices)
    kafka.delete_topic(topic)


@LINUX
def test_with_a_kafka_of_its_own_it_leaves_no_process(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with demonstrating("--records", "1000", "--output", str(tmp_path), mark=mark) as process:
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")
    assert "Every record came back" in output
    assert commands_of(mark) == []


@LINUX
def test_interrupted_while_kafka_starts_it_leaves_no_process(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with demonstrating("--output", str(tmp_path), mark=mark) as process:
        until(lambda: any("kafka.Kafka" in command for command in commands_of(mark)), "the broker's process runs")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert errors == "aioproducer: interrupted\n"
    until(lambda: commands_of(mark) == [], "every process has ended")


def test_interrupted_while_it_publishes_it_leaves_no_topic(kafka: KafkaCluster, tmp_path: Path) -> None:
    before = demo_topics(kafka)

    def has_begun() -> bool:
        return any(sum(kafka.end_offsets(topic).values()) for topic in demo_topics(kafka) - before)

    with demonstrating("--bootstrap", kafka.bootstrap_servers, "--output", str(tmp_path)) as process:
        until(has_begun, "records arrive")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert errors == "aioproducer: interrupted\n"
    assert demo_topics(kafka) == before
    assert not (tmp_path / "demo.png").exists()


def test_records_that_are_not_delivered_are_a_failure(
    kafka: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every flight is too large for the topic."""
    monkeypatch.setitem(run_module.TOPIC_CONFIGS, "max.message.bytes", 100)
    before = demo_topics(kafka)
    with pytest.raises(CommandError, match=r"^100 records were not delivered; the first error: .*TOO_LARGE") as failed:
        run_module.run(bootstrap=kafka.bootstrap_servers, records=100, output=tmp_path, keep_topic=False)
    assert failed.value.exit_code == 1
    assert demo_topics(kafka) == before


def test_no_kafka_at_the_address_is_one_line(tmp_path: Path) -> None:
    result = demo("--bootstrap", "127.0.0.1:1", "--output", str(tmp_path))
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("aioproducer: no bootstrap server could be used")
    assert "deleted" not in result.stdout  # there was no topic yet
