"""User-defined interceptors, serializers and partitioners: their arguments, and what happens to their errors."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import time
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aioproducer.errors import KafkaError, RecordTooLargeError, SerializationError, SerializerNotReadyError
from aioproducer.record_preparation import RecordPreparation
from aioproducer.records import BatchResult, PartitionInfo, Record, RecordMetadata

METADATA = RecordMetadata("orders", 0, 1, 2, 3, 4)


def partitions_of(topic: str) -> tuple[PartitionInfo, ...]:
    return tuple(PartitionInfo(topic, number, 1, (1,), (1,), ()) for number in range(3))


LIMITS = {"max_block_ms": 60_000, "max_record_bytes": 1_000}


def preparation(**options: Any) -> RecordPreparation:
    usual: dict[str, Any] = {"interceptors": (), "key_serializer": None, "value_serializer": None, "partitioner": None}
    return RecordPreparation(**{**usual, **LIMITS, "client_id": "producer-1", **options})


def record(value: Any = b"value", key: Any = b"key", **fields: Any) -> Record:
    return Record(value, key, **{"topic": "orders", "headers": [("h", b"1")], **fields})


# --- nothing to do ----------------------------------------------------------------------------------------------------


def test_preparation_is_trivial_if_no_user_code_has_to_run() -> None:
    """Whether any user code has to run."""
    assert preparation().is_trivial
    for option in (
        {"interceptors": [Noting()]},
        {"key_serializer": str},
        {"value_serializer": str},
        {"partitioner": lambda *_: 0},
    ):
        assert not preparation(**option).is_trivial
    assert preparation(interceptors=[Noting()]).intercepts
    assert not preparation(key_serializer=str).intercepts


def test_serializers_run_at_once_if_no_other_user_code_has_to() -> None:
    """The compiled core calls them without a Record, which interceptors and partitioners get."""
    assert preparation().serializers_at_once == (None, None)
    key, value = preparation(value_serializer=str).serializers_at_once or (str, None)
    assert (key, callable(value)) == (None, True)
    for other in {"interceptors": [Noting()]}, {"partitioner": lambda *_: 0}:
        assert preparation(value_serializer=str, **other).serializers_at_once is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, None),
        (b"bytes", b"bytes"),
        ("é", "é".encode()),
        (bytearray(b"array"), b"array"),
        (memoryview(b"s-t-e-p")[::2], b"step"),
    ],
    ids=["None", "bytes", "str", "bytearray", "memoryview"],
)
async def test_without_serializers(data: Any, expected: bytes | None) -> None:
    """Bytes-like objects and str need no serializer."""
    for result in (
        preparation().serialize_nowait(record(data, data)),
        await preparation().serialize(record(data, data)),
    ):
        assert result == (expected, expected)
        assert all(type(each) in (bytes, type(None)) for each in result)


async def test_what_is_above_the_limit_is_not_copied() -> None:
    terabyte: Any = np.broadcast_to(np.uint8(0), 1 << 40)
    with pytest.raises(RecordTooLargeError):
        preparation().serialize_nowait(record(terabyte))
    with pytest.raises(RecordTooLargeError):
        await preparation(key_serializer=lambda key: key).serialize(record(key=terabyte))


# --- serializers ------------------------------------------------------------------------------------------------------


class Aware:
    """A serializer that looks at topic and headers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, Any]] = []

    def serialize(self, topic: str, headers: Any, value: Any) -> bytes:
        self.seen.append((topic, headers, value))
        return b"aware"


class AwareLater(Aware):
    """The same, asynchronous."""

    async def serialize(self, topic: str, headers: Any, value: Any) -> bytes:  # type: ignore[override]
        await asyncio.sleep(0)
        return super().serialize(topic, headers, value)


async def later(value: Any) -> bytes:
    await asyncio.sleep(0)
    return b"later " + str(value).encode()


async def test_key_and_value_have_functions_of_their_own() -> None:
    """A function gets the value and returns bytes; key and value have their own."""
    prepared = preparation(key_serializer=lambda key: b"k%d" % key, value_serializer=lambda value: b"v%d" % value)
    assert prepared.serialize_nowait(record(5, 6)) == (b"k6", b"v5")
    assert await prepared.serialize(record(5, 6)) == (b"k6", b"v5")


