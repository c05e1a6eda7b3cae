"""AddPartitionsToTxn (key 24): tell the coordinator which partitions a transaction writes to.

Up to version 3; later ones are for brokers, and transactions V2 do not use it. Kafka's schema has the prefix
``V3AndBelow`` on these fields.
"""

from __future__ import annotations

from aioproducer.protocol.schema import Int16, Int32, Int64, Message, Request, Struct, field


class AddPartitionsToTxnPartitionResult(Struct):
    """The result for one partition."""

    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsToTxnTopicResult(Struct):
    """The partitions of one topic."""

    name: str
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResponse(Message):
    """The result for each partition; after one failure the others have error 55, not attempted."""

    throttle_time_ms: Int32 = field(default=0)
    results_by_topic: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str
    partitions: list[Int32]


class AddPartitionsToTxnRequest(Request[AddPartitionsToTxnResponse]):
    """The partitions to add, before anything is produced to them."""

    API_KEY = 24
    MIN_VERSION = 0
    MAX_VERSION = 3
    FLEXIBLE_FROM = 3

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    topics: list[AddPartitionsToTxnTopic]
