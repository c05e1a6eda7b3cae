"""The compiled path of submit: what it accepts, what it refuses, and how its awaitable behaves."""

from __future__ import annotations

import array
import asyncio
import contextlib
import contextvars
import ctypes
import enum
import gc
import inspect
import itertools
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
import pytest

from aioproducer._admission import Admission
from aioproducer._delivery import Delivery
from aioproducer._producer_batch import ProducerBatch, TopicQueues
from aioproducer.errors import (
    BufferExhaustedError,
    KafkaError,
    NotStartedError,
    RecordTooLargeError,
    SerializationError,
    WrongLoopError,
)
from tests.reference.record_batch import PlainRecord, encoded
from tests.unit.core import (
    TOPIC_ID,
    UNLIMITED,
    add_topic,
    allocated_blocks,
    batch_bytes,
    drain,
    drain_all,
    end,
    fail,
    make_accumulator,
    read,
)
from tests.unit.waiting import turns

WALL_S = 1_700_000_000.0
PATIENCE_S = 30


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return WALL_S + self.now_s


class Door(Admission):
    """A producer with an accumulator behind it and nothing else; the slow path waits for ``room``."""

    def __init__(
        self, *, direct: bool = True, clock: Clock | None = None, max_record_bytes: int = 1 << 20, **options: Any
    ):
        loop = asyncio.get_running_loop()
        self.accumulator = make_accumulator(loop=loop, **options)
        self.topic: TopicQueues = add_topic(self.accumulator, leaders=[1, 1])
        self.room: asyncio.Future[None] = loop.create_future()
        self.slow: list[tuple[Any, ...]] = []
        clocks = None if clock is None else (clock.monotonic, clock.wall)
        self._open_admission(self.accumulator, loop, direct=direct, max_record_bytes=max_record_bytes, clocks=clocks)

    def _refuse(self) -> NoReturn:
        raise NotStartedError("refused")

    async def _submit_slow(self, *arguments: Any) -> Delivery:
        self.slow.append(arguments)
        await self.room
        admit: Any = self._admit
        delivery: Delivery | None = admit(*arguments, queued=True)
        assert delivery is not None
        return delivery

    def _submit_now_slow(self, *arguments: Any) -> Delivery:
        self.slow.append(arguments)
        raise BufferExhaustedError("slow")

    def batches(self) -> list[ProducerBatch]:
        return drain_all(self.accumulator)

    def written(self) -> list[PlainRecord]:
        """The records that were admitted, by partition and in order."""
        batches = self.batches()
        records: list[PlainRecord] = []
        for batch in batches:
            of_batch = read(batch)
            assert batch_bytes(batch) == encoded(of_batch), "as the slow writer writes them"
            records += of_batch
        for batch in batches:
            end(self.accumulator, batch)
        return records


@pytest.fixture
async def door() -> Door:
    return Door()


async def test_a_topic_that_has_just_lost_its_partitions(door: Door) -> None:
    """While metadata is being worked in, a finalizer or a signal handler may send to the topic of the last record."""
    topic = "orders"
    door.submit_nowait(topic, b"value", key=b"key")
    door.accumulator.update_topic(topic, TOPIC_ID, [])
    with pytest.raises(BufferExhaustedError, match="slow"):
        door.submit_nowait(topic, b"value", key=b"key")


# --- what is taken ----------------------------------------------------------------------------------------------------


class Text(str):
    __slots__ = ()


class Raw(bytes):
    __slots__ = ()


class Topic(enum.StrEnum):
    ORDERS = "orders"


class Number:
    """An integer like numpy's: not an int, but with ``__index__``."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class NoNumber:
    """Like numpy's arrays, which have the method but are not integers."""

    def __index__(self) -> int:
        raise TypeError("only integer scalar arrays can be converted to a scalar index")


VALUES: list[tuple[Any, bytes | None]] = [
    (None, None),
    (b"", b""),
    (b"bytes", b"bytes"),
    ("", b""),
    ("ascii", b"ascii"),
    ("é中😀\0", "é中😀\0".encode()),
    (bytearray(b"array"), b"array"),
    (memoryview(b"view"), b"view"),
    (memoryview(b"s-t-e-p")[::2], b"step"),
    (memoryview(b"abcdef").cast("B", (2, 3)), b"abcdef"),
    ((ctypes.c_uint8 * 3 * 0)(), b""),
    ((ctypes.c_uint8 * 0 * 2)(), b""),
    ((ctypes.c_uint8 * 2 * 2)((1, 2), (3, 4)), b"\1\2\3\4"),
    (memoryview((ctypes.c_uint8 * 2 * 2)((1, 2), (3, 4)))[::-1], b"\3\4\1\2"),
    (array.array("i", [1, 2]), array.array("i", [1, 2]).tobytes()),
    (Text("subclass"), b"subclass"),
    (Raw(b"subclass"), b"subclass"),
    (Topic.ORDERS, b"orders"),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: type(value).__name__)
async def test_values_and_keys(door: Door, value: Any, expected: bytes | None) -> None:
    """Bytes-like objects, str and None are accepted as value and key, and encoded as their bytes."""
    door.submit_nowait("orders", value, partition=0)
    await door.submit("orders", key=value, partition=0)
    first, second = door.written()
    assert (first.value, first.key) == (expected, None)
    assert (second.value, second.key) == (None, expected)
    assert not door.slow


async def test_a_buffer_that_is_not_there_any_more(door: Door) -> None:
    """Whatever its exporter raises becomes that record's error."""
    view = memoryview(b"v")
    view.release()
    for arguments in ({"value": view}, {"key": view}):
        with pytest.raises(SerializationError, match=r"is a memoryview; bytes-like"):
            door.submit_nowait("orders", partition=0, **arguments)
    with pytest.raises(SerializationError, match=r"header 'h' .* is a memoryview; bytes or None"):
        door.submit_nowait("orders", headers=[("h", view)], partition=0)
    assert door.written() == []


class Offsets(ctypes.Structure):
    """A buffer whose fields are named like types."""

    _fields_ = (("O", ctypes.c_uint8), ("Offset", ctypes.c_uint8))


class Tags(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int), ("tags", ctypes.py_object))


async def test_buffers_of_python_objects(door: Door) -> None:
    """Such as numpy arrays of dtype object: they hold addresses in this process, which must not be written."""
    for objects in ((ctypes.py_object * 2)("a", "b"), memoryview((ctypes.py_object * 1)("a")), Tags(1, "a")):
        for arguments in ({"value": objects}, {"key": objects}):
            with pytest.raises(SerializationError, match=r"is a .*; bytes-like, str or None is needed"):
                door.submit_nowait("orders", partition=0, **arguments)
        with pytest.raises(SerializationError, match=r"header 'h' .*; bytes or None is needed"):
            door.submit_nowait("orders", headers=[("h", objects)], partition=0)
    door.submit_nowait("orders", Offsets(1, 2), key=Offsets(3, 4), headers=[("h", Offsets(5, 6))], partition=0)
    (record,) = door.written()
    assert record[1:] == (b"\3\4", b"\1\2", (("h", b"\5\6"),))


