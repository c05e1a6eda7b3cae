"""The addresses of a cluster that was started elsewhere."""

from __future__ import annotations

import gc
import warnings

import pytest

from aioproducer.errors import UnsupportedVersionError
from aioproducer.testing import ClusterError, ExistingCluster, FakeCluster
from aioproducer.testing.admin_connection import AdminConnection


def test_addresses_come_back_as_a_producer_takes_them() -> None:
    assert ExistingCluster(" kafka:9092 ,[::1]:9093,").bootstrap_servers == "kafka:9092,[::1]:9093"


@pytest.mark.parametrize("nothing", ["", " , "])
def test_no_address_at_all_is_refused(nothing: str) -> None:
    with pytest.raises(ClusterError, match="no address"):
        ExistingCluster(nothing)


def test_a_connection_that_a_broker_refuses_is_closed() -> None:
    gc.collect()  # garbage of other tests must not count
    with FakeCluster() as cluster, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        cluster.faults.fail("ApiVersions", "UNSUPPORTED_VERSION")
        with pytest.raises(UnsupportedVersionError):
            AdminConnection(cluster.address_of(1), 5.0)
        gc.collect()
    assert [each.category for each in told] == []
