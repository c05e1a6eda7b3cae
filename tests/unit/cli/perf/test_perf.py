"""``aioproducer perf``: what it prints and writes, and how it exits."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from aioproducer import Producer
from aioproducer.cli.app import app
from aioproducer.cli.perf import payloads
from aioproducer.cli.perf.load import Load, Mode
from aioproducer.cli.perf.report import bar
from aioproducer.cli.perf.view import Screen, Watch, line, sparks
from aioproducer.testing import FakeCluster
from aioproducer.testing.ports import free_ports


def perf(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["perf", "--topic", "t", "--num-records", "500", *arguments])


def test_a_run_with_everything(tmp_path: Path) -> None:
    told, drawn = tmp_path / "run.json", tmp_path / "run.svg"
    with FakeCluster() as cluster:
        result = perf(
            *("--bootstrap-server", cluster.bootstrap_servers, "--record-size", "50", "--warmup-records", "100"),
            *("--json", str(told), "--picture", str(drawn), "--print-metrics", "--producer-props", "linger.ms=1"),
        )
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.startswith("400 sent, 400 acked, 0 failed in ")
        assert "producer-metrics:record-send-total" in result.stdout
        assert len(cluster.records("t")) == 500
    report = json.loads(told.read_text(), parse_constant=pytest.fail)  # NaN, which only Python reads
    assert report["metrics"]["producer-metrics"]["record-send-total"] == 500
    assert (report["acked"], report["failed"], report["warmup_records"]) == (400, 0, 100)
    assert sum(each["count"] for each in report["histogram"]) == 400
    assert sum(each["acked"] for each in report["intervals"]) == 400
    assert report["latency_ms"]["p50"] <= report["latency_ms"]["p99.9"] <= report["latency_ms"]["max"]
    assert report["options"]["configs"] == ["bootstrap.servers", "linger.ms"], "names: values may be secrets"
    assert "<svg" in drawn.read_text()


@pytest.mark.parametrize("props", ["--producer-props", "--command-property"])
@pytest.mark.parametrize("file", ["--producer.config", "--command-config"])
def test_a_command_line_of_kafkas_own_tool(props: str, file: str, tmp_path: Path) -> None:
    """Several properties after one option, and a file with serializers, which are not applied to payloads."""
    properties, told = tmp_path / "producer.properties", tmp_path / "run.json"
    properties.write_text("value.serializer=org.apache.kafka.common.serialization.LongSerializer\nlinger.ms=9\n")
    with FakeCluster() as cluster:
        result = perf(
            *("--record-size", "50", "--throughput", "-1", file, str(properties)),
            *(props, f"bootstrap.servers={cluster.bootstrap_servers}", "acks=1", "batch.size=1000"),
            *("--json", str(told)),
        )
        assert (result.exit_code, result.stderr) == (0, "")
        assert len(cluster.records("t")) == 500
    configs = json.loads(told.read_text())["options"]["configs"]
    assert {"acks", "batch.size", "linger.ms"} < set(configs)


def test_how_long_a_transaction_goes_on_asks_for_transactions() -> None:
    """As with kafka-producer-perf-test."""
    with FakeCluster() as cluster:
        result = perf(
            "--bootstrap", cluster.bootstrap_servers, "--record-size", "50", "--transaction-duration-ms", "10"
        )
        assert (result.exit_code, result.stderr) == (0, "")
        assert "500 committed" in result.stdout
        assert len(cluster.records("t", read_committed=True)) == 500


def test_records_that_fail() -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("t", configs={"max.message.bytes": 70})
        result = perf("--bootstrap", cluster.bootstrap_servers, "--record-size", "50")
        assert result.exit_code == 1
        assert "failed: 500 with MESSAGE_TOO_LARGE" in result.stdout


def test_no_cluster() -> None:
    (port,) = free_ports(1, random.Random())
    result = perf("--bootstrap", f"127.0.0.1:{port}", "--record-size", "50", "-X", "max.block.ms=1000")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"127.0.0.1:{port}" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "either --record-size or --payload-file"),
        (("--record-size", "1", "--payload-file", "x"), "either --record-size or --payload-file"),
        (("--record-size", "1", "--warmup-records", "500"), "less than --num-records"),
        (("--record-size", "1", "--picture", "x.gif"), ".svg, .png, .pdf"),
        (("--record-size", "1", "--json", "nowhere/x.json"), "no directory"),
        (("--record-size", "1", "--json", "."), "is a directory"),
        (("--record-size", "1", "-X", "lingr.ms=1"), "linger_ms"),
        (("--record-size", "1", "--throughput", "inf"), "--throughput takes"),
        (("--record-size", "1", "--throughput", "nan"), "--throughput takes"),
        (("--record-size", "1", "--throughput", "0"), "--throughput takes"),
        (("--record-size", "1", "--throughput", "-5"), "--throughput takes"),
        (("--record-size", "99999999999"), "--record-size can be at most"),
        (("--record-size", "1", "--key-size", "99999999999"), "--key-size can be at most"),
        (("--payload-file", __file__, "--payload-delimiter", ""), "--payload-delimiter"),
    ],
)
def test_options_that_are_not_usable(arguments: tuple[str, ...], said: str) -> None:
    result = perf(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_a_report_on_standard_output_is_alone_there(name: str, tmp_path: Path) -> None:
    """For ``| jq``, or for a file that would else begin with the summary, or lose it."""
    told = tmp_path / "run.json"
    command = [Path(sys.executable).with_name("aioproducer"), "perf", "--topic", "t", "--num-records", "500"]
    command += ["--record-size", "50", "--print-metrics", "--json", name]
    with FakeCluster() as cluster, told.open("w") as stdout:
        command += ["--bootstrap", cluster.bootstrap_servers]
        finished = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert finished.returncode == 0
    assert finished.stderr.startswith("500 sent, 500 acked")
    assert json.loads(told.read_text())["acked"] == 500
    assert list(tmp_path.iterdir()) == [told]


def test_a_report_that_can_not_be_written_is_told_after_the_others(tmp_path: Path) -> None:
    drawn = tmp_path / "run.svg"
    with FakeCluster() as cluster:
        result = perf(
            *("--bootstrap", cluster.bootstrap_servers, "--record-size", "50"),
            *("--json", "/dev/full", "--picture", str(drawn)),
        )
    assert result.exit_code == 1
    assert result.stdout.startswith("500 sent, 500 acked")
    assert result.stderr == "aioproducer: /dev/full can't be written: No space left on device\n"
    assert "<svg" in drawn.read_text()


def test_a_delimiter_may_be_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / "payloads"
    path.write_bytes(b"a\xffb\xffa")
    make = payloads.from_file(path, "\udcff", 0)  # Python's form of a command-line argument that is not UTF-8
    assert {make(number)[0] for number in range(3)} == {b"a", b"b"}


def test_keys_are_fewer_the_larger_they_are() -> None:
    make = payloads.random_letters(1, payloads.POOL_BYTES // 2)
    keys = [make(number)[1] for number in range(4)]
    assert keys[0] != keys[1]
    assert keys[2:] == keys[:2]


def test_a_picture_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = perf("--record-size", "1", "--picture", "x.svg")
    assert result.stderr == "aioproducer: matplotlib must be installed: pip install 'aioproducer[perf]'\n"


def test_a_bar_is_as_long_as_its_part() -> None:
    assert [bar(part, 4) for part in (0, 0.001, 0.5, 1, 7)] == ["", "▏", "██", "████", "████"]
    assert sparks([0, 1, 2]) == "▁▅█"
    assert sparks([0, 0]) == "▁▁"


def test_the_live_view_shows_counts_and_latencies() -> None:
    load = Load(
        Producer(bootstrap_servers="x:1"), "t", payloads.random_letters(1, 0),
        mode=Mode.SEND, rate=None, concurrency=1, chunk=1, transaction_s=None,
    )  # fmt: skip
    watch = Watch(load, lambda: 0.25)
    load.stats.ack(0.005, 100)
    load.stats.fail(ValueError())
    interval = watch.tick()
    assert (interval.acked, interval.failed, interval.acked_bytes, interval.buffer_used) == (1, 1, 100, 0.25)
    assert line(interval).plain.endswith("buffer  25 %  1 failed")
    assert line(watch.tick()).plain.endswith("buffer  25 %")
    written = io.StringIO()
    Console(file=written, width=100, force_terminal=True, color_system=None).print(Screen(load, watch, 4))
    assert "1 of 4 acked, 1 failed" in written.getvalue()
    assert "25 %" in written.getvalue()
    assert "p99.9" in written.getvalue()
