"""The batch writer against Kafka's bytes and against a slow writer of the same format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aioproducer._accumulator import RecordAccumulator
from aioproducer._buffer_pool import Buffer
from aioproducer._produce import encode_produce_request
from aioproducer._producer_batch import ProducerBatch
from aioproducer._record_batch import split_records
from aioproducer.compression import codec, codec_by_attribute
from aioproducer.errors import ProtocolError
from tests.reference import record_batch as reference
from tests.reference.record_batch import PlainRecord
from tests.unit.core import UNLIMITED, add_topic, batch_bytes, drain_all, end, make_accumulator

GOLDEN = Path(__file__).parents[1] / "golden"
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())["batches"]
CRC_VECTORS = json.loads((GOLDEN / "vectors.json").read_text())["crc32c"]
WRITTEN_BY_PRODUCERS = [entry for entry in MANIFEST if entry["producer_would_write"]]

TIME = 1_700_000_000_000
MAX_TIME = 2**63 - 1


def golden(entries: list[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", entries, ids=lambda entry: entry["name"])


def write(
    accumulator: RecordAccumulator, records: Sequence[PlainRecord], *, codec_name: str = "none"
) -> list[ProducerBatch]:
    """Append records to one partition and take the batches, sealed."""
    topic = accumulator.topic("orders") or add_topic(accumulator)
    for record in records:
        headers = list(record.headers) or None
        assert accumulator.append(topic, 0, record.key, record.value, headers, record.timestamp_ms, 0) is not None
    batches = drain_all(accumulator)
    if codec_name != "none":
        for batch in batches:
            batch.seal(codec(codec_name).compress(batch.contents()), codec(codec_name).attribute)
    return batches


def writer_of_one_batch(block_bytes: int) -> RecordAccumulator:
    """An accumulator that puts any number of records into one batch, of blocks of this size (61 or more)."""
    accumulator = make_accumulator(
        batch_size=block_bytes, max_request_size=UNLIMITED, buffer_memory=UNLIMITED, compresses=True
    )
    topic = add_topic(accumulator)
    for _ in range(200):
        topic.observe_ratio(0.0)  # such records leave room without end
    return accumulator


# --- Kafka's own batches ----------------------------------------------------------------------------------------------


def plain_section(batch: reference.Batch, size: int) -> bytes:
    return codec_by_attribute(batch.attributes & 7).decompress(batch.section, size)


def check_field(record: dict[str, Any], name: str, data: bytes | None) -> None:
    """Compare a key or value with the manifest, in which long ones are given as length and digest."""
    if f"{name}_len" in record:
        assert data is not None
        assert len(data) == record[f"{name}_len"]
        assert hashlib.sha256(data).hexdigest() == record[f"{name}_sha256"]
    else:
        assert data == (None if record[f"{name}_hex"] is None else bytes.fromhex(record[f"{name}_hex"]))


def headers_of(record: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(
        (header["key"], None if header["value_hex"] is None else bytes.fromhex(header["value_hex"]))
        for header in record["headers"]
    )


@golden(MANIFEST)
def test_reference_reads_kafkas_batches(entry: dict[str, Any]) -> None:
    """The slow reference codec reads each batch as Kafka does and checks its CRC-32C."""
    batch = reference.decoded((GOLDEN / entry["file"]).read_bytes())
    assert batch.header() == entry["header"]
    section = plain_section(batch, entry["records_plain_size"])
    assert hashlib.sha256(section).hexdigest() == entry["records_plain_sha256"]
    if entry["timestamp_type"] != "CreateTime":
        return
    records = reference.records_of(section, batch.records_count, batch.base_timestamp)
    assert len(records) == len(entry["records"])
    for record, told in zip(records, entry["records"], strict=True):
        assert record.timestamp_ms == told["timestamp"]
        assert record.headers == headers_of(told)
        check_field(told, "key", record.key)
        check_field(told, "value", record.value)


@golden(WRITTEN_BY_PRODUCERS)
def test_writes_what_kafka_writes(entry: dict[str, Any]) -> None:
    """The same records make the same header fields and the same records section, before compression, as in Java."""
    told = reference.decoded((GOLDEN / entry["file"]).read_bytes())
    section = plain_section(told, entry["records_plain_size"])
    records = reference.records_of(section, told.records_count, told.base_timestamp)
    accumulator = make_accumulator(batch_size=1 << 20, compresses=entry["codec"] != "none")
    (batch,) = write(accumulator, records)
    assert bytes(batch.contents()) == section
    if entry["codec"] != "none":
        batch.seal(codec(entry["codec"]).compress(batch.contents()), codec(entry["codec"]).attribute)
    header = entry["header"]
    batch.set_producer_state(
        header["producer_id"], header["producer_epoch"], header["base_sequence"], entry["is_transactional"]
    )
    ours = reference.decoded(batch_bytes(batch))
    if entry["codec"] == "none":
        assert ours == told
    else:
        depends_on_library = {"batch_length", "crc32c"}
        assert {**ours.header(), **dict.fromkeys(depends_on_library)} == {
            **told.header(),
            **dict.fromkeys(depends_on_library),
        }
        assert plain_section(ours, len(section)) == section


@golden(MANIFEST)
def test_splits_what_kafka_writes(entry: dict[str, Any]) -> None:
    """The records of Kafka's own batches are split as by the slow reader."""
    told = reference.decoded((GOLDEN / entry["file"]).read_bytes())
    section = plain_section(told, entry["records_plain_size"])
    assert split_records(section, told.records_count) == [
        (record.timestamp_ms, record.key, record.value, list(record.headers) or None)
        for record in reference.records_of(section, told.records_count, 0)
    ]


