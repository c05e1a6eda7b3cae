"""Admission: base class of Producer, with the whole fast path of submit in one compiled call."""

import cython

from libc.stdint cimport int32_t, int64_t

from aioproducer._accumulator cimport RecordAccumulator
from aioproducer._delivery cimport Delivery, DeliveryWaiter
from aioproducer._producer_batch cimport ProducerBatch, TopicQueues
from aioproducer._record_batch cimport RecordView


cdef enum AdmissionState:
    NEW
    ADMITTING
    OUTSIDE         # outside a transaction, where a transactional producer admits nothing
    REFUSING        # closed, failed or forked: the shell's _refuse() says which


cdef class Admission:
    """Turns calls into admitted records, or hands them to the slow path of its subclass."""
    cdef AdmissionState state
    cdef bint direct                        # no user interceptors, serializers or partitioner
    cdef bint serializing                   # only user serializers, which have always returned bytes at once so far
    cdef object key_serializer              # f(topic, headers, key), or None
    cdef object value_serializer
    cdef unsigned long thread
    cdef object loop
    cdef RecordAccumulator accumulator
    cdef Py_ssize_t max_record_bytes
    cdef str last_topic
    cdef TopicQueues last_queues
    cdef object clocks                      # None, or (the loop's seconds, wall seconds) in place of all clocks
    cdef int64_t now_ns                     # the clock of the fast path at the latest admission
    cdef int64_t loop_offset_ns             # to be added for the loop's time,
    cdef int64_t wall_offset_us             # and for the wall time, which may be past the year 2262 in a test
    cdef int64_t look_again_ns              # when to look at these two again
    cdef int64_t turn_ns                    # when the loop's last known turn was
    cdef Py_ssize_t bytes_since_turn
    cdef int32_t sharing                    # how many calls share this turn: those that yielded in the last, at least 1
    cdef int32_t giving                     # how many have yielded in this one so far
    cdef bint queueing                      # a caller waits for memory; later calls queue behind it
    cdef Py_ssize_t wanted_bytes            # upper bound for the latest record that found no memory

    cdef inline bint admits(self) noexcept
    cdef int64_t wall_ms(self) noexcept
    cdef Delivery admit(self, topic, value, key, partition, headers, timestamp_ms, bint awaited)
    cdef Delivery admit_serialized(self, topic, value, key, partition, headers, timestamp_ms, bint awaited)
    cdef Delivery not_at_once(self, result)
    cdef ProducerBatch take(self, topic, value, key, partition, headers, timestamp_ms, bint awaited, RecordView* record)
    cdef ProducerBatch place(self, str topic, TopicQueues queues, int32_t partition, RecordView* record, list pairs,
                             bint awaited)
    cdef int look(self) except -1
    cdef inline int64_t clock_ns(self) except? -1
    cdef int check_loop(self) except -1
    cdef bint turn_due(self) noexcept
    cdef int give_turn(self) except -1
    cdef int turn_taken(self) except -1


@cython.final
cdef class Submission:
    """What submit() and send() return: a coroutine in all but type, with a compiled first step."""
    cdef Admission producer
    cdef object topic
    cdef object value
    cdef object key
    cdef object partition
    cdef object headers
    cdef object timestamp_ms
    cdef bint is_send
    cdef int stage
    cdef object inner                       # the slow path, while it runs
    cdef Delivery delivery
    cdef DeliveryWaiter waiter
    cdef object error                       # the record's error, until it is raised

    cdef int advance(self, sent, void** result) except -1
    cdef int begin(self, sent, void** result) except -1
    cdef int fault(self, error, void** result) except -1
    cdef int run_inner(self, sent, void** result) except -1
    cdef int after_admission(self, void** result) except -1
    cdef void end(self)
    cdef void drop_arguments(self)