async def test_an_object_with_serialize_gets_topic_and_headers() -> None:
    """An object with serialize() gets topic and headers, too."""
    key, value = Aware(), AwareLater()
    prepared = preparation(key_serializer=key, value_serializer=value)
    assert await prepared.serialize(record(5, 6)) == (b"aware", b"aware")
    assert key.seen == [("orders", [("h", b"1")], 6)]
    assert value.seen == [("orders", [("h", b"1")], 5)]


async def test_asynchronous_functions() -> None:
    """A serializer may be a coroutine function, or return any awaitable."""

    def future(_: Any) -> Awaitable[bytes]:
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting.set_result(b"future")
        return waiting

    prepared = preparation(key_serializer=later, value_serializer=future)
    assert await prepared.serialize(record(5, 6)) == (b"later 6", b"future")


async def test_null_is_not_serialized() -> None:
    """None stays a null, whatever the serializer would make of it."""
    prepared = preparation(key_serializer=lambda _: b"never", value_serializer=later)
    assert await prepared.serialize(record(None, None)) == (None, None)
    assert prepared.serialize_nowait(record(None, None)) == (None, None)


@pytest.mark.parametrize(
    ("result", "expected"), [(None, None), ("text", b"text"), (bytearray(b"a"), b"a"), (memoryview(b"m"), b"m")]
)
async def test_a_serializer_may_return_none_text_or_any_bytes_like_object(result: Any, expected: bytes | None) -> None:
    """A serializer may return None, str, or any bytes-like object."""
    prepared = preparation(value_serializer=lambda _: result)
    assert (await prepared.serialize(record(5)))[1] == expected
    assert type((await prepared.serialize(record(5)))[1]) in (bytes, type(None))


@pytest.mark.parametrize("result", [5, 1.5, [b"x"], {}, "\ud800"], ids=repr)
async def test_wrong_results(result: Any) -> None:
    """Anything else is a SerializationError that says whether it was the key or the value."""
    for which in "key", "value":
        prepared = preparation(**{f"{which}_serializer": lambda _: result})
        with pytest.raises(SerializationError, match=f"the {which} of a record for topic 'orders' is a "):
            await prepared.serialize(record())
        with pytest.raises(SerializationError, match=f"the {which} of a record"):
            prepared.serialize_nowait(record())


async def test_a_result_that_holds_python_objects() -> None:
    """Its buffer holds addresses in this process, not the objects' content."""
    prepared = preparation(key_serializer=lambda _: (ctypes.py_object * 1)("tag"))
    with pytest.raises(SerializationError, match=r"the key of a record .* is a .*; bytes-like"):
        await prepared.serialize(record())


async def test_a_result_that_is_not_there_any_more() -> None:
    """An exception of a buffer's exporter becomes a SerializationError, as without a serializer."""
    view = memoryview(b"v")
    view.release()
    prepared = preparation(value_serializer=lambda _: view)
    with pytest.raises(SerializationError, match=r"the value of a record .* is a memoryview; bytes-like"):
        await prepared.serialize(record())
    with pytest.raises(SerializationError, match=r"the value of a record .* is a memoryview; bytes-like"):
        prepared.serialize_nowait(record())


@pytest.mark.parametrize("error", [ValueError("secret"), asyncio.CancelledError("secret")], ids=repr)
async def test_serializer_that_raises(error: BaseException) -> None:
    """A serializer's exception is the cause of a SerializationError, whose message has neither payload nor its text.

    So is the CancelledError of a future that it awaited or looked at.
    """
    name = type(error).__name__

    def broken(_: Any) -> bytes:
        raise error

    async def broken_later(_: Any) -> bytes:
        await asyncio.sleep(0)
        raise error

    for serializer in broken, broken_later:
        with pytest.raises(SerializationError, match=rf"^key_serializer raised {name} .* 'orders'$") as caught:
            await preparation(key_serializer=serializer).serialize(record("secret"))
        assert caught.value.__cause__ is error
    with pytest.raises(SerializationError, match=f"value_serializer raised {name}") as caught:
        preparation(value_serializer=broken).serialize_nowait(record("secret"))
    assert caught.value.__cause__ is error


