"""All claims of columns are checked before use; and imported data is released exactly once, whatever happens."""

from __future__ import annotations

import ctypes
import gc
import re
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioproducer._admission import Admission
from aioproducer._arrow import ArrowFeed
from aioproducer._arrow_source import ArrowSource, CorruptArrowError
from aioproducer._feed import FEED_BROKEN, FEED_DONE, FEED_EMPTY
from aioproducer._tally import Tally
from aioproducer.bulk import DEFAULT_COLUMNS
from aioproducer.errors import RecordTooLargeError, SerializationError
from tests.unit.core import add_topic, drain_all, make_accumulator, read

I64 = ctypes.c_int64


class Schema(ctypes.Structure):
    pass


class Array(ctypes.Structure):
    pass


ReleaseSchema = ctypes.CFUNCTYPE(None, ctypes.POINTER(Schema))
ReleaseArray = ctypes.CFUNCTYPE(None, ctypes.POINTER(Array))
Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", I64),
    ("n_children", I64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", ReleaseSchema),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", I64),
    ("null_count", I64),
    ("offset", I64),
    ("n_buffers", I64),
    ("n_children", I64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", ReleaseArray),
    ("private_data", ctypes.c_void_p),
]


class Stream(ctypes.Structure):
    pass


Get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.c_void_p)
GetError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Stream))
Release = ctypes.CFUNCTYPE(None, ctypes.POINTER(Stream))
Stream._fields_ = [
    ("get_schema", Get),
    ("get_next", Get),
    ("get_last_error", GetError),
    ("release", Release),
    ("private_data", ctypes.c_void_p),
]

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


KEPT: list[Batch] = []
"""Keeps batches alive, because their release functions may be called after a test has ended."""


class Batch:
    """A record batch by the C data interface, whose fields a test may corrupt; records what is released."""

    def __init__(self, table: dict[str, pa.Array]) -> None:
        self.kept: list[Any] = []
        self.released: list[str] = []
        self.release_schema = ReleaseSchema(lambda schema: self.gone("schema", schema))
        self.release_array = ReleaseArray(lambda array: self.gone("array", array))
        whole = pa.record_batch(table)
        self.schema, self.array = Schema(), Array()
        whole._export_to_c(ctypes.addressof(self.array), ctypes.addressof(self.schema))
        self.owned = (self.schema.release, self.array.release)
        self.schema.release, self.array.release = self.release_schema, self.release_array
        self.kept.append(whole)
        KEPT.append(self)

    def gone(self, what: str, struct: Any) -> None:
        self.released.append(what)
        struct.contents.release = type(struct.contents.release)()

    def column(self, name: str) -> Array:
        for number in range(self.schema.n_children):
            if self.schema.children[number].contents.name == name.encode():
                return self.array.children[number].contents
        raise KeyError(name)

    def buffer(self, array: Array, number: int, data: bytes | None) -> None:
        """Replace a buffer's bytes."""
        kept = None if data is None else ctypes.create_string_buffer(data, len(data))
        self.kept.append(kept)
        array.buffers[number] = None if kept is None else ctypes.addressof(kept)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return (
            new_capsule(ctypes.addressof(self.schema), b"arrow_schema", None),
            new_capsule(ctypes.addressof(self.array), b"arrow_array", None),
        )


def feed_of(data: Any, topic: str | None = "orders") -> tuple[ArrowFeed, Tally, Any]:
    accumulator = make_accumulator(batch_size=1 << 20)
    add_topic(accumulator)
    admission = Admission()
    clocks = (lambda: 0.0, lambda: 0.0)  # the clock stands still, so no turn of the loop is ever due
    admission._open_admission(accumulator, None, direct=True, max_record_bytes=1 << 20, clocks=clocks)  # type: ignore[arg-type]
    tally = Tally(topic)
    return ArrowFeed(admission, tally, ArrowSource(data), **DEFAULT_COLUMNS), tally, accumulator


def run(feed: ArrowFeed) -> int:
    """Run a feed until it has ended or failed."""
    while (state := feed.run()) == FEED_EMPTY:
        feed.fetch()
    return state


