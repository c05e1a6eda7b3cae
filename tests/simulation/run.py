"""One run: a program, a producer, a cluster and a seed; and whether all invariants held."""

from __future__ import annotations

import asyncio
import gc
import random
import traceback
import warnings
from dataclasses import dataclass
from typing import Any

from aioproducer.testing.fake.model import ClusterModel
from tests.simulation.chaos import Chaos
from tests.simulation.invariants import Invariants
from tests.simulation.loop import SimulatedLoop, StuckError
from tests.simulation.network import SimulatedNetwork
from tests.simulation.producer import SimulatedProducer
from tests.simulation.program import Interceptor, Program, serializer
from tests.simulation.records import Books
from tests.simulation.scenario import Scenario, crowd, diverge, draw, fitting, lag, leave, overtake, restart
from tests.simulation.story import Story

MAX_COMPLAINTS = 20

CROWDED = 5
"""One seed in this many has all its records in few partitions."""

OVERTAKING, OVERTAKING_REST = 20, 3
"""One seed in this many, with this remainder, has leaders move, and topics recreated, with batches in flight."""

LEAVING, LEAVING_REST = 20, 13
"""One seed in this many, with this remainder, has brokers read the rest of abandoned connections late."""

RESTARTING, RESTARTING_REST = 20, 17
"""One seed in this many, with this remainder, has brokers restart that owe answers."""

DIVERGING, DIVERGING_REST = 20, 11
"""One seed in this many, with this remainder, has leaders fail that have batches which no other replica has."""

LAGGING, LAGGING_REST = 10, 5
"""One seed in this many, with this remainder, has brokers that are behind with their metadata."""


