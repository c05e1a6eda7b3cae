"""The types of the wire: limits, nulls and hostile lengths."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.protocol import codec
from aioproducer.protocol.codec import COMPACT_LENGTH, INT16_LENGTH, INT32_LENGTH, Codec, Length

VECTORS = json.loads((Path(__file__).parents[2] / "golden" / "vectors.json").read_text())
MALFORMED = (ValueError, IndexError, struct.error)
LENGTHS = [INT16_LENGTH, INT32_LENGTH, COMPACT_LENGTH]


def written(wire_type: Codec, value: Any) -> bytes:
    out = bytearray()
    wire_type.write(value, out)
    return bytes(out)


def uvarint(value: int) -> bytes:
    out = bytearray()
    codec.write_uvarint(value, out)
    return bytes(out)


@pytest.mark.parametrize("vector", VECTORS["unsigned_varint"], ids=lambda vector: str(vector["value"]))
def test_uvarint_vectors(vector: dict[str, Any]) -> None:
    """Unsigned varints are Kafka's, in both directions."""
    value, encoded = vector["value"] & 0xFFFFFFFF, bytes.fromhex(vector["hex"])
    assert uvarint(value) == encoded
    assert codec.read_uvarint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@given(st.integers(0, 0xFFFFFFFF))
def test_uvarint_round_trip(value: int) -> None:
    """Every 32-bit number comes back."""
    assert codec.read_uvarint(uvarint(value), 0) == (value, len(uvarint(value)))


@pytest.mark.parametrize("data", ["ffffffff10", "ffffffff7f", "8080808080", "808080808001", "ffffffffffffffffff01"])
def test_uvarint_beyond_32_bits(data: str) -> None:
    """A varint that does not end within 32 bits is refused, however long it goes on."""
    with pytest.raises(ValueError, match="more than 32 bits"):
        codec.read_uvarint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("length", LENGTHS, ids=["int16", "int32", "compact"])
@pytest.mark.parametrize("value", [0, 1, 126, 127, 128, 16_383, 16_384, 32_767, codec.NULL])
def test_a_length_comes_back_null_included(length: Length, value: int) -> None:
    out = bytearray()
    length.write(value, out)
    assert length.read(bytes(out), 0) == (value, len(out))


