"""Framing, as read by confluent-kafka's own code."""

from __future__ import annotations

import io
import uuid

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.integrations.schema_registry import framing

IDS = st.integers(0, 2**32 - 1)
PATHS = st.lists(st.integers(0, 70_000), min_size=1, max_size=8)


@given(IDS, st.binary())
def test_confluents_reader_understands_the_prefix(schema_id: int, payload: bytes) -> None:
    read = SchemaId("AVRO")
    rest = read.from_bytes(io.BytesIO(framing.prefix(schema_id) + payload))
    assert (read.id, rest.read()) == (schema_id, payload)


@given(IDS, PATHS, st.binary())
def test_prefix_with_a_message_path(schema_id: int, path: list[int], payload: bytes) -> None:
    read = SchemaId("PROTOBUF")
    rest = read.from_bytes(io.BytesIO(framing.prefix(schema_id, path) + payload))
    assert (read.id, read.message_indexes, rest.read()) == (schema_id, path, payload)


@given(st.uuids(), PATHS)
def test_confluents_reader_understands_the_header(guid: uuid.UUID, path: list[int]) -> None:
    for kind, written in (("AVRO", []), ("PROTOBUF", path)):
        read = SchemaId(kind)
        read.from_bytes(io.BytesIO(framing.header(str(guid), written)))
        assert (read.guid, read.message_indexes or []) == (guid, written)


@given(IDS, PATHS)
def test_the_same_bytes_as_confluents(schema_id: int, path: list[int]) -> None:
    guid = str(uuid.uuid5(uuid.NAMESPACE_URL, "schema"))
    theirs = SchemaId("PROTOBUF", schema_id, guid, path)
    assert framing.prefix(schema_id, path) == theirs.id_to_bytes()
    assert framing.header(guid, path) == theirs.guid_to_bytes()


def test_by_hand() -> None:
    """Bytes written by hand from the description of the wire format."""
    assert framing.prefix(1) == b"\0\0\0\0\1"
    assert framing.prefix(1, (0,)) == b"\0\0\0\0\1\0"
    assert framing.prefix(1, (1, 0)) == b"\0\0\0\0\1\4\2\0"
    assert framing.message_indexes((64,)) == b"\2\x80\1"
    assert (framing.header_name(True), framing.header_name(False)) == ("__key_schema_id", "__value_schema_id")


def test_an_id_out_of_range() -> None:
    with pytest.raises(Exception, match="format"):
        framing.prefix(2**32)
