"""``aioproducer produce`` as a separate process, with a real broker, read back by another client."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_name
from tests.broker.readers import StoredRecord, read_topic

pytestmark = pytest.mark.broker

ESTABLISHED = "01"
"""Linux's number for the state of a connection."""
LINUX = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks at other processes in /proc")
SCRIPT = Path(sys.executable).with_name("aioproducer")


def produce(
    cluster: KafkaCluster, topic: str, path: str | Path, *options: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[str]:
    """Run the command until it ends."""
    command = [SCRIPT, "produce", path, "--topic", topic, "--bootstrap", cluster.bootstrap_servers, *options]
    finished = subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE_S, check=False)
    return subprocess.CompletedProcess(command, finished.returncode, finished.stdout.decode(), finished.stderr.decode())


@contextmanager
def producing(cluster: KafkaCluster, topic: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command while it reads a pipe that stays open."""
    command = [SCRIPT, "produce", "-", "--topic", topic, "--bootstrap", cluster.bootstrap_servers, *options]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def write(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Write more input."""
    assert process.stdin is not None
    process.stdin.write(data)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Exit code and output; its input stays open."""
    code = process.wait(PATIENCE_S)
    assert process.stdout is not None
    assert process.stderr is not None
    return code, process.stdout.read().decode(), process.stderr.read().decode()


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll a real process or broker until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def counts_of(stdout: str) -> str:
    """The counts in the last line of the output."""
    return stdout.splitlines()[-1].partition(" in ")[0]


def rejects_of(path: Path) -> list[dict[str, Any]]:
    """The entries of a rejects file, by line number."""
    rejects = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(rejects, key=lambda reject: reject["line_number"])


def all_records(cluster: KafkaCluster, topic: str) -> list[StoredRecord]:
    """All records, partition by partition."""
    return [record for records in read_topic(cluster, topic).values() for record in records]


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_json_lines_with_keys_good_and_bad(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = new_name()
    path = tmp_path / "rows.jsonl"
    too_large = '{"id": "c", "text": "' + "x" * 2_000 + '"}'
    lines = ['{"id": "a", "n": 1}', '{"id": "b"', '{"n": 3}', too_large, '{"id": null, "n": 5}', '{"id": "a", "n": 6}']
    path.write_text("\n".join(lines))
    result = produce(kafka, topic, path, "--key", "id", "--config", "max.request.size=1000")
    assert result.returncode == 1
    assert counts_of(result.stdout) == "read 6, acked 3, failed 0, rejected 3"
    assert result.stderr == f"rejects and their reasons: {path}.rejects\n"
    assert [(one.key, one.value) for one in all_records(kafka, topic)] == [
        (b"a", lines[0].encode()),
        (None, lines[4].encode()),
        (b"a", lines[5].encode()),
    ]
    rejects = rejects_of(tmp_path / "rows.jsonl.rejects")
    assert [(reject["line_number"], reject["line"]) for reject in rejects] == [
        (number, lines[number - 1]) for number in (2, 3, 4)
    ]
    assert rejects[1]["error"] == "the key field 'id' is missing"
    assert "max_request_size" in rejects[2]["error"]


def test_a_csv_file(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = new_name()
    kafka.create_topic(topic, 6)
    rows = [{"id": f"k{number % 50}", "n": str(number), "text": f'"{number}",\n é'} for number in range(20_000)]
    text = io.StringIO()
    writer = csv.DictWriter(text, ["id", "n", "text"])
    writer.writeheader()
    writer.writerows(rows)
    path = tmp_path / "rows.csv"
    path.write_text(text.getvalue())
    result = produce(kafka, topic, path, "--key", "id", "--compression", "zstd")
    assert (result.returncode, result.stderr) == (0, "")
    assert counts_of(result.stdout) == "read 20000, acked 20000, failed 0, rejected 0"
    assert not (tmp_path / "rows.csv.rejects").exists()
    by_partition = read_topic(kafka, topic)
    found = [json.loads(record.value or b"") for records in by_partition.values() for record in records]
    assert sorted(found, key=lambda row: int(row["n"])) == rows
    for records in by_partition.values():
        numbers = [int(json.loads(record.value or b"")["n"]) for record in records]
        assert numbers == sorted(numbers)
        assert all(json.loads(record.value or b"")["id"].encode() == record.key for record in records)
    partition = max(by_partition, key=lambda number: len(by_partition[number]))
    # A batch that compression would make larger, such as one short record, is sent uncompressed.
    assert {batch.codec for batch in kafka.dump_log_segments(topic, partition).batches} - {"none"} == {"zstd"}


def test_lines_from_standard_input(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = new_name()
    rejects = tmp_path / "rejects"
    result = produce(kafka, topic, "-", "--rejects", str(rejects), stdin=b"one\r\n\n\xff\nend")
    assert (result.returncode, result.stderr) == (0, "")
    assert counts_of(result.stdout) == "read 4, acked 4, failed 0, rejected 0"
    assert [one.value for one in all_records(kafka, topic)] == [b"one", b"", b"\xff", b"end"]
    assert not rejects.exists()


def test_nothing_to_send_is_no_failure(kafka: KafkaCluster, tmp_path: Path) -> None:
    result = produce(kafka, new_name(), "-", "--rejects", str(tmp_path / "rejects"))
    assert (result.returncode, result.stderr) == (0, "")
    assert counts_of(result.stdout) == "read 0, acked 0, failed 0, rejected 0"


def test_configs_of_a_properties_file(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = new_name()
    properties = tmp_path / "producer.properties"
    properties.write_text(
        "bootstrap.servers=127.0.0.1:1\n"
        "key.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
        "value.serializer=org.apache.kafka.common.serialization.StringSerializer\n"
        "compression.type=lz4\nmax.request.size=100\n"
    )
    path = tmp_path / "rows.txt"
    path.write_text("x" * 200 + "\n")
    refused = produce(kafka, topic, path, "--properties", str(properties))
    assert refused.returncode == 1
    assert counts_of(refused.stdout) == "read 1, acked 0, failed 0, rejected 1"
    accepted = produce(kafka, topic, path, "--properties", str(properties), "--config", "max_request_size=1000")
    assert (accepted.returncode, accepted.stderr) == (0, "")
    assert not (tmp_path / "rows.txt.rejects").exists()
    assert [batch.codec for batch in kafka.dump_log_segments(topic).batches] == ["lz4"]


def test_records_that_the_broker_refuses_are_failed(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = new_name()
    kafka.create_topic(topic, configs={"max.message.bytes": 1_000})
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(["a", "x" * 5_000, "b"]))
    result = produce(kafka, topic, path)
    assert result.returncode == 1
    assert counts_of(result.stdout) == "read 3, acked 2, failed 1, rejected 0"
    assert [one.value for one in all_records(kafka, topic)] == [b"a", b"b"]
    (reject,) = rejects_of(tmp_path / "rows.txt.rejects")
    assert (reject["line_number"], reject["line"]) == (2, "x" * 5_000)
    assert "maybe_written" not in reject


@LINUX
def test_a_big_file_is_never_held_whole(kafka: KafkaCluster, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    few_kib, many_kib = (_peak_kib(kafka, path, megabytes) for megabytes in (1, 100))
    assert many_kib - few_kib < 50_000


def _peak_kib(cluster: KafkaCluster, path: Path, megabytes: int) -> int:
    """The peak memory of sending a file of this size."""
    topic = new_name()
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write((b"x" * 9_999 + b"\n") * 100)
    options = ["--bootstrap", cluster.bootstrap_servers, "--config", "buffer.memory=4000000", "--compression", "lz4"]
    peaks = [0]
    with subprocess.Popen([SCRIPT, "produce", path, "--topic", topic, *options], stdout=subprocess.DEVNULL) as process:

        def has_ended() -> bool:
            # Not by getrusage: a child's peak begins with that of its parent.
            status = Path(f"/proc/{process.pid}/status").read_text()
            peaks.extend(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
            return process.poll() is not None

        until(has_ended, "the command ends")
    assert process.returncode == 0
    assert cluster.end_offsets(topic) == {0: megabytes * 100}
    return max(peaks)


# --- what can't be done -----------------------------------------------------------------------------------------------


def test_topics_that_can_not_be_are_one_line(strict_kafka: KafkaCluster, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("x\n")
    for topic in ("no such topic", "no-such-topic"):
        result = produce(strict_kafka, topic, path, "--config", "max.block.ms=500")
        assert (result.returncode, result.stdout) == (2, "")
        (line,) = result.stderr.splitlines()
        assert line.startswith("aioproducer: ")
        assert topic in line
    assert [one.name for one in tmp_path.iterdir()] == ["rows.txt"]


def test_the_log_is_shown_when_asked_for(strict_kafka: KafkaCluster, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("x\n")
    command = [SCRIPT, "-v", "produce", path, "--topic", "no-such-topic", "--config", "max.block.ms=500"]
    command += ["--bootstrap", strict_kafka.bootstrap_servers]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert result.returncode == 2
    assert " WARNING aioproducer.metadata: " in result.stderr


def test_an_unusable_header_sends_nothing(kafka: KafkaCluster, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    result = produce(kafka, new_name(), path, "--key", "c")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "aioproducer: the CSV header has no column 'c' for --key: a, b\n"
    assert [one.name for one in tmp_path.iterdir()] == ["rows.csv"]


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_sends_what_it_read(
    number: signal.Signals, code: int, kafka: KafkaCluster, tmp_path: Path
) -> None:
    topic = new_name()
    kafka.create_topic(topic)
    with producing(kafka, topic, "--rejects", str(tmp_path / "rejects")) as process:
        write(process, b"one\ntwo\nthree\nfou")
        until(lambda: kafka.end_offsets(topic) == {0: 3}, "three lines are sent though the pipe is open")
        process.send_signal(number)
        exit_code, stdout, stderr = ended(process)
    assert exit_code == code
    assert counts_of(stdout) == "read 3, acked 3, failed 0, rejected 0"
    assert stderr.splitlines() == [
        "stopping: sending the rows already read; press Ctrl-C again to give up",
        "interrupted after line 3",
    ]
    assert [one.value for one in all_records(kafka, topic)] == [b"one", b"two", b"three"]


@LINUX
def test_interrupted_twice_it_gives_up_and_says_so(fragile_kafka: KafkaCluster, tmp_path: Path) -> None:
    topic = new_name()
    fragile_kafka.create_topic(topic)
    rejects = tmp_path / "rejects"
    # An idempotent producer holds the second batch until the first is acknowledged; the broker may be paused by then.
    at_once = ("--config", "enable.idempotence=false")
    with producing(fragile_kafka, topic, "--rejects", str(rejects), *at_once) as process:
        write(process, b"one\n")
        until(lambda: fragile_kafka.end_offsets(topic) == {0: 1}, "the first line is sent")
        fragile_kafka.pause(1)
        write(process, b"two\n")
        until(lambda: _unread_bytes(fragile_kafka) > 0, "the second line is sent to the paused broker")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"stopping: ")
        process.send_signal(signal.SIGINT)
        exit_code, stdout, stderr = ended(process)
    assert exit_code == 130
    assert "interrupted after line 2" in stderr
    # The broker may have been paused before it answered the first line.
    failed = rejects_of(rejects)
    assert counts_of(stdout) == f"read 2, acked {2 - len(failed)}, failed {len(failed)}, rejected 0"
    assert (failed[-1]["line_number"], failed[-1]["line"]) == (2, "two")


@LINUX
def test_interrupted_while_it_connects(fragile_kafka: KafkaCluster, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("x\n")
    fragile_kafka.pause(1)
    command = [SCRIPT, "produce", path, "--topic", "t", "--bootstrap", fragile_kafka.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(lambda: _has_connected(process.pid, fragile_kafka), "it is connecting")
        process.send_signal(signal.SIGINT)
        exit_code, stdout, stderr = ended(process)
    assert exit_code == 130
    assert stdout == ""
    assert stderr == "interrupted before anything was sent\n"


def _connections(cluster: KafkaCluster) -> Iterator[list[str]]:
    """The lines of the kernel's table for both ends of all connections to the broker."""
    port = f":{cluster.address_of(1)[1]:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if port in (fields[1][-5:], fields[2][-5:]):
                yield fields


def _unread_bytes(cluster: KafkaCluster) -> int:
    """The number of bytes sent that the broker has not read; 0 on idle connections."""
    return sum(
        int(fields[4].partition(":")[2], 16)
        for fields in _connections(cluster)
        if fields[1].endswith(f":{cluster.address_of(1)[1]:04X}") and fields[3] == ESTABLISHED
    )


def _has_connected(pid: int, cluster: KafkaCluster) -> bool:
    """Whether a process holds a connection to the broker."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # the file was closed meanwhile
            sockets.add(os.readlink(descriptor))
    return any(f"socket:[{fields[9]}]" in sockets for fields in _connections(cluster))
