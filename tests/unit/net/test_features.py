"""The cluster's finalized features, as reported by several brokers."""

from __future__ import annotations

from aioproducer.net.features import FinalizedFeatures
from aioproducer.protocol.api_versions import ApiVersionsResponse, FinalizedFeatureKey


def told(epoch: int, **levels: int) -> ApiVersionsResponse:
    keys = [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=1) for name, level in levels.items()
    ]
    return ApiVersionsResponse(api_keys=[], finalized_features_epoch=epoch, finalized_features=keys)


def test_none_are_known_before_a_broker_has_told() -> None:
    assert FinalizedFeatures().levels == {}


def test_a_broker_that_knows_of_something_later_is_believed() -> None:
    features = FinalizedFeatures()
    features.take(told(3, one=1, two=2))
    features.take(told(4, two=3))
    assert features.levels == {"two": 3}


def test_a_broker_that_is_behind_or_knows_none_is_not() -> None:
    features = FinalizedFeatures()
    features.take(told(3, one=1))
    features.take(told(2, one=2))
    features.take(told(-1))
    assert features.levels == {"one": 1}


def test_brokers_that_know_none_are_believed_among_themselves() -> None:
    features = FinalizedFeatures()
    features.take(told(-1, one=1))
    features.take(told(-1))
    assert features.levels == {}
