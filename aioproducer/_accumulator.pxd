"""RecordAccumulator: the open and waiting batches of every partition, and which brokers have something to send."""

import cython

from libc.stdint cimport int32_t, int64_t

from aioproducer._buffer_pool cimport BufferPool
from aioproducer._built_in_partitioner cimport BuiltInPartitioner
from aioproducer._delivery cimport Delivery
from aioproducer._delivery_ledger cimport DeliveryLedger
from aioproducer._producer_batch cimport (
    CLOSED,
    ENDED,
    IN_FLIGHT,
    OPEN,
    PARTITION_BYTES,
    SEALING,
    LiveBatches,
    NodeQueue,
    PartitionQueue,
    ProducerBatch,
    TopicQueues,
)
from aioproducer._record_batch cimport RecordView
from aioproducer._topic_index cimport TopicIndex


cdef Delivery delivery_of(ProducerBatch batch, RecordView* record)


@cython.final
cdef class RecordAccumulator:
    cdef readonly BufferPool pool
    cdef readonly DeliveryLedger ledger
    cdef readonly BufferPool outside        # memory of split batches: never waited for, outside the budget
    cdef TopicIndex topics
    cdef dict nodes                         # node id -> NodeQueue
    cdef LiveBatches live
    cdef Py_ssize_t open_batches            # how many take records
    cdef Py_ssize_t lingering_batches       # how many of those still linger
    cdef list awaited_batches
    cdef list backing_off                   # heap of (retry_at_ms, order, batch)
    cdef public object on_wake              # wakes the sender; called at most once per ready()
    cdef bint woken
    cdef public bint memory_short           # a caller waits for memory
    cdef readonly int64_t last_serial
    cdef readonly int64_t appended_records
    cdef public int64_t busy_ns             # time callers spent submitting records back to back
    cdef int64_t looked_ms                  # when full_speed was last computed,
    cdef int64_t looked_busy_ns             # busy_ns at that time,
    cdef bint full_speed                    # and the result
    cdef readonly int32_t in_flight_batches
    cdef readonly Py_ssize_t batch_size
    cdef Py_ssize_t sticky_size
    cdef readonly int64_t linger_ms
    cdef readonly int64_t longest_linger_ms          # at full speed, for batches of few records
    cdef readonly int64_t delivery_timeout_ms
    cdef int64_t longest_gather_ms          # for batches past their linger behind others
    cdef int64_t patient_until_ms           # no batch expires before that; 0: the loop was not held up
    cdef readonly Py_ssize_t max_request_size
    cdef int64_t drains                     # how often something was drained
    cdef bint compresses
    cdef BuiltInPartitioner partitioner
    cdef bint mutes

    cdef TopicQueues find_topic(self, str name)
    cdef ProducerBatch append_record(self, TopicQueues topic, int32_t partition, RecordView* record, list headers,
                                     int64_t now_ms, bint awaited)
    cdef ProducerBatch append_sticky(self, TopicQueues topic, RecordView* record, list headers, int64_t now_ms,
                                     bint awaited)
    cdef bint may_leave(self, TopicQueues topic, ProducerBatch batch, RecordView* record)
    cdef ProducerBatch append_to(self, TopicQueues topic, int32_t partition, RecordView* record, list headers,
                                 int64_t now_ms, bint awaited)
    cdef ProducerBatch batch_for(self, TopicQueues topic, int32_t partition, RecordView* record, int64_t now_ms,
                                 bint awaited)
    cdef ProducerBatch new_batch(self, PartitionQueue queue)
    cdef bint gathered(self, ProducerBatch batch, int64_t now_ms) noexcept
    cdef int begin(self, ProducerBatch batch, int64_t now_ms) except -1
    cdef bint fits(self, ProducerBatch batch, Py_ssize_t record_size)
    cdef NodeQueue node(self, int32_t node_id)
    cdef void close_batch(self, ProducerBatch batch)
    cdef void end_open(self, ProducerBatch batch) noexcept
    cdef void end_linger(self, ProducerBatch batch)
    cdef void close_if_overdue(self, PartitionQueue queue)
    cdef void move(self, PartitionQueue queue, int32_t leader)
    cdef void mark_ready(self, PartitionQueue queue)
    cdef void unmark_ready(self, PartitionQueue queue)
    cdef void wake(self)
    cdef void end_lingers(self, int64_t now_ms, int64_t linger_ms)
    cdef int64_t next_deadline(self, int64_t now_ms, int64_t linger_ms) except? -1
    cdef void look_at_speed(self, int64_t now_ms) noexcept
    cdef bint lingers_on(self, ProducerBatch oldest, int64_t now_ms) noexcept
    cdef bint any_under_way(self)
    cdef void close_awaited(self, busy_nodes)
    cdef void end_back_off(self, ProducerBatch batch, int64_t now_ms)
    cdef bint may_seal_more(self, NodeQueue node) noexcept
    cdef Py_ssize_t size_in_request(self, ProducerBatch batch) noexcept
    cdef void start_sealing(self, ProducerBatch batch, NodeQueue node)
    cdef void count_sealing(self, ProducerBatch batch, NodeQueue node)
    cdef int take(self, ProducerBatch batch, int64_t now_ms) except -1
    cdef void end_sealing(self, ProducerBatch batch)
    cpdef release(self, ProducerBatch batch)
    cdef void land(self, ProducerBatch batch)
    cdef void forget(self, ProducerBatch batch)
    cdef int learn_limit(self, ProducerBatch batch, int64_t now_ms) except -1
    cdef Py_ssize_t piece_limit(self, ProducerBatch batch)
    cdef ProducerBatch new_piece(self, ProducerBatch parent, Py_ssize_t number, int32_t first_index)
    cdef list take_live(self, bint in_flight, bint also_in_doubt)
    cdef int take_unfinished(self, ProducerBatch batch, list taken, bint in_flight, bint also_in_doubt) except -1
    cdef int64_t pending_records(self, ProducerBatch batch)
