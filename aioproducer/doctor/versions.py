"""Which Kafka release a broker's protocol matches, and which of its features a producer uses. Pure.

Brokers do not report their version. From Kafka 3.3 on, the newest supported ``metadata.version`` identifies it exactly;
before that, the newest versions of some requests do. Other implementations thus show which release they imitate.

Source: KIP-584 (features), KIP-778 (``metadata.version``); the lists of the releases.
"""

from __future__ import annotations

from collections.abc import Mapping

from aioproducer.protocol.api_versions import ApiVersionsResponse

PRODUCE, METADATA, INIT_PRODUCER_ID, END_TXN, DESCRIBE_TRANSACTIONS, TELEMETRY = 0, 3, 22, 26, 65, 71

_BY_METADATA_VERSION = (
    (34, "4.5 or newer"), (31, "4.4"), (30, "4.3"), (28, "4.2"), (26, "4.1"), (22, "4.0"), (21, "3.9"), (20, "3.8"),
    (15, "3.7"), (12, "3.6"), (9, "3.5"), (8, "3.4"), (4, "3.3"), (3, "3.2"), (2, "3.1"), (1, "3.0"),
)  # fmt: skip
"""The lowest ``metadata.version`` level of each release."""

_BY_REQUEST = (
    (66, 0, "3.0 to 3.2"), (0, 9, "2.8"), (1, 12, "2.7"), (48, 0, "2.6"), (28, 3, "2.5"), (0, 8, "2.4"), (44, 0, "2.3"),
    (43, 0, "2.2"), (0, 7, "2.1"), (0, 6, "2.0"), (1, 7, "1.1"), (0, 4, "1.0"), (0, 3, "0.11"),
)  # fmt: skip
"""(API key, its newest version, release), newest first: the first release with that version."""

Ranges = Mapping[int, tuple[int, int]]


def ranges_of(told: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    """Oldest and newest version, by API key."""
    return {each.api_key: (each.min_version, each.max_version) for each in told.api_keys}


def kafka_version(told: ApiVersionsResponse) -> str:
    """The release the broker's protocol matches, such as "3.9"; "before 0.11" if it is too old."""
    newest = {each.name: each.max_version for each in told.supported_features}.get("metadata.version", 0)
    for level, release in _BY_METADATA_VERSION:
        if newest >= level:
            return release
    ranges = ranges_of(told)
    for key, version, release in _BY_REQUEST:
        if key in ranges and ranges[key][1] >= version:
            return release
    return "before 0.11"


def features_of(told: ApiVersionsResponse) -> dict[str, bool]:
    """The features a producer uses, by name: whether each is available."""
    ranges = ranges_of(told)
    finalized = {each.name: each.max_version_level for each in told.finalized_features}

    def has(key: int, version: int = 0) -> bool:
        return key in ranges and ranges[key][1] >= version

    return {
        "idempotence": has(INIT_PRODUCER_ID),
        "transactions": has(END_TXN),
        "transactions V2 (KIP-890)": finalized.get("transaction.version", 0) >= 2 and has(END_TXN, 5),
        "zstd": has(PRODUCE, 7),
        "new leaders in answers (KIP-951)": has(PRODUCE, 10),
        "metrics push (KIP-714)": has(TELEMETRY),
    }


def is_controller(told: ApiVersionsResponse) -> bool:
    """Whether this is a KRaft controller's port: it speaks the protocol but takes no records."""
    ranges = ranges_of(told)
    return bool(ranges) and PRODUCE not in ranges and METADATA not in ranges
