"""The clusters for the transaction tests.

V2, the same Kafka limited to V1, the last release that only has V1, and the oldest whose KRaft has transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from aioproducer.testing import KafkaCluster

# By default, transactions that timed out are looked for every 10 s.
SOON = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
KINDS = {
    "V2": {"feature_versions": {"transaction.version": 2}},
    "V1": {"feature_versions": {"transaction.version": 1}},
    "3.9": {"version": "3.9.1"},
    "3.0": {"version": "3.0.2"},
}
OLDEST = "3.0"


@pytest.fixture(scope="module")
def clusters_by_kind() -> Iterator[dict[str, KafkaCluster]]:
    """The clusters, each started when a test first asks for it."""
    with ExitStack() as stack:
        yield _Clusters(stack)


class _Clusters(dict[str, KafkaCluster]):
    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __missing__(self, kind: str) -> KafkaCluster:
        cluster = self[kind] = self._stack.enter_context(KafkaCluster(properties=SOON, **KINDS[kind]))  # type: ignore[arg-type]
        return cluster


@pytest.fixture(params=[*(kind for kind in KINDS if kind != OLDEST), pytest.param(OLDEST, marks=pytest.mark.slow)])
def any_kafka(request: pytest.FixtureRequest, clusters_by_kind: dict[str, KafkaCluster]) -> KafkaCluster:
    """One broker of each kind in turn."""
    return clusters_by_kind[request.param]


@pytest.fixture
def is_v2(request: pytest.FixtureRequest) -> bool:
    """Whether ``any_kafka`` has transactions V2."""
    return "V2" in request.node.callspec.id


@pytest.fixture
def kafka_v2(clusters_by_kind: dict[str, KafkaCluster]) -> KafkaCluster:
    return clusters_by_kind["V2"]
