"""Serializers and interceptors: user code that sees a record before it is sent."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from aioproducer import (
    BufferExhaustedError,
    DeliveryErrors,
    KafkaError,
    MetadataUnavailableError,
    Record,
    RecordMetadata,
    SerializationError,
)
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_topic, producer_of, until
from tests.broker.readers import read, read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]


# --- serializers ------------------------------------------------------------------------------------------------------


def as_json(value: object) -> bytes:
    """A plain serializer."""
    return json.dumps(value).encode()


async def as_json_later(value: object) -> bytes:
    """An asynchronous serializer, which looks something up first."""
    await asyncio.sleep(0)
    return as_json(value)


class WithTopic:
    """A serializer that receives topic and headers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def serialize(self, topic: str, headers: Any, value: object) -> bytes:
        self.seen.append((topic, headers))
        return as_json(value)


class WithTopicLater(WithTopic):
    """The same, but asynchronous."""

    async def serialize(self, topic: str, headers: Any, value: object) -> bytes:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().serialize(topic, headers, value)


@pytest.mark.parametrize("make", [lambda: as_json, lambda: as_json_later, WithTopic, WithTopicLater])
async def test_every_form_of_serializer(kafka: KafkaCluster, make: Callable[[], Any]) -> None:
    serializer = make()
    topic = await new_topic(kafka)
    async with producer_of(kafka, value_serializer=serializer, key_serializer=serializer) as producer:
        await producer.send(topic, {"a": 1}, key=[1, 2], headers={"h": b"1"})
        await producer.send(topic, None, key=None)
        delivery = await producer.submit(topic, "text")
        assert (await delivery).serialized_value_size == len('"text"')
    stored = (await read(kafka, topic))[0]
    assert [(one.key, one.value) for one in stored] == [(b"[1, 2]", b'{"a": 1}'), (None, None), (None, b'"text"')]
    if isinstance(serializer, WithTopic):
        assert {topic for topic, _ in serializer.seen} == {topic}
        assert [dict(headers or {}) for _, headers in serializer.seen] == [{"h": b"1"}, {"h": b"1"}, {}]


async def test_submit_nowait_serializes_but_does_not_wait(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, value_serializer=as_json) as producer:
        with pytest.raises(MetadataUnavailableError):
            producer.submit_nowait(topic, 1)
        await producer.partitions_for(topic)
        assert (await producer.submit_nowait(topic, 1)).offset == 0
    async with producer_of(kafka, value_serializer=as_json_later) as producer:
        await producer.partitions_for(topic)
        with pytest.raises(SerializationError, match=r"asynchronous: await submit\(\)"):
            producer.submit_nowait(topic, 1)
    assert await read_values(kafka, topic) == [b"1"]


async def test_a_serializer_that_fails(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, value_serializer=as_json) as producer:
        for call in (producer.send, producer.submit):
            with pytest.raises(SerializationError, match=f"value_serializer raised TypeError .*{topic}") as caught:
                await call(topic, object())
            assert isinstance(caught.value.__cause__, TypeError)
        with pytest.raises(SerializationError, match="value_serializer raised TypeError"):
            producer.submit_nowait(topic, object())
        assert (await producer.send(topic, 1)).offset == 0


