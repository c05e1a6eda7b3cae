"""The Kafka release that a broker's API versions correspond to."""

from __future__ import annotations

import pytest

from aioproducer.doctor import versions
from aioproducer.protocol.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)


def told(ranges: dict[int, int], metadata_version: int = 0, transaction_version: int = 0) -> ApiVersionsResponse:
    """The answer of a broker that supports version 0 up to the given one of each API."""
    supported = [SupportedFeatureKey(name="metadata.version", min_version=1, max_version=metadata_version)]
    finalized = [
        FinalizedFeatureKey(name="transaction.version", min_version_level=0, max_version_level=transaction_version)
    ]
    return ApiVersionsResponse(
        api_keys=[ApiVersion(api_key=key, min_version=0, max_version=newest) for key, newest in ranges.items()],
        supported_features=supported if metadata_version else [],
        finalized_features=finalized if transaction_version else [],
    )


@pytest.mark.parametrize(
    ("level", "release"),
    [
        (99, "4.5 or newer"),
        (33, "4.4"),
        (30, "4.3"),
        (29, "4.2"),
        (25, "4.0"),
        (21, "3.9"),
        (19, "3.7"),
        (7, "3.3"),
        (1, "3.0"),
    ],
)
def test_the_newest_metadata_version_tells_the_release(level: int, release: str) -> None:
    assert versions.kafka_version(told({0: 11}, level)) == release


@pytest.mark.parametrize(
    ("ranges", "release"),
    [
        ({0: 9, 66: 0}, "3.0 to 3.2"),
        ({0: 9, 1: 12}, "2.8"),
        ({0: 8, 1: 12}, "2.7"),
        ({0: 7, 44: 0}, "2.3"),
        ({0: 7}, "2.1"),
        ({0: 3}, "0.11"),
        ({0: 2}, "before 0.11"),
        ({}, "before 0.11"),
    ],
)
def test_requests_tell_older_releases(ranges: dict[int, int], release: str) -> None:
    assert versions.kafka_version(told(ranges)) == release


def test_features_follow_the_brokers_apis_and_the_finalized_levels() -> None:
    new = versions.features_of(told({0: 13, 22: 5, 26: 5, 71: 0}, 30, 2))
    assert all(new.values())
    kept_back = versions.features_of(told({0: 13, 22: 5, 26: 5, 71: 0}, 30, 1))
    assert [name for name, there in kept_back.items() if not there] == ["transactions V2 (KIP-890)"]
    assert not any(versions.features_of(told({0: 3})).values())


def test_a_controller_takes_neither_records_nor_metadata_requests() -> None:
    assert versions.is_controller(told({18: 4, 52: 1}))
    assert not versions.is_controller(told({0: 13, 3: 13}))
    assert not versions.is_controller(told({}))
