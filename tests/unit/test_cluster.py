"""The immutable picture of the cluster and how answers are worked into it."""

from __future__ import annotations

import pytest

from aioproducer.cluster import MERGE_STEP, Broker, Cluster, PartitionState
from aioproducer.errors import ProtocolError
from aioproducer.protocol.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.protocol.schema import ZERO_UUID
from aioproducer.records import PartitionInfo

ID_A, ID_B = b"A" * 16, b"B" * 16


def partition(number: int, leader: int = 1, epoch: int = 5, error: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error,
        partition_index=number,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2, 3],
        isr_nodes=[1, 2],
        offline_replicas=[3],
    )


def topic(
    *partitions: MetadataResponsePartition, name: str | None = "t", topic_id: bytes = ID_A, error: int = 0
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=list(partitions))


def response(*topics: MetadataResponseTopic, nodes: tuple[int, ...] = (1, 2, 3)) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=node, host=f"h{node}", port=9092, rack=f"r{node}") for node in nodes]
    return MetadataResponse(brokers=brokers, topics=list(topics), cluster_id="c", controller_id=2)


def leaders(cluster: Cluster, name: str = "t") -> list[tuple[int, int]]:
    return [(each.leader, each.leader_epoch) for each in cluster.topics[name].partitions]


def test_an_empty_cluster_knows_nothing() -> None:
    cluster = Cluster()
    assert cluster.partitions("t") is None
    assert cluster.leader("t", 0) == -1
    assert not cluster.brokers


def test_an_answer_becomes_brokers_and_partitions_by_number() -> None:
    cluster = Cluster().merged(response(topic(partition(1, leader=2), partition(0), partition(2, leader=-1))))
    assert (cluster.cluster_id, cluster.controller_id) == ("c", 2)
    assert cluster.brokers[3] == Broker(3, "h3", 9092, "r3")
    assert cluster.partitions("t") == (
        PartitionInfo("t", 0, 1, (1, 2, 3), (1, 2), (3,)),
        PartitionInfo("t", 1, 2, (1, 2, 3), (1, 2), (3,)),
        PartitionInfo("t", 2, None, (1, 2, 3), (1, 2), (3,)),
    )
    assert [cluster.leader("t", number) for number in (-1, 0, 1, 2, 3)] == [-1, 1, 2, -1, -1]


