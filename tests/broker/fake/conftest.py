"""One broker, first a real and then a fake one, for tests of what both have to do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aioproducer.testing import FakeCluster
from tests.broker.fake.kinds import AnyCluster
from tests.broker.raw import RawConnection


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        yield cluster


@pytest.fixture(params=["fake", "real"])
def cluster(request: pytest.FixtureRequest) -> AnyCluster:
    found: AnyCluster = request.getfixturevalue("fake" if request.param == "fake" else "kafka")
    return found


@pytest.fixture
def broker(cluster: AnyCluster) -> Iterator[RawConnection]:
    with RawConnection(cluster.address_of(1)) as connection:
        yield connection


@pytest.fixture(params=["fake", "real"])
def three(request: pytest.FixtureRequest) -> Iterator[AnyCluster]:
    """Three brokers, first real and then fake ones."""
    if request.param == "fake":
        with FakeCluster(3) as cluster:
            yield cluster
    else:
        yield request.getfixturevalue("three_brokers")
