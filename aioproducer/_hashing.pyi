"""murmur2 as Kafka's own partitioner computes it."""

def murmur2(data: bytes) -> int:
    """Hash a serialized key as Kafka's Java client does.

    Returns the signed 32-bit value; the partition is ``(hash & 0x7fffffff) % partition_count`` over all partitions,
    available or not.

    Source: org.apache.kafka.common.utils.Utils.murmur2.
    """
