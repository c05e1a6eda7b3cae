"""The same tests for two libraries: aiokafka itself, and this package's producer with aiokafka's API."""

from __future__ import annotations

import asyncio
import copy
import pickle
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
import pytest
from aiokafka import errors

import aioproducer.compat.aiokafka as facade
from aioproducer import KafkaError, RecordTooLargeError
from aioproducer.testing import FakeCluster, KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic
from tests.broker.readers import read, read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

Make = Callable[..., Any]
LIBRARIES = {"aiokafka": aiokafka.AIOKafkaProducer, "aioproducer": facade.AIOKafkaProducer}


@pytest.fixture(params=LIBRARIES)
def make(request: pytest.FixtureRequest, kafka: KafkaCluster) -> Make:
    """Creates a producer of either library."""
    library = LIBRARIES[request.param]

    def make(**arguments: Any) -> Any:
        return library(bootstrap_servers=kafka.bootstrap_servers, **arguments)

    return make


@asynccontextmanager
async def raised(kind: type[BaseException]) -> AsyncIterator[None]:
    with pytest.raises(kind):
        async with asyncio.timeout(PATIENCE_S):
            yield


# --- sending ----------------------------------------------------------------------------------------------------------


async def test_send_and_wait(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 3)
    async with make() as producer:
        assert await producer.partitions_for(topic) == {0, 1, 2}
        before_ms = time.time_ns() // 1_000_000
        metadata = await producer.send_and_wait(topic, b"value", key=b"key", partition=1)
        assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 1, 0)
        assert metadata.topic_partition == (topic, 1)
        assert before_ms <= metadata.timestamp <= time.time_ns() // 1_000_000
        metadata = await producer.send_and_wait(
            topic, b"other", partition=1, timestamp_ms=1_234_567, headers=[("trace", b"1"), ("trace", b"2")]
        )
        assert (metadata.offset, metadata.timestamp) == (1, 1_234_567)
    first, second = (await read(kafka, topic))[1]
    assert (first.key, first.value) == (b"key", b"value")
    assert (second.timestamp_ms, second.headers) == (1_234_567, (("trace", b"1"), ("trace", b"2")))


async def test_send_and_wait_does_not_wait_for_linger(fake_kafka_cluster: FakeCluster) -> None:
    servers = fake_kafka_cluster.bootstrap_servers
    async with (
        facade.AIOKafkaProducer(bootstrap_servers=servers, linger_ms=60_000) as producer,
        asyncio.timeout(PATIENCE_S),
    ):
        metadata = await producer.send_and_wait("orders", b"tea", key=b"7")
    assert metadata is not None
    assert (metadata.topic_partition, metadata.offset) == (("orders", 0), 0)


async def test_times_may_be_floats(make: Make, kafka: KafkaCluster) -> None:
    """Such as ``time.time() * 1000``; fractions of a millisecond are cut off."""
    topic = await new_topic(kafka)
    async with make(linger_ms=1.5, metadata_max_age_ms=1e5) as producer:
        metadata = await producer.send_and_wait(topic, b"value", timestamp_ms=1_234_567.8)
        assert metadata.timestamp == 1_234_567
        batch = producer.create_batch()
        assert batch.append(timestamp=1_234_568.9, key=None, value=b"other").timestamp == 1_234_568
        await (await producer.send_batch(batch, topic, partition=0))
    assert [record.timestamp_ms for record in (await read(kafka, topic))[0]] == [1_234_567, 1_234_568]


async def test_arguments_may_be_floats() -> None:
    """Integral or not, as long as they are numbers."""
    producer = facade.AIOKafkaProducer(
        bootstrap_servers="localhost",
        request_timeout_ms=1_000.0,
        linger_ms=1.5,
        max_batch_size=2e4,
        transactional_id="shop",
        transaction_timeout_ms=9_000.9,
    )
    config = producer.native._config
    assert (config.request_timeout_ms, config.linger_ms, config.delivery_timeout_ms) == (1_000, 1, 1_001)
    assert (config.batch_size, config.transaction_timeout_ms) == (20_000, 9_000)
    await producer.stop()
    for bad in (float("nan"), float("inf"), "soon"):
        with pytest.raises(ValueError, match=f"metadata_max_age_ms={bad!r} is refused"):
            facade.AIOKafkaProducer(metadata_max_age_ms=bad)


