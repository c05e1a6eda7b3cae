"""Brokers that advertise the ports of proxies to the producer, while all others reach them directly."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from aioproducer.testing import KafkaCluster
from aioproducer.testing.cluster import DEFAULT_VERSION
from aioproducer.testing.listeners import Listener
from aioproducer.testing.ports import free_ports
from aioproducer.testing.properties import Node
from tests.broker.chaos.proxy import HOST, Proxies

INSIDE, OUTSIDE = "PLAINTEXT", "OUTSIDE"


class ProxiedCluster(KafkaCluster):
    """A cluster whose brokers have one more listener each, which advertises the address of a proxy."""

    def __init__(self, proxies: Proxies, *, version: str = DEFAULT_VERSION, **properties: object) -> None:
        super().__init__(
            len(proxies.ports),
            version=version,
            listeners={OUTSIDE: Listener(protocol="PLAINTEXT")},
            properties={name.replace("_", "."): value for name, value in properties.items()},
        )
        self.proxies = proxies

    def _write_properties(
        self, node: Node, directory: Path, listeners: Mapping[str, str], own: Mapping[str, object]
    ) -> Path:
        if OUTSIDE in listeners:
            self.proxies.lead_to(node.node_id, node.ports[OUTSIDE])
            inside, outside = f"{HOST}:{node.ports[INSIDE]}", f"{HOST}:{self.proxies.ports[node.node_id]}"
            own = {**own, "advertised.listeners": f"{INSIDE}://{inside},{OUTSIDE}://{outside}"}
        return super()._write_properties(node, directory, listeners, own)


@contextmanager
def proxied_cluster(brokers: int, *, version: str = DEFAULT_VERSION, **properties: object) -> Iterator[ProxiedCluster]:
    """Start proxies and, behind them, brokers."""
    ports = dict(enumerate(free_ports(brokers, random.Random()), 1))
    with Proxies(ports, random.Random(1)) as proxies, ProxiedCluster(proxies, version=version, **properties) as cluster:
        yield cluster
