"""RecordFeed: admits the records of one send_many, slice by slice."""

import cython

from aioproducer._admission cimport Admission
from aioproducer._tally cimport Tally


cdef enum FeedState:
    FED             # nothing is left
    TURN_DUE        # the loop is due a turn
    BLOCKED         # the next record has to wait for metadata or memory
    CLOSED          # the producer admits nothing
    BROKEN          # the caller's iterable raised
    EMPTY           # the next records must be fetched from the source


@cython.final
cdef class RecordFeed:
    cdef Admission producer
    cdef Tally tally
    cdef object topic
    cdef object iterator            # None: records come by offer()
    cdef int stride                 # records between looks at the clock
    cdef object held                # the next record to append
    cdef bint holds
    cdef object headers             # of the held record, in a form that can be read twice
    cdef readonly object error

    cdef bint fetch(self) except -1
    cdef bint admit_held(self) except -1
