"""An event loop with virtual time, which stands still while anything can run, and otherwise jumps to the next timer.

asyncio's own loop without real I/O: no selector, no sockets, no threads. Connections come from the simulated
network, names from its table of hosts, and work for threads is done at once and takes effect later. So a run depends
only on its seed, and an hour of back-off takes no real time.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any, Protocol

TURN_S = 0.000_01
"""The duration of a turn of the loop. It is not 0, so that time passes for code that polls."""

MAX_TURNS = 400_000
"""The limit for a whole run; the longest ones take a tenth."""

WALL_EPOCH_S = 1_700_000_000.0


class StuckError(Exception):
    """Nothing can run and no timer is set, or the loop never stops turning."""


class Network(Protocol):
    """The source of connections and names."""

    async def connect(self, protocol: asyncio.BaseProtocol, host: str, port: int) -> asyncio.Transport:
        """Connect to an address; raises OSError."""
        ...

    async def resolve(self, host: str) -> list[str]:
        """The addresses of a name; raises OSError."""
        ...


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop with virtual time, see the module's docstring.

    Attributes:
        rng: the source of the durations of work for threads.
        on_turn: called before each turn.
        errors: exceptions of tasks and callbacks that were not handled.
        wall_shift_s: how far the wall clock has been set forward, or back.
    """

    def __init__(self, rng: random.Random, network: Network | None = None) -> None:
        super().__init__()
        self.rng = rng
        self.network = network
        self.turns = 0
        self.on_turn: Callable[[], None] | None = None
        self.errors: list[dict[str, Any]] = []
        self.wall_shift_s = 0.0
        self.jobs = 0
        self.slow_jobs_s = 0.0
        self._now = 1000.0
        self._clock_resolution = 1e-9
        self._selector = self
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    # --- time ---------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def spend(self, seconds: float) -> None:
        """Let the running code take this long, during which the loop can do nothing else."""
        self._now += seconds

    def wall_time(self) -> float:
        """What time.time() would return on a machine whose clock is changed."""
        return WALL_EPOCH_S + self._now + self.wall_shift_s

    @property
    def now_ms(self) -> int:
        """The time in whole milliseconds."""
        return int(self._now * 1000)

    def select(self, timeout: float | None) -> list[Any]:
        """Between two turns the loop waits, which here means to advance the clock."""
        self.turns += 1
        if self.turns > MAX_TURNS:
            raise StuckError(f"the loop has made {self.turns:,} turns and does not come to rest")
        if timeout is None:
            raise StuckError("nothing can run, and no timer is set that would change that")
        self._now += TURN_S
        if timeout > 0:
            self._now = max(self._now, self._scheduled[0].when())  # type: ignore[attr-defined]
        if self.on_turn is not None:
            self.on_turn()
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def timers(self) -> list[asyncio.TimerHandle]:
        """The timers that are set and not cancelled."""
        return [timer for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]

    # --- what lies outside --------------------------------------------------------------------------------------------

    async def create_connection(self, protocol_factory, host=None, port=None, **options):  # type: ignore[no-untyped-def]
        assert self.network is not None
        assert not options, options
        protocol = protocol_factory()
        return await self.network.connect(protocol, host, port), protocol

    async def getaddrinfo(self, host, port, *, family=0, type=0, proto=0, flags=0):  # type: ignore[no-untyped-def]
        assert self.network is not None
        addresses = await self.network.resolve(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    def run_in_executor(self, executor, func, *args):  # type: ignore[no-untyped-def]
        """Do the work now and deliver the result later."""
        done = self.create_future()
        self.jobs += 1
        try:
            result, error = func(*args), None
        except Exception as failure:
            result, error = None, failure

        def tell() -> None:
            self.jobs -= 1
            if done.cancelled():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error)

        self.call_later(self.slow_jobs_s + self.rng.choice((0.0, 0.0005, 0.003, 0.02)), tell)
        return done
