"""Faults around transactions, in addition to the usual ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aioproducer.testing.fake.transactions import State
from tests.simulation.chaos import Chaos
from tests.simulation.transactions.ledger import GROUP

if TYPE_CHECKING:
    from tests.simulation.producer import SimulatedProducer
    from tests.simulation.transactions.scenario import TransactionScenario

CALLS = (
    "FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "EndTxn",
    "DescribeTransactions",
)  # fmt: skip
PASSING = (7, 14, 15, 16, 51, 56)
UNKNOWN_SERVER_ERROR = -1
PASSING_BY_API = {
    "FindCoordinator": (7, 14, 15),
    "AddPartitionsToTxn": (*PASSING, 3),
    "TxnOffsetCommit": (7, 14, 15, 16, 3),
    "EndTxn": (*PASSING, UNKNOWN_SERVER_ERROR),
}
DONE_ALL_THE_SAME = (7, 15, 16)
"""Codes that a coordinator sends although the request may have been executed: its log write timed out."""

ABORTABLE = {
    "AddPartitionsToTxn": (29, 120, 49),
    "AddOffsetsToTxn": (30, 120, 49),
    "TxnOffsetCommit": (22, 25, 27, 29, 30, 120, 49),
    "EndTxn": (120,),
}
FATAL = {
    "InitProducerId": (53, 90, 47),
    "AddPartitionsToTxn": (53, 90, 47),
    "AddOffsetsToTxn": (53, 90, 47),
    "TxnOffsetCommit": (53, 47),
    "EndTxn": (53, 90, 48, 47),
    "FindCoordinator": (53,),
}
TOPIC_AUTHORIZATION_FAILED = 29
OF_PRODUCE = (51, 51, 120, 47, 49)
"""Leaders' errors about transactions."""


