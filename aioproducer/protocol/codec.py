"""The types of Kafka's wire format, each as a pair of functions that write and read it.

Plain messages prefix strings with an int16 length, bytes and arrays with an int32 one, -1 for null. Flexible messages
(KIP-482) prefix all of them with an unsigned varint of length + 1, 0 for null.

Readers take whole ``bytes`` and a position and return the value with the position after it. Bytes off the wire are
untrusted: a length is compared with the bytes left before it is used, so the input bounds time and memory. On malformed
input a reader raises ValueError, IndexError or struct.error; ``schema.py`` turns these into ProtocolError, in the words
of ``nonsense``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

Write = Callable[[Any, bytearray], None]
Read = Callable[[bytes, int], tuple[Any, int]]
ReadInSteps = Callable[[bytes, int], Generator[int, None, tuple[Any, int]]]

MAX_UVARINT = 0xFFFFFFFF
NULL = -1


@dataclass(frozen=True, slots=True)
class Codec:
    """How one type is written and read."""

    write: Write
    read: Read
    layout: str = ""
    """The struct format of a fixed-size value, so that adjacent ones can be read in one call; else empty."""
    read_in_steps: ReadInSteps | None = None
    """The reader as a generator that yields its position after each element; for arrays of structs and their owners."""


def nonsense(error: Exception, data: bytes | memoryview) -> str:
    """What a reader's error says about the bytes; Python's own text for premature ends is useless."""
    if isinstance(error, (IndexError, struct.error)):
        return f"it ends too soon, after {len(data)} bytes"
    return str(error)


def in_steps(codec: Codec, data: bytes, at: int) -> Generator[int, None, tuple[Any, int]]:
    """Read with pauses if the codec supports them."""
    if codec.read_in_steps:
        return (yield from codec.read_in_steps(data, at))
    return codec.read(data, at)


# --- lengths ----------------------------------------------------------------------------------------------------------


def write_uvarint(value: int, out: bytearray) -> None:
    """Append an unsigned varint: seven bits per byte, low bits first."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits."""
    value = data[at]
    if value < 128:
        return value, at + 1
    value &= 127
    for count in range(1, 5):
        byte = data[at + count]
        value |= (byte & 127) << 7 * count
        if byte < 128:
            if value > MAX_UVARINT:
                break
            return value, at + count + 1
    raise ValueError(f"unsigned varint of more than 32 bits at byte {at}")


class Length(NamedTuple):
    """How a type encodes its length, null included."""

    write: Callable[[int, bytearray], None]
    read: Callable[[bytes, int], tuple[int, int]]


def _fixed_length(layout: str) -> Length:
    number = struct.Struct(layout)

    def write(length: int, out: bytearray) -> None:
        out += number.pack(length)

    def read(data: bytes, at: int) -> tuple[int, int]:
        return number.unpack_from(data, at)[0], at + number.size

    return Length(write, read)


def _write_compact_length(length: int, out: bytearray) -> None:
    write_uvarint(length + 1, out)


def _read_compact_length(data: bytes, at: int) -> tuple[int, int]:
    length = data[at]
    if length < 128:
        return length - 1, at + 1
    length, at = read_uvarint(data, at)
    return length - 1, at


INT16_LENGTH = _fixed_length(">h")
INT32_LENGTH = _fixed_length(">i")
COMPACT_LENGTH = Length(_write_compact_length, _read_compact_length)


def _no_value(length: int, nullable: bool, at: int) -> None:
    """Handle a negative length: null if that is allowed, else an error."""
    if length != NULL or not nullable:
        raise ValueError(f"{'null' if length == NULL else f'length {length}'} before byte {at}")


def _check_fits(length: int, data: bytes, at: int) -> None:
    if length > len(data) - at:
        raise ValueError(f"length {length} before byte {at}, but only {len(data) - at} bytes are left")


# --- types ------------------------------------------------------------------------------------------------------------


def fixed(layout: str) -> Codec:
    """A number, bool or uuid: one value of a struct format, big endian."""
    one = struct.Struct(f">{layout}")

    def write(value: Any, out: bytearray) -> None:
        out += one.pack(value)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return one.unpack_from(data, at)[0], at + one.size

    return Codec(write, read, layout)


