"""What ``send_offsets_to_transaction`` needs, taken from the consumers of confluent-kafka and aiokafka.

For a program that consumes, transforms and produces: the positions of the consumer become part of the transaction, so
that a record counts as consumed if and only if the records made from it are visible. The consumer must not commit by
itself (``enable.auto.commit=false``), and should read only committed records (``isolation.level=read_committed``).

    async with producer.transaction():
        ...                                                              # send the records made from those consumed
        await producer.send_offsets_to_transaction(confluent_positions(consumer), confluent_group(consumer))

Neither package is imported. Tested with confluent-kafka 2.16 and aiokafka 0.14.

Source: KIP-447; confluent-kafka's documentation of consumer_group_metadata() and position(), aiokafka's sources.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from typing import Any

from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

CONFLUENT_MAGIC = b"CGMDv2:"
"""Start of librdkafka's serialized group metadata: generation, group, member, flag, instance."""

NO_MEMBER = "none: the consumer is no longer a member"
"""No group has a member with this id, so each refuses it (UNKNOWN_MEMBER_ID). One without an id would pass for a
consumer outside of the group, whose offsets are accepted."""


def confluent_group(consumer: Any) -> ConsumerGroupMetadata:
    """The group membership of a ``confluent_kafka.Consumer``; it fences the consumer once that has left the group.

    Raises:
        ValueError: this version of confluent-kafka reports it in another format.
        TypeError: it is an AIOConsumer, for which there is ``confluent_aio_group``.
    """
    return _membership(_at_once(consumer.consumer_group_metadata(), "confluent_aio_group"))


def confluent_positions(consumer: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions of a ``confluent_kafka.Consumer``, for each assigned partition from which it returned records.

    They cover everything that ``poll`` and ``consume`` have returned.

    Raises:
        TypeError: it is an AIOConsumer, for which there is ``confluent_aio_positions``.
    """
    return _read_up_to(consumer.position(_at_once(consumer.assignment(), "confluent_aio_positions")))


async def confluent_aio_group(consumer: Any) -> ConsumerGroupMetadata:
    """``confluent_group`` for a ``confluent_kafka.aio.AIOConsumer``.

    Raises:
        ValueError: this version of confluent-kafka reports it in another format.
    """
    return _membership(await consumer.consumer_group_metadata())


async def confluent_aio_positions(consumer: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """``confluent_positions`` for a ``confluent_kafka.aio.AIOConsumer``; no other task may ``poll`` it meanwhile."""
    return _read_up_to(await consumer.position(await consumer.assignment()))


def _at_once(answer: Any, otherwise: str) -> Any:
    if not inspect.iscoroutine(answer):
        return answer
    answer.close()
    raise TypeError(f"this consumer answers asynchronously, as an AIOConsumer does: await {otherwise}(consumer)")


def _membership(data: Any) -> ConsumerGroupMetadata:
    if not isinstance(data, bytes) or not data.startswith(CONFLUENT_MAGIC):
        raise ValueError("consumer_group_metadata() of this confluent-kafka has an unknown form")
    at = len(CONFLUENT_MAGIC)
    generation_id = int.from_bytes(data[at : at + 4], sys.byteorder, signed=True)
    group_id, member_id, rest = data[at + 4 :].split(b"\0", 2)
    instance_id = None if rest[:1] == b"\1" else rest[1:].rstrip(b"\0").decode()
    return ConsumerGroupMetadata(group_id.decode(), generation_id, member_id.decode(), instance_id)


def _read_up_to(positions: Iterable[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset)
        for each in positions
        if each.offset >= 0
    }


def aiokafka_group(consumer: Any) -> ConsumerGroupMetadata:
    """The group membership of an ``aiokafka.AIOKafkaConsumer``; it fences the consumer once that has left the group.

    aiokafka forgets its member id when it learns that the group has removed it, and for a moment still returns records
    of its former partitions. The membership is then one that the group refuses. A consumer with partitions from
    ``assign()`` is no member, and its offsets are not fenced.

    aiokafka has no public call for it, so this reads the attributes of its coordinator.

    Raises:
        ValueError: it has no group, or this version of aiokafka keeps it elsewhere; or it commits by itself, as it does
            by default, also records whose transaction is aborted, which nobody would get again.
    """
    coordinator = consumer._coordinator
    if getattr(coordinator, "_enable_auto_commit", False):
        raise ValueError(
            "this aiokafka consumer commits by itself, also records whose transaction is aborted: they would be lost; "
            "give it enable_auto_commit=False"
        )
    try:
        generation_id, member_id = coordinator.generation, coordinator.member_id
        if generation_id < 0 and consumer._subscription.partitions_auto_assigned():
            generation_id, member_id = 0, NO_MEMBER  # a group without members accepts any negative generation
        return ConsumerGroupMetadata(coordinator.group_id, generation_id, member_id, coordinator._group_instance_id)
    except AttributeError as error:
        raise ValueError("this aiokafka consumer has no group, or is of an unknown version") from error


def aiokafka_positions(consumer: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """The positions of an ``aiokafka.AIOKafkaConsumer``, for each assigned partition that has one already.

    They cover everything that ``getone`` and ``getmany`` have returned. aiokafka rebalances in the background whenever
    the program waits, and then both the positions and the membership change: take the two right after ``getmany``, with
    no ``await`` between them, or offsets of a partition that now belongs to another member may be accepted.

    aiokafka's own ``position()`` waits for a partition that has none, for as long as it has no leader. So this reads
    what its ``commit()`` reads.

    Raises:
        ValueError: this version of aiokafka keeps them elsewhere.
    """
    try:
        subscription = consumer._subscription.subscription
        assignment = None if subscription is None else subscription.assignment
        consumed = {} if assignment is None else assignment.all_consumed_offsets()
    except AttributeError as error:
        raise ValueError("this aiokafka consumer is of an unknown version") from error
    return {
        TopicPartition(each.topic, each.partition): OffsetAndMetadata(position.offset)
        for each, position in consumed.items()
    }
