"""Avro, JSON Schema and Protobuf with a schema registry, through confluent-kafka's asynchronous client.

registry = SchemaRegistry("http://localhost:8081")
producer = Producer(bootstrap_servers="localhost:9092", value_serializer=AvroSerializer(registry, SCHEMA))

Theory of operation. A serializer knows the id of each topic's schema and how to encode with it; with both, a record
becomes bytes in a plain call. What it does not know it looks up: one lookup for each subject, in a task of its own,
shared by all records that need it and bounded by the producer's ``max_block_ms``. ``send``, ``submit`` and
``send_many`` wait for it, ``submit_nowait`` begins it and raises SerializerNotReadyError, and ``await
serializer.prepare(topic)`` does it beforehand. The result of a lookup is kept; a failure is remembered for a second, so
that many records do not ask in vain one after the other.

``lookups`` has the tasks, ``registry`` the client and its retries, ``subjects`` and ``framing`` names and bytes,
``serializer`` what all serializers share, ``avro``, ``json_schema`` and ``protobuf`` one each. The parts load when they
are used, and need the extra ``schema-registry``.
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
