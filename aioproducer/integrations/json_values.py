"""Shared by the serializers of Pydantic, msgspec and orjson: type checks and errors."""

from __future__ import annotations

import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic

from aioproducer.errors import SchemaValidationError
from aioproducer.records import Value_contra

MAX_PROBLEMS = 5
"""Most problems of a value that its error lists."""


class JsonSerializer(ABC, Generic[Value_contra]):
    """Serializes values of one type, or of any type the library knows.

    Args:
        value_type: the type of the values; None for anything. Of a type that ``isinstance`` can't check, such as
            ``list[int]``, only the outer part is checked.

    Type checkers infer the type of the values from a class; a union must be explicit,
    ``PydanticSerializer[A | B](A | B)``. With ``validate=True``, or without a type, values may be anything.
    """

    def __init__(self, value_type: Any = None) -> None:
        self._wanted = "" if value_type is None else _name(value_type)
        self._classes = _classes(value_type)

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """The value as bytes, without a type check and with the library's own errors."""

    def encode_checked(self, value: Any) -> bytes:
        """Like encode(), but raises TypeError for a value of another type; explain() then gives the details."""
        if self._classes is not None and not isinstance(value, self._classes):
            raise TypeError
        return self.encode(value)

    @abstractmethod
    def problems(self, value: Any, error: Exception) -> Sequence[tuple[str, str]]:
        """A value's problems as (path, problem), without any part of the value."""

    def explain(self, value: Any, error: Exception | None) -> Sequence[tuple[str, str]]:
        """Why a value was not encoded: its type, or what the library reported."""
        if error is None or (self._classes is not None and not isinstance(value, self._classes)):
            return (("", f"{self._wanted} needed, not {type(value).__name__}"),)
        return tuple(self.problems(value, error))[:MAX_PROBLEMS]

    def serialize(self, topic: str, headers: Any, value: Value_contra) -> bytes:
        """The value as bytes; called by the producer.

        Raises:
            SchemaValidationError: it is of another type, or can't be encoded.
        """
        problems: Sequence[tuple[str, str]]
        try:
            if self._classes is None or isinstance(value, self._classes):
                return self.encode(value)
            problems = self.explain(value, None)
        except Exception as error:
            problems = self.explain(value, error)
        # Raised outside the except block, so that the library's error, which may quote the value, is not its context.
        told = "; ".join(f"{path}: {problem}" if path else problem for path, problem in problems)
        raise SchemaValidationError(
            f"a record for topic {topic!r} can't be serialized: {told}", topic=topic, problems=problems
        )


def _name(value_type: Any) -> str:
    return value_type.__name__ if isinstance(value_type, type) else str(value_type)


def _classes(value_type: Any) -> tuple[type, ...] | None:
    """The classes for ``isinstance`` to check; None for no check."""
    if value_type is None:
        return None
    origin = typing.get_origin(value_type)
    if origin is typing.Annotated:
        return _classes(typing.get_args(value_type)[0])
    if origin in (typing.Union, types.UnionType):
        branches = [_classes(branch) for branch in typing.get_args(value_type)]
        if any(branch is None for branch in branches):
            return None
        return tuple(cls for branch in branches for cls in branch or ())
    cls = origin or value_type
    try:
        isinstance(None, cls)
    except TypeError:  # Any, TypedDict, Literal, a Protocol that is not runtime-checkable
        return None
    return (cls,)
