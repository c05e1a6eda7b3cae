"""A broker's configuration: server.properties, and the file that identifies a log directory's owner. Pure."""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aioproducer.testing.ports import HOST

Address = tuple[str, int]
"""Host and port."""
CONTROLLER = "CONTROLLER"
"""The listener between controllers; clients never see it."""


@dataclass(frozen=True, slots=True)
class Node:
    """One broker, also a controller.

    Args:
        ports: the port of every listener, the controllers' included.
    """

    node_id: int
    ports: Mapping[str, int]
    log_dir: Path

    def address(self, listener: str) -> Address:
        """Host and port of one listener."""
        return HOST, self.ports[listener]


def server_properties(
    node: Node, nodes: Sequence[Node], listeners: Mapping[str, str], overrides: Mapping[str, object]
) -> dict[str, str]:
    """All properties of one broker.

    Args:
        nodes: every node of the cluster, this one included.
        listeners: the security protocol of each client listener by name; brokers talk to each other over the first.
        overrides: take precedence over ours; None removes a property.
    """
    protocols = {**listeners, CONTROLLER: "PLAINTEXT"}
    addresses = {name: f"{name}://{HOST}:{node.ports[name]}" for name in protocols}
    properties: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node.node_id,
        "controller.quorum.voters": ",".join(f"{one.node_id}@{HOST}:{one.ports[CONTROLLER]}" for one in nodes),
        "controller.listener.names": CONTROLLER,
        "listeners": ",".join(addresses.values()),
        "advertised.listeners": ",".join(addresses[name] for name in listeners),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": next(iter(listeners)),
        "log.dirs": node.log_dir,
        **_replication(len(nodes)),
        **_SMALL,
        **_PROMPT,
        **overrides,
    }
    return {name: text(value) for name, value in properties.items() if value is not None}


def _replication(brokers: int) -> dict[str, object]:
    copies = min(3, brokers)
    return {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": min(2, copies),
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": min(2, copies),
    }


# Production brokers have more of these. Each partition of an internal topic costs files, memory maps and start time.
_SMALL: dict[str, object] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "share.coordinator.state.topic.num.partitions": 3,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
    # Data sets have timestamps of years ago. With the default of a week they would be deleted before they are read.
    "log.retention.ms": -1,
}

# A dead broker is noticed in 3 s instead of 9 s, an election takes a fraction of a second instead of seconds.
_PROMPT: dict[str, object] = {
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3_000,
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.election.backoff.max.ms": 300,
    "controlled.shutdown.retry.backoff.ms": 200,
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}


def text(value: object) -> str:
    """A property's value as Kafka reads it: booleans in lower case, lists joined by commas."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(text, value))
    return str(value)


def render(properties: Mapping[str, str]) -> str:
    """The text of a Java .properties file."""
    return "".join(f"{_escape(name, key=True)}={_escape(value)}\n" for name, value in properties.items())


def _escape(value: str, *, key: bool = False) -> str:
    special = "\\=:#! " if key else "\\"
    units = value.encode("utf-16-be")
    out = []
    for at in range(0, len(units), 2):
        unit = int.from_bytes(units[at : at + 2], "big")
        if unit < 32 or unit > 126:
            # Java reads these files as Latin-1 with UTF-16 escapes.
            out.append(f"\\u{unit:04x}")
        else:
            out.append(f"\\{chr(unit)}" if chr(unit) in special else chr(unit))
    if not key and value.startswith(" "):
        out.insert(0, "\\")
    return "".join(out)


def random_id(rng: random.Random) -> str:
    """A random uuid in Kafka's text form, never with a leading dash, which tools would take for an option."""
    while True:
        encoded = base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")
        if not encoded.startswith("-"):
            return encoded


def meta_properties(node_id: int, cluster_id: str, directory_id: str) -> str:
    """The file meta.properties, which tells a broker that a log directory is formatted and its own."""
    return render({"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": directory_id})
