"""JsonSchemaSerializer: what confluent-kafka's JSONDeserializer reads."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson
import pydantic
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ConfigError, SchemaRegistryError, SchemaValidationError
from aioproducer.integrations.schema_registry import JsonSchemaSerializer, SchemaRegistry
from aioproducer.testing import FakeSchemaRegistry
from tests.unit.integrations.schema_registry.round_trips import prepared, serialized

ORDER: dict[str, Any] = {
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "note": {"type": ["string", "null"]},
        "weights": {"type": "array", "items": {"type": "number"}},
        "totals": {"type": "object", "additionalProperties": {"type": "integer"}},
        "a name": {"type": "integer"},
    },
    "required": ["id"],
    "additionalProperties": False,
}
ORDERS = st.fixed_dictionaries(
    {"id": st.integers(0, 2**53)},
    optional={"note": st.none() | st.text(), "weights": st.lists(st.floats(allow_nan=False, allow_infinity=False))},
)


class Line(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(default=1, alias="n", serialization_alias="n")


class Other(pydantic.BaseModel):
    name: str


@pytest.fixture(scope="module")
def reader(fake: FakeSchemaRegistry) -> Iterator[Any]:
    with SchemaRegistryClient({"url": fake.url}) as client:
        deserializer = JSONDeserializer(None, schema_registry_client=client)
        yield lambda topic, data: deserializer(data, SerializationContext(topic, MessageField.VALUE))


def written(fake: FakeSchemaRegistry, schema: Any, topic: str, value: Any, **options: Any) -> bytes | None:
    return serialized(fake, lambda registry: JsonSchemaSerializer(registry, schema, **options), topic, value)


@pytest.mark.parametrize("encode", [None, orjson.dumps], ids=["json", "orjson"])
def test_any_order_is_read_back(fake: FakeSchemaRegistry, reader: Any, encode: Any) -> None:
    serialize = prepared(JsonSchemaSerializer(SchemaRegistry(fake.url), ORDER, encode=encode), "orders")

    @given(ORDERS)
    def check(order: dict[str, Any]) -> None:
        assert reader("orders", serialize(order)) == order

    check()


def test_compact_and_in_utf_8(fake: FakeSchemaRegistry) -> None:
    data = written(fake, ORDER, "orders", {"id": 1, "note": "é"})
    assert data is not None
    assert data[5:].decode() == '{"id":1,"note":"é"}'


def test_a_pydantic_model(fake: FakeSchemaRegistry, reader: Any) -> None:
    """The model's own schema is registered; values are instances of the model, written as the schema requires."""
    data = written(fake, Line, "lines", Line(item="tea", n=2), subject_name_strategy="record")
    assert reader("lines", data) == {"item": "tea", "n": 2}
    assert json.loads(fake.latest("Line")["schema"])["properties"].keys() == {"item", "n"}
    for other in ({"item": "tea"}, Other(name="secret"), types.SimpleNamespace(item="secret"), ValueError("secret")):
        told = f"subject 'lines-value': Line needed, not {type(other).__name__}$"
        for options in ({}, {"validate": True}):
            with pytest.raises(SchemaValidationError, match=told):  # Pydantic would write some of them as {}
                written(fake, Line, "lines", other, **options)


def test_what_a_pydantic_model_writes_may_be_checked_too(fake: FakeSchemaRegistry, reader: Any) -> None:
    data = written(fake, Line, "checked", Line(item="tea", n=2), validate=True)
    assert reader("checked", data) == {"item": "tea", "n": 2}
    fake.register("older-value", {"type": "object", "required": ["price"]}, "JSON")
    with pytest.raises(SchemaValidationError, match=r"'older-value': \$: price missing$"):
        written(fake, Line, "older", Line(item="tea"), validate=True, use_latest_version=True)

    def encode(line: Line) -> str:
        return line.model_dump_json(by_alias=True)

    encoded = written(fake, Line, "checked", Line(item="tea"), validate=True, encode=encode)
    assert reader("checked", encoded) == {"item": "tea", "n": 1}


def test_a_value_is_checked_against_referenced_schemas(fake: FakeSchemaRegistry, reader: Any) -> None:
    fake.register("money", {"$id": "http://shop/money.json", "type": "integer"}, "JSON")
    schema = Schema(
        json.dumps({"title": "Price", "properties": {"price": {"$ref": "http://shop/money.json"}}}),
        "JSON",
        [SchemaReference("http://shop/money.json", "money", 1)],
    )
    assert reader("prices", written(fake, schema, "prices", {"price": 5})) == {"price": 5}
    with pytest.raises(SchemaValidationError, match=r"\$\.price: str is not integer"):
        written(fake, schema, "prices", {"price": "secret"})


