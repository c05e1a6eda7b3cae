"""The addresses of a cluster that somebody else started."""

from __future__ import annotations

import pytest

from aioproducer.testing import ClusterError, ExistingCluster


def test_addresses_come_back_as_a_producer_takes_them() -> None:
    assert ExistingCluster(" kafka:9092 ,[::1]:9093,").bootstrap_servers == "kafka:9092,[::1]:9093"


@pytest.mark.parametrize("nothing", ["", " , "])
def test_no_address_at_all_is_refused(nothing: str) -> None:
    with pytest.raises(ClusterError, match="no address"):
        ExistingCluster(nothing)
