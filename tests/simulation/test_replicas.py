"""Replicas that do not have the same, and leaders that do not know their successors; in virtual time."""

from __future__ import annotations

import asyncio

from aioproducer.testing.fake.metadata import fall_behind
from tests.simulation.world import World


def test_a_leader_of_the_past_decides_nothing_about_batches_that_its_successor_may_have() -> None:
    """A client reaches nobody but a broker that is cut off from its cluster, and so tells what was true before.

    It expects a batch that its successor has acknowledged long ago, so it refuses those behind it for good, though the
    successor has written them, too.
    """
    world = World(brokers=2, linger_ms=0, batch_size=1, request_timeout_ms=1000, retry_backoff_max_ms=200)

    async def main() -> None:
        producer, model, network = world.producer, world.model, world.network
        model.create_topic("copies", assignments={0: [1, 2]})
        await producer.start()
        await producer.send("copies", b"before")
        fall_behind(model, 1)
        model.cut_off(1)
        network.refusing[1] = None
        network.reset(1)
        network.point("bootstrap.invalid", 2)
        await producer.send("copies", b"at the successor")
        for link in network.links_of(2):
            link.swallows_down = True
        deliveries = [producer.submit_nowait("copies", value) for value in (b"first", b"second")]
        await asyncio.sleep(0.1)
        network.refusing[2] = network.refusing.pop(1)
        network.reset(2)
        await asyncio.sleep(20)
        del network.refusing[2]
        model.outdated.clear()
        model.reconnect(1)
        for delivery in deliveries:
            await delivery
        await producer.send("copies", b"after")
        values = [record.value for record in model.records("copies")]
        assert values == [b"before", b"at the successor", b"first", b"second", b"after"]
        await producer.close()

    world.run_alone(main)