async def test_connections_may_be_idle_for_ever(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with make(connections_max_idle_ms=None) as producer:
        await producer.send_and_wait(topic, b"value")


async def test_addresses_may_be_empty_or_stand_twice(kafka: KafkaCluster) -> None:
    """As when an environment variable ends with a comma."""
    for library in LIBRARIES.values():
        for servers in (f"{kafka.bootstrap_servers}, {kafka.bootstrap_servers},", [kafka.bootstrap_servers] * 2):
            async with library(bootstrap_servers=servers) as producer:
                assert await producer.partitions_for(await new_topic(kafka)) == {0}
    with pytest.raises(ValueError, match="it is empty"):
        facade.AIOKafkaProducer(bootstrap_servers=" ,")


async def test_send_gives_a_future(make: Make, kafka: KafkaCluster) -> None:
    """It supports everything that asyncio does with futures."""
    topic = await new_topic(kafka)
    called: list[int] = []
    async with make(linger_ms=20) as producer:
        futures = [await producer.send(topic, b"%d" % number) for number in range(10)]
        assert all(isinstance(future, asyncio.Future) for future in futures)
        futures[0].add_done_callback(lambda future: called.append(future.result().offset))
        futures[1].cancel()  # the record is still sent
        done, pending = await asyncio.wait(futures[2:5], timeout=PATIENCE_S)
        assert (len(done), len(pending)) == (3, 0)
        rest = await asyncio.gather(*futures[5:])
        assert [metadata.offset for metadata in rest] == [5, 6, 7, 8, 9]
        assert (await asyncio.wait_for(asyncio.shield(futures[9]), PATIENCE_S)).offset == 9
    assert called == [0]
    assert await read_values(kafka, topic) == [b"%d" % number for number in range(10)]


async def test_flush_and_stop_send_what_is_pending(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    producer = make(linger_ms=5_000)
    await producer.start()
    called: list[object] = []
    first = await producer.send(topic, b"1")
    first.add_done_callback(called.append)
    async with asyncio.timeout(PATIENCE_S):
        await producer.flush()
    assert called == [first]
    second = await producer.send(topic, b"2")
    second.add_done_callback(called.append)
    async with asyncio.timeout(PATIENCE_S):
        await producer.stop()
    assert called == [first, second]
    await producer.stop()
    assert await read_values(kafka, topic) == [b"1", b"2"]


@pytest.mark.parametrize("compression_type", ["gzip", "snappy", "lz4", "zstd"])
async def test_records_arrive_with_each_codec(make: Make, kafka: KafkaCluster, compression_type: str) -> None:
    topic = await new_topic(kafka)
    async with make(compression_type=compression_type, linger_ms=10) as producer:
        await asyncio.gather(*[await producer.send(topic, b"x" * 500) for _ in range(20)])
    assert await read_values(kafka, topic) == [b"x" * 500] * 20


async def test_serializers_see_everything(make: Make, kafka: KafkaCluster) -> None:
    """Including null keys and values."""
    topic = await new_topic(kafka)
    async with make(
        key_serializer=lambda key: repr(key).encode(), value_serializer=lambda value: repr(value).encode()
    ) as producer:
        await producer.send_and_wait(topic, {"n": 1})
        await producer.send_and_wait(topic, None, key=7)
    assert [(one.key, one.value) for one in (await read(kafka, topic))[0]] == [(b"None", b"{'n': 1}"), (b"7", b"None")]


async def test_a_partitioner(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 4)
    asked: list[tuple[bytes | None, list[int], list[int]]] = []

    def last(key: bytes | None, everything: list[int], available: list[int]) -> int:
        asked.append((key, sorted(everything), sorted(available)))
        return max(everything)

    async with make(partitioner=last) as producer:
        assert (await producer.send_and_wait(topic, b"v", key=b"k")).partition == 3
        assert (await producer.send_and_wait(topic, b"v", key=b"k", partition=2)).partition == 2
    assert asked == [(b"k", [0, 1, 2, 3], [0, 1, 2, 3])]


async def test_keys_choose_the_same_partitions(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 7)
    chosen = []
    for library in LIBRARIES.values():
        async with library(bootstrap_servers=kafka.bootstrap_servers, linger_ms=5) as producer:
            sent = [await producer.send(topic, b"v", key=b"key-%d" % number) for number in range(50)]
            chosen.append([metadata.partition for metadata in await asyncio.gather(*sent)])
    assert chosen[0] == chosen[1]


async def test_without_acknowledgement(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with make(acks=0) as producer:
        assert await producer.send_and_wait(topic, b"value") is None


# --- batches ----------------------------------------------------------------------------------------------------------


async def test_a_batch(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, 2)
    async with make(max_batch_size=2_000) as producer:
        await producer.send_and_wait(topic, b"before", partition=1)
        batch = producer.create_batch()
        count = 0
        while batch.append(key=b"%d" % count, value=b"x" * 100, timestamp=1_000 + count) is not None:
            count += 1
        assert batch.record_count() == count
        assert batch.size() <= 2_000
        batch.close()
        assert batch.append(key=None, value=b"late", timestamp=None) is None
        future = await producer.send_batch(batch, topic, partition=1)
        metadata = await future
        assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 1, 1)
    records = (await read(kafka, topic))[1][1:]
    assert [(one.key, one.timestamp_ms) for one in records] == [(b"%d" % n, 1_000 + n) for n in range(count)]


async def test_a_full_batch_takes_no_more(make: Make, kafka: KafkaCluster) -> None:
    """Not even a smaller record that would still fit."""
    async with make(max_batch_size=300) as producer:
        batch = producer.create_batch()
        while not batch.closed():
            batch.append(key=None, value=b"x" * 50, timestamp=None, headers=None)
        assert batch.record_count() == 4
        assert batch.append(key=None, value=b"x", timestamp=None) is None


async def test_a_batch_has_the_bytes_of_the_call(make: Make, kafka: KafkaCluster) -> None:
    """Later changes to the program's buffer do not affect the batch."""
    topic = await new_topic(kafka)
    buffer = bytearray(b"first")
    async with make() as producer:
        batch = producer.create_batch()
        batch.append(key=None, value=buffer, timestamp=None)
        buffer[:] = b"other"
        await (await producer.send_batch(batch, topic, partition=0))
        with pytest.raises(TypeError, match="bytes-like"):
            producer.create_batch().append(key=None, value=7, timestamp=None)
    assert await read_values(kafka, topic) == [b"first"]


async def test_headers_of_a_batch_may_be_a_mapping(kafka: KafkaCluster) -> None:
    """Like those of ``send``; aiokafka accepts only a list."""
    topic = await new_topic(kafka)
    async with facade.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        batch, pairs = producer.create_batch(), producer.create_batch()
        batch.append(key=None, value=b"x", timestamp=0, headers={"trace": b"1", "none": None})
        pairs.append(key=None, value=b"x", timestamp=0, headers=[("trace", b"1"), ("none", None)])
        assert batch.size() == pairs.size()
        await (await producer.send_batch(batch, topic, partition=0))
    assert [one.headers for one in (await read(kafka, topic))[0]] == [(("trace", b"1"), ("none", None))]


async def test_text_in_a_batch_counts_by_its_bytes() -> None:
    """Only in this package: aiokafka accepts only bytes."""
    producer = facade.AIOKafkaProducer()
    text, data = producer.create_batch(), producer.create_batch()
    text.append(key="ключ", value="чай", timestamp=0)
    data.append(key="ключ".encode(), value="чай".encode(), timestamp=0)
    assert text.size() == data.size()
    await producer.stop()


async def test_batches_hold_the_same() -> None:
    """The same number of records fits, whatever they contain."""
    counts = []
    for library in LIBRARIES.values():
        producer = library(bootstrap_servers="localhost:1", max_batch_size=5_000)
        batch = producer.create_batch()
        number = 0
        while batch.append(
            key=b"k" * (number % 90) if number % 3 else None,
            value=b"v" * (number * 7 % 200),
            timestamp=1_700_000_000_000 + 500 * number,
            headers=[("name", b"h" * (number % 70))] * (number % 3),
        ):
            number += 1
        counts.append((number, batch.size()))
        await producer.stop()
    assert counts[0] == counts[1]


async def test_a_record_of_a_batch_that_is_refused(kafka: KafkaCluster) -> None:
    """It fails alone, even if it is never admitted; in aiokafka all records of a batch have the same outcome."""
    topic = await new_topic(kafka)
    async with facade.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, max_request_size=1_000) as producer:
        batch = producer.create_batch()
        for value in (b"first", b"x" * 2_000, b"last"):
            batch.append(key=None, value=value, timestamp=None)
        future = await producer.send_batch(batch, topic, partition=0)
        async with raised(errors.MessageSizeTooLargeError):
            await future
        batch = producer.create_batch()
        batch.append(key=None, value=b"x" * 2_000, timestamp=None)
        future = await producer.send_batch(batch, topic, partition=0)
        async with raised(errors.MessageSizeTooLargeError):
            await future
    assert await read_values(kafka, topic) == [b"first", b"last"]


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_a_record_that_is_too_large(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with make(max_request_size=1_000) as producer, raised(errors.MessageSizeTooLargeError):
        await producer.send(topic, b"x" * 2_000)


async def test_a_record_that_the_broker_refuses(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, max_message_bytes="1000")
    async with make() as producer:
        future = await producer.send(topic, b"x" * 2_000)
        async with raised(errors.MessageSizeTooLargeError):
            await future


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
async def test_a_topic_that_does_not_exist(library: Make) -> None:
    async with (
        FakeCluster(auto_create_topics=False) as cluster,
        library(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=500) as producer,
    ):
        async with raised(errors.UnknownTopicOrPartitionError):
            await producer.send("missing", b"value")
        async with raised(errors.UnknownTopicOrPartitionError):
            await producer.partitions_for("missing")


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
async def test_a_record_that_is_refused_until_its_time_is_up(library: Make) -> None:
    """It fails with the broker's last error."""
    async with FakeCluster() as cluster:
        cluster.faults.fail("Produce", "NOT_ENOUGH_REPLICAS", times=None)
        async with (
            library(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=500) as producer,
            raised(errors.NotEnoughReplicasError),
        ):
            await producer.send_and_wait("orders", b"value")


async def test_no_key_and_no_value(make: Make, kafka: KafkaCluster) -> None:
    async with make() as producer:
        with pytest.raises(AssertionError):
            await producer.send(new_name())


async def test_after_the_end(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    producer = make()
    await producer.start()
    await producer.send_and_wait(topic, b"value")
    await producer.stop()
    async with raised(errors.ProducerClosed):
        await producer.send(topic, b"value")


async def test_a_flush_that_has_nothing_to_do(make: Make) -> None:
    """Programs flush and stop in a ``finally``, even if the start failed."""
    producer = make()
    await producer.flush()
    await producer.start()
    await producer.stop()
    await producer.flush()


async def test_no_cluster(make: Make) -> None:
    for library in LIBRARIES.values():
        producer = library(bootstrap_servers="localhost:1", request_timeout_ms=500)
        try:
            async with raised(errors.KafkaConnectionError):
                await producer.start()
        finally:
            await producer.stop()


async def test_errors_are_of_both_libraries(kafka: KafkaCluster) -> None:
    """With the attributes that only this library has."""
    topic = await new_topic(kafka)
    async with facade.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, max_request_size=1_000) as producer:
        with pytest.raises(errors.KafkaError) as caught:
            await producer.send(topic, b"x" * 2_000)
    assert isinstance(caught.value, KafkaError)
    assert caught.value.maybe_written is False
    assert caught.value.name == RecordTooLargeError.name
    assert "max_request_size" in str(caught.value)


async def test_errors_can_be_pickled_and_copied(kafka: KafkaCluster) -> None:
    """As when a process pool passes them on."""
    topic = await new_topic(kafka)
    async with facade.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, max_request_size=1_000) as producer:
        with pytest.raises(errors.MessageSizeTooLargeError) as caught:
            await producer.send(topic, b"x" * 2_000)
    for again in (pickle.loads(pickle.dumps(caught.value)), copy.copy(caught.value)):
        assert isinstance(again, errors.MessageSizeTooLargeError)
        assert isinstance(again, RecordTooLargeError)
        assert str(again) == str(caught.value)
        assert vars(again) == vars(caught.value)


# --- transactions -----------------------------------------------------------------------------------------------------


async def test_only_committed_transactions_are_visible(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with make(transactional_id=new_name()) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"committed")
        with pytest.raises(RuntimeError, match="given up"):
            await _give_up(producer, topic)
        await producer.begin_transaction()
        await producer.send(topic, b"committed too")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send(topic, b"aborted too")
        await producer.abort_transaction()
    assert await read_values(kafka, topic, committed=True) == [b"committed", b"committed too"]


async def _give_up(producer: Any, topic: str) -> None:
    async with producer.transaction():
        await producer.send(topic, b"aborted")
        raise RuntimeError("given up")


async def test_a_transaction_whose_record_failed(kafka: KafkaCluster) -> None:
    """It is not committed without the record, as it would be by aiokafka; and the next one can begin."""
    topic = await new_topic(kafka, max_message_bytes="1000")
    async with facade.AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers, transactional_id=new_name()
    ) as producer:
        async with raised(errors.MessageSizeTooLargeError), producer.transaction():
            await producer.send_and_wait(topic, b"before")
            with pytest.raises(errors.MessageSizeTooLargeError):
                await producer.send_and_wait(topic, b"x" * 2_000)
        async with producer.transaction():
            await producer.send_and_wait(topic, b"next")
    assert await read_values(kafka, topic, committed=True) == [b"next"]


