"""ProducerBatch, and the queues it waits in."""

import cython

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from aioproducer._delivery cimport ProduceRequestResult
from aioproducer._record_batch cimport RecordBatch


cdef enum:
    PARTITION_BYTES = 10    # upper bound of what a request has around a batch: partition, size, tags


cdef enum BatchState:
    OPEN        # takes records
    CLOSED      # takes no more records; waits to be sealed or drained
    SEALING     # a worker compresses it
    IN_FLIGHT   # handed to a connection, not answered
    ENDED       # acknowledged, failed or split


@cython.final
@cython.no_gc
cdef class ProducerBatch(RecordBatch):
    """Records of one partition that go out and end together; RecordBatch manages their memory."""
    cdef readonly PartitionQueue queue
    cdef readonly ProduceRequestResult result
    cdef readonly int64_t serial            # order of creation, over all partitions
    cdef tuple place                        # of a piece of a split: its order, in place of the serial
    cdef ProducerBatch next                 # in the partition's queue
    cdef ProducerBatch older                # in the chain of live batches
    cdef ProducerBatch younger
    cdef bint live                          # is in that chain
    cdef readonly int64_t created_ms        # of its first record; survives retries and splits
    cdef int64_t appended_before            # records appended to all batches before its first one
    cdef BatchState state
    cdef bint overdue                       # open past its linger, behind older batches of its partition
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence     # -1: none given yet
    cdef readonly bint transactional
    cdef readonly ProducerBatch parent      # of a piece of a split
    cdef list pieces                        # of a split batch: those that have not ended
    cdef bint released                      # its memory is back
    cdef bint awaited                       # holds a record of send()
    cdef readonly bint sealed               # compressed, or found better uncompressed
    cdef NodeQueue sealing_node             # the node whose sealing_bytes count it
    cdef public int attempts
    cdef public int64_t retry_at_ms
    cdef readonly int64_t drained_ms        # when it was last drained
    cdef int32_t leader_epoch               # of the partition, when the batch was last drained
    cdef public object last_error
    cdef public bint maybe_written          # for the user; sticky
    cdef public bint in_doubt               # an attempt may have written it, and no later answer ruled that out
    cdef public int64_t refused_ms          # when, in doubt, it was first refused as out of order; -1: not yet
    cdef bint denied                        # and then again, when no copy of it could arrive late any more
    cdef public bint followed               # a later one was acknowledged, so while in doubt it is in the log
    cdef public int64_t numbered_before     # batches of its partition numbered before it
    cdef public bint failed_early          # its Deliveries have failed, whatever happens to the batch

    cdef tuple order_in_partition(self)
    cpdef void begin_doubt(self) noexcept
    cpdef void set_producer_state(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence,
                                  bint transactional=*) noexcept
    cpdef complete(self, int64_t base_offset, int64_t log_append_time_ms)


@cython.final
cdef class PartitionQueue:
    """The batches of one partition that are not in flight, oldest first; the last may be open."""
    cdef readonly TopicQueues topic
    cdef readonly int32_t partition
    cdef readonly int32_t leader            # node id; -1: none
    cdef readonly int32_t leader_epoch
    cdef ProducerBatch first                # head of the chain of batches
    cdef ProducerBatch last                 # its tail; the partition's open batch, if there is one
    cdef Py_ssize_t length                  # batches in the chain
    cdef bint in_ready                      # is in its node's ready queue
    cdef PartitionQueue next_ready          # and the one behind it there
    cdef readonly bint muted                # its batch in flight must end before the next one goes
    cdef object books                       # its PartitionSequences; None until a batch is about to be sent

    cdef bint can_go(self, int64_t now_ms)
    cdef void push(self, ProducerBatch batch)
    cdef void insert(self, ProducerBatch batch)
    cdef void link(self, ProducerBatch before, ProducerBatch batch)
    cdef int remove(self, ProducerBatch batch) except -1
    cdef void end_back_off(self)
    cdef void disband(self) noexcept


@cython.final
cdef class LiveBatches:
    """All batches whose memory is not back in the pool, oldest first, with two marks that only move forward."""
    cdef ProducerBatch oldest
    cdef ProducerBatch youngest
    cdef ProducerBatch lingering            # all older ones have stopped lingering, perhaps it has too
    cdef ProducerBatch aging                # all older ones are past their delivery timeout

    cdef void append(self, ProducerBatch batch)
    cdef void remove(self, ProducerBatch batch)
    cdef ProducerBatch oldest_lingering(self)


@cython.final
cdef class TopicQueues:
    """What the accumulator knows of one topic."""
    # First what each record touches, in one cache line.
    cdef list open                          # by partition: the open batch, last of its queue, or None
    cdef int32_t partition_count
    cdef bint forgotten                     # removed from the index, where a newer object may have its name
    cdef int32_t sticky                     # current partition of keyless records, -1: choose
    cdef uint32_t round_robin
    cdef Py_ssize_t sticky_bytes
    cdef readonly str name
    cdef list queues                        # of PartitionQueue, by partition
    cdef readonly bytes topic_id            # zeros: the broker has given it none
    cdef bint has_id
    cdef double compression_ratio           # running estimate of compressed to plain size
    cdef readonly Py_ssize_t batch_limit    # bytes of a batch as it goes out, learned from refusals,
    cdef int64_t limited_ms                 # when it was learned,
    cdef Py_ssize_t stood_limit             # and the limit before larger batches were tried; 0: none yet
    cdef readonly Py_ssize_t frame_bytes    # upper bound of what a request takes to name it and count its partitions
    cdef Py_ssize_t live_batches            # how many of the LiveBatches are its own
    cdef int64_t drain                      # number of the latest drain that took a batch of it
    cdef public int64_t touched_ms          # when metadata was told that the topic is in use
    cdef object counts                      # its windows, once a batch was sent

    cdef void refused(self, Py_ssize_t size, int64_t now_ms) noexcept
    cdef Py_ssize_t limit(self, Py_ssize_t batch_size, int64_t now_ms) noexcept


@cython.final
cdef class NodeQueue:
    """Partitions led by one broker that have a batch to send."""
    cdef readonly int32_t node_id
    cdef PartitionQueue first_ready
    cdef PartitionQueue last_ready
    cdef Py_ssize_t ready_count
    cdef Py_ssize_t sealing_bytes           # of batches given out to be compressed and not drained, at their size now
    cdef int64_t stalled_ms                 # since when ready batches could not be sent; -1: they can

    cdef void push(self, PartitionQueue queue) noexcept
    cdef void push_first(self, PartitionQueue queue) noexcept
    cdef void link(self, PartitionQueue before, PartitionQueue queue) noexcept
    cdef PartitionQueue pop(self)
    cdef void remove(self, PartitionQueue queue) noexcept
    cdef void unlink(self, PartitionQueue before, PartitionQueue queue) noexcept
