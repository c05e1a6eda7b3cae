"""What has to wait when a broker holds back the answer to a Produce, and what does not; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.world import World

HELD_S = 20
ASKED_ASIDE_S = 1.5
"""When a second connection has brought an answer: it is opened after one second."""


def connections(world: World) -> float:
    """The number of open connections."""
    count: float = world.producer.metrics()["producer-metrics"]["connection-count"]
    return count


@pytest.mark.parametrize(("brokers", "in_flight"), [(1, 5), (1, 1), (3, 5)])
def test_new_topics_do_not_wait_for_a_slow_replica(brokers: int, in_flight: int) -> None:
    """Not even if all brokers hold back an answer. The delayed records are in the log in order, once."""
    world = World(brokers=brokers, linger_ms=0, max_in_flight_requests_per_connection=in_flight, batch_size=1)

    async def main() -> None:
        await world.producer.start()
        for partition in range(brokers):  # so that each broker has a connection, and its partition a written batch
            await world.producer.send("orders", b"first", partition=partition)
        settled = connections(world)
        world.model.create_topic("later", 1, 1)
        world.model.faults.delay("Produce", HELD_S * 1000, times=brokers)
        held = [
            await world.producer.submit("orders", b"%d" % number, partition=partition)
            for partition in range(brokers)
            for number in range(in_flight)
        ]
        await asyncio.sleep(0.1)
        began_s = world.loop.time()
        await world.producer.partitions_for("later")
        assert world.loop.time() - began_s < ASKED_ASIDE_S
        assert not any(delivery.done() for delivery in held)
        assert connections(world) == settled + 1
        async with asyncio.timeout(2 * HELD_S):
            for delivery in held:
                await delivery
        await asyncio.sleep(1)
        assert connections(world) == settled
        for partition in range(brokers):
            values = [record.value for record in world.model.records("orders", partition)]
            assert values == [b"first", *(b"%d" % number for number in range(in_flight))]
        await world.producer.close()

    world.run_alone(main)
