"""pytest plugin: Kafka as a fixture, either real, started for the first test that needs it, or fake.

Fixtures:
    kafka_cluster        one broker, for the whole session
    kafka_cluster_3      three brokers, for the whole session
    kafka_topic          the name of a new topic with one partition, removed after the test
    kafka_topic_factory  makes such topics, with any number of partitions, any configs, and on either cluster
    fake_kafka_cluster   a FakeCluster of three brokers, new for every test; needs no Java and no download
    fake_schema_registry  a FakeSchemaRegistry, new for every test

Options:
    --kafka-bootstrap HOST:PORT  use this cluster instead of starting one
    --kafka-version VERSION      of the clusters that are started

A Kafka that can't start fails the tests that need it, with the reason; it never skips them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import pytest

# Sessions that use none of this import the plugin too, and with it the producer, as any module of this package does. So
# the parts for tests, and what they need, are imported only in the fixtures.
if TYPE_CHECKING:
    from aioproducer.testing.admin import TopicAdmin
    from aioproducer.testing.fake.cluster import FakeCluster
    from aioproducer.testing.schema_registry import FakeSchemaRegistry


class TopicFactory(Protocol):
    """The type of the fixture ``kafka_topic_factory``."""

    def __call__(
        self,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        cluster: TopicAdmin | None = None,
    ) -> str:
        """Create a topic with a unique name and return the name.

        Args:
            cluster: None for ``kafka_cluster``.
        """
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("kafka", "real Kafka brokers (aioproducer)")
    group.addoption("--kafka-bootstrap", metavar="HOST:PORT", help="use this Kafka cluster instead of starting one")
    group.addoption("--kafka-version", metavar="VERSION", help="version of the Kafka clusters that tests start")


@pytest.fixture(scope="session")
def kafka_cluster(pytestconfig: pytest.Config) -> Iterator[TopicAdmin]:
    """A Kafka of one broker: a ``KafkaCluster``, or an ``ExistingCluster`` with ``--kafka-bootstrap``."""
    yield from _cluster(pytestconfig, brokers=1)


@pytest.fixture(scope="session")
def kafka_cluster_3(pytestconfig: pytest.Config) -> Iterator[TopicAdmin]:
    """A Kafka of three brokers: a ``KafkaCluster``, or an ``ExistingCluster`` with ``--kafka-bootstrap``."""
    yield from _cluster(pytestconfig, brokers=3)


@pytest.fixture
def kafka_topic_factory(request: pytest.FixtureRequest) -> Iterator[TopicFactory]:
    """A function that creates topics, see ``TopicFactory``. They are removed after the test."""
    made: list[tuple[TopicAdmin, str]] = []

    def make(
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        cluster: TopicAdmin | None = None,
    ) -> str:
        where: TopicAdmin = cluster or request.getfixturevalue("kafka_cluster")
        name = _topic_name(request.node.name)
        where.create_topic(name, partitions, replication_factor, configs)
        made.append((where, name))
        return name

    yield make
    _remove(made)


@pytest.fixture
def kafka_topic(kafka_topic_factory: TopicFactory) -> str:
    """The name of a new topic with one partition."""
    return kafka_topic_factory()


@pytest.fixture
def fake_kafka_cluster() -> Iterator[FakeCluster]:
    """A fake Kafka in the test's process, empty and without faults: three brokers, for this test alone."""
    from aioproducer.testing.fake.cluster import FakeCluster

    with FakeCluster(3) as cluster:
        yield cluster


@pytest.fixture
def fake_schema_registry() -> Iterator[FakeSchemaRegistry]:
    """A fake schema registry on the loopback interface, empty and without faults."""
    from aioproducer.testing.schema_registry import FakeSchemaRegistry

    with FakeSchemaRegistry() as registry:
        yield registry


def _cluster(config: pytest.Config, brokers: int) -> Iterator[TopicAdmin]:
    from aioproducer.testing.cluster import DEFAULT_VERSION, KafkaCluster
    from aioproducer.testing.errors import ClusterError

    bootstrap = config.getoption("--kafka-bootstrap")
    if bootstrap:
        yield _existing(bootstrap, brokers)
        return
    version = config.getoption("--kafka-version") or DEFAULT_VERSION
    cluster = KafkaCluster(brokers, version=version, progress=_shown_by(config))
    reason = ""
    try:
        cluster.start()
    except ClusterError as error:
        reason = str(error)
    _fail_for(reason)
    try:
        yield cluster
    finally:
        cluster.stop()


def _existing(bootstrap: str, brokers: int) -> TopicAdmin:
    from aioproducer.testing.admin import ExistingCluster
    from aioproducer.testing.errors import ClusterError

    reason = ""
    try:
        cluster = ExistingCluster(bootstrap)
        count = len(cluster.brokers)
        if count < brokers:
            reason = f"this test needs {brokers} brokers, there are {count}"
    except ClusterError as error:
        reason = str(error)
    _fail_for(reason and f"--kafka-bootstrap {bootstrap}: {reason}")
    return cluster


def _fail_for(reason: str) -> None:
    """Fail the test that asked for the cluster, with only the reason: a traceback of this package would bury it."""
    if reason:
        pytest.fail(reason, pytrace=False)


def _shown_by(config: pytest.Config) -> Callable[[str], None] | None:
    """A function that writes a line about a slow step to the terminal; None without a terminal, as under xdist."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if reporter is None or capture is None:
        return None

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(line)

    return show


def _topic_name(test: str) -> str:
    readable = re.sub(r"[^\w.-]+", "-", test, flags=re.ASCII)[:100]
    return f"{readable}-{uuid.uuid4().hex[:8]}"


def _remove(made: list[tuple[TopicAdmin, str]]) -> None:
    from aioproducer.errors import KafkaError
    from aioproducer.testing.errors import ClusterError

    for cluster, name in made:
        # The test may have removed it, or stopped the cluster.
        with suppress(ClusterError, KafkaError):
            cluster.delete_topic(name)
