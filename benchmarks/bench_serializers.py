"""What does a record's serializer cost, beside the other client's and beside all else that a record costs?

python -m benchmarks.bench_serializers

Processor time in microseconds a record, the median of several rounds: first of the serializers alone, their schemas
known, then of the whole producer against a sink that only acknowledges.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import orjson
import pydantic
import uvloop
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer
from confluent_kafka.schema_registry.json_schema import AsyncJSONSerializer
from confluent_kafka.schema_registry.protobuf import AsyncProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.api_pb2 import Mixin

from aioproducer import BufferExhaustedError, Producer
from aioproducer.integrations.msgspec import MsgspecSerializer
from aioproducer.integrations.orjson import OrjsonSerializer
from aioproducer.integrations.pydantic import PydanticSerializer
from aioproducer.integrations.schema_registry import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from aioproducer.testing import FakeSchemaRegistry
from benchmarks.sink import running_sink

ROUNDS = 7
VALUE = {"id": 7, "item": "green tea", "price": 2.5}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}
JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}, "price": {"type": "number"}},
    "required": ["id"],
}


class Model(pydantic.BaseModel):
    id: int
    item: str
    price: float


class Struct(msgspec.Struct):
    id: int
    item: str
    price: float


def show(name: str, rounds: list[float]) -> None:
    print(f"{name:48} {statistics.median(rounds):7.2f}   {min(rounds):.2f} to {max(rounds):.2f}", flush=True)


def measure(name: str, call: Callable[[], Any], count: int) -> None:
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(count):
            call()
        rounds.append((time.process_time() - began) / count * 1e6)
    show(name, rounds)


async def measure_async(name: str, call: Callable[[], Awaitable[Any]], count: int) -> None:
    rounds = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(count):
            await call()
        rounds.append((time.process_time() - began) / count * 1e6)
    show(name, rounds)


async def serializers(registry: SchemaRegistry, client: AsyncSchemaRegistryClient, count: int) -> None:
    """Measure the serializers alone."""
    ours: list[tuple[str, Any, Any]] = [
        ("Avro", AvroSerializer(registry, AVRO), VALUE),
        ("Protobuf", ProtobufSerializer(registry, Mixin), Mixin(name="green tea", root="shop")),
        ("JSON Schema, checked", JsonSchemaSerializer(registry, JSON), VALUE),
        ("JSON Schema, a Pydantic model", JsonSchemaSerializer(registry, Model), Model(**VALUE)),
        ("JSON Schema, unchecked", JsonSchemaSerializer(registry, JSON, validate=False, encode=orjson.dumps), VALUE),
    ]
    for name, serializer, value in ours:
        topic = name.replace(" ", "-")
        bound = serializer.bind(is_key=False, max_block_ms=60_000)
        await bound.prepare(topic)
        measure(name, lambda bound=bound, topic=topic, value=value: bound.serialize(topic, None, value), count)
    plain: list[tuple[str, Any, Any]] = [
        ("PydanticSerializer", PydanticSerializer(Model), Model(**VALUE)),
        ("MsgspecSerializer", MsgspecSerializer(Struct), Struct(**VALUE)),
        ("OrjsonSerializer", OrjsonSerializer(dict), VALUE),
    ]
    for name, serializer, value in plain:
        measure(name, lambda serializer=serializer, value=value: serializer.serialize("orders", None, value), count)
    conf = {"subject.name.strategy.type": "TOPIC"}
    theirs: list[tuple[str, Any, Any]] = [
        ("Avro", await AsyncAvroSerializer(client, json.dumps(AVRO), conf=conf), VALUE),
        ("Protobuf", await AsyncProtobufSerializer(Mixin, client, conf=conf), Mixin(name="green tea", root="shop")),
        ("JSON Schema, checked", await AsyncJSONSerializer(json.dumps(JSON), client, conf=conf), VALUE),
    ]
    for name, serializer, value in theirs:
        context = SerializationContext(f"theirs-{name.replace(' ', '-')}", MessageField.VALUE)
        await serializer(value, context)
        await measure_async(
            f"{name}, confluent-kafka",
            lambda serializer=serializer, value=value, context=context: serializer(value, context),
            count,
        )


async def producers(registry: SchemaRegistry, bootstrap: str, count: int) -> None:
    """Measure the whole producer, by way of sending."""
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("bytes", orjson.dumps(VALUE), {}),
        ("OrjsonSerializer", VALUE, {"value_serializer": OrjsonSerializer(dict)}),
        ("Avro", VALUE, {"value_serializer": AvroSerializer(registry, AVRO)}),
    ]
    for name, value, configs in cases:
        async with Producer(bootstrap_servers=bootstrap, **configs) as producer:
            await producer.send("orders", value)

            async def nowait(producer: Producer = producer, value: Any = value) -> None:
                sent = 0
                while sent < count:
                    try:
                        while sent < count:
                            producer.submit_nowait("orders", value)
                            sent += 1
                    except BufferExhaustedError:
                        await producer.ready()

            async def submit(producer: Producer = producer, value: Any = value) -> None:
                for _ in range(count):
                    await producer.submit("orders", value)

            async def many(producer: Producer = producer, value: Any = value) -> None:
                await producer.send_many("orders", [value] * count)

            for way, send in (("submit_nowait", nowait), ("submit", submit), ("send_many", many)):
                rounds = []
                for _ in range(ROUNDS):
                    began = time.process_time()
                    await send()
                    await producer.flush()
                    rounds.append((time.process_time() - began) / count * 1e6)
                show(f"{name}, {way}", rounds)


async def run(count: int) -> None:
    with FakeSchemaRegistry() as fake, running_sink() as sink:
        async with (
            SchemaRegistry(fake.url) as registry,
            AsyncSchemaRegistryClient({"url": fake.url}) as client,
        ):
            await serializers(registry, client, count)
            await producers(registry, sink.bootstrap, count)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_serializers", description=__doc__)
    parser.add_argument("--records", type=int, default=20_000, help="of each round")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(parser.parse_args(arguments).records))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
