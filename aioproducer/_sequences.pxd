"""The part of batch numbering that every batch passes through."""

import cython

from libc.stdint cimport int16_t, int32_t, int64_t

from aioproducer._producer_batch cimport ProducerBatch


cpdef int32_t next_sequence(int32_t sequence, int64_t records) noexcept


@cython.final
cdef class PartitionSequences:
    """Numbering of one partition; ``numbered`` holds the batches that have a sequence and have not ended, in order."""
    cdef public int64_t producer_id
    cdef public int32_t epoch
    cdef public int32_t next
    cdef public int64_t known_producer_id   # the producer id under which the leader has acknowledged something lately
    cdef public int64_t heard_ms            # when the last batch that it acknowledged was sent
    cdef public bytes topic_id              # of the topic whose log gets the next attempt
    cdef public tuple former                # order of the last batch that may have gone to a topic with another id
    cdef public int32_t leader_epoch        # the newest of the leaders that this log's batches were sent to
    cdef public list numbered
    cdef public int64_t count               # batches numbered so far
    cdef public tuple gap                   # order of the last batch that failed; None while there is no gap
    cdef public tuple absent                # order of a batch surely not in the log; later ones aren't either
    cdef public tuple unsettled             # order of the last batch that ended in doubt; empty: none

    cdef int add(self, ProducerBatch batch) except -1
    cpdef strike(self, ProducerBatch batch)
    cdef bint is_first(self, ProducerBatch batch) noexcept
    cdef Py_ssize_t place_of(self, ProducerBatch batch) except -1
    cdef bint has_room(self) noexcept
    cdef tuple order_of_last(self)
    cdef int turn(self, bytes topic_id) except -1
    cdef int may_be_written(self) except -1
    cpdef bint is_known(self) noexcept
    cpdef bint leaves_in_doubt(self, ProducerBatch batch) noexcept
    cdef bint may_follow(self, ProducerBatch batch)
    cdef int note_followed(self, ProducerBatch batch) except -1


cdef class SequenceBooks:
    """The books of all partitions: the base class of TransactionManager."""
    cdef readonly bint idempotent
    cdef readonly object transaction_partitions
    cdef public int64_t producer_id
    cdef public int32_t epoch
    cdef dict partitions                    # (topic, partition) -> PartitionSequences

    cdef PartitionSequences books_of(self, ProducerBatch batch)
    cdef bint is_current(self, PartitionSequences books) noexcept
    cdef int give_number(self, ProducerBatch batch) except -1
    cdef int strike_acknowledged(self, ProducerBatch batch) except -1
