"""Copies of batches that a broker reads late, from a connection that the client has given up; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from aioproducer.errors import DeliveryTimeoutError
from tests.simulation.world import World

REFUSED_S = 5
"""When the first batch is refused, and so the second is out of order."""
HELD_UP_S = 4.9
"""From when on the broker reads nothing more from the connection."""
REQUEST_TIMEOUT_S, DELIVERY_TIMEOUT_S = 8, 20


@pytest.mark.parametrize(("backoff_s", "answers"), [(9, False), (12.5, True)])
def test_a_copy_behind_batches_that_were_refused_and_sent_again(backoff_s: float, answers: bool) -> None:
    """It may be written as soon as they are, so its batch is in doubt again when they are sent again.

    Else it would get another number, and be written twice, or if it has expired, the next one would get its number, and
    be acknowledged as a repeat of it, though nobody has written it.
    """
    world = World(
        linger_ms=0,
        batch_size=1,
        request_timeout_ms=REQUEST_TIMEOUT_S * 1000,
        delivery_timeout_ms=DELIVERY_TIMEOUT_S * 1000,
        retry_backoff_ms=int(backoff_s * 1000),
        retry_backoff_max_ms=int(backoff_s * 1000),
    )

    async def main() -> None:
        producer, faults = world.producer, world.model.faults
        await producer.start()
        await producer.send("orders", b"before")
        began_s = world.loop.time()

        async def until(seconds: float) -> None:
            await asyncio.sleep(began_s + seconds - world.loop.time())

        faults.fail("Produce", "NOT_ENOUGH_REPLICAS")
        faults.delay("Produce", REFUSED_S * 1000)
        first = producer.submit_nowait("orders", b"first")
        await until(0.01)
        second = producer.submit_nowait("orders", b"second")
        await until(HELD_UP_S)
        held_up = world.network.links_of(1)
        for link in held_up:
            link.stalled = True
        late = producer.submit_nowait("orders", b"late")
        await until(REFUSED_S + 1)
        if not answers:
            faults.swallow("Produce", when="after", skip=1)
        await until(REFUSED_S + backoff_s + 0.5)
        assert first.exception() is None
        assert second.done() == answers
        for link in held_up:
            link.stalled = False
            link.read()
        await until(HELD_UP_S + DELIVERY_TIMEOUT_S + REQUEST_TIMEOUT_S)
        assert await producer.send("orders", b"after")
        values = [record.value for record in world.model.records("orders", 0)]
        assert values == [b"before", b"first", b"second", b"late", b"after"]
        for delivery in second, late:
            assert delivery.exception() is None or isinstance(delivery.exception(), DeliveryTimeoutError)
        await producer.close()

    world.run_alone(main)
