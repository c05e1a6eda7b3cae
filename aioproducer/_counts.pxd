"""The sums behind the metrics, window by window."""

import cython

from libc.stdint cimport int64_t


cdef class Counts:
    """Sums, and maxima where the name ends with ``_max``, of one window."""


@cython.final
cdef class TopicCounts(Counts):
    cdef public int64_t batches
    cdef public int64_t batch_bytes
    cdef public int64_t records
    cdef public double compression_ratios
    cdef public int64_t errors
    cdef public int64_t retries


@cython.final
cdef class NodeCounts(Counts):
    cdef public int64_t requests
    cdef public int64_t request_bytes
    cdef public int64_t request_bytes_max
    cdef public int64_t responses
    cdef public int64_t response_bytes
    cdef public int64_t latencies
    cdef public int64_t latency_ms
    cdef public int64_t latency_ms_max


@cython.final
cdef class ProducerCounts(Counts):
    cdef public int64_t batches
    cdef public int64_t batch_bytes
    cdef public int64_t batch_bytes_max
    cdef public double compression_ratios
    cdef public int64_t queue_ms
    cdef public int64_t queue_ms_max
    cdef public int64_t records
    cdef public int64_t record_bytes
    cdef public int64_t record_bytes_max
    cdef public int64_t produce_requests
    cdef public int64_t errors
    cdef public int64_t retries
    cdef public int64_t splits
    cdef public int64_t throttles
    cdef public int64_t throttle_ms
    cdef public int64_t throttle_ms_max
    cdef public int64_t buffer_wait_ms
    cdef public int64_t buffer_exhausted
    cdef public int64_t flush_ms
    cdef public int64_t metadata_wait_ms
    cdef public int64_t txn_init_ms
    cdef public int64_t txn_begin_ms
    cdef public int64_t txn_send_offsets_ms
    cdef public int64_t txn_prepare_ms
    cdef public int64_t txn_commit_ms
    cdef public int64_t txn_abort_ms
    cdef public int64_t connections_opened
    cdef public int64_t connections_closed
    cdef public int64_t logins
    cdef public int64_t logins_failed
    cdef public int64_t logins_again
    cdef public int64_t logins_again_failed
    cdef public int64_t login_again_ms
    cdef public int64_t login_again_ms_max


@cython.final
cdef class Window:
    """The counts of one time window."""
    cdef int64_t start_ms
    cdef int64_t last_event_ms
    cdef Counts counts


@cython.final
cdef class Windows:
    """The counts of the latest windows, and of the whole lifetime."""
    cdef object make            # the class of the counts
    cdef int64_t samples
    cdef int64_t window_ms
    cdef int64_t open_until_ms
    cdef Counts lifetime
    cdef list windows           # of Window, oldest first
    cdef Window latest

    cdef Counts counts_at(self, int64_t now_ms)
    cdef int expire(self, int64_t now_ms) except -1


@cython.final
cdef class Traffic:
    """Traffic of one connection, counted for its node and for all nodes."""
    cdef Windows node
    cdef Windows network
