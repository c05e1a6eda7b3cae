"""The loop's clock may have any origin, and may jump: asyncio promises neither that it agrees with the machine's.

rloop counts from its own start, uvloop counts the time that a Mac has slept, loops for tests have virtual time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from aioproducer import DeliveryTimeoutError, Producer
from aioproducer.testing import FakeCluster

PATIENCE_S = 20
HOUR_S = 3600.0


class ShiftedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock differs from ``time.monotonic``."""

    def __init__(self, shift_s: float) -> None:
        self.shift_s = shift_s
        super().__init__()

    def time(self) -> float:
        return time.monotonic() + self.shift_s

    def sleep(self, seconds: float) -> None:
        """The machine sleeps, and this clock alone counts it."""
        self.shift_s += seconds
        time.sleep(0.002)  # no machine sleeps for less, and the clocks are compared every millisecond


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as cluster:
        cluster.create_topic("orders", partitions=1)
        yield cluster


def run(shift_s: float, main: Callable[[ShiftedLoop], Awaitable[None]]) -> None:
    async def limited() -> None:
        loop: Any = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_S):
            await main(loop)

    with asyncio.Runner(loop_factory=lambda: ShiftedLoop(shift_s)) as runner:
        runner.run(limited())


SHIFTS_S = pytest.mark.parametrize("shift_s", [HOUR_S, -time.monotonic()], ids=["an hour ahead", "from its own start"])


@SHIFTS_S
def test_records_go_out_when_they_are_due(cluster: FakeCluster, shift_s: float) -> None:
    """Linger ends in time, and no record is overdue when it is new."""

    async def main(loop: ShiftedLoop) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=20) as producer:
            assert (await producer.send("orders", b"0")).offset == 0
            assert (await (await producer.submit("orders", b"1"))).offset == 1
            assert (await producer.send_many("orders", [b"value"] * 10)).acked == 10

    run(shift_s, main)


@SHIFTS_S
def test_records_expire_when_they_are_overdue(cluster: FakeCluster, shift_s: float) -> None:
    cluster.faults.swallow("Produce", times=None)

    async def main(loop: ShiftedLoop) -> None:
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=100, delivery_timeout_ms=200
        ) as producer:
            began_s = loop.time()
            with pytest.raises(DeliveryTimeoutError):
                await (await producer.submit("orders", b"value"))
            assert loop.time() - began_s >= 0.19

    run(shift_s, main)


def test_the_clock_jumps_while_the_producer_runs(cluster: FakeCluster) -> None:
    """As uvloop's does when a Mac wakes up: records from before may be overdue, those from afterwards are not."""

    async def main(loop: ShiftedLoop) -> None:
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=20) as producer:
            await producer.send("orders", b"before")
            loop.sleep(HOUR_S)
            async with asyncio.timeout(PATIENCE_S):
                assert (await producer.send("orders", b"after")).offset == 1
                assert (await (await producer.submit("orders", b"later"))).offset == 2

    # The limit around it would be over at the jump.
    with asyncio.Runner(loop_factory=lambda: ShiftedLoop(0.0)) as runner:
        runner.run(main(runner.get_loop()))  # type: ignore[arg-type]