async def test_asynchronous_serializer_without_waiting() -> None:
    """submit_nowait can't await: the error names calls that can, and no coroutine is left unawaited."""
    prepared = preparation(value_serializer=later)
    with pytest.raises(
        SerializationError, match=r"value_serializer for topic 'orders' is asynchronous: await submit\(\)"
    ):
        prepared.serialize_nowait(record())
    futures: list[asyncio.Future[bytes]] = [asyncio.get_running_loop().create_future()]
    with pytest.raises(SerializationError, match="asynchronous"):
        preparation(value_serializer=lambda _: futures[0]).serialize_nowait(record())


async def test_cancelled_in_a_serializer() -> None:
    """A cancellation is not an error of the serializer."""

    async def forever(_: Any) -> bytes:
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await waiting

    task = asyncio.create_task(preparation(value_serializer=forever).serialize(record()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- partitioner ------------------------------------------------------------------------------------------------------


def test_the_partitioner_decides_unless_the_record_names_a_partition() -> None:
    """It gets the topic, the serialized key and value, and the partitions; its choice is used."""
    seen: list[Any] = []

    def choose(*arguments: Any) -> int:
        seen.append(arguments)
        return 2

    prepared = preparation(partitioner=choose)
    assert prepared.choose_partition(record(), b"k", b"v", partitions_of) == 2
    assert seen == [("orders", b"k", b"v", partitions_of("orders"))]
    assert prepared.choose_partition(record(partition=0), b"k", b"v", partitions_of) == 0
    assert len(seen) == 1, "an explicit partition wins"
    assert preparation(partitioner=lambda *_: 0).choose_partition(record(), b"k", b"v", partitions_of) == 0
    assert preparation().choose_partition(record(), b"k", b"v", partitions_of) is None


def test_a_choice_that_is_no_int() -> None:
    """Other integers, such as numpy's, are accepted."""

    class Number:
        def __index__(self) -> int:
            return 2

    chosen = preparation(partitioner=lambda *_: Number()).choose_partition(record(), None, None, partitions_of)
    assert type(chosen) is int
    assert chosen == 2


class Indexless:
    """An integer that can't tell its value."""

    def __index__(self) -> int:
        raise RuntimeError("secret")


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        (-1, "-1"),
        (3, "3"),
        (None, "a NoneType"),
        (True, "a bool"),
        ("secret", "a str"),
        (b"secret", "a bytes"),
        (1.0, "a float"),
        ({"secret": 1}, "a dict"),
        (Indexless(), "a Indexless"),
    ],
)
def test_wrong_choices(wrong: Any, shown: str) -> None:
    """Anything but a partition of the topic is refused; the error lists the existing ones, but shows only numbers.

    A partitioner may return the key by mistake.
    """
    with pytest.raises(
        SerializationError,
        match=rf"^the partitioner returned {shown} for topic 'orders', which has partitions 0 to 2$",
    ):
        preparation(partitioner=lambda *_: wrong).choose_partition(record(), None, None, partitions_of)


@pytest.mark.parametrize("error", [ValueError("secret"), asyncio.CancelledError("secret")], ids=repr)
def test_partitioner_that_raises(error: BaseException) -> None:
    """Its exception is the cause of a SerializationError."""

    def broken(*_: Any) -> int:
        raise error

    name = type(error).__name__
    with pytest.raises(SerializationError, match=rf"^the partitioner raised {name} .*'orders'$") as caught:
        preparation(partitioner=broken).choose_partition(record(), None, None, partitions_of)
    assert caught.value.__cause__ is error


# --- interceptors -----------------------------------------------------------------------------------------------------


class Noting:
    """An interceptor that changes the value and records its calls."""

    def __init__(self, mark: bytes = b"") -> None:
        self.mark = mark
        self.ends: list[tuple[Any, Any, Any]] = []
        self.closed = 0

    def on_send(self, record: Record) -> Any:
        return Record(record.value + self.mark, record.key, topic=record.topic, headers=record.headers)

    def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
        self.ends.append((metadata, error, headers))

    def on_start(self, client_id: str) -> None:
        self.ends.append(client_id)  # type: ignore[arg-type]

    def on_cluster(self, cluster_id: str) -> None:
        self.ends.append(cluster_id)  # type: ignore[arg-type]

    def on_transaction_begin(self) -> None:
        self.ends.append("begin")  # type: ignore[arg-type]

    def on_transaction_end(self, committed: bool) -> None:
        self.ends.append(committed)  # type: ignore[arg-type]

    def close(self) -> None:
        self.closed += 1


