"""``aioproducer topics`` and ``describe``: what they print, and how they exit."""

from __future__ import annotations

import json
import random

import pytest
from typer.testing import CliRunner, Result

from aioproducer.cli.app import app
from aioproducer.testing import FakeCluster
from aioproducer.testing.ports import free_ports
from tests.unit.doctor import hostile


def run(cluster: FakeCluster, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--bootstrap", cluster.bootstrap_servers])


def test_topics_with_their_state() -> None:
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders", 3)
        cluster.create_topic("clicks", 2)
        cluster.remove_leader("orders", 1)
        cluster.shrink_isr("clicks", 0, [cluster.leader_of("clicks", 0)])
        lines = run(cluster, "topics").stdout.splitlines()
        assert [line.split()[:3] for line in lines] == [
            ["topic", "partitions", "replicas"],
            ["clicks", "2", "3"],
            ["orders", "3", "3"],
        ]
        assert "replicas behind: 0" in lines[1]
        assert "without leader: 1" in lines[2]
        (found,) = json.loads(run(cluster, "topics", "ord", "ers", "--json").stdout)
        assert (found["topic"], found["without_leader"], found["behind"]) == ("orders", [1], [])


def test_no_topic() -> None:
    with FakeCluster() as cluster:
        assert run(cluster, "topics").exit_code == 1
        cluster.create_topic("orders")
        result = run(cluster, "topics", "clicks")
        assert (result.exit_code, result.stdout) == (1, "no topic matches all of these words\n")


def test_a_description() -> None:
    with FakeCluster(2) as cluster:
        cluster.create_topic("orders", assignments={0: [2, 1], 1: [1, 2]})
        cluster.remove_leader("orders", 1)
        (found,) = json.loads(run(cluster, "describe", "orders", "--json").stdout)
        assert found["configs_not_told"] == "the broker does not support DescribeConfigs"
        first, second = found["partitions"]
        assert (first["leader"], first["replicas"]) == (2, [2, 1])
        assert first["host"] == "{}:{}".format(*cluster.address_of(2))
        assert (second["leader"], second["host"]) == (None, None)
        text = run(cluster, "describe", "orders").stdout
        assert text.startswith("orders\n  configs not available")
        assert " none" in text


def test_a_topic_named_twice_is_described_once() -> None:
    with FakeCluster() as cluster:
        for name in ("orders", "clicks"):
            cluster.create_topic(name)
        found = json.loads(run(cluster, "describe", "orders", "clicks", "orders", "--json").stdout)
        assert [each["topic"] for each in found] == ["orders", "clicks"]


def test_a_topic_that_is_not_there_stays_so() -> None:
    with FakeCluster(auto_create_topics=True) as cluster:
        cluster.create_topic("orders")
        for _ in range(2):
            result = run(cluster, "describe", "orders", "ordres")
            assert result.exit_code == 1
            assert "ordres\n  UNKNOWN_TOPIC_OR_PARTITION" in result.stdout


def test_a_topic_that_is_not_there_has_the_fields_of_the_others() -> None:
    """Programs read them from every topic."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        good, bad = json.loads(run(cluster, "describe", "orders", "ordres", "--json").stdout)
    assert bad.keys() - good.keys() == {"meaning"}
    assert good.keys() <= bad.keys()


def test_an_answer_without_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        hostile.repeats_topics(monkeypatch, cluster, 0)
        result = run(cluster, "describe", "orders")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("Metadata was answered without orders\n")


@pytest.mark.parametrize("name", ["", "or/ders", "x" * 250, ".."])
def test_names_that_no_topic_can_have(name: str) -> None:
    """A mistake on the command line, as when a script's variable is not set."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        result = run(cluster, "describe", "orders", name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{name!r} is not a valid topic name: 1 to 249 letters" in result.stderr


def test_what_can_not_be_asked() -> None:
    (port,) = free_ports(1, random.Random())
    for command in ("topics", "describe orders"):
        options = ["--bootstrap", f"127.0.0.1:{port}", "-X", "max.block.ms=1000"]
        result = CliRunner().invoke(app, [*command.split(), *options])
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"127.0.0.1:{port}" in result.stderr
        assert CliRunner().invoke(app, [*command.split(), "-X", "lingr.ms=1"]).exit_code == 2
