"""The codecs of record batches: name, attribute bits, compress, decompress.

Only the records section of a batch is compressed. Every codec releases the interpreter lock while it works (measured:
two threads that compress 1 MiB inputs on two cores take 1.02 to 1.10 times as long as one thread that does half the
work), so a large batch can be sealed in a worker thread while the event loop runs.

Source: Kafka's record batch format; KIP-390 (levels), KIP-110 (zstd).
"""

from __future__ import annotations

import functools
import struct
import sys
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import TypeAlias

import lz4.frame
import zstandard

from aioproducer.errors import ConfigError, ProtocolError

Data: TypeAlias = bytes | bytearray | memoryview

_GZIP_CONTAINER = 16 + zlib.MAX_WBITS
_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_JAVA_DEFAULT_LZ4_LEVEL = 9
_LZ4_SMALL_BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Codec:
    """One way to compress the records of a batch."""

    name: str
    """The value of ``compression_type``."""
    attribute: int
    """Bits 0 to 2 of the batch attributes."""
    library_level: Callable[[int | None], int] = field(repr=False)
    """Maps Kafka's level (None: the default) to the library's."""
    inline_limits: tuple[tuple[int, int], ...] = field(repr=False)
    """(from this library level, bytes), ascending: sizes that compress within about 0.3 ms."""
    deflate: Callable[[Data, int], bytes] = field(repr=False)
    inflate: Callable[[Data, int], bytes] = field(repr=False)

    @property
    def inline_limit_bytes(self) -> int:
        """The largest input to compress on the event loop at the default level."""
        return self.inline_limit(None)

    def inline_limit(self, level: int | None) -> int:
        """The largest input, in bytes, to compress on the event loop at this level; more belongs in a worker thread."""
        library_level = self.library_level(level)
        return next(limit for start, limit in reversed(self.inline_limits) if start <= library_level)

    def compress(self, data: Data, level: int | None = None) -> bytes:
        """Compress a contiguous records section; ``level`` as in Kafka's ``compression.<codec>.level``."""
        return self.deflate(data, self.library_level(level))

    def decompress(self, data: Data, limit_bytes: int) -> bytes:
        """Undo `compress`, or what any other client wrote.

        Raises:
            ProtocolError: the data is corrupt, cut off, followed by other bytes, or larger than ``limit_bytes`` when
                decompressed (detected before that much memory is allocated).
        """
        try:
            plain = self.inflate(data, limit_bytes)
        except ProtocolError:
            raise
        except Exception as error:  # each library raises its own exceptions, even RuntimeError
            raise ProtocolError(f"corrupt {self.name} data: {error}") from error
        if len(plain) > limit_bytes:
            raise _too_large(self.name, limit_bytes)
        return plain


def codec(name: str) -> Codec:
    """The codec of a ``compression_type``.

    Raises:
        ConfigError: there is no such codec, or the package it needs is not installed.
    """
    found = next((known for known in _CODECS if known.name == name), None)
    if found is None:
        names = ", ".join(known.name for known in _CODECS)
        raise ConfigError(f"compression_type={name!r} is unknown: one of {names}")
    if found.name == "snappy":
        _cramjam()
    return found


def codec_by_attribute(bits: int) -> Codec:
    """The codec of bits 0 to 2 of the batch attributes.

    Raises:
        ProtocolError: no codec has these bits.
        ConfigError: the package it needs is not installed.
    """
    if not 0 <= bits < len(_CODECS):
        raise ProtocolError(f"unknown codec {bits} in the batch attributes")
    return codec(_CODECS[bits].name)


def _too_large(name: str, limit_bytes: int) -> ProtocolError:
    return ProtocolError(f"{name} data decompresses to more than the limit of {limit_bytes} bytes")


def _no_level(level: int | None) -> int:
    return 0


# --- none -------------------------------------------------------------------------------------------------------------


def _copy(data: Data, _: int) -> bytes:
    return bytes(data)


# --- gzip -------------------------------------------------------------------------------------------------------------


def _gzip_level(level: int | None) -> int:
    return zlib.Z_DEFAULT_COMPRESSION if level is None else level


def _gzip(data: Data, level: int) -> bytes:
    return zlib.compress(data, level, _GZIP_CONTAINER)


def _gunzip(data: Data, limit_bytes: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_CONTAINER)
    plain = stream.decompress(data, limit_bytes + 1)
    if len(plain) <= limit_bytes:
        _check_end("gzip", stream.eof, stream.unused_data)
    return plain


def _check_end(name: str, ended: bool, rest: bytes | None) -> None:
    if not ended:
        raise ProtocolError(f"corrupt {name} data: cut off")
    if rest:
        raise ProtocolError(f"corrupt {name} data: {len(rest)} bytes after its end")


# --- snappy, as a xerial stream ---------------------------------------------------------------------------------------


@functools.cache
def _cramjam() -> ModuleType:
    try:
        import cramjam
    except ImportError as error:
        raise ConfigError(
            "compression_type='snappy' needs the package cramjam: pip install 'aioproducer[snappy]'"
        ) from error
    return cramjam


