"""Bad input fails only its own call, and the error says why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioproducer import ConfigError, InvalidTopicError, KafkaError, Producer, SerializationError
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import new_topic, producer_of
from tests.broker.readers import read_values

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

SECRET = "the payload"

BAD_RECORDS: dict[str, tuple[dict[str, Any], str]] = {
    "value is an int": ({"value": 7}, r"value .* int; bytes-like, str or None .* value_serializer"),
    "value is a list": ({"value": [SECRET]}, "value .* list"),
    "value is an object": ({"value": object()}, "value .* object"),
    "value is a float": ({"value": 1.5}, "value .* float"),
    "value is an iterator": ({"value": iter(b"")}, "value .*bytes_iterator"),
    "key is an int": ({"key": 7}, r"key .* int; bytes-like, str or None .* key_serializer"),
    "key is a dict": ({"key": {SECRET: 1}}, "key .* dict"),
    "value has no UTF-8 form": ({"value": SECRET + "\ud800"}, "value .* UTF-8"),
    "key has no UTF-8 form": ({"key": SECRET + "\udfff"}, "key .* UTF-8"),
    "partition is a str": ({"partition": "0"}, "partition .* str; an int"),
    "partition is a float": ({"partition": 0.0}, "partition .* float; an int"),
    "partition is a bool": ({"partition": True}, "partition .* bool; an int"),
    "partition is negative": ({"partition": -1}, "partition -1 .* outside 0 to 2147483647"),
    "partition is too large": ({"partition": 2**31}, "partition 2147483648 .* outside"),
    "partition is far too large": ({"partition": 2**70}, "partition .* outside"),
    "timestamp is a float": ({"timestamp_ms": 1.5}, "timestamp_ms .* float; an int"),
    "timestamp is a str": ({"timestamp_ms": "1"}, "timestamp_ms .* str; an int"),
    "timestamp is negative": ({"timestamp_ms": -1}, "timestamp_ms -1 .* outside"),
    "timestamp is too large": ({"timestamp_ms": 2**63}, "timestamp_ms 9223372036854775808 .* outside"),
    "headers are an int": ({"headers": 7}, "headers .* pairs"),
    "headers are a str": ({"headers": "trace"}, "headers .* pairs"),
    "a header is no pair": ({"headers": [("a", b"1", b"2")]}, "headers .* pairs"),
    "a header is alone": ({"headers": [("a",)]}, "headers .* pairs"),
    "a header name is bytes": ({"headers": [(b"a", b"1")]}, "header name .* bytes; str"),
    "a header name is None": ({"headers": {None: b"1"}}, "header name .* NoneType; str"),
    "a header name has no UTF-8 form": ({"headers": [("\ud800", b"1")]}, "header name .* UTF-8"),
    "a header value is a str": ({"headers": [("a", SECRET)]}, "header 'a' .* str; bytes or None"),
    "a header value is an int": ({"headers": [("a", 7)]}, "header 'a' .* int; bytes or None"),
}


@pytest.mark.parametrize("case", BAD_RECORDS)
async def test_a_bad_record_fails_its_own_call(kafka: KafkaCluster, case: str) -> None:
    """With and without known metadata of the topic, by each of the three calls; no message contains the payload."""
    arguments, message = BAD_RECORDS[case]
    topic = await new_topic(kafka)
    async with producer_of(kafka, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        for known in (False, True):
            before = await producer.submit(topic, b"good") if known else None
            for call in (producer.send, producer.submit):
                await _refused(call(topic, **arguments), message)
            if known:
                with pytest.raises(SerializationError, match=message):
                    producer.submit_nowait(topic, **arguments)
                after = producer.submit_nowait(topic, b"good")
                await producer.flush()
                assert before is not None
                assert (before.result().offset, after.result().offset) == (0, 1)
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    assert await read_values(kafka, topic) == [b"good", b"good"]


async def _refused(call: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message) as caught:
        await call
    error: BaseException | None = caught.value
    assert not caught.value.maybe_written
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\x00b", "a\nb"])
async def test_a_name_that_no_topic_can_have(kafka: KafkaCluster, topic: str) -> None:
    async with producer_of(kafka) as producer:
        for call in (producer.send, producer.submit):
            with pytest.raises(InvalidTopicError):
                await asyncio.wait_for(call(topic, b"value"), 10)
        with pytest.raises(InvalidTopicError):
            await asyncio.wait_for(producer.partitions_for(topic), 10)
        with pytest.raises(KafkaError):
            producer.submit_nowait(topic, b"value")
        assert (await producer.send(await new_topic(kafka), b"value")).offset == 0


@pytest.mark.parametrize("topic", [None, b"topic", 7])
async def test_a_topic_that_is_no_str(kafka: KafkaCluster, topic: Any) -> None:
    async with producer_of(kafka) as producer:
        for call in (producer.send, producer.submit):
            with pytest.raises(SerializationError, match=f"topic is a {type(topic).__name__}; str"):
                await call(topic, b"value")
        with pytest.raises(SerializationError, match=f"topic is a {type(topic).__name__}; str"):
            producer.submit_nowait(topic, b"value")


async def test_arguments_of_the_wrong_name_are_a_type_error(kafka: KafkaCluster) -> None:
    async with producer_of(kafka) as producer:
        for call in (producer.send, producer.submit, producer.submit_nowait):
            with pytest.raises(TypeError):
                call("topic", b"value", timestamp=1)  # type: ignore[call-arg]
            with pytest.raises(TypeError):
                call("topic", b"value", b"key")  # type: ignore[misc]


async def test_many_bad_records_among_good_ones(kafka: KafkaCluster) -> None:
    topic = await new_topic(kafka)
    cases = [*BAD_RECORDS.values()]
    async with producer_of(kafka) as producer:

        async def attempt(number: int) -> bool:
            arguments: dict[str, Any] = {"value": b"%d" % number}
            if number % 3 == 0:
                arguments |= cases[number // 3 % len(cases)][0]
            try:
                await producer.send(topic, **arguments)
            except SerializationError:
                return False
            return True

        found = await asyncio.gather(*(attempt(number) for number in range(300)))
    assert found == [number % 3 != 0 for number in range(300)]
    assert await read_values(kafka, topic) == [b"%d" % number for number in range(300) if number % 3]


# --- configs ----------------------------------------------------------------------------------------------------------

BAD_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown name": ({"linger": 5}, r"linger.*linger_ms"),
    "misspelt name": ({"comprssion_type": "lz4"}, r"comprssion_type.*compression_type"),
    "dotted name": ({"linger.ms": 5}, r"linger\.ms.*linger_ms"),
    "wrong type": ({"linger_ms": "soon"}, r"linger_ms='soon'"),
    "out of range": ({"linger_ms": -1}, r"linger_ms=-1.*0"),
    "no such choice": ({"acks": 2}, r"acks=2.*all"),
    "idempotence without acks": ({"enable_idempotence": True, "acks": 1}, r"enable_idempotence.*acks"),
    "too many in flight": (
        {"enable_idempotence": True, "max_in_flight_requests_per_connection": 6},
        r"max_in_flight_requests_per_connection.*5",
    ),
    "times that contradict": (
        {"delivery_timeout_ms": 1_000, "request_timeout_ms": 2_000},
        r"delivery_timeout_ms.*request_timeout_ms",
    ),
    "serializer that is none": ({"value_serializer": 7}, r"value_serializer"),
    "interceptor that is none": ({"interceptors": [7]}, r"interceptor"),
    "partitioner that is none": ({"partitioner": 7}, r"partitioner"),
    "on_error that can't be called": ({"on_error": 7}, r"on_error"),
}


@pytest.mark.parametrize("case", BAD_CONFIGS)
def test_a_bad_config_is_refused_at_once(case: str) -> None:
    configs, message = BAD_CONFIGS[case]
    with pytest.raises(ConfigError, match=message) as caught:
        Producer(bootstrap_servers="localhost:9092", **configs)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("servers", ["", [], "localhost", "localhost:0", "localhost:65536", "localhost:x", None, 7])
def test_bad_bootstrap_servers(servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        Producer(bootstrap_servers=servers)


def test_bootstrap_servers_are_needed() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        Producer()
