"""What the gauges of a running producer show, in virtual time."""

from __future__ import annotations

import asyncio

from tests.simulation.world import World


def gauge(world: World, name: str) -> float:
    found: float = world.producer.metrics()["producer-metrics"][name]
    return found


def test_the_age_of_metadata_grows_until_the_next_full_answer() -> None:
    """In seconds, as in Java; an alert compares it with metadata_max_age_ms."""
    world = World(metadata_max_age_ms=57_000)

    async def main() -> None:
        async with world.producer:
            ages_s = [gauge(world, "metadata-age")]
            for _ in range(7):
                await asyncio.sleep(10)
                ages_s.append(gauge(world, "metadata-age"))
        assert [round(age_s / 10) for age_s in ages_s] == [0, 1, 2, 3, 4, 5, 0, 1]

    world.run_alone(main)


def test_requests_in_flight() -> None:
    """Those that a broker owes an answer, of any kind."""
    world = World(linger_ms=0)

    async def main() -> None:
        async with world.producer:
            await world.producer.send("orders", b"v")
            assert gauge(world, "requests-in-flight") == 0
            world.model.faults.delay("Produce", 5_000)
            held = [await world.producer.submit("orders", b"v")]
            await asyncio.sleep(1)
            assert gauge(world, "requests-in-flight") == 1
            held.append(await world.producer.submit("orders", b"v"))
            await asyncio.sleep(1)
            assert gauge(world, "requests-in-flight") == 2
            await asyncio.gather(*held)
            assert gauge(world, "requests-in-flight") == 0

    world.run_alone(main)
