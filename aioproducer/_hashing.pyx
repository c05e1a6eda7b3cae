"""Hashes of keys: murmur2 as in Kafka's own partitioner, FNV-1a as in Sarama's; CRC-32C is the crc32c package's."""

from aioproducer._varint cimport int32_t, int64_t, uint32_t


cdef uint32_t murmur2_raw(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t k
    cdef Py_ssize_t rest = size
    while rest >= 4:
        # Kafka reads the four bytes little endian on every machine.
        k = data[0] | (<uint32_t>data[1] << 8) | (<uint32_t>data[2] << 16) | (<uint32_t>data[3] << 24)
        k *= m
        k ^= k >> 24
        h = (h * m) ^ (k * m)
        data += 4
        rest -= 4
    if rest > 0:
        if rest == 3:
            h ^= <uint32_t>data[2] << 16
        if rest >= 2:
            h ^= <uint32_t>data[1] << 8
        h = (h ^ data[0]) * m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


def murmur2(bytes data not None):
    return <int32_t>murmur2_raw(<const unsigned char*>data, len(data))


def fnv1a(bytes data not None):
    cdef uint32_t h = 0x811C9DC5
    cdef const unsigned char* at = <const unsigned char*>data
    cdef Py_ssize_t i
    for i in range(len(data)):
        h = (h ^ at[i]) * <uint32_t>0x01000193
    return -<int64_t><int32_t>h if <int32_t>h < 0 else <int64_t>h
