"""BuiltInPartitioner: the partition of a record for which its caller names none."""

import cython

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from aioproducer._hashing cimport murmur2_raw
from aioproducer._producer_batch cimport PartitionQueue, TopicQueues
from aioproducer._record_batch cimport RecordView


cdef enum Strategy:
    """How the partition is chosen. A record that "sticks" goes to its topic's current partition."""
    MURMUR2_RANDOM      # Kafka's own: by the hash of the key; a record without a key sticks
    STICKY              # every record sticks
    ROUND_ROBIN         # the partitions in turn
    MURMUR2             # from here on librdkafka's; the next three hash the key, and take no key for an empty one
    CONSISTENT          # CRC-32
    FNV1A
    CONSISTENT_RANDOM   # CRC-32 of the key; a record without a key sticks, one with an empty key goes to any partition
    FNV1A_RANDOM        # FNV-1a of the key; a record without a key sticks
    RANDOM              # any partition


cdef inline int32_t by_murmur2(TopicQueues topic, const char* key, Py_ssize_t size) noexcept:
    """The partition that Kafka's own partitioner chooses for a key."""
    cdef uint32_t positive = murmur2_raw(<const unsigned char*>key, size) & 0x7FFFFFFF
    return <int32_t>(positive % <uint32_t>topic.partition_count)


@cython.final
cdef class BuiltInPartitioner:
    """Chooses partitions for the records of one accumulator."""
    cdef Strategy strategy
    cdef object random
    cdef uint64_t random_state          # of any_partition
    cdef dict nodes                     # the accumulator's: node id -> NodeQueue
    cdef bint adaptive
    cdef int64_t availability_timeout_ms
    cdef frozenset near                 # node ids of the brokers that are preferred; empty: all are alike

    cdef inline int32_t of_record(self, TopicQueues topic, RecordView* record) noexcept:
        """The partition of a record; -1 if it sticks."""
        if self.strategy != MURMUR2_RANDOM:
            return self.by_others(topic, record)
        return by_murmur2(topic, record.key, record.key_size) if record.key_size >= 0 else -1

    cdef int32_t by_others(self, TopicQueues topic, RecordView* record) noexcept
    cdef int32_t any_partition(self, TopicQueues topic) noexcept
    cdef int32_t next_in_turn(self, TopicQueues topic) noexcept
    cdef int32_t draw(self, TopicQueues topic, int64_t now_ms)
    cdef int32_t draw_among(self, TopicQueues topic, int64_t now_ms, bint near)
    cdef bint usable(self, PartitionQueue queue, int64_t now_ms, bint near)
    cdef bint available(self, PartitionQueue queue, int64_t now_ms)
