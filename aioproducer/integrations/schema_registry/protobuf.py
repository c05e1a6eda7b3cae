"""ProtobufSerializer: messages of one generated class, with its file and imports kept in the registry."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Unpack, overload

from confluent_kafka.schema_registry import Schema, SchemaReference
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import Message

from aioproducer.errors import ConfigError
from aioproducer.integrations.schema_registry.registry import Client, SchemaRegistry
from aioproducer.integrations.schema_registry.serializer import Options, SchemaSerializer
from aioproducer.records import Value_contra

# Files every reader has built in.
_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")


class ProtobufEncoder:
    """Messages of one class in Protobuf's binary form."""

    __slots__ = ("_message_type",)

    def __init__(self, message_type: type[Message]) -> None:
        self._message_type = message_type

    def encode(self, prefix: bytes, value: Any) -> bytes:
        if not isinstance(value, self._message_type):
            raise TypeError
        encoded: bytes = value.SerializeToString()
        return prefix + encoded

    def problems(self, value: Any, error: Exception) -> Sequence[tuple[str, str]]:
        wanted = self._message_type.DESCRIPTOR.full_name
        if not isinstance(value, self._message_type):
            return [("", f"{type(value).__name__} is not a {wanted}")]
        missing = value.FindInitializationErrors()
        return [(f"{wanted}.{field}", "missing") for field in missing] or [
            ("", f"{wanted} can't be written ({type(error).__name__})")
        ]


class ProtobufSerializer(SchemaSerializer[Value_contra]):
    """Protobuf with a schema registry.

    The schema is the message's file; its imports are first registered or looked up, as references, except those of
    ``google/protobuf``, ``google/type`` and ``confluent``.

    Args:
        message_type: the generated class; values are instances of it.
        reference_subject_name: maps the name of an imported file to its subject; by default, the same name.
        to_dict, options: see SchemaSerializer. ``use_latest_version`` and ``use_schema_id`` change only the id
            written, not the bytes, which always follow the class.
    Raises:
        ConfigError: it is not a generated class, or options contradict each other.
    """

    schema_type = "PROTOBUF"

    @overload
    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[Value_contra],
        *,
        reference_subject_name: Callable[[str], str] = str,
        to_dict: None = None,
        **options: Unpack[Options],
    ) -> None: ...
    @overload
    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[Message],
        *,
        reference_subject_name: Callable[[str], str] = str,
        to_dict: Callable[[Value_contra], Any],
        **options: Unpack[Options],
    ) -> None: ...
    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[Any],
        *,
        reference_subject_name: Callable[[str], str] = str,
        to_dict: Callable[[Value_contra], Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        if not isinstance(message_type, type) or not issubclass(message_type, Message):
            raise ConfigError(f"{message_type!r} is not the class of a Protobuf message")
        descriptor: Descriptor = message_type.DESCRIPTOR
        self._message_path = message_path(descriptor)
        self._file: FileDescriptor = descriptor.file
        self._encoder = ProtobufEncoder(message_type)
        self._reference_subject_name = reference_subject_name
        super().__init__(registry, _schema(self._file, []), descriptor.full_name, to_dict=to_dict, **options)

    async def _own_schema(self, client: Client) -> Schema:
        return _schema(self._file, await self._references(client, self._file, {}))

    async def _references(
        self, client: Client, file: FileDescriptor, known: dict[str, SchemaReference]
    ) -> list[SchemaReference]:
        references = []
        for imported in file.dependencies:
            if imported.name.startswith(_BUILT_IN):
                continue
            if imported.name not in known:
                schema = _schema(imported, await self._references(client, imported, known))
                subject = self._reference_subject_name(imported.name)
                if self._auto_register:
                    await client.register_schema(subject, schema, normalize_schemas=self._normalize)
                found = await client.lookup_schema(subject, schema, normalize_schemas=self._normalize)
                known[imported.name] = SchemaReference(imported.name, subject, found.version)
            references.append(known[imported.name])
        return references

    async def _compile(self, client: Client, schema: Schema) -> ProtobufEncoder:
        return self._encoder


def message_path(descriptor: Descriptor) -> tuple[int, ...]:
    """A message's path in its file: the index of its outermost message first."""
    names = [descriptor.name]
    while descriptor.containing_type is not None:
        descriptor = descriptor.containing_type
        names.append(descriptor.name)
    outermost, *inner = reversed(names)
    path = [list(descriptor.file.message_types_by_name).index(outermost)]
    for name in inner:
        path.append(list(descriptor.nested_types_by_name).index(name))
        descriptor = descriptor.nested_types_by_name[name]
    return tuple(path)


def _schema(file: FileDescriptor, references: list[SchemaReference]) -> Schema:
    return Schema(base64.standard_b64encode(file.serialized_pb).decode("ascii"), "PROTOBUF", references)
