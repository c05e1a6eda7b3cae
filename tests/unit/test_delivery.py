"""Delivery: awaiting it, its result, and callbacks."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
import math
import sys
import time
import traceback
import weakref
from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery import Delivery, watch
from aioproducer._producer_batch import ProducerBatch
from aioproducer.errors import DeliveryTimeoutError, KafkaError, NotLeaderOrFollowerError, WrongLoopError
from aioproducer.records import RecordMetadata
from tests.unit.core import add_topic, allocated_blocks, drain_all, end, fail, filled, make_accumulator, put, split
from tests.unit.waiting import turns


@pytest.fixture
async def accumulator() -> RecordAccumulator:
    return make_accumulator(loop=asyncio.get_running_loop())


def one(accumulator: RecordAccumulator, **record: Any) -> tuple[ProducerBatch, Delivery]:
    """A record alone in its batch, in flight."""
    delivery = put(accumulator, accumulator.topic("orders") or add_topic(accumulator), **record)
    (batch,) = drain_all(accumulator)
    return batch, delivery


# --- what it tells ----------------------------------------------------------------------------------------------------


async def test_an_acknowledged_record_has_its_own_offset(accumulator: RecordAccumulator) -> None:
    """An acknowledged record has its offset: the batch's offset plus its position in the batch."""
    batch, deliveries = filled(accumulator, 3, size=9)
    batch.complete(100, -1)
    assert [delivery.result() for delivery in deliveries] == [
        RecordMetadata("orders", 0, 100, 1_000_000, 1, 9),
        RecordMetadata("orders", 0, 101, 1_000_001, -1, 9),
        RecordMetadata("orders", 0, 102, 1_000_002, 1, 9),
    ]
    assert all(type(delivery.result()) is RecordMetadata for delivery in deliveries)
    accumulator.release(batch)


@pytest.mark.parametrize(
    ("key", "value", "sizes"), [(None, None, (-1, -1)), (b"", b"", (0, 0)), (b"kk", b"vvv", (2, 3))]
)
async def test_serialized_sizes(
    accumulator: RecordAccumulator, key: bytes | None, value: bytes | None, sizes: tuple[int, int]
) -> None:
    """Null is -1, empty is 0."""
    batch, delivery = one(accumulator, key=key, value=value)
    end(accumulator, batch)
    metadata = delivery.result()
    assert (metadata.serialized_key_size, metadata.serialized_value_size) == sizes


async def test_offset_not_told(accumulator: RecordAccumulator) -> None:
    """Without an offset from the broker (acks=0, a duplicate) each record has -1."""
    batch, deliveries = filled(accumulator, 3)
    end(accumulator, batch, -1)
    assert [delivery.result().offset for delivery in deliveries] == [-1, -1, -1]


async def test_log_append_time(accumulator: RecordAccumulator) -> None:
    """Under LogAppendTime the broker's time is the record's."""
    batch, deliveries = filled(accumulator, 2)
    batch.complete(0, 1_800_000_000_000)
    accumulator.release(batch)
    assert [delivery.result().timestamp_ms for delivery in deliveries] == [1_800_000_000_000] * 2


async def test_a_pending_record_has_neither_result_nor_exception(accumulator: RecordAccumulator) -> None:
    batch, delivery = one(accumulator)
    assert not delivery.done()
    assert (delivery.topic, delivery.partition) == ("orders", 0)
    assert "pending" in repr(delivery)
    with pytest.raises(asyncio.InvalidStateError):
        delivery.result()
    with pytest.raises(asyncio.InvalidStateError):
        delivery.exception()
    assert delivery.peek_exception() is None
    end(accumulator, batch)
    assert delivery.done()
    assert delivery.exception() is None
    assert delivery.peek_exception() is None
    assert "acknowledged" in repr(delivery)


