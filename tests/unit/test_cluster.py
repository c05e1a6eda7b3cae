"""What is known about the cluster, and how metadata answers and leader hints update it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from aioproducer.cluster import (
    OUTDATED_BELIEVED,
    STEP,
    Broker,
    Cluster,
    ClusterChanges,
    ClusterTopic,
    LeaderHint,
    PartitionState,
)
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


def returned_by(steps: Generator[None, None, ClusterChanges]) -> ClusterChanges:
    """What a generator of changes returns after its pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            changes: ClusterChanges = end.value
            return changes


def steps(cluster: Cluster, answer: MetadataResponse, **how: Any) -> Generator[None, None, ClusterChanges]:
    """The steps of working an answer in, by default one of node 1."""
    return cluster.changes_by(answer, **{"node_id": 1, "now_ms": 0, **how})


def merge(cluster: Cluster, answer: MetadataResponse, **how: Any) -> ClusterChanges:
    """Work an answer in; returns what it changed."""
    changes = returned_by(steps(cluster, answer, **how))
    cluster.adopt(changes)
    return changes


def cluster_of(*topics: MetadataResponseTopic, nodes: tuple[int, ...] = (1, 2, 3)) -> Cluster:
    cluster = Cluster()
    merge(cluster, response(*topics, nodes=nodes))
    return cluster


def leaders(cluster: Cluster, name: str = "t") -> list[tuple[int, int]]:
    return [(each.leader, each.leader_epoch) for each in cluster.topics[name].partitions]


def test_an_empty_cluster_knows_nothing() -> None:
    cluster = Cluster()
    assert cluster.partitions("t") is None
    assert cluster.leader("t", 0) == -1
    assert not cluster.has_unknown_leader("t")
    assert not cluster.brokers


def test_an_answer_becomes_brokers_and_partitions_by_number() -> None:
    cluster = cluster_of(topic(partition(1, leader=-1), partition(0), partition(2, leader=2)))
    assert cluster.brokers[3] == Broker(3, "h3", 9092, "r3")
    assert cluster.partitions("t") == (
        PartitionInfo("t", 0, 1, (1, 2, 3), (1, 2), (3,)),
        PartitionInfo("t", 1, None, (1, 2, 3), (1, 2), (3,)),
        PartitionInfo("t", 2, 2, (1, 2, 3), (1, 2), (3,)),
    )
    assert [cluster.leader("t", number) for number in (-1, 0, 1, 2, 3)] == [-1, 1, -1, 2, -1]


