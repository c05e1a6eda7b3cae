"""Codecs: data of other clients can be read, brokers accept our data, and bad input gives one kind of error."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import struct
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aioproducer import compression
from aioproducer.compression import codec, codec_by_attribute
from aioproducer.errors import ConfigError, ProtocolError

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = ["none", "gzip", "snappy", "lz4", "zstd"]
COMPRESSING = NAMES[1:]
HEADER_BYTES = 61
LIMIT = 1 << 24

LEVELS = {
    "gzip": [-1, *range(1, 10)],
    "lz4": list(range(1, 18)),
    "zstd": [-131072, -7, -1, 0, 1, 3, 9, 19, 22],
}
EVERY_LEVEL = [(name, level) for name, levels in LEVELS.items() for level in [None, *levels]]

RECORDS = b"".join(
    json.dumps({"flight": n, "carrier": "UA", "tail": f"N{n * 7919 % 99999:05d}", "origin": "JFK"}).encode()
    for n in range(2000)
)
NOISE = random.Random(7).randbytes(200_000)


def golden_batches() -> list[dict[str, Any]]:
    batches: list[dict[str, Any]] = json.loads((GOLDEN / "manifest.json").read_text())["batches"]
    return batches


def test_reads_every_batch_that_java_compressed() -> None:
    """Kafka's own classes wrote these; zstd comes without a content size, snappy and lz4 in several blocks."""
    seen = set()
    for batch in golden_batches():
        section = (GOLDEN / batch["file"]).read_bytes()[HEADER_BYTES:]
        plain = codec_by_attribute(batch["header"]["attributes"] & 7).decompress(section, batch["records_plain_size"])
        assert len(plain) == batch["records_plain_size"], batch["name"]
        assert hashlib.sha256(plain).hexdigest() == batch["records_plain_sha256"], batch["name"]
        seen.add(batch["codec"])
    assert seen == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "data", [b"", b"x", RECORDS, NOISE, bytes(100_000)], ids=["empty", "one", "json", "noise", "0"]
)
def test_comes_back_as_it_went_in(name: str, data: bytes) -> None:
    one = codec(name)
    assert one.decompress(one.compress(data), len(data)) == data


@pytest.mark.parametrize(("name", "level"), EVERY_LEVEL)
def test_every_level_of_kip_390(name: str, level: int | None) -> None:
    one = codec(name)
    data = RECORDS[:20_000]
    packed = one.compress(data, level)
    assert one.decompress(packed, len(data)) == data
    # The fastest zstd levels only store; all others win on JSON.
    assert len(packed) < len(data) + 64
    if level is None or level > -7:
        assert len(packed) < len(data) / 2


@given(data=st.binary(max_size=70_000), name=st.sampled_from(NAMES))
def test_any_bytes_come_back(data: bytes, name: str) -> None:
    one = codec(name)
    assert one.decompress(one.compress(data), len(data)) == data


@pytest.mark.parametrize("name", NAMES)
def test_takes_any_contiguous_bytes_like(name: str) -> None:
    one = codec(name)
    expected = one.compress(RECORDS[100:5000])
    assert type(expected) is bytes
    assert one.compress(bytearray(RECORDS[100:5000])) == expected
    assert one.compress(memoryview(RECORDS)[100:5000]) == expected
    assert one.compress(memoryview(bytearray(RECORDS))[100:5000]) == expected
    assert one.decompress(memoryview(bytearray(expected)), 4900) == RECORDS[100:5000]


def test_gzip_is_one_plain_member_without_a_time() -> None:
    packed = codec("gzip").compress(RECORDS)
    assert packed[:4] == b"\x1f\x8b\x08\x00"
    assert packed[4:8] == bytes(4)
    assert gzip.decompress(packed) == RECORDS