async def test_a_failed_record_raises_a_new_copy_of_its_error_each_time(accumulator: RecordAccumulator) -> None:
    """A failed record raises its error, each time a new copy with the same attributes."""
    batch, delivery = one(accumulator)
    error = NotLeaderOrFollowerError("orders-0: moved", maybe_written=True)
    error.__cause__ = OSError("why")
    batch.fail(error)
    accumulator.release(batch)
    assert delivery.done()
    assert "failed" in repr(delivery)
    raised = []
    for _ in range(2):
        with pytest.raises(NotLeaderOrFollowerError, match="orders-0: moved") as caught:
            delivery.result()
        raised.append(caught.value)
    with pytest.raises(NotLeaderOrFollowerError) as caught:
        await delivery
    raised.append(caught.value)
    told = delivery.exception()
    assert isinstance(told, NotLeaderOrFollowerError)
    raised.append(told)
    assert len({id(each) for each in raised}) == 4
    for each in raised:
        assert each.maybe_written
        assert each.__cause__ is error.__cause__
        assert len(traceback.extract_tb(each.__traceback__)) <= 3
    assert error.__traceback__ is None


async def test_ends_once(accumulator: RecordAccumulator) -> None:
    """Later outcomes change nothing."""
    batch, delivery = one(accumulator)
    batch.complete(5, -1)
    batch.fail(KafkaError("too late"))
    batch.complete(6, -1)
    assert delivery.result().offset == 5
    accumulator.release(batch)
    batch, delivery = one(accumulator)
    batch.fail(KafkaError("first"))
    batch.fail(KafkaError("second"))
    batch.complete(6, -1)
    assert str(delivery.exception()) == "first"
    accumulator.release(batch)


async def test_errors_of_single_records(accumulator: RecordAccumulator) -> None:
    """If the broker named records, these have their own errors, and the others the batch's (KIP-467)."""
    batch, deliveries = filled(accumulator, 3)
    batch.fail(KafkaError("batch"), {1: KafkaError("record")})
    accumulator.release(batch)
    assert [str(delivery.exception()) for delivery in deliveries] == ["batch", "record", "batch"]


async def test_cancel_does_nothing(accumulator: RecordAccumulator) -> None:
    """An admitted record can't be recalled."""
    batch, delivery = one(accumulator)
    assert delivery.cancel() is False
    assert delivery.cancel("message") is False
    assert delivery.cancelled() is False
    end(accumulator, batch)
    assert delivery.cancel() is False
    assert await delivery


async def test_truthy_and_hashable(accumulator: RecordAccumulator) -> None:
    """A Delivery can be in sets, and is always true."""
    batch, deliveries = filled(accumulator, 3)
    assert all(deliveries)
    assert len(set(deliveries) | {deliveries[0]}) == 3
    assert deliveries[0] != deliveries[1]
    end(accumulator, batch)
    assert all(deliveries)


def test_not_made_by_hand() -> None:
    """Only the producer creates one."""
    with pytest.raises(TypeError, match="submit"):
        Delivery()


async def test_not_tracked_by_the_collector(accumulator: RecordAccumulator) -> None:
    """A million of them cause no pass of the garbage collector."""
    batch, delivery = one(accumulator)
    assert not gc.is_tracked(delivery)
    assert sys.getsizeof(delivery) <= 64
    end(accumulator, batch)


# --- awaiting ---------------------------------------------------------------------------------------------------------


async def test_await_after_the_end(accumulator: RecordAccumulator) -> None:
    """Awaiting an ended record does not suspend."""
    batch, delivery = one(accumulator)
    end(accumulator, batch, 7)
    steps: list[str] = []
    asyncio.get_running_loop().call_soon(steps.append, "turn")
    assert (await delivery).offset == 7
    assert (await delivery).offset == 7
    assert not steps
    await turns(1)


async def test_await_by_many(accumulator: RecordAccumulator) -> None:
    """Any number of tasks may await one Delivery, before the end and after."""
    batch, delivery = one(accumulator)

    async def wait() -> RecordMetadata:
        return await delivery

    tasks = [asyncio.create_task(wait()) for _ in range(50)]
    await turns()
    assert not any(task.done() for task in tasks)
    end(accumulator, batch, 3)
    assert [metadata.offset for metadata in await asyncio.gather(*tasks, wait())] == [3] * 51


