"""RecordMetadata: one is made for each awaited record."""

from libc.stdint cimport int32_t, int64_t

cdef object new_record_metadata(str topic, int32_t partition, int64_t offset, int64_t timestamp_ms, int32_t key_size,
                                int32_t value_size)
