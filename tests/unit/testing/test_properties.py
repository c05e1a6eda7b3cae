"""The properties of a broker and the files they are written to."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from aioproducer.config.properties import parse_properties
from aioproducer.testing.properties import (
    CONTROLLER,
    Node,
    meta_properties,
    random_id,
    render,
    server_properties,
    text,
)

LISTENERS = {"PLAINTEXT": "PLAINTEXT"}


def node(number: int) -> Node:
    ports = {"PLAINTEXT": 20_000 + number, "SECURE": 21_000 + number, CONTROLLER: 22_000 + number}
    return Node(number, ports, Path(f"/data/{number}"))


NODES = [node(1), node(2), node(3)]


def test_a_node_knows_its_place_in_the_quorum() -> None:
    found = server_properties(NODES[1], NODES, LISTENERS, {})
    assert found["node.id"] == "2"
    assert found["process.roles"] == "broker,controller"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:22001,2@127.0.0.1:22002,3@127.0.0.1:22003"
    assert found["log.dirs"] == "/data/2"


def test_listeners_are_on_the_loopback_and_controllers_are_not_advertised() -> None:
    found = server_properties(NODES[0], NODES, LISTENERS, {})
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:22001"
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001"
    assert found["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert found["inter.broker.listener.name"] == "PLAINTEXT"


def test_further_listeners_have_their_own_protocols() -> None:
    found = server_properties(NODES[0], NODES, {**LISTENERS, "SECURE": "SASL_SSL"}, {})
    assert found["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20001,SECURE://127.0.0.1:21001"
    assert found["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT"
    assert NODES[0].address("SECURE") == ("127.0.0.1", 21_001)


@pytest.mark.parametrize(("brokers", "copies", "in_sync"), [(1, "1", "1"), (3, "3", "2"), (5, "3", "2")])
def test_internal_topics_are_copied_as_far_as_there_are_brokers(brokers: int, copies: str, in_sync: str) -> None:
    nodes = [node(number) for number in range(1, brokers + 1)]
    found = server_properties(nodes[0], nodes, LISTENERS, {})
    assert found["offsets.topic.replication.factor"] == copies
    assert found["transaction.state.log.replication.factor"] == copies
    assert found["transaction.state.log.min.isr"] == in_sync


def test_the_users_properties_win_and_none_takes_one_out() -> None:
    own = {"broker.session.timeout.ms": 9000, "log.retention.ms": None, "auto.create.topics.enable": False}
    found = server_properties(NODES[0], NODES, LISTENERS, own)
    assert found["broker.session.timeout.ms"] == "9000"
    assert "log.retention.ms" not in found
    assert found["auto.create.topics.enable"] == "false"


@pytest.mark.parametrize(
    ("value", "written"), [(True, "true"), (False, "false"), (3, "3"), (["a", 1], "a,1"), (("a",), "a"), ("x", "x")]
)
def test_values_are_written_as_kafka_reads_them(value: object, written: str) -> None:
    assert text(value) == written


def test_a_file_is_read_back_as_it_was_meant() -> None:
    properties = {
        "plain": "value",
        "path": "C:\\dir\\file",
        "jaas": 'Login required username="a" password="=:#!";',
        "spaced": "  two leading",
        "unicode": "schlüssel \U0001f511",
        "lines": "a\nb\tc",
        "od:d key=": "#no comment",
        "empty": "",
    }
    written = render(properties)
    assert written.isascii()
    assert parse_properties(written) == properties


def test_the_meta_properties_name_cluster_and_node() -> None:
    lines = meta_properties(2, "cluster", "directory").splitlines()
    assert lines == ["version=1", "cluster.id=cluster", "node.id=2", "directory.id=directory"]


def test_ids_are_uuids_in_text_that_no_tool_takes_for_an_option() -> None:
    rng = random.Random(3)
    ids = [random_id(rng) for _ in range(1_000)]
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", one) for one in ids)
    assert len(set(ids)) == 1_000
