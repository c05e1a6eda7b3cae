"""DeliveryLedger: what the Deliveries of one producer have in common."""

import cython

from libc.stdint cimport int64_t


@cython.final
cdef class DeliveryLedger:
    """What the Deliveries of one producer share: its loop, and the failures that nobody observed."""
    cdef public object loop
    cdef public object on_failure           # called once whenever failures wait for take_fresh()
    cdef readonly int64_t unobserved_count  # records, since the start
    cdef list entries                       # Failure, oldest first, kept while a flush may still raise it
    cdef list fresh                         # (error, records), until take_fresh()
    cdef dict unseen                        # failed results with live, unobserved Deliveries (a dict as ordered set)
    cdef int64_t clock                      # counts the ends of flushes, to tell which of them overlapped
    cdef list running                       # clock values at which the running flushes started, ascending
    cdef object called                      # deque of (callback, Delivery, context) waiting for a turn of the loop
    cdef readonly object context            # the creator's: the producer's own calls run in it
    cdef bint is_calling                    # a turn of the loop will call some of them
    cdef readonly int64_t callbacks_called  # since the start
    cdef readonly dict deadlines            # of waiters for callbacks: a turn ends at the first of these

    cdef void call_soon(self)
    cpdef void book(self, int64_t serial, object error, int64_t records)
