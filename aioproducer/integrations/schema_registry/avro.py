"""AvroSerializer: fastavro, with the schema parsed once."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from confluent_kafka.schema_registry import Schema
from fastavro import parse_schema, schemaless_writer
from fastavro.schema import fullname
from fastavro.validation import ValidationError, validate

from aioproducer.errors import ConfigError
from aioproducer.integrations.schema_registry.registry import Client, LookupFailedError, SchemaRegistry
from aioproducer.integrations.schema_registry.serializer import Options, SchemaSerializer
from aioproducer.integrations.schema_registry.subjects import referenced
from aioproducer.records import Value_contra

Raw = Any
"""A schema as parsed JSON: an object, a list for a union, or a name."""

# fastavro's wording; the name is from the schema.
_MISSING = re.compile("Field (.+) is specified in the schema but missing from the record")
_MORE = "record contains more fields than the schema specifies"
_DECIMALS = {
    "Scale provided in schema does not match the decimal": "more decimal places than the schema's scale",
    "The decimal precision is bigger than allowed by schema": "more digits than the schema's precision",
}

MAX_LEVELS = 1_000
"""Deepest nesting of a value with a recursive schema: fastavro uses the C stack; a few thousand crash the process."""


class AvroEncoder:
    """Values in Avro's binary form by one schema.

    Args:
        recurs: the schema refers to itself, so values may be nested without limit, or contain themselves.
    """

    __slots__ = ("_checks", "_is_bytes", "_recurs", "_schema", "_strict", "_strict_allow_default")

    def __init__(self, schema: Raw, recurs: bool, *, strict: bool, strict_allow_default: bool, checks: bool) -> None:
        self._schema, self._recurs = schema, recurs
        self._strict, self._strict_allow_default = strict, strict_allow_default
        self._checks = checks
        kind = schema.get("type") if isinstance(schema, dict) else schema
        self._is_bytes = kind == "bytes"

    def encode(self, prefix: bytes, value: Any) -> bytes:
        if self._is_bytes:
            # Without Avro's length prefix, like Java's and confluent-kafka's serializers.
            return prefix + (value.encode() if isinstance(value, str) else memoryview(value))
        if self._recurs:
            _check_levels(value)
        if self._checks:
            validate(value, self._schema, strict=self._strict)
        out = io.BytesIO()
        out.write(prefix)
        schemaless_writer(
            out, self._schema, value, strict=self._strict, strict_allow_default=self._strict_allow_default
        )
        return out.getvalue()

    def problems(self, value: Any, error: Exception) -> Sequence[tuple[str, str]]:
        if isinstance(error, _TooDeepError):
            return [("", f"{_name_of(value)} is nested in more than {MAX_LEVELS:,} levels")]
        if self._is_bytes and isinstance(error, TypeError):
            return [("", f"{_name_of(value)} is not bytes")]
        # validate() does not report what strict refuses.
        missing = _MISSING.fullmatch(str(error))
        if missing is not None:
            return [(missing[1], "missing")]
        if str(error).startswith(_MORE):
            return [("", f"{_name_of(value)} has fields that are not in the schema")]  # their names are payload
        try:
            if not self._is_bytes:
                validate(value, self._schema, strict=self._strict)
        except ValidationError as invalid:
            return _by_field(invalid)
        except Exception:
            pass  # the value itself fails when inspected; the text below says as much
        path, culprit = self._culprit(value)
        return [(path, f"{_name_of(culprit)} can't be written ({_DECIMALS.get(str(error), type(error).__name__)})")]

    def _culprit(self, value: Any) -> tuple[str, Any]:
        """The first field of a record that can't be written, and what it holds; else the value itself.

        fastavro names no field if a value is of the right type and its logical type can't hold it.
        """
        if type(value) is dict and isinstance(self._schema, dict):
            for field in self._schema.get("fields", ()):
                try:
                    schemaless_writer(io.BytesIO(), {**self._schema, "fields": [field]}, value)
                except Exception:
                    return f"{self._schema['name']}.{field['name']}", value.get(field["name"])
        return "", value


class AvroSerializer(SchemaSerializer[Value_contra]):
    """Avro with a schema registry.

    Values are what fastavro takes: dicts for records, ``datetime`` and ``Decimal`` for logical types, ``(name, value)``
    to choose a branch of a union by name.

    Args:
        schema: JSON text, the object it represents, or confluent-kafka's ``Schema``, which may have references. May be
            omitted with ``use_latest_version`` or ``use_schema_id``.
        strict: refuses dicts with fields that the schema lacks, or without fields that it has, defaults or not;
            ``strict_allow_default`` allows fields with a default to be left out.
        validate: checks each value first, including what the writer would accept unchecked, such as an int beyond 32
            bits; about doubles the time.
        to_dict, options: see SchemaSerializer.
    Raises:
        ConfigError: the schema can't be parsed, or options contradict each other.
    """

    schema_type = "AVRO"

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Sequence[Any] | Schema | None = None,
        *,
        strict: bool = False,
        strict_allow_default: bool = False,
        validate: bool = False,
        to_dict: Callable[[Value_contra], Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        strict = strict and not strict_allow_default  # that one is strict too, and would be overruled
        self._how = {"strict": strict, "strict_allow_default": strict_allow_default, "checks": validate}
        own = _schema(schema)
        raw: Raw = None if own is None else _loads(own)
        if own is not None and not own.references:
            try:
                parse_schema(raw, {})
            except Exception as error:  # of any kind, if it does not even resemble a schema
                raise ConfigError(f"the Avro schema can't be parsed: {_told(error)}") from error
        super().__init__(registry, own, _record_name(raw), to_dict=to_dict, **options)

    async def _compile(self, client: Client, schema: Schema, subject: str) -> AvroEncoder:
        parts: list[Raw] = []
        await _collect(client, schema, subject, parts, set())
        loop = asyncio.get_running_loop()
        return AvroEncoder(*await loop.run_in_executor(None, _parse, parts), **self._how)


_NESTED = (dict, list, tuple, Mapping)
_FLAT = frozenset((str, bytes, int, float, bool, type(None)))
"""The types of most parts of a value; testing for a Mapping takes far longer."""


class _TooDeepError(Exception):
    """The value is nested too deeply."""


def _check_levels(value: Any) -> None:
    left = [(value, 1)] if isinstance(value, _NESTED) else []
    while left:
        outer, level = left.pop()
        if level > MAX_LEVELS:
            raise _TooDeepError
        within = outer if isinstance(outer, (list, tuple)) else outer.values()
        for each in within:
            if type(each) not in _FLAT and isinstance(each, _NESTED):
                left.append((each, level + 1))


async def _collect(
    client: Client, schema: Schema, subject: str, parts: list[Raw], seen: set[tuple[str, int | None]]
) -> None:
    """Collect the schemas that a subject's one refers to, each before those that need it, then the schema itself."""
    for reference in schema.references or ():
        place = referenced(subject, str(reference.subject)), reference.version
        if place not in seen:
            seen.add(place)
            found = await client.get_version(*place, True)  # even if deleted: the reference is to this version
            await _collect(client, found.schema, place[0], parts, seen)
    parts.append(_loads(schema))


