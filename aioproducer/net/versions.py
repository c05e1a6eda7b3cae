"""ApiRanges: the versions of each request that a broker speaks, and the newest that both sides speak. Pure."""

from __future__ import annotations

from typing import Any

from aioproducer.errors import UnsupportedVersionError
from aioproducer.net import apis
from aioproducer.protocol.api_versions import ApiVersionsResponse
from aioproducer.protocol.schema import Request


class ApiRanges:
    """The contents of a broker's ApiVersions answer; without one, nothing is spoken."""

    __slots__ = ("_newest", "_ranges")

    def __init__(self, response: ApiVersionsResponse | None = None) -> None:
        told = () if response is None else response.api_keys
        self._ranges = {api.api_key: (api.min_version, api.max_version) for api in told}
        self._newest: dict[type[Request[Any]], int] = {}

    def range_of(self, api_key: int) -> tuple[int, int] | None:
        """The versions (first, last) of an API that the broker speaks; None if it does not know the API."""
        return self._ranges.get(api_key)

    def newest(self, request: type[Request[Any]], broker: object) -> int:
        """The newest version of a request that both sides speak.

        Args:
            broker: its name in messages.
        Raises:
            UnsupportedVersionError: there is none.
        """
        version = self._newest.get(request)
        if version is None:
            version = self._newest[request] = self._common(request, broker)
        return version

    def _common(self, request: type[Request[Any]], broker: object) -> int:
        theirs = self._ranges.get(request.API_KEY)
        if theirs is not None and max(theirs[0], request.MIN_VERSION) <= min(theirs[1], request.MAX_VERSION):
            return min(theirs[1], request.MAX_VERSION)
        spoken = f"versions {theirs[0]} to {theirs[1]}" if theirs else "no version"
        raise UnsupportedVersionError(
            f"{broker} speaks {spoken} of {apis.name(request.API_KEY)}, "
            f"this client {request.MIN_VERSION} to {request.MAX_VERSION}"
        )