async def test_failure_reaches_everybody(accumulator: RecordAccumulator) -> None:
    """All waiting tasks get the failure."""
    batch, delivery = one(accumulator)

    async def wait() -> RecordMetadata:
        return await delivery

    tasks = [asyncio.create_task(wait()) for _ in range(5)]
    await turns()
    fail(accumulator, batch)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [KafkaError] * 5
    assert len({id(result) for result in results}) == 5


async def test_cancelled_wait_is_that_wait_alone(accumulator: RecordAccumulator) -> None:
    """Cancelling one task that awaits cancels neither the record nor the other waits."""
    batch, delivery = one(accumulator)

    async def wait() -> RecordMetadata:
        return await delivery

    first, second, third = (asyncio.create_task(wait()) for _ in range(3))
    await turns()
    second.cancel()
    await turns()
    assert (first.done(), second.cancelled(), third.done()) == (False, True, False)
    assert not delivery.cancelled()
    end(accumulator, batch, 1)
    assert [(await task).offset for task in (first, third)] == [1, 1]
    assert (await delivery).offset == 1


async def test_wait_for(accumulator: RecordAccumulator) -> None:
    """A timeout of a wait does not stop the record's delivery."""
    batch, delivery = one(accumulator)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(delivery, 0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await delivery
    end(accumulator, batch, 2)
    assert (await asyncio.wait_for(delivery, 10)).offset == 2


async def test_gather_shield_and_ensure_future(accumulator: RecordAccumulator) -> None:
    """asyncio's functions for awaitables accept a Delivery."""
    batch, deliveries = filled(accumulator, 3)
    gathered = asyncio.gather(*deliveries)
    shielded = asyncio.shield(deliveries[0])
    future = asyncio.ensure_future(deliveries[1])
    await turns()
    end(accumulator, batch, 0)
    assert [metadata.offset for metadata in await gathered] == [0, 1, 2]
    assert (await shielded).offset == 0
    assert (await future).offset == 1


async def test_waits_wake_in_one_turn(accumulator: RecordAccumulator) -> None:
    """All tasks that await records of a batch are woken together."""
    batch, deliveries = filled(accumulator, 20)

    async def wait(delivery: Delivery) -> None:
        await delivery

    tasks = [asyncio.create_task(wait(delivery)) for delivery in deliveries]
    await turns()
    end(accumulator, batch)
    await turns(2)
    assert all(task.done() for task in tasks)


@pytest.mark.parametrize("ended", [False, True])
async def test_callbacks_from_elsewhere(accumulator: RecordAccumulator, ended: bool) -> None:
    """Another thread, with or without its own loop, gets an error with a remedy; nothing is attached or lost."""
    called: list[Any] = []
    mine, other = put(accumulator, add_topic(accumulator)), put(accumulator, add_topic(accumulator))
    mine.add_done_callback(called.append)
    if ended:
        for batch in drain_all(accumulator):
            end(accumulator, batch)

    async def in_another_loop() -> None:
        other.add_done_callback(called.append)

    def without_a_loop() -> None:
        other.add_done_callback(called.append)

    for attach in without_a_loop, lambda: asyncio.run(in_another_loop()):
        with pytest.raises(WrongLoopError, match="call_soon_threadsafe"):
            await asyncio.to_thread(attach)
    if not ended:
        for batch in drain_all(accumulator):
            end(accumulator, batch)
    await asyncio.sleep(0)
    assert called == [mine]


def test_callbacks_while_no_loop_runs() -> None:
    """Between two runs of the producer's loop, its thread may add callbacks to a Delivery."""
    loop = asyncio.new_event_loop()
    try:
        accumulator = make_accumulator(loop=loop)
        delivery = put(accumulator, add_topic(accumulator))
        for batch in drain_all(accumulator):
            end(accumulator, batch)
        called: list[Any] = []
        delivery.add_done_callback(called.append)
        loop.run_until_complete(asyncio.sleep(0))
        assert called == [delivery]
    finally:
        loop.close()


async def test_pending_await_in_another_loop(accumulator: RecordAccumulator) -> None:
    """Awaiting a pending Delivery in another loop raises; one that has ended can be awaited anywhere."""
    batch, delivery = one(accumulator)

    async def wait() -> RecordMetadata:
        return await delivery

    def elsewhere() -> RecordMetadata:
        return asyncio.run(wait())

    with pytest.raises(WrongLoopError, match="another event loop"):
        await asyncio.to_thread(elsewhere)
    end(accumulator, batch, 4)
    assert (await asyncio.to_thread(elsewhere)).offset == 4


async def test_steps_by_hand(accumulator: RecordAccumulator) -> None:
    """The awaitable follows the protocol of coroutines: send, throw, close, iteration."""
    batch, delivery = one(accumulator)
    waiter: Any = delivery.__await__()
    assert iter(waiter) is waiter
    assert waiter.__await__() is waiter
    future = next(waiter)
    assert asyncio.isfuture(future)
    assert future._asyncio_future_blocking
    with pytest.raises(ZeroDivisionError):
        delivery.__await__().throw(ZeroDivisionError)
    with pytest.raises(ZeroDivisionError, match="text"):
        delivery.__await__().throw(ZeroDivisionError("text"))
    delivery.__await__().close()
    end(accumulator, batch, 8)
    assert future.done()
    with pytest.raises(StopIteration) as stop:
        waiter.send(None)
    assert stop.value.value == delivery.result()
    with pytest.raises(StopIteration):
        waiter.__next__()


async def test_yield_from(accumulator: RecordAccumulator) -> None:
    """Awaitables written in Python may delegate to it."""
    batch, delivery = one(accumulator)

    class Wrapped:
        def __await__(self) -> Generator[Any, None, RecordMetadata]:
            return (yield from delivery.__await__())

    async def wait() -> Any:
        return await Wrapped()

    task = asyncio.create_task(wait())
    await turns()
    end(accumulator, batch, 9)
    assert (await task).offset == 9


# --- callbacks --------------------------------------------------------------------------------------------------------


async def test_callbacks_in_order_of_admission(accumulator: RecordAccumulator) -> None:
    """Callbacks of a batch are called with their Delivery, in the order of admission, in a later turn of the loop."""
    batch, deliveries = filled(accumulator, 10)
    called: list[Delivery] = []
    for delivery in reversed(deliveries):
        delivery.add_done_callback(called.append)
    deliveries[4].add_done_callback(called.append)
    end(accumulator, batch)
    assert not called
    await turns(1)
    assert called == [*deliveries[:5], deliveries[4], *deliveries[5:]]


async def test_many_callbacks_take_turns() -> None:
    """Thousands of callbacks do not block the loop: some hundred are called per turn, still in order."""
    accumulator = make_accumulator(loop=asyncio.get_running_loop(), batch_size=1 << 20)
    batch, deliveries = filled(accumulator, 1000, size=1)
    called: list[int] = []
    for number, delivery in enumerate(deliveries):
        delivery.add_done_callback(lambda _, number=number: called.append(number))  # type: ignore[misc]
    end(accumulator, batch)
    counts = []
    while len(called) < 1000:
        await turns(1)
        counts.append(len(called))
    assert called == list(range(1000))
    assert counts == [256, 512, 768, 1000]


async def test_callbacks_of_many_batches_take_turns() -> None:
    """Batches that end together share each turn."""
    accumulator = make_accumulator(loop=asyncio.get_running_loop(), batch_size=1 << 20)
    called: list[Delivery] = []
    batches = []
    for _ in range(10):
        batch, deliveries = filled(accumulator, 100, size=1)
        batches.append(batch)
        for delivery in deliveries:
            delivery.add_done_callback(called.append)
    for batch in batches:
        end(accumulator, batch)
    counts = []
    while len(called) < 1000:
        await turns(1)
        counts.append(len(called))
    assert counts == [256, 512, 768, 1000]


async def test_callbacks_after_a_deadline(accumulator: RecordAccumulator) -> None:
    """Whoever waits for callbacks until then gets its turn after each of them, and the others are still called."""

    class Deadline:
        def __init__(self, at: float) -> None:
            self.at = at

    batch, deliveries = filled(accumulator, 3)
    called: list[Delivery] = []
    for delivery in deliveries:
        delivery.add_done_callback(called.append)
    accumulator.ledger.deadlines.update(first=Deadline(math.inf), second=Deadline(0.0))
    end(accumulator, batch)
    for count in 1, 2, 3:
        await turns(1)
        assert called == deliveries[:count]


async def test_callbacks_do_not_pile_up() -> None:
    """Even if a busy loop has few turns, pending callbacks are limited to a few turns' worth of records."""
    accumulator = make_accumulator(loop=asyncio.get_running_loop(), batch_size=1 << 20)
    waiting = 0

    def called(_: Delivery) -> None:
        nonlocal waiting
        waiting -= 1

    most = 0
    for _ in range(100):
        batch, deliveries = filled(accumulator, 1000, size=1)
        for delivery in deliveries:
            delivery.add_done_callback(called)
        end(accumulator, batch)
        waiting += 1000
        await turns(1)
        most = max(most, waiting)
    assert most < 9 * 1000
    while waiting:
        await turns(1)


async def test_callbacks_of_batches_that_end_together_stay_in_order() -> None:
    """The second batch's callbacks start only after all of the first one's, however many there are."""
    accumulator = make_accumulator(loop=asyncio.get_running_loop(), batch_size=1 << 20)
    called: list[int] = []
    batches = []
    for first in (0, 1000):
        batch, deliveries = filled(accumulator, 1000, size=1)
        batches.append(batch)
        for number, delivery in enumerate(deliveries, first):
            delivery.add_done_callback(lambda _, number=number: called.append(number))  # type: ignore[misc]
    for batch in batches:
        end(accumulator, batch)
    while len(called) < 2000:
        await turns(1)
    assert called == list(range(2000))


async def test_callback_after_the_end(accumulator: RecordAccumulator) -> None:
    """A callback that is attached late is called in a later turn, not immediately."""
    batch, delivery = one(accumulator)
    end(accumulator, batch)
    called: list[Delivery] = []
    delivery.add_done_callback(called.append)
    assert not called
    await turns(1)
    assert called == [delivery]
    assert delivery.remove_done_callback(called.append) == 0, "it was called, nothing is left of it"


async def test_callback_runs_in_the_context_of_whoever_attached_it(accumulator: RecordAccumulator) -> None:
    """As with asyncio's futures: in a copy of the caller's context, or in the given one."""
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request")
    seen: list[str] = []

    def note(_: Delivery) -> None:
        seen.append(request.get("none"))
        request.set("changed by a callback")

    async def handle(name: str, *records: Delivery) -> contextvars.Context:
        request.set(name)
        for record in records:
            record.add_done_callback(note)
        return contextvars.copy_context()

    batch, deliveries = filled(accumulator, 4)
    await asyncio.create_task(handle("first", deliveries[0], deliveries[2]))
    given = await asyncio.create_task(handle("second", deliveries[1]))
    deliveries[3].add_done_callback(note, context=given)
    end(accumulator, batch)
    await turns(1)
    assert seen == ["first", "second", "first", "second"]
    assert request.get("none") == "none"
    assert given[request] == "changed by a callback"

    await asyncio.create_task(handle("late", deliveries[0]))
    await turns(1)
    assert seen[4:] == ["late"]


async def test_callback_with_no_context(accumulator: RecordAccumulator) -> None:
    """Anything but a context is refused at once, and nothing is attached."""
    batch, delivery = one(accumulator)
    called: list[Delivery] = []
    with pytest.raises(TypeError, match=r"context=.*contextvars\.Context, not dict"):
        delivery.add_done_callback(called.append, context={})  # type: ignore[arg-type]
    end(accumulator, batch)
    await turns(1)
    assert not called


class Handler:
    async def ended(self, delivery: Delivery) -> None:
        """As a request handler's method would be."""

    async def __call__(self, delivery: Delivery) -> None:
        """The object is a handler itself."""


async def ended(delivery: Delivery) -> None:
    """What is not awaited never runs."""


async def ended_in_steps(delivery: Delivery) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (None, r"add_done_callback\(fn\): a function of the Delivery, not NoneType"),
        ("ended", r"add_done_callback\(fn\): a function of the Delivery, not str"),
        (ended, r"add_done_callback\(fn\): ended is async, but .* give a plain function, which may create a task"),
        (ended_in_steps, r"add_done_callback\(fn\): ended_in_steps is async"),
        (Handler().ended, r"add_done_callback\(fn\): Handler\.ended is async"),
        (Handler(), r"add_done_callback\(fn\): Handler\.__call__ is async"),
        (functools.partial(ended), r"add_done_callback\(fn\): ended is async"),
        (functools.partial(functools.partial(Handler().ended)), r"add_done_callback\(fn\): Handler\.ended is async"),
        (functools.partial(Handler()), r"add_done_callback\(fn\): Handler\.__call__ is async"),
    ],
)
async def test_what_can_not_be_a_callback(accumulator: RecordAccumulator, fn: Any, message: str) -> None:
    """It is refused where it is given, not when the record ends; nothing is attached, or observed."""
    batch, delivery = one(accumulator)
    with pytest.raises(TypeError, match=f"^{message}"):
        delivery.add_done_callback(fn)
    del delivery
    batch.fail(DeliveryTimeoutError("late"))
    accumulator.release(batch)
    assert accumulator.ledger.unobserved_count == 1


