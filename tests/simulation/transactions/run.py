"""One run with transactions: consecutive and concurrent programs, a cluster and a seed."""

from __future__ import annotations

import asyncio
import gc
import random
from dataclasses import replace
from typing import Any

from aioproducer.errors import (
    InvalidProducerEpochError,
    KafkaError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    TransactionTimeoutError,
)
from aioproducer.records import ConsumerGroupMetadata
from aioproducer.testing.fake.model import ClusterModel
from aioproducer.testing.fake.transactions import LAST_EPOCH
from aioproducer.transactions import TransactionClient
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.producer import SimulatedProducer
from tests.simulation.program import serializer
from tests.simulation.records import Books
from tests.simulation.run import LAGGING, LAGGING_REST, Outcome, Run, run
from tests.simulation.story import Story
from tests.simulation.transactions.chaos import TransactionChaos
from tests.simulation.transactions.invariants import TransactionInvariants
from tests.simulation.transactions.ledger import GROUP, POSITION, Fate, Ledger, Written
from tests.simulation.transactions.process import SLACK_S, Process
from tests.simulation.transactions.scenario import SPECIAL, TransactionScenario, draw_transactions, special

MOST_PROCESSES = 3
"""Per transactional id; at the end there is one more, without faults."""

COLLECTED = 4
"""One seed in this many looks for cyclic garbage, which takes time."""

RIVALRY, RIVALRY_REST = 5, 3
"""In one run of this many, other tasks of a program call the producer while it ends a transaction."""

SERVERS = ["bootstrap-a.invalid:9092", "bootstrap-b.invalid:9092"]


def simulate_transactions(seed: int) -> Outcome:
    """Run one seed from begin to end."""
    return run(TransactionRun, seed)


class SimulatedClient(TransactionClient):
    """A client that ends transactions prepared by others."""

    def __init__(self, rng: random.Random, **configs: Any) -> None:
        super().__init__(**configs)
        self._rng = rng

    def _chance(self) -> random.Random:
        return self._rng


class ClusterWithInput(ClusterModel):
    """A cluster that also has the topic whose positions are committed. It gets no records and no faults."""

    def has_partition(self, topic: str, partition: int) -> bool:
        return topic == POSITION.topic or super().has_partition(topic, partition)


