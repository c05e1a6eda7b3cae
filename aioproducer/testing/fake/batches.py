"""Record batches v2 as a broker accepts them: every byte is checked, and nothing is trusted before that. Pure.

What is refused, in which order and with which error, follows ProduceRequest.validateRecords, UnifiedLog.append and
LogValidator of Kafka 4.3, and is compared with a real broker by tests/broker/fake. It is stricter where Kafka accepts
data that its readers then fail on: offset deltas that do not count up, header names that are not UTF-8, bytes after
the end of gzip and lz4 data.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from aioproducer.compression import codec_by_attribute
from aioproducer.errors import (
    ConfigError,
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    ProtocolError,
    RecordListTooLargeError,
    UnknownServerError,
    UnsupportedCompressionTypeError,
)

HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_FROM = 21
PREFIX_BYTES = 12
"""Offset and length, not included in the length."""
UP_TO_MAGIC_BYTES = 17
SMALLEST_BATCH_BYTES = 14
"""The overhead of the oldest message format: no batch of any format is shorter."""
MAGIC = 2
CODEC_BITS = 0x07
TRANSACTIONAL = 0x10
CONTROL = 0x20
LZ4 = 3
ZSTD = 4
LZ4_FLAGS_AT = 4
LZ4_INDEPENDENT_BLOCKS = 0x20
ZSTD_SINCE_PRODUCE = 7
MAX_SECTION_BYTES = 256 * 1024 * 1024
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1
SEQUENCES = 2**31
"""Sequences count from 0 to one below this, then wrap to 0."""

Headers = tuple[tuple[str, bytes | None], ...]


class BatchRecord(NamedTuple):
    """One record inside a batch."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True)
class Batch:
    """A batch as its producer wrote it."""

    size_bytes: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: list[BatchRecord]

    @property
    def transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent producer wrote it."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record."""
        return self.sequence_of(len(self.records) - 1)

    def sequence_of(self, index: int) -> int:
        """The sequence of one record."""
        return (self.base_sequence + index) % SEQUENCES


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """A topic's limits.

    Args:
        max_message_bytes: maximum size of a whole batch (``max.message.bytes``).
        segment_bytes: size of a log segment, into which a batch must fit (``segment.bytes``).
        compacted: every record needs a key.
        log_append_time: the broker's time replaces the producer's, which is then not checked.
        timestamp_before_ms, timestamp_after_ms: how far a record's time may be before or after the broker's.
    """

    max_message_bytes: int = 1_048_588
    segment_bytes: int = 1_073_741_824
    compacted: bool = False
    log_append_time: bool = False
    timestamp_before_ms: int = 2**63 - 1
    timestamp_after_ms: int = 2**63 - 1


class RefusedRecordsError(Exception):
    """Single records made their batch fail.

    Attributes:
        cause: the error of the batch.
        records: the error of each such record, by index (KIP-467).
    """

    def __init__(self, cause: InvalidRecordError | InvalidTimestampError, records: Mapping[int, str]) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.records: dict[int, str] = dict(records)


def check_frame(data: bytes | None, produce_version: int) -> bytes:
    """What a broker checks before it knows whether it leads the partition: exactly one batch, of the right kind.

    Returns:
        The batch, without any bytes that follow it.

    Raises:
        InvalidRecordError, CorruptMessageError, UnsupportedCompressionTypeError: the answer to the producer.
    """
    size = _next_batch_bytes(data or b"", 0)
    if size is None:
        raise InvalidRecordError(f"Produce {produce_version} must have at least one record batch a partition")
    assert data is not None
    if data[UP_TO_MAGIC_BYTES - 1] != MAGIC:
        raise InvalidRecordError(f"Produce {produce_version} takes record batches of magic {MAGIC} only")
    if size < HEADER.size:
        raise UnknownServerError(f"a record batch of {size} bytes, less than its header")
    (attributes,) = struct.unpack_from(">h", data, CRC_FROM)
    if attributes & CODEC_BITS == ZSTD and produce_version < ZSTD_SINCE_PRODUCE:
        raise UnsupportedCompressionTypeError(f"Produce {produce_version} can't carry zstd")
    if _next_batch_bytes(data, size) is not None:
        raise InvalidRecordError(f"Produce {produce_version} takes exactly one record batch a partition")
    return data[:size]


def is_transactional(data: bytes | None) -> bool:
    """Whether this begins with a transactional batch; nothing else is checked."""
    return data is not None and len(data) >= HEADER.size and bool(data[CRC_FROM + 1] & TRANSACTIONAL)


def producer_of(batch: bytes) -> tuple[int, int, int, bool]:
    """Producer id, epoch, base sequence, and whether the batch belongs to a transaction."""
    attributes, _, _, _, producer_id, epoch, sequence, _ = HEADER.unpack_from(batch)[5:]
    return producer_id, epoch, sequence, bool(attributes & TRANSACTIONAL) and producer_id > NO_PRODUCER_ID


