"""Avro, JSON Schema and Protobuf with a schema registry, through confluent-kafka's asynchronous client.

registry = SchemaRegistry("http://localhost:8081")
producer = Producer(bootstrap_servers="localhost:9092", value_serializer=AvroSerializer(registry, SCHEMA))

Theory of operation. Once a serializer knows the id of a topic's schema and how to encode with it, a record becomes
bytes in a plain call. Otherwise it looks them up: one lookup per subject, in a separate task, shared by all records
that need it and have the same ``max_block_ms``, which bounds it. ``send``, ``submit`` and ``send_many`` wait for it,
``submit_nowait`` begins it and raises SerializerNotReadyError, and ``await serializer.prepare(topic)`` does it
beforehand. The result of a lookup is kept; a failure is remembered for a second, so that many records do not repeat a
failing lookup one after the other.

``lookups`` has the tasks, ``registry`` the client and its retries, ``subjects`` and ``framing`` names and bytes,
``serializer`` what all serializers share, ``avro``, ``json_schema`` and ``protobuf`` one each. The parts are imported
on first use, and need the extra ``schema-registry``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer.extras import ModuleGetattr, on_demand

if TYPE_CHECKING:
    from aioproducer.integrations.schema_registry.avro import AvroSerializer as AvroSerializer
    from aioproducer.integrations.schema_registry.json_schema import JsonSchemaSerializer as JsonSchemaSerializer
    from aioproducer.integrations.schema_registry.protobuf import ProtobufSerializer as ProtobufSerializer
    from aioproducer.integrations.schema_registry.registry import SchemaRegistry as SchemaRegistry
    from aioproducer.integrations.schema_registry.serializer import SchemaSerializer as SchemaSerializer

_HOMES = {
    "AvroSerializer": "avro",
    "JsonSchemaSerializer": "json_schema",
    "ProtobufSerializer": "protobuf",
    "SchemaRegistry": "registry",
    "SchemaSerializer": "serializer",
}

__all__ = sorted(_HOMES)


__getattr__: ModuleGetattr = on_demand(__name__, _HOMES, "schema-registry")
