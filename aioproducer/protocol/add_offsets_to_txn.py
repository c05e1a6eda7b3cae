"""AddOffsetsToTxn (key 25): tell the coordinator that a transaction commits offsets of a consumer group."""

from __future__ import annotations

from aioproducer.protocol.schema import Int16, Int32, Int64, Message, Request, field


class AddOffsetsToTxnResponse(Message):
    """Whether the group is part of the transaction now."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class AddOffsetsToTxnRequest(Request[AddOffsetsToTxnResponse]):
    """To the transaction coordinator, before TxnOffsetCommit; not used by transactions V2."""

    API_KEY = 25
    MIN_VERSION = 0
    MAX_VERSION = 4
    FLEXIBLE_FROM = 3

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str
