"""EndTxn (key 26): commit or abort a transaction."""

from __future__ import annotations

from aioproducer.protocol.schema import Int16, Int32, Int64, Message, Request, field


class EndTxnResponse(Message):
    """From version 5 with the id and epoch of the next transaction; -1 means unchanged (KIP-890)."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1, since=5, ignorable=True)
    producer_epoch: Int16 = field(default=-1, since=5, ignorable=True)


class EndTxnRequest(Request[EndTxnResponse]):
    """To the transaction coordinator. Version 5 belongs to transactions V2, others stop at 4."""

    API_KEY = 26
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_FROM = 3

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool
