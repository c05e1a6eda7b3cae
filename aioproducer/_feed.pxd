"""RecordFeed: admits the records of one send_many, slice by slice."""

import cython

from aioproducer._admission cimport Admission
from aioproducer._tally cimport Tally


cdef enum FeedState:
    FED             # nothing is left
    TURN_DUE        # the loop is to have its turn
    BLOCKED         # the next record has to wait for metadata or memory
    CLOSED          # the producer admits nothing
    BROKEN          # the caller's iterable raised
    EMPTY           # the next records have to be fetched from where they come from


@cython.final
cdef class RecordFeed:
    cdef Admission producer
    cdef Tally tally
    cdef object topic
    cdef object iterator            # None: records come by offer()
    cdef int stride                 # records between looks at the clock
    cdef object held                # the record that is to go next
    cdef bint holds
    cdef object headers             # of the held record, as they can be read twice
    cdef readonly object error

    cdef bint fetch(self) except -1
    cdef bint admit_held(self) except -1
