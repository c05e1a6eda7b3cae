"""ProducerBatch: records of one partition that end together; and the queues it waits in, by partition and broker.

These are the accumulator's own books: only _accumulator.pyx changes them.

    OPEN -> CLOSED <-> SEALING        compression in a worker; small batches are sealed while drained
              |  ^
              v  | requeue
            IN_FLIGHT -> ENDED        split: ENDED, its pieces start CLOSED

The garbage collector does not track batches, their results and Deliveries. It would visit all live ones in each of its
short passes, and as most of them survive two passes, walk the whole heap for every few thousand: with 10,000 topics
that held the loop for 50 ms twice a second. In return, a reference cycle that is left when a batch has ended would
never be freed. A live batch is part of several (through its queue, the chain of live batches, its partition's
sequences, its pieces, the callbacks of its records). They are broken when it is released or, if that never happens, by
the accumulator's finalizer.

Source: org.apache.kafka.clients.producer.internals.ProducerBatch.
"""

import cython

from cpython.bytes cimport PyBytes_GET_SIZE

from aioproducer._record_batch cimport HEADER_BYTES


cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX

cdef int64_t NEVER = -1 << 62

cdef enum:
    LIMIT_STANDS_MS = 600000    # how long a learned limit stands before larger batches are tried


@cython.final
@cython.no_gc
cdef class ProducerBatch(RecordBatch):

    @property
    def order(self):
        return self.order_in_partition()

    cdef tuple order_in_partition(self):
        return (self.serial,) if self.place is None else self.place

    @property
    def topic(self):
        return self.queue.topic.name

    @property
    def topic_id(self):
        return self.queue.topic.topic_id

    @property
    def partition(self):
        return self.queue.partition

    @property
    def wire_bytes(self):
        return self.wire_size()

    @property
    def has_sequence(self):
        return self.base_sequence >= 0

    @property
    def in_flight(self):
        return self.state == IN_FLIGHT

    @property
    def ended(self):
        return self.state == ENDED

    cpdef void begin_doubt(self) noexcept:
        self.in_doubt = True
        self.refused_ms = -1
        self.denied = False

    cpdef void set_producer_state(self, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence,
                                  bint transactional=False) noexcept:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        self.followed = False

    def seal(self, bytes compressed, int codec_bits):
        cdef TopicQueues topic = self.queue.topic
        cdef double ratio
        if compressed is not None:
            ratio = PyBytes_GET_SIZE(compressed) / <double>self.size_bytes
            topic.observe_ratio(ratio)
            if ratio < 1.0:
                self.seal_compressed(compressed, codec_bits)
        self.sealed = True

    cpdef complete(self, int64_t base_offset, int64_t log_append_time_ms):
        self.result.complete(base_offset, log_append_time_ms)

    def fail(self, error, dict record_errors=None, bint unobserved=True):
        for each in (error,) if record_errors is None else (error, *record_errors.values()):
            each.topic, each.partition = self.queue.topic.name, self.queue.partition
        self.result.fail(error, record_errors, unobserved)

    def __repr__(self):
        names = ("OPEN", "CLOSED", "SEALING", "IN_FLIGHT", "ENDED")
        return (
            f"<ProducerBatch {self.topic}-{self.partition} #{self.serial} {names[self.state]} "
            f"records={self.record_count} sequence={self.base_sequence} epoch={self.producer_epoch}>"
        )


@cython.final
cdef class PartitionQueue:

    def __cinit__(self, TopicQueues topic, int32_t partition):
        self.topic = topic
        self.partition = partition
        self.leader = -1
        self.leader_epoch = -1

    def __len__(self):
        return self.length

    cdef bint can_go(self, int64_t now_ms):
        """Whether the first batch can be sent."""
        return (not self.muted and self.first is not None and self.first.state == CLOSED
                and (self.first.retry_at_ms == 0 or self.first.retry_at_ms <= now_ms))

    cdef void push(self, ProducerBatch batch):
        self.link(self.last, batch)

    cdef void insert(self, ProducerBatch batch):
        """Put a batch back in its place in creation order."""
        cdef tuple order = batch.order_in_partition()
        cdef ProducerBatch before = None
        cdef ProducerBatch after = self.first
        while after is not None and after.order_in_partition() < order:
            before = after
            after = after.next
        self.link(before, batch)

    cdef void link(self, ProducerBatch before, ProducerBatch batch):
        """Queue a batch behind `before`, or first if that is None."""
        if before is None:
            batch.next = self.first
            self.first = batch
        else:
            batch.next = before.next
            before.next = batch
        if batch.next is None:
            self.last = batch
        self.length += 1

    cdef int remove(self, ProducerBatch batch) except -1:
        cdef ProducerBatch before = None
        cdef ProducerBatch at = self.first
        while at is not batch:
            if at is None:
                raise ValueError(f"{batch!r} is not queued")
            before = at
            at = at.next
        if before is None:
            self.first = batch.next
        else:
            before.next = batch.next
        if batch.next is None:
            self.last = before
        batch.next = None
        self.length -= 1
        return 0

    cdef void end_back_off(self):
        cdef ProducerBatch batch = self.first
        while batch is not None:
            batch.retry_at_ms = 0
            batch = batch.next

    cdef void disband(self) noexcept:
        """Let go of all batches, one by one: freeing a chain of thousands from its head would need much stack.

        The same goes for the chain of ready queues, of which this is a part.
        """
        cdef ProducerBatch batch = self.first
        cdef ProducerBatch next
        self.first = self.last = None
        self.length = 0
        self.next_ready = None
        self.books = None
        self.topic.open[self.partition] = None
        while batch is not None:
            next = batch.next
            batch.next = None
            batch = next


