"""Serializers with the formats of Kafka's own ones: plain functions from one Python type to bytes.

``bytes``, other bytes-like objects and ``str`` need none of them; these are for keys and values that Java, or a
``.properties`` file, reads or writes with the classes of ``org.apache.kafka.common.serialization``. They are never
called for ``None``, which stays a null. A wrong type raises TypeError, a number out of range OverflowError or
``struct.error``; the producer turns either into a SerializationError.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn, Protocol, TypeAlias, runtime_checkable
from uuid import UUID

SerializerFunction: TypeAlias = Callable[[Any], bytes | Awaitable[bytes | None] | None]


@runtime_checkable
class SerializerObject(Protocol):
    """A serializer that also looks at the topic and the headers."""

    def serialize(self, topic: str, headers: Any, value: Any) -> bytes | Awaitable[bytes | None] | None:
        """The bytes of a key or value, or None for a null."""


Serializer: TypeAlias = SerializerFunction | SerializerObject

_INT8, _INT16, _INT32, _INT64 = (struct.Struct(">" + code) for code in "bhiq")
_FLOAT32, _FLOAT64 = struct.Struct(">f"), struct.Struct(">d")


def string(value: str) -> bytes:
    """UTF-8, as StringSerializer."""
    return str.encode(value)


def byte_array(value: bytes | bytearray | memoryview) -> bytes:
    """The bytes as they are, as ByteArraySerializer, BytesSerializer and ByteBufferSerializer."""
    return bytes(_typed(value, (bytes, bytearray, memoryview)))


def boolean(value: bool) -> bytes:
    """One byte, 1 or 0, as BooleanSerializer."""
    return _INT8.pack(_typed(value, bool))


def short(value: int) -> bytes:
    """2 bytes, big endian, signed, as ShortSerializer."""
    return _INT16.pack(value)


def integer(value: int) -> bytes:
    """4 bytes, big endian, signed, as IntegerSerializer."""
    return _INT32.pack(value)


def long(value: int) -> bytes:
    """8 bytes, big endian, signed, as LongSerializer."""
    return _INT64.pack(value)


def float32(value: float) -> bytes:
    """4 bytes IEEE 754, big endian, as FloatSerializer."""
    return _FLOAT32.pack(_typed(value, (float, int)))


def float64(value: float) -> bytes:
    """8 bytes IEEE 754, big endian, as DoubleSerializer."""
    return _FLOAT64.pack(_typed(value, (float, int)))


def uuid(value: UUID) -> bytes:
    """The text form in lower case, as UUIDSerializer."""
    return str(_typed(value, UUID)).encode()


def void(value: object) -> NoReturn:
    """Refuse whatever is not None, as VoidSerializer."""
    raise TypeError(f"only None is allowed here, not {type(value).__name__}")


def _typed(value: Any, types: type | tuple[type, ...]) -> Any:
    if not isinstance(value, types):
        names = " or ".join(one.__name__ for one in (types if isinstance(types, tuple) else (types,)))
        raise TypeError(f"{names} needed, not {type(value).__name__}")
    return value


_FUNCTIONS: dict[str, SerializerFunction] = {
    "Boolean": boolean,
    "ByteArray": byte_array,
    "ByteBuffer": byte_array,
    "Bytes": byte_array,
    "Double": float64,
    "Float": float32,
    "Integer": integer,
    "Long": long,
    "Short": short,
    "String": string,
    "UUID": uuid,
    "Void": void,
}

JAVA_CLASSES: Mapping[str, SerializerFunction] = MappingProxyType(
    {f"org.apache.kafka.common.serialization.{name}Serializer": function for name, function in _FUNCTIONS.items()}
)
"""Kafka's serializer classes and the functions that take their place."""
