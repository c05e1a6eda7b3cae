"""Arrow batches and rows, divided into chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pyarrow
import pytest
from pyspark.sql import Row

from aioproducer import Producer
from aioproducer.records import Record
from aioproducer.spark.chunks import CHUNK_ROWS, arrow_chunks, row_chunks
from aioproducer.spark.columns import Columns
from aioproducer.testing.fake import FakeCluster

ALL = frozenset({"key", "value", "topic", "partition", "headers", "timestamp"})
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))
MOMENT = datetime(2013, 1, 1, 5, 15, 0, 999_999, tzinfo=UTC)


@pytest.mark.parametrize("text", [pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.large_binary()])
def test_every_column_of_a_batch_has_its_place(text: pyarrow.DataType) -> None:
    batch = pyarrow.record_batch(
        {
            "key": pyarrow.array(["ä", None]).cast(text),
            "value": pyarrow.array([None, "v"]).cast(text),
            "topic": pyarrow.array(["t", None]),
            "partition": pyarrow.array([3, None], pyarrow.int32()),
            "headers": pyarrow.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None], HEADERS),
            "timestamp": pyarrow.array([MOMENT, None], pyarrow.timestamp("us", "UTC")),
        }
    )
    (chunk,) = arrow_chunks([batch], Columns(ALL), None)
    headers = [("h", b"1"), ("h", None)]
    timestamp_ms = 1_357_017_300_999
    whole = Record(None, "ä".encode(), topic="t", partition=3, headers=headers, timestamp_ms=timestamp_ms)
    assert [chunk.record(0), chunk.record(1)] == [whole, Record(b"v")]
    assert (chunk.rows, chunk.bytes) == (2, 3)


def test_a_row_is_taken_back_though_python_has_no_form_of_it() -> None:
    """Strings that are not UTF-8, which Spark allows, and times outside Python's calendar."""
    text = pyarrow.array([b"\xff", b"v"]).view(pyarrow.string())
    names = pyarrow.StructArray.from_arrays([text, text.view(pyarrow.binary())], ["key", "value"])
    times = pyarrow.array([253_402_300_800_000_000, -1], pyarrow.timestamp("us", "UTC"))
    headers = pyarrow.ListArray.from_arrays([0, 1, 2], names)
    topics = pyarrow.array([b"\xff", b""]).view(pyarrow.string())
    columns = {"key": text, "value": text, "topic": topics, "headers": headers, "timestamp": times}
    (chunk,) = arrow_chunks([pyarrow.record_batch(columns)], Columns(ALL), None)
    odd, good = chunk.record(0), chunk.record(1)
    assert (odd.key, odd.value, odd.headers) == (b"\xff", b"\xff", [("\ufffd", b"\xff")])
    assert (odd.topic or "").encode(errors="surrogateescape") == b"\xff"
    assert good == Record(b"v", b"v", topic="", headers=[("v", b"v")], timestamp_ms=-1)


def test_a_header_that_is_null_has_no_name() -> None:
    headers = pyarrow.array([[None, {"key": None, "value": b"1"}, {"key": "", "value": None}]], HEADERS)
    (chunk,) = arrow_chunks([pyarrow.record_batch({"value": ["v"], "headers": headers})], Columns(ALL), None)
    assert chunk.record(0).headers == [(None, None), (None, b"1"), ("", None)]


def test_columns_that_do_not_count_are_passed_over() -> None:
    batch = pyarrow.record_batch({"offset": [1], "value": ["v"], "topic": ["unused"]})
    (chunk,) = arrow_chunks([batch], Columns(frozenset({"value"})), None)
    assert chunk.record(0) == Record(b"v")


def test_large_and_empty_batches_are_cut_into_chunks() -> None:
    """Not larger than the number of errors that one call reports."""
    numbers = [str(number) for number in range(2 * CHUNK_ROWS + 1)]
    parts = (numbers[:1], pyarrow.array([], "string"), numbers[1:])
    batches = [pyarrow.record_batch({"value": part}) for part in parts]
    by_columns = list(arrow_chunks(batches, Columns(frozenset({"value"})), CHUNK_ROWS))
    by_rows = list(row_chunks([Row(value=one) for one in numbers], Columns(frozenset({"value"}))))
    for chunks in (by_columns, by_rows):
        assert max(chunk.rows for chunk in chunks) == CHUNK_ROWS
        found = [chunk.record(index).value for chunk in chunks for index in range(chunk.rows)]
        assert found == [one.encode() for one in numbers]
    whole = list(arrow_chunks(batches, Columns(frozenset({"value"})), None))
    assert [chunk.rows for chunk in whole] == [1, 2 * CHUNK_ROWS]


@pytest.fixture
async def producer() -> AsyncIterator[tuple[FakeCluster, Producer]]:
    with FakeCluster() as cluster:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as one:
            yield cluster, one


async def test_columns_arrive_as_they_are(producer: tuple[FakeCluster, Producer]) -> None:
    """Only the rows of a batch that is a slice of larger columns."""
    columns = {"key": ["a", "b", "c", None], "value": [None, "v", "w", "x"], "topic": ["unused"] * 4}
    batch = pyarrow.record_batch(columns).slice(1, 2)
    called: list[bool] = []
    (chunk,) = arrow_chunks([batch], Columns(frozenset({"key", "value"})), None)
    result = await chunk.send(producer[1], "t", lambda: called.append(True), {})
    assert (result.acked, result.failed, called) == (2, 0, [True])
    assert [(one.key, one.value) for one in producer[0].records("t", 0)] == [(b"b", b"v"), (b"c", b"w")]
    assert chunk.bytes == 4
