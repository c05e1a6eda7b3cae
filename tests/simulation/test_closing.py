"""How long close() and flush() take at most, whatever brokers, callbacks and serializers do; in virtual time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from aioproducer import (
    AlreadyStartedError,
    BufferExhaustedError,
    Delivery,
    DeliveryErrors,
    DeliveryTimeoutError,
    FlushTimeoutError,
    KafkaError,
    ProducerClosedError,
)
from tests.simulation.world import World

SLACK_S = 0.1
"""By how much a timeout may be exceeded."""

DAYS_MS = 1_000_000_000
CALLBACK_S = 0.0001
RECORDS = 20_000


async def took(world: World, work: Awaitable[object]) -> float:
    """How many seconds an awaitable takes, ignoring errors."""
    began_s = world.loop.time()
    with suppress(KafkaError):
        await work
    return world.loop.time() - began_s


async def slow_callbacks(world: World) -> list[Delivery]:
    """Records with callbacks that take two seconds in total; returns those that were called, in order."""
    called: list[Delivery] = []

    def callback(delivery: Delivery) -> None:
        world.loop.spend(CALLBACK_S)
        called.append(delivery)

    await world.producer.partitions_for("orders")
    for _ in range(RECORDS):
        (await world.producer.submit("orders", b"v")).add_done_callback(callback)
    return called


async def until_called(called: list[Delivery]) -> None:
    async with asyncio.timeout(60):
        while len(called) < RECORDS:
            await asyncio.sleep(0.01)


class SlowSerializer:
    """A serializer that closes slowly; if ``stubborn``, even when it is cancelled."""

    adds_headers = False

    def __init__(self, close_s: float, *, stubborn: bool = False) -> None:
        self.close_s = close_s
        self.stubborn = stubborn
        self.ends: list[str] = []

    def bind(self, *, is_key: bool, max_block_ms: int) -> SlowSerializer:
        return self

    def serialize_nowait(self, topic: str, headers: Any, value: Any) -> Any:
        return value

    serialize = serialize_nowait

    async def close(self) -> None:
        try:
            await asyncio.sleep(self.close_s)
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            if not self.stubborn:
                raise
            await asyncio.sleep(self.close_s)
        else:
            self.ends.append("closed")


# --- brokers that throttle --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["flush", "close"])
def test_a_throttle_of_days(waits: str) -> None:
    """Possible if a quota is far exceeded. Requests in flight are answered only after it, but not awaited so long."""
    world = World(linger_ms=0, delivery_timeout_ms=40_000, request_timeout_ms=5_000, connections_max_idle_ms=-1)

    async def main() -> None:
        await world.producer.start()
        await world.producer.send("orders", b"v")
        world.model.faults.throttle("Produce", DAYS_MS, times=1)
        answered = await world.producer.submit("orders", b"v")
        await asyncio.sleep(0.0001)
        late = await world.producer.submit("orders", b"v")
        assert await took(world, getattr(world.producer, waits)()) < 45 + SLACK_S
        assert answered.exception() is None
        assert isinstance(error := late.exception(), DeliveryTimeoutError)
        assert error.maybe_written
        if waits == "flush":
            metrics = world.producer.metrics()["producer-metrics"]
            assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
            await world.producer.close()

    world.run_alone(main)


# --- several calls of close -------------------------------------------------------------------------------------------


def test_the_shortest_time_that_anybody_gives_holds() -> None:
    """A later, shorter timeout applies to the running close; a longer one changes nothing."""
    world = World()

    async def main() -> None:
        await world.producer.start()
        world.model.faults.swallow("Produce", times=None)
        delivery = await world.producer.submit("orders", b"v")
        first = asyncio.create_task(took(world, world.producer.close(timeout=50)))
        await asyncio.sleep(1)
        second = asyncio.create_task(took(world, world.producer.close(timeout=0.5)))
        third = asyncio.create_task(took(world, world.producer.close(timeout=20)))
        fourth = asyncio.create_task(took(world, world.producer.close()))
        for task, least_s in (first, 1.5), (second, 0.5), (third, 0.5), (fourth, 0.5):
            assert least_s <= await task < least_s + SLACK_S
        assert isinstance(delivery.exception(), ProducerClosedError)

    world.run_alone(main)


def test_a_shorter_time_holds_while_a_transaction_is_aborted(caplog: pytest.LogCaptureFixture) -> None:
    world = World(transactional_id="t")

    async def main() -> None:
        await world.producer.start()
        await world.producer.begin_transaction()
        await world.producer.send("orders", b"v")
        world.model.faults.swallow("EndTxn", times=None)
        first = asyncio.create_task(took(world, world.producer.close()))
        await asyncio.sleep(1)
        assert 0.5 <= await took(world, world.producer.close(timeout=0.5)) < 0.5 + SLACK_S
        assert await first < 1.5 + SLACK_S

    world.run_alone(main)
    assert "could not be aborted" in caplog.text


def test_a_shorter_time_holds_while_requests_without_answers_leave() -> None:
    world = World(acks=0)

    async def main() -> None:
        await world.producer.start()
        await world.producer.send("orders", b"v")
        for link in world.network.links:
            link.stalled = True
        world.network.conditions.room = 0
        await world.producer.submit("orders", bytes(100_000))
        first = asyncio.create_task(took(world, world.producer.close()))
        await asyncio.sleep(1)
        assert not first.done()
        assert await took(world, world.producer.close(timeout=0.5)) < 0.5 + SLACK_S
        assert await first < 1.5 + SLACK_S

    world.run_alone(main)


# --- while it starts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, 0])
@pytest.mark.parametrize("waits_for", ["a name", "a connection", "ApiVersions", "Metadata", "InitProducerId"])
def test_close_ends_a_start(waits_for: str, timeout: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever start() waits for: it raises at once, and leaves no connection and no task."""
    world = World(transactional_id="t" if waits_for == "InitProducerId" else None)
    if waits_for == "a name":
        monkeypatch.setattr(world.network, "resolve", lambda host: asyncio.sleep(100))
    elif waits_for == "a connection":
        world.network.silent_addresses = {address: None for address, _ in world.network.listeners}
    else:
        world.model.faults.swallow(waits_for, times=None)

    async def main() -> None:
        starting = asyncio.create_task(world.producer.start())
        await asyncio.sleep(1)
        assert await took(world, world.producer.close(timeout)) < SLACK_S
        assert world.network.transports == []
        assert asyncio.all_tasks() <= {asyncio.current_task(), starting}
        with pytest.raises(ProducerClosedError):
            await starting
        with pytest.raises(ProducerClosedError):
            await world.producer.start()

    world.run_alone(main)


