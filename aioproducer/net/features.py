"""The features that the whole cluster has agreed on, such as the version of its transactions."""

from __future__ import annotations

from aioproducer.protocol.api_versions import ApiVersionsResponse


class FinalizedFeatures:
    """The level of each feature, as the latest broker that knows told it.

    Source: KIP-584.
    """

    def __init__(self) -> None:
        self.levels: dict[str, int] = {}
        """By the names of the features; those that are off are not among them."""
        self._epoch = -1

    def take(self, told: ApiVersionsResponse) -> None:
        """Believe what a broker tells, unless another one has told of something later."""
        if told.finalized_features_epoch >= self._epoch:
            self._epoch = told.finalized_features_epoch
            self.levels = {each.name: each.max_version_level for each in told.finalized_features}
