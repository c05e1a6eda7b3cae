"""The arguments of send_offsets_to_transaction are checked field by field before anything is sent."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from aioproducer import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from aioproducer.protocol.txn_offset_commit import TxnOffsetCommitRequest
from aioproducer.testing import FakeCluster
from aioproducer.transaction.group_offsets import checked_group, checked_offsets
from aioproducer.transaction.requests import _topics_of

HERE = TopicPartition("topic", 0)
LONG = "x" * 40_000


def theirs(name: str) -> Any:
    """An object of another client's class, whose name is that of one of ours."""
    return type(name, (), {"__module__": "kafka.structs"})()


WRONG_OFFSETS: list[tuple[Any, type[Exception], str]] = [
    (None, TypeError, "offsets is a NoneType; a mapping of aioproducer.TopicPartition to an offset is needed"),
    ([(HERE, 5)], TypeError, "offsets is a list"),
    ({"topic": 5}, TypeError, "a key of offsets is a str; aioproducer.TopicPartition, or (topic, partition), is"),
    ({("topic",): 5}, TypeError, "a key of offsets is a tuple of 1"),
    ({(5, 0): 5}, TypeError, "the topic of offsets is a int; str is needed"),
    ({("", 0): 5}, ValueError, "the topic of offsets is empty"),
    ({("\ud800", 0): 5}, ValueError, "the topic of offsets can't be encoded as UTF-8"),
    ({(LONG, 0): 5}, ValueError, "the topic of offsets has 40,000 bytes; 32,767 are the most"),
    ({("topic", "0"): 5}, TypeError, "the partition of topic 'topic' is a str; an int is needed"),
    ({("topic", True): 5}, TypeError, "the partition of topic 'topic' is a bool"),
    ({("topic", -1): 5}, ValueError, "the partition of topic 'topic' is -1; it has to be 0 to 2147483647"),
    ({("topic", 2**31): 5}, ValueError, "the partition of topic 'topic' is 2147483648"),
    ({HERE: "5"}, TypeError, "the offset of topic-0 is a str; an int or aioproducer.OffsetAndMetadata is needed"),
    (
        {HERE: theirs("OffsetAndMetadata")},
        TypeError,
        "the offset of topic-0 is a kafka.structs.OffsetAndMetadata; an int or aioproducer.OffsetAndMetadata is needed",
    ),
    ({theirs("TopicPartition"): 5}, TypeError, "a key of offsets is a kafka.structs.TopicPartition; aioproducer."),
    ({HERE: True}, TypeError, "the offset of topic-0 is a bool"),
    ({HERE: OffsetAndMetadata("5")}, TypeError, "the offset of topic-0 is a str"),  # type: ignore[arg-type]
    ({HERE: -1}, ValueError, "the offset of topic-0 is -1; it has to be 0 to 9223372036854775807"),
    ({HERE: 2**63}, ValueError, "the offset of topic-0 is 9223372036854775808"),
    ({HERE: OffsetAndMetadata(5, None)}, TypeError, "the metadata of topic-0 is a NoneType; str is needed"),  # type: ignore[arg-type]
    ({HERE: OffsetAndMetadata(5, "\ud800")}, ValueError, "the metadata of topic-0 can't be encoded as UTF-8"),
    ({HERE: OffsetAndMetadata(5, LONG)}, ValueError, "the metadata of topic-0 has 40,000 bytes"),
    ({HERE: OffsetAndMetadata(5, "", "x")}, TypeError, "the leader_epoch of topic-0 is a str; an int or None is"),  # type: ignore[arg-type]
    ({HERE: OffsetAndMetadata(5, "", -2)}, ValueError, "the leader_epoch of topic-0 is -2; it has to be -1 to"),
    ({HERE: OffsetAndMetadata(5, "", 2**40)}, ValueError, "the leader_epoch of topic-0 is 1099511627776"),
]