async def test_integers_that_are_no_ints(door: Door) -> None:
    """Anything with ``__index__`` is accepted, as for configs."""
    door.submit_nowait("orders", b"v", partition=Number(1), timestamp_ms=Number(1_234))
    (record,) = door.written()
    assert record.timestamp_ms == 1_234
    assert not door.slow


async def test_copied_when_it_returns(door: Door) -> None:
    """Later changes to the caller's buffer have no effect."""
    buffer: Any = bytearray(b"before")
    delivery = await door.submit("orders", buffer, key=buffer, headers=[("h", buffer)], partition=0)
    buffer[:] = b"after!"
    (record,) = door.written()
    assert record[1:] == (b"before", b"before", (("h", b"before"),))
    assert delivery.result().serialized_value_size == 6


HEADERS: tuple[Any, ...] = (
    [("a", b"1"), ("b", None), ("a", b"")],
    (("a", b"1"), ("b", None), ("a", b"")),
    [["a", bytearray(b"1")], ("b", None), ("a", memoryview(b""))],
)


@pytest.mark.parametrize("headers", HEADERS, ids=["list", "tuple", "lists and buffers"])
async def test_header_pairs(door: Door, headers: Any) -> None:
    """Headers keep their order, and names may repeat."""
    door.submit_nowait("orders", b"v", headers=headers)
    (record,) = door.written()
    assert record.headers == (("a", b"1"), ("b", None), ("a", b""))


@pytest.mark.parametrize(
    "headers", [{"é": b"1", "": None}, MappingProxyType({"é": b"1", "": None})], ids=["dict", "mapping"]
)
async def test_header_mappings(door: Door, headers: Mapping[str, bytes | None]) -> None:
    """A mapping is accepted too."""
    door.submit_nowait("orders", b"v", headers=headers)
    (record,) = door.written()
    assert record.headers == (("é", b"1"), ("", None))


@pytest.mark.parametrize(
    "headers", [[], (), {}, iter([]), OrderedDict()], ids=["list", "tuple", "dict", "iterator", "of a class of its own"]
)
async def test_no_headers(door: Door, headers: Any) -> None:
    """Empty headers are no headers."""
    door.submit_nowait("orders", b"v", headers=headers)
    assert door.written()[0].headers == ()


class ListOfItsOwn(list[Any]):
    """Programs may derive from list."""


@pytest.mark.parametrize("make", [list, tuple, dict, OrderedDict, ListOfItsOwn])
async def test_headers_of_any_size(make: Callable[[Any], Any]) -> None:
    """Headers up to 512 bytes, which a call encodes itself, and larger ones are written alike."""
    door = Door(max_request_size=1 << 20)
    given = [[("name", bytes(size)), ("null", None), ("", b"")] for size in range(470, 530)]
    given += [[("n" * size, b"value")] for size in range(470, 530)]
    given += [[(str(number), b"") for number in range(count)] for count in (63, 64, 100, 200, 5_000)]
    given += [[("a", b"1"), ("é", b"2"), ("c", b"3" * 600)], [("a", bytes(100_000))]]
    for headers in given:
        door.submit_nowait("orders", b"v", headers=make(headers), partition=0)
    assert [record.headers for record in door.written()] == [tuple(headers) for headers in given]


async def test_headers_of_an_iterator(door: Door) -> None:
    """An iterator is accepted too."""
    door.submit_nowait("orders", b"v", headers=((name, b"1") for name in "ab"))
    assert door.written()[0].headers == (("a", b"1"), ("b", b"1"))


async def test_headers_of_an_iterator_without_memory() -> None:
    """They are not consumed by an attempt that finds no memory, or no topic."""
    door = Door(buffer_memory=20_000)
    door.submit_nowait("orders", bytes(19_000))
    task = asyncio.create_task(door.submit("orders", b"v" * 5000, headers=((name, b"1") for name in "ab")))
    await turns()
    assert len(door.slow) == 1
    door.written()
    door.room.set_result(None)
    await task
    assert door.written()[0].headers == (("a", b"1"), ("b", b"1"))


async def test_headers_of_an_iterator_that_find_no_memory_at_once() -> None:
    """What `submit_nowait` leaves to the slow path still has them."""
    door = Door(buffer_memory=20_000)
    door.submit_nowait("orders", bytes(19_000))
    with pytest.raises(BufferExhaustedError):
        door.submit_nowait("orders", bytes(5_000), headers=((name, b"1") for name in "ab"))
    assert door.slow[0][4] == [("a", b"1"), ("b", b"1")]


async def test_any_topic_text(door: Door) -> None:
    """A topic may be any str, including a member of an enum."""
    for topic in "orders", Text("orders"), Topic.ORDERS, "".join(["ord", "ers"]):
        delivery = door.submit_nowait(topic, b"v", partition=0)
        await door.submit(topic, b"v", partition=0)
    (*_, batch) = door.batches()
    end(door.accumulator, batch)
    assert type(delivery.result().topic) is str
    assert not door.slow


async def test_explicit_partition(door: Door) -> None:
    """A partition named by the caller is used."""

    class Number(enum.IntEnum):
        ONE = 1

    for partition in 1, Number.ONE:
        door.submit_nowait("orders", b"v", key=b"key", partition=partition)
    assert [batch.partition for batch in door.batches()] == [1]


async def test_a_record_has_the_time_of_the_call_or_the_given_one() -> None:
    """A record has the time of the call, in milliseconds, or the given timestamp."""
    clock = Clock()
    door = Door(clock=clock)
    door.submit_nowait("orders", b"now", partition=0)
    clock.now_s += 0.0004
    door.submit_nowait("orders", b"within the millisecond", partition=0)
    clock.now_s += 12.345
    door.submit_nowait("orders", b"later", partition=0)
    for timestamp_ms in 0, 2**63 - 1:
        door.submit_nowait("orders", b"given", partition=0, timestamp_ms=timestamp_ms)
    start = int((WALL_S + 1000) * 1000)
    assert [record.timestamp_ms for record in door.written()] == [start, start, start + 12345, 0, 2**63 - 1]


@pytest.mark.parametrize("year", ["2262", "9999"])
async def test_a_clock_far_in_the_future(year: str) -> None:
    """As tests may set it. From April 2262 on, its nanoseconds are more than 64 bits hold."""
    then = datetime.fromisoformat(f"{year}-12-31T00:00:00+00:00")
    clock = Clock()
    clock.wall = then.timestamp  # type: ignore[method-assign]
    door = Door(clock=clock)
    door.submit_nowait("orders", b"v")
    (record,) = door.written()
    assert record.timestamp_ms == int(then.timestamp()) * 1000