def test_snappy_is_a_xerial_stream_of_32_kib_blocks() -> None:
    packed = codec("snappy").compress(RECORDS)
    assert packed[:16] == bytes.fromhex("82534e41505059000000000100000001")
    start, blocks = 16, []
    while start < len(packed):
        (size,) = struct.unpack_from(">i", packed, start)
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[start + 4 : start + 4 + size])))
        start += 4 + size
    assert [len(block) for block in blocks[:-1]] == [32768] * (len(RECORDS) // 32768)
    assert b"".join(blocks) == RECORDS


@pytest.mark.parametrize("level", [None, *LEVELS["lz4"]])
def test_lz4_blocks_are_independent(level: int | None) -> None:
    """Brokers refuse linked blocks; the rest of the descriptor equals Java's, except for the block size."""
    for data, descriptor in ((RECORDS[:65536], "604082"), (RECORDS + bytes(65536), "6050fb")):
        packed = codec("lz4").compress(data, level)
        info = lz4.frame.get_frame_info(packed)
        assert not info["block_linked"]
        assert packed[4:7] == bytes.fromhex(descriptor)
        assert lz4.frame.decompress(packed) == data


def test_lz4_level_nine_is_the_fast_compressor() -> None:
    """KIP-390's default 9 is not a level of the high compressor; 8 and 10 are."""
    one = codec("lz4")
    assert one.compress(RECORDS, 9) == one.compress(RECORDS) == one.compress(RECORDS, None)
    assert len(one.compress(RECORDS, 9)) > len(one.compress(RECORDS, 8)) > len(one.compress(RECORDS, 17))


def test_zstd_is_one_frame() -> None:
    packed = codec("zstd").compress(RECORDS)
    assert packed[:4] == bytes.fromhex("28b52ffd")
    assert zstandard.ZstdDecompressor().decompress(packed, allow_extra_data=False) == RECORDS


def test_zstd_without_a_content_size_is_read() -> None:
    stream = zstandard.ZstdCompressor(level=3).compressobj()
    packed = stream.compress(RECORDS) + stream.flush()
    assert zstandard.frame_content_size(packed) == -1
    assert codec("zstd").decompress(packed, len(RECORDS)) == RECORDS


@pytest.mark.parametrize("name", NAMES)
def test_limit_is_exact(name: str) -> None:
    one = codec(name)
    packed = one.compress(RECORDS)
    assert one.decompress(packed, len(RECORDS)) == RECORDS
    with pytest.raises(ProtocolError, match=f"limit of {len(RECORDS) - 1} bytes"):
        one.decompress(packed, len(RECORDS) - 1)


@pytest.mark.parametrize("name", COMPRESSING)
def test_bomb_ends_at_the_limit(name: str) -> None:
    """64 MiB of zeros in a few KiB: the limit stops it."""
    one = codec(name)
    bomb = one.compress(bytes(1 << 26))
    with pytest.raises(ProtocolError, match="limit of 1000 bytes"):
        one.decompress(bomb, 1000)


def test_zstd_that_lies_about_its_size() -> None:
    """A content size of 2^60 must not be asked of the allocator."""
    frame = bytes.fromhex("28b52ffd") + b"\xc0\x38" + (1 << 60).to_bytes(8, "little") + bytes(20)
    with pytest.raises(ProtocolError, match="limit of"):
        codec("zstd").decompress(frame, LIMIT)


def test_snappy_block_that_lies_about_its_size() -> None:
    block = b"\xff\xff\xff\xff\x0f" + bytes(10)
    stream = codec("snappy").compress(b"") + struct.pack(">i", len(block)) + block
    with pytest.raises(ProtocolError, match="limit of"):
        codec("snappy").decompress(stream, LIMIT)


@pytest.mark.parametrize("name", COMPRESSING)
def test_truncated_or_followed_by_more(name: str) -> None:
    """Every cut either is an error or, where the format has no end mark, ends at a block boundary."""
    one = codec(name)
    packed = one.compress(RECORDS[:5000])
    for end in range(len(packed)):
        if name == "snappy" and end == 16:
            assert one.decompress(packed[:end], LIMIT) == b""
            continue
        with pytest.raises(ProtocolError):
            one.decompress(packed[:end], LIMIT)
    with pytest.raises(ProtocolError):
        one.decompress(packed + b"\x01\x02\x03\x04\x05", LIMIT)


@given(data=st.binary(max_size=300), name=st.sampled_from(COMPRESSING), headed=st.booleans())
def test_garbage_is_a_protocol_error(data: bytes, name: str, headed: bool) -> None:
    one = codec(name)
    if headed:
        data = one.compress(b"")[: {"gzip": 10, "snappy": 16, "lz4": 7, "zstd": 4}[name]] + data
    try:
        plain = one.decompress(data, 10_000)
    except ProtocolError:
        return
    assert len(plain) <= 10_000


@given(st.data(), st.sampled_from(COMPRESSING))
def test_flipped_bytes_are_an_error_or_other_bytes(data: st.DataObject, name: str) -> None:
    one = codec(name)
    packed = bytearray(one.compress(RECORDS[:3000]))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        plain = one.decompress(packed, 10_000)
    except ProtocolError:
        return
    assert len(plain) <= 10_000


def test_codecs_by_name_and_by_bits_are_the_same() -> None:
    for bits, name in enumerate(NAMES):
        assert codec_by_attribute(bits) is codec(name)
        assert codec(name).attribute == bits
        assert codec(name).name == name


@pytest.mark.parametrize("bits", [-1, 5, 6, 7])
def test_unknown_bits(bits: int) -> None:
    with pytest.raises(ProtocolError, match=f"unknown codec {bits}"):
        codec_by_attribute(bits)


def test_unknown_name() -> None:
    with pytest.raises(ConfigError, match="compression_type='brotli' is unknown: one of none, gzip, snappy, lz4, zstd"):
        codec("brotli")


def test_snappy_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    compression._cramjam.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'aioproducer\[snappy\]'"):
        codec("snappy")
    assert [codec(name).name for name in NAMES if name != "snappy"] == ["none", "gzip", "lz4", "zstd"]


def test_the_default_levels_are_kafka_s() -> None:
    for name, level in (("gzip", 6), ("lz4", 9), ("zstd", 3)):
        assert codec(name).compress(RECORDS) == codec(name).compress(RECORDS, level)


def test_inline_limits_shrink_with_the_level() -> None:
    assert codec("none").inline_limit_bytes == sys.maxsize
    for name, levels in LEVELS.items():
        one = codec(name)
        limits = [one.inline_limit(level) for level in levels if (name, level) != ("lz4", 9)]
        assert limits == sorted(limits, reverse=True)
        assert limits[-1] < one.inline_limit_bytes
        assert one.inline_limit_bytes == one.inline_limit(None) <= 256 * 1024
    assert codec("lz4").inline_limit(9) == codec("lz4").inline_limit_bytes


@pytest.mark.parametrize("name", COMPRESSING)
def test_threads_do_not_disturb_each_other(name: str) -> None:
    """Batches are sealed in worker threads: a compressor is never shared between two of them."""
    one = codec(name)
    inputs = [RECORDS[n:] for n in range(64)]
    barrier = threading.Barrier(4)

    def work(part: int) -> list[bytes]:
        barrier.wait(10)
        return [one.compress(data) for data in inputs[part::4]]

    with ThreadPoolExecutor(4) as pool:
        for part, outputs in enumerate(pool.map(work, range(4))):
            assert [one.decompress(packed, LIMIT) for packed in outputs] == inputs[part::4]


def test_gzip_decodes_what_zlib_wrote_at_any_window() -> None:
    for bits in (9, 12, 15):
        stream = zlib.compressobj(6, zlib.DEFLATED, 16 + bits)
        packed = stream.compress(RECORDS) + stream.flush()
        assert codec("gzip").decompress(packed, len(RECORDS)) == RECORDS