async def test_a_serializer_that_returns_no_bytes(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    async with producer_of(kafka, key_serializer=lambda key: key) as producer:
        with pytest.raises(SerializationError, match=r"key .* int"):
            await producer.send(topic, key=7)
        await producer.send(topic, key="text", value=b"0")
        await producer.send(topic, key=bytearray(b"text"), value=b"1")
    assert [one.key for one in (await read(kafka, topic))[0]] == [b"text", b"text"]


async def test_cancelled_while_serializing_is_not_sent(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    entered = asyncio.Event()

    async def forever(value: bytes) -> bytes:
        entered.set()
        await asyncio.get_running_loop().create_future()
        return value

    async with producer_of(kafka, value_serializer=forever) as producer:
        sending = asyncio.create_task(producer.send(topic, b"value"))
        await entered.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert (await producer.send(topic, None)).offset == 0


# --- interceptors -----------------------------------------------------------------------------------------------------


class Interceptor:
    """Records its calls, and adds a header."""

    def __init__(self, name: str = "seen") -> None:
        self.name = name
        self.sent: list[Record] = []
        self.ended: list[tuple[RecordMetadata | None, KafkaError | None, Any]] = []
        self.clusters: list[str] = []
        self.closed = 0

    def on_cluster(self, cluster_id: str) -> None:
        self.clusters.append(cluster_id)

    def on_send(self, record: Record) -> Record:
        self.sent.append(record)
        headers = [*(record.headers or ()), (self.name, b"yes")]
        return Record(
            record.value,
            record.key,
            topic=record.topic,
            partition=record.partition,
            headers=headers,
            timestamp_ms=record.timestamp_ms,
        )

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Any) -> None:
        self.ended.append((metadata, error, headers))

    def close(self) -> None:
        self.closed += 1


async def test_interceptors_see_the_record_and_its_end(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    first, second = Interceptor("first"), Interceptor("second")
    async with producer_of(kafka, interceptors=[first, second], value_serializer=as_json) as producer:
        metadata = await producer.send(topic, {"a": 1}, key="k", headers=[("h", b"1")])
        assert first.sent[0].value == {"a": 1}
        assert first.sent[0].topic == topic
        assert list(second.sent[0].headers or ()) == [("h", b"1"), ("first", b"yes")]
        expected = [("h", b"1"), ("first", b"yes"), ("second", b"yes")]
        await until(lambda: second.ended, "the end was told")
        for interceptor in (first, second):
            assert [(one, error, list(headers)) for one, error, headers in interceptor.ended] == [
                (metadata, None, expected)
            ]
        assert not first.closed
    assert (first.closed, second.closed) == (1, 1)
    assert (await read(kafka, topic))[0][0].headers == tuple(expected)


async def test_interceptors_learn_which_cluster_it_is(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    interceptor = Interceptor()
    async with producer_of(kafka, interceptors=[interceptor]) as producer:
        await producer.send(topic, b"v")
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        known = (await asyncio.to_thread(admin.list_topics, timeout=PATIENCE_S)).cluster_id
        assert interceptor.clusters == [known]
        assert producer.cluster_id == known


async def test_interceptors_hear_of_failures_without_looking_for_the_user(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka, max_message_bytes=1_000)
    interceptor = Interceptor()
    failed: list[int] = []

    def on_error(_: KafkaError, records: int) -> None:
        failed.append(records)

    async with producer_of(kafka, interceptors=[interceptor], on_error=on_error) as producer:
        await producer.submit(topic, bytes(2_000))
        with pytest.raises(DeliveryErrors):
            await producer.flush()
        gc.collect()
        await until(lambda: interceptor.ended and failed, "the end was told")
        ((metadata, error, headers),) = interceptor.ended
        assert metadata is None
        assert isinstance(error, KafkaError)
        assert list(headers) == [("seen", b"yes")]
        assert failed == [1]
        # Records that are never admitted are reported too.
        for bad in ({"partition": -1}, {"value": bytes(2_000_000)}, {"value": object()}):
            with pytest.raises(KafkaError):
                await producer.submit(topic, **bad)  # type: ignore[arg-type]
        assert [metadata for metadata, _, _ in interceptor.ended] == [None] * 4
        assert all(isinstance(error, KafkaError) for _, error, _ in interceptor.ended)


class Broken:
    """All of its methods raise."""

    def on_send(self, record: Record) -> Record:
        raise ValueError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Any) -> None:
        raise ValueError("on_acknowledgement")

    def close(self) -> None:
        raise ValueError("close")


class ReturnsNothing(Interceptor):
    """Forgets to return the record."""

    def on_send(self, record: Record) -> Record:
        return None  # type: ignore[return-value]


async def test_what_interceptors_raise_is_logged_and_nothing_else(
    kafka: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await new_topic(kafka)
    good = Interceptor()
    async with producer_of(kafka, interceptors=[Broken(), ReturnsNothing(), good]) as producer:
        await producer.send(topic, b"value")
        await until(lambda: good.ended, "the end was told")
    for message in (
        "Broken.on_send raised",
        "Broken.on_acknowledgement raised",
        "Broken.close raised",
        "ReturnsNothing.on_send returned a NoneType",
    ):
        assert message in caplog.text
    assert await read_values(kafka, topic) == [b"value"]


async def test_an_interceptor_can_send_a_record_elsewhere(kafka: KafkaCluster) -> None:
    topic, elsewhere = await new_topic(kafka), await new_topic(kafka, 3)

    class Redirect(Interceptor):
        def on_send(self, record: Record) -> Record:
            if record.key is None:
                return Record(b"changed")
            return Record(record.value, record.key, topic=elsewhere, partition=2, headers=iter([("h", b"1")]))

    async with producer_of(kafka, interceptors=[Redirect()]) as producer:
        first = await producer.send(topic, b"value", key=b"key")
        second = await producer.send(topic, b"value")
    assert (first.topic, first.partition) == (elsewhere, 2)
    assert (second.topic, second.partition) == (topic, 0)
    assert (await read(kafka, elsewhere))[2][0].headers == (("h", b"1"),)
    assert await read_values(kafka, topic) == [b"changed"]


async def test_interceptors_and_a_full_buffer(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    interceptor = Interceptor()
    async with producer_of(kafka, interceptors=[interceptor], buffer_memory=40_000, linger_ms=60_000) as producer:
        await producer.partitions_for(topic)
        refused = 0
        for _ in range(10):
            try:
                producer.submit_nowait(topic, bytes(10_000))
            except BufferExhaustedError:
                refused += 1
        assert 5 < refused < 10
        await producer.flush()
        await until(lambda: len(interceptor.ended) == 10, "all ends were told")
        assert sum(isinstance(error, BufferExhaustedError) for _, error, _ in interceptor.ended) == refused