class TransactionRun(Run):
    """A run with transactions, see the module's docstring."""

    prefix = "t"
    _scenario: TransactionScenario
    _chaos: TransactionChaos
    _invariants: TransactionInvariants

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.closing = False
        """Whether nothing more should be started."""
        self.processes: list[Process] = []
        self.ledger = self._invariants.ledger = Ledger(self._broken, self._story.tell)
        self._deciders: list[asyncio.Task[None]] = []
        if self._scenario.exhausts:
            self._use_epochs_up()
        group = self._model.coordinators.group(GROUP)
        if self._scenario.members:
            group.members["member"], group.generation_id = None, 1

    def _draw(self, rng: random.Random) -> TransactionScenario:
        scenario = special(draw_transactions(rng), self._seed % SPECIAL)
        return replace(scenario, lags=self._seed % LAGGING == LAGGING_REST)

    def _use_epochs_up(self) -> None:
        """Leave few epochs, or none, to each transactional id, as after thousands of transactions."""
        rng = random.Random(f"{self._seed} epochs")
        transactions = self._model.coordinators.transactions
        for name in self._scenario.transactional_ids:
            transactions.init_producer_id(name, self._scenario.transaction_timeout_ms, -1, -1, 0)
            known = transactions.get(name)
            assert known is not None
            known.epoch = LAST_EPOCH - rng.randrange(12)

    def _make_model(self, rng: random.Random) -> ClusterModel:
        scenario = self._scenario
        return ClusterWithInput(
            brokers=scenario.brokers,
            rng=rng,
            version=scenario.version,
            transaction_version=scenario.transaction_version,
            auto_create_topics=scenario.auto_create,
            message_max_bytes=scenario.message_max_bytes,
        )

    def _make_chaos(self, rng: random.Random) -> TransactionChaos:
        return TransactionChaos(self._scenario, self._loop, self._network, self._model, rng, self._story)

    def _make_invariants(self) -> TransactionInvariants:
        return TransactionInvariants(
            self._scenario, self._books, self._model, self._chaos, self._network, self._loop, self._broken
        )

    # --- what processes need ------------------------------------------------------------------------------------------

    @property
    def scenario(self) -> TransactionScenario:
        return self._scenario

    @property
    def rng(self) -> random.Random:
        return self._rng

    def rivals_of(self, name: str) -> random.Random | None:
        """The random generator for a process's rival tasks, separate from the run's; None if it has none."""
        has_rivals = self._scenario.contests or self._seed % RIVALRY == RIVALRY_REST
        return random.Random(f"{self._seed} {name}") if has_rivals else None

    @property
    def loop(self) -> SimulatedLoop:
        return self._loop

    @property
    def books(self) -> Books:
        return self._books

    @property
    def story(self) -> Story:
        return self._story

    @property
    def model(self) -> ClusterModel:
        return self._model

    @property
    def network(self) -> SimulatedNetwork:
        return self._network

    @property
    def invariants(self) -> TransactionInvariants:
        return self._invariants

    def broken(self, template: str, *facts: object) -> None:
        """Record a violated invariant."""
        self._broken(template, *facts)

    def where(self) -> str:
        """Where every task waits."""
        return self._where()

    def make_producer(self, name: str, transactional_id: str, transaction_timeout_ms: int) -> SimulatedProducer:
        """Create a producer, not yet started."""
        scenario, rng = self._scenario, random.Random(self._rng.getrandbits(64))
        configs: dict[str, Any] = dict(scenario.configs)
        if scenario.serializers:
            configs["value_serializer"] = serializer(rng)
        producer = SimulatedProducer.made_for(
            self._loop,
            rng,
            self._model,
            self._broken,
            bootstrap_servers=SERVERS,
            client_id=name,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            on_error=self._books.on_error,
            **configs,
        )
        self._chaos.producers.append(producer)
        return producer

    # --- the run ------------------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        loop = self._loop
        chaos = self._chaos.begin()
        lines = [loop.create_task(self._line(name), name=f"line {name}") for name in self._scenario.transactional_ids]
        if not chaos:
            await asyncio.sleep(self._scenario.chaos_s)
        await self._healed(chaos)
        self.closing = True
        for process in self.processes:
            process.program.closing = True
        await self._ended(lines, "its processes have not come to an end")
        for name in self._scenario.transactional_ids:
            await self._successor(name)
        await self._ended(self._deciders, "nobody could be told what became of a prepared transaction")
        await asyncio.sleep(0.1)
        if self._seed % COLLECTED == 0:
            gc.collect()
            await asyncio.sleep(0.1)
        self._chaos.remember_topics()
        self._invariants.after_all(self.processes)

    async def _ended(self, tasks: list[asyncio.Task[None]], otherwise: str) -> None:
        limit_s = 2 * self._invariants.patience_s() + 10 * self._scenario.ms("max_block_ms") / 1000
        if tasks:
            await asyncio.wait(tasks, timeout=limit_s)
        for task in tasks:
            if task.done():
                task.result()
            else:
                self._broken("%s: %s; %s", task.get_name(), otherwise, self._where())
                task.cancel()

    async def _line(self, transactional_id: str) -> None:
        """The processes with one transactional id, one after the other, or overlapping."""
        rng, running = self._rng, []
        for number in range(MOST_PROCESSES):
            if self.closing:
                break
            process = Process(self, transactional_id, number)
            self.processes.append(process)
            task = self._loop.create_task(process.live(), name=f"process {process}")
            running.append(task)
            waits_s = rng.uniform(0, self._scenario.chaos_s) if self._scenario.overlaps else None
            await asyncio.wait([task], timeout=waits_s)
            await asyncio.sleep(rng.choice((0, 0.01, 0.3)))
        await asyncio.wait(running)
        for task in running:
            task.result()

    # --- prepared transactions ----------------------------------------------------------------------------------------

    def decide(self, one: Written, wish: str) -> None:
        """Have another process commit or abort a prepared transaction."""
        name = f"decider {len(self._deciders)}"
        one.called(wish)
        self._deciders.append(self._loop.create_task(self._decide(one, wish, name), name=name))

    async def _decide(self, one: Written, wish: str, name: str) -> None:
        rng = random.Random(self._rng.getrandbits(64))
        await asyncio.sleep(rng.choice((0, 0.05, 1.0)))
        configs = {key: value for key, value in self._scenario.configs.items() if key not in ("value_serializer",)}
        client = SimulatedClient(rng, bootstrap_servers=SERVERS, client_id=name, **configs)
        while True:
            try:
                async with client:
                    if await self._decided(client, one, wish, name):
                        break
            except KafkaError as error:
                self._story.tell("%s: %s", name, str(error).replace("\n", ";"))
            await asyncio.sleep(0.05)

    async def _decided(self, client: SimulatedClient, one: Written, wish: str, name: str) -> bool:
        """Whether its outcome is known, or can never be known."""
        assert one.prepared is not None
        limit_s = self._scenario.ms("max_block_ms") / 1000
        for _ in range(3):
            began_s = self._loop.time()
            self._story.tell("%s: %s of %s", name, wish, one)
            fate: Fate | None
            try:
                await (client.commit if wish == "commit" else client.abort)(one.prepared)
                fate = Fate.COMMITTED if wish == "commit" else Fate.ABORTED
            except TransactionAbortedError:
                fate = Fate.ABORTED
            except TransactionStateError:
                fate = Fate.COMMITTED
            except TransactionOutcomeUnknownError:
                fate = None
            except TransactionTimeoutError:
                if self._loop.time() - began_s > limit_s + SLACK_S:
                    self._broken("%s: %s took %.3f s", name, wish, self._loop.time() - began_s)
                continue
            if fate is None:
                self._story.tell("%s: nobody knows what has become of %s", name, one)
            else:
                self._ledger_told(one, fate, f"{wish} of {name}")
            return True
        return False

    def _ledger_told(self, one: Written, fate: Fate, by: str) -> None:
        assert one.prepared is not None
        if not one.prepared.is_empty:
            self.ledger.told(one, fate, by)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _successor(self, transactional_id: str) -> None:
        """A new producer with the same id has to work, whatever happened to the previous ones."""
        process = Process(self, transactional_id, MOST_PROCESSES, 60_000)
        self.processes.append(process)
        await self.works_again(process)
        await self._in_time(process.producer.close(), "close")

    async def works_again(self, process: Process) -> None:
        """Without faults, a producer has to work within a time limit, unless it was fenced."""
        limit_s = self._invariants.recovery_s() + 2 * self._scenario.ms("max_block_ms") / 1000 + 2
        until_s = self._loop.time() + limit_s
        last: BaseException | None = None
        if self._scenario.forgets and process.started is not None:
            self._chaos.idle_week()
        while self._loop.time() < until_s:
            try:
                if process.started is None:
                    await process.producer.start()
                    process.note_start()
                await self._probe(process)
                if process.number == MOST_PROCESSES:
                    await self._probe(process)
            except KafkaError as error:
                self._story.tell("%s: %s", process, str(error).replace("\n", ";"))
                last = error
                if process.closing:
                    return  # another task has closed it meanwhile
                if error.fatal and process.number < MOST_PROCESSES:
                    process.over = True  # fenced, or its brokers give no new epoch to a running producer
                    return
                if error.fatal or (process.number == MOST_PROCESSES and isinstance(error, InvalidProducerEpochError)):
                    break
                await asyncio.sleep(0.02)
            else:
                return
        self._broken("%s does not work %.0f s after everything works again: %r", process, limit_s, last)
        process.over = True

    async def _probe(self, process: Process) -> None:
        """Send a record to each partition, and an offset."""
        await process.abort_what_is_open()
        one: Written | None = None
        records = []
        async with process.producer.transaction():
            one = process._begun()
            for topic, partition in process.producer.partitions_of_model():
                record = process.program._record(-1)
                record.topic, record.partition, record.key = topic, partition, None
                record.value = b"%d:probe" % record.number
                records.append(process.program.send(record))
            if not all(await asyncio.gather(*records)):
                failed = next(each.error for each in one.records if each.error is not None)
                assert failed is not None
                raise failed
            group = self._model.coordinators.group(GROUP)
            member = ConsumerGroupMetadata(GROUP)
            if group.members and self._scenario.version in ("4.3", "3.9", "2.8"):
                member = ConsumerGroupMetadata(GROUP, group.generation_id, "member")
            one.offsets_sent = True
            await process.producer.send_offsets_to_transaction(one.offsets(), member)
            one.offsets_taken = True
            one.called("commit")
        self.ledger.told(one, Fate.COMMITTED, f"the probe of {process}")