def _parse(parts: list[Raw]) -> tuple[Raw, bool]:
    """The schema with all names resolved, and whether it refers to itself."""
    named: dict[str, Any] = {}
    parsed: Raw = None
    for part in parts:
        try:
            parsed = parse_schema(part, named)
        except Exception as error:
            raise LookupFailedError(f"the schema can't be parsed: {_told(error)}") from error
    return _with_names(parsed, named) if len(parts) > 1 else parsed, _recurs(parsed, named, frozenset(), set())


def _recurs(schema: Raw, named: Mapping[str, Any], within: frozenset[str], seen: set[str]) -> bool:
    """Whether a type contains itself.

    Args:
        within: names of the enclosing records.
        seen: names of records known not to.
    """
    if isinstance(schema, str):
        if schema in within:
            return True
        return schema in named and schema not in seen and _recurs(named[schema], named, within, seen)
    if isinstance(schema, list):
        return any(_recurs(branch, named, within, seen) for branch in schema)
    if "fields" not in schema:
        parts = [schema[key] for key in ("type", "items", "values") if key in schema]
        return any(_recurs(part, named, within, seen) for part in parts)
    name = schema["name"]
    if any(_recurs(field["type"], named, within | {name}, seen) for field in schema["fields"]):
        return True
    seen.add(name)
    return False


def _with_names(parsed: Raw, named: Mapping[str, Any]) -> Raw:
    """The same with all names it refers to, which fastavro includes only in records."""
    if isinstance(parsed, list):
        return [_with_names(branch, named) for branch in parsed]
    if isinstance(parsed, str):
        return _with_names(named[parsed], named) if parsed in named else parsed
    return {**parsed, "__fastavro_parsed": True, "__named_schemas": named}


def _schema(schema: str | Mapping[str, Any] | Sequence[Any] | Schema | None) -> Schema | None:
    if schema is None or isinstance(schema, Schema):
        return schema
    text = schema.strip() if isinstance(schema, str) else json.dumps(schema)
    if text[:1] not in ("{", "[", '"') and text.isidentifier():
        text = json.dumps(text)  # a primitive by its bare name
    if text.startswith('"'):
        text = f'{{"type":{text}}}'  # registries refuse bare names
    return Schema(text, "AVRO")


def _loads(schema: Schema) -> Raw:
    try:
        return json.loads(schema.schema_str or "")
    except ValueError as error:
        raise ConfigError(f"the Avro schema is not JSON: {error}") from error


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _record_name(raw: Raw) -> str | None:
    if isinstance(raw, dict) and "name" in raw:
        return str(fullname(raw))
    return None


def _by_field(invalid: ValidationError) -> list[tuple[str, str]]:
    """The problems of a value, by types: fastavro's own texts would quote it. Branches of a union are merged."""
    wanted: dict[tuple[str, str], list[str]] = {}
    for each in invalid.errors:
        wanted.setdefault((each.field, _name_of(each.datum)), []).append(_name_of_type(each.schema))
    return [(field, f"{_shown(given, types)} is not {' or '.join(types)}") for (field, given), types in wanted.items()]


def _shown(given: str, types: Sequence[str]) -> str:
    """A value by its type; an int that is no int, or no long, has too many bits for it."""
    if given == "int" and "long" in types:
        return "int beyond 64 bits"
    if given == "int" and "int" in types:
        return "int beyond 32 bits"
    return given


def _name_of(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _name_of_type(schema: Raw) -> str:
    """A short name for a type; a whole record would bury the rest of the message."""
    if isinstance(schema, dict):
        kind = schema.get("logicalType") or schema.get("name") or schema.get("type")
        return _name_of_type(kind)
    if isinstance(schema, (list, tuple)):
        return " or ".join(map(_name_of_type, schema))
    return str(schema)
