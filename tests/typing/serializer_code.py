"""Serializers as users write them, with the types of their values; type checkers read it, nothing runs it.

Each ``type: ignore`` is a mistake that mypy and pyright both have to find: they report one that is not needed.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, assert_type

from pydantic import BaseModel

from aioproducer import Producer, Record, RecordMetadata, serializers
from aioproducer.integrations.msgspec import MsgspecSerializer
from aioproducer.integrations.orjson import OrjsonSerializer
from aioproducer.integrations.pydantic import PydanticSerializer
from aioproducer.integrations.schema_registry import AvroSerializer, JsonSchemaSerializer, SchemaRegistry
from aioproducer.serializers import (
    BindableSerializer,
    BoundSerializer,
    ByTopic,
    ByType,
    Serialized,
    Serializer,
    SerializerFunction,
    SerializerObject,
)


@dataclass
class Order:
    id: int


class Gift(Order):
    pass


class Event(ABC):
    @abstractmethod
    def name(self) -> str: ...


class Click(BaseModel):
    page: str


class View(BaseModel):
    page: str


def json_of_order(order: Order) -> bytes:
    return json.dumps({"id": order.id}).encode()


def dict_of_order(order: Order) -> dict[str, int]:
    return {"id": order.id}


async def looked_up(order: Order) -> bytes:
    return b"%d" % order.id


class OfOrders:
    def serialize(self, topic: str, headers: Any, value: Order) -> bytes:
        return topic.encode() + json_of_order(value)


class Bound:
    adds_headers = False

    def serialize(self, topic: str, headers: Any, value: Order) -> bytes:
        return json_of_order(value)

    def serialize_nowait(self, topic: str, headers: Any, value: Order) -> bytes:
        return json_of_order(value)

    async def close(self) -> None: ...


class Bindable:
    def bind(self, *, is_key: bool, max_block_ms: int) -> Bound:
        return Bound()


def with_types() -> list[Serializer[Order]]:
    """A parameter for a serializer of orders also accepts a serializer of a wider type."""
    function: SerializerFunction[Order] = json_of_order
    plain: SerializerObject[Order] = OfOrders()
    bound: BoundSerializer[Order] = Bound()
    bindable: BindableSerializer[Order] = Bindable()
    gifts: Serializer[Gift] = function
    print(bound, gifts)
    return [function, plain, bindable, looked_up, json.dumps, OrjsonSerializer(), OrjsonSerializer(Order)]


def refused() -> list[Serializer[Order]]:
    numbers: SerializerFunction[int] = json_of_order  # type: ignore[assignment]
    objects: SerializerObject[object] = OfOrders()  # type: ignore[assignment]
    bindable: BindableSerializer[int] = Bindable()  # type: ignore[assignment]
    size: Serializer[Order] = lambda order: order.id  # type: ignore[assignment, return-value]  # noqa: E731
    unknown: SerializerFunction[Order] = lambda order: order.size  # type: ignore[attr-defined]  # noqa: E731
    print(numbers, objects, bindable, size, unknown)
    return [serializers.long]  # type: ignore[list-item]


def without_types(serializer: Serializer, function: SerializerFunction) -> tuple[SerializerObject, BindableSerializer]:
    """A class name without type parameters accepts any types."""
    assert_type(function(7), Serialized | Awaitable[Serialized])
    print(serializer)
    return OfOrders(), ByType({Order: json_of_order, Event: serializers.string})


def chosen() -> None:
    assert_type(ByType({Order: OfOrders(), str: serializers.string}), ByType[Any])
    assert_type(ByTopic({"orders": json_of_order}, default=serializers.string), ByTopic[Any])
    several: ByType[Order | str] = ByType({Order: json_of_order, str: serializers.string})
    orders: Serializer[Order] = several
    topics: Serializer[Order | str] = ByTopic[Order | str]({"orders": json_of_order}, default=several)
    numbers: Serializer[int] = several  # type: ignore[assignment]
    print(orders, topics, numbers)


def by_json() -> None:
    assert_type(PydanticSerializer(Click), PydanticSerializer[Click])
    assert_type(PydanticSerializer(list[Click]), PydanticSerializer[list[Click]])
    assert_type(PydanticSerializer[Click | View](Click | View, by_alias=True), PydanticSerializer[Click | View])
    assert_type(PydanticSerializer(Click | View), PydanticSerializer[Any])
    assert_type(PydanticSerializer(Click, validate=True), PydanticSerializer[Any])
    assert_type(PydanticSerializer(), PydanticSerializer[BaseModel])
    assert_type(MsgspecSerializer(Order, format="msgpack"), MsgspecSerializer[Order])
    assert_type(MsgspecSerializer(Order, validate=True), MsgspecSerializer[Any])
    assert_type(MsgspecSerializer(), MsgspecSerializer[Any])
    assert_type(OrjsonSerializer(dict[str, int]), OrjsonSerializer[dict[str, int]])
    assert_type(OrjsonSerializer(default=str), OrjsonSerializer[Any])
    events: PydanticSerializer[Click | View] = PydanticSerializer(Click | View)
    clicks: Serializer[Click] = events
    numbers: Serializer[int] = events  # type: ignore[assignment]
    print(clicks, numbers)


async def by_registry(registry: SchemaRegistry, schema: Mapping[str, Any]) -> None:
    assert_type(AvroSerializer(registry, schema), AvroSerializer[Any])
    orders = AvroSerializer(registry, schema, to_dict=dict_of_order, normalize_schemas=True)
    assert_type(orders, AvroSerializer[Order])
    await orders.to_bytes("orders", Gift(7))
    await orders.to_bytes("orders", 7)  # type: ignore[arg-type]
    declared: AvroSerializer[dict[str, int]] = AvroSerializer(registry, schema)
    await declared.to_bytes("orders", Order(7))  # type: ignore[arg-type]
    assert_type(JsonSchemaSerializer(registry, Click), JsonSchemaSerializer[Click])
    assert_type(JsonSchemaSerializer(registry, "{}", validate=False), JsonSchemaSerializer[Any])
    assert_type(JsonSchemaSerializer(registry, Click, to_dict=dict_of_order), JsonSchemaSerializer[Order])
    AvroSerializer(registry, schema, normalise_schemas=True)  # type: ignore[call-arg]


async def sent(several: list[Order | None]) -> Producer:
    """A producer accepts what its serializers accept, and None."""
    producer = Producer(bootstrap_servers="a:9092", key_serializer=serializers.long, value_serializer=json_of_order)
    assert_type(producer, Producer[int, Order])
    async with producer as same:
        assert_type(same, Producer[int, Order])
        assert_type(await same.send("orders", Order(7), key=7), RecordMetadata)
        assert_type(await (await same.submit("orders", Gift(7), key=None)), RecordMetadata)
        same.submit_nowait("orders", None, key=7)
        await same.send_many("orders", [Order(7), None, (7, Gift(8)), (7, None), Record("any")])
        await same.send_many("orders", several)
        await same.send_many("orders", ((order.id, order) for order in several if order is not None))
        await same.send_many("orders", endless())
    await producer.send("orders", b"7", key=7)  # type: ignore[arg-type]
    await producer.submit("orders", Order(7), key="7")  # type: ignore[arg-type]
    producer.submit_nowait("orders", "7")  # type: ignore[arg-type]
    await producer.send_many("orders", [Order(7), 7])  # type: ignore[list-item]
    await producer.send_many("orders", [("7", Order(7))])  # type: ignore[list-item]
    gifts: Producer[int, Gift] = producer
    objects: Producer[int, object] = producer  # type: ignore[assignment]
    print(gifts, objects)
    await of_any(producer)
    return producer


async def of_any(producer: Producer) -> None:
    """Without type parameters, any types are accepted."""
    await producer.send("orders", 7, key="7")
    await producer.send_many("orders", [7, "7", (7, "7"), Order(7)])


async def endless() -> AsyncIterator[tuple[None, Order]]:
    while True:
        yield None, Order(7)


def of_what(configs: dict[str, Any]) -> None:
    assert_type(Producer(**configs), Producer[Any, Any])
    assert_type(Producer(**configs), Producer)
    assert_type(Producer.from_config({"value.serializer": json_of_order}), Producer)
    assert_type(Producer(value_serializer=None, key_serializer=json_of_order), Producer[Order, Any])
    assert_type(Producer(value_serializer="org.apache.kafka.common.serialization.LongSerializer"), Producer)
    assert_type(Producer(value_serializer=lambda value: json.dumps(value)), Producer)
    assert_type(Producer(value_serializer=looked_up), Producer[Any, Order])
    assert_type(Producer(value_serializer=Bindable()), Producer[Any, Order])
    assert_type(Producer(value_serializer=json.dumps), Producer)
    assert_type(Producer(value_serializer=PydanticSerializer(Click)), Producer[Any, Click])
    assert_type(Producer(value_serializer=ByTopic({"orders": json_of_order})), Producer)
    assert_type(Producer(value_serializer=ByType[Click | View]({BaseModel: json.dumps})), Producer[Any, Click | View])
    declared: Producer[str, Order] = Producer(bootstrap_servers="a:9092")
    different: Producer[Any, str] = Producer(value_serializer=json_of_order)  # type: ignore[arg-type]
    print(declared, different, OrderProducer(**configs).submit_nowait("orders", Order(7)))
    OrderProducer(**configs).submit_nowait("orders", 7)  # type: ignore[arg-type]
    Shop().submit_nowait("orders", 7)


class OrderProducer(Producer[str, Order]):
    """Users' subclasses may have type parameters."""


class Shop(Producer):
    """They may have none."""

    def __init__(self) -> None:
        super().__init__(bootstrap_servers="a:9092", value_serializer=json_of_order)
