"""The finalized features of the cluster, such as the version of its transactions."""

from __future__ import annotations

from aioproducer.protocol.api_versions import ApiVersionsResponse


class FinalizedFeatures:
    """The level of each feature, as last reported by a broker that knows it.

    Source: KIP-584.
    """

    def __init__(self) -> None:
        self.levels: dict[str, int] = {}
        """Levels by feature name; features that are off are missing."""
        self._epoch = -1

    def take(self, told: ApiVersionsResponse) -> None:
        """Adopt what a broker reports, unless another one has reported a later state."""
        if told.finalized_features_epoch >= self._epoch:
            self._epoch = told.finalized_features_epoch
            self.levels = {each.name: each.max_version_level for each in told.finalized_features}