def test_it_can_not_be_changed() -> None:
    cluster = Cluster().merged(response(topic(partition(0))))
    with pytest.raises(TypeError):
        cluster.topics["other"] = cluster.topics["t"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        cluster.controller_id = 7  # type: ignore[misc]


def test_a_host_name_that_can_not_be_one_writes_no_line_of_its_own_into_a_log() -> None:
    told = MetadataResponseBroker(node_id=1, host="a\nERROR forged " + "x" * 400, port=9092, rack=None)
    host = Cluster().merged(MetadataResponse(brokers=[told], topics=[])).brokers[1].host
    assert host.startswith("a ERROR forged x")
    assert host.isprintable()
    assert len(host) < 260


def test_a_partial_answer_leaves_other_topics_and_replaces_the_brokers() -> None:
    first = Cluster().merged(response(topic(partition(0)), topic(partition(0), name="u", topic_id=ID_B)))
    second = first.merged(response(topic(partition(0, leader=2, epoch=6), name="u", topic_id=ID_B), nodes=(2,)))
    assert second.topics["t"] is first.topics["t"]
    assert leaders(second, "u") == [(2, 6)]
    assert list(second.brokers) == [2]
    assert second.changed_topics(first) == ("u",)


def test_a_full_answer_forgets_what_is_not_in_use() -> None:
    first = Cluster().merged(response(topic(partition(0)), topic(partition(0), name="u")))
    second = first.merged(response(topic(partition(0), name="u"), topic(partition(0), name="late")), keep=["u"])
    assert list(second.topics) == ["u"]
    assert second.topics["u"] is first.topics["u"]
    assert second.changed_topics(first) == ("t",)


def test_an_older_leader_epoch_keeps_what_is_known() -> None:
    """A broker that is behind names a former leader."""
    first = Cluster().merged(response(topic(partition(0, leader=2, epoch=6), partition(1, leader=1, epoch=5))))
    second = first.merged(response(topic(partition(0, leader=1, epoch=5), partition(1, leader=3, epoch=6))))
    assert leaders(second) == [(2, 6), (3, 6)]


def test_an_equal_leader_epoch_updates_the_replicas() -> None:
    first = Cluster().merged(response(topic(partition(0))))
    answer = partition(0)
    answer.isr_nodes = [1]
    assert first.merged(response(topic(answer))).topics["t"].partitions[0].isr == (1,)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_topic_made_again_starts_over(epoch: int) -> None:
    first = Cluster().merged(response(topic(partition(0, epoch=6), partition(1, epoch=6))))
    second = first.merged(response(topic(partition(0, leader=3, epoch=epoch), topic_id=ID_B)))
    assert leaders(second) == [(3, epoch)]
    assert second.topics["t"].topic_id == ID_B


@pytest.mark.parametrize(("old", "new"), [(ZERO_UUID, ID_A), (ID_A, ZERO_UUID)])
def test_a_topic_id_that_only_some_brokers_tell_is_no_new_topic(old: bytes, new: bytes) -> None:
    first = Cluster().merged(response(topic(partition(0, leader=2, epoch=6), topic_id=old)))
    second = first.merged(response(topic(partition(0, leader=1, epoch=5), topic_id=new)))
    assert leaders(second) == [(2, 6)]


def test_unreliable_epochs_are_not_compared() -> None:
    first = Cluster().merged(response(topic(partition(0, leader=2, epoch=6))))
    second = first.merged(response(topic(partition(0, leader=1, epoch=5))), reliable_epochs=False)
    assert leaders(second) == [(1, -1)]


def test_one_retriable_topic_error_keeps_the_partitions_a_second_does_not() -> None:
    """One broker may be behind; two answers in a row are believed."""
    first = Cluster().merged(response(topic(partition(0))))
    second = first.merged(response(topic(error=3)))
    assert second.partitions("t") == first.partitions("t")
    assert second.topics["t"].error_code == 3
    assert second.changed_topics(first) == ("t",)
    third = second.merged(response(topic(error=3)))
    assert third.partitions("t") is None
    assert third.merged(response(topic(error=3))).topics["t"] is third.topics["t"]
    healed = second.merged(response(topic(partition(0))))
    assert healed.topics["t"].error_code == 0


@pytest.mark.parametrize("error", [17, 29])
def test_a_final_topic_error_takes_the_partitions_away(error: int) -> None:
    first = Cluster().merged(response(topic(partition(0))))
    second = first.merged(response(topic(error=error)))
    assert second.partitions("t") is None
    assert second.topics["t"].error_code == error


def test_an_error_for_an_unknown_topic_is_noted() -> None:
    cluster = Cluster().merged(response(topic(error=3, topic_id=ZERO_UUID)))
    assert cluster.partitions("t") is None
    assert cluster.topics["t"].error_code == 3


def test_a_partition_without_a_leader_says_so() -> None:
    cluster = Cluster().merged(response(topic(partition(0, leader=-1, error=5))))
    assert cluster.topics["t"].partitions[0].error_code == 5
    assert cluster.leader("t", 0) == -1


def test_a_broker_may_have_the_number_zero() -> None:
    cluster = Cluster().merged(response(topic(partition(0, leader=0), partition(1, leader=1)), nodes=(0, 1)))
    assert [info.leader for info in cluster.partitions("t") or ()] == [0, 1]
    assert [cluster.leader("t", number) for number in (0, 1)] == [0, 1]
    assert not cluster.has_unknown_leader("t")
    assert leaders(cluster.with_leader("t", 1, 0, 6)) == [(0, 5), (0, 6)]


def test_more_partitions_are_seen_and_fewer_only_of_another_topic() -> None:
    first = Cluster().merged(response(topic(partition(0), partition(1))))
    grown = first.merged(response(topic(partition(0), partition(1), partition(2))))
    assert len(grown.topics["t"].partitions) == 3
    behind = grown.merged(response(topic(partition(0), partition(1))))
    assert behind.topics["t"] is grown.topics["t"]
    without_ids = Cluster().merged(response(topic(partition(0), partition(1), topic_id=ZERO_UUID)))
    assert len(without_ids.merged(response(topic(partition(0), topic_id=ZERO_UUID))).topics["t"].partitions) == 1


def test_partitions_left_out_stand_without_a_leader() -> None:
    cluster = Cluster().merged(response(topic(partition(2))))
    assert leaders(cluster) == [(-1, -1), (-1, -1), (1, 5)]
    assert cluster.topics["t"].partitions[1] == PartitionState(1, -1, -1, (), (), (), 0)


def test_the_first_of_two_answers_about_one_partition_counts() -> None:
    assert leaders(Cluster().merged(response(topic(partition(0, leader=2), partition(0, leader=3))))) == [(2, 5)]


@pytest.mark.parametrize("number", [-1, 2**31 - 1])
def test_absurd_partition_numbers_are_refused(number: int) -> None:
    with pytest.raises(ProtocolError, match="partitions"):
        Cluster().merged(response(topic(partition(0), partition(number))))


def test_topics_without_a_name_are_skipped() -> None:
    assert not Cluster().merged(response(topic(partition(0), name=None), topic(partition(0), name=""))).topics


def test_many_small_topics_are_merged_in_steps() -> None:
    answer = response(*(topic(partition(0), name=f"t{number}") for number in range(MERGE_STEP)))
    assert len(list(Cluster().merge_in_steps(answer))) == 2


def test_a_large_answer_is_merged_in_steps() -> None:
    answer = response(topic(*(partition(number) for number in range(MERGE_STEP * 3 + 1))))
    assert len(list(Cluster().merge_in_steps(answer))) == 3
    assert len(Cluster().merged(answer).topics["t"].partitions) == MERGE_STEP * 3 + 1


# --- hints ------------------------------------------------------------------------------------------------------------


def test_a_newer_leader_is_taken_over() -> None:
    cluster = Cluster().merged(response(topic(partition(0), partition(1, error=5, leader=-1))))
    hinted = cluster.with_leader("t", 1, 2, 6)
    assert leaders(hinted) == [(1, 5), (2, 6)]
    assert hinted.topics["t"].partitions[1].error_code == 0
    assert leaders(cluster) == [(1, 5), (-1, 5)]
    assert hinted.partitions("t") != cluster.partitions("t")


@pytest.mark.parametrize(
    ("name", "number", "leader", "epoch"),
    [("other", 0, 2, 6), ("t", 1, 2, 6), ("t", -1, 2, 6), ("t", 0, 2, 5), ("t", 0, 9, 6)],
    ids=["unknown topic", "unknown partition", "negative partition", "no newer epoch", "unknown node"],
)
def test_a_hint_that_is_no_news_changes_nothing(name: str, number: int, leader: int, epoch: int) -> None:
    cluster = Cluster().merged(response(topic(partition(0))))
    assert cluster.with_leader(name, number, leader, epoch) is cluster


def test_brokers_are_added_or_moved() -> None:
    cluster = Cluster().merged(response(nodes=(1, 2)))
    more = cluster.with_brokers([Broker(2, "moved", 1, None), Broker(9, "new", 2, None)])
    assert {node: broker.host for node, broker in more.brokers.items()} == {1: "h1", 2: "moved", 9: "new"}
    assert cluster.with_brokers([cluster.brokers[1]]) is cluster
    assert cluster.with_brokers([]) is cluster
