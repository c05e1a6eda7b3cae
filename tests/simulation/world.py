"""A simulated cluster and a producer, for tests of what happens when, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

from aioproducer.testing.fake.model import ClusterModel
from aioproducer.testing.fake.versions import NEWEST
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.producer import SimulatedProducer
from tests.simulation.story import Story


class World:
    """A cluster with the topic ``orders``, and a producer that is not yet started.

    Attributes:
        complaints: the violated invariants.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        brokers: int = 1,
        version: str = NEWEST,
        receives_metrics: bool = False,
        **configs: Any,
    ) -> None:
        self.loop = SimulatedLoop(random.Random(seed))
        self.model = ClusterModel(
            brokers=brokers, rng=random.Random(seed), version=version, receives_metrics=receives_metrics
        )
        self.model.create_topic("orders", brokers, 1)
        self.complaints: list[str] = []
        self.network = SimulatedNetwork(
            self.loop,
            random.Random(seed),
            self.model,
            Story(self.loop.time),
            self._broken,
            keeps_views=True,
            max_in_flight=5,
            acknowledged=True,
        )
        self.loop.network = self.network
        self.network.point("bootstrap.invalid", 1)
        self.producer = SimulatedProducer.made_for(
            self.loop,
            random.Random(seed),
            self.model,
            self._broken,
            bootstrap_servers=["bootstrap.invalid:9092"],
            client_id="simulated",
            **configs,
        )

    def _broken(self, template: str, *facts: object) -> None:
        self.complaints.append(template % facts)

    def run_alone(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a scenario; afterwards no task may be left, and no invariant violated."""

        try:
            self.loop.run_until_complete(main())
            assert not asyncio.all_tasks(self.loop)
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(1))
            self.loop.close()
        assert self.complaints == []
        assert self.loop.errors == []