def read_batch(batch: bytes, limits: BatchLimits, now_ms: int) -> Batch:
    """Read what ``check_frame`` returned.

    Raises:
        BrokerError: the answer to the producer.
        RefusedRecordsError: the same, if it names records.
    """
    size = len(batch)
    (
        base_offset, _, _, _, crc, attributes, last_offset_delta, base_timestamp_ms, max_timestamp_ms,
        producer_id, producer_epoch, base_sequence, count,
    ) = HEADER.unpack_from(batch)  # fmt: skip
    if base_offset != 0:
        raise InvalidRecordError(f"the base offset of a batch from a producer is 0, not {base_offset}")
    if size > limits.max_message_bytes:
        raise MessageTooLargeError(f"a batch of {size} bytes is above max.message.bytes={limits.max_message_bytes}")
    if crc != crc32c(batch[CRC_FROM:]):
        raise CorruptMessageError(f"the batch's checksum is {crc}, that of its content {crc32c(batch[CRC_FROM:])}")
    if last_offset_delta < 0 or count != last_offset_delta + 1:
        raise InvalidRecordError(f"{count} records with a last offset delta of {last_offset_delta}")
    if attributes & CONTROL:
        raise InvalidRecordError("clients may not write control records")
    if producer_id > NO_PRODUCER_ID and base_sequence < 0:
        raise InvalidRecordError(f"base sequence {base_sequence} with producer id {producer_id}")
    section = _decompressed(batch[HEADER.size :], attributes & CODEC_BITS)
    records = _Reader(section, base_timestamp_ms).records(count)
    _check_records(records, limits, now_ms)
    if size > limits.segment_bytes:
        raise RecordListTooLargeError(f"a batch of {size} bytes is above segment.bytes={limits.segment_bytes}")
    return Batch(
        size, attributes, base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, records
    )


def _next_batch_bytes(data: bytes, at: int) -> int | None:
    """The size of the batch that begins here; None if it is not complete."""
    left = len(data) - at
    if left < PREFIX_BYTES:
        return None
    (length,) = struct.unpack_from(">i", data, at + 8)
    if length < SMALLEST_BATCH_BYTES:
        raise CorruptMessageError(f"a record batch says that it has {length} bytes")
    if left < UP_TO_MAGIC_BYTES:
        return None
    if data[at + UP_TO_MAGIC_BYTES - 1] > MAGIC:
        raise CorruptMessageError(f"magic {data[at + UP_TO_MAGIC_BYTES - 1]} in a record batch")
    size: int = length + PREFIX_BYTES
    return size if size <= left else None


def _decompressed(section: bytes, codec: int) -> bytes:
    if codec == LZ4 and len(section) > LZ4_FLAGS_AT and not section[LZ4_FLAGS_AT] & LZ4_INDEPENDENT_BLOCKS:
        raise UnknownServerError("lz4 data with linked blocks, which Kafka can't read")
    try:
        return codec_by_attribute(codec).decompress(section, MAX_SECTION_BYTES)
    except (ProtocolError, ConfigError) as error:
        raise UnknownServerError(str(error)) from error


def _check_records(records: list[BatchRecord], limits: BatchLimits, now_ms: int) -> None:
    if limits.compacted:
        keyless = {index: "a compacted topic takes no record without a key" for index, one in enumerate(records)
                   if one.key is None}  # fmt: skip
        if keyless:
            raise RefusedRecordsError(InvalidRecordError("one or more records have been rejected"), keyless)
    if limits.log_append_time:
        return
    earliest, latest = now_ms - limits.timestamp_before_ms, now_ms + limits.timestamp_after_ms
    wrong = {
        index: f"timestamp {one.timestamp_ms} is outside {earliest} to {latest}"
        for index, one in enumerate(records)
        if not earliest <= one.timestamp_ms <= latest and one.timestamp_ms != NO_TIMESTAMP
    }
    if wrong:
        raise RefusedRecordsError(InvalidTimestampError("one or more records have been rejected"), wrong)


class _Reader:
    """Reads the records of one section."""

    def __init__(self, section: bytes, base_timestamp_ms: int) -> None:
        self._data = section
        self._at = 0
        self._base_timestamp_ms = base_timestamp_ms

    def records(self, count: int) -> list[BatchRecord]:
        """All of them, to the last byte of the section."""
        try:
            found = [self._record(number) for number in range(count)]
        except IndexError:
            raise InvalidRecordError(f"the batch ends inside one of its {count} records") from None
        except UnicodeDecodeError:
            raise InvalidRecordError("the name of a record header is not UTF-8") from None
        if self._at != len(self._data):
            raise InvalidRecordError(f"{len(self._data) - self._at} bytes after the last of {count} records")
        return found

    def _record(self, number: int) -> BatchRecord:
        size = self._varint()
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise InvalidRecordError(f"record {number} says that it has {size} bytes")
        self._at += 1  # attributes, unused
        timestamp_ms = self._base_timestamp_ms + self._varint(64)
        offset_delta = self._varint()
        if offset_delta != number:
            raise InvalidRecordError(f"record {number} has offset delta {offset_delta}")
        key, value = self._blob(), self._blob()
        headers = self._headers() if self._data[self._at] else self._no_headers()
        if self._at != end:
            raise InvalidRecordError(f"record {number} has {size} bytes, its fields end at another one")
        return BatchRecord(timestamp_ms, key, value, headers)

    def _no_headers(self) -> Headers:
        self._at += 1
        return ()

    def _headers(self) -> Headers:
        count = self._varint()
        if not 0 <= count <= len(self._data) - self._at:
            raise InvalidRecordError(f"{count} headers in a record")
        headers = []
        for _ in range(count):
            name = self._blob()
            if name is None:
                raise InvalidRecordError("a record header without a name")
            headers.append((name.decode(), self._blob()))
        return tuple(headers)

    def _blob(self) -> bytes | None:
        size = self._varint()
        if size < 0:
            return None
        start = self._at
        self._at = end = start + size
        if end > len(self._data):
            raise IndexError
        return self._data[start:end]

    def _varint(self, bits: int = 32) -> int:
        byte = self._data[self._at]
        self._at += 1
        if byte < 0x80:
            return byte >> 1 ^ -(byte & 1)
        raw = byte & 0x7F
        for shift in range(7, bits + 3, 7):
            byte = self._data[self._at]
            self._at += 1
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                raw &= (1 << bits) - 1
                return raw >> 1 ^ -(raw & 1)
        raise UnknownServerError(f"a varint of more than {bits} bits")