async def test_any_callable_may_be_a_callback(accumulator: RecordAccumulator) -> None:
    batch, delivery = one(accumulator)
    called: list[Any] = []

    class Note:
        def __call__(self, delivery: Delivery) -> None:
            called.append("object")

        def method(self, delivery: Delivery) -> None:
            called.append("method")

    note = Note()
    for fn in (note, note.method, functools.partial(note.method), called.append, lambda _: called.append("lambda"), id):
        delivery.add_done_callback(fn)
    end(accumulator, batch)
    await turns(1)
    assert called == ["object", "method", "method", delivery, "lambda"]


async def test_what_the_producer_attaches_sees_no_context_of_a_caller(accumulator: RecordAccumulator) -> None:
    """They see the context of start(), which created the ledger."""
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    batch, delivery = one(accumulator)
    seen: list[str] = []

    async def handle() -> None:
        request.set("somebody's")
        watch(delivery, lambda _: seen.append(request.get()))
        end(accumulator, batch)

    await asyncio.create_task(handle())
    await turns(1)
    assert seen == ["none"]


async def test_callback_that_raises(accumulator: RecordAccumulator) -> None:
    """A callback's exception goes to the loop's exception handler; the others are still called."""
    loop = asyncio.get_running_loop()
    reports: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reports.append(context))
    batch, deliveries = filled(accumulator, 3)
    called: list[Delivery] = []
    error = ValueError("mine")

    def bad(_: Delivery) -> None:
        raise error

    deliveries[0].add_done_callback(called.append)
    deliveries[1].add_done_callback(bad)
    deliveries[2].add_done_callback(called.append)
    end(accumulator, batch)
    await turns(1)
    assert called == [deliveries[0], deliveries[2]]
    assert [report["exception"] for report in reports] == [error]
    deliveries[0].add_done_callback(bad)
    await turns(1)
    assert len(reports) == 2
    loop.set_exception_handler(None)


