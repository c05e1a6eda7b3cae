"""murmur2 as Kafka's own partitioner computes it."""

from libc.stdint cimport uint32_t

cdef uint32_t murmur2_raw(const unsigned char* data, Py_ssize_t size) noexcept nogil