def test_a_start_that_is_cancelled_while_it_is_closed_is_cancelled() -> None:
    world = World()
    world.model.faults.swallow("Metadata", times=None)

    async def main() -> None:
        starting = asyncio.create_task(world.producer.start())
        await asyncio.sleep(1)
        closing = asyncio.create_task(world.producer.close())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await closing

    world.run_alone(main)


# --- code of the program's that does not heed its cancellation -------------------------------------------------------


def stubborn(world: World, seconds: float) -> Callable[[str], Awaitable[list[str]]]:
    """An awaitable, such as a token provider, that ignores its cancellation."""
    resolve = world.network.resolve

    async def look_up(host: str) -> list[str]:
        ends_s = world.loop.time() + seconds
        while (left_s := ends_s - world.loop.time()) > 0.001:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(left_s)
        return await resolve(host)

    return look_up


@pytest.mark.parametrize("timeout", [0.5, 0])
def test_close_does_not_wait_longer_for_a_start(
    timeout: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of the start ends by itself, with its connection."""
    world = World()
    monkeypatch.setattr(world.network, "resolve", stubborn(world, 3))

    async def main() -> None:
        starting = asyncio.create_task(world.producer.start())
        await asyncio.sleep(1)
        assert await took(world, world.producer.close(timeout)) < timeout + SLACK_S
        assert "had not ended" in caplog.text
        with pytest.raises(ProducerClosedError):
            await starting
        assert world.network.transports == []

    world.run_alone(main)


@pytest.mark.parametrize("timeout", [None, 0.5, 0])
def test_close_waits_for_the_end_of_a_start_that_has_failed(
    timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start that is still cleaning up is not over: neither for close() nor for another start()."""
    world = World(transactional_id="t")
    world.model.faults.swallow("InitProducerId", times=None)

    async def main() -> None:
        starting = asyncio.create_task(world.producer.start())
        await asyncio.sleep(1)
        monkeypatch.setattr(world.network, "resolve", stubborn(world, 3))
        world.network.reset(1)
        await asyncio.sleep(1)
        starting.cancel()
        await asyncio.sleep(0.5)
        assert not starting.done()
        with pytest.raises(AlreadyStartedError):
            await world.producer.start()
        left_s = await took(world, world.producer.close(timeout))
        if timeout is None:
            assert left_s > 0.5
            assert world.network.transports == []
            assert asyncio.all_tasks() <= {asyncio.current_task(), starting}
        else:
            assert timeout <= left_s < timeout + SLACK_S
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert world.network.transports == []

    world.run_alone(main)


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
@pytest.mark.parametrize("timeout", [0.5, 0, None])
def test_close_does_not_wait_longer_for_an_attempt_to_connect(
    timeout: float | None, strategy: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(metadata_recovery_strategy=strategy)

    async def main() -> None:
        await world.producer.start()
        await world.producer.send("orders", b"v")
        monkeypatch.setattr(world.network, "resolve", stubborn(world, 3))
        world.network.reset(1)
        await asyncio.sleep(1)
        took_s = await took(world, world.producer.close(timeout))
        assert took_s < (3 if timeout is None else timeout) + SLACK_S
        assert ("had not ended" in caplog.text) == (timeout is not None)
        await asyncio.sleep(5)
        assert world.network.transports == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    world.run_alone(main)


# --- callbacks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0.2, 1.0])
def test_flush_does_not_wait_longer_for_callbacks(timeout: float) -> None:
    """The callbacks are still called, and a later flush waits for them."""
    world = World()

    async def main() -> None:
        await world.producer.start()
        called = await slow_callbacks(world)
        began_s = world.loop.time()
        with pytest.raises(FlushTimeoutError, match=r"done callbacks .* go on") as caught:
            await world.producer.flush(timeout)
        assert world.loop.time() - began_s < timeout + SLACK_S
        assert caught.value.pending == 0
        assert caught.value.maybe_written
        assert 0 < len(called) < RECORDS
        await world.producer.flush()
        assert len(called) == len(set(called)) == RECORDS
        await world.producer.close()

    world.run_alone(main)


def test_flush_that_waits_only_for_memory_says_so() -> None:
    """A batch that expired in flight has ended, but keeps its memory until its request ends."""
    world = World(delivery_timeout_ms=3_000, request_timeout_ms=1_900)

    async def main() -> None:
        await world.producer.start()
        await world.producer.partitions_for("orders")
        world.model.faults.swallow("Produce", times=None)
        delivery = world.producer.submit_nowait("orders", b"v")
        with pytest.raises(DeliveryTimeoutError):
            await delivery
        with pytest.raises(FlushTimeoutError, match=r"all records had ended .* memory") as caught:
            await world.producer.flush(0)
        assert caught.value.pending == 0
        assert caught.value.maybe_written
        await world.producer.close()

    world.run_alone(main)


def test_close_does_not_wait_longer_for_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    """The loop continues to call them, and a log line says how many are left."""
    world = World()

    async def main() -> None:
        await world.producer.start()
        called = await slow_callbacks(world)
        assert await took(world, world.producer.close(timeout=0.5)) < 0.5 + SLACK_S
        told = re.search(r"close\(timeout=0.5\): (\d+) done callbacks have not been called yet", caplog.text)
        assert told is not None
        assert 0 <= int(told[1]) - (RECORDS - len(called)) < 10
        await until_called(called)
        assert len(set(called)) == RECORDS

    world.run_alone(main)


def test_close_in_no_time_does_not_wait_for_callbacks() -> None:
    world = World()

    async def main() -> None:
        await world.producer.start()
        world.model.faults.swallow("Produce", times=None)
        called = await slow_callbacks(world)
        assert await took(world, world.producer.close(timeout=0)) < SLACK_S
        await until_called(called)
        assert all(isinstance(delivery.exception(), ProducerClosedError) for delivery in called)

    world.run_alone(main)


def test_close_still_raises_what_nobody_looked_at() -> None:
    """Failures are raised, however long the callbacks of other records take."""
    world = World()

    async def main() -> None:
        await world.producer.start()
        world.model.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1)
        await world.producer.submit("orders", b"refused")
        with pytest.raises(FlushTimeoutError):
            await world.producer.flush(0)
        slow = await slow_callbacks(world)
        with pytest.raises(DeliveryErrors):
            await world.producer.close(timeout=0.5)
        await until_called(slow)

    world.run_alone(main)


# --- compression ------------------------------------------------------------------------------------------------------


def test_close_does_not_wait_longer_for_worker_threads() -> None:
    """A running job can't be stopped; its end is ignored."""
    world = World(compression_type="gzip", batch_size=1 << 20)

    async def main() -> None:
        await world.producer.start()
        await world.producer.partitions_for("orders")
        world.loop.slow_jobs_s = 3.0
        delivery = await world.producer.submit("orders", bytes(500_000))
        assert await took(world, world.producer.close(timeout=0.5)) < 0.5 + SLACK_S
        assert isinstance(delivery.exception(), ProducerClosedError)
        assert world.loop.jobs == 1
        await asyncio.sleep(5)
        metrics = world.producer.metrics()["producer-metrics"]
        assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]

    world.run_alone(main)