async def test_offsets_in_a_transaction(make: Make, kafka: KafkaCluster) -> None:
    topic, group = await new_topic(kafka, 2), new_name()
    async with make(transactional_id=new_name()) as producer, producer.transaction():
        await producer.send(topic, b"value")
        await producer.send_offsets_to_transaction(
            {
                aiokafka.TopicPartition(topic, 0): 5,
                aiokafka.TopicPartition(topic, 1): aiokafka.structs.OffsetAndMetadata(7, "seven"),
            },
            group,
        )
        for group_id in ("", None):
            with pytest.raises(ValueError, match=r"^(None)?$"):
                await producer.send_offsets_to_transaction({aiokafka.TopicPartition(topic, 0): 5}, group_id)
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id=group)
    await consumer.start()
    try:
        partitions = [aiokafka.TopicPartition(topic, number) for number in range(2)]
        assert [await consumer.committed(partition) for partition in partitions] == [5, 7]
    finally:
        await consumer.stop()


async def test_offsets_that_can_not_be(make: Make, kafka: KafkaCluster) -> None:
    """The call raises, and the transaction goes on."""
    topic = await new_topic(kafka)
    place = aiokafka.TopicPartition(topic, 0)
    async with make(transactional_id=new_name()) as producer, producer.transaction():
        await producer.send(topic, b"value")
        for offsets in ({}, None, [], [(place, 5)], {place: "5"}, {place: (5,)}, {place: 5.0}, {place: None}):
            with pytest.raises(ValueError):  # noqa: PT011 - of two libraries
                await producer.send_offsets_to_transaction(offsets, "group")
        for offsets in ({topic: 5}, {place: (5, None)}):
            with pytest.raises(TypeError):
                await producer.send_offsets_to_transaction(offsets, "group")
    assert await read_values(kafka, topic, committed=True) == [b"value"]


