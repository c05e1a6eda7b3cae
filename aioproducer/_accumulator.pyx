"""RecordAccumulator: the open and waiting batches of every partition, and which brokers have something to send.

Theory of operation. Each partition has a queue of batches; only the last one takes records. A batch closes when it is
full, has lingered long enough, or is flushed or awaited. Its partition's queue then enters the ready queue of the
partition's leader, once, however many batches it holds. The sender drains a broker: the first batch of each ready
queue, until the request is full. Nothing is ever scanned: live batches are chained in creation order, which is also
deadline order, with one mark at the first that lingers and one at the first that has not expired. Batches that back
off are in a heap.

Appending a record is atomic: between looking at the open batch and storing the record and its Delivery, nothing else
that could append may run. Waking the sender calls Python, and creating an object that the garbage collector tracks may
run the collector and with it the program's finalizers, which may submit. So both happen first.

A batch whose linger ends while older batches of its partition still wait keeps taking records until it is the first. It
could not leave before them anyway, and behind a slow broker or after an outage a few large batches replace thousands of
small ones.

Only `drain` takes a batch from its queue to be sent; only `requeue` and `split` put one back, in creation order. So the
batches of a partition leave in order. While one is being sealed its queue is not ready: the next can't overtake it.

Memory. A batch is live until its memory is back in the pool; one that expired in flight has ended but stays live until
its request ends. A split batch stays in the books until the last of its pieces ends.

Source: org.apache.kafka.clients.producer.internals.RecordAccumulator, BuiltInPartitioner (KIP-480, KIP-794).
"""

import cython

from heapq import heappop, heappush

from aioproducer._buffer_pool cimport BufferPool
from aioproducer._delivery cimport Delivery, new_delivery, new_result
from aioproducer._record_batch cimport HEADER_BYTES, fill_view, largest_size

from aioproducer._record_batch import split_records

cdef extern from "Python.h":
    const Py_ssize_t PY_SSIZE_T_MAX

cdef bytes NO_TOPIC_ID = bytes(16)

cdef enum:
    BLOCK_BYTES = 16384
    BUSY_NS_A_MS = 50000    # open batches linger on if the program submits for 5% of the time
    FULL_ENOUGH = 64        # and they hold fewer records than this on average
    SHORT_LINGER_MS = 50    # at most, while memory is short
    GATHER_SHARE = 8        # a batch past its linger gathers for at most this part of delivery_timeout_ms
    LATE_MS = 100           # as in patient_timer.py
    SEALED_AHEAD = 64       # partitions looked at for batches to compress while their broker takes no request


cdef Delivery delivery_of(ProducerBatch batch, RecordView* record):
    """The Delivery of an appended record."""
    return new_delivery(batch.result, record.index, record.key_size, record.value_size, record.timestamp_ms)


