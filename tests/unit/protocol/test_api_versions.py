"""ApiVersions has exceptions to the rules of other APIs."""

from __future__ import annotations

import struct

import pytest

from aioproducer.protocol import header
from aioproducer.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("known", [[ApiVersion(api_key=18, min_version=0, max_version=3)], []])
def test_unsupported_version_is_answered_in_version_0(version: int, known: list[ApiVersion]) -> None:
    """A broker that does not know the version answers in the layout of version 0, whatever was asked (KIP-511)."""
    answer = ApiVersionsResponse(error_code=35, api_keys=known)
    body = answer.encode(0)
    assert ApiVersionsResponse.decode(body, version) == answer
    assert header.decode_response(ApiVersionsRequest, version, struct.pack(">i", 1) + body) == answer
    with pytest.raises(StopIteration) as done:
        next(ApiVersionsResponse.decode_in_steps(body, version))
    assert done.value.value == answer


def test_response_header_never_has_tags() -> None:
    """The response header stays in version 0, because the client can't know yet what the broker supports."""
    answer = ApiVersionsResponse(api_keys=[ApiVersion(api_key=0, min_version=3, max_version=13)])
    frame = struct.pack(">i", 1) + answer.encode(4)
    assert header.decode_response(ApiVersionsRequest, 4, frame) == answer


def test_unset_features_are_not_sent() -> None:
    """A broker that does not know the cluster's features sends no tags, which reads as epoch -1 and no features."""
    body = ApiVersionsResponse(api_keys=[]).encode(3)
    assert body.hex() == "0000" + "01" + "00000000" + "00"
    assert ApiVersionsResponse.decode(body, 3).finalized_features_epoch == -1
