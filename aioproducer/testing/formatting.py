"""Formats the log directories of a new cluster.

Kafka's StorageTool does this with one JVM per broker. It writes one file that depends only on version and features,
and a few lines of text. So it runs once, its file is cached, and the text is written here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from aioproducer.testing.cache import write_whole
from aioproducer.testing.errors import ClusterError
from aioproducer.testing.properties import Node, meta_properties, random_id

BOOTSTRAP = "bootstrap.checkpoint"
"""The first records of the metadata log: the feature levels. Kafka before 3.3 has no such file. From 4.4 on, the tool
writes it as the first snapshot of the metadata log, under another name, but brokers still read it under this one.
"""

RunTool = Callable[[str, Sequence[str]], str]
"""Runs one of Kafka's tools with arguments and returns its output, or raises ClusterError."""


def format_directories(nodes: Sequence[Node], cluster_id: str, checkpoint: bytes, rng: random.Random) -> None:
    """Create the log directories of a new cluster."""
    for node in nodes:
        node.log_dir.mkdir(parents=True)
        (node.log_dir / "meta.properties").write_text(meta_properties(node.node_id, cluster_id, random_id(rng)))
        if checkpoint:
            (node.log_dir / BOOTSTRAP).write_bytes(checkpoint)


def bootstrap_checkpoint(
    cache: Path, version: str, features: Mapping[str, int], run_tool: RunTool, properties: Path, log_dir: Path
) -> bytes:
    """The content of the file BOOTSTRAP; empty for versions without it.

    Args:
        features: levels by name, such as ``{"transaction.version": 1}``; others have the version's defaults.
        properties: a server.properties whose log directory is ``log_dir``, which does not exist yet.
    """
    levels = [f"{name}={level}" for name, level in sorted(features.items())]
    kept = cache / "bootstrap" / f"{'-'.join([f'kafka-{version}', *levels])}.checkpoint"
    with suppress(OSError):
        return kept.read_bytes()
    cluster_id = random_id(random.Random(0))
    arguments = ["format", "--cluster-id", cluster_id, "--config", str(properties)]
    for level in levels:
        arguments += ["--feature", level]
    try:
        run_tool("StorageTool", arguments)
    except ClusterError as error:
        raise ClusterError(f"Kafka {version} can't be set up with the features {dict(features)}: {error}") from None
    checkpoint = b"".join(written.read_bytes() for written in log_dir.rglob("*.checkpoint"))  # there is at most one
    # A cache that can't be written costs the next start half a second, and is no reason not to start.
    with suppress(OSError):
        write_whole(kept, checkpoint)
    return checkpoint
