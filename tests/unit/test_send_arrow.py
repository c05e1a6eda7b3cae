"""send_arrow against a broker on the loopback: the log is the same as after single sends of the same rows."""

from __future__ import annotations

import asyncio
import datetime
import gc
import math
import queue
import re
import threading
import uuid
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer import (
    BatchResult,
    BufferExhaustedError,
    MetadataTimeoutError,
    NotStartedError,
    Producer,
    Record,
    RecordTooLargeError,
    SendManyError,
    SerializationError,
    TopicPartition,
)
from tests.reference.record_batch import PlainRecord
from tests.unit.core import messages_of
from tests.unit.producing_broker import ProducingBroker
from tests.unit.waiting import until

PATIENCE_S = 60
NOW = 1 << 62
"""Stands for the time of the call."""
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])

USER_CODE: dict[str, dict[str, Any]] = {"compiled": {}, "with user code": {"value_serializer": lambda value: value}}
each_path = pytest.mark.parametrize("configs", USER_CODE.values(), ids=USER_CODE)


@pytest.fixture
async def broker() -> AsyncIterator[ProducingBroker]:
    async with ProducingBroker() as broker:
        yield broker


def producer_of(broker: ProducingBroker, **configs: Any) -> Producer:
    return Producer(bootstrap_servers=broker.bootstrap_servers, **configs)


def logs_of(broker: ProducingBroker) -> dict[tuple[str, int], list[PlainRecord]]:
    """The partitions' records."""
    return {
        place: [one if one.timestamp_ms < 1 << 40 else one._replace(timestamp_ms=NOW) for one in records]
        for place, records in broker.log.items()
    }


# --- the same as one by one -------------------------------------------------------------------------------------------

BYTES_TYPES = [
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.uint32(), pa.binary()),
    pa.dictionary(pa.int64(), pa.large_string()),
]
TEXT = [pa.string(), pa.large_string(), pa.string_view()]
PARTITION_TYPES = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
TIMESTAMP_TYPES = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")] + [pa.timestamp("us", "UTC"), pa.int64()]
NAMES = [pa.string(), pa.large_string(), pa.string_view(), pa.binary()]
CONTENTS = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string()]

short = st.text("ab\u00e9\U0001f600 ", max_size=30)


@st.composite
def header_types(draw: st.DrawFn) -> pa.DataType:
    entry = pa.struct([("key", draw(st.sampled_from(NAMES))), ("value", draw(st.sampled_from(CONTENTS)))])
    shape = draw(st.sampled_from(["list", "large", "map", "view", "large view"]))
    if shape == "map":
        return pa.map_(entry.field(0).type, entry.field(1).type)
    makers = {"list": pa.list_, "large": pa.large_list, "view": pa.list_view, "large view": pa.large_list_view}
    return makers[shape](entry)


def in_type(kind: pa.DataType, text: str | None) -> str | bytes | None:
    """A value that pyarrow accepts for a type."""
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return text if text is None or inner in TEXT else text.encode()