@dataclass(slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        name: the seed as ``make simulate`` takes it.
        complaints: the violated invariants; empty for a good run.
        virtual_s: how much virtual time passed.
    """

    seed: int
    name: str
    scenario: Scenario
    complaints: list[str]
    story: Story
    records: int
    acked: int
    requests: int
    turns: int
    virtual_s: float

    @property
    def failed(self) -> bool:
        """Whether an invariant was violated."""
        return bool(self.complaints)

    def report(self) -> str:
        """Everything known about the run, to find out why it failed."""
        return "\n".join(
            (
                f"seed {self.name}: {self.scenario}",
                *self.story.lines(),
                f"seed {self.name} failed:" if self.failed else f"seed {self.name}: all is well",
                *(f"  - {complaint}" for complaint in self.complaints),
                f"to see it again: make simulate SEED={self.name}",
            )
        )


def simulate(seed: int) -> Outcome:
    """Run one seed from begin to end."""
    return run(Run, seed)


def run(kind: type[Run], seed: int) -> Outcome:
    """Run one seed of a kind of simulation."""
    was_enabled = gc.isenabled()
    gc.disable()  # cycles are collected where the seed says so, not whenever there are many objects
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            outcome = kind(seed).outcome()
    finally:
        if was_enabled:
            gc.enable()
    outcome.complaints += [f"a warning: {warning.message}" for warning in warned]
    return outcome


class Run:
    """The simulation of one program with one producer."""

    prefix = ""
    """The prefix of the seeds' names."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        rng = random.Random(seed)
        self._rng = rng
        self._scenario = scenario = fitting(self._draw(rng))
        self._loop = loop = SimulatedLoop(random.Random(rng.getrandbits(64)))
        self._story = Story(loop.time)
        self._complaints: list[str] = []
        self._model = self._make_model(random.Random(rng.getrandbits(64)))
        for topic, partitions in scenario.topics.items():
            self._model.create_topic(topic, partitions)
        self._network = SimulatedNetwork(
            loop,
            random.Random(rng.getrandbits(64)),
            self._model,
            self._story,
            self._broken,
            keeps_views=scenario.keeps_views,
            max_in_flight=scenario.configs["max_in_flight_requests_per_connection"],
            acknowledged=scenario.acks != 0,
        )
        loop.network = self._network
        for node_id in self._model.brokers:
            self._network.point(f"bootstrap-{'ab'[node_id % 2]}.invalid", node_id)
        self._books = Books()
        self._chaos = self._make_chaos(random.Random(rng.getrandbits(64)))
        if scenario.lags:
            self._chaos.lag_rng = random.Random(f"{seed} lags")
        self._invariants = self._make_invariants()

    # --- what this kind of simulation is made of ----------------------------------------------------------------------

    def _draw(self, rng: random.Random) -> Scenario:
        scenario = draw(rng)
        if self._seed % CROWDED == CROWDED - 1:
            return crowd(scenario, rng)
        if self._seed % OVERTAKING == OVERTAKING_REST:
            return overtake(scenario, rng)
        if self._seed % LEAVING == LEAVING_REST:
            return leave(scenario, rng)
        if self._seed % RESTARTING == RESTARTING_REST:
            return restart(scenario, rng)
        if self._seed % DIVERGING == DIVERGING_REST:
            return diverge(scenario, rng)
        if self._seed % LAGGING == LAGGING_REST:
            return lag(scenario, recreates=self._seed % (2 * LAGGING) == LAGGING_REST)
        return scenario

    def _make_model(self, rng: random.Random) -> ClusterModel:
        scenario = self._scenario
        return ClusterModel(
            brokers=scenario.brokers,
            rng=rng,
            version=scenario.version,
            auto_create_topics=scenario.auto_create,
            message_max_bytes=scenario.message_max_bytes,
        )

    def _make_chaos(self, rng: random.Random) -> Chaos:
        return Chaos(self._scenario, self._loop, self._network, self._model, rng, self._story)

    def _make_invariants(self) -> Invariants:
        return Invariants(
            self._scenario, self._books, self._model, self._chaos, self._network, self._loop, self._broken
        )

    # ---

    def _broken(self, template: str, *facts: object) -> None:
        """Record a violated invariant."""
        complaint = template % facts
        self._story.tell("!!! %s", complaint)
        if len(self._complaints) < MAX_COMPLAINTS:
            self._complaints.append(complaint)

    def outcome(self) -> Outcome:
        """Run, and return the outcome."""
        loop = self._loop
        began_s = loop.time()
        asyncio.set_event_loop(None)
        main = loop.create_task(self._main())
        try:
            loop.run_until_complete(main)
        except StuckError as error:
            self._broken("%s; %s", error, self._where())
            self._give_up()
        except Exception:
            self._broken("the run ended with %s", traceback.format_exc())
            self._give_up()
        virtual_s = loop.time() - began_s
        loop.close()
        self._books.forget_tracebacks()
        return Outcome(
            self._seed,
            f"{self.prefix}{self._seed}",
            self._scenario,
            self._complaints,
            self._story,
            len(self._books.records),
            sum(record.metadata is not None for record in self._books.records),
            self._network.requests,
            loop.turns,
            virtual_s,
        )

    def _where(self) -> str:
        """Where every task waits."""
        places = []
        for task in sorted(asyncio.all_tasks(self._loop), key=lambda task: task.get_name()):
            stack, inner = [], task.get_coro()
            while (frame := getattr(inner, "cr_frame", None)) is not None:
                stack.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
                inner = inner.cr_await
            places.append(f"{task.get_name()} at {' > '.join(stack)}")
        return "; ".join(places)

    def _give_up(self) -> None:
        """End what is left of a stuck run, so that it does not affect the next one."""
        self._loop.on_turn = None
        self._loop.turns = -10_000
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        try:
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=10)) if tasks else None
        except Exception as error:
            self._story.tell("giving up raised %r", error)

    async def _main(self) -> None:
        scenario, loop = self._scenario, self._loop
        producer = self._producer()
        program = Program(
            scenario, producer, random.Random(self._rng.getrandbits(64)), self._books, self._story, self._broken
        )
        chaos = self._chaos.begin()
        if not await self._started(producer, chaos):
            return
        self._invariants.watch(producer)
        tasks = [loop.create_task(program.run(number), name=f"task {number}") for number in range(scenario.tasks)]
        if scenario.closes_early:
            await asyncio.sleep(self._rng.uniform(0, scenario.chaos_s * 0.9))
            await self._in_time(program.close(), "close")
            await self._healed(chaos)
        else:
            await self._healed(chaos)
            program.closing = True
        late_s = scenario.chaos_s if scenario.calm else 0.0  # then nothing has waited for the tasks to begin
        await asyncio.wait(tasks, timeout=self._invariants.patience_s() + scenario.ms("max_block_ms") / 1000 + late_s)
        for task in tasks:
            if task.done():
                task.result()
            else:
                name, limit_s = task.get_name(), self._invariants.patience_s()
                where = self._where()
                self._broken("%s is not done %.0f s after everything works again; %s", name, limit_s, where)
                task.cancel()
        if not scenario.closes_early:
            if not producer.has_failed:
                await self._in_time(program.probe(self._invariants.recovery_s()), "the probe", 10)
            await self._in_time(program.close(), "close")
        await self._in_time(program.look_at_the_rest(), "looking at Deliveries")
        await self._in_time(program.close_again(), "another close")
        await asyncio.sleep(0.1)
        gc.collect()
        await asyncio.sleep(0.1)
        self._chaos.remember_topics()
        self._invariants.after_the_end(producer)

    def _producer(self) -> SimulatedProducer:
        scenario, rng = self._scenario, random.Random(self._rng.getrandbits(64))
        configs: dict[str, Any] = dict(scenario.configs)
        if scenario.interceptors:
            configs["interceptor_classes"] = [Interceptor(self._books, rng)]
        if scenario.serializers:
            configs["value_serializer"] = serializer(rng)
        return SimulatedProducer.made_for(
            self._loop,
            rng,
            self._model,
            self._broken,
            bootstrap_servers=["bootstrap-a.invalid:9092", "bootstrap-b.invalid:9092"],
            client_id="simulated",
            on_error=self._books.on_error,
            **configs,
        )

    async def _started(self, producer: SimulatedProducer, chaos: list[asyncio.Task[None]]) -> bool:
        """Start, repeatedly if necessary; without faults it has to succeed."""
        began_s = self._loop.time()
        for _ in range(1000):
            try:
                await producer.start()
            except Exception as error:
                self._story.tell("start: %s", str(error).replace("\n", ";"))
                if self._loop.time() - began_s > self._scenario.chaos_s:
                    await self._healed(chaos)
                    chaos.clear()
                    if self._loop.time() - began_s > self._scenario.chaos_s + self._invariants.recovery_s():
                        self._broken("start() fails although everything works: %r", error)
                        return False
                await asyncio.sleep(0.05)
            else:
                self._story.tell("started")
                return True
        return False

    async def _healed(self, chaos: list[asyncio.Task[None]]) -> None:
        if chaos:
            left_s = 1000.0 + self._scenario.chaos_s - self._loop.time()
            if left_s > 0:
                await asyncio.sleep(left_s)
        for task in chaos:
            task.cancel()
        for result in await asyncio.gather(*chaos, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        self._chaos.heal()

    async def _in_time(self, work: Any, what: str, factor: float = 1.0) -> None:
        limit_s = self._invariants.patience_s() * factor
        try:
            async with asyncio.timeout(limit_s):
                await work
        except TimeoutError:
            self._broken("%s is not done after %.0f s", what, limit_s)
