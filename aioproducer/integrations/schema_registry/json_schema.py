"""JsonSchemaSerializer: JSON whose values are checked against their schema, by jsonschema or by the model itself."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, Unpack, overload

from confluent_kafka.schema_registry import Schema
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from aioproducer.errors import ConfigError
from aioproducer.integrations.json_values import JsonSerializer
from aioproducer.integrations.schema_registry.registry import Client, LookupFailedError, SchemaRegistry
from aioproducer.integrations.schema_registry.serializer import MAX_PROBLEMS, Options, SchemaSerializer
from aioproducer.integrations.schema_registry.subjects import referenced
from aioproducer.records import Value_contra

Encode = Callable[[Any], bytes | str]
_dumps = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode

_SAFE = re.compile(
    r"Object of type \S+ is not JSON serializable|Out of range float values are not JSON compliant"
    r"|keys must be str, int, float, bool or None, not \S+|Type is not JSON serializable: \S+|Dict key must be str"
)
"""What json and orjson say of a value without quoting it."""

Explain = Callable[[Any, Exception], Sequence[tuple[str, str]]]
"""Why a value was not encoded: (path, what is wrong)."""


class JsonEncoder:
    """Values as JSON, checked against one schema.

    Args:
        of_model: values are objects; the JSON they become is checked.
    """

    __slots__ = ("_encode", "_explain", "_of_model", "_validator")

    def __init__(
        self, encode: Encode, validator: Any | None, explain: Explain | None = None, *, of_model: bool = False
    ) -> None:
        self._encode = encode
        self._validator = validator
        self._explain = explain
        self._of_model = of_model

    def encode(self, prefix: bytes, value: Any) -> bytes:
        if not self._of_model:
            self._check(value)
        encoded = self._encode(value)
        if self._of_model and self._validator is not None:
            self._check(json.loads(encoded))
        return prefix + (encoded.encode() if isinstance(encoded, str) else encoded)

    def _check(self, instance: Any) -> None:
        if self._validator is not None and not self._validator.is_valid(instance):
            raise _InvalidError(instance)

    def problems(self, value: Any, error: Exception) -> Sequence[tuple[str, str]]:
        if isinstance(error, Unresolvable):
            return [("", f"the schema refers to {error.ref!r}, which is not among its references")]
        if isinstance(error, _InvalidError) and self._validator is not None:
            return [_problem(each) for each in islice(self._validator.iter_errors(error.instance), MAX_PROBLEMS)]
        if self._explain is not None:
            return self._explain(value, error)
        told = _SAFE.match(str(error))
        return [("", f"{type(value).__name__} can't be encoded ({told[0] if told else type(error).__name__})")]


class JsonSchemaSerializer(SchemaSerializer[Value_contra]):
    """JSON with a schema registry.

    Args:
        schema: JSON text, the object it represents, confluent-kafka's ``Schema``, which may have references, or a
            Pydantic model, whose instances are then the values. May be omitted with ``use_latest_version`` or
            ``use_schema_id``.
        validate: checks each value against the schema, which takes longer than everything else. Default True, except
            for a Pydantic model, which has checked its instances itself; for those it checks the JSON they become.
        encode: turns a value into JSON, such as ``orjson.dumps``; the standard library's by default.
        to_dict, options: see SchemaSerializer.
    Raises:
        ConfigError: the schema is invalid, or options contradict each other.
    """

    schema_type = "JSON"

    @overload
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: type[Value_contra],
        *,
        validate: bool | None = None,
        encode: Encode | None = None,
        to_dict: None = None,
        **options: Unpack[Options],
    ) -> None: ...
    @overload
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Schema | type | None = None,
        *,
        validate: bool | None = None,
        encode: Encode | None = None,
        to_dict: Callable[[Value_contra], Any] | None = None,
        **options: Unpack[Options],
    ) -> None: ...
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Mapping[str, Any] | Schema | type | None = None,
        *,
        validate: bool | None = None,
        encode: Encode | None = None,
        to_dict: Callable[[Value_contra], Any] | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._explain: Explain | None = None
        self._is_model = isinstance(schema, type)
        if isinstance(schema, type):
            schema, of_model = _of_model(schema)
            if encode is None:
                encode, self._explain = of_model.encode_checked, of_model.explain
            validate = bool(validate)
        self._encode = _dumps if encode is None else encode
        self._validates = validate is not False
        own = _schema(schema)
        raw = None if own is None else _loads(own)
        title = raw.get("title") if isinstance(raw, dict) else None
        if own is not None:
            try:
                _validator_class(raw).check_schema(raw)
            except SchemaError as error:
                raise ConfigError(f"the JSON schema is invalid, at {error.json_path}: {error.message}") from error
        super().__init__(registry, own, title if isinstance(title, str) else None, to_dict=to_dict, **options)

    async def _compile(self, client: Client, schema: Schema, subject: str) -> JsonEncoder:
        if not self._validates:
            return JsonEncoder(self._encode, None, self._explain, of_model=self._is_model)
        parts: dict[str, Any] = {}
        await _collect(client, schema, subject, parts)
        loop = asyncio.get_running_loop()
        validator = await loop.run_in_executor(None, _validator, _loads(schema), parts)
        return JsonEncoder(self._encode, validator, self._explain, of_model=self._is_model)


class _InvalidError(Exception):
    """The value does not match; which part is found out later."""

    def __init__(self, instance: Any) -> None:
        super().__init__()
        self.instance = instance


async def _collect(client: Client, schema: Schema, subject: str, parts: dict[str, Any]) -> None:
    """Collect the schemas that a subject's one refers to, directly or indirectly, by name."""
    for reference in schema.references or ():
        name = str(reference.name)
        if name not in parts:
            place = referenced(subject, str(reference.subject))
            found = await client.get_version(place, reference.version, True)
            parts[name] = _loads(found.schema)
            await _collect(client, found.schema, place, parts)