def broken(data: Any) -> str:
    """The error for invalid data."""
    feed, tally, _ = feed_of(data)
    assert run(feed) == FEED_BROKEN
    assert isinstance(feed.error, CorruptArrowError)
    assert tally.failed == 0
    return str(feed.error)


TEXT = pa.array(["one", None, "three"])
OURS = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.fixture
def batch() -> Batch:
    headers = pa.array([[{"key": "a", "value": b"1"}], None, []], pa.list_(OURS))
    return Batch(
        {"value": TEXT, "key": TEXT.dictionary_encode(), "headers": headers, "partition": pa.array([0, None, 0])}
    )


def test_a_good_one(batch: Batch) -> None:
    """The valid batch, which the other tests corrupt."""
    feed, tally, accumulator = feed_of(batch)
    assert run(feed) == FEED_DONE
    assert (tally.admitted, tally.failed) == (3, 0)
    (produced,) = drain_all(accumulator)
    assert [(one.key, one.value, one.headers) for one in read(produced)] == [
        (b"one", b"one", (("a", b"1"),)),
        (None, None, ()),
        (b"three", b"three", ()),
    ]
    assert batch.released == ["array"]  # as soon as its last row has been read
    del feed
    assert sorted(batch.released) == ["array", "schema"]


def test_rows_go_to_the_topics_that_they_name() -> None:
    """Of several hundred names, some share the place where their topics are kept for later rows.

    Some names have the same length, others begin alike.
    """
    names = [f"topic-{number:03}" for number in range(300)] + ["t" * length for length in range(1, 250)]
    rows = names + names[::-1]
    feed, tally, accumulator = feed_of(pa.table({"value": rows, "topic": rows}), None)
    for name in dict.fromkeys(rows):
        add_topic(accumulator, name)
    assert run(feed) == FEED_DONE
    assert (tally.admitted, tally.failed) == (len(rows), 0)
    written = {batch.topic: [record.value for record in read(batch)] for batch in drain_all(accumulator)}
    assert written == {name: [name.encode()] * rows.count(name) for name in rows}


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_every_width(kind: str) -> None:
    """Negative and largest numbers are read correctly; the errors of refused rows show them."""
    bits = int(kind.strip("uint"))
    numbers = [0, (1 << bits) - 1] if kind[0] == "u" else [0, -1, -(1 << bits - 1), (1 << bits - 1) - 1]
    table = pa.table({"value": ["v"] * len(numbers), "timestamp": pa.array(numbers, kind)})
    feed, tally, accumulator = feed_of(table)
    assert run(feed) == FEED_DONE
    told = [str(error) for _, error in tally.result().errors]
    refused = [number for number in numbers if not 0 <= number < 1 << 63]
    assert all(f"a {kind} of {number} " in text for number, text in zip(refused, told, strict=True))
    (produced,) = drain_all(accumulator)
    kept = [one.timestamp_ms for one in read(produced)]
    assert kept == [number for number in numbers if number not in refused]


def value(batch: Batch) -> Array:
    return batch.column("value")


def entries(batch: Batch) -> Array:
    found: Array = batch.column("headers").children[0].contents
    return found


def numbers(*values: int) -> bytes:
    return b"".join(number.to_bytes(4, "little", signed=True) for number in values)


def let_go(struct: Any) -> None:
    """Mark a structure as released or moved, as the interface prescribes."""
    struct.release = type(struct.release)()


