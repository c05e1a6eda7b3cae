"""ListOffsets (key 2): the first and the next offset of partitions, as their leaders know them."""

from __future__ import annotations

from aioproducer.protocol.schema import Int8, Int16, Int32, Int64, Message, Request, Struct, field

LATEST, EARLIEST = -1, -2
"""Values of ``timestamp``: the offset of the next record, and that of the first one still in the log."""


class ListOffsetsPartition(Struct):
    """A partition, and LATEST, EARLIEST or a timestamp in ms."""

    partition_index: Int32
    current_leader_epoch: Int32 = field(default=-1, since=4, ignorable=True)
    timestamp: Int64


class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    name: str
    partitions: list[ListOffsetsPartition]


class ListOffsetsPartitionResponse(Struct):
    """The offset of one partition."""

    partition_index: Int32
    error_code: Int16
    timestamp: Int64
    offset: Int64
    leader_epoch: Int32 = field(default=-1, since=4, ignorable=True)


class ListOffsetsTopicResponse(Struct):
    """The offsets of one topic."""

    name: str
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Message):
    """One offset per partition."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[ListOffsetsTopicResponse]


class ListOffsetsRequest(Request[ListOffsetsResponse]):
    """Ask the leader of partitions for offsets; ``isolation_level`` 1 sees only committed records."""

    API_KEY = 2
    MIN_VERSION = 2
    MAX_VERSION = 6
    FLEXIBLE_FROM = 6

    replica_id: Int32 = field(default=-1)
    isolation_level: Int8 = field(default=0)
    topics: list[ListOffsetsTopic]
