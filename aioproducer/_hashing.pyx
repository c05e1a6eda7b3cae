"""Hashes of keys: murmur2 as in Kafka's own partitioner, CRC-32 as in librdkafka's, FNV-1a as in Sarama's.

The CRC-32C of batches is the crc32c package's.
"""

from aioproducer._varint cimport int32_t, uint32_t

cdef uint32_t CRC32_OF_BYTE[256]


cdef void fill_crc32_of_byte() noexcept:
    cdef uint32_t byte, crc
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (<uint32_t>0xEDB88320 if crc & 1 else <uint32_t>0)
        CRC32_OF_BYTE[byte] = crc


fill_crc32_of_byte()


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


cdef uint32_t crc32_raw(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """A byte at a time: keys are short, and zlib's function takes Python objects."""
    cdef uint32_t crc = 0xFFFFFFFF
    cdef Py_ssize_t i
    for i in range(size):
        crc = CRC32_OF_BYTE[(crc ^ data[i]) & 0xFF] ^ (crc >> 8)
    return ~crc


cdef uint32_t fnv1a_raw(const unsigned char* data, Py_ssize_t size) noexcept nogil:
    """Sarama takes the absolute value of the signed hash."""
    cdef uint32_t h = 0x811C9DC5
    cdef Py_ssize_t i
    for i in range(size):
        h = (h ^ data[i]) * <uint32_t>0x01000193
    return 0 - h if h >> 31 else h


def fnv1a(bytes data not None):
    return fnv1a_raw(<const unsigned char*>data, len(data))