class Broken(Noting):
    """An interceptor whose methods all raise."""

    def __init__(self, error: type[BaseException] = ZeroDivisionError) -> None:
        super().__init__()
        self.error = error

    def on_send(self, record: Record) -> Any:
        raise self.error

    def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
        raise self.error

    def on_start(self, client_id: str) -> None:
        raise self.error

    def on_cluster(self, cluster_id: str) -> None:
        raise self.error

    def on_transaction_begin(self) -> None:
        raise self.error

    def on_transaction_end(self, committed: bool) -> None:
        raise self.error

    def close(self) -> None:
        raise self.error


class Returning(Noting):
    """An interceptor whose on_send returns a given object."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def on_send(self, record: Record) -> Any:
        return self.result


def test_one_after_the_other() -> None:
    """Each interceptor gets the record that the previous one returned."""
    prepared = preparation(interceptors=[Noting(b" one"), Noting(b" two")])
    assert prepared.intercept(record(b"v")).value == b"v one two"


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
def test_interceptor_that_raises(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    """One that raises is logged and skipped; the others are called. A future's cancellation is not the caller's."""
    last = Noting(b" last")
    prepared = preparation(interceptors=[Broken(error), last])
    prepared.started("shop")
    prepared.cluster_known("blue")
    assert prepared.intercept(record(b"v")).value == b"v last"
    prepared.ended(METADATA, None, None)
    prepared.transaction_began()
    prepared.transaction_ended(True)
    prepared.close()
    assert last.ends == ["shop", "blue", (METADATA, None, None), "begin", True]
    assert last.closed == 1
    calls = ("on_start", "on_cluster", "on_send", "on_ack", "on_transaction_begin", "on_transaction_end", "close")
    assert [entry.levelno for entry in caplog.records] == [logging.WARNING] * 7
    assert [call in entry.getMessage() for call, entry in zip(calls, caplog.records, strict=True)]
    assert all(entry.exc_info for entry in caplog.records)


def test_interceptor_that_fails_for_each_record_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    prepared = preparation(interceptors=[Broken(ZeroDivisionError), Returning(5)])
    for _ in range(1_000):
        prepared.intercept(record())
        prepared.ended(METADATA, None, None)
    told = ["Broken.on_send raised", "Returning.on_send returned a int", "Broken.on_acknowledgement raised"]
    assert [each in message for each, message in zip(told, caplog.messages, strict=True)] == [True] * 3
    now_s += 60
    prepared.intercept(record())
    assert "Broken.on_send raised" in caplog.messages[3]


def test_interceptors_hear_of_calls_with_many_records() -> None:
    heard: list[Any] = []

    class Bulk:
        def on_send(self, record: Record) -> Record:
            return record

        def on_bulk_begin(self, topic: str | None) -> None:
            heard.append(topic)

        def on_bulk_end(self, result: Any, error: Any) -> None:
            heard.append((result, error))

    prepared = preparation(interceptors=[Noting(), Bulk()])
    prepared.bulk_began("orders")
    result, error = BatchResult(1, 0, {}, []), ValueError()
    prepared.bulk_ended(result, None)
    prepared.bulk_ended(None, error)
    assert heard == ["orders", (result, None), (None, error)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interceptor_that_ends_the_program(error: type[BaseException]) -> None:
    prepared = preparation(interceptors=[Broken(error)])
    with pytest.raises(error):
        prepared.intercept(record(b"v"))
    with pytest.raises(error):
        prepared.close()


@pytest.mark.parametrize("result", [None, b"bytes", 5])
def test_interceptor_that_returns_no_record(result: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One that returns something other than a Record is logged and skipped."""
    prepared = preparation(interceptors=[Returning(result), Noting(b" last")])
    assert prepared.intercept(record(b"v")).value == b"v last"
    assert "Returning.on_send returned a" in caplog.text


def test_interceptor_that_forgets_the_topic() -> None:
    """A record without a topic keeps the call's; one with another topic goes there."""
    assert preparation(interceptors=[Returning(Record(b"new"))]).intercept(record()).topic == "orders"
    assert preparation(interceptors=[Returning(Record(b"new", topic="audit"))]).intercept(record()).topic == "audit"


