"""The wall clock may jump, or stand still: it gives records their timestamps and decides nothing."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest

import aioproducer
from aioproducer import Producer
from aioproducer.engine import Engine
from aioproducer.testing import FakeCluster

PATIENCE_S = 20
HOUR_S = 3600
WALL = re.compile(r"time\.time|datetime\.|utcnow|clock_gettime|gettimeofday|CLOCK_REALTIME")


class Wall:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Wall:
    wall = Wall()
    make = Engine.__init__

    def with_clocks(self: Engine, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **{**options, "clocks": (asyncio.get_running_loop().time, wall)})

    monkeypatch.setattr(Engine, "__init__", with_clocks)
    return wall


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
async def test_a_jump_changes_timestamps_alone(wall: Wall, jump_s: float) -> None:
    """Linger and expiry are not affected by the wall clock."""
    async with FakeCluster(1) as cluster:
        cluster.create_topic("orders")
        async with Producer(
            bootstrap_servers=cluster.bootstrap_servers, linger_ms=300, request_timeout_ms=200, delivery_timeout_ms=600
        ) as producer:
            before = await producer.send("orders", b"before")
            lingering = await producer.submit("orders", b"lingering")
            submitted = asyncio.get_running_loop().time()
            wall.now += jump_s
            await asyncio.wait_for(lingering, PATIENCE_S)
            assert asyncio.get_running_loop().time() - submitted >= 0.29
            async with asyncio.timeout(PATIENCE_S):
                # The wall clock is compared with the loop's clock from time to time.
                while (after := await producer.send("orders", b"after")).timestamp_ms == before.timestamp_ms:
                    pass
            assert abs(after.timestamp_ms - before.timestamp_ms - jump_s * 1000) < 60_000
            cluster.faults.swallow("Produce", times=None)
            expiring = await producer.submit("orders", b"expiring")
            submitted = asyncio.get_running_loop().time()
            wall.now -= jump_s
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(expiring, PATIENCE_S)
            assert asyncio.get_running_loop().time() - submitted >= 0.59


async def test_a_clock_that_a_test_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by freezegun and time-machine, through Python's own functions: records and a fake cluster have that time.

    It would refuse records with the system's time, as being years ahead.
    """
    stopped_ms = 1_577_836_800_000
    monkeypatch.setattr(time, "time", lambda: stopped_ms / 1e3)
    monkeypatch.setattr(time, "time_ns", lambda: stopped_ms * 1_000_000)
    async with FakeCluster(1) as cluster, Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(3):
            metadata = await producer.send("orders", b"value")
            assert metadata.timestamp_ms - stopped_ms in (0, 1)  # the two clocks are compared once per millisecond
        assert (await producer.send_many("orders", [b"value"] * 100)).acked == 100


def test_nobody_else_looks_at_it() -> None:
    """Only the admission of records uses it, through Python's clock, and code for tokens, whose expiry is a wall time.

    The engine passes it to telemetry, whose values have timestamps. Modules above the producer may use it.
    """
    root = Path(aioproducer.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.p*")
        if path.suffix in (".py", ".pyx", ".pxd") and WALL.search(path.read_text(encoding="utf-8"))
    }
    above = ("testing/", "cli/", "spark/", "audit/", "compat/", "doctor/", "integrations/")
    found = {name for name in found if not name.startswith((*above, "net/sasl/"))}
    assert found == {"_clock.pxd", "_admission.pyx", "engine.py"}
