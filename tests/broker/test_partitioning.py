"""How records are assigned to partitions."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer as OtherProducer

from aioproducer import PartitionInfo, Producer, SerializationError
from aioproducer.partitioners import LIBRDKAFKA
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_topic, producer_of
from tests.broker.readers import read

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "vectors.json").read_text())["murmur2"]
"""Keys and the partitions that Kafka's own Java classes choose for them."""


@pytest.mark.parametrize("partitions", [1, 3, 7, 12, 100])
async def test_a_key_goes_where_javas_producer_puts_it(kafka: KafkaCluster, partitions: int) -> None:
    topic = await new_topic(kafka, partitions)
    async with producer_of(kafka) as producer:
        found = await asyncio.gather(
            *(producer.send(topic, b"v", key=bytes.fromhex(one["key_hex"])) for one in VECTORS)
        )
    assert [one.partition for one in found] == [one[f"p{partitions}"] for one in VECTORS]


async def test_keys_go_where_librdkafka_puts_them_with_murmur2(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 13)
    keys = [b"", *(b"key-%d" % i * (i % 40 + 1) for i in range(500)), "ключ".encode()]
    other = OtherProducer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2"})
    for key in keys:
        other.produce(topic, key=key)
    assert await asyncio.to_thread(other.flush, 30) == 0
    theirs = {one.key: partition for partition, records in (await read(kafka, topic)).items() for one in records}
    async with producer_of(kafka) as producer:
        ours = await asyncio.gather(*(producer.send(topic, key=key) for key in keys))
    assert {key: one.partition for key, one in zip(keys, ours, strict=True)} == {key: theirs[key] for key in keys}


async def test_text_and_bytes_are_the_same_key(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 50)
    async with producer_of(kafka) as producer:
        for key in ("a", "schlüssel", "🎉"):
            first = await producer.send(topic, key=key)
            second = await producer.send(topic, key=bytearray(key.encode()))
            assert first.partition == second.partition


async def test_an_explicit_partition_wins_over_the_key(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 5)
    async with producer_of(kafka) as producer:
        for partition in range(5):
            assert (await producer.send(topic, key=b"the same key", partition=partition)).partition == partition


async def test_keyless_records_fill_a_batch_then_move_on(kafka: KafkaCluster) -> None:
    """Sticky: one batch for one partition, the next for another; in the long run all get their share."""
    topic = await new_topic(kafka, 4)
    async with producer_of(kafka, batch_size=2_000, linger_ms=1_000) as producer:
        deliveries = [await producer.submit(topic, bytes(100)) for _ in range(4_000)]
        await producer.flush()
        partitions = [delivery.result().partition for delivery in deliveries]
    counts = Counter(partitions)
    assert set(counts) == {0, 1, 2, 3}
    assert min(counts.values()) > 4_000 / 4 / 3
    switches = sum(a != b for a, b in pairwise(partitions))
    assert switches <= 4_000 * 110 / 2_000 * 1.5
    for partition in range(4):
        dump = await asyncio.to_thread(kafka.dump_log_segments, topic, partition)
        assert sum(batch.size for batch in dump.batches[:-1]) > 0.8 * 2_000 * (len(dump.batches) - 1)


async def test_lone_sends_without_key_are_spread_too(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 3)
    async with producer_of(kafka, batch_size=500) as producer:
        counts = Counter([(await producer.send(topic, bytes(100))).partition for _ in range(150)])
    assert set(counts) == {0, 1, 2}


async def test_ignore_keys(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 3)
    async with producer_of(kafka, partitioner_ignore_keys=True, batch_size=500) as producer:
        deliveries = [await producer.submit(topic, bytes(100), key=b"the same") for _ in range(200)]
        assert {(await delivery).partition for delivery in deliveries} == {0, 1, 2}


@pytest.mark.parametrize("name", ["round_robin", "org.apache.kafka.clients.producer.RoundRobinPartitioner"])
async def test_round_robin_takes_turns_with_and_without_key(kafka: KafkaCluster, name: str) -> None:
    topic = await new_topic(kafka, 3)
    async with producer_of(kafka, partitioner_class=name) as producer:
        deliveries = [await producer.submit(topic, b"v", key=b"k" if i % 2 else None) for i in range(30)]
        partitions = [(await delivery).partition for delivery in deliveries]
    assert partitions == [(partitions[0] + i) % 3 for i in range(30)]


