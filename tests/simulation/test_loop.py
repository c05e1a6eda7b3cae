"""The simulated loop and its transport, tested separately."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.simulation.loop import SimulatedLoop, StuckError
from tests.simulation.transport import Data, MemoryTransport


def run(loop: SimulatedLoop, work) -> object:
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_an_hour_passes_in_no_time() -> None:
    loop = SimulatedLoop(random.Random(1))

    async def wait() -> float:
        began = loop.time()
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(1800))
        return loop.time() - began

    assert run(loop, wait()) == pytest.approx(3600, abs=0.001)


def test_waiting_for_nothing_is_an_error() -> None:
    loop = SimulatedLoop(random.Random(1))
    with pytest.raises(StuckError, match="nothing can run"):
        run(loop, asyncio.wait_for(loop.create_future(), None))


def test_going_round_for_ever_is_an_error() -> None:
    loop = SimulatedLoop(random.Random(1))

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StuckError, match="does not come to rest"):
        run(loop, spin())


def test_work_for_threads_ends_later() -> None:
    loop = SimulatedLoop(random.Random(2))

    async def work() -> tuple[bool, int]:
        job = loop.run_in_executor(None, lambda: 6 * 7)
        return job.done(), await job

    assert run(loop, work()) == (False, 42)
    assert loop.jobs == 0


class Wire:
    """Accepts as many bytes as it has room for."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken = b""
        self.ended = 0

    def take(self, data: Data) -> int:
        size = min(self.room, len(data))
        self.room -= size
        self.taken += bytes(data[:size])
        return size

    def client_ended(self) -> None:
        self.ended += 1


class Writer(asyncio.Protocol):
    """Records a transport's calls."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append(error)


@pytest.mark.parametrize("keeps_views", [False, True])
def test_a_full_wire_makes_the_writer_wait(keeps_views: bool) -> None:
    """Bytes without room stay in the transport, which, with keeps_views, holds the caller's memory until then."""
    loop = SimulatedLoop(random.Random(1))
    wire, protocol = Wire(3), Writer()
    transport = MemoryTransport(loop, protocol, wire, ("10.0.0.1", 9092), keeps_views=keeps_views)
    transport.set_write_buffer_limits(0)
    data = bytearray(b"abcdef")
    transport.writelines([data, b"gh"])
    data[4:5] = b"X"
    assert (wire.taken, transport.get_write_buffer_size(), protocol.told) == (b"abc", 5, ["pause"])
    wire.room = 2
    transport.has_room()
    assert protocol.told == ["pause"]
    wire.room = 10
    transport.has_room()
    assert wire.taken == (b"abcdXfgh" if keeps_views else b"abcdefgh")
    assert protocol.told == ["pause", "resume"]
    loop.close()


def test_an_aborted_transport_sends_and_tells_nothing_more() -> None:
    loop = SimulatedLoop(random.Random(1))
    wire, protocol = Wire(1), Writer()
    transport = MemoryTransport(loop, protocol, wire, ("10.0.0.1", 9092), keeps_views=True)
    transport.write(b"abc")
    transport.abort()
    transport.abort()
    transport.arrived(b"late")
    transport.write(b"later")
    wire.room = 10
    transport.has_room()
    run(loop, asyncio.sleep(1))
    assert (wire.taken, wire.ended, protocol.told) == (b"a", 1, [None])
    assert transport.is_closing()
