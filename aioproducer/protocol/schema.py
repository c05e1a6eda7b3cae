"""Messages declared once as classes, and the encoders and decoders compiled from them.

A field's annotation is its type on the wire: ``Int32``, ``str``, ``bytes``, ``bool``, ``Uuid``, another Struct, or a
list of those, with ``| None`` where Kafka allows null. ``field()`` says in which versions it exists. Fields are in wire
order.

The contents of a version are worked out once, at its first use: ``struct_codec`` makes a plan for a (class, version), a
flat list of readers and writers without version checks. One ``struct`` call reads adjacent fields of fixed size.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import NoneType
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast, dataclass_transform

from aioproducer.errors import ProtocolError, UnsupportedVersionError
from aioproducer.protocol import codec
from aioproducer.protocol.codec import Codec, Read, ReadInSteps, Write

Int8 = Annotated[int, codec.fixed("b")]
Int16 = Annotated[int, codec.fixed("h")]
Int32 = Annotated[int, codec.fixed("i")]
Int64 = Annotated[int, codec.fixed("q")]
Uuid = Annotated[bytes, codec.uuid()]

ZERO_UUID = bytes(16)
NEVER = 0x7FFF
"""Above every version: FLEXIBLE_FROM of an API without flexible versions, ``until`` of a field that stays."""

_MALFORMED = (ValueError, IndexError, struct.error)


# --- declarations -----------------------------------------------------------------------------------------------------


class _Rules(NamedTuple):
    """The part of ``field()`` that dataclasses do not know."""

    since: int = 0
    until: int = NEVER
    tag: int | None = None
    nullable_since: int = 0
    ignorable: bool = False

    def cover(self, version: int) -> bool:
        return self.since <= version <= self.until


def field(
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    since: int = 0,
    until: int = NEVER,
    tag: int | None = None,
    nullable_since: int = 0,
    ignorable: bool = False,
    hidden: bool = False,
) -> Any:
    """Declare more about a field than its type.

    Args:
        default, default_factory: its value if the caller gives none, and in versions without the field.
        since, until: the first and the last version that have it.
        tag: it is sent in the tag section under this number, and only if it differs from the default.
        nullable_since: the first version that may carry ``None``, for types with ``| None``.
        ignorable: versions without the field drop the value. Otherwise a value other than the default raises
            UnsupportedVersionError there, because the broker would act on half of the request.
        hidden: it holds a payload or a secret and stays out of the repr.
    """
    rules = _Rules(since, until, tag, nullable_since, ignorable)
    options: dict[str, Any] = {"default": default, "default_factory": default_factory}
    return dataclasses.field(**options, repr=not hidden, metadata={"rules": rules})


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Struct:
    """A group of fields inside a message. Each subclass is a dataclass with keyword arguments."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(kw_only=True)(cls)


class UnwritableError(ProtocolError):
    """A value of a message does not fit its type. Nothing was sent, and the same message fails again."""


