"""Inline varints and big-endian stores for the record and request writers (pure C, no allocation, no errors).

Record fields are zigzag varints, flexible request fields unsigned ones (KIP-482); both put the low seven bits first.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    static inline uint16_t aiop_be16(uint16_t x) { return x; }
    static inline uint32_t aiop_be32(uint32_t x) { return x; }
    static inline uint64_t aiop_be64(uint64_t x) { return x; }
    #elif defined(_MSC_VER)
    #include <stdlib.h>
    static inline uint16_t aiop_be16(uint16_t x) { return _byteswap_ushort(x); }
    static inline uint32_t aiop_be32(uint32_t x) { return _byteswap_ulong(x); }
    static inline uint64_t aiop_be64(uint64_t x) { return _byteswap_uint64(x); }
    #else
    static inline uint16_t aiop_be16(uint16_t x) { return __builtin_bswap16(x); }
    static inline uint32_t aiop_be32(uint32_t x) { return __builtin_bswap32(x); }
    static inline uint64_t aiop_be64(uint64_t x) { return __builtin_bswap64(x); }
    #endif
    """
    uint16_t aiop_be16(uint16_t x) noexcept nogil
    uint32_t aiop_be32(uint32_t x) noexcept nogil
    uint64_t aiop_be64(uint64_t x) noexcept nogil


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Py_ssize_t uvarint_size(uint64_t value) noexcept nogil:
    cdef Py_ssize_t size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


cdef inline Py_ssize_t varint_size(int64_t value) noexcept nogil:
    return uvarint_size(zigzag(value))


cdef inline unsigned char* put_uvarint(unsigned char* p, uint64_t value) noexcept nogil:
    while value >= 0x80:
        p[0] = <unsigned char>(value | 0x80)
        p += 1
        value >>= 7
    p[0] = <unsigned char>value
    return p + 1


cdef inline unsigned char* put_varint(unsigned char* p, int64_t value) noexcept nogil:
    return put_uvarint(p, zigzag(value))


cdef inline unsigned char* put_int16(unsigned char* p, int16_t value) noexcept nogil:
    cdef uint16_t raw = aiop_be16(<uint16_t>value)
    memcpy(p, &raw, 2)
    return p + 2


cdef inline unsigned char* put_int32(unsigned char* p, int32_t value) noexcept nogil:
    cdef uint32_t raw = aiop_be32(<uint32_t>value)
    memcpy(p, &raw, 4)
    return p + 4


cdef inline unsigned char* put_int64(unsigned char* p, int64_t value) noexcept nogil:
    cdef uint64_t raw = aiop_be64(<uint64_t>value)
    memcpy(p, &raw, 8)
    return p + 8


cdef inline unsigned char* put_bytes(unsigned char* p, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size


cdef inline int16_t get_int16(const unsigned char* p) noexcept nogil:
    cdef uint16_t raw
    memcpy(&raw, p, 2)
    return <int16_t>aiop_be16(raw)


cdef inline int32_t get_int32(const unsigned char* p) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, p, 4)
    return <int32_t>aiop_be32(raw)


cdef inline int64_t get_int64(const unsigned char* p) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, p, 8)
    return <int64_t>aiop_be64(raw)


cdef inline int get_uvarint(const unsigned char* p, Py_ssize_t room, uint64_t* value) noexcept nogil:
    """Read one unsigned varint of at most ten bytes; the bytes used, or 0 if it is cut short or too long."""
    cdef int used = 0
    cdef int shift = 0
    value[0] = 0
    while used < room and used < 10:
        value[0] |= <uint64_t>(p[used] & 0x7F) << shift
        used += 1
        if p[used - 1] < 0x80:
            return used
        shift += 7
    return 0


cdef inline int get_varint(const unsigned char* p, Py_ssize_t room, int64_t* value) noexcept nogil:
    """Read one zigzag varint; the bytes used, or 0 if it is cut short or too long."""
    cdef uint64_t raw = 0
    cdef int used = get_uvarint(p, room, &raw)
    value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    return used
