"""Tally: how the records of one send_many or send_arrow ended; Share: the records of one batch that belong to it."""

import cython

from libc.stdint cimport int32_t, int64_t


cdef enum:
    NOT_BOOKED = -1     # instead of a batch's serial: a failure that the ledger does not have to report


cdef struct Run:
    # Records that are consecutive both in the batch and in the call.
    int32_t place       # of the first in the batch
    int32_t count
    int64_t row         # of the first in the call


@cython.final
cdef class Share:
    """The records of one batch that belong to one Tally."""
    cdef Tally tally
    cdef Share next                 # of another call, in the same batch
    cdef Run* runs                  # ascending, in place and in row
    cdef Py_ssize_t run_count
    cdef Py_ssize_t capacity
    cdef int32_t count              # of records

    cdef int add(self, int32_t place, int64_t row) except -1
    cdef int push(self, int32_t place, int32_t count, int64_t row) except -1
    cdef Share cut(self, int32_t first, int32_t count)


@cython.final
cdef class Tally:
    """Counts, offsets and errors of one call."""
    cdef readonly object topic      # the call's own, str or None
    cdef readonly int64_t rows      # received from the caller: admitted or refused
    cdef readonly int64_t admitted
    cdef readonly int64_t acked
    cdef readonly int64_t failed
    cdef int64_t refused            # of failed: those that were not admitted
    cdef readonly bint abandoned    # nobody waits for the result any longer
    cdef dict ranges                # partition, or TopicPartition of another topic -> list of (first, last) offsets
    cdef list errors                # (row, error): all until there are too many, then only the first
    cdef Py_ssize_t most_errors     # how many the result may have
    cdef int64_t errors_below       # rows from here on are too late for the result
    cdef list at_fault              # (row, error): the first of the records that a broker named as it refused a batch
    cdef list failures              # (error, records, serial of the batch, records to book), at most MAX_FAILURES
    cdef object waiter

    cdef int64_t unended(self) noexcept
    cdef void acknowledge(self, Share share, str topic, int32_t partition, int64_t base_offset)
    cdef void fail(self, Share share, int64_t serial, object error, dict record_errors)
    cdef void keep(self, int64_t row, object error)
    cdef void blame(self, Share share, dict record_errors)
    cdef list told_errors(self)
    cdef void add_range(self, list ranges, int64_t first, int64_t last)
    cdef void wake_if_ended(self)
