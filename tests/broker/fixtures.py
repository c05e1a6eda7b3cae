"""Clusters that the broker tests share.

`conftest.py` imports the fixtures. Each module has its own clusters: starting a broker takes 2 s of one
processor, and one that idles for the rest of the session takes a tenth of one all the time.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvloop

from aioproducer import Producer
from aioproducer.testing import KafkaCluster
from tests.broker.chaos.cluster import ProxiedCluster, proxied_cluster
from tests.eager import make_tasks_eager

PATIENCE_S = 60.0
"""How long a test waits for what must happen before it fails as hanging."""

_numbers = itertools.count(1)


def debug_loop() -> asyncio.AbstractEventLoop:
    """asyncio's own loop, in debug mode."""
    loop = asyncio.new_event_loop()
    loop.set_debug(True)
    return loop


def eager_loop() -> asyncio.AbstractEventLoop:
    """One whose tasks take their first step where they are created, as within Textual; from Python 3.12 on."""
    loop = asyncio.new_event_loop()
    make_tasks_eager(loop)
    return loop


LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "debug": debug_loop,
    "uvloop": uvloop.new_event_loop,
}
if sys.version_info >= (3, 12):
    LOOPS["eager"] = eager_loop


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    """One broker of the newest Kafka, which no test stops; topics are created automatically."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def strict_kafka() -> Iterator[KafkaCluster]:
    """One broker that does not create topics automatically."""
    with KafkaCluster(properties={"auto.create.topics.enable": False}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fragile_cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def fragile_kafka(fragile_cluster: KafkaCluster) -> Iterator[KafkaCluster]:
    """One broker for a test that pauses, kills or restarts it; it is running at the start of each test."""
    yield fragile_cluster
    _heal(fragile_cluster)


@pytest.fixture(scope="module")
def cluster_of_three() -> Iterator[ProxiedCluster]:
    with proxied_cluster(3, auto_create_topics_enable=False) as cluster:
        yield cluster


@pytest.fixture
def three_brokers(cluster_of_three: ProxiedCluster) -> Iterator[ProxiedCluster]:
    """Three brokers for a test that pauses, kills or restarts them; all are running at the start of each test.

    Topics are not created automatically. The brokers can also be reached through proxies, see `chaos/`.
    """
    yield cluster_of_three
    cluster_of_three.proxies.heal()
    _heal(cluster_of_three)


def _heal(cluster: KafkaCluster) -> None:
    for broker in cluster.running:
        cluster.resume(broker)
    # Together: one broker alone would have no quorum.
    stopped = sorted(set(cluster.brokers) - set(cluster.running))
    if stopped:
        cluster.start_broker(*stopped)
    cluster.wait_in_sync()


def producer_of(cluster: KafkaCluster, **configs: Any) -> Producer:
    """A producer of a cluster, not yet started."""
    return Producer(**{"bootstrap_servers": cluster.bootstrap_servers, **configs})


def new_name() -> str:
    """A topic name that no other test uses."""
    return f"topic-{next(_numbers)}"


async def new_topic(cluster: KafkaCluster, partitions: int = 1, **configs: Any) -> str:
    """Create a topic with a new name; configs have ``_`` for ``.``."""
    name = new_name()
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    await asyncio.to_thread(cluster.create_topic, name, partitions, configs=dotted)
    return name


async def until(condition: Callable[[], object], what: str) -> None:
    """Let the loop run until a condition in this process holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)
    assert condition(), what