async def test_the_machines_clock(door: Door) -> None:
    """By default the time is that of the system clock."""
    before = time.time_ns() // 1_000_000
    door.submit_nowait("orders", b"v", partition=0)
    await door.submit("orders", b"v", partition=0)
    after = time.time_ns() // 1_000_000
    assert all(before - 1 <= record.timestamp_ms <= after + 1 for record in door.written())


async def test_linger_counts_from_the_call() -> None:
    """The batch is as old as its first record."""
    clock = Clock()
    door = Door(clock=clock, linger_ms=5)
    clock.now_s = 77.0021
    door.submit_nowait("orders", b"v")
    assert door.accumulator.ready(77_002) == ([], 77_007)


# --- bad input: each fails its own call and nothing else --------------------------------------------------------------


class Opaque:
    """An object that is not bytes-like; its repr must not get into an error."""

    def __repr__(self) -> str:
        raise AssertionError("payloads stay out of messages")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "value int": ({"value": 5}, "the value of a record for topic 'orders' is a int.*value_serializer"),
    "value float": ({"value": 1.5}, "value .* float"),
    "value list": ({"value": [1]}, "value .* list"),
    "value dict": ({"value": {}}, "value .* dict"),
    "value object": ({"value": Opaque()}, "value .* Opaque"),
    "key int": ({"key": 5}, "the key of a record for topic 'orders' is a int.*key_serializer"),
    "key object": ({"key": Opaque()}, "key .* Opaque"),
    "value lone surrogate": ({"value": "secret\ud800"}, r"value .* encoded as UTF-8 \(surrogates not allowed\)$"),
    "key lone surrogate": ({"key": "secret\udfff"}, r"key .* encoded as UTF-8 \(surrogates not allowed\)$"),
    "partition text": ({"partition": "1"}, "partition .* is a str; an int or None"),
    "partition float": ({"partition": 1.0}, "partition .* is a float"),
    "partition bool": ({"partition": True}, "partition .* is a bool"),
    "partition array": ({"partition": NoNumber()}, "partition .* is a NoNumber; an int or None"),
    "partition Number negative": ({"partition": Number(-1)}, "partition -1 .* outside 0 to 2147483647"),
    "partition negative": ({"partition": -1}, "partition -1 .* outside 0 to 2147483647"),
    "partition 2^31": ({"partition": 2**31}, "partition 2147483648 .* outside"),
    "partition 2^70": ({"partition": 2**70}, "outside"),
    "timestamp text": ({"timestamp_ms": "now"}, "timestamp_ms .* is a str; an int"),
    "timestamp float": ({"timestamp_ms": 1.0}, "timestamp_ms .* is a float"),
    "timestamp bool": ({"timestamp_ms": False}, "timestamp_ms .* is a bool"),
    "timestamp array": ({"timestamp_ms": NoNumber()}, "timestamp_ms .* is a NoNumber; an int"),
    "timestamp Number 2^63": ({"timestamp_ms": Number(2**63)}, "outside 0"),
    "timestamp negative": ({"timestamp_ms": -1}, "timestamp_ms -1 .* outside 0"),
    "timestamp 2^63": ({"timestamp_ms": 2**63}, "outside 0"),
    "headers int": ({"headers": 5}, "headers .* must be pairs"),
    "headers text": ({"headers": "ab"}, "headers .* must be pairs"),
    "headers bytes": ({"headers": b"ab"}, "headers .* must be pairs"),
    "headers triples": ({"headers": [("a", b"1", 2)]}, "headers .* must be pairs"),
    "headers singles": ({"headers": [("a",)]}, "headers .* must be pairs"),
    "headers None inside": ({"headers": [None]}, "headers .* must be pairs"),
    "header name bytes": ({"headers": [(b"a", b"1")]}, "header name .* is a bytes; str"),
    "header name None": ({"headers": [(None, b"1")]}, "header name .* is a NoneType; str"),
    "header name lone surrogate": ({"headers": [("a\ud800", b"1")]}, r"header name .* encoded as UTF-8"),
    "header value text": ({"headers": {"a": "secret"}}, "header 'a' .* is a str; bytes or None"),
    "header value int": ({"headers": {"a": 5}}, "header 'a' .* is a int; bytes or None"),
    "header value object": ({"headers": [("a", Opaque())]}, "header 'a' .* is a Opaque; bytes or None"),
    "topic None": ({"topic": None}, "the topic is a NoneType; str"),
    "topic bytes": ({"topic": b"orders"}, "the topic is a bytes; str"),
    "topic int": ({"topic": 5}, "the topic is a int; str"),
}
"""What is wrong with a record, and a pattern of its error."""


async def attempt(door: Door, call: str, *args: Any, **arguments: Any) -> None:
    """Make one of the three calls."""
    result = getattr(door, call)(*args, **arguments)
    if call != "submit_nowait":
        await result


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("call", ["submit_nowait", "submit", "send"])
async def test_bad_input(door: Door, call: str, what: str) -> None:
    """A bad argument raises a SerializationError that names topic and argument, and has no other effect."""
    arguments, message = BAD[what]
    arguments = {"topic": "orders", **arguments}
    before = door.submit_nowait("orders", b"before", partition=0)
    with pytest.raises(SerializationError, match=message) as caught:
        await attempt(door, call, **arguments)
    assert not caught.value.maybe_written
    assert "secret" not in str(caught.value)
    assert "secret" not in str(caught.value.__cause__)
    after = await door.submit("orders", b"after", partition=0)
    assert [record.value for record in door.written()] == [b"before", b"after"]
    assert before.done()
    assert after.done()
    assert not door.slow


async def test_bad_topic_first(door: Door) -> None:
    """A bad topic is refused even by the very first call."""
    for topic in (None, 5, b"orders"):
        with pytest.raises(SerializationError, match="topic"):
            Door().submit_nowait(topic)  # type: ignore[arg-type]
        with pytest.raises(SerializationError, match="topic"):
            await Door().submit(topic)  # type: ignore[arg-type]


