"""DescribeTransactions (key 65): the state of transactional ids at their coordinator."""

from __future__ import annotations

from aioproducer.protocol.schema import Int16, Int32, Int64, Message, Request, Struct, field


class TopicData(Struct):
    """Partitions of one topic."""

    topic: str
    partitions: list[Int32]


class TransactionState(Struct):
    """One transactional id; the state as Kafka names it, e.g. ``Ongoing``. The start is -1 if none is open."""

    error_code: Int16 = field(default=0)
    transactional_id: str
    transaction_state: str = field(default="")
    transaction_timeout_ms: Int32 = field(default=0)
    transaction_start_time_ms: Int64 = field(default=-1)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16 = field(default=-1)
    topics: list[TopicData] = field(default_factory=list)


class DescribeTransactionsResponse(Message):
    """One TransactionState per requested id."""

    throttle_time_ms: Int32 = field(default=0)
    transaction_states: list[TransactionState] = field(default_factory=list)


class DescribeTransactionsRequest(Request[DescribeTransactionsResponse]):
    """To the coordinator of the ids (KIP-664)."""

    API_KEY = 65
    MIN_VERSION = 0
    MAX_VERSION = 0
    FLEXIBLE_FROM = 0

    transactional_ids: list[str]
