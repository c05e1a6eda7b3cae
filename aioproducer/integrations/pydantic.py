"""Pydantic: models, and any other type it supports, as JSON.

producer = Producer(bootstrap_servers="localhost:9092", value_serializer=PydanticSerializer(Order))
await producer.send("orders", Order(id=7, item="tea"))
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, overload

from aioproducer.extras import missing
from aioproducer.integrations.json_values import JsonSerializer
from aioproducer.records import Value_contra

try:
    from pydantic import BaseModel, TypeAdapter, ValidationError
    from pydantic_core import SchemaValidator, core_schema
    from pydantic_core.core_schema import ErrorType
except ModuleNotFoundError as _error:
    raise missing(_error, __name__, "pydantic") from None

# Pydantic's own messages that do not quote the value. Messages of validators, of custom errors, and of exceptions
# raised by a value's own code may contain anything.
_DISCREET = frozenset(get_args(ErrorType)) - {
    "assertion_error",
    "datetime_object_invalid",
    "get_attribute_error",
    "import_error",
    "iteration_error",
    "mapping_type",
    "union_tag_invalid",
    "uuid_parsing",
    "value_error",
}


HIDDEN = "[...]"
"""In a path, for a step that is no field's name: a key of a mapping, or an extra field that the sender chose."""
_RAISED = re.compile(
    r"Error serializing to JSON: (?:PydanticSerializationError: Error calling function `([\w<>]+)`: )?([\w.<>]+): "
)
"""Pydantic's wording for what a serializer or a computed field raised: only names from the program's code."""
_ARGUMENTS = frozenset(inspect.signature(TypeAdapter.dump_json).parameters) - {"self", "instance"}


class PydanticSerializer(JsonSerializer[Value_contra]):
    """JSON as Pydantic writes it, with a serializer compiled once.

    Args:
        value_type: a model, a union of models, a dataclass, ``list[Model]``, or any other type for TypeAdapter; None
            or BaseModel for models of any class, each with its own serializer. A subclass's own fields are left out,
            unless ``serialize_as_any=True``.
        validate: converts values to ``value_type`` first, so that dicts and the like are accepted; values that do not
            validate are refused. False accepts values of that type unchecked.
        dump: arguments of ``dump_json``, such as ``by_alias=True`` or ``exclude_none=True``.
    """

    @overload
    def __init__(self: PydanticSerializer[BaseModel], value_type: None = None, **dump: Any) -> None: ...
    @overload
    def __init__(self, value_type: type[Value_contra], *, validate: Literal[False] = False, **dump: Any) -> None: ...
    @overload
    def __init__(self, value_type: Any, *, validate: bool = False, **dump: Any) -> None: ...
    def __init__(self, value_type: Any = None, *, validate: bool = False, **dump: Any) -> None:
        if value_type is BaseModel:
            value_type = None  # it has no fields, so its own serializer would write none
        if validate and value_type is None:
            raise TypeError("validate=True needs a type")
        for name in dump:
            if name not in _ARGUMENTS:  # else every value would be refused as if it were invalid
                raise TypeError(f"dump_json has no argument {name!r}")
        super().__init__(None if validate else value_type or BaseModel)
        self._adapter: TypeAdapter[Any] | None = None if value_type is None else TypeAdapter(value_type)
        self._validates = validate
        # A field of an undeclared type is an error, instead of a warning that quotes it.
        self._dump: Mapping[str, Any] = {"warnings": "error", **dump}

    def encode(self, value: Any) -> bytes:
        adapter = self._adapter
        if adapter is None:
            encoded: bytes = value.__pydantic_serializer__.to_json(value, **self._dump)
            return encoded
        if self._validates:
            value = adapter.validate_python(value)
        return adapter.dump_json(value, **self._dump)

    def problems(self, value: Any, error: Exception) -> Sequence[tuple[str, str]]:
        invalid = error if isinstance(error, ValidationError) else self._invalid(value)
        if invalid is not None:
            names = _Names((self._adapter or TypeAdapter(type(value))).core_schema)
            return [
                (
                    _path(each["loc"], names),
                    each["msg"] if each["type"] in _DISCREET else f"refused ({each['type']})",
                )
                for each in invalid.errors(include_url=False, include_context=False, include_input=False)
            ]
        told = "has a field that is not of its declared type" if _is_of_types(error) else "can't be encoded"
        return [("", f"{type(value).__name__} {told} ({_cause(error)})")]

    def _invalid(self, value: Any) -> ValidationError | None:
        """The validation error of a value that can't be written: Pydantic's serializers name no field."""
        adapter = self._adapter or TypeAdapter(type(value))
        try:
            plain = adapter.dump_python(value, warnings=False)
            adapter.validate_python(plain, strict=True)
        except ValidationError as invalid:
            return invalid
        except Exception:
            return None
        return None


def _path(loc: tuple[int | str, ...], names: Container[int | str]) -> str:
    return ".".join(str(step) if step in names else HIDDEN for step in loc)


class _Names:
    """What a schema itself has in paths: names and aliases of fields, members of unions, indexes.

    What else is in a path may be a part of the value.
    """

    def __init__(self, schema: Any) -> None:
        self._names: set[Hashable] = set()
        self._numbers_are_indexes = True
        self._definitions: list[Any] = schema["definitions"] if schema["type"] == "definitions" else []
        waiting = [schema]
        while waiting:
            part = waiting.pop()
            if isinstance(part, Mapping):
                self._take(part)
                waiting += part.values()
            elif isinstance(part, (list, tuple)):
                waiting += part

    def __contains__(self, step: object) -> bool:
        return self._numbers_are_indexes if isinstance(step, int) else step in self._names

    def _take(self, part: Mapping[Any, Any]) -> None:
        fields = part.get("fields")
        if isinstance(fields, Mapping):
            self._names.update(fields)
        elif isinstance(fields, (list, tuple)):
            self._names.update(each["name"] for each in fields if isinstance(each, Mapping) and "name" in each)
        self._names.update(_texts(part.get("validation_alias")))
        kind = part.get("type")
        if kind == "tagged-union":
            self._names.update(part["choices"])
        elif kind == "union":
            self._names.update(self._member(each) for each in part["choices"])
        elif kind == "dict" and part.get("keys_schema", {}).get("type") != "str":
            self._numbers_are_indexes = False

    def _member(self, choice: Any) -> str:
        """A union's member in a path: its label, or what Pydantic calls it, such as ``list[int]``."""
        if isinstance(choice, tuple):
            return str(choice[1])
        return SchemaValidator(core_schema.definitions_schema(choice, self._definitions)).title


def _texts(alias: Any) -> Iterator[str]:
    if isinstance(alias, str):
        yield alias
    elif isinstance(alias, (list, tuple)):
        for each in alias:
            yield from _texts(each)


def _cause(error: Exception) -> str:
    """The kind of an error; if it came from code of the value's class, that one's, and the function that raised it."""
    raised = _RAISED.match(str(error))
    if raised is None:
        return type(error).__name__
    function, kind = raised.groups()
    return kind if function is None else f"{kind} in {function}"


def _is_of_types(error: Exception) -> bool:
    """Whether Pydantic's serializer found a field of another type, not text or nesting impossible in JSON."""
    return str(error).startswith("Pydantic serializer warnings")