@pytest.mark.parametrize("vector", CRC_VECTORS, ids=lambda vector: vector["data_hex"][:20] or "empty")
def test_reference_crc(vector: dict[str, Any]) -> None:
    """The slow CRC-32C equals Kafka's."""
    assert reference.crc32c(bytes.fromhex(vector["data_hex"])) == vector["crc"]


# --- any records ------------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
blobs = st.one_of(st.none(), st.just(b""), st.binary(max_size=300), texts.map(str.encode))
headers = st.lists(st.tuples(texts, st.one_of(st.none(), st.binary(max_size=40))), max_size=50).map(tuple)
times = st.one_of(st.integers(TIME - 100_000, TIME + 100_000), st.integers(0, MAX_TIME))
records = st.builds(PlainRecord, times, blobs, blobs, st.one_of(st.just(()), headers))
block_sizes = st.one_of(st.integers(61, 200), st.integers(201, 2000), st.just(16384))


def sizes_around_varint_edges() -> list[int]:
    """Lengths around those at which their zigzag varint, or that of the record, takes one byte more."""
    return [edge + off for edge in (1 << 6, 1 << 13, 1 << 20) for off in range(-20, 3)]


@settings(max_examples=150)
@given(st.lists(records, min_size=1, max_size=12), block_sizes)
@example([PlainRecord(0, None, None), PlainRecord(MAX_TIME, b"", b""), PlainRecord(0, b"", None)], 61)
def test_any_records_in_blocks_of_any_size(some: list[PlainRecord], block_bytes: int) -> None:
    """Records of any content, over blocks of any size, are encoded as the slow writer does, byte for byte."""
    (batch,) = write(writer_of_one_batch(block_bytes), some)
    assert bytes(batch.contents()) == reference.encoded_section(some)
    assert batch_bytes(batch) == reference.encoded(some)
    assert batch.size_bytes == sum(len(part) for part in batch.payload())
    assert batch.wire_bytes == len(batch_bytes(batch))
    assert batch.memory_bytes >= batch.size_bytes


@settings(max_examples=100)
@given(st.lists(records, min_size=1, max_size=12), st.integers(1, 3000))
def test_batches_of_any_size(some: list[PlainRecord], batch_size: int) -> None:
    """However small, each batch is complete, records keep their order, and only a single-record batch may be larger."""
    accumulator = make_accumulator(batch_size=batch_size)
    batches = write(accumulator, some)
    read: list[PlainRecord] = []
    for batch in batches:
        told = reference.decoded(batch_bytes(batch))
        assert batch.wire_bytes <= batch_size or told.records_count == 1
        read += reference.records_of(told.section, told.records_count, told.base_timestamp)
    assert read == some
    for batch in batches:
        end(accumulator, batch)
    assert accumulator.pool.used_bytes == 0


@settings(max_examples=25)
@given(st.lists(records, min_size=1, max_size=6), st.sampled_from(["gzip", "snappy", "lz4", "zstd"]), block_sizes)
def test_a_sealed_batch_is_compressed_only_if_that_helps(some: list[PlainRecord], name: str, block_bytes: int) -> None:
    """A sealed batch names its codec, and has the same records; it stays uncompressed if compression does not help."""
    (batch,) = write(writer_of_one_batch(block_bytes), some, codec_name=name)
    told = reference.decoded(batch_bytes(batch))
    plain = reference.encoded_section(some)
    if batch.compressed is None:
        assert told.attributes == 0
        assert len(codec(name).compress(plain)) >= len(plain)
    else:
        assert told.attributes == codec(name).attribute
        assert len(told.section) < len(plain)
    assert plain_section(told, len(plain)) == plain


