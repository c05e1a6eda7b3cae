"""Metadata (key 3): the brokers, and the partitions of topics with their leaders."""

from __future__ import annotations

from aioproducer.protocol.schema import ZERO_UUID, Int16, Int32, Message, Request, Struct, Uuid, field

UNKNOWN_OPERATIONS = -(2**31)
"""The broker's value if the authorized operations were not requested."""


class MetadataResponseBroker(Struct):
    """One broker; ``rack`` is None if none is configured."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = field(default=None)


class MetadataResponsePartition(Struct):
    """One partition. ``leader_id`` and ``leader_epoch`` are -1 while there is no leader; the lists hold node ids."""

    error_code: Int16 = field(default=0)
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1, since=7, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field(default_factory=list, since=5, ignorable=True)


class MetadataResponseTopic(Struct):
    """One topic. ``name`` is None only if the request used an id that the broker does not know."""

    error_code: Int16 = field(default=0)
    name: str | None = field(nullable_since=12)
    topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
    is_internal: bool = field(default=False)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field(default=UNKNOWN_OPERATIONS, since=8, ignorable=True)


class MetadataResponse(Message):
    """The cluster as one broker sees it; ``error_code`` 129 asks the client to bootstrap again (KIP-1102)."""

    throttle_time_ms: Int32 = field(default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None = field(default=None)
    controller_id: Int32 = field(default=-1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field(default=UNKNOWN_OPERATIONS, since=8, until=10, ignorable=True)
    error_code: Int16 = field(default=0, since=13, ignorable=True)


class MetadataRequestTopic(Struct):
    """A topic by name, or from version 12 by id with ``name`` None."""

    topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
    name: str | None = field(nullable_since=10)


class MetadataRequest(Request[MetadataResponse]):
    """Ask for topics: None means all, an empty list only the brokers."""

    API_KEY = 3
    MIN_VERSION = 4
    MAX_VERSION = 13
    FLEXIBLE_FROM = 9

    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool = field(default=True)
    include_cluster_authorized_operations: bool = field(default=False, since=8, until=10)
    include_topic_authorized_operations: bool = field(default=False, since=8)
