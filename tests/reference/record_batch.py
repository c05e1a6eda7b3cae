"""Record batch v2, written from the format's description for reading, not for speed.

Nothing here is shared with the package, so that both agree only if the format is right. There is no compression: a
batch holds its records section as given, and ``records_of`` reads an uncompressed one.

Source: Kafka's message format, record batch with magic 2 (KIP-98).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_FROM = 21
TRANSACTIONAL = 0x10


class PlainRecord(NamedTuple):
    """One record of a batch."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Batch:
    """The fields of the 61-byte header, and the section after it."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc32c: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    section: bytes

    def header(self) -> dict[str, int]:
        """The header's fields by name."""
        return {name: value for name, value in vars(self).items() if name != "section"}


# --- varints ----------------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """A signed number, zigzag, seven bits a byte, low bits first."""
    rest = number * 2 if number >= 0 else -number * 2 - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class Cursor:
    """Reads values one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        assert 0 <= size <= len(self.data) - self.at
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        raw = shift = 0
        while True:
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return raw // 2 if raw % 2 == 0 else -(raw + 1) // 2

    def blob(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)


def blob(data: bytes | None) -> bytes:
    """Length and content; null is length -1."""
    return varint(-1) if data is None else varint(len(data)) + data


# --- CRC-32C ----------------------------------------------------------------------------------------------------------


def _table() -> list[int]:
    table = []
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
        table.append(remainder)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit apart from a table of the bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


# --- records and batches ----------------------------------------------------------------------------------------------


def encoded_record(record: PlainRecord, offset_delta: int, base_timestamp: int) -> bytes:
    """One record with its length prefix."""
    body = b"\0" + varint(record.timestamp_ms - base_timestamp) + varint(offset_delta)
    body += blob(record.key) + blob(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += blob(name.encode()) + blob(value)
    return varint(len(body)) + body


def encoded_section(records: Sequence[PlainRecord]) -> bytes:
    """The records section of a batch, uncompressed."""
    base = records[0].timestamp_ms
    return b"".join(encoded_record(record, number, base) for number, record in enumerate(records))


def records_of(section: bytes, count: int, base_timestamp: int) -> list[PlainRecord]:
    """The records of an uncompressed section."""
    cursor, records = Cursor(section), []
    for number in range(count):
        body = Cursor(cursor.take(cursor.varint()))
        assert body.take(1) == b"\0"
        timestamp_ms = base_timestamp + body.varint()
        assert body.varint() == number
        key, value = body.blob(), body.blob()
        headers = [(_text(body.blob()), body.blob()) for _ in range(body.varint())]
        assert body.at == len(body.data)
        records.append(PlainRecord(timestamp_ms, key, value, tuple(headers)))
    assert cursor.at == len(section)
    return records


def _text(data: bytes | None) -> str:
    assert data is not None
    return data.decode()


def decoded(data: bytes) -> Batch:
    """A whole batch, its length, magic and checksum checked."""
    batch = Batch(*(*HEADER.unpack_from(data), data[HEADER.size :]))
    assert batch.batch_length == len(data) - 12
    assert batch.magic == 2
    assert batch.crc32c == crc32c(data[CRC_FROM:])
    return batch


def encoded(
    records: Sequence[PlainRecord],
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A whole uncompressed batch as a producer writes it."""
    section = encoded_section(records)
    checked = struct.pack(
        ">hiqqqhii",
        TRANSACTIONAL if transactional else 0,
        len(records) - 1,
        records[0].timestamp_ms,
        max(record.timestamp_ms for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    length = HEADER.size - 12 + len(section)
    return struct.pack(">qiibI", 0, length, -1, 2, crc32c(checked + section)) + checked + section
