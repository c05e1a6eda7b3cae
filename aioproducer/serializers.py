"""Serializers for Kafka's own formats: plain functions from one Python type to bytes.

``bytes``, other bytes-like objects and ``str`` need no serializer; these are for keys and values that Java reads or
writes with the classes of ``org.apache.kafka.common.serialization``, or for which a ``.properties`` file names those
classes. They are never called for ``None``, which stays null. A wrong type raises TypeError, a number out of range
OverflowError or ``struct.error``; the producer turns each into a SerializationError. ``ByType`` and ``ByTopic`` choose
one of several.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import Any, Generic, NoReturn, Protocol, TypeAlias, TypeVar, runtime_checkable
from uuid import UUID

from aioproducer.records import Value_contra

Serialized: TypeAlias = bytes | bytearray | memoryview | str | None
"""What a serializer returns for a key or value: bytes, or anything that needs no serializer."""

SerializerFunction: TypeAlias = Callable[[Value_contra], Serialized | Awaitable[Serialized]]
"""A serializer of the key or value alone. Untyped, like those below, it takes any type."""


@runtime_checkable
class SerializerObject(Protocol[Value_contra]):
    """A serializer that also looks at the topic and the headers."""

    def serialize(self, topic: str, headers: Any, value: Value_contra) -> Serialized | Awaitable[Serialized]:
        """The bytes of a key or value, or None for a null.

        Args:
            headers: as the call gave them, to be read only: None, a mapping, or pairs.
        """


@runtime_checkable
class BindableSerializer(Protocol[Value_contra]):
    """A serializer that must know where it is used: a producer binds it once, and uses what ``bind`` returns."""

    def bind(self, *, is_key: bool, max_block_ms: int) -> BoundSerializer[Value_contra]:
        """The serializer as one producer uses it.

        Args:
            is_key: whether it serializes keys or values.
            max_block_ms: how long it may wait for what it needs, per record.
        """


class BoundSerializer(Protocol[Value_contra]):
    """A serializer in use by one producer, for its keys or its values."""

    adds_headers: bool
    """Whether it may change the headers, which are then the record's own list."""

    def serialize(self, topic: str, headers: Any, value: Value_contra) -> Serialized | Awaitable[Serialized]:
        """As in `SerializerObject`."""

    def serialize_nowait(self, topic: str, headers: Any, value: Value_contra) -> Serialized | Awaitable[Serialized]:
        """The same for ``submit_nowait``, which can't await anything.

        Raises:
            SerializerNotReadyError: it has to wait for something first; the message says how.
        """

    async def close(self) -> None:
        """Called when the producer closes, after its last record has ended."""


Serializer: TypeAlias = (
    SerializerFunction[Value_contra] | SerializerObject[Value_contra] | BindableSerializer[Value_contra]
)


class ByType(Generic[Value_contra]):
    """Chooses the serializer by the type of the key or value: for several types of records in one topic.

    ``ByType[Placed | Paid]({...})`` tells type checkers which types.

    Args:
        serializers: by class; a subclass uses that of its nearest base class. Types without one raise TypeError.
    """

    def __init__(self, serializers: Mapping[type, Serializer]) -> None:
        self._serializers = dict(serializers)

    def bind(self, *, is_key: bool, max_block_ms: int) -> BoundSerializer[Value_contra]:
        """The serializer as one producer uses it; called by the producer."""
        bound = _bind_all(self._serializers, is_key, max_block_ms)
        found: dict[type, BoundSerializer] = {}

        def choose(topic: str, value: Any) -> BoundSerializer:
            cls = type(value)
            chosen = found.get(cls)
            if chosen is None:
                chosen = found[cls] = _nearest(bound, cls)
            return chosen

        return _Choice(bound.values(), choose)


class ByTopic(Generic[Value_contra]):
    """Chooses the serializer by the topic: one producer for all topics of an application.

    ``ByTopic[Order | str]({...})`` tells type checkers what the values of all topics may be.

    Args:
        serializers: by topic.
        default: for all other topics; if None, they raise LookupError.
    """

    def __init__(self, serializers: Mapping[str, Serializer], default: Serializer | None = None) -> None:
        self._serializers = dict(serializers)
        self._default = default

    def bind(self, *, is_key: bool, max_block_ms: int) -> BoundSerializer[Value_contra]:
        """The serializer as one producer uses it; called by the producer."""
        bound = _bind_all(self._serializers, is_key, max_block_ms)
        default = None if self._default is None else _bind_all({"": self._default}, is_key, max_block_ms)[""]

        def choose(topic: str, value: Any) -> BoundSerializer:
            chosen = bound.get(topic, default)
            if chosen is None:
                raise LookupError(f"no serializer for topic {topic!r}")
            return chosen

        return _Choice([*bound.values(), *([] if default is None else [default])], choose)


class _Choice:
    """One of several bound serializers, for each record."""

    def __init__(self, bound: Iterable[BoundSerializer], choose: Callable[[str, Any], BoundSerializer]) -> None:
        self._bound = tuple(bound)
        self._choose = choose
        self.adds_headers = any(each.adds_headers for each in self._bound)

    def serialize(self, topic: str, headers: Any, value: Any) -> Serialized | Awaitable[Serialized]:
        return self._choose(topic, value).serialize(topic, headers, value)

    def serialize_nowait(self, topic: str, headers: Any, value: Any) -> Serialized | Awaitable[Serialized]:
        return self._choose(topic, value).serialize_nowait(topic, headers, value)

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            for each in reversed(self._bound):
                stack.push_async_callback(each.close)


class _Plain:
    """A serializer that does not need to know where it is used."""

    adds_headers = False

    def __init__(self, serialize: Callable[[str, Any, Any], Any]) -> None:
        self.serialize = self.serialize_nowait = serialize

    async def close(self) -> None:
        """It holds nothing."""


_Choosing = TypeVar("_Choosing")


def _bind_all(
    serializers: Mapping[_Choosing, Serializer], is_key: bool, max_block_ms: int
) -> dict[_Choosing, BoundSerializer]:
    bound: dict[_Choosing, BoundSerializer] = {}
    for name, serializer in serializers.items():
        if isinstance(serializer, BindableSerializer):
            bound[name] = serializer.bind(is_key=is_key, max_block_ms=max_block_ms)
        else:
            bound[name] = _Plain(as_function(serializer))
    return bound


def _nearest(bound: Mapping[type, BoundSerializer], cls: type) -> BoundSerializer:
    for base in cls.__mro__:
        if base in bound:
            return bound[base]
    raise TypeError(f"{' or '.join(each.__name__ for each in bound)} needed, not {cls.__name__}")


def as_function(serializer: SerializerFunction | SerializerObject) -> Callable[[str, Any, Any], Any]:
    """Either form of serializer, ``f(value)`` or an object with ``serialize``, as ``f(topic, headers, value)``."""
    if isinstance(serializer, SerializerObject):
        return serializer.serialize
    return lambda _topic, _headers, value: serializer(value)


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
    """Refuse anything but None, as VoidSerializer."""
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
"""Kafka's serializer classes and the functions that replace them."""