def test_nothing_but_changes_changes_it() -> None:
    cluster = cluster_of(topic(partition(0)))
    with pytest.raises(TypeError):
        cluster.topics["other"] = cluster.topics["t"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        cluster.topics["t"].error_code = 7  # type: ignore[misc]
    list(steps(cluster, response(topic(partition(0, leader=2, epoch=6)), nodes=(2,))))
    cluster.changes_by_hints([LeaderHint("t", 0, 2, 6)], [Broker(4, "h4", 9092)])
    assert leaders(cluster) == [(1, 5)]
    assert list(cluster.brokers) == [1, 2, 3]


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_address_of_ipv6_may_have_brackets(host: str) -> None:
    """Kafka leaves them out, but Java's client and librdkafka take them from brokers that do not."""
    assert Broker.told(1, host, 9092, None).host == "::1"


def test_a_host_name_that_can_not_be_one_writes_no_line_of_its_own_into_a_log() -> None:
    told = MetadataResponseBroker(node_id=1, host="a\nERROR forged " + "x" * 400, port=9092, rack=None)
    cluster = Cluster()
    merge(cluster, MetadataResponse(brokers=[told], topics=[]))
    host = cluster.brokers[1].host
    assert host.startswith("a ERROR forged x")
    assert host.isprintable()
    assert len(host) < 260


def test_a_partial_answer_leaves_other_topics_and_replaces_the_brokers() -> None:
    cluster = cluster_of(topic(partition(0)), topic(partition(0), name="u", topic_id=ID_B))
    known = cluster.topics["t"]
    changes = merge(cluster, response(topic(partition(0, leader=2, epoch=6), name="u", topic_id=ID_B), nodes=(2,)))
    assert changes.topics.keys() == {"u"}
    assert cluster.topics["t"] is known
    assert leaders(cluster, "u") == [(2, 6)]
    assert list(cluster.brokers) == [2]


def test_a_full_answer_forgets_what_is_not_in_use() -> None:
    cluster = cluster_of(topic(partition(0)), topic(partition(0), name="u"))
    known = cluster.topics["u"]
    answer = response(topic(partition(0), name="u"), topic(partition(0), name="late"))
    assert merge(cluster, answer, keep=["u"]).topics == {"t": None}
    assert list(cluster.topics) == ["u"]
    assert cluster.topics["u"] is known


def test_an_answer_without_news_changes_no_topic() -> None:
    cluster = cluster_of(topic(partition(0)), topic(error=3, name="u"))
    assert merge(cluster, response(topic(partition(0)), topic(error=3, name="u"))).topics == {}


def test_an_older_leader_epoch_keeps_what_is_known() -> None:
    """A broker with old metadata names a former leader."""
    cluster = cluster_of(topic(partition(0, leader=2, epoch=6), partition(1, leader=1, epoch=5)))
    merge(cluster, response(topic(partition(0, leader=1, epoch=5), partition(1, leader=3, epoch=6))))
    assert leaders(cluster) == [(2, 6), (3, 6)]


@pytest.mark.parametrize("topic_id", [ZERO_UUID, ID_A])
def test_an_older_leader_epoch_is_believed_if_no_answer_has_a_newer_one(topic_id: bytes) -> None:
    """Without topic ids nothing else shows that the topic was recreated, with epochs from 0 on."""
    cluster = cluster_of(topic(partition(0, leader=2, epoch=6), partition(1, leader=1, epoch=0), topic_id=topic_id))
    recreated = topic(partition(0, leader=1, epoch=0), partition(1, leader=3, epoch=1), topic_id=topic_id)
    for _ in range(OUTDATED_BELIEVED - 1):
        merge(cluster, response(recreated))
        assert leaders(cluster) == [(2, 6), (3, 1)]
    merge(cluster, response(recreated))
    assert leaders(cluster) == [(1, 0), (3, 1)]
    assert not merge(cluster, response(recreated)).topics


def test_older_leader_epochs_are_not_believed_with_good_answers_in_between() -> None:
    """Several brokers are asked, one of which is behind."""
    good = topic(partition(0, leader=2, epoch=6))
    cluster = cluster_of(good)
    for _ in range(2):
        for _ in range(OUTDATED_BELIEVED - 1):
            merge(cluster, response(topic(partition(0, leader=1, epoch=5))))
        merge(cluster, response(good))
    assert leaders(cluster) == [(2, 6)]


def test_an_equal_leader_epoch_updates_the_replicas() -> None:
    cluster = cluster_of(topic(partition(0)))
    answer = partition(0)
    answer.isr_nodes = [1]
    merge(cluster, response(topic(answer)))
    assert cluster.topics["t"].partitions[0].isr == (1,)


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_topic_made_again_starts_over(epoch: int) -> None:
    cluster = cluster_of(topic(partition(0, epoch=6), partition(1, epoch=6)))
    merge(cluster, response(topic(partition(0, leader=3, epoch=epoch), topic_id=ID_B)))
    assert leaders(cluster) == [(3, epoch)]
    assert cluster.topics["t"].topic_id == ID_B


@pytest.mark.parametrize(("old", "new"), [(ZERO_UUID, ID_A), (ID_A, ZERO_UUID)])
def test_a_topic_id_that_only_some_brokers_tell_is_no_new_topic(old: bytes, new: bytes) -> None:
    cluster = cluster_of(topic(partition(0, leader=2, epoch=6), topic_id=old))
    merge(cluster, response(topic(partition(0, leader=1, epoch=5), topic_id=new)))
    assert leaders(cluster) == [(2, 6)]


def test_unreliable_epochs_are_not_compared() -> None:
    cluster = cluster_of(topic(partition(0, leader=2, epoch=6)))
    merge(cluster, response(topic(partition(0, leader=1, epoch=5))), reliable_epochs=False)
    assert leaders(cluster) == [(1, -1)]


def test_a_retriable_topic_error_keeps_the_partitions_until_another_broker_has_it_too() -> None:
    """One that has just started may know nothing of the topic, while the leaders take records."""
    cluster = cluster_of(topic(partition(0)))
    known = cluster.partitions("t")
    assert merge(cluster, response(topic(error=3))).topics.keys() == {"t"}
    for error, changed in (3, False), (3, False), (5, True):
        assert bool(merge(cluster, response(topic(error=error)), now_ms=4_999).topics) is changed
        assert cluster.partitions("t") == known
        assert cluster.topics["t"].error_code == error
    merge(cluster, response(topic(error=3)), node_id=2)
    assert cluster.partitions("t") is None


def test_a_retriable_topic_error_is_believed_after_a_while() -> None:
    """There may be no other broker."""
    cluster = cluster_of(topic(partition(0)))
    merge(cluster, response(topic(error=3)), now_ms=100_000)
    merge(cluster, response(topic(error=3)), now_ms=104_999)
    assert cluster.partitions("t")
    merge(cluster, response(topic(error=3)), now_ms=105_000)
    assert cluster.partitions("t") is None


@pytest.mark.parametrize(("first", "second"), [(-1, 1), (1, -1), (-1, -2)])
def test_a_bootstrap_server_may_be_any_broker(first: int, second: int) -> None:
    cluster = cluster_of(topic(partition(0)))
    merge(cluster, response(topic(error=3)), node_id=first)
    merge(cluster, response(topic(error=3)), node_id=second)
    assert cluster.partitions("t")


def test_a_retriable_topic_error_is_over_with_a_good_answer() -> None:
    cluster = cluster_of(topic(partition(0)))
    for node_id, answer in (1, topic(error=3)), (1, topic(partition(0))), (2, topic(error=3)):
        merge(cluster, response(answer), node_id=node_id)
        assert cluster.topics["t"].error_code == answer.error_code
        assert cluster.partitions("t")


@pytest.mark.parametrize("error", [17, 29])
def test_a_final_topic_error_takes_the_partitions_away(error: int) -> None:
    cluster = cluster_of(topic(partition(0)))
    merge(cluster, response(topic(error=error)))
    assert cluster.partitions("t") is None
    assert cluster.topics["t"].error_code == error


def test_an_error_for_an_unknown_topic_is_noted() -> None:
    cluster = cluster_of(topic(error=3, topic_id=ZERO_UUID))
    assert cluster.partitions("t") is None
    assert cluster.topics["t"].error_code == 3


def test_a_partition_without_a_leader_says_so() -> None:
    cluster = cluster_of(topic(partition(0, leader=-1, error=5)))
    assert cluster.topics["t"].partitions[0].error_code == 5
    assert cluster.leader("t", 0) == -1


def test_a_leader_that_is_not_among_the_brokers_is_unknown() -> None:
    """One of the leaders is enough; a partition without one has none that could be unknown."""
    without = topic(partition(0), partition(1, leader=-1), name="without")
    cluster = cluster_of(topic(partition(0), partition(1, leader=9), name="moved"), without)
    assert cluster.has_unknown_leader("moved")
    assert not cluster.has_unknown_leader("without")


def test_a_broker_may_have_the_number_zero() -> None:
    cluster = cluster_of(topic(partition(0, leader=0), partition(1, leader=1)), nodes=(0, 1))
    assert [info.leader for info in cluster.partitions("t") or ()] == [0, 1]
    assert [cluster.leader("t", number) for number in (0, 1)] == [0, 1]
    assert not cluster.has_unknown_leader("t")
    cluster.adopt(cluster.changes_by_hints([LeaderHint("t", 1, 0, 6)]))
    assert leaders(cluster) == [(0, 5), (0, 6)]


@pytest.mark.parametrize(("first", "second"), [(0, 1), (1, 0)])
def test_broker_zero_has_a_word_about_a_topic(first: int, second: int) -> None:
    cluster = cluster_of(topic(partition(0)))
    for node_id in (first, second):
        merge(cluster, response(topic(error=3)), node_id=node_id)
    assert cluster.partitions("t") is None


def test_more_partitions_are_seen_and_fewer_only_of_another_topic() -> None:
    cluster = cluster_of(topic(partition(0), partition(1)))
    merge(cluster, response(topic(partition(0), partition(1), partition(2))))
    assert len(cluster.topics["t"].partitions) == 3
    assert merge(cluster, response(topic(partition(0), partition(1)))).topics == {}
    without_ids = cluster_of(topic(partition(0), partition(1), topic_id=ZERO_UUID))
    merge(without_ids, response(topic(partition(0), topic_id=ZERO_UUID)))
    assert len(without_ids.topics["t"].partitions) == 1


def test_partitions_left_out_stand_without_a_leader() -> None:
    cluster = cluster_of(topic(partition(2)))
    assert leaders(cluster) == [(-1, -1), (-1, -1), (1, 5)]
    assert cluster.topics["t"].partitions[1] == PartitionState(1, -1, -1, (), (), (), 0)


def test_an_answer_without_partitions_leaves_those_of_the_same_topic() -> None:
    assert leaders(cluster_of(topic())) == []
    cluster = cluster_of(topic(partition(0)))
    merge(cluster, response(topic()))
    assert leaders(cluster) == [(1, 5)]
    merge(cluster, response(topic(topic_id=ID_B)))
    assert leaders(cluster) == []


def test_the_first_of_two_answers_about_one_partition_counts() -> None:
    assert leaders(cluster_of(topic(partition(0, leader=2), partition(0, leader=3)))) == [(2, 5)]


@pytest.mark.parametrize("number", [-1, 2**31 - 1])
def test_absurd_partition_numbers_are_refused(number: int) -> None:
    with pytest.raises(ProtocolError, match="partitions"):
        cluster_of(topic(partition(0), partition(number)))


def test_topics_without_a_name_are_skipped() -> None:
    assert not cluster_of(topic(partition(0), name=None), topic(partition(0), name="")).topics


def test_many_small_topics_are_merged_in_steps() -> None:
    answer = response(*(topic(partition(0), name=f"t{number}") for number in range(STEP)))
    assert len(list(steps(Cluster(), answer))) == 2


def test_a_large_answer_is_merged_in_steps() -> None:
    answer = response(topic(*(partition(number) for number in range(STEP * 3 + 1))))
    cluster = Cluster()
    assert len(list(steps(cluster, answer))) == 3
    merge(cluster, answer)
    assert len(cluster.topics["t"].partitions) == STEP * 3 + 1


def test_changes_in_parts() -> None:
    """No part holds the loop for long; together they are all changes, and without topics there are still brokers."""
    cluster = cluster_of(*(topic(partition(0), name=f"old{number}") for number in range(STEP + 1)))
    answer = response(
        topic(*(partition(number) for number in range(STEP * 2)), name="large"),
        *(topic(partition(0), name=f"new{number}") for number in range(STEP)),
    )
    changes = returned_by(steps(cluster, answer, keep=["large", *(f"new{number}" for number in range(STEP))]))
    parts = list(changes.parts())
    assert [len(part.topics) for part in parts] == [STEP, 2, STEP // 2, STEP // 2]
    assert {name: topic for part in parts for name, topic in part.topics.items()} == changes.topics
    assert all(part.brokers is changes.brokers for part in parts)
    assert list(ClusterChanges(changes.brokers).parts()) == [ClusterChanges(changes.brokers)]


# --- hints ------------------------------------------------------------------------------------------------------------


def test_a_topic_that_is_used_again_is_not_forgotten() -> None:
    cluster = cluster_of(*(topic(partition(0), name=name) for name in ("a", "b", "c")))
    changes = returned_by(steps(cluster, response(topic(partition(0, epoch=6), name="a")), keep=["a"]))
    assert changes.keeping(["a"]) is changes
    cluster.adopt(changes.keeping(["b"]))
    assert set(cluster.topics) == {"a", "b"}
    assert leaders(cluster, "a") == [(1, 6)]


def test_newer_leaders_are_taken_over() -> None:
    cluster = cluster_of(topic(partition(0), partition(1, error=5, leader=-1)), topic(partition(0), name="u"))
    known = cluster.partitions("t")
    changes = cluster.changes_by_hints([LeaderHint("t", 1, 2, 6), LeaderHint("u", 0, 3, 7), LeaderHint("t", 0, 3, 8)])
    assert changes.topics.keys() == {"t", "u"}
    cluster.adopt(changes)
    assert (leaders(cluster), leaders(cluster, "u")) == ([(3, 8), (2, 6)], [(3, 7)])
    assert cluster.topics["t"].partitions[1].error_code == 0
    assert cluster.partitions("t") != known


def test_the_newest_of_several_hints_about_a_partition_counts() -> None:
    cluster = cluster_of(topic(partition(0)))
    cluster.adopt(cluster.changes_by_hints([LeaderHint("t", 0, 2, 7), LeaderHint("t", 0, 3, 6)]))
    assert leaders(cluster) == [(2, 7)]


@pytest.mark.parametrize(
    "hint",
    [("other", 0, 2, 6), ("t", 1, 2, 6), ("t", -1, 2, 6), ("t", 0, 2, 5), ("t", 0, 9, 6)],
    ids=["unknown topic", "unknown partition", "negative partition", "no newer epoch", "unknown node"],
)
def test_a_hint_that_is_no_news_changes_nothing(hint: tuple[str, int, int, int]) -> None:
    cluster = cluster_of(topic(partition(0)))
    changes = cluster.changes_by_hints([LeaderHint(*hint)])
    assert changes.topics == {}
    assert changes.brokers is cluster.brokers


def test_brokers_of_hints_are_added_or_moved() -> None:
    cluster = cluster_of(nodes=(1, 2))
    brokers = cluster.changes_by_hints([], [Broker(2, "moved", 1, None), Broker(9, "new", 2, None)]).brokers
    assert {node: broker.host for node, broker in brokers.items()} == {1: "h1", 2: "moved", 9: "new"}
    assert cluster.changes_by_hints([], [cluster.brokers[1]]).brokers is cluster.brokers


def test_a_hint_outlives_an_older_answer_that_is_worked_in_meanwhile() -> None:
    states = [partition(number) for number in range(1, STEP)]
    cluster = cluster_of(topic(partition(0), *states), topic(partition(0), name="u"))
    left = steps(cluster, response(topic(partition(0, epoch=6), *states), topic(partition(0), name="u")))
    next(left)  # the first topic has been compared with what was known
    hints = [LeaderHint("t", 1, 2, 7), LeaderHint("u", 0, 3, 7)]
    cluster.adopt(cluster.changes_by_hints(hints))
    cluster.adopt(returned_by(left).with_leaders(hints))
    assert leaders(cluster)[:3] == [(1, 6), (2, 7), (1, 5)]
    assert leaders(cluster, "u") == [(3, 7)]


# --- news -------------------------------------------------------------------------------------------------------------


def in_one_go(steps: Generator[None, None, bool]) -> tuple[bool, int]:
    """The result of a computation in steps, and the number of its pauses."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


@pytest.mark.parametrize(("topics", "partitions"), [(1, 20_000), (2_000, 10), (20_000, 0)])
def test_news_are_looked_for_in_steps(topics: int, partitions: int) -> None:
    """If an answer differs in nothing but the replicas in sync, each partition has to be compared."""
    before, after = {}, {}
    for name in (f"topic-{number}" for number in range(topics)):
        states = tuple(PartitionState(number, 1, 5, (1, 2), (1, 2), (), 0) for number in range(partitions))
        before[name] = ClusterTopic(name, partitions=states)
        after[name] = ClusterTopic(name, partitions=tuple(state._replace(isr=(1,)) for state in states))
    cluster = Cluster()
    cluster.adopt(ClusterChanges({}, before))
    is_news, pauses = in_one_go(ClusterChanges({}, after).has_news(cluster))
    assert not is_news
    assert pauses > 60
    after[name] = replace(after[name], topic_id=b"j" * 16)
    is_news, _ = in_one_go(ClusterChanges({}, after).has_news(cluster))
    assert is_news


@pytest.mark.parametrize(
    ("leader", "epoch", "is_news"), [(1, 5, False), (2, 5, True), (2, 4, True), (1, 6, True), (1, 4, False)]
)
def test_a_new_leader_or_leader_epoch_is_news(leader: int, epoch: int, is_news: bool) -> None:
    states = tuple(PartitionState(number, 1, 5, (1, 2), (1, 2), (), 0) for number in range(3))
    cluster = Cluster()
    cluster.adopt(ClusterChanges({}, {"orders": ClusterTopic("orders", partitions=states)}))
    last = states[-1]._replace(leader=leader, leader_epoch=epoch)
    answer = {"orders": ClusterTopic("orders", partitions=(*states[:-1], last))}
    assert in_one_go(ClusterChanges({}, answer).has_news(cluster))[0] is is_news
