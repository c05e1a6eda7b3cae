"""Which DataFrame column becomes which part of a record, and the errors for those that can't.

Source: Spark's KafkaWriter.validateQuery; the column ``timestamp`` is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from aioproducer.spark.errors import SchemaError


def _text(kind: DataType) -> bool:
    return isinstance(kind, (StringType, CharType, VarcharType))


def _payload(kind: DataType) -> bool:
    return _text(kind) or isinstance(kind, BinaryType)


def _headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    if [one.name for one in fields] != ["key", "value"]:
        return False
    return _text(fields[0].dataType) and _payload(fields[1].dataType)


ALLOWED: Mapping[str, tuple[Callable[[DataType], bool], str]] = {
    "key": (_payload, "string or binary"),
    "value": (_payload, "string or binary"),
    "topic": (_text, "string"),
    "partition": (lambda kind: isinstance(kind, IntegerType), "int"),
    "headers": (_headers, "array<struct<key: string, value: binary>>"),
    "timestamp": (lambda kind: isinstance(kind, TimestampType), "timestamp"),
}
"""Allowed types, by column name."""

OF_THE_SOURCE = frozenset({"offset", "timestampType"})
"""Columns of Spark's Kafka source that a written record has no place for: ignored, as by Spark's own sink."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns to write, by name, and whether the topic comes from its column."""

    names: frozenset[str]

    def has(self, name: str) -> bool:
        """Whether there is such a column and it is used."""
        return name in self.names


def check_columns(schema: StructType, topic: str | None) -> Columns:
    """Check which parts of a record the columns of a DataFrame become.

    Args:
        topic: option ``topic``; a column of that name is then ignored.
    Raises:
        SchemaError: a column is missing, unknown, duplicated, or of a wrong type; the message names each of them.
    """
    problems = []
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name in ALLOWED:
            fits, types = ALLOWED[field.name]
            if not fits(field.dataType):
                problems.append(f"column {field.name} must be {types}, not {field.dataType.simpleString()}")
        elif field.name not in OF_THE_SOURCE:
            problems.append(f"column {field.name} ({field.dataType.simpleString()}) is not part of a record")
    problems += [f"column {name} occurs {names.count(name)} times" for name in ALLOWED if names.count(name) > 1]
    if "value" not in names:
        problems.append("column value is missing")
    if topic is None and "topic" not in names:
        problems.append("there is neither an option topic nor a column topic")
    if problems:
        raise SchemaError(f"{'; '.join(problems)} (columns of a record: {', '.join(ALLOWED)})")
    return Columns(frozenset(names).intersection(ALLOWED) - ({"topic"} if topic is not None else set()))