WRONG_GROUPS: list[tuple[Any, type[Exception], str]] = [
    ("group", TypeError, "group_metadata is a str; aioproducer.ConsumerGroupMetadata is needed"),
    (
        theirs("ConsumerGroupMetadata"),
        TypeError,
        "group_metadata is a kafka.structs.ConsumerGroupMetadata; aioproducer.ConsumerGroupMetadata is needed",
    ),
    (ConsumerGroupMetadata(None), TypeError, "group_id is a NoneType; str is needed"),  # type: ignore[arg-type]
    (ConsumerGroupMetadata(""), ValueError, "group_id is empty"),
    (ConsumerGroupMetadata("\ud800"), ValueError, "group_id can't be encoded as UTF-8"),
    (ConsumerGroupMetadata(LONG), ValueError, "group_id has 40,000 bytes"),
    (ConsumerGroupMetadata("group", "3"), TypeError, "generation_id is a str; an int is needed"),  # type: ignore[arg-type]
    (ConsumerGroupMetadata("group", 2**31), ValueError, "generation_id is 2147483648; it has to be -1 to 2147483647"),
    (ConsumerGroupMetadata("group", 1, None), TypeError, "member_id is a NoneType"),  # type: ignore[arg-type]
    (ConsumerGroupMetadata("group", 1, "\ud800"), ValueError, "member_id can't be encoded as UTF-8"),
    (ConsumerGroupMetadata("group", 1, "member", 7), TypeError, "group_instance_id is a int; str or None is needed"),  # type: ignore[arg-type]
    (ConsumerGroupMetadata("group", 1, "member", LONG), ValueError, "group_instance_id has 40,000 bytes"),
]


@pytest.mark.parametrize(("offsets", "kind", "told"), WRONG_OFFSETS)
def test_wrong_offsets(offsets: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=f"^{re.escape(told)}"):
        checked_offsets(offsets)


@pytest.mark.parametrize(("group", "kind", "told"), WRONG_GROUPS)
def test_wrong_group(group: Any, kind: type[Exception], told: str) -> None:
    with pytest.raises(kind, match=f"^{re.escape(told)}"):
        checked_group(group)


def test_what_is_right_can_be_written() -> None:
    """Values at the limits fit the request."""
    longest = "x" * 32_767
    given = {
        HERE: 0,
        ("topic", 2**31 - 1): OffsetAndMetadata(2**63 - 1, longest, 2**31 - 1),
        TopicPartition(longest, 1): OffsetAndMetadata(5, "kept", -1),
    }
    offsets = checked_offsets(given)  # type: ignore[arg-type]
    assert offsets[HERE] == OffsetAndMetadata(0)
    assert all(type(each) is TopicPartition for each in offsets)
    group = checked_group(ConsumerGroupMetadata(longest, 2**31 - 1, longest, longest))
    request = TxnOffsetCommitRequest(
        transactional_id="id",
        group_id=group.group_id,
        producer_id=4000,
        producer_epoch=0,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=_topics_of(offsets),
    )
    assert request.encode(TxnOffsetCommitRequest.MAX_VERSION)


def test_any_integer_is_a_number() -> None:
    """Offsets often come from an array or a data frame."""
    position = OffsetAndMetadata(np.int64(5), "kept", np.int32(3))  # type: ignore[arg-type]
    offsets = checked_offsets({("topic", np.int32(2)): position})  # type: ignore[dict-item]
    assert offsets == {TopicPartition("topic", 2): OffsetAndMetadata(5, "kept", 3)}
    (place, told), *_ = offsets.items()
    group = checked_group(ConsumerGroupMetadata("group", np.int32(7)))  # type: ignore[arg-type]
    numbers = (place.partition, told.offset, told.leader_epoch, group.generation_id)
    assert numbers == (2, 5, 3, 7)
    assert {type(each) for each in numbers} == {int}


async def test_the_transaction_stays_as_it_was() -> None:
    with FakeCluster(1) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="name")
        async with producer, producer.transaction():
            await producer.send("topic", b"value")
            for offsets, kind, _ in WRONG_OFFSETS:
                with pytest.raises(kind):
                    await producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata("group"))
            for group, kind, _ in WRONG_GROUPS:
                with pytest.raises(kind):
                    await producer.send_offsets_to_transaction({HERE: 5}, group)
        assert [each.value for each in cluster.records("topic", read_committed=True)] == [b"value"]