async def test_outside_of_a_transaction(make: Make, kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with make() as producer, raised(errors.IllegalOperation):
        await producer.begin_transaction()
    async with make(transactional_id=new_name()) as producer, raised(errors.IllegalOperation):
        await producer.send(topic, b"value")


async def test_an_older_producer_is_fenced(make: Make, kafka: KafkaCluster) -> None:
    topic, name = await new_topic(kafka), new_name()
    older, newer = make(transactional_id=name), make(transactional_id=name)
    await older.start()
    try:
        await older.begin_transaction()
        await older.send_and_wait(topic, b"older")
        async with newer:
            async with newer.transaction():
                await newer.send(topic, b"newer")
            async with raised(errors.ProducerFenced):
                await older.send_and_wait(topic, b"older again")
    finally:
        await older.stop()
    assert await read_values(kafka, topic, committed=True) == [b"newer"]


async def test_a_fenced_producer_leaves_the_body_its_error(kafka: KafkaCluster) -> None:
    """In aiokafka its own fencing error replaces it."""
    topic, name = await new_topic(kafka), new_name()

    def make() -> Any:
        return facade.AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name)

    async with make() as older:
        with pytest.raises(RuntimeError, match="given up"):
            await _be_fenced(older, make(), topic)


async def _be_fenced(older: Any, newer: Any, topic: str) -> None:
    async with older.transaction():
        await older.send_and_wait(topic, b"older")
        async with newer, newer.transaction():
            await newer.send(topic, b"newer")
        async with raised(errors.ProducerFenced):
            await older.send_and_wait(topic, b"older again")
        raise RuntimeError("given up")