SPOILED: dict[str, tuple[Callable[[Batch], object], str]] = {
    "batch of negative length": (lambda b: setattr(b.array, "length", -1), "rows or columns"),
    "batch of negative offset": (lambda b: setattr(b.array, "offset", -1), "rows or columns"),
    "offset beyond everything": (lambda b: setattr(b.array, "offset", (1 << 63) - 1), "rows or columns"),
    "batch without a column": (lambda b: setattr(b.array, "n_children", 3), "rows or columns"),
    "batch longer than its columns": (lambda b: setattr(b.array, "length", 4), "column '.*' lacks the 4 rows"),
    "batch offset beyond its columns": (lambda b: setattr(b.array, "offset", 1), "lacks the 4 rows"),
    "column too short": (lambda b: setattr(value(b), "length", 2), "column 'value' lacks the 3 rows"),
    "column of negative length": (lambda b: setattr(value(b), "length", -3), "column 'value' lacks"),
    "column of negative offset": (lambda b: setattr(value(b), "offset", -1), "column 'value' lacks"),
    "column offset beyond everything": (lambda b: setattr(value(b), "offset", (1 << 63) - 2), "column 'value' lacks"),
    "column without buffers": (lambda b: setattr(value(b), "n_buffers", 0), "'value' is string and has 0 buffers"),
    "column with too many buffers": (lambda b: setattr(value(b), "n_buffers", 4), "has 4 buffers"),
    "nulls and no bitmap": (lambda b: b.buffer(value(b), 0, None), "'value' has nulls and does not say where"),
    "no offsets": (lambda b: b.buffer(value(b), 1, None), "'value' has rows and no buffer"),
    "no bytes": (lambda b: b.buffer(value(b), 2, None), "column 'value', row 0: bytes 0 to 3 are invalid"),
    "offsets that fall": (lambda b: b.buffer(value(b), 1, numbers(5, 3, 3, 8)), "bytes 5 to 3"),
    "negative offsets": (lambda b: b.buffer(value(b), 1, numbers(-5, 3, 3, 8)), "bytes -5 to 3"),
    "index below the dictionary": (lambda b: b.buffer(b.column("key"), 1, numbers(-1, 0, 0)), "index -1 is outside"),
    "index above the dictionary": (lambda b: b.buffer(b.column("key"), 1, numbers(2, 0, 0)), "index 2 is outside"),
    "dictionary that is shorter": (lambda b: setattr(b.column("key").dictionary.contents, "length", 0), "index 0 is"),
    "no dictionary": (
        lambda b: setattr(b.column("key"), "dictionary", ctypes.POINTER(Array)()),
        "column 'key' lacks the 0 rows",
    ),
    "lists beyond their entries": (lambda b: b.buffer(b.column("headers"), 1, numbers(0, 2, 2, 2)), "entries 0 to 2"),
    "lists that fall": (lambda b: b.buffer(b.column("headers"), 1, numbers(1, 0, 0, 0)), "entries 1 to 0"),
    "lists without entries": (lambda b: setattr(b.column("headers"), "n_children", 0), "lacks the children"),
    "entries with one child": (lambda b: setattr(entries(b), "n_children", 1), "lacks the children"),
    "entries with more buffers": (lambda b: setattr(entries(b), "n_buffers", 2), "lacks the children"),
    "names that are fewer": (
        lambda b: setattr(entries(b).children[0].contents, "length", 0),
        "column 'headers key' lacks the 1 rows",
    ),
    "released column": (lambda b: let_go(value(b)), "column 'value' was released already"),
    "released dictionary": (lambda b: let_go(b.column("key").dictionary.contents), "column 'key' was released"),
    "released entries": (lambda b: let_go(entries(b)), "column 'headers element' was released already"),
    "released names": (lambda b: let_go(entries(b).children[0].contents), "column 'headers key' was released already"),
    "no numbers": (lambda b: b.buffer(b.column("partition"), 1, None), "'partition' has rows and no buffer"),
}


@pytest.mark.parametrize(("spoil", "told"), SPOILED.values(), ids=SPOILED)
def test_what_makes_no_sense_ends_the_call(batch: Batch, spoil: Callable[[Batch], object], told: str) -> None:
    """Nothing is read outside the declared lengths, and everything is released."""
    spoil(batch)
    assert re.search(told, broken(batch))
    gc.collect()
    assert sorted(batch.released) == ["array", "schema"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(1)], ids=str)
def test_a_single_row_without_a_buffer(kind: pa.DataType) -> None:
    batch = Batch({"value": pa.array(["v"]).cast(kind)})
    batch.buffer(value(batch), 1, None)
    assert broken(batch) == "column 'value' has rows and no buffer for them"


VIEWS = pa.array(["short", "a text that is longer than twelve bytes"], pa.string_view())


def view(size: int, number: int, offset: int) -> bytes:
    return numbers(size) + b"a te" + numbers(number, offset)