BOOL = fixed("?")


def uuid() -> Codec:
    """16 bytes; struct alone would pad or cut others silently."""
    codec = fixed("16s")

    def write(value: bytes, out: bytearray) -> None:
        if len(value) != 16:
            raise ValueError(f"a uuid of {len(value)} bytes")
        out += value

    return Codec(write, codec.read, codec.layout)


def string(length: Length, *, nullable: bool) -> Codec:
    """UTF-8 text."""
    raw = blob(length, nullable=nullable)

    def write(value: str | None, out: bytearray) -> None:
        raw.write(None if value is None else value.encode(), out)

    def read(data: bytes, at: int) -> tuple[str | None, int]:
        value, at = raw.read(data, at)
        return (None if value is None else value.decode()), at

    return Codec(write, read)


def blob(length: Length, *, nullable: bool) -> Codec:
    """Bytes, including Kafka's type records."""

    def write(value: bytes | None, out: bytearray) -> None:
        if value is None:
            _no_value(NULL, nullable, len(out))
            length.write(NULL, out)
        else:
            length.write(len(value), out)
            out += value

    def read(data: bytes, at: int) -> tuple[bytes | None, int]:
        size, at = length.read(data, at)
        if size < 0:
            _no_value(size, nullable, at)
            return None, at
        _check_fits(size, data, at)
        return data[at : at + size], at + size

    return Codec(write, read)


def array(item: Codec, length: Length, *, nullable: bool) -> Codec:
    """A list. Every element takes at least one byte, so a count beyond the bytes left is refused before any read."""

    def write(values: list[Any] | None, out: bytearray) -> None:
        if values is None:
            _no_value(NULL, nullable, len(out))
            length.write(NULL, out)
        else:
            length.write(len(values), out)
            for value in values:
                item.write(value, out)

    def read_count(data: bytes, at: int) -> tuple[int, int]:
        count, at = length.read(data, at)
        if count < 0:
            _no_value(count, nullable, at)
        _check_fits(count, data, at)
        return count, at

    def read(data: bytes, at: int) -> tuple[list[Any] | None, int]:
        count, at = read_count(data, at)
        if count < 0:
            return None, at
        values = []
        for _ in range(count):
            value, at = item.read(data, at)
            values.append(value)
        return values, at

    def read_fixed(data: bytes, at: int) -> tuple[list[Any] | None, int]:
        count, at = read_count(data, at)
        if count < 0:
            return None, at
        return list(struct.unpack_from(f">{count}{item.layout}", data, at)), at + count * item_size

    def read_in_steps(data: bytes, at: int) -> Generator[int, None, tuple[list[Any] | None, int]]:
        count, at = read_count(data, at)
        if count < 0:
            return None, at
        values = []
        for _ in range(count):
            value, at = yield from in_steps(item, data, at)
            values.append(value)
            yield at
        return values, at

    if len(item.layout) == 1:  # a number: struct repeats single letters only
        item_size = struct.calcsize(f">{item.layout}")
        return Codec(write, read_fixed)
    return Codec(write, read, read_in_steps=read_in_steps)


# --- tagged fields ----------------------------------------------------------------------------------------------------


def write_tags(fields: list[tuple[int, bytes | bytearray]], out: bytearray) -> None:
    """Append the tag section that ends every flexible struct; ``fields`` are in ascending order of their tags."""
    write_uvarint(len(fields), out)
    for tag, value in fields:
        write_uvarint(tag, out)
        write_uvarint(len(value), out)
        out += value


def read_tags(data: bytes, at: int, known: dict[int, tuple[str, Read]]) -> tuple[dict[str, Any], int]:
    """Read a tag section: the known fields by name, and the position after it. Unknown tags are skipped.

    Args:
        known: name and reader of each tag that the struct declares.
    """
    values: dict[str, Any] = {}
    count, at = read_uvarint(data, at)
    previous = -1
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        _check_fits(size, data, at)
        if tag <= previous:
            raise ValueError(f"tag {tag} after tag {previous} before byte {at}")
        if tag in known:
            name, read = known[tag]
            values[name], end = read(data, at)
            if end != at + size:
                raise ValueError(f"tag {tag} has {size} bytes, its value {end - at}")
        at += size
        previous = tag
    return values, at
