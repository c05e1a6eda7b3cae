"""Commands with a real broker, as separate processes: what they report is what the broker has."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_name
from tests.broker.readers import read_topic

pytestmark = pytest.mark.broker

SCRIPT = Path(sys.executable).with_name("aioproducer")


def command(cluster: KafkaCluster, topic: str, *options: str) -> list[str]:
    return [str(SCRIPT), "perf", "--topic", topic, "--bootstrap-server", cluster.bootstrap_servers, *options]


@pytest.mark.parametrize("mode", ["submit_nowait", "send_many", "transactional"])
def test_what_is_reported_is_what_the_broker_has(kafka: KafkaCluster, mode: str, tmp_path: Path) -> None:
    topic, told = new_name(), tmp_path / "run.json"
    kafka.create_topic(topic, 3)
    options = ["--num-records", "20000", "--record-size", "100", "--key-size", "8", "--json", str(told)]
    options += ["--transactional"] if mode == "transactional" else ["--mode", mode]
    finished = subprocess.run(
        command(kafka, topic, *options), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    report = json.loads(told.read_text())
    records = [record for partition in read_topic(kafka, topic).values() for record in partition]
    assert report["acked"] == len(records) == 20_000
    assert {(len(record.key or b""), len(record.value or b"")) for record in records} == {(8, 100)}


def test_an_interrupt_ends_with_what_was_measured(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic, told = new_name(), tmp_path / "run.json"
    kafka.create_topic(topic)
    options = ["--num-records", "10000000", "--record-size", "100", "--throughput", "2000", "--json", str(told)]
    with subprocess.Popen(command(kafka, topic, *options), stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + PATIENCE_S
        while kafka.end_offsets(topic)[0] < 100:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
    report = json.loads(told.read_text())
    assert report["interrupted"]
    assert report["acked"] == report["sent"] == kafka.end_offsets(topic)[0]
    assert f"{report['acked']:,} acked" in out


def test_topics_and_their_offsets(kafka: KafkaCluster) -> None:
    topic = new_name()
    kafka.create_topic(topic, 2, configs={"min.insync.replicas": 1})
    subprocess.run(
        command(kafka, topic, "--num-records", "100", "--record-size", "10"), capture_output=True, check=True
    )

    def ask(*arguments: str) -> list[dict[str, Any]]:
        asked = [SCRIPT, *arguments, "--json", "--bootstrap", kafka.bootstrap_servers]
        found: list[dict[str, Any]] = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
        return found

    assert [(each["topic"], each["partitions"]) for each in ask("topics", topic) if each["topic"] == topic] == [
        (topic, 2)
    ]
    (described,) = ask("describe", topic)
    assert described["configs"]["min.insync.replicas"] == "1"
    ends = {each["partition"]: each["end_offset"] for each in described["partitions"]}
    assert ends == kafka.end_offsets(topic)
    assert {each["begin_offset"] for each in described["partitions"]} == {0}


def test_a_parquet_file(kafka: KafkaCluster, tmp_path: Path) -> None:
    topic, path, rows = new_name(), tmp_path / "rows.parquet", 50_000
    kafka.create_topic(topic, 4)
    table = pyarrow.table({"id": [number % 100 for number in range(rows)], "n": range(rows)})
    pyarrow.parquet.write_table(table, path)
    asked = [SCRIPT, "produce", path, "--topic", topic, "--key", "id", "--bootstrap", kafka.bootstrap_servers]
    finished = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.startswith(f"read {rows}, acked {rows}, failed 0, rejected 0 in ")
    found = read_topic(kafka, topic)
    for records in found.values():
        numbers = [json.loads(record.value or b"")["n"] for record in records]
        assert numbers == sorted(numbers)
        assert all(record.key == b"%d" % (number % 100) for record, number in zip(records, numbers, strict=True))
    assert sum(map(len, found.values())) == rows


@pytest.mark.parametrize(("options", "status"), [((), "warning"), (("-X", "allow.auto.create.topics=false"), "failed")])
def test_the_doctor_knows_whether_a_topic_would_be_created(
    kafka: KafkaCluster, options: tuple[str, ...], status: str
) -> None:
    """The broker tells it about itself only."""
    topic = new_name()
    finished = subprocess.run(
        [SCRIPT, "doctor", "--bootstrap", kafka.bootstrap_servers, "--topic", topic, "--write", "--json", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (1 if status == "failed" else 0, "")
    (found,) = (each for each in json.loads(finished.stdout)["findings"] if each["step"] == "topic")
    assert found["status"] == status
    assert "it does not exist" in found["message"]
