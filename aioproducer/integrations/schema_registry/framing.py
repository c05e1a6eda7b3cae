"""Framing: how a record names the schema it was written with.

``prefix``: a zero byte and the schema's id, 4 bytes big endian, before the payload; every consumer understands this.
``header``: a header ``__key_schema_id`` or ``__value_schema_id`` with a byte 1 and the schema's GUID, 16 bytes; the
payload is unchanged. With Protobuf, the path of the message in its file follows the id or GUID: zigzag varints, their
number first; the most frequent path, [0], is a single zero byte.

Source: Schema Registry's wire format; SchemaId of its serializers.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence

MAX_ID = (1 << 32) - 1
"""Largest schema id in a prefix."""
_PREFIX = struct.Struct(">bI")
_MAGIC_ID = 0
_MAGIC_GUID = b"\x01"


def header_name(is_key: bool) -> str:
    """The header that names the schema of a key or a value."""
    return "__key_schema_id" if is_key else "__value_schema_id"


def is_id(schema_id: object) -> bool:
    """Whether it is a possible schema id that fits into a prefix."""
    return type(schema_id) is int and 0 <= schema_id <= MAX_ID


def is_guid(guid: object) -> bool:
    """Whether it is a GUID, so that a header can hold it."""
    try:
        uuid.UUID(guid)  # type: ignore[arg-type]
    except (AttributeError, TypeError, ValueError):
        return False
    return True


def prefix(schema_id: int, message_path: Sequence[int] = ()) -> bytes:
    """The bytes before the payload.

    Args:
        message_path: for Protobuf; empty for other formats.
    """
    return _PREFIX.pack(_MAGIC_ID, schema_id) + message_indexes(message_path)


def header(guid: str, message_path: Sequence[int] = ()) -> bytes:
    """The value of the header."""
    return _MAGIC_GUID + uuid.UUID(guid).bytes + message_indexes(message_path)


def message_indexes(path: Sequence[int]) -> bytes:
    """The path of a Protobuf message in its file: the index of its outermost message first."""
    if not path:
        return b""
    if list(path) == [0]:
        return b"\0"
    return b"".join(map(_varint, (len(path), *path)))


def _varint(value: int) -> bytes:
    """A zigzag varint of a non-negative number."""
    value <<= 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
