"""TxnOffsetCommit (key 28): commit a consumer group's offsets as part of a transaction."""

from __future__ import annotations

from aioproducer.protocol.schema import Int16, Int32, Int64, Message, Request, Struct, field


class TxnOffsetCommitResponsePartition(Struct):
    """The result for one partition's offset."""

    partition_index: Int32
    error_code: Int16


class TxnOffsetCommitResponseTopic(Struct):
    """The partitions of one topic."""

    name: str
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(Message):
    """The result for each partition's offset."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitRequestPartition(Struct):
    """The offset of the next record to consume; the leader epoch is that of the last consumed one, or -1."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1, since=2, ignorable=True)
    committed_metadata: str | None = field(default="")


class TxnOffsetCommitRequestTopic(Struct):
    """Offsets of one topic."""

    name: str
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(Request[TxnOffsetCommitResponse]):
    """To the group's coordinator. The member's fields fence a member that has left the group (KIP-447).

    Version 5 belongs to transactions V2, where it also adds the group to the transaction; others stop at 4.
    """

    API_KEY = 28
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_FROM = 3

    transactional_id: str
    group_id: str
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field(default=-1, since=3)
    member_id: str = field(default="", since=3)
    group_instance_id: str | None = field(default=None, since=3)
    topics: list[TxnOffsetCommitRequestTopic]
