"""Formatting the directories of a new cluster."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from aioproducer.testing import ClusterError
from aioproducer.testing.formatting import BOOTSTRAP, bootstrap_checkpoint, format_directories
from aioproducer.testing.properties import Node


class Tool:
    """A fake StorageTool: records its calls and writes what the real one would."""

    def __init__(self, log_dir: Path, content: bytes | None, *, name: str = BOOTSTRAP) -> None:
        self.log_dir = log_dir
        self.content = content
        self.written = log_dir / name
        self.calls: list[tuple[str, list[str]]] = []

    def __call__(self, name: str, arguments: Sequence[str]) -> str:
        self.calls.append((name, list(arguments)))
        self.written.parent.mkdir(parents=True, exist_ok=True)
        if self.content is not None:
            self.written.write_bytes(self.content)
        return "Formatting"


def checkpoint(tmp_path: Path, tool: Tool, features: dict[str, int], version: str = "4.3.1") -> bytes:
    return bootstrap_checkpoint(tmp_path, version, features, tool, tmp_path / "p.properties", tool.log_dir)


def test_the_tool_runs_once_for_a_version(tmp_path: Path) -> None:
    tool = Tool(tmp_path / "data", b"records")
    assert checkpoint(tmp_path, tool, {}) == b"records"
    assert checkpoint(tmp_path, tool, {}) == b"records"
    assert len(tool.calls) == 1
    checkpoint(tmp_path, tool, {}, "3.9.1")
    assert len(tool.calls) == 2


def test_the_feature_levels_are_found_where_kafka_4_4_writes_them(tmp_path: Path) -> None:
    name = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    tool = Tool(tmp_path / "data", b"records", name=name)
    assert checkpoint(tmp_path, tool, {}, "4.4.0") == b"records"


def test_features_are_passed_on_and_kept_apart(tmp_path: Path) -> None:
    tool = Tool(tmp_path / "data", b"one")
    checkpoint(tmp_path, tool, {"transaction.version": 1, "group.version": 0})
    name, arguments = tool.calls[0]
    assert name == "StorageTool"
    assert arguments[-4:] == ["--feature", "group.version=0", "--feature", "transaction.version=1"]
    tool.content = b"two"
    assert checkpoint(tmp_path, tool, {"transaction.version": 2}) == b"two"
    assert checkpoint(tmp_path, tool, {"group.version": 0, "transaction.version": 1}) == b"one"


def test_versions_without_the_file_are_remembered_too(tmp_path: Path) -> None:
    tool = Tool(tmp_path / "data", None)
    assert checkpoint(tmp_path, tool, {}, "3.0.2") == b""
    assert checkpoint(tmp_path, tool, {}, "3.0.2") == b""
    assert len(tool.calls) == 1


def test_a_cache_that_can_not_be_used_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "bootstrap").touch()
    tool = Tool(tmp_path / "data", b"records")
    for _ in range(2):
        assert checkpoint(tmp_path, tool, {}) == b"records"
    assert len(tool.calls) == 2


def test_features_that_can_not_be_say_so_and_leave_nothing_in_the_cache(tmp_path: Path) -> None:
    def refuse(name: str, arguments: Sequence[str]) -> str:
        raise ClusterError("exit code 1: No feature with level 9")

    with pytest.raises(ClusterError, match=r"4\.3\.1.*transaction\.version.*level 9"):
        bootstrap_checkpoint(tmp_path, "4.3.1", {"transaction.version": 9}, refuse, tmp_path / "p", tmp_path / "data")
    assert list(tmp_path.rglob("*.checkpoint")) == []


def test_all_directories_belong_to_one_cluster(tmp_path: Path) -> None:
    nodes = [Node(number, {}, tmp_path / str(number) / "data") for number in (1, 2)]
    format_directories(nodes, "cluster-1", b"records", random.Random(1))
    texts = [(node.log_dir / "meta.properties").read_text() for node in nodes]
    assert all("cluster.id=cluster-1\n" in each for each in texts)
    assert [f"node.id={number}\n" in texts[number - 1] for number in (1, 2)] == [True, True]
    directory_ids = {line for each in texts for line in each.splitlines() if line.startswith("directory.id=")}
    assert len(directory_ids) == 2
    assert [(node.log_dir / BOOTSTRAP).read_bytes() for node in nodes] == [b"records"] * 2


def test_an_empty_checkpoint_is_no_file(tmp_path: Path) -> None:
    node = Node(1, {}, tmp_path / "data")
    format_directories([node], "cluster-1", b"", random.Random(1))
    assert [path.name for path in node.log_dir.iterdir()] == ["meta.properties"]
