"""The API versions of several Kafka versions' brokers, for what producers use. Pure.

The ranges of 4.3 and 3.9 are those of real brokers; the older ones are from the schemas of those releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aioproducer.testing.fake.producer_state import REMEMBERED_BATCHES, UnknownProducer

TRANSACTION_VERSION = "transaction.version"

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
API_VERSIONS, INIT_PRODUCER_ID, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 18, 22, 24, 25, 26, 28
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66

Ranges = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class KafkaVersion:
    """One release line.

    Args:
        ranges: the oldest and newest version of each API, by its key. Produce below 3 is listed, because clients look
            for it, but refused. Fetch and ListOffsets are listed for the same reason, although the model does not
            answer them.
        transaction_version: the newest level of the feature ``transaction.version`` (KIP-890); 0 if there is none.
        timestamp_after_ms: the default of ``message.timestamp.after.max.ms``.
    """

    name: str
    ranges: Ranges
    unknown_producer: UnknownProducer = UnknownProducer.ACCEPT
    remembered_batches: int = REMEMBERED_BATCHES
    """How many batches of a producer a partition remembers, to recognise them when they are repeated."""
    transaction_version: int = 0
    features: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """(oldest, newest, finalized) level of each other feature."""
    timestamp_after_ms: int = 2**63 - 1
    verifies_transactions: bool = False
    """Whether a leader asks the coordinator before it writes a transaction's records (KIP-890)."""
    strict_min_isr: bool = False
    """Whether nothing is committed while fewer than ``min.insync.replicas`` are in sync (KIP-966)."""


_VERSIONS = (
    KafkaVersion(
        "4.3",
        {
            PRODUCE: (0, 13), FETCH: (4, 18), LIST_OFFSETS: (1, 11), METADATA: (0, 13), FIND_COORDINATOR: (0, 6),
            API_VERSIONS: (0, 4), INIT_PRODUCER_ID: (0, 5), ADD_PARTITIONS: (0, 5), ADD_OFFSETS: (0, 4),
            END_TXN: (0, 5), TXN_OFFSET_COMMIT: (0, 5), DESCRIBE_TRANSACTIONS: (0, 0), LIST_TRANSACTIONS: (0, 2),
        },
        transaction_version=2,
        features={"metadata.version": (7, 30, 30)},
        timestamp_after_ms=3_600_000,
        verifies_transactions=True,
        strict_min_isr=True,
    ),
    KafkaVersion(
        "3.9",
        {
            PRODUCE: (0, 11), FETCH: (0, 17), LIST_OFFSETS: (0, 9), METADATA: (0, 12), FIND_COORDINATOR: (0, 6),
            API_VERSIONS: (0, 4), INIT_PRODUCER_ID: (0, 5), ADD_PARTITIONS: (0, 5), ADD_OFFSETS: (0, 4),
            END_TXN: (0, 4), TXN_OFFSET_COMMIT: (0, 4), DESCRIBE_TRANSACTIONS: (0, 0), LIST_TRANSACTIONS: (0, 1),
        },
        features={"metadata.version": (1, 21, 21)},
        verifies_transactions=True,
        strict_min_isr=True,
    ),
    KafkaVersion(
        "2.8",
        {
            PRODUCE: (0, 9), FETCH: (0, 12), LIST_OFFSETS: (0, 6), METADATA: (0, 11), FIND_COORDINATOR: (0, 3),
            API_VERSIONS: (0, 3), INIT_PRODUCER_ID: (0, 4), ADD_PARTITIONS: (0, 3), ADD_OFFSETS: (0, 3),
            END_TXN: (0, 3), TXN_OFFSET_COMMIT: (0, 3),
        },
    ),
    KafkaVersion(
        "2.1",
        {
            PRODUCE: (0, 7), FETCH: (0, 10), LIST_OFFSETS: (0, 4), METADATA: (0, 7), FIND_COORDINATOR: (0, 2),
            API_VERSIONS: (0, 2), INIT_PRODUCER_ID: (0, 1), ADD_PARTITIONS: (0, 1), ADD_OFFSETS: (0, 1),
            END_TXN: (0, 1), TXN_OFFSET_COMMIT: (0, 2),
        },
        unknown_producer=UnknownProducer.UNKNOWN_PRODUCER_ID,
    ),
    KafkaVersion(
        "0.11",
        {
            PRODUCE: (0, 3), FETCH: (0, 5), LIST_OFFSETS: (0, 2), METADATA: (0, 4), FIND_COORDINATOR: (0, 1),
            API_VERSIONS: (0, 1), INIT_PRODUCER_ID: (0, 0), ADD_PARTITIONS: (0, 0), ADD_OFFSETS: (0, 0),
            END_TXN: (0, 0), TXN_OFFSET_COMMIT: (0, 0),
        },
        unknown_producer=UnknownProducer.OUT_OF_ORDER,
        remembered_batches=1,
    ),
)  # fmt: skip

NEWEST = _VERSIONS[0].name
VERSIONS: Mapping[str, KafkaVersion] = {version.name: version for version in _VERSIONS}


def kafka_version(name: str) -> KafkaVersion:
    """The release line with this name.

    Raises:
        ValueError: the model has no such line.
    """
    if name not in VERSIONS:
        raise ValueError(f"version={name!r}: the fake cluster speaks like Kafka {', '.join(VERSIONS)}")
    return VERSIONS[name]
