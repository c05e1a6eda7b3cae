"""ListTransactions (key 66): the transactional ids that one broker coordinates."""

from __future__ import annotations

from aioproducer.protocol.schema import Int16, Int32, Int64, Message, Request, Struct, field


class TransactionState(Struct):
    """One transactional id; the state as Kafka names it, e.g. ``Ongoing`` or ``CompleteCommit``."""

    transactional_id: str
    producer_id: Int64
    transaction_state: str


class ListTransactionsResponse(Message):
    """The ids that passed the filters, and the filter's states that the broker does not know."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    unknown_state_filters: list[str] = field(default_factory=list)
    transaction_states: list[TransactionState] = field(default_factory=list)


class ListTransactionsRequest(Request[ListTransactionsResponse]):
    """Ask every broker; empty filters pass everything (KIP-664).

    ``duration_filter`` is in milliseconds since the transaction began (KIP-994), ``transactional_id_pattern`` is a
    regular expression for the whole id (KIP-1152).
    """

    API_KEY = 66
    MIN_VERSION = 0
    MAX_VERSION = 2
    FLEXIBLE_FROM = 0

    state_filters: list[str] = field(default_factory=list)
    producer_id_filters: list[Int64] = field(default_factory=list)
    duration_filter: Int64 = field(default=-1, since=1)
    transactional_id_pattern: str | None = field(default=None, since=2)