def _snappy(data: Data, _: int) -> bytes:
    compress_raw = _cramjam().snappy.compress_raw
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _unsnappy(data: Data, limit_bytes: int) -> bytes:
    snappy = _cramjam().snappy
    view = memoryview(data)
    if view[: len(_XERIAL_HEADER)] != _XERIAL_HEADER:
        raise ProtocolError("corrupt snappy data: no xerial header")
    plain = bytearray()
    start = len(_XERIAL_HEADER)
    while start < len(view):
        (size,) = struct.unpack_from(">i", view, start)
        block = view[start + 4 : start + 4 + size]
        if size <= 0 or len(block) != size:
            raise ProtocolError(f"corrupt snappy data: a block of {size} bytes at {start} of {len(view)}")
        # The block states its own size, and that much memory is allocated at once: check it first.
        if len(plain) + snappy.decompress_raw_len(block) > limit_bytes:
            raise _too_large("snappy", limit_bytes)
        plain += memoryview(snappy.decompress_raw(block))
        start += 4 + size
    return bytes(plain)


# --- lz4 frame --------------------------------------------------------------------------------------------------------


def _lz4_level(level: int | None) -> int:
    """Kafka's default level 9 means the fast compressor; every other level the high compressor, which starts at 3."""
    return 0 if level is None or level == _JAVA_DEFAULT_LZ4_LEVEL else max(level, lz4.frame.COMPRESSIONLEVEL_MINHC)


def _lz4(data: Data, level: int) -> bytes:
    # Linked blocks, this library's default, are refused by brokers. A context kept between calls was measured slower
    # than this one call (16 KiB: 11.1 us against 9.7 us; 1 KiB: 2.7 us against 1.6 us), as it needs three calls.
    # Each independent block starts with an empty dictionary, and readers allocate a buffer of the block size: data
    # that fits goes into one block of 64 KiB as in Java, larger data into blocks of 256 KiB (measured on 256 KiB of
    # JSON records: 0.53 against 0.73 GB/s at 100 bytes a record, 0.45 against 0.55 at 1 KiB).
    # The fast compressor's acceleration, which negative levels turn on, was tried and is not used: with the JSON
    # records of benchmarks/payloads.py at 1 KB, -2 to -4 are 1.1 to 1.2 times as fast for 5 to 13 points of ratio
    # (57 % to 63-71 %), -8 is 1.7 times as fast for 86 %.
    is_small = len(data) <= _LZ4_SMALL_BLOCK_BYTES
    compressed: bytes = lz4.frame.compress(
        data,
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB if is_small else lz4.frame.BLOCKSIZE_MAX256KB,
        block_linked=False,
        store_size=False,
    )
    return compressed


def _unlz4(data: Data, limit_bytes: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = stream.decompress(data, max_length=limit_bytes + 1)
    if len(plain) <= limit_bytes:
        _check_end("lz4", stream.eof, stream.unused_data)
    return plain


# --- zstd -------------------------------------------------------------------------------------------------------------


class _ThreadState(threading.local):
    """One compressor per level and thread: they must not be shared, and creating one costs 15 us."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}


_thread = _ThreadState()


def _zstd_level(level: int | None) -> int:
    return 3 if level is None else level


def _zstd_compressor(level: int) -> zstandard.ZstdCompressor:
    """The calling thread's compressor (16 KiB: 18 us with a kept one, 36 us with a new one)."""
    compressor = _thread.compressors.get(level)
    if compressor is None:
        compressor = _thread.compressors[level] = zstandard.ZstdCompressor(level=level)
    return compressor


def _zstd(data: Data, level: int) -> bytes:
    return _zstd_compressor(level).compress(data)


def _unzstd(data: Data, limit_bytes: int) -> bytes:
    # The library believes any content size in the header; Java writes none (-1).
    if zstandard.frame_content_size(data) > limit_bytes:
        raise _too_large("zstd", limit_bytes)
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=limit_bytes + 1, allow_extra_data=False)


# Limits measured on one core of a cloud machine with the JSON records of benchmarks/payloads.py (random words and
# digits, slower than random bytes for every codec). Nanoseconds a byte at these sizes: gzip 16 (level 7 on: 17 to
# 55); snappy 2.0; lz4 1.8 (high compressor: 6 to 16, from level 10: 21 to 44); zstd 3.5 (from level 5: 9 to 19; from
# level 9: 20 to 27; from level 12: 66 to 350).
_CODECS = (
    Codec("none", 0, _no_level, ((0, sys.maxsize),), _copy, _copy),
    Codec("gzip", 1, _gzip_level, ((-1, 16 * 1024), (7, 4 * 1024)), _gzip, _gunzip),
    Codec("snappy", 2, _no_level, ((0, 144 * 1024),), _snappy, _unsnappy),
    Codec("lz4", 3, _lz4_level, ((0, 176 * 1024), (3, 16 * 1024), (10, 8 * 1024)), _lz4, _unlz4),
    Codec(
        "zstd",
        4,
        _zstd_level,
        ((-131072, 80 * 1024), (5, 16 * 1024), (9, 8 * 1024), (11, 4 * 1024), (12, 2 * 1024)),
        _zstd,
        _unzstd,
    ),
)