@pytest.mark.parametrize(
    ("spoiled", "told"),
    [
        (view(-1, 0, 0), "a view of -1 bytes"),
        (view(39, 1, 0), "outside of its buffer"),
        (view(39, -1, 0), "outside of its buffer"),
        (view(39, 0, -1), "outside of its buffer"),
        (view(39, 0, 1), "outside of its buffer"),
        (view(2**31 - 1, 0, 2**31 - 1), "outside of its buffer"),
    ],
)
def test_a_view_outside_of_its_buffer_is_refused(spoiled: bytes, told: str) -> None:
    """Views into missing buffers, or beyond a buffer's end."""
    batch = Batch({"value": VIEWS})
    batch.buffer(batch.column("value"), 1, view(5, 0, 0) + spoiled)
    feed, tally, _ = feed_of(batch)
    assert run(feed) == FEED_BROKEN
    assert told in str(feed.error)
    assert tally.admitted == 1


def test_views_without_sizes() -> None:
    batch = Batch({"value": VIEWS})
    batch.buffer(batch.column("value"), 3, None)
    assert "how large its buffers are" in broken(batch)


@pytest.mark.parametrize(("first", "size"), [((1 << 63) - 1, 1), (1, 1), (-1, 1), (0, 2), (0, (1 << 63) - 1), (0, -1)])
def test_large_list_views(first: int, size: int) -> None:
    """Lists that begin or end outside their entries."""
    headers = pa.array([[{"key": "a", "value": b"1"}]], pa.large_list_view(OURS))
    batch = Batch({"value": pa.array(["v"]), "headers": headers})
    for number, said in ((1, first), (2, size)):
        batch.buffer(batch.column("headers"), number, said.to_bytes(8, "little", signed=True))
    assert re.search(r"column 'headers', row 0: entries .* are invalid", broken(batch))


def test_a_column_that_is_not_there(batch: Batch) -> None:
    batch.schema.children[1] = ctypes.POINTER(Schema)()
    with pytest.raises(CorruptArrowError, match="a column of the Arrow data has no schema"):
        feed_of(batch)


@pytest.mark.parametrize("column", ["key", "value", "partition", "timestamp", "headers", "topic"])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_dictionaries_of_dictionaries(column: str, length: int) -> None:
    """Even cyclic ones: such a type is infinite, and is not traversed."""
    batch = Batch({"value": TEXT} | {column: TEXT.dictionary_encode()})
    schema = next(
        one.contents for one in batch.schema.children[: batch.schema.n_children] if one.contents.name == column.encode()
    )
    ring = [schema, *(Schema() for _ in range(length - 1))]
    for one, following in zip(ring, ring[1:] + ring[:1], strict=True):
        one.format, one.release = schema.format, schema.release
        one.dictionary = ctypes.pointer(following)
    with pytest.raises(SerializationError, match=f"column '{column}' is dictionary of dictionary; .* is needed"):
        feed_of(batch)


@pytest.mark.parametrize("digits", ["", "-1", "1 ", "\u0661", "2147483648", "9999999999", "1" * 5_000])
def test_a_size_that_is_none(digits: str) -> None:
    """Even with more digits than Python converts to an int."""
    batch = Batch({"value": pa.array([b"v"], pa.binary(1))})
    batch.schema.children[0].contents.format = b"w:" + digits.encode()
    with pytest.raises(CorruptArrowError, match="names no size"):
        feed_of(batch)


@pytest.mark.parametrize("depth", ["column", "dictionary", "entry", "name"])
def test_a_type_that_was_released(depth: str) -> None:
    """Its content may already be freed."""
    batch = Batch({"value": TEXT.dictionary_encode(), "headers": pa.array([None] * 3, pa.list_(OURS))})
    column, headers = batch.schema.children[0].contents, batch.schema.children[1].contents
    entry = headers.children[0].contents
    structs = {
        "column": column,
        "dictionary": column.dictionary.contents,
        "entry": entry,
        "name": entry.children[0].contents,
    }
    let_go(structs[depth])
    with pytest.raises(CorruptArrowError, match="released already"):
        feed_of(batch)


