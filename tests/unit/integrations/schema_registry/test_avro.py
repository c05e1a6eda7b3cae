"""AvroSerializer: what confluent-kafka's AvroDeserializer reads."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ConfigError, SchemaRegistryError, SchemaValidationError
from aioproducer.integrations.schema_registry import AvroSerializer, SchemaRegistry
from aioproducer.testing import FakeSchemaRegistry
from tests.unit.integrations.schema_registry.round_trips import prepared, serialized

LINE = {"type": "record", "name": "Line", "namespace": "shop", "fields": [{"name": "item", "type": "string"}]}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "weight", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "tags", "type": {"type": "map", "values": "boolean"}},
    ],
}
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "note": st.none() | st.text(),
        "weight": st.floats(allow_nan=False),
        "raw": st.binary(),
        "lines": st.lists(st.fixed_dictionaries({"item": st.text()}), max_size=3),
        "tags": st.dictionaries(st.text(), st.booleans(), max_size=3),
    }
)


@pytest.fixture(scope="module")
def reader(fake: FakeSchemaRegistry) -> Iterator[Any]:
    """``reader(topic, data)``: the value as read by the other client."""
    with SchemaRegistryClient({"url": fake.url}) as client:
        deserializer = AvroDeserializer(client)
        yield lambda topic, data: deserializer(data, SerializationContext(topic, MessageField.VALUE))


def written(fake: FakeSchemaRegistry, schema: Any, topic: str, value: Any, **options: Any) -> bytes | None:
    return serialized(fake, lambda registry: AvroSerializer(registry, schema, **options), topic, value)


def test_any_order_is_read_back(fake: FakeSchemaRegistry, reader: Any) -> None:
    serialize = prepared(AvroSerializer(SchemaRegistry(fake.url), ORDER), "orders")

    @given(ORDERS)
    def check(order: dict[str, Any]) -> None:
        assert reader("orders", serialize(order)) == order

    check()


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("string", "tea"),
        ('"long"', -5),
        ({"type": "int", "logicalType": "date"}, datetime.date(2024, 2, 29)),
        (["null", "string"], "tea"),
        ({"type": "array", "items": "int"}, [1, 2]),
        ({"type": "enum", "name": "Size", "symbols": ["S", "L"]}, "L"),
    ],
    ids=["name", "quoted name", "date", "union", "array", "enum"],
)
def test_schemas_that_are_no_records(fake: FakeSchemaRegistry, reader: Any, schema: Any, value: Any) -> None:
    topic = f"plain-{abs(hash(str(schema)))}"
    assert reader(topic, written(fake, schema, topic, value)) == value


@pytest.mark.parametrize("value", [bytearray(b"abc"), "abc"])
def test_bytes_are_raw(fake: FakeSchemaRegistry, reader: Any, value: Any) -> None:
    """Without Avro's length prefix, and text as UTF-8, like confluent-kafka's serializers."""
    data = written(fake, "bytes", "raw", value)
    assert data is not None
    assert data[5:] == b"abc"
    assert reader("raw", data) == b"abc"


def test_what_is_no_bytes(fake: FakeSchemaRegistry) -> None:
    with pytest.raises(SchemaValidationError, match=r"'raw-value': Decimal is not bytes$"):
        written(fake, "bytes", "raw", Decimal("1.25"))


def test_a_schema_may_be_referenced_along_more_than_one_path(fake: FakeSchemaRegistry, reader: Any) -> None:
    """Schemas of other subjects, referenced along more than one path."""
    fake.register("line", LINE)
    parcel = {
        "type": "record",
        "name": "Parcel",
        "namespace": "shop",
        "fields": [{"name": "line", "type": "shop.Line"}],
    }
    shipment = {
        "type": "record",
        "name": "Shipment",
        "namespace": "shop",
        "fields": [{"name": "parcel", "type": "shop.Parcel"}, {"name": "extra", "type": "shop.Line"}],
    }
    line = SchemaReference("shop.Line", "line", 1)
    value = {"parcel": {"line": {"item": "tea"}}, "extra": {"item": "cup"}}
    written(fake, Schema(json.dumps(parcel), "AVRO", [line]), "parcels", value["parcel"])
    both = Schema(json.dumps(shipment), "AVRO", [SchemaReference("shop.Parcel", "parcels-value", 1), line])
    assert reader("shipments", written(fake, both, "shipments", value)) == value
    for latest in ({}, {"subject_name_strategy": "topic"}):
        assert reader("shipments", written(fake, None, "shipments", value, use_latest_version=True, **latest)) == value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (["shop.Line", "shop.Cup"], {"item": "tea"}),
        (["null", "shop.Line", "shop.Cup"], ("shop.Cup", {"line": {"item": "tea"}})),
        ({"type": "array", "items": "shop.Cup"}, [{"line": {"item": "tea"}}]),
        ({"type": "map", "values": ["shop.Line", "long"]}, {"a": {"item": "tea"}, "b": 7}),
        (["long", {"type": "array", "items": "shop.Line"}], [{"item": "tea"}]),
    ],
    ids=str,
)
@pytest.mark.parametrize("validate", [False, True])
def test_references_of_a_schema_that_is_no_record(
    fake: FakeSchemaRegistry, reader: Any, schema: Any, value: Any, validate: bool
) -> None:
    """As with several event types in one topic: a union of records that are registered separately."""
    cup = {"type": "record", "name": "Cup", "namespace": "shop", "fields": [{"name": "line", "type": "Line"}]}
    fake.register("line", LINE)
    line = SchemaReference("shop.Line", "line", 1)
    written(fake, Schema(json.dumps(cup), "AVRO", [line]), "cups", {"line": {"item": "tea"}})
    both = Schema(json.dumps(schema), "AVRO", [SchemaReference("shop.Cup", "cups-value", 1), line])
    data = written(fake, both, f"no-record-{len(fake.subjects())}", value, validate=validate)
    assert reader("no-record", data) == (value[1] if isinstance(value, tuple) else value)


def test_references_within_a_context() -> None:
    """Without a context of its own, a reference means the one of the schema that has it, as to the registry."""
    with FakeSchemaRegistry() as fake:
        fake.register("line", LINE)
        fake.register(":.staging:line", {**LINE, "fields": [{"name": "item", "type": "bytes"}]})
        line = SchemaReference("shop.Line", "line", 1)
        cup = {"type": "record", "name": "Cup", "namespace": "shop", "fields": [{"name": "line", "type": "Line"}]}
        cups = Schema(json.dumps(cup), "AVRO", [line])
        trays = Schema('["null", "shop.Cup"]', "AVRO", [SchemaReference("shop.Cup", "cups", 1)])

        async def write() -> list[bytes | None]:
            async with SchemaRegistry(fake.url) as registry:
                by_topic = {"subject_name_strategy": lambda topic, *_: topic}
                await AvroSerializer(registry, cups, **by_topic).prepare("cups", ":.staging:cups")
                serializer = AvroSerializer(registry, trays, **by_topic)
                return [
                    await serializer.to_bytes("trays", {"line": {"item": "tea"}}),
                    await serializer.to_bytes(":.staging:trays", {"line": {"item": b"tea"}}),
                ]

        assert [data and data[5:] for data in asyncio.run(write())] == [b"\2\6tea", b"\2\6tea"]


def test_references_that_are_missing(fake: FakeSchemaRegistry) -> None:
    schema = Schema(json.dumps({**ORDER, "name": "Other"}), "AVRO", [SchemaReference("shop.Nothing", "nothing", 1)])
    with pytest.raises(SchemaRegistryError, match="nothing"):
        written(fake, schema, "others", {})
    unnamed = {"type": "record", "name": "Unnamed", "fields": [{"name": "line", "type": "shop.Missing"}]}
    fake.register("unnamed-value", unnamed)
    with pytest.raises(SchemaRegistryError, match=r"can't be parsed.*shop\.Missing"):
        written(fake, None, "unnamed", {"line": {}}, use_latest_version=True)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"id": 1, "weight": "secret", "raw": b"", "lines": [], "tags": {}}, "shop.Order.weight: str is not double"),
        ({"id": 1, "weight": 1.0, "raw": b"", "lines": [{}], "tags": {}}, "shop.Line.item: null is not string"),
        (
            {"id": 1, "note": 0.5, "weight": 1.0, "raw": b"", "lines": [], "tags": {}},
            "shop.Order.note: float is not null or string",
        ),
        ({"id": 2**80, "weight": 1.0, "raw": b"", "lines": [], "tags": {}}, "id: int beyond 64 bits is not long"),
        (["secret"], "list is not shop.Order"),
        ("secret", "str is not shop.Order"),
    ],
)
def test_what_does_not_fit(fake: FakeSchemaRegistry, value: Any, problem: str) -> None:
    """The error has the field and the types wanted and given, but never the value."""
    with pytest.raises(SchemaValidationError) as raised:
        written(fake, ORDER, "orders", value)
    assert str(raised.value).endswith(problem)
    assert "secret" not in repr(raised.value)


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (DECIMAL, Decimal("1.234"), "Decimal can't be written (more decimal places than the schema's scale)"),
        (DECIMAL, Decimal("12345.6"), "Decimal can't be written (more digits than the schema's precision)"),
        (["null", DECIMAL], Decimal("1.234"), "Decimal can't be written (more decimal places than the schema's scale)"),
        ({"type": "array", "items": DECIMAL}, [Decimal("1.234")], "list can't be written (more decimal places"),
        ({"type": "int", "logicalType": "date"}, "secret", "str can't be written (ValueError)"),
    ],
)
def test_what_does_not_fit_a_logical_type(fake: FakeSchemaRegistry, kind: Any, value: Any, problem: str) -> None:
    lines = [{"name": "line", "type": LINE}, {"name": "next", "type": "Line"}]
    fields = [*lines, {"name": "amount", "type": kind}]
    schema = {"type": "record", "name": "Price", "namespace": "shop", "fields": fields}
    with pytest.raises(SchemaValidationError) as raised:
        written(fake, schema, "prices", {"line": {"item": "tea"}, "next": {"item": "cup"}, "amount": value})
    assert f": shop.Price.amount: {problem}" in str(raised.value)
    assert "secret" not in repr(raised.value)


def test_a_decimal_alone_that_does_not_fit(fake: FakeSchemaRegistry) -> None:
    """There is no field to name."""
    items = {"type": "array", "items": DECIMAL}
    with pytest.raises(SchemaValidationError, match=r": list can't be written \(more digits than"):
        written(fake, items, "decimals", [Decimal("12345.6")])


def test_what_the_writer_lets_pass(fake: FakeSchemaRegistry) -> None:
    """fastavro writes ints of any size, which no reader accepts; validate=True checks that."""
    with pytest.raises(SchemaValidationError, match="int beyond 32 bits is not int"):
        written(fake, "int", "ints", 2**40, validate=True)


NODE: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"], "default": None}],
}
FOLDER: dict[str, Any] = {
    "type": "record",
    "name": "Folder",
    "namespace": "shop",
    "fields": [
        {"name": "size", "type": {"type": "fixed", "name": "Size", "size": 1}},
        {
            "name": "files",
            "type": {
                "type": "map",
                "values": {
                    "type": "record",
                    "name": "File",
                    "fields": [
                        {"name": "size", "type": "Size"},
                        {"name": "folders", "type": {"type": "array", "items": "Folder"}},
                    ],
                },
            },
        },
    ],
}


@pytest.mark.parametrize("options", [{}, {"validate": True}, {"strict": True}])
@pytest.mark.parametrize("union", [False, True], ids=["record", "union"])
def test_values_without_an_end(fake: FakeSchemaRegistry, union: bool, options: dict[str, Any]) -> None:
    """fastavro would overflow the C stack, which would crash the process."""
    endless: dict[str, Any] = {}
    endless["next"] = endless
    schema = ["null", NODE] if union else NODE
    with pytest.raises(SchemaValidationError, match=r"dict is nested in more than 1,000 levels$"):
        written(fake, schema, f"endless-{union}", endless, **options)


def test_values_that_hold_themselves_by_others(fake: FakeSchemaRegistry) -> None:
    endless: dict[str, Any] = {"size": b"1", "files": {"a": {"size": b"2", "folders": ({"size": b"3", "files": {}},)}}}
    assert written(fake, FOLDER, "folders", endless)
    endless["files"]["a"]["folders"] = [{"size": b"3", "files": {}}, endless]
    with pytest.raises(SchemaValidationError, match=r"dict is nested in more than 1,000 levels$"):
        written(fake, FOLDER, "folders", endless)


def test_a_value_as_deep_as_it_may_be(fake: FakeSchemaRegistry) -> None:
    value: dict[str, Any] = {"next": None}
    for _ in range(999):
        value = {"next": value}
    data = written(fake, NODE, "nodes", value)
    assert data is not None
    assert data[5:] == b"\2" * 999 + b"\0"  # by the Avro specification: a union branch's number as zigzag
    with pytest.raises(SchemaValidationError, match=r"nested in more than 1,000 levels$"):
        written(fake, NODE, "nodes", {"next": value})


def test_the_strict_options_refuse_unknown_and_missing_fields(fake: FakeSchemaRegistry) -> None:
    schema = {"type": "record", "name": "One", "fields": [{"name": "id", "type": "int", "default": 0}]}
    assert written(fake, schema, "ones", {"id": 1, "other": 2})
    assert written(fake, schema, "ones", {})
    assert written(fake, schema, "ones", {}, strict_allow_default=True)
    assert written(fake, schema, "ones", {}, strict=True, strict_allow_default=True)
    more = "dict has fields that are not in the schema$"
    for options, value, problem in (
        ({"strict": True}, {"id": 1, "secret": 2}, more),
        ({"strict": True, "validate": True}, {"id": 1, "secret": 2}, more),
        ({"strict": True}, {}, "'ones-value': id: missing$"),
        ({"strict_allow_default": True}, {"id": 1, "secret": 2}, more),
        ({"strict": True, "strict_allow_default": True, "validate": True}, {"id": 1, "secret": 2}, more),
    ):
        with pytest.raises(SchemaValidationError, match=problem):
            written(fake, schema, "ones", value, **options)


@pytest.mark.parametrize("schema", ["{", "nothing", {"type": "record"}, {"type": "record", "name": "x", "fields": 5}])
def test_schemas_that_are_none(schema: Any) -> None:
    with pytest.raises(ConfigError, match="Avro schema"):
        AvroSerializer(SchemaRegistry("http://127.0.0.1:1"), schema)
