"""ProtobufSerializer: messages of one generated class, with its file and imports kept in the registry."""

from __future__ import annotations

import asyncio
import base64
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Unpack, overload

from confluent_kafka.schema_registry import Schema, SchemaReference
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError, Message

from aioproducer.config.values import takes
from aioproducer.errors import ConfigError
from aioproducer.integrations.schema_registry.registry import Client, LookupFailedError, SchemaRegistry
from aioproducer.integrations.schema_registry.serializer import MAX_PROBLEMS, Options, SchemaSerializer
from aioproducer.integrations.schema_registry.subjects import referenced
from aioproducer.records import Value_contra

# Files every reader has built in.
_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")

_TOKENS = re.compile(
    r"""(?P<comment> //[^\n]* | /\*.*?(?:\*/|\Z) ) | "(?:[^"\\]|\\.?)*"? | '(?:[^'\\]|\\.?)*'? | [\w.]+ | \S""",
    re.DOTALL | re.VERBOSE,
)


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
        return [(path, "missing") for path in islice(_missing(wanted, value), MAX_PROBLEMS)] or [
            ("", f"{wanted} can't be written ({type(error).__name__})")
        ]


def _missing(name: str, message: Message) -> Iterator[str]:
    """The paths of required fields without a value. Those of FindInitializationErrors show the keys of maps."""
    waiting = deque([(name, message)])
    while waiting:
        path, message = waiting.popleft()
        yield from (f"{path}.{field}" for field in message.FindInitializationErrors() if field.isidentifier())
        for field, value in message.ListFields():
            if field.message_type is None:
                continue
            inner = f"{path}.({field.full_name})" if field.is_extension else f"{path}.{field.name}"
            if isinstance(value, Message):
                parts = [(inner, value)]
            elif field.message_type.GetOptions().map_entry:
                parts = [(f"{inner}[...]", each) for each in value.values() if isinstance(each, Message)]
            else:
                parts = [(f"{inner}[{index}]", each) for index, each in enumerate(value)]
            waiting.extend(part for part in parts if not part[1].IsInitialized())


class ProtobufSerializer(SchemaSerializer[Value_contra]):
    """Protobuf with a schema registry.

    The schema is the message's file; its imports are first registered or looked up, as references, except those of
    ``google/protobuf``, ``google/type`` and ``confluent``.

    Args:
        message_type: the generated class; values are instances of it.
        reference_subject_name: maps the name of an imported file to its subject; by default, the same name. A subject
            without a context is one of the message's own.
        to_dict, options: see SchemaSerializer. ``use_latest_version`` and ``use_schema_id`` change only the id and
            the message's path in the file, not its bytes, which always follow the class.
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
        if not takes(reference_subject_name, 1):
            raise ConfigError("reference_subject_name has to be a function of the name of the imported file alone")
        descriptor: Descriptor = message_type.DESCRIPTOR
        self._full_name: str = descriptor.full_name
        self._file: FileDescriptor = descriptor.file
        self._encoder = ProtobufEncoder(message_type)
        self._reference_subject_name = reference_subject_name
        super().__init__(registry, _schema(self._file, []), descriptor.full_name, to_dict=to_dict, **options)

    async def _own_schema(self, client: Client, subject: str) -> Schema:
        return _schema(self._file, await self._references(client, self._file, subject, {}))

    async def _references(
        self, client: Client, file: FileDescriptor, subject: str, known: dict[str, SchemaReference]
    ) -> list[SchemaReference]:
        references = []
        for imported in file.dependencies:
            if imported.name.startswith(_BUILT_IN):
                continue
            if imported.name not in known:
                name = self._reference_subject_name(imported.name)
                place = referenced(subject, name)
                schema = _schema(imported, await self._references(client, imported, place, known))
                if self._auto_register:
                    await client.register_schema(place, schema, normalize_schemas=self._normalize)
                found = await client.lookup_schema(place, schema, normalize_schemas=self._normalize)
                known[imported.name] = SchemaReference(imported.name, name, found.version)
            references.append(known[imported.name])
        return references

    async def _compile(self, client: Client, schema: Schema, subject: str) -> ProtobufEncoder:
        return self._encoder

    async def _message_path(self, schema: Schema, schema_id: int) -> Sequence[int]:
        # In the registry's file, messages may come in another order than in the class's own.
        loop = asyncio.get_running_loop()
        map_entries = self._fetches or not self._normalize  # normalized files have maps, but no types for their entries
        path = await loop.run_in_executor(None, message_path, schema.schema_str or "", self._full_name, map_entries)
        if path is None:
            raise LookupFailedError(f"schema {schema_id} has no message {self._full_name}")
        return path


def message_path(schema: str, full_name: str, map_entries: bool = True) -> tuple[int, ...] | None:
    """A message's path in a file, the index of its outermost message first; None if the file does not have it.

    Args:
        schema: the file as registries keep it: its serialized descriptor in base64, or its source.
        map_entries: counts the nested types that protoc makes for entries of maps; Java's serializer does, except in
            a normalized file.
    """
    file = _parse(schema)
    package = f"{file.package}." if file.package else ""
    if not full_name.startswith(package):
        return None
    path: list[int] = []
    messages = file.message_type
    for name in full_name.removeprefix(package).split("."):
        messages = [message for message in messages if map_entries or not message.options.map_entry]
        names = [message.name for message in messages]
        if name not in names:
            return None
        path.append(names.index(name))
        messages = messages[path[-1]].nested_type
    return tuple(path)


def _parse(schema: str) -> Any:
    try:
        return FileDescriptorProto.FromString(base64.b64decode(schema, validate=True))
    except (ValueError, DecodeError):
        return _parse_source(schema)


def _parse_source(source: str) -> Any:
    """The package and the names of all messages, nested as in the file.

    Registries return a file's source unless asked for ``format=serialized``, which not all of them know.
    """
    file = FileDescriptorProto()
    blocks = [file.message_type]  # the messages of each open block, None if it is not that of a message
    before, last = "", ""
    for match in _TOKENS.finditer(source.encode("ascii", "replace").decode()):  # names are ASCII
        token = match[0]
        if match["comment"] is not None:
            continue
        if token == "{":
            is_message = before == "message" and blocks[-1] is not None
            blocks.append(blocks[-1].add(name=last).nested_type if is_message else None)
        elif token == "}" and len(blocks) > 1:
            blocks.pop()
        elif token == ";" and before == "package":
            file.package = last
        before, last = last, token
    return file


def _schema(file: FileDescriptor, references: list[SchemaReference]) -> Schema:
    return Schema(base64.standard_b64encode(file.serialized_pb).decode("ascii"), "PROTOBUF", references)
