"""InitProducerId (key 22): the producer id and epoch that make retries safe."""

from __future__ import annotations

from aioproducer.protocol.schema import Int16, Int32, Int64, Message, Request, field


class InitProducerIdResponse(Message):
    """The id and epoch to use from now on."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16 = field(default=-1)


class InitProducerIdRequest(Request[InitProducerIdResponse]):
    """Ask any broker for an id; with a transactional id, ask its coordinator, which fences older producers.

    ``producer_id`` and ``producer_epoch`` are -1 at first; the current ones request the next epoch (KIP-360).
    """

    API_KEY = 22
    MIN_VERSION = 0
    MAX_VERSION = 5
    FLEXIBLE_FROM = 2

    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(default=-1, since=3)
    producer_epoch: Int16 = field(default=-1, since=3)