@cython.final
cdef class LiveBatches:

    cdef void append(self, ProducerBatch batch):
        batch.live = True
        batch.queue.topic.live_batches += 1
        batch.older = self.youngest
        if self.youngest is None:
            self.oldest = batch
        else:
            self.youngest.younger = batch
        self.youngest = batch
        if self.lingering is None:
            self.lingering = batch
        if self.aging is None:
            self.aging = batch

    cdef void remove(self, ProducerBatch batch):
        if not batch.live:
            return
        batch.live = False
        batch.queue.topic.live_batches -= 1
        if self.lingering is batch:
            self.lingering = batch.younger
        if self.aging is batch:
            self.aging = batch.younger
        if batch.older is None:
            self.oldest = batch.younger
        else:
            batch.older.younger = batch.younger
        if batch.younger is None:
            self.youngest = batch.older
        else:
            batch.younger.older = batch.older
        batch.older = None
        batch.younger = None

    cdef ProducerBatch oldest_lingering(self):
        cdef ProducerBatch batch = self.lingering
        while batch is not None and (batch.state != OPEN or batch.overdue):
            batch = batch.younger
        self.lingering = batch
        return batch


@cython.final
cdef class TopicQueues:

    def __cinit__(self, str name):
        self.name = name
        self.topic_id = bytes(16)
        self.frame_bytes = max(2 + len(name), 16) + 6   # name or id; count and tags
        self.queues = []
        self.open = []
        self.sticky = -1
        self.compression_ratio = 1.0
        self.batch_limit = PY_SSIZE_T_MAX
        self.touched_ms = NEVER

    @property
    def partitions(self):
        return self.partition_count

    def observe_ratio(self, double ratio):
        """Update the topic's ratio: fast when batches compress worse than expected, slowly when better."""
        if ratio > self.compression_ratio:
            self.compression_ratio = max(self.compression_ratio + 0.05, ratio)
        elif ratio < self.compression_ratio:
            self.compression_ratio = max(self.compression_ratio - 0.005, ratio)

    cdef void refused(self, Py_ssize_t size, int64_t now_ms) noexcept:
        """A broker refused a batch of `size` bytes as too large, without telling its limit."""
        cdef Py_ssize_t limit = HEADER_BYTES + (size - HEADER_BYTES) // 2
        if limit < self.stood_limit < size:
            limit = self.stood_limit
        if limit < self.batch_limit:
            self.batch_limit = limit
        self.limited_ms = now_ms

    cdef Py_ssize_t limit(self, Py_ssize_t batch_size, int64_t now_ms) noexcept:
        """Size limit of the next batch as it goes out; sometimes raised, as the topic's limit may have been too."""
        if self.batch_limit >= batch_size:
            return batch_size
        if now_ms - self.limited_ms >= LIMIT_STANDS_MS:
            self.stood_limit = self.batch_limit
            self.batch_limit = min(2 * self.batch_limit, batch_size)
            self.limited_ms = now_ms
        return self.batch_limit

    def forget_limit(self):
        self.batch_limit = PY_SSIZE_T_MAX
        self.stood_limit = 0


@cython.final
cdef class NodeQueue:

    def __cinit__(self, int32_t node_id):
        self.node_id = node_id
        self.stalled_ms = -1

    cdef void push(self, PartitionQueue queue) noexcept:
        self.link(self.last_ready, queue)

    cdef void push_first(self, PartitionQueue queue) noexcept:
        self.link(None, queue)

    cdef void link(self, PartitionQueue before, PartitionQueue queue) noexcept:
        """Put a queue behind `before`, or first if that is None."""
        queue.in_ready = True
        if before is None:
            queue.next_ready = self.first_ready
            self.first_ready = queue
        else:
            queue.next_ready = before.next_ready
            before.next_ready = queue
        if queue.next_ready is None:
            self.last_ready = queue
        self.ready_count += 1

    cdef PartitionQueue pop(self):
        """Take the first. Its `in_ready` stays set until the caller decides, so that nothing queues it again."""
        cdef PartitionQueue queue = self.first_ready
        if queue is not None:
            self.unlink(None, queue)
        return queue

    cdef void remove(self, PartitionQueue queue) noexcept:
        cdef PartitionQueue before = None
        cdef PartitionQueue at = self.first_ready
        while at is not None and at is not queue:
            before = at
            at = at.next_ready
        if at is not None:
            self.unlink(before, queue)
        queue.in_ready = False
        if self.ready_count == 0:
            self.stalled_ms = -1    # nothing waits any more that could show when the broker is back

    cdef void unlink(self, PartitionQueue before, PartitionQueue queue) noexcept:
        if before is None:
            self.first_ready = queue.next_ready
        else:
            before.next_ready = queue.next_ready
        if self.last_ready is queue:
            self.last_ready = before
        queue.next_ready = None
        self.ready_count -= 1
