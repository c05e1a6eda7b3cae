"""TopicIndex: topics by name."""

import cython

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from aioproducer._producer_batch cimport TopicQueues

cdef enum:
    WAYS = 4            # places in a set: with a name and a topic each, a cache line
    FEWEST_BITS = 4     # of the number of a set
    MOST_BITS = 13      # 512 KiB of places


@cython.final
cdef class TopicIndex:
    cdef dict topics            # by name
    cdef list places            # name and topic by turns, in sets of WAYS; 0 where nothing is kept
    cdef PyObject** items       # of `places`, whose length never changes
    cdef int bits               # of the number of a set,
    cdef int shift              # which are the upper ones of a hash of 64
    cdef Py_ssize_t way         # the place of its set that the next name takes
    cdef Py_ssize_t removed     # topics removed since the places were last emptied

    cdef inline Py_ssize_t set_of(self, str name) noexcept:
        """Where the set of a name begins; the factor, the golden ratio, spreads addresses over the upper bits."""
        return 2 * WAYS * <Py_ssize_t>((<uint64_t><size_t><void*>name * <uint64_t>0x9E3779B97F4A7C15) >> self.shift)

    cdef inline TopicQueues find(self, str name):
        cdef PyObject** place = self.items + self.set_of(name)
        cdef int way
        for way in range(WAYS):
            if place[2 * way] == <PyObject*>name:
                if not (<TopicQueues>place[2 * way + 1]).forgotten:
                    return <TopicQueues>place[2 * way + 1]
                break
        return self.look_up(name)

    cdef TopicQueues look_up(self, str name)
    cdef int add(self, TopicQueues topic) except -1
    cdef int remove(self, TopicQueues topic) except -1
    cdef int empty(self, int bits) except -1