# --- who waits to be admitted, and what still runs --------------------------------------------------------------------


def test_who_waits_to_be_admitted_is_turned_away_at_once() -> None:
    """However long close then waits for records admitted before."""
    world = World(buffer_memory=40_000, batch_size=1_000)

    async def main() -> None:
        await world.producer.start()
        await world.producer.partitions_for("orders")
        world.model.faults.swallow("Produce", times=None)
        with suppress(BufferExhaustedError):
            while True:
                world.producer.submit_nowait("orders", bytes(900))
        waiting = [
            asyncio.ensure_future(world.producer.submit("orders", bytes(900))),
            asyncio.ensure_future(world.producer.ready()),
            asyncio.ensure_future(world.producer.partitions_for("nowhere")),
        ]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in waiting)
        closing = asyncio.create_task(took(world, world.producer.close(timeout=5)))
        await asyncio.sleep(0.1)
        for task in waiting:
            assert isinstance(task.exception(), ProducerClosedError)
        assert await closing >= 5

    world.run_alone(main)


def test_close_in_no_time_has_ended_what_runs(caplog: pytest.LogCaptureFixture) -> None:
    """A connection and the producer's tasks end within a few turns, so there is no warning."""
    world = World()

    async def main() -> None:
        await world.producer.start()
        await world.producer.send("orders", b"v")
        await world.producer.close(timeout=0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    world.run_alone(main)
    assert not caplog.records


# --- serializers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stubborn", [False, True])
def test_close_does_not_wait_longer_for_serializers(stubborn: bool, caplog: pytest.LogCaptureFixture) -> None:
    """One that does not end is cancelled, which is logged; the other is still closed."""
    slow, quick = SlowSerializer(3, stubborn=stubborn), SlowSerializer(0)
    world = World(key_serializer=slow, value_serializer=quick)

    async def main() -> None:
        await world.producer.start()
        await world.producer.send("orders", b"v")
        assert await took(world, world.producer.close(timeout=0.5)) < 0.5 + SLACK_S
        assert (slow.ends, quick.ends) == (["cancelled"], ["closed"])
        assert "SlowSerializer.close had not ended after timeout=0.5: cancelled" in caplog.text
        await asyncio.sleep(5)

    world.run_alone(main)


def test_a_serializer_that_is_cancelled_has_a_little_time_to_clean_up() -> None:
    class Tidy(SlowSerializer):
        async def close(self) -> None:
            try:
                await super().close()
            finally:
                await asyncio.sleep(0.01)
                self.ends.append("clean")

    slow = Tidy(3)
    world = World(value_serializer=slow)

    async def main() -> None:
        await world.producer.start()
        await world.producer.close(timeout=0)
        assert slow.ends == ["cancelled", "clean"]

    world.run_alone(main)


def test_serializers_are_closed_also_in_no_time() -> None:
    quick = SlowSerializer(0.01)
    world = World(value_serializer=quick)

    async def main() -> None:
        await world.producer.start()
        await world.producer.close(timeout=0)
        assert quick.ends == ["closed"]

    world.run_alone(main)


def test_a_producer_that_was_not_started_waits_no_longer_either() -> None:
    slow = SlowSerializer(3)
    world = World(value_serializer=slow)

    async def main() -> None:
        assert await took(world, world.producer.close(timeout=0.5)) < 0.5 + SLACK_S

    world.run_alone(main)
    assert slow.ends == ["cancelled"]


def test_without_a_timeout_serializers_have_their_time() -> None:
    slow = SlowSerializer(3)
    world = World(value_serializer=slow)

    async def main() -> None:
        await world.producer.start()
        await world.producer.close()

    world.run_alone(main)
    assert slow.ends == ["closed"]


def test_interceptors_are_closed_though_somebody_cancels_all_tasks() -> None:
    """As asyncio.run does at a second Ctrl-C; an audit has to write its last lines then."""
    closed: list[bool] = []

    class Interceptor:
        def on_acknowledgement(self, metadata: Any, error: Any, headers: Any) -> None:
            pass

        def close(self) -> None:
            closed.append(True)

    world = World(value_serializer=SlowSerializer(100), interceptors=[Interceptor()])

    async def main() -> None:
        await world.producer.start()
        closing = asyncio.create_task(world.producer.close())
        await asyncio.sleep(1)
        assert not closed
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert closed == [True]

    world.run_alone(main)
