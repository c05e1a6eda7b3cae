"""Serializers: the bytes of Kafka's own classes."""

from __future__ import annotations

import asyncio
import math
import struct
import typing
import uuid
from typing import Any

import pytest

from aioproducer import serializers
from aioproducer.serializers import (
    JAVA_CLASSES,
    BindableSerializer,
    BoundSerializer,
    ByTopic,
    ByType,
    Serializer,
    SerializerFunction,
    SerializerObject,
)


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
    """The bytes were printed by the serializers of kafka-clients 4.3.1."""
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


def test_types_may_stand_in_annotations_that_are_evaluated() -> None:
    for kind in (SerializerFunction, SerializerObject, BindableSerializer, BoundSerializer, Serializer):
        assert int in typing.get_args(kind[int]) or "int" in str(kind[int])
    assert isinstance(ByType[int | str]({int: serializers.long, str: serializers.string}), BindableSerializer)
    assert isinstance(ByTopic[int]({"numbers": serializers.long}), BindableSerializer)


# --- choosing ---------------------------------------------------------------------------------------------------------


class Bindable:
    """A serializer that is bound to its use."""

    def __init__(self, adds_headers: bool = False) -> None:
        self.adds_headers = adds_headers
        self.uses: list[tuple[bool, int]] = []
        self.closed = 0

    def bind(self, *, is_key: bool, max_block_ms: int) -> Bindable:
        self.uses.append((is_key, max_block_ms))
        return self

    def serialize(self, topic: str, headers: Any, value: Any) -> bytes:
        return f"{topic} {value}".encode()

    def serialize_nowait(self, topic: str, headers: Any, value: Any) -> bytes:
        return f"{topic} {value} now".encode()

    async def close(self) -> None:
        self.closed += 1


async def test_by_type() -> None:
    """By the class itself, otherwise its nearest base class; for functions and objects of any kind."""
    inner = Bindable(adds_headers=True)
    bound = serializers.ByType({int: serializers.long, str: inner}).bind(is_key=True, max_block_ms=5)
    assert inner.uses == [(True, 5)]
    assert bound.adds_headers
    for value in (1, True):
        assert bound.serialize("t", None, value) == bytes(7) + b"\1"
    assert bound.serialize("t", None, "a") == b"t a"
    assert bound.serialize_nowait("t", None, "a") == b"t a now"
    with pytest.raises(TypeError, match="int or str needed, not float"):
        bound.serialize("t", None, 1.5)
    await bound.close()
    assert inner.closed == 1


async def test_all_that_are_chosen_from_are_closed_whatever_one_of_them_does() -> None:
    """One close may fail, or be cancelled when the timeout of the producer's close is over."""

    class Stands(Bindable):
        async def close(self) -> None:
            await asyncio.Event().wait()

    class Fails(Bindable):
        async def close(self) -> None:
            raise OSError("one")

    others = [Bindable(), Bindable()]
    several = {"a": others[0], "b": Fails(), "c": others[1]}
    with pytest.raises(OSError, match="one"):
        await ByTopic(several).bind(is_key=False, max_block_ms=5).close()
    closing = asyncio.ensure_future(
        ByTopic(several | {"b": Stands()}).bind(is_key=False, max_block_ms=5).close(),
    )
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [each.closed for each in others] == [2, 2]


async def test_by_topic() -> None:
    inner = Bindable()
    choice = serializers.ByTopic({"numbers": serializers.long, "words": inner}, default=serializers.string)
    bound = choice.bind(is_key=False, max_block_ms=5)
    assert not bound.adds_headers
    assert bound.serialize("numbers", None, 1) == bytes(7) + b"\1"
    assert bound.serialize("words", None, 1) == b"words 1"
    assert bound.serialize_nowait("words", None, 1) == b"words 1 now"
    assert bound.serialize("others", None, "x") == b"x"
    await bound.close()
    assert inner.closed == 1
    rest = Bindable(adds_headers=True)
    bound = serializers.ByTopic({"numbers": serializers.long}, default=rest).bind(is_key=True, max_block_ms=7)
    assert bound.adds_headers
    assert rest.uses == [(True, 7)]
    await bound.close()
    assert rest.closed == 1
    refusing = serializers.ByTopic({"numbers": serializers.long}).bind(is_key=False, max_block_ms=5)
    with pytest.raises(LookupError, match="'others'"):
        refusing.serialize("others", None, 1)
