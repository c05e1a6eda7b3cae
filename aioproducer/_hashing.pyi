"""Hashes of keys: murmur2 as Kafka's own partitioner computes it, FNV-1a as Sarama's."""

def murmur2(data: bytes) -> int:
    """Hash a serialized key as Kafka's Java client does.

    Returns the signed 32-bit value; the partition is ``(hash & 0x7fffffff) % partition_count`` over all partitions,
    available or not.

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """

def fnv1a(data: bytes) -> int:
    """The absolute value of the signed 32-bit FNV-1a hash; the partition is this modulo the partition count.

    Source: Sarama's NewHashPartitioner; librdkafka's partitioner fnv1a.
    """