class Message(Struct):
    """The body of a request or a response."""

    MIN_VERSION: ClassVar[int]
    """The oldest version spoken here. A response has the versions of its request."""
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]
    """The first version in the compact form with tag sections, or NEVER."""

    def encode(self, version: int) -> bytes:
        """The body in one version.

        Raises:
            UnsupportedVersionError: the version can't carry a value that is set.
            UnwritableError: a value does not fit its type.
        """
        out = bytearray()
        plan = self._codec(version)
        try:
            plan.write(self, out)
        except (*_MALFORMED, TypeError, AttributeError) as error:
            raise UnwritableError(f"{type(self).__name__} can't be written in version {version}: {error}") from error
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes | memoryview, version: int) -> Self:
        """Read a body. An answer may have more bytes, which are ignored, as in Kafka's own clients.

        Raises:
            ProtocolError: it is malformed, too short or too long. Nothing else is raised, whatever the bytes are.
        """
        data, written_in = cls._as_written(bytes(data), version)
        plan = cls._codec(written_in)
        with cls._refusing_nonsense(data, version):
            message, end = plan.read(data, 0)
            cls._check_end(data, end)
            return cast(Self, message)

    @classmethod
    def decode_in_steps(
        cls, data: bytes | memoryview, version: int, *, budget_bytes: int = 16_384
    ) -> Generator[None, None, Self]:
        """``decode`` as a generator that pauses after about every ``budget_bytes``, so that other work gets a turn.

        It can pause after any element of any array, and returns the message. A coroutine drives it like this::

            steps = MetadataResponse.decode_in_steps(data, version)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value
                await asyncio.sleep(0)
        """
        data, written_in = cls._as_written(bytes(data), version)
        steps = codec.in_steps(cls._codec(written_in), data, 0)
        pause_at = budget_bytes
        with cls._refusing_nonsense(data, version):
            try:
                while True:
                    if (at := next(steps)) >= pause_at:
                        pause_at = at + budget_bytes
                        yield
            except StopIteration as done:
                message, end = done.value
                cls._check_end(data, end)
                return cast(Self, message)

    @classmethod
    def decode_first(cls, data: bytes | memoryview, version: int, name: str) -> Any:
        """The first field of a body if that is ``name``, without reading the rest; None if it is another.

        Raises:
            ProtocolError: the body is too short.
        """
        first = _first_field(cls, version)
        if first.name != name:
            return None
        with cls._refusing_nonsense(data, version):
            return first.codec.read(bytes(data), 0)[0]

    @classmethod
    def _codec(cls, version: int) -> Codec:
        if not cls.MIN_VERSION <= version <= cls.MAX_VERSION:
            raise ValueError(f"{cls.__name__} is spoken in {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}")
        return struct_codec(cls, version, version >= cls.FLEXIBLE_FROM)

    @classmethod
    def _as_written(cls, data: bytes, version: int) -> tuple[bytes, int]:
        """The bytes and their version: the requested one, with one exception, see ApiVersionsResponse."""
        return data, version

    @classmethod
    def _check_end(cls, data: bytes, end: int) -> None:
        """Nothing is wrong with an answer that goes on: the mock cluster of librdkafka sends such ones."""

    @classmethod
    @contextmanager
    def _refusing_nonsense(cls, data: bytes | memoryview, version: int) -> Iterator[None]:
        try:
            yield
        except _MALFORMED as error:
            told = codec.nonsense(error, data)
            raise ProtocolError(f"{cls.__name__} can't be read in version {version}: {told}") from error


R = TypeVar("R", bound=Message)


class Request(Message, Generic[R]):
    """The body of a request; ``R`` is the message that answers it."""

    API_KEY: ClassVar[int]
    RESPONSE: ClassVar[type[Message]]
    """The class ``R``, which gets the versions declared here."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        (base,) = cls.__orig_bases__  # type: ignore[attr-defined]
        (cls.RESPONSE,) = typing.get_args(base)
        for constant in "MIN_VERSION", "MAX_VERSION", "FLEXIBLE_FROM":
            setattr(cls.RESPONSE, constant, getattr(cls, constant))

    @classmethod
    def response_header_is_flexible(cls, version: int) -> bool:
        """Whether the answer's header ends in a tag section."""
        return version >= cls.FLEXIBLE_FROM

    @classmethod
    def _check_end(cls, data: bytes, end: int) -> None:
        if end != len(data):
            raise ValueError(f"{len(data) - end} bytes after the end")


# --- plans ------------------------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    """A field in one version."""

    name: str
    codec: Codec
    tag: int | None
    default: Callable[[], Any]


_plans: dict[tuple[type[Struct], int, bool], Codec] = {}


def struct_codec(cls: type[Struct], version: int, flexible: bool) -> Codec:
    """The plan for a class in one version."""
    if plan := _plans.get((cls, version, flexible)):
        return plan
    fields = list(_fields(cls, version, flexible))
    inline = [each for each in fields if each.tag is None]
    tagged = {each.tag: each for each in sorted(fields, key=lambda each: each.tag or 0) if each.tag is not None}
    read, read_in_steps = _readers(cls, inline, tagged, flexible)
    plan = Codec(_writer(cls, version, inline, tagged, flexible), read, read_in_steps=read_in_steps)
    return _plans.setdefault((cls, version, flexible), plan)


_first_fields: dict[tuple[type[Struct], int], _Field] = {}


def _first_field(cls: type[Message], version: int) -> _Field:
    if (cls, version) not in _first_fields:
        _first_fields[cls, version] = next(_fields(cls, version, version >= cls.FLEXIBLE_FROM))
    return _first_fields[cls, version]


