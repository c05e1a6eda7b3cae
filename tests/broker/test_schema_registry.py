"""Records with registered schemas, through a real Kafka, read by confluent-kafka's consumer and deserializers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import DeserializingConsumer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

from aioproducer import Producer
from aioproducer.integrations.schema_registry import (
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from aioproducer.testing import FakeSchemaRegistry, KafkaCluster
from aioproducer.testing.plugin import TopicFactory
from tests.broker.fixtures import PATIENCE_S
from tests.unit.integrations.messages import Line, Order

pytestmark = pytest.mark.broker

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "int"}, {"name": "item", "type": "string"}],
}
JSON = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}
COUNT = 300


def consumed(
    cluster: KafkaCluster, topic: str, key_deserializer: Any, value_deserializer: Any, count: int
) -> list[tuple[Any, Any]]:
    """Key and value of the first records of a topic."""
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "key.deserializer": key_deserializer,
            "value.deserializer": value_deserializer,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[tuple[Any, Any]] = []
        while len(found) < count:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} of {count} records"
            found.append((message.key(), message.value()))
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("name", "framing"), [("avro", "prefix"), ("json", "prefix"), ("protobuf", "prefix"), ("avro", "header")]
)
async def test_read_by_the_other_client(
    kafka: KafkaCluster,
    kafka_topic_factory: TopicFactory,
    fake_schema_registry: FakeSchemaRegistry,
    name: str,
    framing: str,
) -> None:
    """Keys and values, sent with every call, while the registry fails now and then."""
    topic = kafka_topic_factory()
    registry = SchemaRegistry(fake_schema_registry.url)
    value: Any
    with SchemaRegistryClient({"url": fake_schema_registry.url}) as client:
        read: Any
        key_read: Any
        if name == "avro":
            key = AvroSerializer(registry, "string", framing=framing)
            value = AvroSerializer(registry, AVRO, framing=framing)
            read = key_read = AvroDeserializer(client)
            # Even with the schema in a header, that deserializer refuses payloads of less than 6 bytes.
            records = [(f"key {number}", {"id": number, "item": "green tea"}) for number in range(COUNT)]
        elif name == "json":
            key = JsonSchemaSerializer(registry, {"type": "integer"}, framing=framing)
            value = JsonSchemaSerializer(registry, JSON, framing=framing)
            read = key_read = JSONDeserializer(None, schema_registry_client=client)
            records = [(number, {"id": number}) for number in range(COUNT)]
        else:
            key = ProtobufSerializer(registry, Line, framing=framing)
            value = ProtobufSerializer(registry, Order, framing=framing)
            key_read = ProtobufDeserializer(Line, {"use.deprecated.format": False}, client)
            read = ProtobufDeserializer(Order, {"use.deprecated.format": False}, client)
            records = [(Line(item=str(number)), Order(id=number)) for number in range(COUNT)]
        fake_schema_registry.fail(503)
        async with Producer(
            bootstrap_servers=kafka.bootstrap_servers, key_serializer=key, value_serializer=value
        ) as producer:
            third = COUNT // 3
            await asyncio.gather(*(producer.send(topic, data, key=its_key) for its_key, data in records[:third]))
            await producer.send_many(topic, records[third : 2 * third])
            for its_key, data in records[2 * third :]:
                producer.submit_nowait(topic, data, key=its_key)
        found = await asyncio.to_thread(consumed, kafka, topic, key_read, read, COUNT)
    assert found == records