@pytest.mark.parametrize("end_of_program", [SystemExit, KeyboardInterrupt])
def test_callback_that_ends_the_program(end_of_program: type[BaseException]) -> None:
    """The loop stops; the others are called if it runs again, as programs do to end in order."""
    loop = asyncio.new_event_loop()
    try:
        accumulator = make_accumulator(loop=loop)
        batch, deliveries = filled(accumulator, 2)
        called: list[Delivery] = []

        def leave(_: Delivery) -> None:
            raise end_of_program

        deliveries[0].add_done_callback(leave)
        deliveries[1].add_done_callback(called.append)
        end(accumulator, batch)
        with pytest.raises(end_of_program):
            loop.run_until_complete(turns())
        assert not called
        loop.run_until_complete(turns())
        assert called == [deliveries[1]]
    finally:
        loop.close()


async def test_callback_holds_the_delivery(accumulator: RecordAccumulator) -> None:
    """A callback keeps its Delivery alive, and is called with it."""
    batch, delivery = one(accumulator)
    offsets: list[int] = []
    delivery.add_done_callback(lambda done: offsets.append(done.result().offset))
    del delivery
    end(accumulator, batch, 6)
    await turns(1)
    assert offsets == [6]


async def test_callbacks_are_taken_back(accumulator: RecordAccumulator) -> None:
    batch, deliveries = filled(accumulator, 3)
    called: list[object] = []

    def other(delivery: Delivery) -> None:
        called.append((delivery, "other"))

    for delivery in deliveries:
        for callback in (called.append, other, called.append):
            delivery.add_done_callback(callback)
    assert deliveries[1].remove_done_callback(called.append) == 2
    assert deliveries[2].remove_done_callback(other) == 1
    assert deliveries[2].remove_done_callback(other) == 0
    batch.complete(0, -1)
    await turns()
    first, second, third = deliveries
    assert called == [first, (first, "other"), first, (second, "other"), third, third]
    assert first.remove_done_callback(other) == 0
    accumulator.release(batch)


