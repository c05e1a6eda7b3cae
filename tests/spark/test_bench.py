"""The benchmark counts the records at the broker, and fails a run with unexpected ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from aioproducer.testing import KafkaCluster
from benchmarks.bench_spark import WAYS, RowsCase, Session, Way, run_once
from benchmarks.runner import Run
from benchmarks.servers import BrokerServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASE = RowsCase("100 B", 100, "none", rows=5_000)


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The session of all tests, because Spark has one per process."""
    return Session(tmp_path_factory.mktemp("bench"))


def run(way: Way, session: Session, kafka: KafkaCluster) -> Run:
    server = BrokerServer(kafka.bootstrap_servers, "Kafka")
    return run_once(Run("spark", CASE.name, way.name, 0), CASE, way, session, server)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_every_way_is_verified(way: Way, session: Session, kafka: KafkaCluster) -> None:
    ran = run(way, session, kafka)
    assert ran.problems == []
    assert ran.figures["records_per_second"] > 0
    assert ran.figures["cpu_seconds_per_million"] > 0


@pytest.mark.parametrize("transactions", [False, True])
def test_rows_that_do_not_come_are_noticed(transactions: bool, session: Session, kafka: KafkaCluster) -> None:
    (nothing,) = (way for way in WAYS if not way.writes)
    ran = run(replace(nothing, writes=True, transactions=transactions), session, kafka)
    assert len(ran.problems) == 1


def test_all_records_are_of_one_size(session: Session) -> None:
    for size in (100, 1_024):
        sizes = session.rows(size, 10_000).selectExpr("octet_length(key) + octet_length(value) AS bytes").distinct()
        assert [row.bytes for row in sizes.collect()] == [8 + size]
