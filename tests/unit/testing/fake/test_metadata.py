"""Metadata of brokers that are behind; the rest is compared with real brokers in broker/fake/test_conformance.py."""

from __future__ import annotations

from aioproducer.error_codes import Code
from aioproducer.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aioproducer.testing.fake.metadata import fall_behind, metadata_of
from tests.unit.testing.fake.talk import model


def test_a_broker_that_is_behind_tells_what_it_knew() -> None:
    cluster = model()
    former = cluster.topic("orders")
    leader = cluster.leader_of("orders")
    fall_behind(cluster, 1)
    cluster.move_leader("orders")
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 2)
    cluster.create_topic("audit")
    present = cluster.topic("orders")

    def told(node_id: int, *topics: MetadataRequestTopic) -> MetadataResponse:
        return metadata_of(cluster, node_id, MetadataRequest(topics=list(topics) or None))

    orders, audit = MetadataRequestTopic(name="orders"), MetadataRequestTopic(name="audit")
    by_ids = [MetadataRequestTopic(name=None, topic_id=topic.topic_id) for topic in (former, present)]
    behind = told(1, orders, audit, *by_ids).topics
    assert [topic.error_code for topic in behind] == [
        0, Code.UNKNOWN_TOPIC_OR_PARTITION, 0, Code.UNKNOWN_TOPIC_ID
    ]  # fmt: skip
    assert (behind[0].topic_id, behind[0].partitions[0].leader_id) == (former.topic_id, leader)
    assert [topic.name for topic in told(1).topics] == ["orders"]
    assert [topic.error_code for topic in told(2, orders, audit, *by_ids).topics] == [0, 0, Code.UNKNOWN_TOPIC_ID, 0]
    fall_behind(cluster, 1, ids=False)
    assert [(topic.name, topic.topic_id) for topic in told(1).topics] == [("orders", bytes(16)), ("audit", bytes(16))]
    del cluster.outdated[1]
    assert told(1) == told(2)
