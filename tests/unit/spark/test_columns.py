"""Which columns a DataFrame may have."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from aioproducer.spark.columns import check_columns
from aioproducer.spark.errors import SchemaError

HEADERS = "array<struct<key: string, value: binary>>"


def schema(ddl: str) -> StructType:
    """A schema parsed without a Spark session, which Spark's own DDL parser needs."""
    header = StructType().add("key", StringType()).add("value", BinaryType())
    kinds = {
        "string": StringType(),
        "varchar": VarcharType(10),
        "binary": BinaryType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "double": DoubleType(),
        "timestamp": TimestampType(),
        "headers": ArrayType(header),
        "texts": ArrayType(StringType()),
        "wrong": ArrayType(StructType().add("name", StringType()).add("value", BinaryType())),
    }
    found = StructType()
    for name, kind in re.findall(r"(\w+) (\w+)", ddl):
        found.add(name, kinds[kind])
    return found


@pytest.mark.parametrize(
    "ddl",
    [
        "value string",
        "value binary, key string",
        "key varchar, value varchar",
        "key binary, value binary, topic string, partition int, headers headers, timestamp timestamp",
    ],
)
def test_columns_of_a_record(ddl: str) -> None:
    found = check_columns(schema(ddl), topic="t")
    assert found.names == {name for name in schema(ddl).fieldNames() if name != "topic"}


def test_what_sparks_kafka_source_gives_can_be_written() -> None:
    """A DataFrame that was read from a topic can be written to another one unchanged."""
    ddl = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    found = check_columns(schema(ddl), topic=None)
    assert found.names == {"key", "value", "topic", "partition", "timestamp"}


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("key string", "column value is missing"),
        ("value bigint", "column value must be string or binary, not bigint"),
        ("value string, key double", "column key must be string or binary, not double"),
        ("value string, partition bigint", "column partition must be int, not bigint"),
        (
            "value string, headers texts",
            r"column headers must be array<struct<key: string, value: binary>>, not array<string>",
        ),
        ("value string, headers wrong", r"column headers must be .*, not array<struct<name:string,value:binary>>"),
        ("value string, timestamp bigint", "column timestamp must be timestamp, not bigint"),
        ("value string, topic int", "column topic must be string, not int"),
        ("value string, Key string", r"column Key \(string\) is not part of a record"),
        ("value string, value string", "column value occurs 2 times"),
        ("Value string, partition string", "column Value.*column partition must be int.*column value is missing"),
    ],
)
def test_an_error_names_column_and_type(ddl: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_columns(schema(ddl), topic="t")


def test_there_must_be_a_topic() -> None:
    with pytest.raises(SchemaError, match="neither an option topic nor a column topic"):
        check_columns(schema("value string"), topic=None)


def test_the_option_wins_over_the_column() -> None:
    assert not check_columns(schema("value string, topic string"), topic="t").has("topic")
    assert check_columns(schema("value string, topic string"), topic=None).has("topic")
