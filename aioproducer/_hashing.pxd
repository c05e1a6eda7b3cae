"""Hashes of keys."""

from libc.stdint cimport uint32_t

cdef uint32_t murmur2_raw(const unsigned char* data, Py_ssize_t size) noexcept nogil
cdef uint32_t crc32_raw(const unsigned char* data, Py_ssize_t size) noexcept nogil
cdef uint32_t fnv1a_raw(const unsigned char* data, Py_ssize_t size) noexcept nogil
