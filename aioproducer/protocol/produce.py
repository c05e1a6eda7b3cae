"""Produce (key 0): record batches to the leaders of their partitions.

The producer itself writes and reads Produce in the compiled core. The core is tested against these classes, and the
broker in tests uses them.
"""

from __future__ import annotations

from aioproducer.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Request, Struct, Uuid, field


class BatchIndexAndErrorMessage(Struct):
    """Why the record at this index made its whole batch fail (KIP-467)."""

    batch_index: Int32
    batch_index_error_message: str | None = field(default=None)


class LeaderIdAndEpoch(Struct):
    """The leader as the broker knows it; -1 if it does not (KIP-951)."""

    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


class PartitionProduceResponse(Struct):
    """The result for one batch. Offsets and ``log_append_time_ms`` are -1 if the broker gives none."""

    index: Int32
    error_code: Int16 = field(default=0)
    base_offset: Int64
    log_append_time_ms: Int64 = field(default=-1)
    log_start_offset: Int64 = field(default=-1, since=5, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(default_factory=list, since=8, ignorable=True)
    error_message: str | None = field(default=None, since=8, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch, since=10, tag=0, ignorable=True)


class TopicProduceResponse(Struct):
    """The partitions of one topic, identified by name up to version 12 and by id after that."""

    name: str = field(default="", until=12, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


class NodeEndpoint(Struct):
    """The address of a leader named in ``current_leader``."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = field(default=None)


class ProduceResponse(Message):
    """The result for each batch of a request. With ``acks=0`` there is no answer at all."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list, since=10, tag=0, ignorable=True)


class PartitionProduceData(Struct):
    """One record batch for one partition."""

    index: Int32
    records: bytes | None = field(hidden=True)


class TopicProduceData(Struct):
    """The partitions of one topic, which is named up to version 12 and goes by its id after that."""

    name: str = field(default="", until=12, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
    partition_data: list[PartitionProduceData]


class ProduceRequest(Request[ProduceResponse]):
    """Batches for one broker, one per partition. ``timeout_ms`` is how long it may wait for the in-sync replicas."""

    API_KEY = 0
    MIN_VERSION = 3
    MAX_VERSION = 13
    FLEXIBLE_FROM = 9

    transactional_id: str | None = field(default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]
