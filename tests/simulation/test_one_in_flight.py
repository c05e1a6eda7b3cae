"""One request in flight, as brokers of Kafka 0.11 need it: they remember one batch of a producer; in virtual time."""

from __future__ import annotations

import asyncio

from tests.simulation.world import World

REQUEST_TIMEOUT_S = 5


def test_nothing_goes_to_a_new_leader_before_the_former_one_has_answered() -> None:
    """Else the new one no longer recognises the batch whose answer was lost, and it is written again."""
    world = World(
        brokers=2,
        version="0.11",
        max_in_flight_requests_per_connection=1,
        linger_ms=0,
        request_timeout_ms=REQUEST_TIMEOUT_S * 1000,
        metadata_max_age_ms=100,
    )
    world.model.create_topic("moves", 1, 2)

    async def main() -> None:
        producer, model = world.producer, world.model
        await producer.start()
        await producer.send("moves", b"before")
        model.faults.swallow("Produce", when="after")
        unanswered = producer.submit_nowait("moves", b"unanswered")
        await asyncio.sleep(0.1)
        model.move_leader("moves")
        await asyncio.sleep(1)
        after = producer.submit_nowait("moves", b"after")
        await producer.flush(10 * REQUEST_TIMEOUT_S)
        assert unanswered.exception() is None
        assert after.exception() is None
        assert [record.value for record in model.records("moves", 0)] == [b"before", b"unanswered", b"after"]
        await producer.close()

    world.run_alone(main)
