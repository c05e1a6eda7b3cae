"""The answers to Produce."""

import cython

from libc.stdint cimport int16_t, int32_t, int64_t


@cython.final
cdef class PartitionProduceResponse:
    """The end of one batch."""
    cdef readonly object topic
    cdef readonly int32_t partition
    cdef readonly int16_t error_code
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly int64_t log_start_offset
    cdef readonly list record_errors
    cdef readonly object error_message
    cdef readonly int32_t leader_id
    cdef readonly int32_t leader_epoch


@cython.final
cdef class ProduceResponse:
    """A decoded answer."""
    cdef readonly list partitions
    cdef readonly int32_t throttle_time_ms
    cdef readonly list node_endpoints