@cython.final
cdef class RecordAccumulator:

    def __cinit__(self, *, DeliveryLedger ledger, random, Py_ssize_t batch_size, Py_ssize_t sticky_size,
                  int64_t linger_ms, Py_ssize_t buffer_memory, int64_t delivery_timeout_ms,
                  Py_ssize_t max_request_size, bint compresses=False, str partitioner="murmur2_random",
                  bint adaptive=True, int64_t availability_timeout_ms=0, bint mutes=False,
                  int64_t longest_linger_ms=0):
        self.ledger = ledger
        self.batch_size = max(1, batch_size)
        self.sticky_size = max(1, sticky_size)
        self.linger_ms = min(linger_ms, delivery_timeout_ms)    # no batch lives longer; sums must not overflow
        self.longest_linger_ms = max(self.linger_ms, min(longest_linger_ms, delivery_timeout_ms))
        self.pool = BufferPool(buffer_memory, min(BLOCK_BYTES, self.batch_size))
        self.outside = BufferPool(PY_SSIZE_T_MAX, BLOCK_BYTES, keeps=False)
        self.delivery_timeout_ms = delivery_timeout_ms
        self.longest_gather_ms = max(self.linger_ms, delivery_timeout_ms // GATHER_SHARE)
        self.max_request_size = max_request_size
        self.compresses = compresses
        self.mutes = mutes
        self.topics = TopicIndex()
        self.nodes = {}
        self.partitioner = BuiltInPartitioner(partitioner, random, self.nodes, adaptive, availability_timeout_ms)
        self.live = LiveBatches()
        self.awaited_batches = []
        self.backing_off = []

    def __del__(self):
        """End the cycles that batches are part of, which the garbage collector can't."""
        cdef ProducerBatch batch = None if self.live is None else self.live.oldest
        cdef ProducerBatch next
        while batch is not None:
            next = batch.younger
            batch.queue.disband()
            batch.pieces = None
            batch.result.abandon()
            self.live.remove(batch)
            batch = next

    # --- topics -------------------------------------------------------------------------------------------------------

    cdef TopicQueues find_topic(self, str name):
        return self.topics.find(name)

    def topic(self, str name):
        return self.topics.find(name)

    def update_topic(self, str name, bytes topic_id, leaders):
        cdef TopicQueues topic = self.find_topic(name)
        cdef PartitionQueue queue
        cdef int32_t partition, leader, epoch
        if topic is None:
            topic = TopicQueues(name)
            self.topics.add(topic)
        elif topic.topic_id != topic_id:
            topic.forget_limit()
        topic.topic_id = topic_id
        topic.has_id = topic_id != NO_TOPIC_ID
        for partition, (leader, epoch) in enumerate(leaders):
            if partition == len(topic.queues):
                topic.open.append(None)     # first: if there is no memory, it must not be the shorter one
                topic.queues.append(PartitionQueue(topic, partition))
            queue = <PartitionQueue>topic.queues[partition]
            if epoch > queue.leader_epoch and queue.length:
                queue.end_back_off()    # a new leader: no reason to wait (KIP-951)
                self.mark_ready(queue)
            queue.leader_epoch = epoch
            self.move(queue, leader)
        # Fewer partitions than before means that the topic was recreated: batches of the vanished partitions stay
        # queued, leaderless, until they expire; new records see the new count.
        for partition in range(len(leaders), len(topic.queues)):
            self.move(<PartitionQueue>topic.queues[partition], -1)
        topic.partition_count = len(leaders)
        if topic.sticky >= topic.partition_count or (
            topic.sticky >= 0 and (<PartitionQueue>topic.queues[topic.sticky]).leader < 0
        ):
            topic.sticky = -1

    cdef void move(self, PartitionQueue queue, int32_t leader):
        """Move the partition to the ready queue of its new leader."""
        cdef ProducerBatch batch = queue.first
        if queue.leader != leader:
            self.unmark_ready(queue)
            queue.leader = leader
            while batch is not None:
                if batch.sealing_node is not None:
                    self.end_sealing(batch)
                    self.count_sealing(batch, self.node(leader))
                batch = batch.next
            self.mark_ready(queue)

    def forget_topic(self, str name):
        cdef TopicQueues topic = self.find_topic(name)
        if topic is None or topic.live_batches:     # also one in flight: it may be requeued
            return False
        self.topics.remove(topic)
        return True

    def holds_topic(self, str name):
        cdef TopicQueues topic = self.find_topic(name)
        return topic is not None and topic.live_batches > 0

    # --- append -------------------------------------------------------------------------------------------------------

    def append(self, TopicQueues topic not None, int32_t partition, bytes key, bytes value, list headers,
               int64_t timestamp_ms, int64_t now_ms, bint awaited=False):
        cdef RecordView record
        fill_view(&record, key, value, headers, timestamp_ms)
        cdef ProducerBatch batch = self.append_record(topic, partition, &record, headers, now_ms, awaited)
        return None if batch is None else delivery_of(batch, &record)

    cdef ProducerBatch append_record(self, TopicQueues topic, int32_t partition, RecordView* record, list headers,
                                     int64_t now_ms, bint awaited):
        """Choose a partition unless the caller did, and append; returns the batch, or None if there is no memory."""
        if partition < 0:
            partition = self.partitioner.of_record(topic, record)
            if partition < 0:
                return self.append_sticky(topic, record, headers, now_ms, awaited)
        return self.append_to(topic, partition, record, headers, now_ms, awaited)

    cdef ProducerBatch append_sticky(self, TopicQueues topic, RecordView* record, list headers, int64_t now_ms,
                                     bint awaited):
        """Append to the topic's current partition, or to the next one once the current one has had its share."""
        cdef ProducerBatch batch
        if topic.sticky < 0:
            topic.sticky = self.partitioner.draw(topic, now_ms)
            topic.sticky_bytes = 0
        batch = <ProducerBatch>topic.open[topic.sticky]
        if topic.sticky_bytes + largest_size(record) >= self.sticky_size and self.may_leave(topic, batch, record):
            if batch is not None:
                self.close_batch(batch)
            topic.sticky = self.partitioner.draw(topic, now_ms)
            topic.sticky_bytes = 0
        batch = self.append_to(topic, topic.sticky, record, headers, now_ms, awaited)
        if batch is not None:
            topic.sticky_bytes += largest_size(record) + (HEADER_BYTES if batch.record_count == 1 else 0)
            if topic.sticky_bytes >= 2 * self.sticky_size:
                topic.sticky = -1
        return batch

    cdef bint may_leave(self, TopicQueues topic, ProducerBatch batch, RecordView* record):
        """Whether the current partition would be left without a half-filled batch."""
        if batch is None:
            return topic.sticky_bytes >= self.sticky_size
        return not self.fits(batch, batch.record_size(record))

    cdef ProducerBatch append_to(self, TopicQueues topic, int32_t partition, RecordView* record, list headers,
                                 int64_t now_ms, bint awaited):
        cdef ProducerBatch batch = <ProducerBatch>topic.open[partition]
        cdef Py_ssize_t size = 0 if batch is None else batch.record_size(record)
        if (batch is None or not self.fits(batch, size) or (awaited and not batch.awaited)
                or self.gathered(batch, now_ms)):
            batch = self.batch_for(topic, partition, record, now_ms, awaited)
            size = batch.record_size(record)
        if not batch.reserve(size, self.open_batches):
            if batch.record_count and (not self.any_under_way() or now_ms - batch.created_ms >= SHORT_LINGER_MS):
                self.close_batch(batch)
            return None
        record.index = batch.result.add_record()    # may find no memory; an empty batch must not be queued
        if batch.record_count == 0:
            self.begin(batch, now_ms)
        batch.append(record, headers, size)
        self.appended_records += 1
        if awaited and not batch.awaited:
            batch.awaited = True
            self.awaited_batches.append(batch)
        return batch

    cdef ProducerBatch batch_for(self, TopicQueues topic, int32_t partition, RecordView* record, int64_t now_ms,
                                 bint awaited):
        """The open batch if the record fits, else a new one that is not queued yet; wakes the sender if it must act.

        Looks at the open batch again after every step that may have run the program's code.
        """
        cdef ProducerBatch batch
        cdef ProducerBatch fresh = None
        while True:
            batch = <ProducerBatch>topic.open[partition]
            if batch is not None and (not self.fits(batch, batch.record_size(record)) or self.gathered(batch, now_ms)):
                self.close_batch(batch)
            elif batch is None and fresh is None:
                fresh = self.new_batch(<PartitionQueue>topic.queues[partition])
            elif not self.woken and (awaited or not self.lingering_batches):
                self.wake()     # else it may sleep past the first deadline, or delay an awaited record
            else:
                return fresh if batch is None else batch

    cdef ProducerBatch new_batch(self, PartitionQueue queue):
        cdef ProducerBatch batch = ProducerBatch.__new__(ProducerBatch, self.pool)
        batch.queue = queue
        batch.result = new_result(queue.topic.name, queue.partition, self.ledger)
        batch.producer_id = -1
        batch.producer_epoch = -1
        batch.base_sequence = -1
        return batch

    cdef bint fits(self, ProducerBatch batch, Py_ssize_t record_size):
        """Whether the batch, as it will go out, stays within its limit with one more record."""
        cdef Py_ssize_t plain = HEADER_BYTES + batch.size_bytes + record_size
        if not self.compresses:
            return plain <= batch.limit_bytes
        if plain > max(self.batch_size, self.max_request_size):
            return False
        return HEADER_BYTES + (plain - HEADER_BYTES) * batch.queue.topic.compression_ratio * 1.05 <= batch.limit_bytes

    cdef bint gathered(self, ProducerBatch batch, int64_t now_ms) noexcept:
        """Whether it is too old for new records to join it: a batch expires with its first record."""
        return batch.overdue and now_ms - batch.created_ms >= self.longest_gather_ms

    cdef int begin(self, ProducerBatch batch, int64_t now_ms) except -1:
        """Queue a new open batch."""
        cdef PartitionQueue queue = batch.queue
        self.last_serial += 1
        batch.serial = self.last_serial
        batch.result.serial = self.last_serial
        batch.limit_bytes = queue.topic.limit(self.batch_size, now_ms)
        batch.created_ms = now_ms
        batch.appended_before = self.appended_records
        queue.push(batch)
        queue.topic.open[queue.partition] = batch
        self.live.append(batch)
        if not self.lingering_batches:
            self.looked_ms, self.looked_busy_ns = now_ms, self.busy_ns
        self.open_batches += 1
        self.lingering_batches += 1
        return 0

    cdef void wake(self):
        if not self.woken:
            self.woken = True
            if self.on_wake is not None:
                self.on_wake()

    # --- ready --------------------------------------------------------------------------------------------------------

    cdef NodeQueue node(self, int32_t node_id):
        cdef NodeQueue node = <NodeQueue>self.nodes.get(node_id)
        if node is None:
            node = <NodeQueue>self.nodes.setdefault(node_id, NodeQueue(node_id))
        return node

    cdef void close_batch(self, ProducerBatch batch):
        self.end_open(batch)
        batch.state = CLOSED
        self.mark_ready(batch.queue)

    cdef void end_open(self, ProducerBatch batch) noexcept:
        batch.queue.topic.open[batch.queue.partition] = None
        self.open_batches -= 1
        self.lingering_batches -= not batch.overdue

    cdef void end_linger(self, ProducerBatch batch):
        """Close a batch as soon as it is the first of its partition."""
        if batch.queue.first is batch:
            self.close_batch(batch)
        elif not batch.overdue:
            batch.overdue = True
            self.lingering_batches -= 1

    cdef void close_if_overdue(self, PartitionQueue queue):
        """Close the open batch if its linger is over and it is now the first."""
        cdef ProducerBatch batch = queue.first
        if batch is not None and batch.state == OPEN and batch.overdue:
            self.close_batch(batch)

    cdef void mark_ready(self, PartitionQueue queue):
        """Queue the partition at its leader if its first batch can be sent."""
        cdef NodeQueue node
        if queue.in_ready or not queue.can_go(0):
            return
        node = self.node(queue.leader)
        if not queue.in_ready:      # no finalizer has come here meanwhile
            node.push(queue)
            self.wake()

    cdef void unmark_ready(self, PartitionQueue queue):
        if queue.in_ready:
            self.node(queue.leader).remove(queue)

    def ready(self, int64_t now_ms, busy_nodes=()):
        cdef int64_t linger_ms = min(self.linger_ms, SHORT_LINGER_MS) if self.memory_short else self.linger_ms
        cdef int64_t deadline
        self.woken = True       # the caller is the sender: no wake-up for what becomes ready here
        if self.awaited_batches:
            self.close_awaited(busy_nodes)
        while self.backing_off and self.backing_off[0][0] <= now_ms:
            self.end_back_off(<ProducerBatch>heappop(self.backing_off)[2], now_ms)
        self.end_lingers(now_ms, linger_ms)
        if self.memory_short and self.lingering_batches and not self.any_under_way():
            self.close_all()
        deadline = self.next_deadline(now_ms, linger_ms)
        self.woken = False
        return [node_id for node_id, node in self.nodes.items() if (<NodeQueue>node).ready_count], deadline

    cdef void end_lingers(self, int64_t now_ms, int64_t linger_ms):
        cdef ProducerBatch batch = self.live.oldest_lingering()
        if batch is not None and not self.lingers_on(batch, now_ms):
            while batch is not None and batch.created_ms + linger_ms <= now_ms:
                self.end_linger(batch)
                batch = self.live.oldest_lingering()

    cdef int64_t next_deadline(self, int64_t now_ms, int64_t linger_ms) except? -1:
        """When the first linger, back-off or delivery timeout ends; -1 if there is none."""
        cdef int64_t deadline = -1
        cdef int64_t expires_ms
        cdef ProducerBatch batch = self.live.oldest_lingering()
        if batch is not None:
            deadline = batch.created_ms + linger_ms
            if deadline <= now_ms:
                deadline = now_ms + max(1, linger_ms)      # it lingers on; checked again then
        if self.backing_off and (deadline < 0 or self.backing_off[0][0] < deadline):
            deadline = self.backing_off[0][0]
        batch = self.live.aging
        if batch is not None:
            expires_ms = max(batch.created_ms + self.delivery_timeout_ms, self.patient_until_ms)
            if deadline < 0 or expires_ms < deadline:
                deadline = expires_ms
        return deadline

    cdef bint lingers_on(self, ProducerBatch oldest, int64_t now_ms) noexcept:
        """Whether open batches linger longer: the program submits at full speed and batches hold few records.

        A batch costs the client and the broker as much as dozens of records. Where that cost limits throughput, waiting
        saves more time than it takes. Full speed is measured as a share of the time, not as a rate: the cost of small
        batches would keep a rate below any threshold.
        """
        cdef int64_t records = self.appended_records - oldest.appended_before
        self.look_at_speed(now_ms)
        return (self.full_speed and now_ms - oldest.created_ms < self.longest_linger_ms
                and records < FULL_ENOUGH * <int64_t>self.lingering_batches)

    cdef void look_at_speed(self, int64_t now_ms) noexcept:
        """Update full_speed, at most once per linger: a program that begins to wait is held up no longer than that."""
        if now_ms - self.looked_ms >= max(1, self.linger_ms):
            self.full_speed = self.busy_ns - self.looked_busy_ns >= BUSY_NS_A_MS * (now_ms - self.looked_ms)
            self.looked_ms, self.looked_busy_ns = now_ms, self.busy_ns

    cdef bint any_under_way(self):
        """Whether a batch that can be sent, is in flight or is being compressed will return memory."""
        if self.in_flight_batches:
            return True
        for node in self.nodes.values():
            if (<NodeQueue>node).ready_count or (<NodeQueue>node).sealing_bytes:
                return True
        return False

    cdef void close_awaited(self, busy_nodes):
        """Cut linger for batches with send() records, at brokers that owe no answer."""
        cdef ProducerBatch batch
        cdef list still = []
        for item in self.awaited_batches:
            batch = <ProducerBatch>item
            if batch.state == OPEN:
                if batch.queue.leader in busy_nodes:
                    still.append(batch)
                else:
                    self.end_linger(batch)
        self.awaited_batches = still

    cdef void end_back_off(self, ProducerBatch batch, int64_t now_ms):
        if 0 < batch.retry_at_ms <= now_ms:
            batch.retry_at_ms = 0
            if batch.state != ENDED:
                self.mark_ready(batch.queue)

    def close_all(self):
        # Found from the youngest: thousands of flushes, each for its own record, would walk over each other's batches.
        cdef list found = []
        cdef ProducerBatch batch = self.live.youngest
        while len(found) < self.open_batches and batch is not None:
            if batch.state == OPEN:
                found.append(batch)
            batch = batch.older
        for batch in reversed(found):
            if batch.state == OPEN:     # else the program has filled it while the sender was woken for another
                self.close_batch(batch)

    def prefer(self, frozenset node_ids not None):
        self.partitioner.near = node_ids

    def node_stalled(self, int32_t node_id, int64_t now_ms):
        cdef NodeQueue node = self.node(node_id)
        if node.stalled_ms < 0:
            node.stalled_ms = now_ms

    # --- drain, seal --------------------------------------------------------------------------------------------------

    def drain(self, int32_t node_id, Py_ssize_t max_bytes, int64_t now_ms, may_send, Py_ssize_t inline_limit):
        cdef NodeQueue node = self.node(node_id)
        cdef PartitionQueue queue
        cdef ProducerBatch batch
        cdef list batches = []
        cdef list unsealed = []
        cdef Py_ssize_t total = 0
        cdef Py_ssize_t inline_left = inline_limit
        cdef Py_ssize_t size
        cdef Py_ssize_t _
        node.stalled_ms = -1
        self.drains += 1
        for _ in range(node.ready_count):
            queue = node.pop()
            if queue is None:
                break
            batch = queue.first
            if not queue.can_go(now_ms):
                queue.in_ready = False      # what makes it ready again also queues it again
            elif not may_send(batch):
                node.push(queue)    # not sealed ahead either: it would displace one that may go
            elif self.compresses and not batch.sealed and batch.size_bytes > inline_left:
                if self.may_seal_more(node):
                    self.start_sealing(batch, node)
                    unsealed.append(batch)
                else:
                    node.push(queue)
            else:
                size = self.size_in_request(batch)
                if total and total + size > max_bytes:
                    node.push_first(queue)
                    break
                queue.in_ready = False
                queue.topic.drain = self.drains
                if self.compresses and not batch.sealed:
                    inline_left -= batch.size_bytes     # limits how much one drain compresses on the loop
                total += size
                self.take(batch, now_ms)
                batches.append(batch)
        for item in batches:
            queue = (<ProducerBatch>item).queue
            self.close_if_overdue(queue)
            self.mark_ready(queue)
        return batches, unsealed

    def take_unsealed(self, int32_t node_id, int64_t now_ms, may_send, Py_ssize_t inline_limit):
        cdef NodeQueue node = self.node(node_id)
        cdef PartitionQueue queue
        cdef ProducerBatch batch
        cdef list unsealed = []
        cdef list kept = []
        while len(kept) < SEALED_AHEAD and self.may_seal_more(node):
            queue = node.pop()
            if queue is None:
                break
            batch = queue.first
            if not queue.can_go(now_ms):
                queue.in_ready = False
            elif batch.sealed or batch.size_bytes <= inline_limit or not may_send(batch):
                kept.append(queue)
            else:
                self.start_sealing(batch, node)
                unsealed.append(batch)
        for item in reversed(kept):
            node.push_first(<PartitionQueue>item)
        return unsealed

    cdef bint may_seal_more(self, NodeQueue node) noexcept:
        return node.sealing_bytes < 2 * self.max_request_size

    cdef Py_ssize_t size_in_request(self, ProducerBatch batch) noexcept:
        """What a batch takes at most in the request that is being filled, with the fields around it.

        Compression makes it no larger: records that would grow are sent as they are.
        """
        cdef Py_ssize_t size = PARTITION_BYTES + batch.wire_size()
        if batch.queue.topic.drain != self.drains:
            size += batch.queue.topic.frame_bytes
        return size

    cdef void start_sealing(self, ProducerBatch batch, NodeQueue node):
        batch.queue.in_ready = False
        batch.state = SEALING
        self.count_sealing(batch, node)

    cdef void count_sealing(self, ProducerBatch batch, NodeQueue node):
        batch.sealing_node = node
        node.sealing_bytes += batch.wire_size()

    cdef int take(self, ProducerBatch batch, int64_t now_ms) except -1:
        batch.queue.remove(batch)
        batch.state = IN_FLIGHT
        batch.drained_ms = now_ms
        batch.leader_epoch = batch.queue.leader_epoch
        self.in_flight_batches += 1
        self.end_sealing(batch)
        if self.mutes:
            batch.queue.muted = True
        return 0

    def handed_over(self, list batches not None, int64_t now_ms, int64_t touch_every_ms):
        cdef ProducerBatch batch
        cdef TopicQueues topic
        cdef list due = []
        for item in batches:
            batch = <ProducerBatch?>item
            batch.attempts += 1
            topic = batch.queue.topic
            if now_ms - topic.touched_ms >= touch_every_ms:
                topic.touched_ms = now_ms
                due.append(topic.name)
        return due

    cdef void end_sealing(self, ProducerBatch batch):
        if batch.sealing_node is not None:
            batch.sealing_node.sealing_bytes -= batch.wire_size()
            batch.sealing_node = None

    def sealed(self, ProducerBatch batch not None, bytes compressed, int codec_bits):
        cdef NodeQueue node = batch.sealing_node
        if batch.state == SEALING:
            node.sealing_bytes -= batch.wire_size()
            batch.seal(compressed, codec_bits)
            node.sealing_bytes += batch.wire_size()
            batch.state = CLOSED
            self.mark_ready(batch.queue)
        else:
            self.end_sealing(batch)     # it expired meanwhile; its memory had to wait for the worker
            self.release(batch)

    # --- after the answer ---------------------------------------------------------------------------------------------

    cdef void land(self, ProducerBatch batch):
        """The batch is no longer in flight."""
        if batch.state == IN_FLIGHT:
            self.in_flight_batches -= 1
            if batch.queue.muted:
                batch.queue.muted = False
                self.mark_ready(batch.queue)

    def requeue(self, ProducerBatch batch not None, int64_t now_ms, int64_t retry_at_ms):
        self.land(batch)
        batch.state = CLOSED
        batch.queue.insert(batch)
        if batch.queue.leader_epoch > batch.leader_epoch:
            retry_at_ms = now_ms        # sent to a former leader; the current one has refused nothing
        if retry_at_ms > now_ms:
            batch.retry_at_ms = retry_at_ms
            heappush(self.backing_off, (retry_at_ms, batch.order_in_partition(), batch))
            self.wake()
        else:
            batch.retry_at_ms = 0
            self.mark_ready(batch.queue)

    cpdef release(self, ProducerBatch batch):
        self.land(batch)
        batch.state = ENDED
        if batch.sealing_node is not None or batch.released:
            return      # a worker still reads the memory; sealed() releases it later
        batch.released = True
        batch.last_error = None     # its traceback may lead back here
        batch.release()
        self.forget(batch)

    cdef void forget(self, ProducerBatch batch):
        """Remove an ended batch from the books, and its parent if this was its last piece."""
        cdef ProducerBatch parent = batch.parent
        if parent is None:
            self.live.remove(batch)
        else:
            if batch in parent.pieces:
                parent.pieces.remove(batch)
                if not parent.pieces:
                    self.forget(parent)

    def split(self, ProducerBatch batch not None, plain, int64_t now_ms):
        cdef list pieces = []
        cdef list results = []
        cdef ProducerBatch piece = None
        cdef RecordView record
        cdef Py_ssize_t size
        cdef Py_ssize_t limit
        cdef int32_t index = 0
        cdef bytes key, value
        if batch.state != IN_FLIGHT or batch.failed_early:
            raise ValueError(f"only a batch in flight whose Deliveries are pending can be split, not {batch!r}")
        self.learn_limit(batch, now_ms)
        limit = self.piece_limit(batch)
        for delta, key, value, headers in split_records(plain, batch.result.record_count):
            fill_view(&record, key, value, headers, batch.base_timestamp_ms + delta)
            size = 0 if piece is None else piece.record_size(&record)
            if piece is None or HEADER_BYTES + piece.size_bytes + size > limit:
                piece = self.new_piece(batch, len(pieces), index)
                pieces.append(piece)
                results.append((index, piece.result))
                size = piece.record_size(&record)
            piece.reserve(size, 1)
            piece.append(&record, headers, size)
            piece.result.add_record()
            index += 1
        batch.queue.topic.compression_ratio = 1.0
        left = list(pieces)
        batch.result.split_into(results)
        self.land(batch)    # no earlier: if memory is short, the batch is still in flight
        batch.state = ENDED
        batch.release()
        batch.pieces = left
        for item in pieces:
            batch.queue.insert(<ProducerBatch>item)
        self.mark_ready(batch.queue)
        return pieces

    cdef int learn_limit(self, ProducerBatch batch, int64_t now_ms) except -1:
        """Fill the topic's batches less from now on, including the open ones."""
        cdef TopicQueues topic = batch.queue.topic
        cdef ProducerBatch other
        topic.refused(batch.wire_size(), now_ms)
        for item in topic.open:
            other = <ProducerBatch>item
            if other is not None:
                other.limit_bytes = min(other.limit_bytes, topic.batch_limit)
        return 0

    cdef Py_ssize_t piece_limit(self, ProducerBatch batch):
        """Bytes of a piece before compression: at most half of the batch, and no more than the topic's limit allows."""
        cdef Py_ssize_t limit = min(self.batch_size, HEADER_BYTES + batch.size_bytes // 2)
        cdef Py_ssize_t sealed = batch.wire_size()
        cdef Py_ssize_t allowed = batch.queue.topic.batch_limit - HEADER_BYTES
        if allowed < sealed - HEADER_BYTES:
            limit = min(limit, HEADER_BYTES + batch.size_bytes * allowed // (sealed - HEADER_BYTES))
        return limit

    cdef ProducerBatch new_piece(self, ProducerBatch parent, Py_ssize_t number, int32_t first_index):
        cdef ProducerBatch piece = ProducerBatch.__new__(ProducerBatch, self.outside)
        piece.parent = parent
        piece.serial = parent.serial
        piece.place = (*parent.order_in_partition(), number)
        piece.queue = parent.queue
        piece.result = new_result(parent.queue.topic.name, parent.queue.partition, self.ledger)
        piece.result.serial = parent.serial
        piece.created_ms = parent.created_ms
        piece.state = CLOSED
        piece.attempts = parent.attempts - 1    # the refused request was no attempt of the piece
        piece.maybe_written = parent.maybe_written
        piece.in_doubt = parent.in_doubt
        piece.last_error = parent.last_error
        piece.transactional = parent.transactional
        piece.producer_id = parent.producer_id
        piece.producer_epoch = parent.producer_epoch
        piece.base_sequence = -1
        if parent.base_sequence >= 0:
            piece.base_sequence = <int32_t>((<int64_t>parent.base_sequence + first_index) & 0x7FFFFFFF)
        return piece

    # --- ends ---------------------------------------------------------------------------------------------------------

    def expire(self, int64_t now_ms):
        cdef ProducerBatch batch = self.live.aging
        cdef list expired = []
        cdef int64_t late_ms = -1 if batch is None else now_ms - batch.created_ms - self.delivery_timeout_ms
        if late_ms >= LATE_MS and not self.patient_until_ms:
            self.patient_until_ms = now_ms + LATE_MS    # the loop was held up: its answer may be there, not yet read
        if late_ms >= 0 and now_ms < self.patient_until_ms:
            return expired
        self.patient_until_ms = 0
        while batch is not None and batch.created_ms + self.delivery_timeout_ms <= now_ms:
            self.take_unfinished(batch, expired, True, True)
            self.close_if_overdue(batch.queue)
            batch = self.live.aging = batch.younger
        return expired

    def take_all(self):
        cdef list taken = self.take_live(True, True)
        self.live.aging = None
        return taken

    def take_unsent(self, bint also_in_doubt):
        return self.take_live(False, also_in_doubt)

    cdef list take_live(self, bint in_flight, bint also_in_doubt):
        cdef list taken = []
        cdef ProducerBatch batch = self.live.oldest
        while batch is not None:
            self.take_unfinished(batch, taken, in_flight, also_in_doubt)
            batch = batch.younger
        return taken

    cdef int take_unfinished(self, ProducerBatch batch, list taken, bint in_flight, bint also_in_doubt) except -1:
        """Collect a batch, or its remaining pieces, and remove it from its queue."""
        if batch.pieces is not None:
            for piece in batch.pieces:
                self.take_unfinished(<ProducerBatch>piece, taken, in_flight, also_in_doubt)
        elif batch.state == IN_FLIGHT and not in_flight or batch.in_doubt and not also_in_doubt:
            pass
        elif batch.state != ENDED and not batch.failed_early:
            batch.failed_early = True
            taken.append(batch)
            if batch.state != IN_FLIGHT:
                if batch.state == OPEN:
                    self.end_open(batch)
                if batch.state != SEALING:
                    self.end_sealing(batch)     # sealed but not drained: no worker reads it any more
                batch.queue.remove(batch)
                batch.state = ENDED
                if not batch.queue.can_go(0):
                    self.unmark_ready(batch.queue)
                self.mark_ready(batch.queue)
        return 0

    def oldest_live_serial(self):
        return -1 if self.live.oldest is None else self.live.oldest.serial

    def has_live_batches(self):
        return self.live.oldest is not None

    def live_record_count(self, int64_t last_serial):
        cdef ProducerBatch batch = self.live.oldest
        cdef int64_t count = 0
        while batch is not None and batch.serial <= last_serial:
            count += self.pending_records(batch)
            batch = batch.younger
        return count

    cdef int64_t pending_records(self, ProducerBatch batch):
        """Records of a batch, or of its remaining pieces, that have not ended."""
        if batch.pieces is None:
            return 0 if batch.result.done else batch.result.record_count
        return sum([self.pending_records(<ProducerBatch>piece) for piece in batch.pieces])