async def test_a_callback_keeps_its_context_after_a_split(accumulator: RecordAccumulator) -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    batch, deliveries = filled(accumulator, 4)
    seen: list[str] = []
    given = contextvars.copy_context()
    given.run(request.set, "given")
    deliveries[3].add_done_callback(lambda _: seen.append(request.get()), context=given)
    for piece in split(accumulator, batch):
        end(accumulator, piece)
    await turns(1)
    assert seen == ["given"]


async def test_a_callback_is_taken_back_after_a_split(accumulator: RecordAccumulator) -> None:
    batch, deliveries = filled(accumulator, 4)
    called: list[Delivery] = []
    for delivery in deliveries:
        delivery.add_done_callback(called.append)
    pieces = split(accumulator, batch)
    assert deliveries[3].remove_done_callback(called.append) == 1
    for piece in pieces:
        end(accumulator, piece)
    await turns()
    assert called == deliveries[:3]


async def test_asyncio_waits_for_several(accumulator: RecordAccumulator) -> None:
    """They are not futures, but have everything that ``asyncio.wait`` needs."""
    batch, deliveries = filled(accumulator, 3)
    waiting: set[Any] = set(deliveries)
    assert await asyncio.wait(waiting, timeout=0.001) == (set(), waiting)
    soon = asyncio.ensure_future(asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))
    await turns()
    batch.complete(0, -1)
    done, pending = await soon
    assert done | pending == waiting
    assert (await asyncio.wait(waiting))[0] == waiting
    accumulator.release(batch)