def _validator(raw: Any, parts: Mapping[str, Any]) -> Any:
    # Without a retriever: a schema not among the references is never fetched from its URL.
    resources = [(name, Resource.from_contents(part, default_specification=DRAFT7)) for name, part in parts.items()]
    cls = _validator_class(raw)
    try:
        cls.check_schema(raw)
    except SchemaError as error:
        raise LookupFailedError(f"the JSON schema is invalid, at {error.json_path}: {error.message}") from error
    return cls(raw, registry=Registry().with_resources(resources))


def _validator_class(raw: Any) -> Any:
    return validator_for(raw)


def _problem(error: ValidationError) -> tuple[str, str]:
    """The path and the violated rule. The rule is from the schema; the error's own message would quote the value."""
    rule, path = repr(error.validator_value), _path(error)
    if error.validator == "required" and isinstance(error.instance, dict):
        missing = [name for name in error.validator_value if name not in error.instance]
        return path, f"{' and '.join(missing)} missing"
    if error.validator == "type":
        return path, f"{_json_type(error.instance)} is not {_types(error.validator_value)}"
    return path, f"breaks the rule {error.validator}" + (f": {rule}" if len(rule) <= 60 else "")


def _path(error: ValidationError) -> str:
    """Where in the value, as a JSON path. Keys that no ``properties`` of the schema names are data, and not shown."""
    rules = list(error.absolute_schema_path)
    names = {name for rule, name in pairwise(rules) if rule == "properties"}
    steps = (
        f"[{step}]" if isinstance(step, int)
        else "[...]" if step not in names
        else f".{step}" if step.isidentifier()
        else f"[{step!r}]"
        for step in error.absolute_path
    )  # fmt: skip
    return "$" + "".join(steps)


def _types(wanted: Any) -> str:
    return " or ".join(wanted) if isinstance(wanted, list) else str(wanted)


def _json_type(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _schema(schema: str | Mapping[str, Any] | Schema | None) -> Schema | None:
    if schema is None or isinstance(schema, Schema):
        return schema
    return Schema(schema if isinstance(schema, str) else json.dumps(schema), "JSON")


def _loads(schema: Schema) -> Any:
    try:
        return json.loads(schema.schema_str or "")
    except ValueError as error:
        raise ConfigError(f"the JSON schema is not JSON: {error}") from error


def _of_model(model: Any) -> tuple[Schema, JsonSerializer[Any]]:
    """The schema of a Pydantic model, and a matching encoder for its instances."""
    if not hasattr(model, "model_json_schema"):
        raise ConfigError(
            f"{model.__name__} is not a Pydantic model; give its JSON schema, and encode= or to_dict= for its values"
        )
    from aioproducer.integrations.pydantic import PydanticSerializer

    schema = Schema(json.dumps(model.model_json_schema(mode="serialization", by_alias=True)), "JSON")
    return schema, PydanticSerializer(model, by_alias=True)
