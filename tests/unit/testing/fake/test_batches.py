"""Record batches as the cluster model reads them; tests/broker/fake compares what it refuses with a real broker."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aioproducer.compression import codec
from aioproducer.errors import InvalidRecordError, RecordListTooLargeError, UnknownServerError
from aioproducer.testing.fake.batches import BatchLimits, RefusedRecordsError, check_frame, read_batch
from tests.reference.record_batch import PlainRecord, crc32c, encoded, varint
from tests.unit.testing.fake.talk import NOW_MS, batch

VERSION = 13
SIZES = st.sampled_from([0, 1, 63, 64, 8_191, 8_192]) | st.integers(0, 200)
"""On both sides of the steps at which a length takes another byte."""
CONTENT = st.none() | st.builds(bytes, SIZES)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
RECORDS = st.builds(
    PlainRecord, st.integers(0, 2**63 - 1), CONTENT, CONTENT, st.lists(st.tuples(NAMES, CONTENT), max_size=3).map(tuple)
)


def with_section(section: bytes, attributes: int = 0) -> bytes:
    """A batch of one record with these bytes in its place."""
    data = bytearray(batch(b"v")[:61] + section)
    struct.pack_into(">h", data, 21, attributes)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def read(data: bytes, limits: BatchLimits | None = None) -> list[PlainRecord]:
    found = read_batch(check_frame(data, VERSION), limits or BatchLimits(), NOW_MS)
    return [PlainRecord(*record) for record in found.records]


def times(*each_ms: int) -> list[PlainRecord]:
    return [PlainRecord(at_ms, b"k", b"v") for at_ms in each_ms]


@given(st.lists(RECORDS, min_size=1, max_size=3))
@example(times(100, 98, 163, 164, 36, 35))
@example(times(0, 2**63 - 1))
@example(times(2**63 - 1, 0))
@example([PlainRecord(1, None, bytes(1_048_576))])
def test_it_reads_what_was_written(records: list[PlainRecord]) -> None:
    """Lengths and times of every size, compared with a slow encoder."""
    assert read(encoded(records), BatchLimits(max_message_bytes=2**31 - 1)) == records


def test_a_segment_of_the_size_of_the_batch_takes_it() -> None:
    data = batch(b"v")
    assert len(read(data, BatchLimits(segment_bytes=len(data)))) == 1
    with pytest.raises(RecordListTooLargeError):
        read(data, BatchLimits(segment_bytes=len(data) - 1))


def test_times_at_the_limits_are_taken() -> None:
    """Those of the broker, where it replaces them, are always."""
    limits = BatchLimits(timestamp_before_ms=10, timestamp_after_ms=20)
    for at_ms in (NOW_MS - 11, NOW_MS - 10, NOW_MS + 20, NOW_MS + 21):
        data = encoded([PlainRecord(at_ms, None, b"v")])
        if NOW_MS - 10 <= at_ms <= NOW_MS + 20:
            assert len(read(data, limits)) == 1
        else:
            with pytest.raises(RefusedRecordsError):
                read(data, limits)
        assert len(read(data, replace(limits, log_append_time=True))) == 1


def test_bytes_after_the_batch_that_are_no_batch_are_left_out() -> None:
    data = batch(b"v")
    assert check_frame(data + b"\0" * 11, VERSION) == data


START = b"\0\0\0\x02k\x02v"
"""Attributes, time and number of a record, its key and its value; its headers follow."""


@pytest.mark.parametrize(
    ("size", "body", "error"),
    [
        (7, START + b"\0", InvalidRecordError),  # smaller than its fields
        (9, START + b"\0\0", InvalidRecordError),  # larger than its fields
        (9, START + b"\0", InvalidRecordError),  # larger than what is there
        (-1, START + b"\0", InvalidRecordError),
        (8, START + b"\x01", InvalidRecordError),  # -1 headers
        (11, START + b"\x02\x02\xff\x01", InvalidRecordError),  # a header name that is not UTF-8
        (8, b"\0" + b"\x80" * 10 + START[2:] + b"\0", UnknownServerError),  # a time of eleven bytes
        (8, b"\0\0" + b"\x80" * 5 + START[3:] + b"\0", UnknownServerError),  # a number of six bytes
    ],
)
def test_a_record_that_can_not_be_read(size: int, body: bytes, error: type[Exception]) -> None:
    assert len(read(with_section(varint(8) + START + b"\0"))) == 1
    with pytest.raises(error):
        read(with_section(varint(size) + body))


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_that_were_cut_off(name: str) -> None:
    found = codec(name)
    whole = found.compress(varint(8) + START + b"\0")
    assert len(read(with_section(whole, found.attribute))) == 1
    for size in range(1, 12):
        with pytest.raises((UnknownServerError, InvalidRecordError)):
            read(with_section(whole[:size], found.attribute))
