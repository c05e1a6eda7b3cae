"""Frames and headers, compared with Kafka's own."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ProtocolError
from aioproducer.protocol import header
from aioproducer.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aioproducer.protocol.end_txn import EndTxnRequest, EndTxnResponse
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponse
from aioproducer.protocol.sasl_handshake import SaslHandshakeRequest
from aioproducer.protocol.schema import Message, Request

GOLDEN = Path(__file__).parents[2] / "golden"


def golden(kind: str) -> list[Any]:
    entries = json.loads((GOLDEN / f"{kind}.json").read_text())[kind]
    return [pytest.param(entry, id=f"{entry['name']}-v{entry['version']}") for entry in entries]


@pytest.mark.parametrize("entry", golden("requests"))
def test_request_headers(entry: dict[str, Any]) -> None:
    """Request headers are Kafka's, with and without a client id and tags."""
    flexible = entry["header_version"] == 2
    made = header.request_header(
        entry["api_key"], entry["version"], flexible, entry["correlation_id"], entry["client_id"]
    )
    assert made.hex() == entry["header_hex"]


@pytest.mark.parametrize("entry", golden("responses"))
def test_response_headers(entry: dict[str, Any]) -> None:
    """Response headers are read up to where the body begins."""
    frame = bytes.fromhex(entry["frame_hex"])[4:]
    for each in frame, memoryview(frame):
        correlation_id, at = header.read_response_header(each, entry["header_version"] == 1)
        assert correlation_id == entry["correlation_id"]
        assert frame[at:].hex() == entry["body_hex"]


FRAMED: dict[str, type[Message]] = {
    "EndTxn": EndTxnRequest,
    "SaslHandshake": SaslHandshakeRequest,
    "ApiVersions": ApiVersionsRequest,
}


@pytest.mark.parametrize("entry", [each for each in golden("requests") if each.values[0]["api"] in FRAMED])
def test_whole_request_frames(entry: dict[str, Any]) -> None:
    """A frame is size, header and body."""
    request = FRAMED[entry["api"]].decode(bytes.fromhex(entry["body_hex"]), entry["version"])
    assert isinstance(request, Request)
    frame = header.encode_request(request, entry["version"], entry["correlation_id"], entry["client_id"])
    assert frame.hex() == entry["frame_hex"]


@pytest.mark.parametrize("version", range(6))
def test_decode_response(version: int) -> None:
    """The right response header is skipped before the body, for flexible versions and others."""
    answer = EndTxnResponse(error_code=51)
    frame = struct.pack(">i", 7) + (b"\0" if version >= 3 else b"") + answer.encode(version)
    assert header.decode_response(EndTxnRequest, version, frame) == answer
    assert header.decode_response(EndTxnRequest, version, memoryview(frame)) == answer


def test_response_header_with_tags() -> None:
    """Tags in a response header, which no broker sends yet, are skipped."""
    frame = struct.pack(">i", -2) + bytes.fromhex("020301ee0502ffee") + EndTxnResponse().encode(3)
    assert header.decode_response(EndTxnRequest, 3, frame) == EndTxnResponse()


@pytest.mark.parametrize(("request_type", "version"), [(MetadataRequest, 3), (MetadataRequest, 13), (EndTxnRequest, 0)])
def test_throttle_time_is_read_without_the_rest(request_type: type[Request[Any]], version: int) -> None:
    header_bytes = struct.pack(">i", 7) + (b"\0" if version >= request_type.FLEXIBLE_FROM else b"")
    assert header.throttle_time_ms(request_type, version, header_bytes + struct.pack(">i", 250) + b"...") == 250
    with pytest.raises(ProtocolError, match="can't be read"):
        header.throttle_time_ms(request_type, version, header_bytes + b"123")


@pytest.mark.parametrize(("version", "throttle_time_ms"), [(0, 0), (1, 250), (4, 250)])
def test_throttle_time_behind_other_fields(version: int, throttle_time_ms: int) -> None:
    answer = ApiVersionsResponse(api_keys=[], throttle_time_ms=throttle_time_ms)
    frame = struct.pack(">i", 7) + answer.encode(version)
    assert header.throttle_time_ms(ApiVersionsRequest, version, frame) == throttle_time_ms


def test_decode_response_in_steps() -> None:
    """The incremental reader accepts a frame too."""
    answer = MetadataResponse(brokers=[], topics=[], controller_id=4)
    steps = header.decode_response_in_steps(MetadataRequest, 12, struct.pack(">ib", 1, 0) + answer.encode(12))
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value == answer


@given(frame=st.binary(max_size=12), flexible=st.booleans())
def test_any_bytes_as_a_header(frame: bytes, flexible: bool) -> None:
    """Whatever a peer sends, the header is read or refused with ProtocolError."""
    try:
        _, at = header.read_response_header(frame, flexible)
    except ProtocolError as error:
        told = str(error)
    else:
        assert 4 <= at <= len(frame)
        return
    assert "requires a buffer" not in told
    assert "out of range" not in told


@pytest.mark.parametrize("client_id", ["x" * 32_768, "\ud800"])
def test_client_id_that_does_not_fit(client_id: str) -> None:
    """A client id that the header can't hold is refused before anything is sent."""
    with pytest.raises(ProtocolError, match="client id"):
        header.request_header(3, 9, True, 1, client_id)
