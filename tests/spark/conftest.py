"""One Spark session and one Kafka for all tests of this folder."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aioproducer.spark import local_session
from aioproducer.testing import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)

# Also for the processes that tests start: a JVM that lives for a minute or two spends a third of its time on compiling
# code as well as it can.
os.environ.setdefault(
    "PYSPARK_SUBMIT_ARGS", '--driver-java-options "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" pyspark-shell'
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """One broker of the newest Kafka; a test that stops it restarts it. Topics are created automatically."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session with two concurrent tasks and this package's data source; tasks get a second attempt."""
    own = tmp_path_factory.mktemp("spark")
    configs = {
        "spark.sql.warehouse.dir": own / "warehouse",
        "spark.local.dir": own / "local",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
    }
    session = local_session("tests", cores="2, 2", configs=configs)
    yield session
    session.stop()


@pytest.fixture
def topic(kafka: KafkaCluster) -> Callable[..., str]:
    """A function that creates a topic with a new name."""

    def make(partitions: int = 1, **configs: object) -> str:
        name = f"topic-{next(_numbers)}"
        dotted = {key.replace("_", "."): value for key, value in configs.items()}
        kafka.create_topic(name, partitions, configs=dotted)
        return name

    return make
