"""TopicIndex: topics by name, found by the identity of the str where possible.

Programs with many topics keep their names and pass the same objects again and again. Comparing an address touches one
cache line; a dict reads its index, its entry, its key and the name, which with a thousand topics is a miss each. So
what the dict found is kept by the address of the name, in sets of a few places, as a CPU keeps its cache.

Always: a kept name is referenced, so no other str has its address.
"""

import cython

from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

cdef enum:
    WAYS = 4            # places in a set: with a name and a topic each, a cache line
    FEWEST_BITS = 4     # of the number of a set
    MOST_BITS = 13      # 512 KiB of places

cdef uint64_t GOLDEN_RATIO = 0x9E3779B97F4A7C15     # of 64 bits: spreads what is multiplied by it over the upper bits


@cython.final
cdef class TopicIndex:

    def __cinit__(self):
        self.topics = {}
        self.empty(FEWEST_BITS)

    cdef TopicQueues find(self, str name):
        cdef Py_ssize_t start = 2 * WAYS * <Py_ssize_t>((<uint64_t><size_t><void*>name * GOLDEN_RATIO) >> self.shift)
        cdef Py_ssize_t at
        for at in range(start, start + 2 * WAYS, 2):
            if PyList_GET_ITEM(self.places, at) == <PyObject*>name:
                if not (<TopicQueues>PyList_GET_ITEM(self.places, at + 1)).forgotten:
                    return <TopicQueues>PyList_GET_ITEM(self.places, at + 1)
                break
        return self.look_up(name, start)

    cdef TopicQueues look_up(self, str name, Py_ssize_t start):
        cdef TopicQueues topic = <TopicQueues>self.topics.get(name)
        if topic is not None:
            self.places[start + 2 * self.way] = name
            self.places[start + 2 * self.way + 1] = topic
            self.way = (self.way + 1) % WAYS
        return topic

    cdef int add(self, TopicQueues topic) except -1:
        self.topics[topic.name] = topic
        if len(self.topics) > WAYS // 2 << self.bits and self.bits < MOST_BITS:
            self.empty(self.bits + 1)
        return 0

    cdef int remove(self, TopicQueues topic) except -1:
        del self.topics[topic.name]
        topic.forgotten = True
        self.removed += 1
        if self.removed > len(self.topics):     # not each time: programs forget thousands in one go
            self.empty(self.bits)
        return 0

    cdef int empty(self, int bits) except -1:
        cdef list places = [0] * (2 * WAYS << bits)     # first: a finalizer that it runs may look topics up
        self.bits = bits
        self.shift = 64 - bits
        self.places = places
        self.removed = 0
        return 0
