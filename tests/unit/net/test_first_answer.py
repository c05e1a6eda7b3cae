"""A request to any broker, in virtual time: who is asked when, and whose answer counts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from aioproducer.errors import ConnectionLostError, KafkaError
from aioproducer.net.first_answer import first_answer
from aioproducer.net.nodes import SLOW_MS
from aioproducer.protocol.metadata import MetadataRequest
from tests.unit.waiting import in_virtual_time

REQUEST = MetadataRequest(topics=[])
REFUSED = b"refused"


class Broker:
    """A connection to a broker that answers when the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked_s: list[float] = []
        self.unanswered_since_ms: int | None = None
        self.throttled_until_ms = 0
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def version(self, kind: type[MetadataRequest]) -> int:
        return kind.MAX_VERSION

    def exchange(self, message: MetadataRequest, version: int) -> asyncio.Future[bytes]:
        assert (message, version) == (REQUEST, MetadataRequest.MAX_VERSION)
        self.asked_s.append(now_s())
        self.answer = asyncio.get_running_loop().create_future()
        return self.answer

    def lose(self) -> None:
        self.answer.set_exception(ConnectionLostError(self.name))


class Client:
    """Connections to some brokers; others can be connected to, which takes a while."""

    def __init__(self, *names: str) -> None:
        self.connected = [Broker(name) for name in names]
        self.others: list[Broker] = []
        self.connects_in_s = 0.0
        self.deadlines_ms: list[int] = []

    async def any_ready_connection(self, deadline_ms: int) -> Broker:
        self.deadlines_ms.append(deadline_ms)
        return self.connected[0]

    def least_loaded(self, now_ms: int, *, but_not: list[Broker]) -> Broker | None:
        assert now_ms == int(now_s() * 1000)
        return next((broker for broker in self.connected if broker not in but_not), None)

    def connect_somewhere(self, now_ms: int) -> asyncio.Task[None] | None:
        return asyncio.ensure_future(self._connect(self.others.pop(0))) if self.others else None

    async def _connect(self, broker: Broker) -> None:
        await asyncio.sleep(self.connects_in_s)
        self.connected.append(broker)

    def ask(self) -> asyncio.Task[tuple[str, bytes]]:
        return asyncio.ensure_future(first_answer(self, REQUEST, deadline_ms=7_000, read=read))  # type: ignore[arg-type]


def now_s() -> float:
    return asyncio.get_running_loop().time()


def read(broker: Any, frame: bytes) -> tuple[str, bytes]:
    if frame == REFUSED:
        raise KafkaError(f"refused by {broker.name}")
    return broker.name, frame


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test that runs in virtual time."""

    @wraps(test)
    def run() -> None:
        in_virtual_time(test())

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would see a coroutine function
    return run


@virtually
async def test_the_least_loaded_broker_is_asked() -> None:
    client = Client("one", "two")
    asking = client.ask()
    await asyncio.sleep(0.5)
    client.connected[0].answer.set_result(b"answer")
    assert await asking == ("one", b"answer")
    assert client.deadlines_ms == [7_000]
    assert not client.connected[1].asked_s


@virtually
async def test_the_place_on_a_connection_is_taken_in_the_turn_in_which_it_was_found() -> None:
    """A turn later another request may have taken the last place under max_in_flight_requests_per_connection."""
    client = Client("one")
    asked: list[int] = []
    find = client.any_ready_connection

    async def found(deadline_ms: int) -> Broker:
        broker = await find(deadline_ms)
        asyncio.get_running_loop().call_soon(lambda: asked.append(len(broker.asked_s)))
        return broker

    client.any_ready_connection = found  # type: ignore[method-assign]
    asking = client.ask()
    await asyncio.sleep(0.1)
    assert asked == [1]
    asking.cancel()


@virtually
async def test_a_broker_that_does_not_answer_keeps_no_other_from_being_asked() -> None:
    """One more is asked each second, at most three at a time; the first answer counts, the others are not awaited."""
    client = Client("one", "two", "three", "four")
    one, two, three, four = client.connected
    asking = client.ask()
    await asyncio.sleep(10)
    assert [round(broker.asked_s[0] - one.asked_s[0], 1) for broker in (one, two, three)] == [0, 1, 2]
    assert not four.asked_s
    two.answer.set_result(b"answer")
    assert await asking == ("two", b"answer")
    assert one.answer.cancelled()
    assert three.answer.cancelled()


@pytest.mark.parametrize("trouble", [Broker.lose, lambda broker: broker.answer.set_result(REFUSED)])
def test_a_broker_that_fails_while_another_is_still_asked(trouble: Callable[[Broker], None]) -> None:
    """It is replaced at once, and does not count among the three; the others may still answer."""

    @virtually
    async def run() -> None:
        client = Client("one", "two", "three", "four")
        one, two, three, four = client.connected
        asking = client.ask()
        await asyncio.sleep(2.5)
        trouble(two)
        await asyncio.sleep(0.1)
        assert [len(broker.asked_s) for broker in (one, two, three, four)] == [1, 1, 1, 1]
        one.answer.set_result(b"answer")
        assert await asking == ("one", b"answer")

    run()


@virtually
async def test_the_last_error_is_raised_when_nobody_is_left_who_may_answer() -> None:
    client = Client("one", "two")
    one, two = client.connected
    asking = client.ask()
    await asyncio.sleep(1.5)
    one.lose()
    await asyncio.sleep(5)
    assert not asking.done()
    two.answer.set_result(REFUSED)
    with pytest.raises(KafkaError, match="refused by two"):
        await asking
    assert (len(one.asked_s), len(two.asked_s)) == (1, 1)


@virtually
async def test_a_broker_that_is_connected_because_the_only_one_is_silent_is_asked_as_soon_as_it_is() -> None:
    client = Client("one")
    two = Broker("two")
    client.others, client.connects_in_s = [two], 0.1
    asking = client.ask()
    await asyncio.sleep(0.9)
    assert client.others == [two], "the first one has its second"
    await asyncio.sleep(1)
    (began_s,) = client.connected[0].asked_s
    assert [round(at_s - began_s, 1) for at_s in two.asked_s] == [1.1], "not a second after the attempt began"
    two.answer.set_result(b"answer")
    assert await asking == ("two", b"answer")


@virtually
async def test_a_connection_is_made_if_the_request_would_wait_behind_another() -> None:
    """It goes to the held-up broker all the same, which may be quicker."""
    client = Client("one", "two")
    two, three = client.connected[1], Broker("three")
    two.unanswered_since_ms, client.others = -SLOW_MS, [three]
    asking = client.ask()
    await asyncio.sleep(1.5)
    assert (len(two.asked_s), len(three.asked_s)) == (1, 1)
    two.answer.set_result(b"answer")
    assert await asking == ("two", b"answer")


@virtually
async def test_a_request_that_fails_in_the_turn_of_anothers_answer_is_nobodys() -> None:
    """The loop does not report it."""
    client = Client("one", "two")
    one, two = client.connected
    asking = client.ask()
    await asyncio.sleep(1.5)
    one.answer.set_result(b"answer")
    two.lose()
    assert await asking == ("one", b"answer")
    two.answer = one.answer  # the error is only logged once nothing refers to it
    gc.collect()


@virtually
async def test_cancelled() -> None:
    client = Client("one", "two")
    asking = client.ask()
    await asyncio.sleep(1.5)
    asking.cancel()
    await asyncio.wait([asking])
    assert all(broker.answer.cancelled() for broker in client.connected)
