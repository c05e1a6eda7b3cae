"""TopicIndex: topics by name."""

import cython

from aioproducer._producer_batch cimport TopicQueues


@cython.final
cdef class TopicIndex:
    cdef dict topics            # by name
    cdef list places            # name and topic by turns, in sets of WAYS; 0 where nothing is kept
    cdef int bits               # of the number of a set,
    cdef int shift              # which are the upper ones of a hash of 64
    cdef Py_ssize_t way         # the place of its set that the next name takes
    cdef Py_ssize_t removed     # topics removed since the places were last emptied

    cdef TopicQueues find(self, str name)
    cdef TopicQueues look_up(self, str name, Py_ssize_t start)
    cdef int add(self, TopicQueues topic) except -1
    cdef int remove(self, TopicQueues topic) except -1
    cdef int empty(self, int bits) except -1