@pytest.mark.parametrize(
    ("wire_type", "value", "expected"),
    [
        (codec.fixed("b"), -128, "80"),
        (codec.fixed("h"), -2, "fffe"),
        (codec.fixed("i"), 2**31 - 1, "7fffffff"),
        (codec.fixed("q"), -(2**63), "8000000000000000"),
        (codec.BOOL, True, "01"),
        (codec.uuid(), bytes(range(16)), "000102030405060708090a0b0c0d0e0f"),
        (codec.string(INT16_LENGTH, nullable=False), "é", "0002c3a9"),
        (codec.string(COMPACT_LENGTH, nullable=True), None, "00"),
        (codec.string(INT16_LENGTH, nullable=True), None, "ffff"),
        (codec.blob(INT32_LENGTH, nullable=True), None, "ffffffff"),
        (codec.blob(COMPACT_LENGTH, nullable=False), b"", "01"),
        (codec.array(codec.fixed("h"), INT32_LENGTH, nullable=True), None, "ffffffff"),
        (codec.array(codec.fixed("h"), COMPACT_LENGTH, nullable=False), [1, -1], "030001ffff"),
        (codec.array(codec.uuid(), COMPACT_LENGTH, nullable=False), [bytes(16)], "02" + "00" * 16),
        (codec.array(codec.string(COMPACT_LENGTH, nullable=False), COMPACT_LENGTH, nullable=False), ["a"], "020261"),
    ],
)
def test_each_type_is_written_as_in_kafkas_protocol_guide(wire_type: Codec, value: Any, expected: str) -> None:
    """Each type is written as in Kafka's protocol guide, and read from the middle of other bytes."""
    assert written(wire_type, value).hex() == expected
    assert wire_type.read(b"\xee" + bytes.fromhex(expected) + b"\xee", 1) == (value, 1 + len(expected) // 2)


def test_any_nonzero_byte_is_true() -> None:
    """A bool is a byte, and brokers may send any but 0 for True."""
    assert codec.BOOL.read(b"\x07", 0) == (True, 1)


@pytest.mark.parametrize("make", [codec.string, codec.blob, lambda *a, **k: codec.array(codec.BOOL, *a, **k)])
@pytest.mark.parametrize("length", LENGTHS, ids=["int16", "int32", "compact"])
def test_null_only_where_allowed(make: Any, length: Length) -> None:
    """Null in a field that is never null is refused both ways."""
    null = written(make(length, nullable=True), None)
    assert make(length, nullable=True).read(null, 0) == (None, len(null))
    with pytest.raises(ValueError, match="null"):
        make(length, nullable=False).read(null, 0)
    with pytest.raises(ValueError, match="null"):
        written(make(length, nullable=False), None)


@pytest.mark.parametrize("make", [codec.string, codec.blob, lambda *a, **k: codec.array(codec.BOOL, *a, **k)])
@pytest.mark.parametrize("prefix", ["8000", "fffe"])
def test_negative_lengths(make: Any, prefix: str) -> None:
    """Lengths below -1 are invalid."""
    with pytest.raises(ValueError, match="length -"):
        make(INT16_LENGTH, nullable=True).read(bytes.fromhex(prefix), 0)


@pytest.mark.parametrize("value", [b"", bytes(15), bytes(17)])
def test_uuid_has_16_bytes(value: bytes) -> None:
    """A uuid of another size is refused, neither padded nor cut."""
    with pytest.raises(ValueError, match="uuid"):
        written(codec.uuid(), value)


def test_text_must_be_utf8() -> None:
    """A string that is not UTF-8 is an error, and not decoded with replacements."""
    with pytest.raises(ValueError, match="utf-8"):
        codec.string(COMPACT_LENGTH, nullable=False).read(b"\x02\xff", 0)


@pytest.mark.parametrize(
    "wire_type",
    [
        codec.string(INT32_LENGTH, nullable=False),
        codec.blob(INT32_LENGTH, nullable=False),
        codec.array(codec.fixed("q"), INT32_LENGTH, nullable=False),
        codec.array(codec.uuid(), INT32_LENGTH, nullable=False),
        codec.array(codec.string(INT32_LENGTH, nullable=False), INT32_LENGTH, nullable=False),
    ],
)
@pytest.mark.parametrize("claimed", [101, 2**31 - 1])
def test_claimed_lengths_allocate_nothing(wire_type: Codec, claimed: int) -> None:
    """A length beyond the bytes that are left is refused before anything of that size is made."""
    data = struct.pack(">i", claimed) + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(MALFORMED):
            wire_type.read(data, 0)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_array_of_numbers_that_ends_early() -> None:
    """A count that fits the bytes left, but whose elements don't, is refused as well."""
    with pytest.raises(MALFORMED):
        codec.array(codec.fixed("q"), INT32_LENGTH, nullable=False).read(struct.pack(">i", 9) + bytes(71), 0)


def test_tags_round_trip_and_unknown_ones_are_skipped() -> None:
    """Known tags are read by name, others are stepped over."""
    out = bytearray()
    codec.write_tags([(0, b"\0\x05"), (7, b"whatever"), (300, b"\0\x09")], out)
    known = {0: ("first", codec.fixed("h").read), 300: ("last", codec.fixed("h").read)}
    assert codec.read_tags(bytes(out) + b"\xee", 0, known) == ({"first": 5, "last": 9}, len(out))
    assert codec.read_tags(bytes(out), 0, {}) == ({}, len(out))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("020002000100020001", id="the same tag twice"),
        pytest.param("020102000100020001", id="descending"),
        pytest.param("01000300010000", id="larger than its value"),
        pytest.param("0100010001", id="smaller than its value"),
        pytest.param("0100020a", id="cut off"),
        pytest.param("0105ff", id="size cut off"),
        pytest.param("0105ffffffff0f", id="size beyond the end"),
        pytest.param("ffffffff0f", id="four billion tags"),
    ],
)
def test_malformed_tags(data: str) -> None:
    """Tags ascend, and each value fills its size."""
    with pytest.raises(MALFORMED):
        codec.read_tags(bytes.fromhex(data), 0, {0: ("first", codec.fixed("h").read)})
