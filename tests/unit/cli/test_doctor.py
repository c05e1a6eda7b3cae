"""``aioproducer doctor``: what it prints, and how it exits."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from aioproducer.cli.app import app
from aioproducer.cli.doctor import _View
from aioproducer.doctor import Finding, Status, Step
from aioproducer.testing import FakeCluster


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_a_cluster_that_is_well() -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        result = doctor("--bootstrap", cluster.bootstrap_servers, "--topic", "orders", "--write")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.splitlines()[0] == cluster.bootstrap_servers
        assert result.stdout.endswith("a producer can work here\n")
        assert cluster.end_offsets("orders") == {0: 1}


def test_a_topic_that_is_not_there() -> None:
    with FakeCluster() as cluster:
        result = doctor("--bootstrap", cluster.bootstrap_servers, "--topic", "orders")
        assert result.exit_code == 1
        assert "  failed   topic        it does not exist\n           what to do   create it" in result.stdout
        assert result.stdout.endswith("1 problem\n")


def test_for_programs() -> None:
    with FakeCluster() as cluster:
        result = doctor("--bootstrap", cluster.bootstrap_servers, "--json")
        assert result.exit_code == 0
        report = json.loads(result.stdout)
        assert report["status"] == "ok"
        assert {each["step"] for each in report["findings"]} == {"tcp", "versions", "cluster", "listener"}


def test_warnings_alone_are_no_failure() -> None:
    with FakeCluster() as cluster:
        result = doctor("--bootstrap", cluster.bootstrap_servers, "-X", "acks=1")
        assert result.exit_code == 0
        assert result.stdout.startswith("acks\n  warning  config")
        assert result.stdout.endswith("a producer can work here; 1 warning\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--write",), "--write needs --topic"),
        (("-X", "lingr.ms=1"), "linger_ms"),
        (("-X", "acks"), "name=value"),
        (("-X", "topic=orders"), "config topic is unknown"),
        (("-X", "write=true"), "config write is unknown"),
    ],
)
def test_options_that_are_not_usable(arguments: tuple[str, ...], said: str) -> None:
    result = doctor(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_long_lines_are_wrapped_below_themselves_on_a_terminal() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=50, color_system=None, highlight=False)
    _View(console).show(Finding(Step.TCP, "kafka:9092", Status.FAILED, "[b] " + "word " * 12, "do [i]this"))
    first, *lines = [line.rstrip() for line in written.getvalue().splitlines()]
    assert first == "kafka:9092"
    assert lines[0].startswith("  failed   tcp          [b] word")
    assert lines[1].startswith(" " * 24 + "word")
    assert lines[-1] == " " * 11 + "what to do   do [i]this"