def test_a_value_is_checked_against_schemas_of_its_context(fake: FakeSchemaRegistry) -> None:
    """Without a context of its own, a reference means the one of the schema that has it, as to the registry."""
    fake.register("amount", {"$id": "http://shop/amount.json", "type": "string"}, "JSON")
    fake.register(":.staging:amount", {"$id": "http://shop/amount.json", "type": "integer"}, "JSON")
    schema = Schema(
        json.dumps({"properties": {"price": {"$ref": "http://shop/amount.json"}}}),
        "JSON",
        [SchemaReference("http://shop/amount.json", "amount", 1)],
    )
    data = written(fake, schema, "p", {"price": 5}, subject_name_strategy=lambda *_: ":.staging:prices-value")
    assert data is not None
    assert data[5:] == b'{"price":5}'


def test_what_is_not_among_the_references_is_not_fetched(fake: FakeSchemaRegistry) -> None:
    """URLs in a schema are never fetched."""
    before = len(fake.requests)
    with pytest.raises(SchemaValidationError, match="not among its references"):
        written(fake, {"title": "Far", "$ref": f"{fake.url}/far.json"}, "far", {})
    assert [path for _, path in fake.requests[before:] if "far.json" in path] == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"id": "secret"}, "$.id: str is not integer"),
        ({"id": -5}, "$.id: breaks the rule minimum: 0"),
        ({}, "$: id missing"),
        ({"id": 1, "weights": [1, "secret"]}, "$.weights[1]: str is not number"),
        ({"id": 1, "secret": 2}, "$: breaks the rule additionalProperties: False"),
        ({"id": 1, "totals": {"secret": "x"}}, "$.totals[...]: str is not integer"),
        ({"id": 1, "totals": {"a secret": {"properties": "x"}}}, "$.totals[...]: dict is not integer"),
        ({"id": 1, "a name": "x"}, "$['a name']: str is not integer"),
        (["secret"], "$: list is not object"),
        ({"id": None, "note": 5}, "$.id: null is not integer; $.note: int is not string or null"),
    ],
)
def test_what_does_not_fit(fake: FakeSchemaRegistry, value: Any, problem: str) -> None:
    with pytest.raises(SchemaValidationError) as raised:
        written(fake, ORDER, "orders", value)
    assert str(raised.value).endswith(f": {problem}")
    assert "secret" not in repr(raised.value)


@pytest.mark.parametrize(
    ("encode", "value", "told"),
    [
        (None, {"secret": {1}}, "Object of type set is not JSON serializable"),
        (None, {"secret": datetime(2026, 1, 1)}, "Object of type datetime is not JSON serializable"),
        (None, {"secret": math.nan}, "Out of range float values are not JSON compliant"),
        (None, {("secret",): 1}, "keys must be str, int, float, bool or None, not tuple"),
        (None, {"secret": "\ud800"}, "UnicodeEncodeError"),
        (orjson.dumps, {"secret": Decimal(1)}, "Type is not JSON serializable: decimal.Decimal"),
        (orjson.dumps, {("secret",): 1}, "Dict key must be str"),
    ],
)
def test_without_validation(fake: FakeSchemaRegistry, encode: Any, value: Any, told: str) -> None:
    """What the encoder accepts is written; what it refuses is not quoted."""
    assert written(fake, ORDER, "orders", {"id": "x"}, validate=False)
    with pytest.raises(SchemaValidationError) as raised:
        written(fake, ORDER, "orders", value, validate=False, encode=encode)
    assert str(raised.value).endswith(f": dict can't be encoded ({told})")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("schema", ["{", '{"type": 5}', int])
def test_schemas_that_are_none(schema: Any) -> None:
    with pytest.raises(ConfigError):
        JsonSchemaSerializer(SchemaRegistry("http://127.0.0.1:1"), schema)


def test_a_schema_of_the_registry_that_is_none(fake: FakeSchemaRegistry) -> None:
    fake.register("broken-value", {"type": 5}, "JSON")
    with pytest.raises(SchemaRegistryError, match="JSON schema is invalid"):
        written(fake, None, "broken", {}, use_latest_version=True)