async def test_asyncio_waits_for_a_full_batch() -> None:
    """It removes its callbacks one by one; with a linear search for each, the loop would be blocked for a minute."""
    accumulator = make_accumulator(
        loop=asyncio.get_running_loop(), batch_size=8 << 20, sticky_size=8 << 20, max_request_size=8 << 20
    )
    batch, deliveries = filled(accumulator, 50_000, size=1)
    waiting: set[Any] = set(deliveries)
    began_s = time.monotonic()
    assert (await asyncio.wait(waiting, timeout=0.001))[1] == waiting
    assert time.monotonic() - began_s < 10
    end(accumulator, batch)


async def test_callback_may_attach_another(accumulator: RecordAccumulator) -> None:
    """Callbacks may attach callbacks."""
    batch, delivery = one(accumulator)
    called: list[str] = []

    def outer(done: Delivery) -> None:
        called.append("outer")
        done.add_done_callback(lambda _: called.append("inner"))

    delivery.add_done_callback(outer)
    end(accumulator, batch)
    await turns(2)
    assert called == ["outer", "inner"]


def test_end_after_the_loop() -> None:
    """If the loop is closed when a batch ends, no callbacks are called, and nothing breaks."""
    loop = asyncio.new_event_loop()
    accumulator = make_accumulator(loop=loop)
    batch, delivery = one(accumulator)
    called: list[Delivery] = []
    delivery.add_done_callback(called.append)
    loop.close()
    end(accumulator, batch)
    assert delivery.done()
    assert not called