@pytest.mark.parametrize("column", ["key", "value", "topic"])
def test_a_row_of_more_bytes_than_a_record_can_have(column: str) -> None:
    """Only that row fails, before anything is read."""
    names = pa.array(["orders", "orders"], pa.large_string())
    batch = Batch({"value": names, column: names})
    huge = [0, 6, 1 << 62]
    batch.buffer(batch.column(column), 1, b"".join(number.to_bytes(8, "little") for number in huge))
    feed, tally, _ = feed_of(batch)
    assert run(feed) == FEED_DONE
    assert (tally.admitted, tally.failed) == (1, 1)
    assert isinstance(tally.result().errors[0][1], RecordTooLargeError)


@pytest.mark.parametrize("offset", [0, 3, 64, 67])
@pytest.mark.parametrize("length", [1, 61, 64, 130])
def test_a_row_that_is_null_as_a_whole(offset: int, length: int) -> None:
    """It is found wherever it is, even if the batch does not say how many there are; rows outside don't count."""
    rows = offset + length + 2
    size = (rows + 7) // 8
    for null in range(rows):
        batch = Batch({"value": pa.array(["v"] * rows)})
        batch.array.offset, batch.array.length, batch.array.null_count = offset, length, -1
        batch.buffer(batch.array, 0, ((1 << 8 * size) - 1 - (1 << null)).to_bytes(size, "little"))
        feed, tally, _ = feed_of(batch)
        if offset <= null < offset + length:
            assert run(feed) == FEED_BROKEN
            assert "null as a whole" in str(feed.error)
            assert tally.admitted == 0
        else:
            assert run(feed) == FEED_DONE
            assert tally.admitted == length


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_header_of_more_bytes_than_a_record_can_have(part: str) -> None:
    """Only that row fails, before anything is copied."""
    size_bytes = 8 << 20
    small = {"key": "a", "value": b"1"}
    large = {"key": "x" * size_bytes, "value": b"1"} if part == "key" else {"key": "a", "value": bytes(size_bytes)}
    headers = pa.array([[small, large], [small]], pa.list_(OURS))
    feed, tally, _ = feed_of(pa.table({"value": ["v", "w"], "headers": headers}))
    tracemalloc.start()
    try:
        assert run(feed) == FEED_DONE
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < size_bytes
    assert (tally.admitted, tally.failed) == (1, 1)
    ((row, error),) = tally.result().errors
    assert (row, type(error)) == (0, RecordTooLargeError)
    assert str(error) == (
        "column 'headers': a header of a record for topic 'orders' takes 8,388,608 bytes, the limit of a record is "
        "1,048,576 (the smaller of max_request_size and buffer_memory)"
    )


@given(st.data())
def test_spoiled_numbers(data: st.DataObject) -> None:
    """Any number in place of any offset, length or count leads to an error or to some records, not to a crash."""
    batch = Batch({"value": TEXT, "key": TEXT.dictionary_encode(), "partition": pa.array([0, None, 0])})
    column = batch.column(data.draw(st.sampled_from(["value", "key", "partition"])))
    odd = st.integers(-3, 3) | st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 31, 1 << 62])
    kind = data.draw(st.sampled_from(["length", "offset", "null_count", "n_buffers", "offsets"]))
    if kind == "offsets":
        offsets = data.draw(st.lists(st.integers(-(1 << 31), 8), min_size=4, max_size=4))
        batch.buffer(batch.column("value"), 1, numbers(*offsets))
    elif kind == "offset":  # a buffer's size is not declared, so only offsets that are refused
        column.offset = data.draw(odd.filter(lambda number: number < 0 or number > (1 << 62)))
    else:
        setattr(column, kind, data.draw(odd))
    try:
        feed, tally, _ = feed_of(batch)
        state = run(feed)
    except SerializationError:
        return
    assert state in (FEED_DONE, FEED_BROKEN)
    assert tally.admitted + tally.failed <= 3


# --- taking over ------------------------------------------------------------------------------------------------------


