"""The plain value classes of the public API."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import typing

import fastapi
import orjson
import pytest
from fastapi.testclient import TestClient

from aioproducer.records import PartitionInfo, Record, RecordMetadata, TopicPartition


def test_record_takes_value_and_key_by_position() -> None:
    """The rest is keyword-only, so that a topic is never mistaken for a key."""
    record = Record(b"value", b"key", topic="orders", partition=3, headers=[("trace", None)], timestamp_ms=5)
    assert (record.value, record.key, record.topic, record.partition) == (b"value", b"key", "orders", 3)
    assert (record.headers, record.timestamp_ms) == ([("trace", None)], 5)
    with pytest.raises(TypeError):
        Record(b"value", b"key", "orders")  # type: ignore[call-arg]


def test_record_is_empty_by_default() -> None:
    """A record with nothing is a tombstone without a key."""
    assert dataclasses.astuple(Record()) == (None,) * 6


def test_record_does_not_change() -> None:
    """Interceptors return another one instead."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Record().topic = "other"  # type: ignore[misc]
    assert dataclasses.replace(Record(b"v", topic="a"), topic="b") == Record(b"v", topic="b")


def test_record_keeps_payloads_out_of_its_repr() -> None:
    """A logged record shows its destination, not its content."""
    record = Record(b"SECRET", b"SECRET", topic="orders", headers={"h": b"SECRET"})
    assert repr(record) == "Record(topic='orders', partition=None, timestamp_ms=None)"


@pytest.mark.parametrize(
    "value",
    [
        Record(b"v", b"k", topic="t"),
        RecordMetadata("t", 0, 1, 2, 3, 4),
        TopicPartition("t", 0),
        PartitionInfo("t", 0, None, (1, 2), (1,), ()),
    ],
)
def test_values_compare_and_copy(value: object) -> None:
    """They are values: equal copies, usable as keys."""
    assert copy.copy(value) == pickle.loads(pickle.dumps(value)) == value
    assert len({value, copy.copy(value)}) == 1


def test_topic_partition_as_text() -> None:
    """As Kafka writes it."""
    assert f"{TopicPartition('orders', 3)}" == str(TopicPartition("orders", 3)) == "orders-3"
    assert {TopicPartition("orders", 3): 1}[("orders", 3)] == 1  # type: ignore[index]


METADATA_FIELDS = {
    "topic": str,
    "partition": int,
    "offset": int,
    "timestamp_ms": int,
    "serialized_key_size": int,
    "serialized_value_size": int,
}


def test_fields_are_in_the_documented_order() -> None:
    """They are unpacked by position."""
    topic, partition, offset, timestamp_ms, *sizes = RecordMetadata("t", 1, 2, 1_700_000_000_000, -1, 5)
    assert (topic, partition, offset, timestamp_ms, sizes) == ("t", 1, 2, 1_700_000_000_000, [-1, 5])
    assert RecordMetadata.__match_args__ == tuple(METADATA_FIELDS)
    assert PartitionInfo._fields == (
        "topic",
        "partition",
        "leader",
        "replicas",
        "in_sync_replicas",
        "offline_replicas",
    )


def test_metadata_is_a_dataclass_to_others() -> None:
    """Its fields, with their types, are found by tools that convert dataclasses."""
    metadata = RecordMetadata("t", 1, 2, 3, 4, 5)
    assert {field.name: field.type for field in dataclasses.fields(RecordMetadata)} == METADATA_FIELDS
    assert typing.get_type_hints(RecordMetadata) == METADATA_FIELDS
    assert dataclasses.asdict(metadata) == dict(zip(METADATA_FIELDS, metadata, strict=True))
    assert dataclasses.replace(metadata, offset=9) == RecordMetadata("t", 1, 9, 3, 4, 5) != metadata


def test_a_field_of_metadata_is_the_same_object_each_time() -> None:
    """orjson lets go of a field's value before it writes it down: one made for this look alone would be gone."""
    metadata = RecordMetadata("orders", 1 << 20, 1 << 40, 1 << 41, 1 << 21, 1 << 22)
    assert all(getattr(metadata, name) is getattr(metadata, name) for name in METADATA_FIELDS)
    assert orjson.loads(orjson.dumps(metadata)) == dataclasses.asdict(metadata)


def test_metadata_does_not_change() -> None:
    """It must stay usable as a dictionary key."""
    with pytest.raises(AttributeError, match="offset"):
        RecordMetadata("t", 1, 2, 3, 4, 5).offset = 9  # type: ignore[misc]


def test_metadata_is_what_a_web_handler_may_return() -> None:
    """It becomes a JSON object, with and without a declared type."""
    app = fastapi.FastAPI()

    @app.get("/declared")
    async def declared() -> RecordMetadata:
        return RecordMetadata("orders", 1, 1 << 40, 3, 4, -1)

    @app.get("/undeclared", response_model=None)
    async def undeclared() -> RecordMetadata:
        return RecordMetadata("orders", 1, 1 << 40, 3, 4, -1)

    expected = dict(zip(METADATA_FIELDS, ("orders", 1, 1 << 40, 3, 4, -1), strict=True))
    with TestClient(app) as client:
        assert client.get("/declared").json() == client.get("/undeclared").json() == expected
    schema = app.openapi()["components"]["schemas"]["RecordMetadata"]
    assert {name: field["type"] for name, field in schema["properties"].items()} == dict.fromkeys(
        METADATA_FIELDS, "integer"
    ) | {"topic": "string"}
