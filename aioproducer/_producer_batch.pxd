"""ProducerBatch, and the queues that it waits in."""

import cython

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from aioproducer._delivery cimport ProduceRequestResult
from aioproducer._record_batch cimport RecordBatch


cdef enum BatchState:
    OPEN        # takes records
    CLOSED      # takes no more; waits to be sealed, or for its turn
    SEALING     # a worker compresses it
    IN_FLIGHT   # handed to a connection, not answered
    ENDED       # acknowledged, failed or split


@cython.final
cdef class ProducerBatch(RecordBatch):
    """Records of one partition that go out, and end, together: how they lie in memory is RecordBatch's business."""
    cdef readonly PartitionQueue queue
    cdef readonly ProduceRequestResult result
    cdef readonly int64_t serial            # order of creation, over all partitions
    cdef tuple place                        # of a piece of a split: its order
    cdef ProducerBatch next                 # in the partition's queue
    cdef ProducerBatch older                # of the live ones
    cdef ProducerBatch younger
    cdef bint live                          # stands among them
    cdef readonly int64_t created_ms        # of its first record; survives retries and splits
    cdef int64_t appended_before            # records that all batches had taken when its first one came
    cdef readonly int64_t closed_ms
    cdef BatchState state
    cdef bint overdue                       # open past its linger, behind others of its partition
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int32_t base_sequence     # -1: none given yet
    cdef readonly bint transactional
    cdef readonly ProducerBatch parent      # of a piece of a split
    cdef list pieces                        # of a split batch, those that have not ended
    cdef bint released                      # its memory is back
    cdef bint awaited                       # holds a record of send()
    cdef readonly bint sealed               # compressed, or found better uncompressed
    cdef NodeQueue sealing_node             # whose sealing_bytes count it
    cdef public int attempts
    cdef public int64_t retry_at_ms
    cdef readonly int64_t drained_ms        # when it was last taken to be sent
    cdef int32_t leader_epoch               # of the partition, when the batch was last drained
    cdef public object last_error
    cdef public bint maybe_written          # for the user: sticky
    cdef public bint in_doubt               # an attempt may have written it, and no later answer has ruled that out
    cdef public int64_t refused_ms          # when, still in doubt, it was first found out of order; -1: not yet
    cdef public object books                # of its partition's numbers, once it was asked whether it may go
    cdef public int64_t numbered_before     # how many batches of its partition had got a number before it
    cdef public bint expired                # its Deliveries failed while it was in flight

    cdef tuple order_in_partition(self)


@cython.final
cdef class PartitionQueue:
    """The batches of one partition that are not in flight, oldest first; the last may be open."""
    cdef readonly TopicQueues topic
    cdef readonly int32_t partition
    cdef readonly int32_t leader            # node id, -1 while there is none
    cdef readonly int32_t leader_epoch
    cdef ProducerBatch first                # of a chain of batches
    cdef ProducerBatch last                 # the open one of the partition, if there is one
    cdef Py_ssize_t length                  # of the chain
    cdef bint in_ready                      # stands in its node's ready queue
    cdef readonly bint muted                # its batch in flight must end before the next one goes

    cdef bint can_go(self, int64_t now_ms)
    cdef void push(self, ProducerBatch batch)
    cdef void insert(self, ProducerBatch batch)
    cdef void link(self, ProducerBatch before, ProducerBatch batch)
    cdef int remove(self, ProducerBatch batch) except -1
    cdef void end_back_off(self)


@cython.final
cdef class LiveBatches:
    """All batches whose memory is not back, oldest first, with two marks among them that only go forward."""
    cdef ProducerBatch oldest
    cdef ProducerBatch youngest
    cdef ProducerBatch lingering            # none before it lingers; it may have ceased to
    cdef ProducerBatch aging                # all before it are past their delivery timeout

    cdef void append(self, ProducerBatch batch)
    cdef void remove(self, ProducerBatch batch)
    cdef ProducerBatch oldest_lingering(self)


@cython.final
cdef class TopicQueues:
    """What the accumulator knows of one topic."""
    cdef readonly str name
    cdef readonly bytes topic_id
    cdef list queues                        # of PartitionQueue, by partition
    cdef list open                          # by partition: the batch that takes records, the last of its queue; or None
    cdef int32_t partition_count
    cdef int32_t sticky                     # current partition of keyless records, -1: choose
    cdef Py_ssize_t sticky_bytes
    cdef uint32_t round_robin
    cdef double compression_ratio           # running estimate, of what goes out to what came in
    cdef readonly Py_ssize_t batch_limit    # bytes of a batch as it goes out, by what a broker has refused,
    cdef int64_t limited_ms                 # since when,
    cdef Py_ssize_t stood_limit             # and the limit that stood until larger batches were tried; 0: none yet
    cdef readonly int64_t used_ms           # when its latest batch was opened
    cdef readonly Py_ssize_t frame_bytes    # what a request takes at most to name it and count its partitions
    cdef int64_t drain                      # number of the latest that took a batch of it
    cdef public int64_t touched_ms          # when metadata was told that it is in use

    cdef void refused(self, Py_ssize_t size, int64_t now_ms) noexcept
    cdef Py_ssize_t limit(self, Py_ssize_t batch_size, int64_t now_ms) noexcept
    cdef int32_t partition_of_key(self, const char* key, Py_ssize_t size) noexcept


@cython.final
cdef class NodeQueue:
    """Partitions that one broker leads and that have a batch to send."""
    cdef readonly int32_t node_id
    cdef object ready                       # deque of PartitionQueue
    cdef Py_ssize_t sealing_bytes           # being compressed, or compressed and not yet drained
    cdef int64_t stalled_ms                 # since when it had something ready and could not be sent to; -1: it can
