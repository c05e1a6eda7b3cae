"""ProtobufSerializer: what confluent-kafka's ProtobufDeserializer reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ConfigError, SchemaRegistryError, SchemaValidationError
from aioproducer.integrations.schema_registry import ProtobufSerializer, SchemaRegistry
from aioproducer.integrations.schema_registry.protobuf import message_path
from aioproducer.testing import FakeSchemaRegistry
from tests.unit.integrations.messages import Customer, Line, Money, Order, Part, Strict
from tests.unit.integrations.schema_registry.round_trips import prepared, serialized

ORDERS = st.builds(
    Order,
    id=st.integers(-(2**31), 2**31 - 1),
    item=st.text(st.characters(codec="utf-8")),
    price=st.none() | st.builds(Money, amount=st.integers(-(2**63), 2**63 - 1), currency=st.just("EUR")),
)


@pytest.fixture(scope="module")
def reader(fake: FakeSchemaRegistry) -> Iterator[Any]:
    """``reader(topic, message_type, data)``."""
    with SchemaRegistryClient({"url": fake.url}) as client:
        yield lambda topic, message_type, data: ProtobufDeserializer(
            message_type, {"use.deprecated.format": False}, client
        )(data, SerializationContext(topic, MessageField.VALUE))


def written(fake: FakeSchemaRegistry, message_type: Any, topic: str, value: Any, **options: Any) -> bytes | None:
    return serialized(fake, lambda registry: ProtobufSerializer(registry, message_type, **options), topic, value)


def test_any_order_is_read_back(fake: FakeSchemaRegistry, reader: Any) -> None:
    serialize = prepared(ProtobufSerializer(SchemaRegistry(fake.url), Order), "orders")

    @given(ORDERS)
    def check(order: Any) -> None:
        assert reader("orders", Order, serialize(order)) == order

    check()


@pytest.mark.parametrize(
    ("message_type", "path"), [(Customer, (0,)), (Order, (1,)), (Line, (1, 1)), (Part, (1, 1, 0)), (Money, (0,))]
)
def test_messages_by_their_place(fake: FakeSchemaRegistry, reader: Any, message_type: Any, path: Any) -> None:
    """The first message of a file, a later one, and nested ones."""
    assert message_path(message_type.DESCRIPTOR) == path
    topic = message_type.DESCRIPTOR.name
    assert reader(topic, message_type, written(fake, message_type, topic, message_type())) == message_type()


@pytest.mark.parametrize("registers", [True, False])
def test_imports_are_references(registers: bool) -> None:
    with FakeSchemaRegistry() as fake:
        if not registers:
            with pytest.raises(SchemaRegistryError, match="40401"):
                written(fake, Order, "orders", Order(), auto_register_schemas=False)
            written(fake, Order, "orders", Order(), reference_subject_name=lambda name: f"file/{name}")
        written(
            fake,
            Order,
            "orders",
            Order(),
            auto_register_schemas=registers,
            reference_subject_name=lambda name: f"file/{name}",
        )
        assert fake.subjects() == ["file/shop/money.proto", "orders-value"]
        assert fake.latest("orders-value")["references"] == [
            {"name": "shop/money.proto", "subject": "file/shop/money.proto", "version": 1}
        ]


def test_latest_version(fake: FakeSchemaRegistry, reader: Any) -> None:
    written(fake, Order, "newest", Order())
    data = written(fake, Order, "newest", Order(id=5), use_latest_version=True)
    assert reader("newest", Order, data) == Order(id=5)


@pytest.mark.parametrize(
    ("message_type", "value", "problem"),
    [
        (Order, Customer(name="secret"), "Customer is not a shop.Order"),
        (Order, {"item": "secret"}, "dict is not a shop.Order"),
        (Strict, Strict(), "shop.Strict.id: missing"),
    ],
)
def test_what_does_not_fit(fake: FakeSchemaRegistry, message_type: Any, value: Any, problem: str) -> None:
    with pytest.raises(SchemaValidationError) as raised:
        written(fake, message_type, "others", value)
    assert str(raised.value).endswith(f": {problem}")
    assert "secret" not in repr(raised.value)


@pytest.mark.parametrize("what", [Order(), int, "Order"])
def test_what_is_no_message_type(what: Any) -> None:
    with pytest.raises(ConfigError, match="not the class of a Protobuf message"):
        ProtobufSerializer(SchemaRegistry("http://127.0.0.1:1"), what)
