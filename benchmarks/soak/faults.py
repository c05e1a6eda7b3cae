"""The faults of the brokers during the run: restarts, kills and freezes in turn."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aioproducer.testing import KafkaCluster

FREEZE_S = 20.0
BUSY_S = 300.0
"""How long a broker may take to stop, start or catch up: it shares the machine with the load."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a broker.

    Attributes:
        began_s, ended_s: seconds since the start of the load; it ended when all replicas were in sync again.
    """

    what: str
    broker: int
    began_s: float
    ended_s: float


class Faults:
    """Injects faults into a cluster, one every ``interval_s`` seconds or as soon as it has healed."""

    def __init__(self, cluster: KafkaCluster, interval_s: float, freeze_s: float = FREEZE_S) -> None:
        self.done: list[Fault] = []
        self.now = ""
        """The current fault; empty if there is none."""
        self._cluster = cluster
        self._interval_s = interval_s
        self._freeze_s = freeze_s
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Make ``run`` end once the cluster has healed."""
        self._stopping.set()

    async def run(self, began: float) -> None:
        """Run until stopped; ``began`` is the `time.monotonic` value that fault times are relative to."""
        for do, broker in self._turns():
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._stopping.wait()
                return
            except TimeoutError:
                pass
            what = do.__name__.strip("_")
            started_s = time.monotonic() - began
            self.now = f"{what} of broker {broker}"
            await asyncio.to_thread(do, broker)
            await asyncio.to_thread(self._cluster.wait_in_sync, BUSY_S)
            self.now = ""
            self.done.append(Fault(what, broker, started_s, time.monotonic() - began))

    def _turns(self) -> Iterator[tuple[Callable[[int], None], int]]:
        """Pair every kind with every broker: there are as many of both, so the brokers shift by one each round."""
        kinds = (self._restart, self._kill, self._freeze)
        for turn in itertools.count():
            brokers = self._cluster.brokers
            yield kinds[turn % len(kinds)], brokers[(turn + turn // len(kinds)) % len(brokers)]

    def _restart(self, broker: int) -> None:
        self._cluster.stop_broker(broker, timeout_s=BUSY_S)
        self._cluster.start_broker(broker)

    def _kill(self, broker: int) -> None:
        self._cluster.kill(broker)
        self._cluster.start_broker(broker)

    def _freeze(self, broker: int) -> None:
        self._cluster.pause(broker)
        time.sleep(self._freeze_s)
        self._cluster.resume(broker)