@pytest.mark.parametrize("size", sizes_around_varint_edges())
def test_lengths_at_varint_edges(size: int) -> None:
    """A record's length is right where the varint of the record, key or value grows."""
    value = bytes(size)
    for record in PlainRecord(TIME, None, value), PlainRecord(TIME, value, None):
        (batch,) = write(make_accumulator(), [record])
        assert bytes(batch.contents()) == reference.encoded_section([record])


@pytest.mark.parametrize("count", [1, 63, 64, 65, 127, 128, 129, 8191, 8192, 8193])
def test_offset_deltas_at_varint_edges(count: int) -> None:
    """Offset deltas are right at the edges of their varints."""
    some = [PlainRecord(TIME, None, None)] * count
    (batch,) = write(writer_of_one_batch(16384), some)
    assert bytes(batch.contents()) == reference.encoded_section(some)
    assert batch.record_count == count


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 5000])
def test_any_number_of_headers(count: int) -> None:
    """There may be thousands of headers, and names may repeat."""
    first = (("name", b"1"), ("", None), ("é", b""))
    some = [PlainRecord(TIME, b"k", b"v", first[:count] + (("name", b"v"),) * (count - 3))]
    (batch,) = write(make_accumulator(), some)
    assert batch_bytes(batch) == reference.encoded(some)


@pytest.mark.parametrize("delta", [1, -1, 63, -64, 64, 2**31, -(2**31), TIME, -TIME, MAX_TIME - TIME])
def test_timestamp_deltas_may_be_negative_and_long(delta: int) -> None:
    """Deltas may be negative and take up to ten bytes; the base is the first timestamp, the maximum the greatest."""
    some = [PlainRecord(TIME, None, b"1"), PlainRecord(TIME + delta, None, b"2"), PlainRecord(TIME, None, b"3")]
    (batch,) = write(make_accumulator(), some)
    told = reference.decoded(batch_bytes(batch))
    assert (told.base_timestamp, told.max_timestamp) == (TIME, max(TIME, TIME + delta))
    assert batch_bytes(batch) == reference.encoded(some)


def test_large_record_in_a_block_of_its_own() -> None:
    """A record above the block size gets one block of the size it needs, not a chain."""
    (batch,) = write(make_accumulator(), [PlainRecord(TIME, None, bytes(100_000))])
    assert len(batch.payload()) == 1
    assert batch.memory_bytes == batch.size_bytes


def test_header_is_made_anew() -> None:
    """Sequence and transaction may change between attempts; the bytes of an earlier attempt don't change."""
    some = [PlainRecord(TIME, b"k", b"v"), PlainRecord(TIME + 1, b"k", bytes(9000))]
    (batch,) = write(make_accumulator(), some)
    first = encode_produce_request(3, 0, None, None, -1, 0, [batch])
    before = b"".join(first)
    batch.set_producer_state(2**63 - 1, 32767, 2**31 - 1, True)
    assert batch_bytes(batch) == reference.encoded(
        some, producer_id=2**63 - 1, producer_epoch=32767, base_sequence=2**31 - 1, transactional=True
    )
    batch.set_producer_state(-1, -1, -1)
    assert batch_bytes(batch) == reference.encoded(some)
    assert b"".join(first) == before


@settings(max_examples=30)
@given(st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1), st.booleans())
def test_producer_state(producer_id: int, epoch: int, sequence: int, transactional: bool) -> None:
    """A batch's producer id, epoch and sequence are in its header."""
    some = [PlainRecord(TIME, None, b"v")]
    (batch,) = write(make_accumulator(), some)
    batch.set_producer_state(producer_id, epoch, sequence, transactional)
    assert batch_bytes(batch) == reference.encoded(
        some, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )


def test_payload_is_not_a_copy() -> None:
    """The records are sent from the memory in which they were encoded."""
    (batch,) = write(make_accumulator(), [PlainRecord(TIME, None, b"v")])
    (part,) = batch.payload()
    assert isinstance(part, memoryview)
    assert part.readonly
    assert isinstance(part.obj, Buffer)
    assert part.obj.capacity == 2048
    contents = batch.contents()
    assert isinstance(contents, memoryview)
    assert contents.obj is part.obj