class TransactionChaos(Chaos):
    """The faults of one run with transactions."""

    _scenario: TransactionScenario
    apis = (*CALLS, "Produce", "Produce", "Metadata", "ApiVersions", None)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.producers: list[SimulatedProducer] = []

    def kinds(self) -> list[tuple[Callable[[], Awaitable[None] | None], int]]:
        faults = super().kinds()
        faults += [
            (self.coordinator_errors, 16),
            (self.coordinator_errors, 30 * self._scenario.relentless),
            (self.move_coordinator, 8),
            (self.load_coordinator, 5),
            (self.late_markers, 5),
            (self.rebalance, 3),
        ]
        if self._scenario.recreates:
            faults += [(self.recreate_in_transaction, 80), (self.recreate_topic, 20), (self.make_again, 20)]
        if self._scenario.upgrades:
            faults.append((self.finalize_v2, 20))
        return faults

    async def recreate_in_transaction(self) -> None:
        """A topic is recreated while a transaction is open that has written to it."""
        until_s = self._loop.time() + self._rng.choice((0.1, 1.0))
        while not (names := self._in_transactions()):
            if self._loop.time() > until_s:
                return
            await asyncio.sleep(0.005)
        self.remember_topics()
        name = self._rng.choice(names)
        partitions = len(self._model.topics[name].partitions)
        self._story.tell("chaos: %s is deleted in a transaction", name)
        self._model.delete_topic(name)
        if self._rng.random() < 0.5:
            await asyncio.sleep(self._rng.choice((0.01, 0.1)))
        if name not in self._model.topics:
            self._story.tell("chaos: %s is made again", name)
            self._model.create_topic(name, partitions)

    def _in_transactions(self) -> list[str]:
        """The topics that belong to open transactions."""
        ongoing = [one for one in self._model.coordinators.transactions.all() if one.state is State.ONGOING]
        return [name for one in ongoing for name, _ in one.partitions if name in self._model.topics]

    def finalize_v2(self) -> None:
        """The cluster gets transactions V2; producers find out with their next connection."""
        model = self._model
        if model.transaction_version < 2:
            self._story.tell("chaos: the cluster has transactions V2")
            model.transaction_version, model.features_epoch = 2, model.features_epoch + 1
            model.coordinators.transactions._v2 = True
        self.reset_connections()

    def heal(self) -> None:
        super().heal()
        self._model.coordinators.transactions.marker_delay_ms = 0

    def _key(self) -> str:
        return self._rng.choice((GROUP, *self._scenario.transactional_ids, *self._scenario.transactional_ids))

    def coordinator_errors(self) -> None:
        rng = self._rng
        api = rng.choice(CALLS)
        times, skip = rng.choice((1, 1, 2, 5, 30)), rng.choice((0, 0, 0, 1, 2))
        apply = False
        kind = rng.random()
        if kind < 0.2 and api in ABORTABLE:
            code, times = rng.choice(ABORTABLE[api]), 1
        elif kind < 0.25:
            api, code = "Produce", rng.choice(OF_PRODUCE)
            times = times if code == OF_PRODUCE[0] else 1
        elif kind < 0.5 and api != "FindCoordinator":
            code, apply = rng.choice(DONE_ALL_THE_SAME), True
        else:
            code = rng.choice(PASSING_BY_API.get(api, PASSING))
            if code == UNKNOWN_SERVER_ERROR:
                times = 1  # if it stays, it ends the producer
        self._story.tell("chaos: %s gets %d%s, %d times", api, code, " after the fact" * apply, times)
        self._model.faults.fail(api, code, apply=apply, times=times, skip=skip)

    def fatal(self) -> None:
        api = self._rng.choice(list(FATAL))
        code = self._rng.choice(FATAL[api])
        self._story.tell("chaos: %s gets %d, which ends a producer", api, code)
        self._model.faults.fail(api, code, times=1)

    def move_coordinator(self) -> None:
        key, node_id = self._key(), self._node()
        self._story.tell("chaos: broker %d coordinates %s", node_id, key)
        self._model.coordinators.move(key, node_id)
        if self._rng.random() < 0.5:
            self._load(node_id)

    def load_coordinator(self) -> None:
        node_id = self._model.coordinators.node_of(self._key())
        if node_id is not None:
            self._load(node_id)

    def _load(self, node_id: int) -> None:
        duration_ms = self._rng.choice((20, 200, 1000))
        self._story.tell("chaos: broker %d loads what it coordinates for %d ms", node_id, duration_ms)
        self._model.coordinators.load(node_id, self._network.model_now_ms() + duration_ms)

    async def late_markers(self) -> None:
        transactions = self._model.coordinators.transactions
        transactions.marker_delay_ms = self._rng.choice((5, 50, 500, 2000))
        self._story.tell("chaos: transactions end %d ms after they were ended", transactions.marker_delay_ms)
        await self._a_while()
        transactions.marker_delay_ms = 0

    def rebalance(self) -> None:
        group = self._model.coordinators.group(GROUP)
        if group.members:
            group.generation_id += 1
            self._story.tell("chaos: the group is in generation %d", group.generation_id)

    def idle_week(self) -> None:
        """All partitions forget the producers, and the first batch after that is refused; coordinators may forget too.

        If they do not, what a partition hears first of a producer is the marker of an aborted transaction. An older
        producer that still runs would begin again, if its coordinator had forgotten that a newer one has its id.
        """
        self._story.tell("a week goes by; the next batch is refused")
        if not self._scenario.overlaps and self._rng.random() < 0.5:
            self._story.tell("coordinators forget transactional ids")
            for transactional_id in self._scenario.transactional_ids:
                self._model.coordinators.transactions.forget(transactional_id)
        for topic in self._model.topics.values():
            for partition in topic.partitions:
                self._model.forget_producers(topic.name, partition.index)
        self._model.faults.fail("Produce", TOPIC_AUTHORIZATION_FAILED, times=1)

    def cancel_a_task(self) -> None:
        """Only the producer's essential tasks: a call whose task is cancelled may never end."""
        tasks = [task for producer in self.producers if producer.engine for task in producer.engine._tasks]
        tasks = [task for task in tasks if not task.done()]
        if tasks:
            victim = self._rng.choice(tasks)
            self._story.tell("chaos: somebody cancels %s", victim.get_name())
            victim.cancel()