class Raising:
    """Raises in every method by which it may be accessed."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        raise self.error

    def __index__(self) -> int:
        raise self.error

    def __buffer__(self, flags: int) -> memoryview:
        raise self.error


class RaisingItems(Raising):
    def items(self) -> Iterator[tuple[str, bytes]]:
        raise self.error


class RaisingProperty(Raising):
    @property
    def items(self) -> None:
        raise self.error


class RaisingName(str):
    """A str whose encode() raises; its plain value is used."""

    __slots__ = ()

    def encode(self, *arguments: Any) -> bytes:
        raise ZeroDivisionError


def raising_halfway(error: Exception) -> Iterator[tuple[str, bytes]]:
    yield "a", b"1"
    raise error


HUGE = np.broadcast_to(np.uint8(0), ((1 << 63) - 1,))
"""An object whose buffer claims more bytes than can exist."""

ODD: dict[str, tuple[Callable[[Exception], dict[str, Any]], str]] = {
    "headers": (
        lambda error: {"headers": Raising(error)},
        "^the headers of a record for topic 'orders' can't be read: ",
    ),
    "mapping": (lambda error: {"headers": RaisingItems(error)}, "^the headers of a record for topic 'orders' can't be"),
    "no mapping": (
        lambda error: {"headers": RaisingProperty(error)},
        "^the headers of a record for topic 'orders' can",
    ),
    "partition": (
        lambda error: {"partition": Raising(error)},
        "^the partition of a record for topic 'orders' is a Rais",
    ),
    "timestamp": (lambda error: {"timestamp_ms": Raising(error)}, "^timestamp_ms of a record for topic 'orders' is a "),
}
"""Which part of a record raises, and a pattern of the error."""


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), StopIteration(7), KeyError("a")], ids=lambda e: type(e).__name__
)
@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("call", ["submit_nowait", "submit", "send"])
async def test_errors_of_the_callers_own_code(door: Door, call: str, what: str, error: Exception) -> None:
    """Any exception becomes the cause of that record's error, even one that would end a coroutine normally."""
    arguments, message = ODD[what]
    with pytest.raises(SerializationError, match=message) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.create_task(attempt(door, call, "orders", b"v", **arguments(error)))
    assert caught.value.__cause__ is error
    assert door.written() == []


@pytest.mark.parametrize("error", [ZeroDivisionError(), UnicodeEncodeError("a", "secret", 0, 1, "")], ids=["0", "a"])
async def test_errors_of_the_callers_generator(door: Door, error: Exception) -> None:
    with pytest.raises(SerializationError, match=r"headers of a record for topic 'orders'") as caught:
        door.submit_nowait("orders", b"v", headers=raising_halfway(error))
    assert caught.value.__cause__ is error
    assert door.written() == []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="classes of Python have no buffers there")
async def test_buffers_that_raise(door: Door) -> None:
    for arguments in ({"headers": {"h": Raising(StopIteration(7))}}, {"value": Raising(StopIteration(7))}):
        with pytest.raises(SerializationError, match="is a Raising that can't be read: StopIteration"):
            await door.send("orders", **arguments)  # type: ignore[arg-type]


async def test_names_of_headers_are_what_they_are(door: Door) -> None:
    door.submit_nowait("orders", b"v", headers=[(RaisingName("h"), bytearray(b"1"))], partition=0)
    (record,) = door.written()
    assert record.headers == (("h", b"1"),)


@pytest.mark.parametrize("call", ["submit", "send"])
async def test_what_would_end_a_coroutine_is_no_end(door: Door, call: str) -> None:
    """As PEP 479 does for Python's coroutines: a task that got StopIteration would never be done."""

    class Deceiving(int):
        def __ge__(self, other: int) -> bool:
            raise StopIteration(7)

    sending = asyncio.get_running_loop().create_task(getattr(door, call)("orders", partition=Deceiving(1)))
    await asyncio.wait([sending], timeout=PATIENCE_S)
    assert sending.done()
    with pytest.raises(RuntimeError, match="coroutine raised StopIteration") as caught:
        sending.result()
    assert isinstance(caught.value.__cause__, StopIteration)


@pytest.mark.parametrize("call", ["submit_nowait", "submit", "send"])
async def test_too_large(call: str) -> None:
    """A record above the limit is refused; the error has its size and the relevant configs."""
    door = Door(max_record_bytes=1000)
    with pytest.raises(
        RecordTooLargeError, match=r"'orders' takes up to 1,083 bytes, the limit is 1,000 .*max_request_size"
    ) as caught:
        await attempt(door, call, "orders", bytes(1000))
    assert isinstance(caught.value, ValueError)
    assert caught.value.topic == "orders"
    assert not caught.value.maybe_written
    door.submit_nowait("orders", bytes(917))
    with pytest.raises(RecordTooLargeError):
        door.submit_nowait("orders", bytes(918))
    door = Door(max_record_bytes=85)
    door.submit_nowait("orders", b"v", key=b"k")
    with pytest.raises(RecordTooLargeError):
        door.submit_nowait("orders", b"vv", key=b"k")
    with pytest.raises(RecordTooLargeError):
        door.submit_nowait("orders", b"v", key=b"kk")


@pytest.mark.parametrize("call", ["submit_nowait", "submit", "send"])
@pytest.mark.parametrize(
    "record",
    [{"value": HUGE}, {"key": HUGE}, {"headers": [("h", HUGE)]}, {"headers": {RaisingName("h"): HUGE}}],
    ids=["value", "key", "header", "odd header"],
)
async def test_what_is_far_too_large_is_not_copied(call: str, record: dict[str, Any]) -> None:
    """A file mapped into memory, say: it would hold the loop, if there is memory for it at all."""
    with pytest.raises(RecordTooLargeError, match=r"'orders' takes up to 9,223,372,036,854,775,807 bytes, the"):
        await attempt(Door(max_record_bytes=1000), call, "orders", **record)


@pytest.mark.parametrize("call", ["submit_nowait", "submit", "send"])
async def test_headers_without_end(call: str) -> None:
    with pytest.raises(RecordTooLargeError):
        await attempt(Door(max_record_bytes=1000), call, "orders", headers=itertools.repeat(("a", b"")))


async def test_too_large_counts_everything() -> None:
    """Key and headers count."""
    door = Door(max_record_bytes=1000)
    shapes: list[dict[str, Any]] = [{"key": bytes(1000)}, {"headers": [("a", bytes(1000))]}, {"value": "é" * 500}]
    for record in shapes:
        with pytest.raises(RecordTooLargeError):
            door.submit_nowait("orders", **record)
    assert door.written() == []


