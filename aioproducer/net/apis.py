"""What the network layer knows about each API by its key. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Api(NamedTuple):
    """Kafka's name, and the first version whose throttle time the client has to observe.

    From that version on a broker answers at once and leaves the waiting to the client; before, it delayed the answer,
    so the throttle time in it is already over. Source: KIP-219.
    """

    name: str
    throttled_by_client_since: int | None = None


_APIS = {
    0: Api("Produce", 6),
    2: Api("ListOffsets", 3),
    3: Api("Metadata", 6),
    10: Api("FindCoordinator", 2),
    17: Api("SaslHandshake"),
    18: Api("ApiVersions", 2),
    22: Api("InitProducerId", 1),
    24: Api("AddPartitionsToTxn", 1),
    25: Api("AddOffsetsToTxn", 1),
    26: Api("EndTxn", 1),
    28: Api("TxnOffsetCommit", 1),
    32: Api("DescribeConfigs", 2),
    36: Api("SaslAuthenticate"),
    65: Api("DescribeTransactions", 0),
    66: Api("ListTransactions", 0),
    71: Api("GetTelemetrySubscriptions", 0),
    72: Api("PushTelemetry", 0),
}


def name(api_key: int) -> str:
    """Kafka's name of an API, for messages."""
    known = _APIS.get(api_key)
    return known.name if known is not None else f"API {api_key}"


def throttled_by_client(api_key: int, version: int) -> bool:
    """Whether the throttle time of an answer asks the client to pause."""
    known = _APIS.get(api_key)
    since = known.throttled_by_client_since if known is not None else None
    return since is not None and version >= since
