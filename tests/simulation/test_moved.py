"""All brokers get new addresses, and the former ones are silent, as with machines that are gone; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.world import World

SEEN_THROUGH_S = 10
"""Five times as long as five attempts take with the default back-off."""
FOUND_S = 60
"""Twice request_timeout_ms, and half of delivery_timeout_ms."""


def move(world: World) -> None:
    """Move all brokers; only the bootstrap name leads to them, and packets to their former addresses are dropped."""
    network = world.network
    network.silent_addresses |= {address: None for address, _ in network.listeners}
    for link in network.links:
        link.swallows_up = link.swallows_down = True
    for node_id, broker in list(world.model.brokers.items()):
        host = f"moved-{node_id}.invalid"
        world.model.change_addresses({node_id: (host, broker.port)})
        network.place(node_id, host, broker.port)
        network.point("bootstrap.invalid", node_id)


@pytest.mark.parametrize("brokers", [1, 3, 5])
def test_records_do_not_wait_for_addresses_that_swallow_everything(brokers: int) -> None:
    """The brokers are missed one after the other, so there is hardly a moment when none is being tried."""
    world = World(brokers=brokers)

    async def main() -> None:
        await world.producer.start()
        for partition in range(brokers):
            await world.producer.send("orders", b"before", partition=partition)
        move(world)
        began_s = world.loop.time()
        deliveries = []
        for partition in range(brokers):
            deliveries.append(await world.producer.submit("orders", b"after", partition=partition))
            await asyncio.sleep(1.5)
        for delivery in deliveries:
            await delivery
        assert world.loop.time() - began_s < FOUND_S
        await world.producer.close()

    world.run_alone(main)


def test_a_cluster_that_was_idle_is_found_too() -> None:
    """Connections that carried nothing for a while don't show that their brokers are gone."""
    world = World(brokers=3)

    async def main() -> None:
        await world.producer.start()
        for partition in range(3):
            await world.producer.send("orders", b"before", partition=partition)
        move(world)
        began_s = world.loop.time()
        await world.producer.send("orders", b"after", partition=0)
        assert world.loop.time() - began_s < FOUND_S + 10
        await world.producer.close()

    world.run_alone(main)


def test_an_address_that_leads_to_another_broker_for_a_while() -> None:
    """As where pods get each other's addresses, and a name leads to the former one for some seconds."""
    world = World(brokers=2)

    async def main() -> None:
        network, model = world.network, world.model
        await world.producer.start()
        for partition in range(2):
            await world.producer.send("orders", b"before", partition=partition)
        began_s = world.loop.time()
        (address,) = (address for address, node_id in network.listeners.items() if node_id == 1)
        network.listeners[address] = 2
        network.reset(1)
        delivery = await world.producer.submit("orders", b"after", partition=1)
        while len(network.links_of(2)) < 2:
            await asyncio.sleep(0.01)
        network.place(1, model.brokers[1].host, model.brokers[1].port)
        await delivery
        assert world.loop.time() - began_s < SEEN_THROUGH_S
        await world.producer.close()

    world.run_alone(main)
