"""murmur2 as Kafka's clients compute it, in plain Python."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash as a signed 32-bit number."""
    hashed = _SEED ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _WORD
        word = (word ^ word >> 24) * _M & _WORD
        hashed = hashed * _M & _WORD ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _M & _WORD
    hashed = (hashed ^ hashed >> 13) * _M & _WORD
    hashed ^= hashed >> 15
    return hashed - (1 << 32) if hashed >> 31 else hashed
