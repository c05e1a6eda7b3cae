"""Quotas of clients, which the brokers enforce by throttling (KIP-546)."""

from __future__ import annotations

import struct

from aioproducer.protocol.schema import Int16, Int32, Int64, Message, Request, Struct, field
from aioproducer.testing import KafkaCluster

CLIENT_ID = "client-id"
PRODUCER_BYTE_RATE = "producer_byte_rate"


class QuotaEntity(Struct):
    """The client or user that a quota applies to."""

    entity_type: str
    entity_name: str | None


class QuotaOperation(Struct):
    """One quota; the value holds the bits of a float64."""

    key: str
    value: Int64
    remove: bool


class QuotaEntry(Struct):
    """The quotas of one client."""

    entity: list[QuotaEntity]
    ops: list[QuotaOperation]


class QuotaResult(Struct):
    """The result for one entry."""

    error_code: Int16
    error_message: str | None
    entity: list[QuotaEntity]


class AlterClientQuotasResponse(Message):
    """One result per entry."""

    throttle_time_ms: Int32 = field(default=0)
    entries: list[QuotaResult]


class AlterClientQuotasRequest(Request[AlterClientQuotasResponse]):
    """Set or remove quotas."""

    API_KEY = 49
    MIN_VERSION = 1
    MAX_VERSION = 1
    FLEXIBLE_FROM = 1

    entries: list[QuotaEntry]
    validate_only: bool = field(default=False)


def limit_producer(cluster: KafkaCluster, client_id: str, bytes_a_second: float) -> None:
    """Limit the rate at which each broker accepts data from a client."""
    (bits,) = struct.unpack(">q", struct.pack(">d", bytes_a_second))
    operation = QuotaOperation(key=PRODUCER_BYTE_RATE, value=bits, remove=False)
    entry = QuotaEntry(entity=[QuotaEntity(entity_type=CLIENT_ID, entity_name=client_id)], ops=[operation])
    (result,) = cluster.ask(AlterClientQuotasRequest(entries=[entry])).entries
    assert result.error_code == 0, result.error_message
