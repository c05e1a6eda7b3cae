"""ProtobufSerializer: what confluent-kafka's ProtobufDeserializer reads."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, reference_subject_name_strategy
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from aioproducer.errors import ConfigError, SchemaRegistryError, SchemaValidationError
from aioproducer.integrations.schema_registry import ProtobufSerializer, SchemaRegistry
from aioproducer.integrations.schema_registry.protobuf import message_path
from aioproducer.testing import FakeSchemaRegistry
from tests.unit.integrations.messages import Basket, Customer, Gift, Line, Money, Order, Part, Strict, Stricts, also
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


def serialized_file(message_type: Any, *before: str) -> str:
    """The file of a message as its schema, with other messages in front of its own."""
    file = FileDescriptorProto.FromString(message_type.DESCRIPTOR.file.serialized_pb)
    messages = [*(DescriptorProto(name=name) for name in before), *file.message_type]
    del file.message_type[:]
    file.message_type.extend(messages)
    return base64.b64encode(file.SerializeToString()).decode()


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
    assert message_path(serialized_file(message_type), message_type.DESCRIPTOR.full_name) == path
    topic = message_type.DESCRIPTOR.name
    assert reader(topic, message_type, written(fake, message_type, topic, message_type())) == message_type()


@pytest.mark.parametrize(("normalized", "expected"), [(False, b"\4\0\2"), (True, b"\4\0\0")])
def test_entries_of_maps(fake: FakeSchemaRegistry, normalized: bool, expected: bytes) -> None:
    """A normalized file has no types for them; that changes the positions of the types behind them."""
    data = written(fake, Gift, f"gifts-{normalized}", Gift(), normalize_schemas=normalized)
    assert data is not None
    assert data[5:] == expected
    assert written(fake, Basket, "baskets", Basket(counts={"tea": 1}), normalize_schemas=normalized)


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


@pytest.mark.parametrize("own", ["", ":.staging:", ":.shared:"])
def test_imports_of_a_message_in_a_context(own: str) -> None:
    """An import's subject without a context of its own is one of the message's, as to the registry."""
    with FakeSchemaRegistry() as fake:
        written(
            fake,
            Order,
            "orders",
            Order(),
            subject_name_strategy=lambda *_: ":.staging:orders-value",
            reference_subject_name=lambda name: own + name,
        )
        money = (own or ":.staging:") + "shop/money.proto"
        assert sorted(fake.subjects()) == sorted([money, ":.staging:orders-value"])


def test_latest_version(fake: FakeSchemaRegistry, reader: Any) -> None:
    written(fake, Order, "newest", Order())
    data = written(fake, Order, "newest", Order(id=5), use_latest_version=True)
    assert reader("newest", Order, data) == Order(id=5)


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("source", [False, True])
def test_the_path_is_that_in_the_fetched_schema(
    fake: FakeSchemaRegistry, reader: Any, by_id: bool, source: bool
) -> None:
    """A newer file may have other messages in front; readers go by its order, not by that of the writer's class."""
    topic = f"moved-{by_id}-{source}"
    schema = serialized_file(Strict, "Address", "Invoice")
    if source:
        messages = "message A {}\nmessage B {}\nmessage Strict {required int32 id = 1;}"
        schema = f'syntax = "proto2";\npackage shop;\n{messages}'
    number = fake.register(f"{topic}-value", schema, "PROTOBUF")
    options: Any = {"use_schema_id": number} if by_id else {"use_latest_version": True}
    data = written(fake, Strict, topic, Strict(id=5), **options)
    assert data is not None
    assert data[5:] == b"\2\4" + Strict(id=5).SerializeToString()
    if not source:  # that reader asks for format=serialized, which the fake one does not know
        assert reader(topic, Strict, data) == Strict(id=5)


def test_a_fetched_schema_without_the_message(fake: FakeSchemaRegistry) -> None:
    number = fake.register("unrelated-value", serialized_file(Money), "PROTOBUF")
    with pytest.raises(SchemaRegistryError, match=rf"schema {number} has no message shop\.Strict"):
        written(fake, Strict, "unrelated", Strict(id=5), use_latest_version=True)