# --- memory -----------------------------------------------------------------------------------------------------------


class Payload:
    """An object whose deallocation can be observed."""


async def test_failures_leave_no_garbage(accumulator: RecordAccumulator) -> None:
    """A coroutine that awaits a failing Delivery in one of its variables is freed afterwards, with the error."""
    alive: list[weakref.ref[Payload]] = []

    async def program() -> None:
        witness = Payload()
        alive.append(weakref.ref(witness))
        batch, delivery = one(accumulator)
        batch.fail(DeliveryTimeoutError("late"))
        accumulator.release(batch)
        for way in (delivery.result, delivery.__await__().__next__):
            with contextlib.suppress(KafkaError):
                way()
        with contextlib.suppress(KafkaError):
            await delivery
        try:
            if (failure := delivery.exception()) is not None:
                raise failure
        except KafkaError:
            failure = None

    for _ in range(3):
        await program()
    gc.collect()
    assert [each() for each in alive] == [None] * 3


async def test_references_of_a_life(accumulator: RecordAccumulator) -> None:
    """Await, callback, split, failure and flush leave no object behind."""

    async def wait(delivery: Delivery) -> None:
        await delivery

    async def life() -> None:
        batch, deliveries = filled(accumulator, 20, size=1)
        tasks = [asyncio.create_task(wait(delivery)) for delivery in deliveries[:5]]
        deliveries[6].add_done_callback(lambda _: None)
        await turns()
        tasks[0].cancel()
        token = accumulator.ledger.start_flush()
        split(accumulator, batch)
        batch.queue.topic.forget_limit()  # otherwise later rounds would have smaller batches
        for number, piece in enumerate(drain_all(accumulator)):
            if number % 2:
                piece.fail(KafkaError("no"))
                accumulator.release(piece)
            else:
                end(accumulator, piece)
        await asyncio.gather(*tasks, return_exceptions=True)
        deliveries.clear()
        assert accumulator.ledger.end_flush(token, accumulator.last_serial)
        accumulator.ledger.take_fresh()

    for _ in range(5):
        await life()
    before = allocated_blocks()
    for _ in range(20):
        await life()
    assert allocated_blocks() - before < 20


async def test_failures_by_the_program_itself_leave_nothing(accumulator: RecordAccumulator) -> None:
    """Nobody has to observe them."""

    def life() -> None:
        batch, deliveries = filled(accumulator, 20)
        fail(accumulator, batch)
        assert deliveries[0].peek_exception() is not None

    def growth() -> int:
        before = allocated_blocks()
        for _ in range(50):
            life()
        return allocated_blocks() - before

    life()
    # What is left by a failure is there each time; what the rest of the process allocates meanwhile is not.
    assert min(growth() for _ in range(3)) < 50
