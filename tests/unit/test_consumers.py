"""Positions and membership of other clients' consumers, through their public API."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from aioproducer.consumers import (
    NO_MEMBER,
    aiokafka_group,
    aiokafka_positions,
    confluent_aio_group,
    confluent_aio_positions,
    confluent_group,
    confluent_positions,
)
from aioproducer.records import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class ConfluentConsumer:
    """The parts of confluent_kafka.Consumer that are used."""

    def __init__(self, metadata: object = None, positions: tuple[tuple[str, int, int], ...] = ()) -> None:
        self.metadata = metadata
        self.positions = positions

    def consumer_group_metadata(self) -> object:
        return self.metadata

    def assignment(self) -> str:
        return "assigned"

    def position(self, partitions: str) -> list[Any]:
        assert partitions == "assigned"
        return [SimpleNamespace(topic=a, partition=b, offset=c) for a, b, c in self.positions]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            b"CGMDv2:" + struct.pack("=i", 7) + b"group\0member-1\0\x01",
            ConsumerGroupMetadata("group", 7, "member-1"),
        ),
        (
            b"CGMDv2:" + struct.pack("=i", -1) + b"my-group\0\0\0inst\0",
            ConsumerGroupMetadata("my-group", -1, "", "inst"),
        ),
    ],
)
def test_confluent_group(data: bytes, expected: ConsumerGroupMetadata) -> None:
    """From librdkafka's serialized form."""
    assert confluent_group(ConfluentConsumer(data)) == expected


@pytest.mark.parametrize("data", [b"CGMDv3:anything", b"", object()])
def test_confluent_group_of_an_unknown_form(data: object) -> None:
    with pytest.raises(ValueError, match="unknown form"):
        confluent_group(ConfluentConsumer(data))


def test_confluent_positions() -> None:
    """Partitions from which nothing was consumed yet have no position."""
    consumer = ConfluentConsumer(positions=(("a", 0, 5), ("a", 1, -1001), ("b", 3, 0)))
    assert confluent_positions(consumer) == {
        TopicPartition("a", 0): OffsetAndMetadata(5),
        TopicPartition("b", 3): OffsetAndMetadata(0),
    }


async def test_an_aio_consumer_of_confluent() -> None:
    """Its answers come asynchronously; the plain functions say which to use instead."""
    aio = pytest.importorskip("confluent_kafka.aio")
    consumer = aio.AIOConsumer({"bootstrap.servers": "localhost:1", "group.id": "group", "log_level": 0})
    try:
        assert await confluent_aio_group(consumer) == ConsumerGroupMetadata("group")
        assert await confluent_aio_positions(consumer) == {}
        with pytest.raises(TypeError, match=r"await confluent_aio_group\(consumer\)"):
            confluent_group(consumer)
        with pytest.raises(TypeError, match=r"await confluent_aio_positions\(consumer\)"):
            confluent_positions(consumer)
    finally:
        await consumer.close()


async def test_positions_of_an_aio_consumer() -> None:
    class AIOConsumer(ConfluentConsumer):
        async def assignment(self) -> str:  # type: ignore[override]
            return super().assignment()

        async def position(self, partitions: str) -> list[Any]:  # type: ignore[override]
            return super().position(partitions)

    consumer = AIOConsumer(positions=(("a", 0, 5), ("a", 1, -1001)))
    assert await confluent_aio_positions(consumer) == {TopicPartition("a", 0): OffsetAndMetadata(5)}


async def test_group_and_positions_of_an_aiokafka_consumer_are_read() -> None:
    """What it has not read from yet, or can't, is left out: nothing waits for its position."""
    aiokafka = pytest.importorskip("aiokafka")
    state = pytest.importorskip("aiokafka.consumer.subscription_state").SubscriptionState()
    coordinator = SimpleNamespace(group_id="group", generation=3, member_id="m", _group_instance_id=None)
    consumer = SimpleNamespace(_coordinator=coordinator, _subscription=state)
    assert aiokafka_positions(consumer) == {}
    state.subscribe({"a"})
    assert aiokafka_positions(consumer) == {}
    state.assign_from_subscribed({aiokafka.TopicPartition("a", number) for number in range(3)})
    for number in range(2):
        state.seek(aiokafka.TopicPartition("a", number), 10 + number)
    assert aiokafka_positions(consumer) == {
        TopicPartition("a", 0): OffsetAndMetadata(10),
        TopicPartition("a", 1): OffsetAndMetadata(11),
    }
    assert aiokafka_group(consumer) == ConsumerGroupMetadata("group", 3, "m")


async def test_the_group_of_an_aiokafka_consumer_that_is_no_member() -> None:
    """One that the group has removed gets a membership that is refused; one with ``assign()`` never had any."""
    aiokafka = pytest.importorskip("aiokafka")
    states = pytest.importorskip("aiokafka.consumer.subscription_state")
    removed, manual = states.SubscriptionState(), states.SubscriptionState()
    removed.subscribe({"a"})
    manual.assign_from_user({aiokafka.TopicPartition("a", 0)})
    coordinator = SimpleNamespace(group_id="group", generation=-1, member_id="", _group_instance_id=None)
    told = aiokafka_group(SimpleNamespace(_coordinator=coordinator, _subscription=removed))
    assert told == ConsumerGroupMetadata("group", 0, NO_MEMBER)
    told = aiokafka_group(SimpleNamespace(_coordinator=coordinator, _subscription=manual))
    assert told == ConsumerGroupMetadata("group")


def test_an_aiokafka_of_an_unknown_form() -> None:
    with pytest.raises(ValueError, match="no group"):
        aiokafka_group(SimpleNamespace(_coordinator=SimpleNamespace()))
    with pytest.raises(ValueError, match="unknown version"):
        aiokafka_positions(SimpleNamespace())
