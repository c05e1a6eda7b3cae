"""Metadata requests, answered alike by any broker that is not behind. Pure."""

from __future__ import annotations

from dataclasses import replace

from aioproducer.error_codes import Code
from aioproducer.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aioproducer.protocol.schema import ZERO_UUID
from aioproducer.testing.fake.model import ClusterModel
from aioproducer.testing.fake.partition import NO_LEADER, Partition
from aioproducer.testing.fake.topology import Topic, is_topic_name


def fall_behind(cluster: ClusterModel, node_id: int, *, ids: bool = True) -> None:
    """Let a broker go on telling the present metadata, like one that is cut off from the controller.

    Args:
        ids: whether it knows the ids of topics, which they get when a cluster is upgraded to Kafka 2.8.
    """
    behind = cluster.outdated[node_id] = metadata(cluster, MetadataRequest(topics=None))
    if not ids:
        behind.topics = [replace(topic, topic_id=ZERO_UUID) for topic in behind.topics]


def metadata_of(cluster: ClusterModel, node_id: int, request: MetadataRequest) -> MetadataResponse:
    """A broker's answer, which is that of any other, unless it is behind."""
    answer = metadata(cluster, request)
    behind = cluster.outdated.get(node_id)
    if behind is None:
        return answer
    if request.topics is None:
        return behind
    topics = [_known_to(behind, one.name, one.topic_id) for one in request.topics]
    return replace(behind, topics=topics)


def _known_to(behind: MetadataResponse, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    for topic in behind.topics:
        if topic_id == topic.topic_id if name is None else name == topic.name:
            return topic
    code = Code.UNKNOWN_TOPIC_ID if name is None else Code.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, partitions=[])


def metadata(cluster: ClusterModel, request: MetadataRequest) -> MetadataResponse:
    """The answer. A missing topic is created if both sides allow it, but shown only from the next request on."""
    live = [broker for broker in cluster.brokers.values() if broker.alive]
    if request.topics is None:
        topics = [_shown(cluster, topic) for topic in cluster.topics.values()]
    else:
        topics = [_asked_for(cluster, one, create=request.allow_auto_topic_creation) for one in request.topics]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack) for one in live
        ],
        cluster_id=cluster.cluster_id,
        controller_id=live[0].node_id if live else -1,
        topics=topics,
    )


def _asked_for(cluster: ClusterModel, asked: MetadataRequestTopic, *, create: bool) -> MetadataResponseTopic:
    if asked.name is None:
        topic = cluster.topic_by_id(asked.topic_id)
        if topic is None:
            code = Code.UNKNOWN_TOPIC_ID
            return MetadataResponseTopic(error_code=code, name=None, topic_id=asked.topic_id, partitions=[])
        return _shown(cluster, topic)
    if (topic := cluster.topics.get(asked.name)) is not None:
        return _shown(cluster, topic)
    if not is_topic_name(asked.name):
        code = Code.INVALID_TOPIC_EXCEPTION
    else:
        code = Code.UNKNOWN_TOPIC_OR_PARTITION
        if create and cluster.auto_create_topics and cluster.colliding(asked.name) is None:
            cluster.create_topic(asked.name)
    return MetadataResponseTopic(error_code=code, name=asked.name, partitions=[])


def _shown(cluster: ClusterModel, topic: Topic) -> MetadataResponseTopic:
    partitions = [_partition(cluster, one) for one in topic.partitions]
    return MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _partition(cluster: ClusterModel, partition: Partition) -> MetadataResponsePartition:
    led = partition.leader != NO_LEADER and cluster.brokers[partition.leader].alive
    return MetadataResponsePartition(
        error_code=0 if led else Code.LEADER_NOT_AVAILABLE,
        partition_index=partition.index,
        leader_id=partition.leader if led else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=[one for one in partition.replicas if not cluster.brokers[one].alive],
    )