def test_compressed_payload_frees_the_plain_records() -> None:
    """Once sealed, only the compressed bytes are kept."""
    accumulator = make_accumulator(compresses=True)
    (batch,) = write(accumulator, [PlainRecord(TIME, None, bytes(5000))], codec_name="lz4")
    assert accumulator.pool.used_bytes == 0
    assert batch.payload() == [batch.compressed]
    assert batch.wire_bytes == 61 + len(batch.compressed or b"") < 200
    assert batch.size_bytes > 5000
    end(accumulator, batch)
    assert (batch.compressed, batch.payload()) == (None, []), "an ended batch holds no records at all"


# --- taking records apart ---------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(records, min_size=1, max_size=8))
def test_split_records(some: list[PlainRecord]) -> None:
    """Encoded records are split into the originals."""
    base = some[0].timestamp_ms
    assert split_records(reference.encoded_section(some), len(some)) == [
        (record.timestamp_ms - base, record.key, record.value, list(record.headers) or None) for record in some
    ]


def refused(section: bytes, count: int) -> None:
    """Split bytes into a result or a ProtocolError; other errors and crashes must never happen."""
    try:
        split_records(section, count)
    except ProtocolError:
        return


SECTION = reference.encoded_section(
    [PlainRecord(TIME, b"key", b"value", (("name", b"1"), ("n", None))), PlainRecord(TIME + 70, None, b"")]
)


@pytest.mark.parametrize("size", range(len(SECTION)))
def test_cut_short(size: int) -> None:
    """A section that ends too early is refused, wherever it ends."""
    with pytest.raises(ProtocolError):
        split_records(SECTION[:size], 2)


@pytest.mark.parametrize("count", [0, 1, 3, 2**31])
def test_wrong_count(count: int) -> None:
    """So is one that holds more or fewer records than it should."""
    with pytest.raises(ProtocolError):
        split_records(SECTION, count)


@pytest.mark.parametrize("at", range(len(SECTION)))
def test_any_byte_wrong(at: int) -> None:
    """A wrong byte is refused, or changes content, but nothing else happens."""
    for byte in range(256):
        refused(SECTION[:at] + bytes([byte]) + SECTION[at + 1 :], 2)


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 5))
@example(b"\xff" * 20, 1)
@example(b"\x80" * 20, 1)
def test_random_bytes(data: bytes, count: int) -> None:
    """Random bytes cause nothing but ProtocolError."""
    refused(data, count)


@pytest.mark.parametrize("length", [2**31, 2**62, -2, -(2**62)])
def test_lengths_are_not_believed(length: int) -> None:
    """Huge and negative lengths of a record, key, header name or header value are refused or read as null."""
    claim = reference.varint(length)
    for body in (
        claim,
        claim + b"\0\0\0" + reference.varint(length // 2),
        reference.varint(40) + b"\0\0\0" + claim,
        reference.varint(40) + b"\0\0\0\1\1" + claim,
        reference.varint(40) + b"\0\0\0\1\1\2" + claim + b"\1",
        reference.varint(40) + b"\0\0\0\1\1\2\0" + claim,
    ):
        refused(body + bytes(40), 1)


def test_a_record_within_another() -> None:
    """A record has nothing behind its fields, even if that could be read as the next record."""
    within = reference.encoded_section([PlainRecord(TIME, None, None)])
    body = b"\0\0\0\1\1\0" + within
    with pytest.raises(ProtocolError):
        split_records(reference.varint(len(body)) + body, 2)


def test_header_names_are_utf8() -> None:
    """A header has a name, and it is text."""
    for name in b"\1", b"\2\xff":
        body = b"\0\0\0\1\1\2" + name + b"\0"
        with pytest.raises(ProtocolError, match="name"):
            split_records(reference.varint(len(body)) + body, 1)


def test_varints_have_at_most_ten_bytes() -> None:
    """That is what 64 bits take; bytes that add nothing are read, as Kafka does, up to there."""

    def section(delta: bytes) -> bytes:
        body = b"\0" + delta + b"\0\1\1\0"
        return reference.varint(len(body)) + body

    smallest = b"\xff" * 9 + b"\1"
    assert split_records(section(smallest), 1) == [(-(2**63), None, None, None)]
    assert split_records(section(b"\x80" * 9 + b"\0"), 1) == [(0, None, None, None)]
    with pytest.raises(ProtocolError):
        split_records(section(b"\x80" * 10 + b"\0"), 1)