SOURCE = """
syntax = "proto3"; // message Commented {
package shop.v1;
/* message Commented { } } */
import "google/protobuf/descriptor.proto";
option (shop.v1.note) = { text: "message Quoted { }}" message: { message { } } };
extend google.protobuf.FileOptions { string note = 50000; }
enum Kind { NONE = 0; message = 1; }
message First {
  string message = 1 [deprecated = true, json_name = '\\'{'];
  map<string, Inner> named = 2;
  oneof choice { int32 number = 3; string text = 4; }
  enum Inside { ZERO = 0; }
  message Inner { message Innermost {} }
  reserved 7, 8 to 10;
  message message { }
}
service Orders { rpc Put (First) returns (stream Second) { option deprecated = true; } }
message Second{}
"""


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("First", (0,)),
        ("First.Inner", (0, 0)),
        ("First.Inner.Innermost", (0, 0, 0)),
        ("First.message", (0, 1)),
        ("Second", (1,)),
        ("Inner", None),
        ("Commented", None),
        ("Quoted", None),
    ],
)
def test_the_path_in_the_source_of_a_file(name: str, path: Any) -> None:
    assert message_path(SOURCE, f"shop.v1.{name}") == path
    assert message_path(SOURCE.replace("package shop.v1;", ""), name) == path
    assert message_path(SOURCE, name) is None


@given(st.recursive(st.just({}), lambda inner: st.dictionaries(st.sampled_from(["A", "B", "message"]), inner)))
def test_the_path_in_both_forms_of_a_file(tree: dict[str, Any]) -> None:
    file = FileDescriptorProto(package="shop")
    names = []

    def source_of(tree: dict[str, Any], messages: Any, outer: str) -> str:
        source = ""
        for name, inner in tree.items():
            names.append(f"{outer}.{name}")
            nested = source_of(inner, messages.add(name=name).nested_type, names[-1])
            source += f"enum E{name} {{ message = 0; }}\nmessage {name} {{ {nested} string {name} = 1; }} // {{\n"
        return source

    source = "package shop;" + source_of(tree, file.message_type, "shop")
    serialized = base64.b64encode(file.SerializeToString()).decode()
    paths = {name: message_path(serialized, name) for name in names}
    assert None not in paths.values()
    assert {name: message_path(source, name) for name in names} == paths


@given(st.text() | st.text("message A{};/*\"'\\\ud800\n"))
def test_what_is_no_file(text: str) -> None:
    assert message_path(text, "shop.Order") is None


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


def test_paths_show_no_key_of_a_map(fake: FakeSchemaRegistry) -> None:
    value = Stricts(listed=[Strict(id=1), Strict()], one=Strict(), counts=[1])
    value.by_number[41111111].SetInParent()
    value.by_name["secret] . x"].SetInParent()
    value.by_name["fine"].id = 1
    value.Extensions[also].SetInParent()
    with pytest.raises(SchemaValidationError) as raised:
        written(fake, Stricts, "others", value)
    assert raised.value.problems == tuple(
        (f"shop.Stricts.{path}.id", "missing")
        for path in ("by_name[...]", "by_number[...]", "listed[1]", "one", "(shop.also)")
    )
    assert "secret" not in repr(raised.value)


@pytest.mark.parametrize("what", [Order(), int, "Order"])
def test_what_is_no_message_type(what: Any) -> None:
    with pytest.raises(ConfigError, match="not the class of a Protobuf message"):
        ProtobufSerializer(SchemaRegistry("http://127.0.0.1:1"), what)


def test_a_function_of_other_arguments_for_the_subjects_of_imports() -> None:
    """As confluent-kafka calls it."""
    strategy: Any = reference_subject_name_strategy
    with pytest.raises(ConfigError, match="reference_subject_name has to be a function of the name"):
        ProtobufSerializer(SchemaRegistry("http://127.0.0.1:1"), Order, reference_subject_name=strategy)
