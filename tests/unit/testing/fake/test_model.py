"""The cluster model's own state: which partitions there are, and who leads them."""

from __future__ import annotations

import pytest

from aioproducer.testing.fake.model import PRODUCER_ID_BLOCK
from tests.unit.testing.fake.talk import model


def test_only_a_replica_that_is_in_sync_and_runs_can_lead() -> None:
    cluster = model()
    leader, second, third = cluster.partition("orders", 0).replicas
    cluster.shrink_isr("orders", 0, [leader, second])
    with pytest.raises(ValueError, match=f"broker {third} can't lead orders-0"):
        cluster.move_leader("orders", 0, third)
    assert cluster.move_leader("orders") == second
    cluster.shrink_isr("orders", 0, [second])
    cluster.stop_broker(second)
    assert cluster.leader_of("orders") is None
    for to in (second, None):
        with pytest.raises(ValueError, match="can't lead orders-0"):
            cluster.move_leader("orders", 0, to)
    cluster.start_broker(second)
    assert cluster.leader_of("orders") == second


def test_replicas_in_sync_are_replicas_and_include_the_leader() -> None:
    cluster = model(brokers=4)
    partition = cluster.partition("orders", 0)
    leader, second, third = partition.replicas
    (stranger,) = set(cluster.brokers) - set(partition.replicas)
    for isr in ([leader, stranger], [second, third]):
        with pytest.raises(ValueError, match="of orders-0: leader"):
            cluster.shrink_isr("orders", 0, isr)
    cluster.remove_leader("orders")
    cluster.shrink_isr("orders", 0, [second, third])
    assert partition.isr == [second, third]


def test_a_broker_that_comes_back_is_in_sync_where_it_has_a_replica() -> None:
    cluster = model(brokers=2)
    cluster.create_topic("first", assignments={0: [1]})
    cluster.stop_broker(1)
    cluster.stop_broker(2)
    assert [cluster.partition(topic, 0).isr for topic in ("orders", "first")] == [[2], [1]]
    cluster.start_broker(2)
    assert (cluster.leader_of("orders"), cluster.leader_of("first")) == (2, None)
    cluster.start_broker(1)
    assert [sorted(cluster.partition(topic, 0).isr) for topic in ("orders", "first")] == [[1, 2], [1]]
    assert cluster.leader_of("first") == 1


def test_no_producer_id_is_given_twice() -> None:
    """Each broker has its own block of them."""
    cluster = model(brokers=2)
    ids = [cluster.new_producer_id(node_id) for _ in range(PRODUCER_ID_BLOCK + 1) for node_id in cluster.brokers]
    assert len(set(ids)) == len(ids)
    assert min(ids) == 0


def test_configs_that_were_altered_before_stay() -> None:
    cluster = model()
    cluster.alter_configs("orders", {"max.message.bytes": 200})
    cluster.alter_configs("orders", {"min.insync.replicas": 2})
    config = cluster.topic("orders").config
    assert (config.limits.max_message_bytes, config.min_insync_replicas) == (200, 2)
    cluster.alter_configs("orders", {"max.message.bytes": None})
    config = cluster.topic("orders").config
    assert (config.limits.max_message_bytes, config.min_insync_replicas) == (1_048_588, 2)


def test_new_partitions_have_as_many_replicas_as_the_others() -> None:
    cluster = model()
    cluster.create_topic("pairs", 1, 2)
    cluster.add_partitions("pairs", 3)
    assert [len(one.replicas) for one in cluster.topic("pairs").partitions] == [2, 2, 2]
    found = {
        place: cluster.has_partition(*place) for place in (("pairs", 2), ("pairs", 3), ("orders", -1), ("none", 0))
    }
    assert found == {("pairs", 2): True, ("pairs", 3): False, ("orders", -1): False, ("none", 0): False}