async def test_what_fits_the_limit_fits_a_request() -> None:
    """The estimate ensures that the batch of such a record, whatever its shape, is within the limit."""
    door = Door(max_record_bytes=5000, batch_size=1)
    room = 5000 - 83
    shapes: list[dict[str, Any]] = [
        {"value": bytes(room)},
        {"key": bytes(room)},
        {"headers": [("", bytes(room - 3))]},
        {"key": bytes(room // 2), "value": bytes(room // 2), "timestamp_ms": 0},
    ]
    for record in shapes:
        door.submit_nowait("orders", partition=0, **record)
    batches = door.batches()
    assert len(batches) == 4
    assert all(4900 < batch.wire_bytes <= 5000 for batch in batches)


# --- who may call -----------------------------------------------------------------------------------------------------


async def test_refused_before_and_after() -> None:
    """Before admission is open, and after it is closed, the subclass supplies the error."""
    door = Door()
    assert door._is_admitting
    door._close_admission()
    assert not door._is_admitting
    with pytest.raises(NotStartedError, match="refused"):
        door.submit_nowait("orders", b"v")
    calls: list[Any] = [door.submit, door.send]
    for call in calls:
        with pytest.raises(NotStartedError, match="refused"):
            await call("orders", b"v")
    fresh = Door.__new__(Door)
    with pytest.raises(NotStartedError):
        fresh.submit_nowait("orders", b"v")
    with pytest.raises(NotStartedError):
        await fresh.submit("orders", b"v")


async def test_refused_in_another_thread(door: Door) -> None:
    """Another thread is refused, whatever it calls."""

    def elsewhere() -> None:
        door.submit_nowait("orders", b"v")

    with pytest.raises(NotStartedError, match="refused"):
        await asyncio.to_thread(elsewhere)

    async def send() -> None:
        await door.send("orders", b"v")

    with pytest.raises(NotStartedError, match="refused"):
        await asyncio.to_thread(lambda: asyncio.run(send()))
    assert door.written() == []


def test_refused_in_another_loop() -> None:
    """Another loop of the same thread is refused, and so is a call without a running loop."""
    clock = Clock()

    async def start() -> Door:
        return Door(clock=clock)

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        door = first.run_until_complete(start())
        first.run_until_complete(attempt(door, "submit_nowait", "orders", b"v"))
        for call in "submit_nowait", "submit", "send":
            clock.now_s += 1
            with pytest.raises(WrongLoopError, match=r"another event loop;.* start a separate producer"):
                second.run_until_complete(attempt(door, call, "orders", b"v"))
        with pytest.raises(WrongLoopError, match="no loop is running here"):
            door.submit_nowait("orders", b"v")
        first.run_until_complete(attempt(door, "submit_nowait", "orders", b"v"))
        assert len(door.written()) == 2
    finally:
        first.close()
        second.close()


def test_refused_in_another_loop_right_after_the_own() -> None:
    """However recently the producer's own loop ran, calls between its runs and from other loops are refused."""

    async def start() -> Door:
        return Door(clock=Clock())  # its clock stands still

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        door = first.run_until_complete(start())
        for call in "submit_nowait", "submit":
            first.run_until_complete(attempt(door, call, "orders", b"v"))
            with pytest.raises(WrongLoopError, match="no loop is running here"):
                door.submit_nowait("orders", b"between")
            for other in "submit_nowait", "submit", "send":
                first.run_until_complete(attempt(door, call, "orders", b"v"))
                with pytest.raises(WrongLoopError, match=r"another event loop;.* start a separate producer"):
                    second.run_until_complete(attempt(door, other, "orders", b"elsewhere"))
        assert [record.value for record in door.written()] == [b"v"] * 8
    finally:
        first.close()
        second.close()


async def test_callbacks_may_call(door: Door) -> None:
    """Plain callbacks of the loop may submit."""
    asyncio.get_running_loop().call_soon(door.submit_nowait, "orders", b"v")
    await turns(1)
    assert len(door.written()) == 1


# --- the slow path ----------------------------------------------------------------------------------------------------


async def test_arguments_reach_the_slow_path_unchanged() -> None:
    """If user code has to run, the arguments are passed to the subclass unchanged."""
    door = Door(direct=False)
    value, key, headers = object(), object(), [("a", b"1")]
    with pytest.raises(BufferExhaustedError):
        door.submit_nowait("orders", value, key=key, partition=1, headers=headers, timestamp_ms=5)
    assert door.slow == [("orders", value, key, 1, headers, 5)]
    for awaited in False, True:
        door = Door(direct=False)
        call: Any = door.send if awaited else door.submit
        submission = call("orders", value, key=key, partition=1, headers=headers, timestamp_ms=5)
        submission.send(None)
        submission.close()
        assert door.slow[-1] == ("orders", value, key, 1, headers, 5, awaited)


@pytest.mark.parametrize("why", ["unknown topic", "unknown partition", "no memory", "others wait"])
async def test_what_has_to_wait(why: str) -> None:
    """Records that have to wait go to the slow path unchanged."""
    door = Door(buffer_memory=20_000)
    arguments: dict[str, Any] = {"topic": "orders"}
    if why == "unknown topic":
        arguments["topic"] = "other"
    elif why == "unknown partition":
        arguments["partition"] = 2
    elif why == "no memory":
        door.submit_nowait("orders", bytes(19_000))
    else:
        door._queueing = True
    used = door.accumulator.pool.used_bytes
    with pytest.raises(BufferExhaustedError):
        door.submit_nowait(value=b"v" * 2000, **arguments)
    assert len(door.slow) == 1
    assert door.accumulator.pool.used_bytes == used
    submission = door.submit(value=b"v" * 2000, **arguments)
    submission.send(None)
    assert len(door.slow) == 2
    submission.close()


async def test_only_the_first_waiter_is_admitted_while_calls_wait() -> None:
    """While calls wait for memory only the first of them is admitted, and the accumulator knows that they wait."""
    door = Door()
    door._queueing = True
    assert door._queueing
    assert door.accumulator.memory_short
    assert door._admit("orders", b"v", None, None, None, None, False) is None
    assert door._admit("orders", b"v", None, None, None, None, False, queued=True) is not None
    assert door._queueing
    with pytest.raises(SerializationError):
        door._admit("orders", b"v", None, -1, None, None, False, queued=True)
    assert door._queueing
    door._queueing = False
    assert not door.accumulator.memory_short
    assert door._admit("orders", b"v", None, None, None, None, False) is not None


async def test_topic_that_comes_and_goes() -> None:
    """The cached latest topic is dropped when the cluster changes."""
    door = Door()
    door.submit_nowait("orders", b"v")
    door.written()
    assert door.accumulator.forget_topic("orders")
    door._look_again()
    with pytest.raises(BufferExhaustedError):
        door.submit_nowait("orders", b"v")
    add_topic(door.accumulator)
    door._look_again()
    door.submit_nowait("orders", b"v")
    assert len(door.written()) == 1


# --- giving the loop its turn -----------------------------------------------------------------------------------------


async def submit_and_count(door: Door, count: int, *, size: int, after: Callable[[], None]) -> list[int]:
    """Submit repeatedly, and note before which submits the loop had a turn."""
    ticks = 0
    running = True

    async def tick() -> None:
        nonlocal ticks
        while running:
            ticks += 1
            await asyncio.sleep(0)

    ticker = asyncio.create_task(tick())
    await turns(1)
    seen = []
    for number in range(count):
        before = ticks
        delivery = await door.submit("orders", bytes(size))
        if ticks != before:
            seen.append(number)
        after()
        delivery.cancel()
    running = False
    await ticker
    return seen


async def test_turn_every_millisecond() -> None:
    """A series of submits lets the loop run at least once per millisecond."""
    clock = Clock()
    door = Door(clock=clock)
    door._look_again()

    def pass_time() -> None:
        clock.now_s += 0.0003

    assert await submit_and_count(door, 12, size=10, after=pass_time) == [4, 8]


async def test_turn_every_256_kib() -> None:
    """And at least once per 256 KiB, however fast they are."""
    clock = Clock()
    door = Door(clock=clock)
    await door.submit("orders", b"v")
    seen = await submit_and_count(door, 12, size=65_536 - 83, after=lambda: None)
    assert seen == [3, 7, 11]


async def test_the_millisecond_begins_when_the_loop_comes_back() -> None:
    """However long the turn took that a submit gave the loop: its own millisecond has just begun."""
    clock = Clock()
    door = Door(clock=clock)
    door._look_again()
    clock.now_s += 0.001
    submission = door.submit("orders", b"v")
    assert submission.send(None) is None
    clock.now_s += 0.0012
    with pytest.raises(StopIteration):
        submission.send(None)
    assert not door._turn_is_due
    clock.now_s += 0.001
    assert door._turn_is_due


async def test_nowait_counts_for_the_turn() -> None:
    """The bytes and time of submit_nowait count, although it can't yield to the loop itself."""
    clock = Clock()
    door = Door(clock=clock)
    await door.submit("orders", b"v")
    for _ in range(4):
        door.submit_nowait("orders", bytes(65_536))
    assert await submit_and_count(door, 3, size=10, after=lambda: None) == [0]


async def test_no_turn_without_need() -> None:
    """A few quick submits don't yield to the loop."""
    clock = Clock()
    door = Door(clock=clock)
    await door.submit("orders", b"v")
    assert await submit_and_count(door, 50, size=10, after=lambda: None) == []


@pytest.mark.parametrize(("apart_us", "busy_us"), [(10, 10), (19, 19), (21, 0), (1_000, 0)])
async def test_time_between_calls_right_after_each_other_is_busy_time(apart_us: int, busy_us: int) -> None:
    """By its share the accumulator knows a program that does little but submit."""
    clock = Clock()
    door = Door(clock=clock)
    door.submit_nowait("orders", b"v")
    before_ns = door.accumulator.busy_ns
    for _ in range(20):
        clock.now_s += apart_us / 1e6
        door.submit_nowait("orders", b"v")
    assert door.accumulator.busy_ns - before_ns == pytest.approx(20 * 1_000 * busy_us, abs=100)


async def test_the_turn_comes_after_the_record() -> None:
    """The record is in the buffer before the loop runs: if the task is cancelled then, the record is admitted."""
    door = Door(clock=Clock())
    submission = door.submit("orders", b"v")
    assert submission.send(None) is None
    assert len(door.written()) == 1
    with pytest.raises(asyncio.CancelledError):
        submission.throw(asyncio.CancelledError())


@pytest.mark.parametrize("what", ["wrong type", "too large", "found by the slow path"])
@pytest.mark.parametrize("call", ["submit", "send"])
async def test_bad_records_give_the_turn_too(call: str, what: str) -> None:
    """A program that skips bad records lets the loop run at least once per millisecond, however many they are."""
    clock = Clock()
    door = Door(clock=clock, max_record_bytes=1000, direct=what != "found by the slow path")
    if what == "found by the slow path":
        door.room.set_exception(SerializationError("slow"))
    value = 5 if what == "wrong type" else bytes(2000)
    suspended = []

    def run(submission: Any, number: int) -> None:
        while True:
            assert submission.send(None) is None
            suspended.append(number)

    for number in range(8):
        submission = getattr(door, call)("orders", value)
        with pytest.raises((SerializationError, RecordTooLargeError)):
            run(submission, number)
        with pytest.raises(RuntimeError, match="cannot reuse"):
            submission.send(None)
        clock.now_s += 0.0003
    assert suspended == [0, 4]


@pytest.mark.parametrize("tasks", [1, 2, 10, 30])
async def test_loops_of_submits_share_the_turn(tasks: int) -> None:
    """Concurrent loops share one millisecond per turn, and none of them falls behind."""
    clock = Clock()
    door = Door(clock=clock)
    done = [0] * tasks
    record_s, slice_s = 0.000_01, 0.001 / tasks
    longest_s = 0.0
    began_s = clock.now_s

    def turn() -> None:
        nonlocal began_s, longest_s, handle
        longest_s, began_s = max(longest_s, clock.now_s - began_s), clock.now_s
        handle = asyncio.get_running_loop().call_soon(turn)

    async def loop_of_submits(number: int) -> None:
        while max(done) < 2_000:
            clock.now_s += record_s
            await door.submit("orders", b"v", partition=0)
            done[number] += 1

    handle = asyncio.get_running_loop().call_soon(turn)
    await asyncio.gather(*(loop_of_submits(number) for number in range(tasks)))
    handle.cancel()
    assert longest_s <= tasks * (slice_s + 2 * record_s)
    assert max(done) - min(done) <= 2 * slice_s / record_s + 2
    door.written()


async def test_a_loop_of_submits_that_is_left_alone_has_the_turn_to_itself() -> None:
    clock = Clock()
    door = Door(clock=clock)
    door._look_again()

    async def submit_together(tasks: int) -> None:
        submissions = [door.submit("orders", b"v") for _ in range(tasks)]
        for submission in submissions:
            assert submission.send(None) is None
        await turns(1)
        for submission in submissions:
            with pytest.raises(StopIteration):
                submission.send(None)

    clock.now_s += 0.001
    await submit_together(10)
    clock.now_s += 0.000_2
    await submit_together(1)
    clock.now_s += 0.000_9
    assert not door._turn_is_due


async def test_a_bad_record_cancelled_in_the_turn() -> None:
    """If it is cancelled during the loop's turn, the caller gets the cancellation, not the error."""
    door = Door(clock=Clock())
    submission: Any = door.submit("orders", 5)
    assert submission.send(None) is None
    with pytest.raises(asyncio.CancelledError):
        submission.throw(asyncio.CancelledError())
    with pytest.raises(RuntimeError, match="cannot reuse"):
        submission.send(None)


async def test_refused_at_once() -> None:
    """A call that is refused for its loop, thread or state raises at once, without a turn of the loop."""
    door = Door(clock=Clock())
    door._close_admission()
    with pytest.raises(NotStartedError):
        door.submit("orders", b"v").send(None)


# --- the awaitable ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def quick() -> Door:
    """A door whose submits don't have to yield to the loop."""
    clock = Clock()
    door = Door(clock=clock)
    await door.submit("orders", b"first")
    door.written()
    return door


async def test_is_a_coroutine_to_asyncio(door: Door) -> None:
    """It is accepted wherever a coroutine is required, and shows the names of its methods."""
    calls: list[Any] = [door.submit, door.send]
    for call in calls:
        submission = call("orders", b"v")
        assert submission.__name__ == call.__name__
        assert submission.__qualname__ == f"Producer.{call.__name__}"
        assert inspect.isawaitable(submission)
        assert asyncio.iscoroutine(submission)
        assert inspect.iscoroutine(submission)
        submission.close()


@pytest.mark.parametrize("call", ["submit", "send"])
async def test_a_task_group_of_anyio_may_be_cancelled(door: Door, call: str) -> None:
    """Before version 4.14, anyio takes only what inspect takes for a coroutine, and asks that for its state."""
    submission = getattr(door, call)("unknown", b"v")
    assert inspect.getcoroutinestate(submission) not in (inspect.CORO_RUNNING, inspect.CORO_SUSPENDED)
    task = asyncio.create_task(submission)
    await turns()
    assert inspect.getcoroutinestate(submission) == inspect.CORO_SUSPENDED
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert inspect.getcoroutinestate(submission) == inspect.CORO_CLOSED


async def test_nothing_before_the_first_step(door: Door) -> None:
    """Calling it has no effect yet."""
    submission = door.submit("orders", b"v")
    await turns()
    assert door.written() == []
    await submission
    assert len(door.written()) == 1


@pytest.mark.parametrize("call", ["submit", "send"])
async def test_never_awaited(door: Door, call: str) -> None:
    """Without an await the record is not sent, and there is a warning as for a coroutine."""
    with pytest.warns(RuntimeWarning, match=f"coroutine 'Producer.{call}' was never awaited"):
        getattr(door, call)("orders", b"v")
    assert door.written() == []


async def test_closed_before_the_first_step(door: Door) -> None:
    """Closing it before its first step gives no warning."""
    submission = door.submit("orders", b"v")
    submission.close()
    submission.close()
    del submission
    gc.collect()
    assert door.written() == []


async def test_a_submission_is_awaited_once(quick: Door) -> None:
    """A second await is refused, as for a coroutine."""
    submission = quick.submit("orders", b"v")
    await submission
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await submission
    sent = quick.send("orders", b"v")
    sent.close()
    with pytest.raises(RuntimeError, match="cannot reuse"):
        await sent
    with pytest.raises(SerializationError):
        await (bad := quick.submit("orders", 5))
    with pytest.raises(RuntimeError, match="cannot reuse"):
        await bad
    assert len(quick.written()) == 1


async def test_ways_to_run(door: Door) -> None:
    """create_task, gather, wait_for, shield, ensure_future and TaskGroup accept it."""
    deliveries = [
        await asyncio.create_task(door.submit("orders", b"0")),
        *await asyncio.gather(door.submit("orders", b"1"), door.submit("orders", b"2")),
        await asyncio.wait_for(door.submit("orders", b"3"), 10),
        await asyncio.shield(door.submit("orders", b"4")),
        await asyncio.ensure_future(door.submit("orders", b"5")),
    ]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(door.submit("orders", b"6"))
    deliveries.append(task.result())
    assert {record.value for record in door.written()} == {b"%d" % i for i in range(7)}
    assert all(delivery.done() for delivery in deliveries)


async def test_send_ways_to_run(door: Door) -> None:
    """The same for send, which ends with its record."""
    tasks = [asyncio.create_task(door.send("orders", b"%d" % i, partition=0)) for i in range(5)]
    gathered = asyncio.gather(*(door.send("orders", b"%d" % i, partition=0) for i in range(5, 10)))
    await turns()
    assert not any(task.done() for task in tasks)
    assert "Producer.send" in repr(tasks[0])
    (batch,) = door.batches()
    end(door.accumulator, batch, 100)
    offsets = [metadata.offset for metadata in [*await asyncio.gather(*tasks), *await gathered]]
    assert offsets == list(range(100, 110))


async def test_send_marks_its_batch(door: Door) -> None:
    """A batch with a record of send() does not linger."""
    door.submit_nowait("orders", b"v", partition=0)
    assert door.accumulator.ready(0)[0] == []
    task = asyncio.create_task(door.send("orders", b"v", partition=0))
    await turns()
    assert door.accumulator.ready(0)[0] == [1]
    (batch,) = drain(door.accumulator, now_ms=0)
    end(door.accumulator, batch)
    await task


async def test_serialized_records_linger(door: Door) -> None:
    """As others that are not of send()."""
    loop = asyncio.get_running_loop()
    serializers = (None, lambda topic, headers, value: value)
    door._open_admission(door.accumulator, loop, direct=False, max_record_bytes=1000, serializers=serializers)
    door.submit_nowait("orders", "v", partition=0)
    assert door._admit_serialized("orders", "v", None, 0, None, None) is not None
    assert door.accumulator.ready(0)[0] == []
    assert [record.value for record in door.written()] == [b"v", b"v"]


async def test_send_raises_its_failure(door: Door) -> None:
    """send raises why its record failed; that failure is observed."""
    task = asyncio.create_task(door.send("orders", b"v"))
    await turns()
    (batch,) = door.batches()
    batch.fail(KafkaError("broker"))
    door.accumulator.release(batch)
    with pytest.raises(KafkaError, match="broker"):
        await task
    assert door.accumulator.ledger.unobserved_count == 0


async def test_send_of_a_record_that_has_ended(door: Door) -> None:
    """If the record has ended before send is resumed, it does not wait."""
    submission = door.send("orders", b"v")
    future = submission.send(None)
    assert asyncio.isfuture(future)
    (batch,) = door.batches()
    end(door.accumulator, batch, 9)
    with pytest.raises(StopIteration) as stop:
        submission.send(None)
    assert stop.value.value.offset == 9
    assert future.done()


async def test_a_step_from_python_keeps_nothing_alive(door: Door) -> None:
    """Programs that drive a coroutine themselves take such steps, and so do asyncio's tasks if written in Python."""
    submission = door.send("orders", b"v")
    metadata = None
    submission.send(None)
    end(door.accumulator, *door.batches())
    try:
        submission.send(None)
    except StopIteration as stop:
        metadata = stop.value
    assert metadata is not None
    assert sys.getrefcount(metadata) == 2


async def test_cancelled_before_the_first_step(door: Door) -> None:
    """A task that is cancelled before it began has not sent."""
    calls: list[Any] = [door.submit, door.send]
    for call in calls:
        task = asyncio.create_task(call("orders", b"v"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert door.written() == []


async def test_cancelled_send_goes_on(door: Door) -> None:
    """Cancelling a send whose record is in the buffer does not stop the record's delivery."""
    task = asyncio.create_task(door.send("orders", b"v"))
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (batch,) = door.batches()
    fail(door.accumulator, batch)
    assert door.accumulator.ledger.unobserved_count == 0


@pytest.mark.parametrize("call", ["submit", "send"])
async def test_cancelled_in_the_slow_path(call: str) -> None:
    """Cancelled while it waits for room: not sent."""
    door = Door(direct=False)
    task = asyncio.create_task(getattr(door, call)("orders", b"v"))
    await turns()
    assert len(door.slow) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert door.written() == []


async def test_slow_submit_and_send() -> None:
    """After the slow path, submit and send continue as on the fast path."""
    door = Door(direct=False)
    submitted = asyncio.create_task(door.submit("orders", b"1", partition=0))
    sent = asyncio.create_task(door.send("orders", b"2", partition=0))
    await turns()
    door.room.set_result(None)
    delivery = await submitted
    assert isinstance(delivery, Delivery)
    await turns()
    (batch,) = door.batches()
    end(door.accumulator, batch, 5)
    assert (await sent).offset == 6
    assert (await delivery).offset == 5


async def test_failure_of_the_slow_path() -> None:
    """Errors of the slow path are raised to the caller."""
    door = Door(direct=False)
    door.room.set_exception(BufferExhaustedError("full"))
    calls: list[Any] = [door.submit, door.send]
    for call in calls:
        with pytest.raises(BufferExhaustedError, match="full"):
            await call("orders", b"v")


async def test_late_cancellation_that_the_slow_path_swallows() -> None:
    """If the slow path has admitted the record and swallows the cancellation, submit and send continue."""

    class Stubborn(Door):
        async def _submit_slow(self, *arguments: Any) -> Delivery:
            delivery = self._admit(*arguments)
            assert delivery is not None
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()
            return delivery

    door = Stubborn(direct=False)
    calls: list[Any] = [door.submit, door.send]
    for call in calls:
        task = asyncio.create_task(call("orders", b"v", partition=0))
        await turns()
        task.cancel()
        await turns()
        if call == door.send:
            assert not task.done()
            (*_, batch) = door.batches()
            end(door.accumulator, batch, 3)
        assert await task


async def test_thrown_in() -> None:
    """throw() ends it at every stage with that error; the three-argument form works too."""
    for stage in "fresh", "slow", "waiting":
        door = Door(direct=stage != "slow")
        submission = door.send("orders", b"v")
        if stage != "fresh":
            submission.send(None)
        with pytest.raises(ZeroDivisionError, match="here"):
            submission.throw(ZeroDivisionError, ZeroDivisionError("here"), None)
        with pytest.raises(RuntimeError, match="cannot reuse"):
            submission.send(None)
    for argument in ZeroDivisionError, ZeroDivisionError():
        with pytest.raises(ZeroDivisionError):
            Door().submit("orders", b"v").throw(argument)


async def test_closed_while_it_waits() -> None:
    """close() ends the slow path like any coroutine."""
    ended: list[str] = []

    class Noting(Door):
        async def _submit_slow(self, *arguments: Any) -> Delivery:
            try:
                return await super()._submit_slow(*arguments)
            finally:
                ended.append("slow path")

    door = Noting(direct=False)
    submission = door.send("orders", b"v")
    submission.send(None)
    submission.close()
    assert ended == ["slow path"]


async def test_awaited_by_hand(quick: Door) -> None:
    """__await__, iteration and send(None) step it like a generator."""
    submission: Any = quick.submit("orders", b"v")
    assert submission.__await__() is submission
    assert iter(submission) is submission
    with pytest.raises(StopIteration) as stop:
        next(submission)
    assert isinstance(stop.value.value, Delivery)

    class Wrapped:
        def __await__(self) -> Generator[Any, None, Delivery]:
            return (yield from quick.submit("orders", b"w").__await__())

    assert isinstance(await Wrapped(), Delivery)


async def test_context_of_the_task(quick: Door) -> None:
    """The slow path runs in the context of the task that awaits."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    seen: list[str] = []

    class Looking(Door):
        async def _submit_slow(self, *arguments: Any) -> Delivery:
            seen.append(variable.get())
            return await super()._submit_slow(*arguments)

    door = Looking(direct=False)
    door.room.set_result(None)
    variable.set("mine")
    await door.submit("orders", b"v")
    assert seen == ["mine"]


async def test_order_of_one_task(door: Door) -> None:
    """Records of one task are in call order, however they were sent."""
    for number in range(0, 30, 3):
        await door.submit("orders", b"%d" % number, partition=0)
        door.submit_nowait("orders", b"%d" % (number + 1), partition=0)
        task = asyncio.create_task(door.send("orders", b"%d" % (number + 2), partition=0))
        await turns(1)
        task.cancel()
        await asyncio.wait([task])
    assert [record.value for record in door.written()] == [b"%d" % number for number in range(30)]


# --- memory -----------------------------------------------------------------------------------------------------------


class Payload(bytearray):
    """Bytes whose deallocation can be observed."""


async def test_arguments_are_let_go(quick: Door) -> None:
    """Once the record is in the buffer, nothing references its payload."""

    calls: list[Any] = [quick.submit, quick.send]
    for call in calls:
        payloads = [Payload(b"payload") for _ in range(3)]
        held = [weakref.ref(payload) for payload in payloads]
        arguments: dict[str, Any] = dict(zip(("value", "key", "headers"), payloads, strict=True))
        arguments["headers"] = [("name", arguments["headers"])]
        task = asyncio.create_task(call("orders", **arguments))
        del payloads, arguments
        await turns()
        gc.collect()
        assert [each() for each in held] == [None] * 3
        task.cancel()
        await asyncio.wait([task])


async def test_no_garbage(door: Door) -> None:
    """Submits, sends, failures and cancellations leave nothing behind."""

    async def life() -> None:
        await door.submit("orders", b"v", headers={"a": b"1"}, partition=0)
        door.submit_nowait("orders", b"v", partition=0)
        tasks = [asyncio.create_task(door.send("orders", b"v", partition=0)) for _ in range(4)]
        await turns()
        tasks[0].cancel()
        for bad in (5, "\ud800"):
            with pytest.raises(SerializationError):
                await door.submit("orders", bad)
        door.accumulator.ready(0)
        (batch,) = door.batches()
        batch.fail(KafkaError("no"))
        door.accumulator.release(batch)
        await asyncio.gather(*tasks, return_exceptions=True)
        door.accumulator.ledger.end_flush(door.accumulator.ledger.start_flush(), UNLIMITED)
        door.accumulator.ledger.take_fresh()

    for _ in range(5):
        await life()
    before = allocated_blocks()
    for _ in range(20):
        await life()
    assert allocated_blocks() - before < 20


async def test_a_subclass_is_free_after_use() -> None:
    """Finished submissions do not keep their producer alive."""
    door = Door()
    gone = weakref.ref(door)
    await door.submit("orders", b"v")
    door.submit_nowait("orders", b"v")
    door.written()
    del door
    gc.collect()
    assert gone() is None


def test_threads_do_not_share_a_state() -> None:
    """Each thread may have its own producer."""
    results: list[int] = []

    async def use() -> None:
        door = Door()
        for _ in range(100):
            await door.submit("orders", b"v", partition=0)
        results.append(len(door.written()))

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [100] * 3