def _fields(cls: type[Struct], version: int, flexible: bool) -> Iterator[_Field]:
    """The fields of a version, in wire order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for declared in dataclasses.fields(cls):
        rules = _rules(declared)
        if rules.cover(version):
            nullable = version >= rules.nullable_since
            wire_type = _codec_of(hints[declared.name], version, flexible, nullable)
            yield _Field(declared.name, wire_type, rules.tag, _default(declared))


def _codec_of(hint: Any, version: int, flexible: bool, nullable: bool = False) -> Codec:
    """The codec of an annotation."""
    arguments = typing.get_args(hint)
    if NoneType in arguments:
        (hint,) = (each for each in arguments if each is not NoneType)
        arguments = typing.get_args(hint)
    else:
        nullable = False
    if typing.get_origin(hint) is Annotated:
        number: Codec = hint.__metadata__[0]
        return number
    if typing.get_origin(hint) is list:
        length = codec.COMPACT_LENGTH if flexible else codec.INT32_LENGTH
        return codec.array(_codec_of(arguments[0], version, flexible), length, nullable=nullable)
    if hint is str:
        return codec.string(codec.COMPACT_LENGTH if flexible else codec.INT16_LENGTH, nullable=nullable)
    if hint is bytes:
        return codec.blob(codec.COMPACT_LENGTH if flexible else codec.INT32_LENGTH, nullable=nullable)
    return codec.BOOL if hint is bool else struct_codec(hint, version, flexible)


def _writer(cls: type[Struct], version: int, inline: list[_Field], tagged: dict[int, _Field], flexible: bool) -> Write:
    absent = [each for each in dataclasses.fields(cls) if not _rules(each).cover(version)]
    refused = [(each.name, _default(each)) for each in absent if not _rules(each).ignorable]
    steps = [(each.name, each.codec.write) for each in inline]

    def write_tagged(message: Struct, out: bytearray) -> None:
        values: list[tuple[int, bytes | bytearray]] = []
        for tag, each in tagged.items():
            value = getattr(message, each.name)
            if value != each.default():
                each.codec.write(value, encoded := bytearray())
                values.append((tag, encoded))
        codec.write_tags(values, out)

    def write(message: Struct, out: bytearray) -> None:
        for name, default in refused:
            if getattr(message, name) != default():
                raise UnsupportedVersionError(f"{cls.__name__} can't carry {name} in version {version}")
        for name, write_value in steps:
            write_value(getattr(message, name), out)
        if tagged:
            write_tagged(message, out)
        elif flexible:
            out.append(0)  # no tags

    return write


def _readers(
    cls: type[Struct], inline: list[_Field], tagged: dict[int, _Field], flexible: bool
) -> tuple[Read, ReadInSteps | None]:
    names = [each.name for each in inline]
    others = [(each.name, _default(each)) for each in dataclasses.fields(cls) if each.name not in names]
    runs = list(_runs(inline))
    tag_readers = {tag: (each.name, each.codec.read) for tag, each in tagged.items()}

    def finish(values: list[Any], data: bytes, at: int) -> tuple[Struct, int]:
        message = object.__new__(cls)  # __init__ with keywords would take twice as long
        attributes = message.__dict__
        for name, default in others:
            attributes[name] = default()
        attributes.update(zip(names, values, strict=True))
        if flexible:
            if data[at]:
                found, at = codec.read_tags(data, at, tag_readers)
                attributes.update(found)
            else:
                at += 1
        return message, at

    def read(data: bytes, at: int) -> tuple[Struct, int]:
        values: list[Any] = []
        for unpack_from, size, following in runs:
            values += unpack_from(data, at)
            at += size
            if following:
                value, at = following.read(data, at)
                values.append(value)
        return finish(values, data, at)

    def read_in_steps(data: bytes, at: int) -> Generator[int, None, tuple[Struct, int]]:
        values: list[Any] = []
        for unpack_from, size, following in runs:
            values += unpack_from(data, at)
            at += size
            if following:
                value, at = yield from codec.in_steps(following, data, at)
                values.append(value)
        return finish(values, data, at)

    return read, read_in_steps if any(each.codec.read_in_steps for each in inline) else None


def _runs(inline: list[_Field]) -> Iterator[tuple[Callable[[bytes, int], tuple[Any, ...]], int, Codec | None]]:
    """Split the fields after each one of variable size: (reader of the fixed ones before it, their size, its codec)."""
    layout = ">"
    for each in inline:
        if each.codec.layout:
            layout += each.codec.layout
        else:
            yield struct.Struct(layout).unpack_from, struct.calcsize(layout), each.codec
            layout = ">"
    yield struct.Struct(layout).unpack_from, struct.calcsize(layout), None


def _rules(declared: dataclasses.Field[Any]) -> _Rules:
    rules: _Rules = declared.metadata.get("rules", _Rules())
    return rules


def _default(declared: dataclasses.Field[Any]) -> Callable[[], Any]:
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory
    return lambda: declared.default
