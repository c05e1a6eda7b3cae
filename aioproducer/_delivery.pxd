"""Delivery: the end of one record; ProduceRequestResult: the end of one batch, shared by its Deliveries."""

import cython

from libc.stdint cimport int32_t, int64_t

from aioproducer._delivery_ledger cimport DeliveryLedger
from aioproducer._tally cimport Share, Tally


cdef enum Mark:
    # State of one record's Delivery; one byte each.
    LIVE = 0        # held by the program, not observed
    OBSERVED = 1    # awaited, asked, or given a callback
    DROPPED = 2     # gone without being observed


@cython.final
cdef class ProduceRequestResult:
    """Where and how one batch ended."""
    cdef readonly int32_t record_count
    cdef int32_t marks_capacity
    cdef unsigned char* marks               # one Mark per record; NULL once no failure can go unobserved
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t serial            # of its batch; a flush covers the serials up to its own
    cdef readonly bint done
    cdef readonly object error              # KafkaError, or None once acknowledged
    cdef int64_t base_offset                # once acknowledged; -1: not reported
    cdef int64_t log_append_time_ms         # once acknowledged; -1: the records keep their own time
    cdef dict record_errors                 # index -> error, where the broker named records (KIP-467)
    cdef list waiters                       # futures of suspended awaits
    cdef dict callbacks                     # index -> (fn, delivery, context), or a list of them
    cdef list pieces                        # of a split batch: (first index, result), ascending
    cdef Share shares                       # of send_many and send_arrow: which call counts which records
    cdef int64_t live_failed                # after a failure: records whose Deliveries are still LIVE
    cdef DeliveryLedger ledger

    cdef int32_t add_record(self) except -1
    cdef int assign(self, int32_t index, Tally tally) except -1
    cdef Share share_of(self, Tally tally)
    cdef void observe(self, int32_t index)
    cdef void one_live_less(self)
    cdef object error_of(self, int32_t index)
    cdef object own_error(self, int32_t index)
    cdef int64_t count_marks(self, unsigned char mark) noexcept
    cpdef complete(self, int64_t base_offset, int64_t log_append_time_ms)
    cdef void finish(self)
    cdef void abandon(self)
    cdef void drop(self, int32_t index)


@cython.final
cdef class Delivery:
    """The end of one record."""
    cdef ProduceRequestResult owner
    cdef int32_t index
    cdef int32_t key_size
    cdef int32_t value_size
    cdef int64_t timestamp_ms

    cdef ProduceRequestResult settled(self)
    cdef object outcome(self)


cdef ProduceRequestResult new_result(str topic, int32_t partition, DeliveryLedger ledger)


cdef Delivery new_delivery(ProduceRequestResult result, int32_t index, Py_ssize_t key_size, Py_ssize_t value_size,
                           int64_t timestamp_ms)


@cython.final
cdef class DeliveryWaiter:
    """One await of one Delivery."""
    cdef Delivery delivery

    cdef object checked_step(self)
    cdef object step(self)


cdef DeliveryWaiter new_waiter(Delivery delivery)
