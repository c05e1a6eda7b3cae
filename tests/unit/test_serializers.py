"""Serializers: the bytes of Kafka's own classes."""

from __future__ import annotations

import math
import struct
import uuid
from typing import Any

import pytest

from aioproducer import serializers
from aioproducer.serializers import JAVA_CLASSES, SerializerObject


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Integer", 1, "00000001"),
        ("Integer", -1, "ffffffff"),
        ("Integer", 2**31 - 1, "7fffffff"),
        ("Long", 1, "0000000000000001"),
        ("Long", -2, "fffffffffffffffe"),
        ("Short", 1, "0001"),
        ("Short", -2, "fffe"),
        ("Float", 1.5, "3fc00000"),
        ("Float", -0.0, "80000000"),
        ("Float", 3.4e38, "7f7fc99e"),
        ("Float", math.inf, "7f800000"),
        ("Double", 1.5, "3ff8000000000000"),
        ("Double", 1e300, "7e37e43c8800759c"),
        ("Boolean", True, "01"),
        ("Boolean", False, "00"),
        ("UUID", uuid.UUID("123E4567-e89b-12d3-a456-426614174000"), b"123e4567-e89b-12d3-a456-426614174000".hex()),
        ("String", "é中😀", "é中😀".encode().hex()),
        ("ByteArray", bytearray(b"ab"), "6162"),
        ("Bytes", b"ab", "6162"),
        ("ByteBuffer", memoryview(b"xaby")[1:3], "6162"),
    ],
)
def test_bytes_are_javas(name: str, value: Any, expected: str) -> None:
    """Printed by the serializers of kafka-clients 4.3.1."""
    data = JAVA_CLASSES[f"org.apache.kafka.common.serialization.{name}Serializer"](value)
    assert type(data) is bytes
    assert data.hex() == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("string", b"x"),
        ("string", 1),
        ("byte_array", "x"),
        ("byte_array", 5),
        ("boolean", 1),
        ("float32", "1.0"),
        ("float64", None),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000"),
        ("void", b""),
        ("void", 0),
    ],
)
def test_wrong_type(name: str, value: Any) -> None:
    with pytest.raises(TypeError):
        getattr(serializers, name)(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("short", 2**15),
        ("integer", 2**31),
        ("integer", -(2**31) - 1),
        ("integer", 1.0),
        ("long", 2**63),
        ("float32", 1e39),
    ],
)
def test_out_of_range(name: str, value: Any) -> None:
    with pytest.raises((OverflowError, struct.error)):
        getattr(serializers, name)(value)


def test_serializer_objects() -> None:
    class Upper:
        def serialize(self, topic: str, headers: object, value: str) -> bytes:
            return value.upper().encode()

    assert isinstance(Upper(), SerializerObject)
    assert not isinstance(serializers.string, SerializerObject)
