"""RecordMetadata: one is made for each awaited record."""

from libc.stdint cimport int32_t, int64_t


cdef class RecordMetadata:
    cdef str in_topic
    cdef int32_t in_partition
    cdef int64_t at_offset
    cdef int64_t at_ms
    cdef int32_t key_size
    cdef int32_t value_size
    cdef tuple kept                         # the fields as Python's objects; None before the first look

    cdef tuple values(self)


cdef object new_record_metadata(str topic, int32_t partition, int64_t offset, int64_t timestamp_ms, int32_t key_size,
                                int32_t value_size)
