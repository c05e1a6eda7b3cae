"""BuiltInPartitioner: the partition of a record for which its caller names none.

Theory of operation. Where the key decides, `of_record` hashes it as Kafka or librdkafka does. Any other record sticks
to its topic's current partition, so that batches fill up. The accumulator, which knows the batches, decides when a
partition has had its share; `draw` then names the next one. It draws among those that have a leader that can be
reached, and the longer the queue of a partition, the less likely it is chosen. If some of these leaders are near, in
the program's own rack, only theirs count.

Source: org.apache.kafka.clients.producer.internals.BuiltInPartitioner (KIP-480, KIP-794, KIP-1123); librdkafka's
`partitioner`.
"""

import cython

from aioproducer._hashing cimport crc32_raw, fnv1a_raw
from aioproducer._producer_batch cimport NodeQueue

cdef dict STRATEGIES = {
    "murmur2_random": MURMUR2_RANDOM,
    "sticky": STICKY,
    "round_robin": ROUND_ROBIN,
    "murmur2": MURMUR2,
    "consistent": CONSISTENT,
    "fnv1a": FNV1A,
    "consistent_random": CONSISTENT_RANDOM,
    "fnv1a_random": FNV1A_RANDOM,
    "random": RANDOM,
}


@cython.final
cdef class BuiltInPartitioner:

    def __cinit__(self, str name, random, dict nodes, bint adaptive, int64_t availability_timeout_ms):
        self.strategy = STRATEGIES[name]
        self.random = random
        if self.strategy == RANDOM or self.strategy == CONSISTENT_RANDOM:
            self.random_state = random.getrandbits(64)
        self.nodes = nodes
        self.adaptive = adaptive
        self.availability_timeout_ms = availability_timeout_ms
        self.near = frozenset()

    cdef int32_t by_others(self, TopicQueues topic, RecordView* record) noexcept:
        """`of_record` with any strategy but the default."""
        cdef const unsigned char* key = <const unsigned char*>record.key
        cdef Py_ssize_t size = max(record.key_size, 0)
        cdef uint32_t hashed
        if self.strategy == ROUND_ROBIN:
            return self.next_in_turn(topic)
        if self.strategy == STICKY or (
            record.key_size < 0 and (self.strategy == CONSISTENT_RANDOM or self.strategy == FNV1A_RANDOM)
        ):
            return -1
        if self.strategy == RANDOM or (self.strategy == CONSISTENT_RANDOM and size == 0):
            return self.any_partition(topic)
        if self.strategy == MURMUR2:
            return by_murmur2(topic, record.key, size)
        if self.strategy == CONSISTENT or self.strategy == CONSISTENT_RANDOM:
            hashed = crc32_raw(key, size)
        else:
            hashed = fnv1a_raw(key, size)
        return <int32_t>(hashed % <uint32_t>topic.partition_count)

    cdef int32_t any_partition(self, TopicQueues topic) noexcept:
        """Uniform but for one part in 2^32 / partitions. The generator is splitmix64."""
        cdef uint64_t mixed
        self.random_state += <uint64_t>0x9E3779B97F4A7C15
        mixed = self.random_state
        mixed = (mixed ^ (mixed >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
        mixed = (mixed ^ (mixed >> 27)) * <uint64_t>0x94D049BB133111EB
        mixed ^= mixed >> 31
        return <int32_t>(((mixed >> 32) * <uint64_t>topic.partition_count) >> 32)

    cdef int32_t next_in_turn(self, TopicQueues topic) noexcept:
        """The next partition with a leader, or simply the next if none has one."""
        cdef int32_t count = topic.partition_count
        cdef int32_t partition, _
        for _ in range(count):
            partition = <int32_t>(topic.round_robin % <uint32_t>count)
            topic.round_robin += 1
            if (<PartitionQueue>topic.queues[partition]).leader >= 0:
                return partition
        partition = <int32_t>(topic.round_robin % <uint32_t>count)
        topic.round_robin += 1
        return partition

    cdef int32_t draw(self, TopicQueues topic, int64_t now_ms):
        """Draw a partition with a leader, a near one if there is one; any if none has a leader."""
        cdef int32_t drawn = self.draw_among(topic, now_ms, True) if self.near else -1
        if drawn < 0:
            drawn = self.draw_among(topic, now_ms, False)
        return drawn if drawn >= 0 else <int32_t>self.random.randrange(topic.partition_count)

    cdef int32_t draw_among(self, TopicQueues topic, int64_t now_ms, bint near):
        """Draw a usable partition; the longer its queue, the less likely. Uniform if queues are equal; -1: none is."""
        cdef int32_t count = topic.partition_count
        cdef PartitionQueue queue
        cdef Py_ssize_t longest = 0
        cdef Py_ssize_t total = 0
        cdef int32_t usable = 0
        cdef int32_t i
        for i in range(count):
            queue = <PartitionQueue>topic.queues[i]
            if self.usable(queue, now_ms, near):
                usable += 1
                if queue.length > longest:
                    longest = queue.length
        if usable == 0:
            return -1
        for i in range(count):
            queue = <PartitionQueue>topic.queues[i]
            if self.usable(queue, now_ms, near):
                total += longest + 1 - queue.length if self.adaptive else 1
        cdef Py_ssize_t pick = self.random.randrange(total)
        for i in range(count):
            queue = <PartitionQueue>topic.queues[i]
            if self.usable(queue, now_ms, near):
                pick -= longest + 1 - queue.length if self.adaptive else 1
                if pick < 0:
                    return i
        return count - 1

    cdef bint usable(self, PartitionQueue queue, int64_t now_ms, bint near):
        """Whether a partition may be drawn; with `near` only if its leader is."""
        return self.available(queue, now_ms) and (not near or queue.leader in self.near)

    cdef bint available(self, PartitionQueue queue, int64_t now_ms):
        """Whether it has a leader that is not out of reach for longer than `availability_timeout_ms`; 0 allows any."""
        cdef NodeQueue node
        if queue.leader < 0:
            return False
        if self.availability_timeout_ms <= 0:
            return True
        node = <NodeQueue>self.nodes.get(queue.leader)      # None until something was queued for it
        return node is None or node.stalled_ms < 0 or now_ms - node.stalled_ms <= self.availability_timeout_ms