def test_headers_that_can_be_read_once(caplog: pytest.LogCaptureFixture) -> None:
    """An iterator, of the program or an interceptor, becomes a list; if an interceptor's raises, that is its error."""

    class Adding(Noting):
        def on_send(self, record: Record) -> Record:
            return replace(record, headers=(header for header in [*(record.headers or ()), ("added", b"2")]))

    class Failing(Noting):
        def on_send(self, record: Record) -> Record:
            return replace(record, headers=((name, value[0]) for name, value in [("none", ())]))  # type: ignore[misc]

    given = replace(record(b"v"), headers=iter([("h", b"1")]))
    prepared = preparation(interceptors=[Adding(), Failing()])
    assert prepared.intercept(given).headers == [("h", b"1"), ("added", b"2")]
    assert "Failing.on_send raised" in caplog.text


def test_interceptors_hear_the_end() -> None:
    """Each gets metadata or error, with the record's headers."""
    both = [Noting(), Noting()]
    prepared = preparation(interceptors=both)
    error = KafkaError("no")
    prepared.ended(METADATA, None, [("h", b"1")])
    prepared.ended(None, error, None)
    for each in both:
        assert each.ends == [(METADATA, None, [("h", b"1")]), (None, error, None)]


# --- serializers that are bound ---------------------------------------------------------------------------------------


class Bindable:
    """A serializer that is bound to its use, and has to fetch something first."""

    def __init__(self, adds_headers: bool = False, failure: BaseException | None = None) -> None:
        self.adds_headers = adds_headers
        self.failure = failure or RuntimeError("twice")
        self.uses: list[tuple[bool, int]] = []
        self.closed = 0

    def bind(self, *, is_key: bool, max_block_ms: int) -> Bindable:
        self.uses.append((is_key, max_block_ms))
        return self

    async def serialize(self, topic: str, headers: Any, value: Any) -> bytes:
        return b"waited"

    def serialize_nowait(self, topic: str, headers: Any, value: Any) -> bytes:
        raise SerializerNotReadyError("prepare it")

    async def close(self) -> None:
        self.closed += 1
        if self.closed > 1:
            raise self.failure


async def test_bound_serializers() -> None:
    """They learn whether they serialize keys or values, and how long they may wait; calls that can't wait differ."""
    serializer = Bindable()
    prepared = preparation(key_serializer=serializer, value_serializer=serializer, max_block_ms=5)
    assert serializer.uses == [(True, 5), (False, 5)]
    assert not prepared.is_trivial
    assert not prepared.adds_headers
    assert await prepared.serialize(record(5, 6)) == (b"waited", b"waited")
    with pytest.raises(SerializerNotReadyError, match="prepare it"):
        prepared.serialize_nowait(record(5, 6))
    adding = preparation(value_serializer=Bindable(adds_headers=True))
    assert adding.adds_headers
    assert adding.serializers_at_once is None


@pytest.mark.parametrize("failure", [RuntimeError("twice"), asyncio.CancelledError("of a task that it awaits")])
async def test_closing_bound_serializers(failure: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """Each use is closed; one that fails is logged and does not stop the others."""
    serializer, other = Bindable(failure=failure), Bindable(failure=failure)
    prepared = preparation(key_serializer=serializer, value_serializer=other)
    for closing in prepared.closing_serializers().values():
        await closing
    assert (serializer.closed, other.closed) == (1, 1)
    for closing in prepared.closing_serializers().values():
        await closing
    assert (serializer.closed, other.closed) == (2, 2)
    assert "Bindable.close raised" in caplog.text
    assert all(entry.exc_info for entry in caplog.records)


async def test_errors_that_say_it_themselves_are_left_alone() -> None:
    """A serializer's own SerializationError is raised unchanged."""
    error = SerializationError("the field x is none")

    def raising(value: Any) -> bytes:
        raise error

    async def raising_later(value: Any) -> bytes:
        raise error

    for serializer in (raising, raising_later):
        with pytest.raises(SerializationError) as raised:
            await preparation(value_serializer=serializer).serialize(record(5))
        assert raised.value is error