class Exporting:
    """Exports the capsules that a test gives it."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.result


class ExportingArray:
    def __init__(self, *result: Any) -> None:
        self.result = result

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.result


@pytest.mark.parametrize("result", [None, 1, new_capsule(1, b"arrow_schema", None)], ids=["None", "1", "other capsule"])
def test_no_capsules(result: object) -> None:
    with pytest.raises(TypeError, match="returned no capsule"):
        ArrowSource(Exporting(result))
    with pytest.raises(TypeError, match="returned no capsules"):
        ArrowSource(ExportingArray(result, result))


def test_a_capsule_can_be_taken_once() -> None:
    """Its content belongs to its first importer."""
    table = pa.table({"value": ["v"]})
    stream = table.__arrow_c_stream__()
    source = ArrowSource(Exporting(stream))
    with pytest.raises(TypeError, match="used up"):
        ArrowSource(Exporting(stream))
    capsules = table.to_batches()[0].__arrow_c_array__()
    assert ArrowSource(ExportingArray(*capsules))
    with pytest.raises(TypeError, match="used up"):
        ArrowSource(ExportingArray(*capsules))
    del source


@pytest.mark.parametrize("lacking", ["get_schema", "get_next", "get_last_error"])
def test_a_stream_without_one_of_its_functions(lacking: str) -> None:
    released: list[str] = []
    release = Release(lambda stream: released.append("stream"))
    stream = Stream(
        Get(lambda stream, out: 0), Get(lambda stream, out: 0), GetError(lambda stream: None), release, None
    )
    setattr(stream, lacking, type(getattr(stream, lacking))())
    with pytest.raises(CorruptArrowError, match="the Arrow stream lacks one of its functions"):
        ArrowSource(Exporting(new_capsule(ctypes.addressof(stream), b"arrow_array_stream", None)))
    assert released == []  # it was not imported, so it still belongs to its capsule


@pytest.mark.parametrize("format_of_columns", [None, b"+s"])
def test_a_stream_that_gives_no_schema(format_of_columns: bytes | None) -> None:
    """It says that it has; a released one may be freed already."""
    released: list[str] = []

    def get_schema(stream: Any, out: int) -> int:
        Schema.from_address(out).format = format_of_columns
        return 0

    release = Release(lambda stream: released.append("stream"))
    stream = Stream(Get(get_schema), Get(lambda stream, out: 0), GetError(lambda stream: None), release, None)
    with pytest.raises(TypeError, match="has no columns; a table or record batch is needed"):
        ArrowSource(Exporting(new_capsule(ctypes.addressof(stream), b"arrow_array_stream", None)))
    gc.collect()
    assert released == ["stream"]


def test_an_array_without_a_format_has_no_columns(batch: Batch) -> None:
    batch.schema.format = None
    with pytest.raises(TypeError, match="has no columns; a table or record batch is needed"):
        ArrowSource(batch)
    gc.collect()
    assert sorted(batch.released) == ["array", "schema"]


def test_one_batch_is_there_at_once() -> None:
    """Its rows need no worker thread, unlike those of a stream, which may run a query."""
    batch = pa.record_batch({"value": ["v"] * 1_000})
    feed, tally, _ = feed_of(batch)
    assert feed.exhausted
    assert feed.run() == FEED_DONE
    assert tally.admitted == 1_000
    feed, _, _ = feed_of(pa.table(batch))
    assert feed.run() == FEED_EMPTY


def test_a_source_that_is_not_used_is_released(batch: Batch) -> None:
    """Even if a column's type is wrong."""
    source = ArrowSource(batch)
    assert batch.released == []
    del source
    assert sorted(batch.released) == ["array", "schema"]
    other = Batch({"value": pa.array([1.5])})
    with pytest.raises(SerializationError):
        feed_of(other)
    gc.collect()
    assert sorted(other.released) == ["array", "schema"]


def test_batches_of_a_stream_are_released_one_by_one() -> None:
    """Only the batch being read and those fetched ahead are held."""
    size = 1 << 20
    held: list[int] = []
    schema = pa.schema([("value", pa.binary())])

    def batches() -> Iterator[pa.RecordBatch]:
        for _ in range(10):
            yield pa.record_batch([pa.array([bytes(size)])], schema)
            held.append(pa.total_allocated_bytes())

    feed, tally, accumulator = feed_of(pa.RecordBatchReader.from_batches(schema, batches()))
    before = pa.total_allocated_bytes()
    assert run(feed) == FEED_DONE
    assert tally.rows == 10
    del accumulator
    assert pa.total_allocated_bytes() - before < size
