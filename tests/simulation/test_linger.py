"""How long records linger by default: what is promised at a moderate rate, more at full speed; in virtual time."""

from __future__ import annotations

import asyncio

from aioproducer.config.batching import LINGER_STRETCH
from tests.simulation.world import World

LINGER_S = 0.005
ANSWERED_S = 0.006
"""The longest that the network and the broker take in this world."""
PARTITIONS = 1_000
SUBMIT_S = 0.000_015
"""From one call to the next, if the program does little else."""


def test_at_a_moderate_rate_records_linger_no_longer_than_promised() -> None:
    """Although every batch holds only one record or two: the time between two calls belongs to the program."""
    world = World()

    async def main() -> None:
        await world.producer.start()
        await world.producer.send("orders", b"first")
        took_s: list[float] = []
        for _ in range(100):
            submitted_s = world.loop.time()
            delivery = await world.producer.submit("orders", b"v")
            delivery.add_done_callback(lambda _, since_s=submitted_s: took_s.append(world.loop.time() - since_s))
            await asyncio.sleep(0.003)
        await world.producer.close()
        assert len(took_s) == 100
        assert max(took_s) < 2 * LINGER_S + ANSWERED_S

    world.run_alone(main)


def test_at_full_speed_batches_of_few_records_linger_longer() -> None:
    """Until the stretched linger is over; else a batch would hold a third of a record."""
    world = World()

    async def main() -> None:
        world.model.create_topic("wide", PARTITIONS, 1)
        await world.producer.start()
        await world.producer.partitions_for("wide")
        began_s = world.loop.time()
        first = await world.producer.submit("wide", b"v", partition=0)
        count = 1
        while not first.done():
            world.loop.spend(SUBMIT_S)
            await world.producer.submit("wide", b"v", partition=count % PARTITIONS)
            count += 1
        stretched_s = LINGER_STRETCH * LINGER_S
        assert stretched_s <= world.loop.time() - began_s < 1.5 * stretched_s
        await world.producer.close()

    world.run_alone(main)
