"""The real producer, with randomness and time from the simulation, and a check of the order of waits for memory."""

from __future__ import annotations

import asyncio
import random
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from aioproducer import Producer
from aioproducer.engine import Engine

if TYPE_CHECKING:
    from aioproducer.testing.fake.model import ClusterModel
    from tests.simulation.loop import SimulatedLoop

T = TypeVar("T")


class WatchedEngine(Engine):
    """Checks that waiters for memory are served in order."""

    broken: Callable[..., None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tickets = 0
        self.last_served = 0
        self.waiting: dict[int, None] = {}
        self.overtaken: dict[int, int] = {}
        """Waiters by number, and the number of the record that overtook them; ignored if they give up."""

    async def wait_for_memory(self, attempt: Callable[[], T | None], deadline_ms: int) -> T | None:
        self.tickets = ticket = self.tickets + 1
        self.waiting[ticket] = None

        def watched() -> T | None:
            result = attempt()
            if result is not None:
                if ticket < self.last_served:
                    self.broken("waiter %d for memory was served after waiter %d", ticket, self.last_served)
                if ticket in self.overtaken:
                    self.broken("record %d was admitted before waiter %d for memory", self.overtaken[ticket], ticket)
                self.last_served = ticket
                del self.waiting[ticket]
            return result

        try:
            return await super().wait_for_memory(watched, deadline_ms)
        finally:
            self.waiting.pop(ticket, None)


class SimulatedProducer(Producer):
    """A Producer, made with ``made_for``."""

    simulated: SimulatedLoop
    rng: random.Random
    model: ClusterModel
    broken: Callable[..., None]
    engine: WatchedEngine | None = None

    @classmethod
    def made_for(
        cls,
        loop: SimulatedLoop,
        rng: random.Random,
        model: ClusterModel,
        broken: Callable[..., None],
        **configs: Any,
    ) -> SimulatedProducer:
        """Create one whose randomness comes from ``rng``."""
        producer = cls(**configs)
        producer.simulated, producer.rng, producer.model, producer.broken = loop, rng, model, broken
        return producer

    def _make_engine(self, loop: asyncio.AbstractEventLoop) -> Engine:
        self.engine = engine = WatchedEngine(
            self._config,
            loop,
            weakref.WeakMethod(self._engine_ended),
            rng=self.rng,
            clocks=(self.simulated.time, self.simulated.wall_time),
        )
        engine.broken = self.broken
        return engine

    def overtook(self, number: int, ahead: list[int]) -> None:
        """A record was admitted before these, although they had begun to wait earlier."""
        for ticket in ahead:
            if self.engine is not None and ticket in self.engine.waiting:
                self.engine.overtaken[ticket] = number

    def waiting_for_memory(self) -> list[int]:
        """The waiters, in the order of arrival."""
        return list(self.engine.waiting) if self.engine is not None else []

    @property
    def has_failed(self) -> bool:
        """Whether something ended the producer for good."""
        return self.engine is not None and self.engine._failure is not None

    def partitions_of_model(self) -> list[tuple[str, int]]:
        """Every partition that currently exists."""
        return [(topic.name, one.index) for topic in self.model.topics.values() for one in topic.partitions]
