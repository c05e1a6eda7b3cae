"""What becomes of records if the program blocks the loop for longer than they may take; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.world import World

BLOCKED_S = 60


def test_records_outlive_a_block() -> None:
    """One is in flight when it begins, and its answer comes meanwhile; another one has just been submitted."""
    world = World(linger_ms=0, request_timeout_ms=1_000, delivery_timeout_ms=2_000)

    async def main() -> None:
        await world.producer.start()
        await world.producer.send("orders", b"first")
        in_flight = await world.producer.submit("orders", b"second")
        await asyncio.sleep(0)
        fresh = await world.producer.submit("orders", b"third")
        world.loop.spend(BLOCKED_S)
        assert [(await delivery).offset for delivery in (in_flight, fresh)] == [1, 2]
        await world.producer.close()

    world.run_alone(main)


@pytest.mark.parametrize("closes", [False, True])
def test_a_flush_or_close_outlives_a_block(closes: bool) -> None:
    """The answer that it waits for comes meanwhile."""
    world = World()

    async def main() -> None:
        await world.producer.start()
        world.model.faults.delay("Produce", 1_500)
        delivery = await world.producer.submit("orders", b"first")
        world.loop.call_later(1, world.loop.spend, BLOCKED_S)
        await (world.producer.close(timeout=2) if closes else world.producer.flush(timeout=2))
        assert (await delivery).offset == 0
        await world.producer.close()

    world.run_alone(main)
