"""A broker that restarts remembers only the last batch of each producer; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.world import World

UNANSWERED = 4


@pytest.mark.parametrize("written", range(UNANSWERED + 1))
def test_batches_that_were_written_before_a_restart(written: int) -> None:
    """Those before the last one are not recognised when they are repeated, and yet none is in the log twice."""
    world = World(linger_ms=0, batch_size=1)

    async def main() -> None:
        producer, model = world.producer, world.model
        await producer.start()
        await producer.send("orders", b"before")
        for link in world.network.links_of(1):
            link.swallows_down = True
        if written < UNANSWERED:
            model.faults.swallow("Produce", skip=written)
        deliveries = [producer.submit_nowait("orders", b"%d" % number) for number in range(UNANSWERED)]
        await asyncio.sleep(0.05)
        assert len(model.records("orders")) == 1 + written
        model.stop_broker(1)
        world.network.reset(1)
        await asyncio.sleep(2)
        model.start_broker(1)
        for delivery in deliveries:
            await delivery
        await producer.send("orders", b"after")
        values = [record.value for record in model.records("orders")]
        assert values == [b"before", *(b"%d" % number for number in range(UNANSWERED)), b"after"]
        await producer.close()

    world.run_alone(main)


def test_a_batch_whose_follower_is_acknowledged_before_the_restart() -> None:
    """The broker does not recognise it either; it is in the log, as the one behind it would not have been taken."""
    world = World(linger_ms=0, batch_size=1, retry_backoff_ms=1_000)

    async def main() -> None:
        producer, model = world.producer, world.model
        await producer.start()
        await producer.send("orders", b"before")
        model.faults.fail("Produce", 7, apply=True)
        deliveries = [producer.submit_nowait("orders", value) for value in (b"in doubt", b"behind it")]
        await deliveries[1]
        assert not deliveries[0].done()
        model.stop_broker(1)
        world.network.reset(1)
        model.start_broker(1)
        assert (await deliveries[0]).offset == -1
        await producer.send("orders", b"after")
        values = [record.value for record in model.records("orders")]
        assert values == [b"before", b"in doubt", b"behind it", b"after"]
        await producer.close()

    world.run_alone(main)
