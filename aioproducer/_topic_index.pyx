"""TopicIndex: topics by name, found by the identity of the str where possible.

Programs with many topics keep their names and pass the same objects again and again. Comparing an address touches one
cache line; a dict reads its index, its entry, its key and the name, which with a thousand topics is a miss each. So
what the dict found is kept by the address of the name, in sets of a few places, as a CPU keeps its cache.

Always: a kept name is referenced, so no other str has its address.
"""

import cython

from cpython.sequence cimport PySequence_Fast_ITEMS


@cython.final
cdef class TopicIndex:

    def __cinit__(self):
        self.topics = {}
        self.empty(FEWEST_BITS)

    cdef TopicQueues look_up(self, str name):
        cdef TopicQueues topic = <TopicQueues>self.topics.get(name)
        cdef Py_ssize_t start = self.set_of(name) + 2 * self.way
        if topic is not None:
            self.places[start] = name
            self.places[start + 1] = topic
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
        self.items = PySequence_Fast_ITEMS(places)
        places, self.places = self.places, places       # the old ones end after all fields are those of the new ones
        self.removed = 0
        return 0