async def test_a_partitioner_of_ones_own(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 6)
    seen: list[tuple[str, bytes | None, bytes | None, tuple[PartitionInfo, ...]]] = []

    def by_length(topic: str, key: bytes | None, value: bytes | None, partitions: tuple[PartitionInfo, ...]) -> int:
        seen.append((topic, key, value, partitions))
        return len(value or b"") % len(partitions)

    async with producer_of(kafka, partitioner=by_length) as producer:
        found = [await producer.send(topic, "v" * i, key="schlüssel") for i in range(8)]
        assert [one.partition for one in found] == [0, 1, 2, 3, 4, 5, 0, 1]
        assert (await producer.send(topic, "v" * 8, partition=5)).partition == 5
        assert len(seen) == 8
        assert seen[3][:3] == (topic, "schlüssel".encode(), b"vvv")
        assert seen[3][3] == await producer.partitions_for(topic)
        delivery = producer.submit_nowait(topic, b"vv")
        assert (await delivery).partition == 2


@pytest.mark.parametrize("wrong", [6, -1, "0", None, 1.0])
async def test_a_partitioner_that_names_no_partition(kafka: KafkaCluster, wrong: object) -> None:
    topic = await new_topic(kafka, 6)
    async with producer_of(kafka, partitioner=lambda *_: wrong) as producer:
        with pytest.raises(SerializationError, match=r"partitioner returned .* partitions 0 to 5"):
            await producer.send(topic, b"value")


async def test_a_partitioner_that_raises(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 6)

    def wrong(*_: object) -> int:
        raise LookupError("mine")

    async with producer_of(kafka, partitioner=wrong) as producer:
        with pytest.raises(SerializationError, match="LookupError") as caught:
            await producer.send(topic, b"value")
        assert isinstance(caught.value.__cause__, LookupError)


async def test_partitions_for(three_brokers: KafkaCluster) -> None:
    topic = await new_topic(three_brokers, 4)
    described = await asyncio.to_thread(three_brokers.describe_topic, topic)
    async with producer_of(three_brokers) as producer:
        found = await producer.partitions_for(topic)
    assert isinstance(found, tuple)
    assert [one.partition for one in found] == [0, 1, 2, 3]
    for one, told in zip(found, described.partitions, strict=True):
        assert isinstance(one, PartitionInfo)
        assert one.topic == topic
        assert one.leader == told.leader_id
        assert one.replicas == tuple(told.replica_nodes)
        assert set(one.in_sync_replicas) == {1, 2, 3}
        assert one.offline_replicas == ()


async def test_partitions_added_later_are_used(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 1)
    async with producer_of(kafka, metadata_max_age_ms=200, batch_size=300) as producer:
        await producer.send(topic, b"value")
        await asyncio.to_thread(kafka.add_partitions, topic, 4)
        async with asyncio.timeout(30):
            while (await producer.send(topic, bytes(200))).partition != 3:
                pass


# --- partitioners of other clients ------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitioner", sorted(set(LIBRDKAFKA) - {"random"}))
async def test_keys_go_where_librdkafka_puts_them(kafka: KafkaCluster, partitioner: str) -> None:
    """Compared with librdkafka itself, by the same configs; a migrating application keeps the order of each key."""
    topic = await new_topic(kafka, 7)
    keys = [b"", b"k", b"\xff\x00", *[b"customer-%d" % number for number in range(60)]]
    if partitioner == "consistent_random":
        keys.remove(b"")  # in both clients it may go to any partition
    configs = {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": partitioner}
    theirs: dict[bytes, int] = {}
    other = OtherProducer(configs)
    for key in keys:
        other.produce(topic, b"v", key=key, on_delivery=lambda _, m: theirs.update({m.key() or b"": m.partition()}))
    assert await asyncio.to_thread(other.flush, PATIENCE_S) == 0
    del other
    async with Producer.from_librdkafka_config(configs) as producer:
        ours = {key: (await producer.send(topic, b"v", key=key)).partition for key in keys}
    assert ours == theirs
    assert len(set(ours.values())) == 7
