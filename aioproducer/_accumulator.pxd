"""RecordAccumulator: open and waiting batches of every partition; ProducerBatch: one of them."""

import cython

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from aioproducer._buffer_pool cimport BufferPool
from aioproducer._delivery cimport Delivery, DeliveryLedger, ProduceRequestResult
from aioproducer._record_batch cimport RecordBatch, RecordView


cdef enum BatchState:
    OPEN        # takes records
    CLOSED      # takes no more; waits to be sealed, or for its turn
    SEALING     # a worker compresses it
    IN_FLIGHT   # handed to a connection, not answered
    ENDED       # acknowledged, failed or split


@cython.final
cdef class ProducerBatch:
    """Records of one partition that go out, and end, together."""
    cdef readonly PartitionQueue queue
    cdef readonly ProduceRequestResult result
    cdef RecordBatch records
    cdef readonly int64_t serial            # order of creation, over all partitions
    cdef readonly tuple order               # place in its partition; pieces of a split stand in their parent's
    cdef readonly int64_t created_ms        # of its first record; survives retries and splits
    cdef readonly int64_t closed_ms
    cdef BatchState state
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
    cdef public object last_error
    cdef public bint maybe_written          # for the user: sticky
    cdef public bint in_doubt               # an attempt may have written it, and no later answer has ruled that out
    cdef public bint expired                # its Deliveries failed while it was in flight


@cython.final
cdef class PartitionQueue:
    """The batches of one partition that are not in flight, oldest first; the last may be open."""
    cdef readonly TopicQueues topic
    cdef readonly int32_t partition
    cdef readonly int32_t leader            # node id, -1 while there is none
    cdef readonly int32_t leader_epoch
    cdef object batches                     # deque of ProducerBatch
    cdef ProducerBatch open
    cdef Py_ssize_t length                  # of batches
    cdef bint in_ready                      # stands in its node's ready queue
    cdef readonly bint muted                # its batch in flight must end before the next one goes

    cdef ProducerBatch first(self)
    cdef bint can_go(self, ProducerBatch first, int64_t now_ms)
    cdef void push(self, ProducerBatch batch)
    cdef void pop_first(self)
    cdef void insert(self, ProducerBatch batch)
    cdef void remove(self, ProducerBatch batch)


@cython.final
cdef class TopicQueues:
    """What the accumulator knows of one topic."""
    cdef readonly str name
    cdef readonly bytes topic_id
    cdef list queues                        # of PartitionQueue, by partition
    cdef int32_t partition_count
    cdef int32_t sticky                     # current partition of keyless records, -1: choose
    cdef Py_ssize_t sticky_bytes
    cdef uint32_t round_robin
    cdef double compression_ratio           # running estimate, of what goes out to what came in
    cdef readonly int64_t used_ms           # when its latest batch was opened

    cdef int32_t partition_of_key(self, const char* key, Py_ssize_t size) noexcept


@cython.final
cdef class NodeQueue:
    """Partitions that one broker leads and that have a batch to send."""
    cdef readonly int32_t node_id
    cdef object ready                       # deque of PartitionQueue
    cdef Py_ssize_t sealing_bytes           # being compressed, or compressed and not yet drained
    cdef int64_t stalled_ms                 # since when it had something ready and could not be sent to; -1: it can


@cython.final
cdef class RecordAccumulator:
    cdef readonly BufferPool pool
    cdef readonly DeliveryLedger ledger
    cdef BufferPool outside                 # memory of splits: never waited for, not part of the budget
    cdef dict topics                        # name -> TopicQueues
    cdef dict nodes                         # node id -> NodeQueue
    cdef object open_batches                # OrderedDict serial -> ProducerBatch, by age
    cdef object live_batches                # OrderedDict serial -> ProducerBatch whose memory is not back, by age
    cdef object aging_batches               # OrderedDict serial -> ProducerBatch that has not ended, by age
    cdef list awaited_batches
    cdef list backing_off                   # heap of (retry_at_ms, serial, queue)
    cdef object random
    cdef public object on_wake              # called once when the sender has to look, until the next ready()
    cdef bint woken
    cdef public bint memory_short           # somebody waits for memory
    cdef readonly int64_t last_serial
    cdef readonly int64_t appended_records
    cdef readonly int32_t in_flight_batches
    cdef readonly Py_ssize_t batch_size
    cdef Py_ssize_t sticky_size
    cdef readonly int64_t linger_ms
    cdef readonly int64_t delivery_timeout_ms
    cdef int64_t availability_timeout_ms
    cdef readonly Py_ssize_t max_request_size
    cdef bint compresses
    cdef bint ignore_keys
    cdef bint adaptive
    cdef bint is_round_robin
    cdef bint mutes

    cdef TopicQueues find_topic(self, str name)
    cdef Delivery append_record(self, TopicQueues topic, int32_t partition, RecordView* record, list headers,
                                int64_t now_ms, bint awaited)
    cdef bint may_leave(self, TopicQueues topic, PartitionQueue queue, RecordView* record)
    cdef Delivery append_to(self, PartitionQueue queue, RecordView* record, list headers, int64_t now_ms, bint awaited)
    cdef ProducerBatch new_batch(self, PartitionQueue queue, RecordBatch records, int64_t now_ms)
    cdef bint fits(self, ProducerBatch batch, Py_ssize_t record_size)
    cdef int32_t choose_partition(self, TopicQueues topic, int64_t now_ms)
    cdef int32_t next_round_robin(self, TopicQueues topic)
    cdef NodeQueue node(self, int32_t node_id)
    cdef void close_batch(self, ProducerBatch batch, int64_t now_ms)
    cdef void move(self, PartitionQueue queue, int32_t leader)
    cdef void mark_ready(self, PartitionQueue queue)
    cdef void unmark_ready(self, PartitionQueue queue)
    cdef void wake(self)
    cdef bint available(self, PartitionQueue queue, int64_t now_ms)
    cdef bint any_ready(self)
    cdef void close_awaited(self, int64_t now_ms, busy_nodes)
    cdef void end_back_off(self, ProducerBatch batch, int64_t now_ms)
    cdef void start_sealing(self, ProducerBatch batch, NodeQueue node)
    cdef void take(self, ProducerBatch batch)
    cdef void end_sealing(self, ProducerBatch batch)
    cdef void land(self, ProducerBatch batch)
    cdef void forget(self, ProducerBatch batch)
    cdef ProducerBatch new_piece(self, ProducerBatch parent, Py_ssize_t number, int32_t first_index)
    cdef int take_unfinished(self, ProducerBatch batch, list taken) except -1
    cdef int64_t pending_records(self, ProducerBatch batch)