def column_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, kind)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[dict[str, Any]]]:
    """A table in chunks and slices, and its rows as arguments of single sends."""
    count = draw(st.integers(0, 12))
    columns: dict[str, pa.Array] = {}
    rows: list[dict[str, Any]] = [{} for _ in range(count)]

    def add(name: str, kind: pa.DataType, given: list[Any], plain: list[Any]) -> None:
        columns[name] = column_of(given, kind)
        for row, value in zip(rows, plain, strict=True):
            row[name] = value

    contents = {
        "value": st.none() | short,
        "key": draw(st.sampled_from([st.none() | short, short])),
        "topic": st.sampled_from([None, "orders", "audit"]),
        "ignored": st.none() | short,
    }
    for name in ["value", *draw(st.sets(st.sampled_from(["key", "topic"]))), "ignored"]:
        kind = draw(st.sampled_from(BYTES_TYPES))
        found = draw(st.lists(contents[name], min_size=count, max_size=count))
        add(name, kind, [in_type(kind, text) for text in found], found)
    if draw(st.booleans()):
        kind = draw(st.sampled_from(PARTITION_TYPES))
        found = draw(st.lists(st.none() | st.integers(0, 2), min_size=count, max_size=count))
        add("partition", kind, found, found)
    if draw(st.booleans()):
        kind = draw(st.sampled_from(TIMESTAMP_TYPES))
        a_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[getattr(kind, "unit", "ms")]
        numbers = draw(st.lists(st.none() | st.integers(0, 900_000_000 * a_second), min_size=count, max_size=count))
        add("timestamp", kind, numbers, [None if n is None else n * 1_000 // a_second for n in numbers])
    if draw(st.booleans()):
        kind = draw(header_types())
        name_type, value_type = (
            (kind.key_type, kind.item_type)
            if pa.types.is_map(kind)
            else (kind.value_type.field("key").type, kind.value_type.field("value").type)
        )
        lists = draw(
            st.lists(
                st.none() | st.lists(st.tuples(short, st.none() | short), max_size=3), min_size=count, max_size=count
            )
        )
        pairs = [
            None if one is None else [(in_type(name_type, name), in_type(value_type, value)) for name, value in one]
            for one in lists
        ]
        entries = [
            one if one is None or pa.types.is_map(kind) else [{"key": k, "value": v} for k, v in one] for one in pairs
        ]
        plain = [one and [(name, None if value is None else value.encode()) for name, value in one] for one in lists]
        add("headers", kind, entries, plain)
    whole = pa.table(columns)
    cuts = sorted(draw(st.lists(st.integers(0, count), max_size=3)))
    parts = [whole.slice(first, end - first) for first, end in zip([0, *cuts], [*cuts, count], strict=True)]
    return pa.concat_tables(parts), rows


async def one_by_one(producer: Producer, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        await producer.submit(
            row.get("topic") or "orders",
            row["value"],
            key=row.get("key"),
            partition=row.get("partition"),
            headers=row.get("headers"),
            timestamp_ms=row.get("timestamp"),
        )
    await producer.flush()


async def both_logs(data: Any, rows: list[dict[str, Any]], **configs: Any) -> list[Any]:
    # If every row has a partition or a key, it has to go there; otherwise partitions rotate.
    said = all(row.get("key") is not None or row.get("partition") is not None for row in rows)
    if not said:
        configs["partitioner_class"] = "round_robin"
    found = []
    for send in (lambda producer: producer.send_arrow("orders", data), lambda producer: one_by_one(producer, rows)):
        async with (
            ProducingBroker({"orders": 3, "audit": 3}) as broker,
            producer_of(broker, linger_ms=0, **configs) as producer,
        ):
            await producer.partitions_for("orders")
            await producer.partitions_for("audit")
            result = await send(producer)
            found.append(logs_of(broker))
            if isinstance(result, BatchResult):
                assert (result.acked, result.failed) == (len(rows), 0)
    return found


@given(tables(), st.sampled_from(sorted(USER_CODE)))
def test_a_table_gives_the_same_log_as_single_records(case: tuple[pa.Table, list[dict[str, Any]]], path: str) -> None:
    """Every type of every column, chunks, slices, nulls."""
    table, rows = case
    arrow, single = asyncio.run(both_logs(table, rows, **USER_CODE[path]))
    assert arrow == single


@given(tables())
@settings(max_examples=30)
def test_a_polars_frame_gives_the_same_log_as_single_records(case: tuple[pa.Table, list[dict[str, Any]]]) -> None:
    """The same rows as a polars data frame."""
    _, rows = case
    schema = {
        "value": polars.String,
        "key": polars.Binary,
        "topic": polars.Categorical,
        "partition": polars.Int16,
        "timestamp": polars.Datetime("ms"),
        "headers": polars.List(polars.Struct({"key": polars.String, "value": polars.Binary})),
    }
    names = [name for name in schema if all(name in row for row in rows)]
    columns = {name: [row[name] for row in rows] for name in names}
    if "key" in columns:
        columns["key"] = [None if key is None else key.encode() for key in columns["key"]]
    if "headers" in columns:
        columns["headers"] = [one and [{"key": k, "value": v} for k, v in one] for one in columns["headers"]]
    frame = polars.DataFrame(columns or {"value": []}, schema={name: schema[name] for name in names or ["value"]})
    arrow, single = asyncio.run(both_logs(frame, rows))
    assert arrow == single


DUCKDB_QUERY = """
    select 'k' || (i % 7) as key,
           case when i % 5 = 0 then null else ('value ' || i)::blob end as value,
           (i % 3)::utinyint as partition,
           make_timestamp_ns(i * 1000000 + 999999) as timestamp,
           case when i % 2 = 0 then [{'key': 'a', 'value': 'x'::blob}, {'key': 'b', 'value': null}] end as headers,
           i as other
    from range(5000) as t(i)
"""


@each_path
async def test_a_duckdb_query_gives_the_same_log_as_single_records(configs: dict[str, Any]) -> None:
    """The result of a query, as a stream."""
    rows = [
        {
            "key": f"k{i % 7}",
            "value": None if i % 5 == 0 else f"value {i}".encode(),
            "partition": i % 3,
            "timestamp": i,
            "headers": [("a", b"x"), ("b", None)] if i % 2 == 0 else None,
        }
        for i in range(5_000)
    ]
    with duckdb.connect() as connection:
        arrow, single = await both_logs(connection.sql(DUCKDB_QUERY), rows, **configs)
    assert arrow == single


async def test_a_pandas_frame_is_sent_through_pyarrow(broker: ProducingBroker) -> None:
    """Data frames of pandas have the interface too, through pyarrow."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"key": ["a", None], "value": [b"1", b"2"]})
    async with producer_of(broker) as producer:
        await producer.send_arrow("orders", frame)
    assert [(one.key, one.value) for one in broker.log["orders", 0]] == [(b"a", b"1"), (None, b"2")]


# --- what it takes ----------------------------------------------------------------------------------------------------


def reader_of(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches()))


FORMS: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda table: table,
    "record batch": lambda table: table.combine_chunks().to_batches()[0],
    "reader": reader_of,
    "struct array": lambda table: table.combine_chunks().to_struct_array().combine_chunks(),
    "slice": lambda table: pa.concat_tables([table, table]).combine_chunks().slice(table.num_rows - 1, 3).slice(1),
}


@pytest.mark.parametrize("form", FORMS)
async def test_forms_of_data(broker: ProducingBroker, form: str) -> None:
    table = pa.table({"value": ["1", "2"]})
    async with producer_of(broker) as producer:
        result = await producer.send_arrow("orders", FORMS[form](table))
    assert result == BatchResult(2, 0, {0: [(0, 1)]}, [])
    assert broker.values() == [b"1", b"2"]


@each_path
async def test_null_and_fixed_size_columns(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Columns of type null are nulls, for whatever purpose; fixed-size binary is accepted."""
    nothing = pa.nulls(2)
    table = pa.table(
        {
            "key": pa.array([b"aa", None], pa.binary(2)),
            "value": nothing,
            "headers": nothing,
            "partition": nothing,
            "timestamp": nothing,
            "topic": nothing,
        }
    )
    async with producer_of(broker, **configs) as producer:
        await producer.send_arrow("orders", table)
        await producer.send_arrow("orders", pa.table({"value": pa.array([b"", None], pa.binary(0))}))
        lists = pa.array([[{"key": "a", "value": b"1"}], None], pa.list_(HEADER, 1))
        await producer.send_arrow("orders", pa.table({"value": ["x", "y"], "headers": lists}))
    stored = [(one.key, one.value, one.headers) for one in broker.log["orders", 0]]
    assert stored == [
        (b"aa", None, ()),
        (None, None, ()),
        (None, b"", ()),
        (None, None, ()),
        (None, b"x", (("a", b"1"),)),
        (None, b"y", ()),
    ]


@each_path
async def test_names_of_columns(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Columns may have any names; others are ignored, whatever they hold."""
    table = pa.table({"id": ["k"], "body": ["v"], "at": [5], "to": ["orders"], "p": [0], "h": [[]], "value": [1.5]})
    names = {"key": "id", "value": "body", "timestamp": "at", "topic_column": "to", "partition": "p", "headers": "h"}
    table = table.set_column(5, "h", pa.array([[{"key": "n", "value": b"1"}]], pa.list_(HEADER)))
    async with producer_of(broker, **configs) as producer:
        result = await producer.send_arrow(None, table, **names)
    assert result == BatchResult(1, 0, {TopicPartition("orders", 0): [(0, 0)]}, [])
    assert broker.log["orders", 0] == [PlainRecord(5, b"k", b"v", (("n", b"1"),))]


@each_path
async def test_timestamps_are_floored(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    moment = datetime.datetime(2001, 9, 9, 1, 46, 40, 999_999)
    async with producer_of(broker, **configs) as producer:
        for unit in "s", "ms", "us", "ns":
            array = pa.array([moment], pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)
            await producer.send_arrow("orders", pa.table({"value": ["v"], "timestamp": array}))
    assert [one.timestamp_ms for one in broker.log["orders", 0]] == [1_000_000_000_000] + [1_000_000_000_999] * 3


async def test_a_name_that_no_column_has(broker: ProducingBroker, caplog: pytest.LogCaptureFixture) -> None:
    """The column is not used, and the log says so once; a default name says nothing about the data."""
    table = pa.table({"value": ["v"], "sensor": ["s"]})
    async with producer_of(broker) as producer:
        await producer.send_arrow("orders", table)
        assert messages_of(caplog, "aioproducer.engine") == []
        for _ in range(2):
            assert (await producer.send_arrow("orders", table, key="sensr", topic_column="to")).acked == 1
    assert messages_of(caplog, "aioproducer.engine") == [
        "send_arrow: key='sensr' names no column of the data, so none is used",
        "send_arrow: topic_column='to' names no column of the data, so none is used",
    ]


async def test_without_acknowledgements(broker: ProducingBroker) -> None:
    """With acks=0 rows count as acknowledged, without offsets."""
    async with producer_of(broker, acks=0, enable_idempotence=False) as producer:
        assert await producer.send_arrow("orders", pa.table({"value": ["v"] * 9})) == BatchResult(9, 0, {}, [])
        assert await producer.send_many("orders", ["v"] * 9) == BatchResult(9, 0, {}, [])


async def test_many_topics(broker: ProducingBroker) -> None:
    """More topics than the cache holds."""
    names = [f"topic-{number}" for number in range(700)]
    broker.topics = dict.fromkeys(names, 1)
    table = pa.table({"value": [f"{number}" for number in range(1_400)], "topic": names * 2})
    async with producer_of(broker) as producer:
        result = await producer.send_arrow(None, table)
    assert result.acked == 1_400
    assert all(broker.values(name) == [b"%d" % number, b"%d" % (number + 700)] for number, name in enumerate(names))


@each_path
async def test_more_than_the_buffer_holds(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """In many small batches and large ones."""
    values = [b"%06d" % number + bytes(400) for number in range(2_000)]
    table = pa.table({"value": pa.array(values, pa.binary())})
    async with producer_of(broker, buffer_memory=65_536, batch_size=16_384, **configs) as producer:
        for rows_a_batch in 1, 700:
            reader = pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=rows_a_batch)))
            result = await producer.send_arrow("orders", reader)
            assert (result.acked, result.failed) == (2_000, 0)
        metrics = producer.metrics()["producer-metrics"]
        assert metrics["buffer-available-bytes"] == 65_536
        assert metrics["record-send-total"] == 4_000
    assert broker.values() == values * 2


@each_path
async def test_the_loop_gets_turns(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    turns = 0
    done = False

    async def count() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    table = pa.table({"value": pa.array([bytes(1_000)] * 5_000, pa.binary())})
    async with producer_of(broker, **configs) as producer:
        await producer.partitions_for("orders")
        counter = asyncio.create_task(count())
        await producer.send_arrow("orders", table)
        done = True
        await counter
    assert turns >= 5_000 * 1_000 // 262_144


async def test_the_source_runs_in_a_worker_thread(broker: ProducingBroker) -> None:
    """A slow query does not block the loop."""
    threads: set[int] = set()
    table = pa.table({"value": ["v"]})

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(3):
            threads.add(threading.get_ident())
            yield from table.to_batches()

    class Source:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            threads.add(threading.get_ident())
            return pa.RecordBatchReader.from_batches(table.schema, batches()).__arrow_c_stream__()

    async with producer_of(broker) as producer:
        assert (await producer.send_arrow("orders", Source())).acked == 3
    assert threads
    assert threading.get_ident() not in threads


async def test_user_code_sees_records(broker: ProducingBroker) -> None:
    """It gets text columns as str, binary ones as bytes, and everything else as in single sends."""
    seen: list[Record] = []

    class Interceptor:
        def on_send(self, record: Record) -> Record:
            seen.append(record)
            return record

    table = pa.table(
        {
            "key": ["k"],
            "value": [b"v"],
            "partition": [0],
            "timestamp": [3],
            "headers": pa.array([[{"key": "h", "value": None}]], pa.list_(HEADER)),
        }
    )
    async with producer_of(broker, interceptor_classes=[Interceptor()]) as producer:
        await producer.send_arrow("orders", table)
    assert seen == [Record(b"v", "k", topic="orders", partition=0, headers=[("h", None)], timestamp_ms=3)]


# --- what goes wrong --------------------------------------------------------------------------------------------------


@each_path
async def test_bad_rows_fail_alone(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Their errors name the column."""
    broker.topics["audit"] = 1
    columns: dict[str, list[Any]] = {
        "value": ["0", "1", "2", "3", "x" * (2 << 20), "5", "6", "7"],
        "partition": [0, -1, None, None, None, 1 << 40, None, None],
        "timestamp": [1, 1, -5, 1, 1, 1, 1, None],
        "topic": [None, None, None, "bad/name", None, None, "audit", None],
    }
    headers = [None, None, None, None, None, None, [{"key": None, "value": b""}], [None]]
    table = pa.table({**columns, "headers": pa.array(headers, pa.list_(HEADER))})
    async with producer_of(broker, **configs) as producer:
        result = await producer.send_arrow("orders", table, raise_on_error=False)
        with pytest.raises(SendManyError, match=r"send_arrow to topic 'orders': 7 of 8 records"):
            await producer.send_arrow("orders", table)
    assert (result.acked, result.offsets) == (1, {0: [(0, 0)]})
    told = {row: f"{type(error).__name__}: {error}" for row, error in result.errors}
    assert set(told) == set(range(1, 8))
    assert "column 'partition': partition -1 " in told[1]
    assert "column 'timestamp': a int64 of -5 " in told[2]
    assert told[3].startswith("InvalidTopicError")
    assert told[4].startswith(RecordTooLargeError.__name__)
    assert "column 'partition'" in told[5]
    assert "'headers'" in told[6]
    assert "'headers'" in told[7]


@each_path
async def test_numbers_above_the_largest_of_kafka_fail_alone(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """2^64-1 often stands for a missing number. As a time in the log it would keep its segment for good."""
    numbers = pa.array([0, 2**64 - 1, 2**63, 2**63 - 1], pa.uint64())
    async with producer_of(broker, **configs) as producer:
        for column in "timestamp", "partition":
            table = pa.table({"value": ["0", "1", "2", "3"], column: numbers})
            result = await producer.send_arrow("orders", table, raise_on_error=False)
            told = {row: str(error) for row, error in result.errors}
            assert f"column '{column}': a uint64 of 18446744073709551615 " in told[1]
            assert f"column '{column}': a uint64 of 9223372036854775808 " in told[2]
            assert set(told) == ({1, 2} if column == "timestamp" else {1, 2, 3})
    assert [one.timestamp_ms for one in broker.log["orders", 0][:2]] == [0, 2**63 - 1]


@each_path
async def test_a_topic_that_is_null(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Without a topic of the call such a row has none."""
    table = pa.table({"value": ["0", "1"], "topic": ["orders", None]})
    async with producer_of(broker, **configs) as producer:
        result = await producer.send_arrow(None, table, raise_on_error=False)
    assert (result.acked, result.failed) == (1, 1)
    ((row, error),) = result.errors
    assert row == 1
    assert "column 'topic' is null" in str(error)
    assert error.topic is None  # not that of the row before


async def test_topics_and_names_that_are_no_text(broker: ProducingBroker) -> None:
    """Binary columns may hold bytes that are not UTF-8."""
    entry = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    headers = pa.array([[{"key": b"\xff", "value": b""}], [], [{"key": "é".encode(), "value": b""}]], pa.list_(entry))
    table = pa.table(
        {"value": ["0", "1", "2"], "topic": pa.array([None, b"\xff", None], pa.binary()), "headers": headers}
    )
    for configs in USER_CODE.values():
        async with producer_of(broker, **configs) as producer:
            result = await producer.send_arrow("orders", table, raise_on_error=False)
        assert [(row, str(error)) for row, error in result.errors] == [
            (0, "column 'headers': a header name is not UTF-8"),
            (1, "column 'topic' names a topic that is not UTF-8"),
        ]
    assert broker.log["orders", 0][0].headers == (("é", b""),)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no value": ({"key": ["k"]}, "no column 'value'.*only 'key'"),
    "value": ({"value": [1.5]}, "column 'value' is double; binary, string"),
    "key": ({"value": ["v"], "key": [[1]]}, "column 'key' is list; binary"),
    "partition": ({"value": ["v"], "partition": ["0"]}, "column 'partition' is string; an integer"),
    "timestamp": ({"value": ["v"], "timestamp": ["now"]}, "column 'timestamp' is string; a timestamp"),
    "date": ({"value": ["v"], "timestamp": [datetime.date(2020, 1, 1)]}, "column 'timestamp' is date32"),
    "topic": ({"value": ["v"], "topic": [7]}, "column 'topic' is int64; binary"),
    "headers": ({"value": ["v"], "headers": [["a"]]}, "column 'headers element' is string; struct<key"),
    "header names": ({"value": ["v"], "headers": [[{"name": "a", "value": b""}]]}, "struct<key: string"),
    "header values": ({"value": ["v"], "headers": [[{"key": "a", "value": 1}]]}, "column 'headers value' is int64"),
    "headers of text": ({"value": ["v"], "headers": ["a"]}, "column 'headers' is string; a list or map"),
    "dictionary": (
        {"value": pa.array([1, 1]).dictionary_encode()},
        "column 'value' is int64; binary",
    ),
}


@pytest.mark.parametrize(("columns", "told"), WRONG.values(), ids=WRONG)
async def test_columns_of_the_wrong_type(broker: ProducingBroker, columns: dict[str, Any], told: str) -> None:
    """Nothing is sent."""
    async with producer_of(broker) as producer:
        with pytest.raises(SerializationError, match=told):
            await producer.send_arrow("orders", pa.table(columns))
    assert not broker.log


@pytest.mark.parametrize("purpose", ["value", "key", "topic"])
async def test_columns_of_python_objects(broker: ProducingBroker, purpose: str) -> None:
    """polars makes such columns of UUIDs, sets or bytearrays, and exports them to Arrow as fixed_size_binary[8]."""
    columns = {"value": ["v"], purpose: [uuid.uuid4()], "other": [uuid.uuid4()]}
    frame = polars.DataFrame(columns)
    async with producer_of(broker) as producer:
        with pytest.raises(SerializationError, match=f"column '{purpose}' holds Python objects"):
            await producer.send_arrow("orders", frame)
        assert not broker.log
        assert (await producer.send_arrow("orders", frame.with_columns(polars.lit("orders").alias(purpose)))).acked == 1


async def test_columns_of_the_same_name(broker: ProducingBroker) -> None:
    """If one of them is used, it is ambiguous; if none is used, it does not matter."""
    table = pa.table([["a"], ["b"], ["c"], ["d"]], names=["value", "x", "value", "x"])
    async with producer_of(broker) as producer:
        with pytest.raises(SerializationError, match="two columns 'value'"):
            await producer.send_arrow("orders", table)
        assert (await producer.send_arrow("orders", table.select([0, 1, 3]))).acked == 1


@pytest.mark.parametrize(
    "data",
    [b"bytes", [1], None, pa.array([1]), pa.array(["a"]), polars.LazyFrame({"value": ["a"]})],
    ids=["bytes", "list", "None", "numbers", "strings", "LazyFrame"],
)
async def test_what_is_no_table(broker: ProducingBroker, data: Any) -> None:
    async with producer_of(broker) as producer:
        with pytest.raises(TypeError, match="data is a"):
            await producer.send_arrow("orders", data)


async def test_a_source_that_raises(broker: ProducingBroker) -> None:
    """Its own error is raised; StopIteration can't pass from a thread, so it becomes another error."""

    class Broken:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            raise self.error

    async with producer_of(broker) as producer:
        with pytest.raises(ZeroDivisionError):
            await producer.send_arrow("orders", Broken(ZeroDivisionError()))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await producer.send_arrow("orders", Broken(StopIteration()))


async def test_no_topic(broker: ProducingBroker) -> None:
    async with producer_of(broker) as producer:
        with pytest.raises(SerializationError, match="no topic was given, and there is no column 'topic'"):
            await producer.send_arrow(None, pa.table({"value": ["v"]}))


async def test_before_start(broker: ProducingBroker) -> None:
    with pytest.raises(NotStartedError):
        await producer_of(broker).send_arrow("orders", pa.table({"value": ["v"]}))


@each_path
async def test_a_stream_that_fails(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Earlier rows are sent, and the error is one line, without the traceback that pyarrow appends."""
    table = pa.table({"value": ["1", "2"]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        raise ZeroDivisionError("in the query")

    async with producer_of(broker, **configs) as producer:
        with pytest.raises(SendManyError, match=r"stopped after 2 records: .*the Arrow stream failed") as caught:
            await producer.send_arrow("orders", pa.RecordBatchReader.from_batches(table.schema, batches()))
    assert re.fullmatch(r"the Arrow stream failed: .*in the query\.?", str(caught.value.__cause__))
    assert caught.value.result == BatchResult(2, 0, {0: [(0, 1)]}, [])
    assert broker.values() == [b"1", b"2"]


async def test_a_stream_that_was_used_up(broker: ProducingBroker) -> None:
    reader = reader_of(pa.table({"value": ["1"]}))
    async with producer_of(broker) as producer:
        assert (await producer.send_arrow("orders", reader)).acked == 1
        assert (await producer.send_arrow("orders", reader)).acked == 0


async def test_rows_that_are_null_as_a_whole(broker: ProducingBroker) -> None:
    array = pa.array([{"value": "1"}, None], pa.struct([("value", pa.string())]))
    async with producer_of(broker) as producer:
        with pytest.raises(SendManyError, match="rows that are null as a whole"):
            await producer.send_arrow("orders", array)


@each_path
async def test_a_topic_that_stays_unknown(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    table = pa.table({"value": ["1", "2", "3"], "topic": [None, "nowhere", None]})
    async with producer_of(broker, max_block_ms=500, **configs) as producer:
        await producer.partitions_for("orders")
        with pytest.raises(SendManyError, match="stopped after 2 records: MetadataTimeoutError") as caught:
            await producer.send_arrow("orders", table)
    assert isinstance(caught.value.__cause__, MetadataTimeoutError)
    assert [row for row, _ in caught.value.result.errors] == [1]
    assert broker.values() == [b"1"]


@each_path
async def test_partitions_that_are_not_there_fail_alone(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    table = pa.table({"value": ["v"] * 100, "partition": [0, 9] * 50})
    async with producer_of(broker, max_block_ms=1000, **configs) as producer:
        await producer.partitions_for("orders")
        result = await asyncio.wait_for(producer.send_arrow("orders", table, raise_on_error=False), PATIENCE_S)
    assert (result.acked, result.failed) == (50, 50)


async def test_memory_that_stays_away(broker: ProducingBroker) -> None:
    broker.holding = True
    table = pa.table({"value": pa.array([bytes(1_000)] * 10_000, pa.binary())})
    async with producer_of(broker, max_block_ms=500, buffer_memory=32_768, batch_size=16_384) as producer:
        await producer.partitions_for("orders")
        call = asyncio.create_task(producer.send_arrow("orders", table))
        await broker.holds()
        await until(lambda: producer.metrics()["producer-metrics"]["buffer-exhausted-total"])
        broker.release()
        with pytest.raises(SendManyError, match=r"stopped after .*BufferExhaustedError") as caught:
            await call
    assert isinstance(caught.value.__cause__, BufferExhaustedError)
    assert len(broker.values()) == caught.value.result.acked > 10


async def test_cancelled_while_the_source_works(broker: ProducingBroker) -> None:
    """The worker thread ends by itself, and then the stream is released; admitted rows are sent."""
    table = pa.table({"value": [f"{number}" for number in range(10_000)]})
    inside, gate, released = threading.Event(), threading.Event(), threading.Event()

    class Batches:
        def __init__(self) -> None:
            self.count = 0

        def __iter__(self) -> Batches:
            return self

        def __next__(self) -> pa.RecordBatch:
            self.count += 1
            if self.count > 1:
                inside.set()
                assert gate.wait(PATIENCE_S)
            return table.to_batches()[0]

        def __del__(self) -> None:
            released.set()

    async with producer_of(broker) as producer:
        reader = pa.RecordBatchReader.from_batches(table.schema, Batches())
        call = asyncio.create_task(producer.send_arrow("orders", reader))
        del reader
        await asyncio.to_thread(inside.wait, PATIENCE_S)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not released.is_set()
        gate.set()
        del call
        assert await asyncio.to_thread(released.wait, PATIENCE_S)
    assert len(broker.values()) == 10_000


LIVE_SCHEMA = pa.schema({"value": pa.string()})


class Live:
    """A stream whose batches the test gives; None ends it."""

    def __init__(self) -> None:
        self.batches: queue.Queue[pa.RecordBatch | None] = queue.Queue()
        self.asked = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            self.asked += 1
            batch = self.batches.get(timeout=PATIENCE_S)
            if batch is None:
                return
            yield batch

    def give(self, *values: str) -> None:
        self.batches.put(pa.record_batch({"value": list(values)}, schema=LIVE_SCHEMA))

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(LIVE_SCHEMA, iter(self))

    async def asks(self, count: int) -> None:
        """Wait until that many batches were asked for."""
        async with asyncio.timeout(PATIENCE_S):
            while self.asked < count:
                await asyncio.sleep(0.001)


async def arrivals(broker: ProducingBroker, count: int) -> None:
    """Wait until the broker has that many records."""
    async with asyncio.timeout(PATIENCE_S):
        while len(broker.values()) < count:
            await asyncio.sleep(0.001)


@each_path
async def test_rows_of_a_live_stream_do_not_wait_for_later_ones(
    broker: ProducingBroker, configs: dict[str, Any]
) -> None:
    """The next batch may come in an hour, however soon the last one came."""
    live = Live()
    async with producer_of(broker, linger_ms=0, **configs) as producer:
        call = asyncio.create_task(producer.send_arrow("orders", live.reader()))
        given = 0
        for burst in (1, 3, 1, 2):
            for _ in range(burst):
                live.give("a")
            given += burst
            await arrivals(broker, given)
        live.batches.put(None)
        assert (await call).acked == given


@each_path
async def test_batches_that_are_each_enough_for_a_fetch(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """A thread collects thousands of rows; when these are sent, and not before, it is asked for more."""
    batch = pa.record_batch({"value": ["a"] * 10_000}, schema=LIVE_SCHEMA)
    async with producer_of(broker, **configs) as producer:
        reader = pa.RecordBatchReader.from_batches(LIVE_SCHEMA, iter([batch] * 3))
        result = await asyncio.wait_for(producer.send_arrow("orders", reader), PATIENCE_S)
    assert result.acked == 30_000


@each_path
async def test_the_last_rows_of_a_live_stream_are_not_lost(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """Whether they come while the loop sends others or waits, and whatever ends the stream."""
    async with producer_of(broker, linger_ms=0, **configs) as producer:
        for number in range(50):
            live = Live()
            batches = number % 5
            for _ in range(batches):
                live.give("a", "b")
            call = asyncio.create_task(producer.send_arrow("orders", live.reader()))
            await live.asks(1 + number % (batches + 1))
            live.give("c")
            live.give()
            live.batches.put(None)
            assert (await asyncio.wait_for(call, PATIENCE_S)).acked == 2 * batches + 1


async def test_empty_batches_of_a_stream_are_not_kept(broker: ProducingBroker) -> None:
    """A scan that filters may give any number of them."""

    class Owner:
        """Lives as long as Arrow's buffer of its."""

    zeros, alive, most = pa.py_buffer(bytes(8)), weakref.WeakSet[Owner](), 0

    def empty() -> pa.RecordBatch:
        alive.add(owner := Owner())
        offsets = pa.foreign_buffer(zeros.address, zeros.size, owner)
        return pa.record_batch([pa.Array.from_buffers(pa.string(), 0, [None, offsets, zeros])], schema=LIVE_SCHEMA)

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for _ in range(200):
            yield empty()
            most = max(most, len(alive))
        yield pa.record_batch({"value": ["v"]}, schema=LIVE_SCHEMA)

    async with producer_of(broker) as producer:
        reader = pa.RecordBatchReader.from_batches(LIVE_SCHEMA, batches())
        assert (await producer.send_arrow("orders", reader)).acked == 1
    assert 1 <= most < 10


@each_path
async def test_a_close_does_not_wait_for_the_next_batch(broker: ProducingBroker, configs: dict[str, Any]) -> None:
    """As with an asynchronous iterable; and no more is taken from the stream then."""
    live = Live()
    producer = producer_of(broker, linger_ms=0, **configs)
    await producer.start()
    call = asyncio.create_task(producer.send_arrow("orders", live.reader()))
    live.give("a")
    await arrivals(broker, 1)
    await live.asks(2)
    await asyncio.wait_for(producer.close(), PATIENCE_S)
    with pytest.raises(SendManyError, match="ProducerClosedError") as caught:
        await asyncio.wait_for(call, PATIENCE_S)
    assert caught.value.result.acked == 1
    for _ in range(5):
        live.give("late")
    await asyncio.get_running_loop().shutdown_default_executor()
    assert live.asked == 2


async def test_a_cancelled_call_takes_no_more_from_the_stream(broker: ProducingBroker) -> None:
    live = Live()
    async with producer_of(broker, linger_ms=0) as producer:
        call = asyncio.create_task(producer.send_arrow("orders", live.reader()))
        live.give("a")
        await arrivals(broker, 1)
        await live.asks(2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        for _ in range(5):
            live.give("late")
        await asyncio.get_running_loop().shutdown_default_executor()
        assert live.asked == 2
        await producer.flush()
        assert len(broker.values()) == 1, "no row that nobody waits for"


async def test_nothing_stays_in_memory(broker: ProducingBroker) -> None:
    """Arrow's own count of allocated bytes is unchanged."""
    async with producer_of(broker) as producer:
        gc.collect()
        before = pa.total_allocated_bytes()
        for form in FORMS.values():
            await producer.send_arrow("orders", form(pa.table({"value": ["x" * 100] * 1_000})))
        with pytest.raises(SerializationError):
            await producer.send_arrow("orders", pa.table({"value": [math.pi] * 1_000}))
        gc.collect()
        async with asyncio.timeout(PATIENCE_S):
            while pa.total_allocated_bytes() != before:  # the worker thread releases it a moment after it has answered
                await asyncio.sleep(0.001)
