"""The faults of a run and their times, drawn from the seed; all of them end at ``chaos_s``."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aioproducer.error_codes import Code
from aioproducer.errors import error_class
from aioproducer.testing.fake.metadata import fall_behind
from aioproducer.testing.fake.partition import NO_LEADER
from tests.simulation.link import Conditions
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import SimulatedNetwork
from tests.simulation.scenario import Scenario
from tests.simulation.story import Story

if TYPE_CHECKING:
    from aioproducer.testing.fake.model import ClusterModel
    from aioproducer.testing.fake.topology import Topic

DUPLICATE, LOST_STATE, FATAL_CODES = 46, (45, 59), (31, 35)
TRANSACTIONAL = frozenset((22, 25, 48, 49, 50, 51, 52, 53, 55, 90, 120))

RETRIABLE = tuple(code for code in Code if error_class(code).retriable and code != 13 and code not in TRANSACTIONAL)
REFUSING = tuple(
    code
    for code in Code
    if not error_class(code).retriable
    and not error_class(code).fatal
    and code not in (*LOST_STATE, DUPLICATE, 10)
    and code not in TRANSACTIONAL
)
APPLYING = tuple(code for code in (7, 20, -1, 3, 6, 56, DUPLICATE))
"""Codes that a leader can send although it has appended the batch."""

NOT_APPENDED = (19, 19, 2, 87)
"""Codes that prove that a leader has not appended the batch; after the last one it is not sent again."""
LATEST_COPY_S = 0.9
"""How long a broker leaves connections unread at most: the producer is prepared for copies that are a second late."""

METADATA_CODES = (3, 5, 17, 29, 7, -1, 100)
PRODUCER_ID_CODES = (14, 15, -1, 41, 51, 7)
APIS = ("Produce", "Produce", "Produce", "Produce", "Metadata", "Metadata", "InitProducerId", "ApiVersions", None)


VITAL = ("aioproducer sender", "aioproducer metadata")


class Chaos:
    """The faults of one run, see the module's docstring."""

    apis: tuple[str | None, ...] = APIS
    """The APIs whose requests get faults; None for any."""

    def __init__(
        self,
        scenario: Scenario,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        model: ClusterModel,
        rng: random.Random,
        story: Story,
    ) -> None:
        self._scenario = scenario
        self._loop = loop
        self._network = network
        self._model = model
        self._rng = rng
        self._story = story
        self.topics: list[Topic] = []
        """Every topic that has existed, in the order of creation."""
        self.throttle_ms = 0
        """The longest throttle time that any broker demanded."""
        self.lag_rng: random.Random | None = None
        """Decides which brokers are behind with their metadata, and when; None: none ever is."""
        self.dead_s: float | None = None
        """When an essential task of the producer was cancelled."""

    def begin(self) -> list[asyncio.Task[None]]:
        """Start the faults; the tasks end with them."""
        tasks = [self._loop.create_task(self._some_time()) for _ in range(self._scenario.faults)]
        if self.lag_rng is not None and tasks:
            tasks.append(self._loop.create_task(self._lag(self.lag_rng)))
        return tasks

    async def _lag(self, rng: random.Random) -> None:
        """Now and then a broker goes on telling metadata that others know to be old."""
        while True:
            await asyncio.sleep(rng.expovariate(10 / self._scenario.chaos_s))
            node_id = rng.choice(list(self._model.brokers))
            if node_id in self._model.outdated:
                self._story.tell("chaos: broker %d knows the present metadata", node_id)
                del self._model.outdated[node_id]
            else:
                ids = self._scenario.recreates or rng.random() < 0.5
                self._story.tell(
                    "chaos: broker %d learns of no new metadata%s", node_id, "" if ids else ", knows no ids"
                )
                fall_behind(self._model, node_id, ids=ids)

    def kinds(self) -> list[tuple[Callable[[], Awaitable[None] | None], int]]:
        """The faults that are possible in this run, with their relative frequencies."""
        if self._scenario.overtakes:
            if self._scenario.recreates:
                return [(self.make_again, 4), (self.leave_behind, 1), (self.reset_connections, 1)]
            return [(self.leave_behind, 4), (self.swap_answers, 3), (self.reset_connections, 1)]
        if self._scenario.leaves:
            return [(self.leave_unread, 6), (self.move_leader, 1), (self.reset_connections, 1)]
        if self._scenario.restarts:
            return [(self.restart_in_debt, 8), (self.move_leader, 1), (self.reset_connections, 1)]
        if self._scenario.diverges:
            return [
                (self.lag_behind, 20),
                (self.fail_ahead, 40),
                (self.see_the_past, 10 * self._scenario.knows_epochs),
                (self.lose_acknowledged, 20 * self._scenario.unclean),
                (self.leave_unread, 3),
                (self.restart_in_debt, 5),
                (self.move_leader, 5),
                (self.reset_connections, 5),
            ]
        faults: list[tuple[Callable[[], Awaitable[None] | None], int]] = [
            (self.answer_with_errors, 8),
            (self.spoil_requests, 8),
            (self.move_leader, 4),
            (self.no_leader, 3),
            (self.stop_broker, 4),
            (self.freeze_broker, 4),
            (self.reset_connections, 5),
            (self.be_slow, 3),
            (self.cut_bytes, 4),
            (self.no_room, 3),
            (self.stall, 3),
            (self.swallow_one_direction, 3),
            (self.refuse_connections, 2),
            (self.silent_address, 2),
            (self.no_names, 1),
            (self.throttle, 4),
            (self.add_partitions, 2),
            (self.shrink_isr, 2),
            (self.move_addresses, 2),
            (self.limit_messages, 2),
            (self.set_the_clock, 2),
            (self.slow_workers, 1),
        ]
        if self._scenario.recreates:
            faults.append((self.recreate_topic, 8))
        if self._scenario.forgets:
            faults.append((self.forget_producers, 8))
        if self._scenario.sabotage:
            faults.append((self.cancel_a_task, 25))
        if self._scenario.fatal:
            faults.append((self.fatal, 8))
        if self._scenario.relentless:
            faults += [(self.answer_with_errors, 20), (self.spoil_requests, 20), (self.reset_connections, 10)]
        return faults

    async def _some_time(self) -> None:
        faults = self.kinds()
        await asyncio.sleep(self._rng.uniform(0, self._scenario.chaos_s * 0.8))
        while True:
            chosen = self._rng.choices([fault for fault, _ in faults], [weight for _, weight in faults])[0]
            result = chosen()
            if result is not None:
                await result
            if not self._scenario.relentless:
                break
            await asyncio.sleep(self._rng.expovariate((30 if self._scenario.leaves else 10) / self._scenario.chaos_s))

    async def _a_while(self) -> None:
        await asyncio.sleep(
            min(self._rng.choice((0.01, 0.1, 0.5, 2.0, 6.0)) * self._rng.uniform(0.5, 1), self._scenario.chaos_s)
        )

    def heal(self) -> None:
        """End all faults."""
        self._story.tell("everything heals")
        self._model.faults.clear()
        self._model.outdated.clear()
        for node_id, broker in self._model.brokers.items():
            if not broker.up:
                self._model.start_broker(node_id)
            self._model.reconnect(node_id)
            self._model.resume_replication(node_id)
        self._network.heal()
        self._loop.slow_jobs_s = 0.0

    def _node(self) -> int:
        return self._rng.choice(list(self._model.brokers))

    def _topic(self) -> str | None:
        names = list(self._model.topics)
        return self._rng.choice(names) if names else None

    def _partition(self) -> tuple[str, int] | None:
        name = self._topic()
        return None if name is None else (name, self._rng.randrange(len(self._model.topics[name].partitions)))

    # --- what brokers answer ------------------------------------------------------------------------------------------

    def answer_with_errors(self) -> None:
        rng = self._rng
        times = rng.choice((1, 1, 2, 5, 30))
        kind = rng.random()
        if kind < 0.7:
            apply = rng.random() < 0.25
            if apply:
                code = rng.choice(APPLYING)
            elif rng.random() < 0.75:
                code = rng.choice(RETRIABLE)
            else:
                code, times = rng.choice((*REFUSING, 10)), min(times, 2)
            topic = self._topic() if rng.random() < 0.3 else None
            self._story.tell("chaos: Produce gets %d%s, %d times", code, " after the append" * apply, times)
            self._model.faults.fail(
                "Produce", code, apply=apply, times=times, skip=rng.choice((0, 0, 1, 3)), topic=topic
            )
        elif kind < 0.9:
            code = rng.choice(METADATA_CODES)
            self._story.tell("chaos: Metadata gets %d, %d times", code, times)
            self._model.faults.fail("Metadata", code, times=times)
        else:
            code = rng.choice(PRODUCER_ID_CODES)
            self._story.tell("chaos: InitProducerId gets %d, %d times", code, times)
            self._model.faults.fail("InitProducerId", code, times=times)

    def fatal(self) -> None:
        code = self._rng.choice(FATAL_CODES)
        api = self._rng.choice(("Produce", "InitProducerId"))
        self._story.tell("chaos: %s gets %d, which is fatal", api, code)
        self._model.faults.fail(api, code, times=1)

    def spoil_requests(self) -> None:
        rng = self._rng
        api, times, skip = rng.choice(self.apis), rng.choice((1, 1, 1, 2, 4)), rng.choice((0, 0, 1, 3))
        when = rng.choice(("before", "after"))
        kind = rng.choice(("drop", "drop", "swallow", "delay", "garble"))
        faults = self._model.faults
        if kind == "drop":
            faults.drop(api, when=when, times=times, skip=skip)  # type: ignore[arg-type]
        elif kind == "swallow":
            faults.swallow(api, when=when, times=times, skip=skip)  # type: ignore[arg-type]
        elif kind == "delay":
            faults.delay(api, rng.choice((5, 50, 400, 2000)), times=times, skip=skip)
        else:
            when = rng.choice(("garbage", "correlation_id", "truncated"))
            faults.garble(api, how=when, times=times, skip=skip)  # type: ignore[arg-type]
        self._story.tell("chaos: %s of %s, %s, %d times", kind, api, when, times)

    async def throttle(self) -> None:
        throttle_ms = self._rng.choice((10, 100, 500, 2000))
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        api = self._rng.choice(("Produce", "Produce", "Metadata", None))
        self._story.tell("chaos: %s is throttled by %d ms", api, throttle_ms)
        fault = self._model.faults.throttle(api, throttle_ms, times=self._rng.choice((1, 3, 10)))
        await self._a_while()
        fault.cancel()

    # --- the cluster --------------------------------------------------------------------------------------------------

    def move_leader(self) -> None:
        for _ in range(self._rng.choice((1, 1, 3))):
            if (place := self._partition()) is not None and self._model.leader_of(*place) is not None:
                self._move(*place)

    def _move(self, topic: str, partition: int) -> None:
        self._story.tell(
            "chaos: the leader of %s-%d moves to %d", topic, partition, self._model.move_leader(topic, partition)
        )

    async def leave_behind(self) -> None:
        """A leader moves while its broker has requests to read or answer, for less or more time than a client waits."""
        place = self._partition()
        if place is None or (node_id := self._model.leader_of(*place)) is None:
            return
        how = self._rng.choice(("requests are lost", "answers are lost", "answers are lost", "all stands still"))
        self._story.tell("chaos: broker %d: %s", node_id, how)
        links = self._network.links_of(node_id)
        if how == "all stands still":
            self._network.freeze(node_id)
        for link in links:
            link.swallows_up = how == "requests are lost"
            link.swallows_down = how == "answers are lost"
        await asyncio.sleep(self._rng.choice((0.005, 0.02, 0.1)) * self._rng.uniform(0.5, 1))
        if place[0] in self._model.topics and self._model.leader_of(*place) == node_id:
            self._move(*place)
        await asyncio.sleep(self._scenario.ms("request_timeout_ms") / 1000 * self._rng.uniform(0.3, 1.3))
        if how == "all stands still":
            self._network.thaw(node_id)
        for link in links:
            if link.swallows_up or link.swallows_down:
                link.reset()
        self._story.tell("chaos: broker %d goes on", node_id)

    async def leave_unread(self) -> None:
        """A leader refuses a batch; it stops reading before that, perhaps moves away and back, and reads the rest late.

        Meanwhile the client may have lost the connections, or given them up, and sent again what it can.
        """
        rng, place = self._rng, self._partition()
        if place is None or (node_id := self._model.leader_of(*place)) is None:
            return
        timeout_s, backoff_s = (self._scenario.ms(name) / 1000 for name in ("request_timeout_ms", "retry_backoff_ms"))
        delay_s = timeout_s * rng.choice((0.2, 0.4, 0.8))
        await self._refuse_in(delay_s)
        self._story.tell("chaos: broker %d reads nothing for now", node_id)
        links, latest_s = self._network.links_of(node_id), self._loop.time() + LATEST_COPY_S
        for link in links:
            link.stalled = True
        await asyncio.sleep(delay_s + rng.uniform(0, backoff_s) / 2)
        if rng.random() < 0.8:
            self._doubt()
        moves = rng.random() < 0.2
        if moves:
            self._move(*place)
        await asyncio.sleep(rng.uniform(0, backoff_s) / 2)
        if rng.random() < 0.7:
            self._story.tell("chaos: the client loses its connections to broker %d", node_id)
            for link in links:
                link.break_off()
        longest_s = rng.choice((backoff_s, backoff_s, 2 * timeout_s))
        await asyncio.sleep(max(0, min(rng.uniform(0, 1.2) * longest_s, latest_s - self._loop.time())))
        if moves:
            self._move(*place)
        self._story.tell("chaos: broker %d reads the rest", node_id)
        rng.shuffle(links)
        for link in links:
            link.stalled = False
            link.read()

    async def restart_in_debt(self) -> None:
        """A broker restarts that has written some batches without an answer; perhaps one is refused before or after."""
        rng, node_id = self._rng, self._node()
        if not self._model.brokers[node_id].up:
            return
        self._story.tell("chaos: the answers of broker %d are lost", node_id)
        for link in self._network.links_of(node_id):
            link.swallows_down = True
        if rng.random() < 0.5:
            self._model.faults.swallow("Produce", skip=rng.choice((1, 2, 3)), node=node_id)
        if rng.random() < 0.3:
            self._doubt()
        await self._some_requests(rng.choice((2, 3, 4, 5)), self._scenario.ms("request_timeout_ms") / 1000)
        self._story.tell("chaos: broker %d stops", node_id)
        self._model.stop_broker(node_id, elect=rng.random() < 0.5)
        self._network.reset(node_id)
        await asyncio.sleep(rng.choice((0.01, 0.1, 0.5)) * rng.uniform(0.5, 1))
        if rng.random() < 0.3:
            self._model.faults.fail("Produce", rng.choice(NOT_APPENDED), skip=rng.choice((0, 1, 2)))
        self._story.tell("chaos: broker %d starts", node_id)
        self._model.start_broker(node_id)

    async def _refuse_in(self, delay_s: float) -> None:
        """The next batch is refused after this time; return once some of those behind it have been read."""
        rng = self._rng
        code, times = rng.choice(NOT_APPENDED), rng.choice((1, 1, 1, 2))
        self._story.tell("chaos: Produce gets %d, %d times, in %.3f s", code, times, delay_s)
        self._model.faults.fail("Produce", code, times=times)
        self._model.faults.delay("Produce", int(delay_s * 1000))
        await self._some_requests(rng.choice((1, 2, 2, 3)), delay_s)

    async def _some_requests(self, count: int, longest_s: float) -> None:
        """Wait until brokers have read so many requests."""
        until_s, enough = self._loop.time() + longest_s, self._network.requests + count
        while self._network.requests < enough and self._loop.time() < until_s:
            await asyncio.sleep(0.001)

    def _doubt(self) -> None:
        """A batch is written but not acknowledged, perhaps until it expires, or is even reported as failed."""
        code, times = self._rng.choice(((-1, 1), (-1, 1), (7, 10), (20, 10)))
        skip = self._rng.choice((0, 1, 1, 2, 3))
        self._story.tell("chaos: after %d Produce gets %d after the append, %d times", skip, code, times)
        self._model.faults.fail("Produce", code, apply=True, times=times, skip=skip)

    async def lag_behind(self) -> None:
        """A broker copies nothing for a while; perhaps it is no longer in sync then."""
        rng, place, node_id = self._rng, self._partition(), self._node()
        if place is None:
            return
        self._story.tell("chaos: broker %d copies nothing", node_id)
        self._model.pause_replication(node_id)
        await asyncio.sleep(self._some_attempts_s())
        partition = self._model.partition(*place)
        if rng.random() < 0.3 and node_id in partition.isr and partition.leader not in (NO_LEADER, node_id):
            self._story.tell("chaos: broker %d is no longer in sync with %s-%d", node_id, *place)
            self._model.shrink_isr(*place, [one for one in partition.isr if one != node_id])
            await asyncio.sleep(self._some_attempts_s())
        self._story.tell("chaos: broker %d copies again", node_id)
        self._model.resume_replication(node_id)

    async def fail_ahead(self) -> None:
        """A leader writes what others do not copy; then it stops, or another one takes its place, which it may miss."""
        rng, place = self._rng, self._partition()
        if place is None or (node_id := self._model.leader_of(*place)) is None:
            return
        behind = [one for one in self._model.partition(*place).replicas if one != node_id and rng.random() < 0.8]
        self._story.tell("chaos: the leader of %s-%d is %d; brokers %s copy nothing", *place, node_id, behind)
        for one in behind:
            self._model.pause_replication(one)
        await self._some_records(*place, rng.choice((1, 2, 5, 10)))
        await asyncio.sleep(rng.choice((0, 0.002, self._some_attempts_s())))
        how = rng.choice(("stops", "stops", "is cut off", "is cut off", "is replaced"))
        self._story.tell("chaos: broker %d %s", node_id, how)
        if rng.random() < 0.3:
            self._model.faults.fail("Produce", rng.choice(NOT_APPENDED), skip=rng.choice((0, 0, 1, 2)))
        if how == "stops":
            self._model.stop_broker(node_id, elect=rng.random() < 0.7)
            self._network.reset(node_id)
        elif how == "is cut off":
            if rng.random() < 0.7:
                fall_behind(self._model, node_id)
            self._model.cut_off(node_id)
        elif self._model.leader_of(*place) is not None:
            self._move(*place)
        await asyncio.sleep(rng.choice((0, 0.005, self._some_attempts_s())))
        self._story.tell("chaos: brokers %s copy again", behind)
        for one in behind:
            self._model.resume_replication(one)
        self._model.elect_leaders()
        await asyncio.sleep(self._some_attempts_s())
        self._back(node_id)

    async def see_the_past(self) -> None:
        """Clients reach nobody but a former leader that does not know its successor, to which they have sent more."""
        place = self._partition()
        if place is None or (node_id := self._model.leader_of(*place)) is None:
            return
        self._story.tell("chaos: broker %d is cut off, and unreachable", node_id)
        fall_behind(self._model, node_id)
        self._model.cut_off(node_id)
        self._network.refusing[node_id] = None
        self._network.reset(node_id)
        await self._some_records(*place, self._rng.choice((1, 3)))
        others = [one for one in self._model.brokers if one != node_id]
        for link in (link for one in others for link in self._network.links_of(one)):
            link.swallows_down = True
        await self._some_records(*place, self._rng.choice((0, 1, 2, 3)))
        self._story.tell("chaos: broker %d is reachable, and no other is", node_id)
        self._network.refusing.pop(node_id, None)
        for one in others:
            self._network.refusing[one] = None
            self._network.reset(one)
        await asyncio.sleep(self._rng.uniform(0, 4))
        for one in others:
            self._network.refusing.pop(one, None)
        self._back(node_id)

    async def lose_acknowledged(self) -> None:
        """All replicas in sync stop, and one of the others leads."""
        place = self._partition()
        if place is None or (leader := self._model.leader_of(*place)) is None:
            return
        partition = self._model.partition(*place)
        behind = [one for one in partition.replicas if one != leader]
        for one in behind:
            self._model.pause_replication(one)
        self._model.shrink_isr(*place, [leader])
        await self._some_records(*place, self._rng.choice((1, 3, 10)))
        await asyncio.sleep(self._rng.choice((0, 0.05)))
        self._story.tell("chaos: broker %d stops, and %s did not have all", leader, behind)
        self._model.stop_broker(leader)
        self._network.reset(leader)
        self._model.elect_leaders(unclean=True)
        for one in behind:
            self._model.resume_replication(one)
        await asyncio.sleep(self._some_attempts_s())
        self._back(leader)

    async def _some_records(self, topic: str, partition: int, count: int) -> None:
        """Wait until a leader has written so many records."""
        log, until_s = self._model.partition(topic, partition).log, self._loop.time() + self._scenario.chaos_s / 4
        enough = log.end_offset + count
        while log.end_offset < enough and self._loop.time() < until_s:
            await asyncio.sleep(0.001)

    def _back(self, node_id: int) -> None:
        """A broker runs again, and knows who leads."""
        self._story.tell("chaos: broker %d is back", node_id)
        self._model.outdated.pop(node_id, None)
        if not self._model.brokers[node_id].up:
            self._model.start_broker(node_id)
        self._model.reconnect(node_id)

    def _some_attempts_s(self) -> float:
        """As long as a few attempts of a batch take, or as it waits for an answer."""
        longest_s = self._rng.choice((0.02, 0.2, 1.5 * self._scenario.ms("request_timeout_ms") / 1000))
        return self._rng.uniform(0, longest_s)

    async def make_again(self) -> None:
        """A topic is recreated while answers for the old one are in flight, and its first batches are refused."""
        name = self._topic()
        if name is None:
            return
        self._model.faults.delay("Produce", self._rng.choice((50, 200)), times=self._rng.choice((1, 2, 4)))
        await asyncio.sleep(self._rng.uniform(0, 0.02))
        if name not in self._model.topics:
            return
        self.remember_topics()
        partitions = len(self._model.topics[name].partitions)
        self._model.delete_topic(name)
        if self._rng.random() < 0.3:
            await asyncio.sleep(self._rng.uniform(0, 0.1))
        if name not in self._model.topics:
            self._model.create_topic(name, partitions)
        code, times, skip = self._rng.choice(RETRIABLE), self._rng.choice((1, 1, 2)), self._rng.choice((0, 0, 1))
        self._story.tell("chaos: %s is made again; after %d Produce gets %d, %d times", name, skip, code, times)
        self._model.faults.fail("Produce", code, times=times, skip=skip, topic=name)

    async def no_leader(self) -> None:
        place = self._partition()
        if place is None:
            return
        self._story.tell("chaos: %s-%d has no leader", *place)
        self._model.remove_leader(*place)
        await self._a_while()
        self._model.elect_leaders()

    async def stop_broker(self) -> None:
        node_id = self._node()
        if not self._model.brokers[node_id].up:
            return
        self._story.tell("chaos: broker %d stops", node_id)
        self._model.stop_broker(node_id, elect=self._rng.random() < 0.7)
        self._network.reset(node_id)
        await self._a_while()
        if not self._model.brokers[node_id].up:
            self._story.tell("chaos: broker %d starts", node_id)
            self._model.start_broker(node_id)

    async def freeze_broker(self) -> None:
        node_id = self._node()
        self._story.tell("chaos: broker %d stands still", node_id)
        self._network.freeze(node_id)
        if self._rng.random() < 0.5:
            for topic in self._model.topics.values():
                for partition in topic.partitions:
                    if partition.leader == node_id and len(partition.isr) > 1:
                        self._model.move_leader(topic.name, partition.index)
        await self._a_while()
        self._story.tell("chaos: broker %d goes on", node_id)
        self._network.thaw(node_id)

    def add_partitions(self) -> None:
        name = self._topic()
        if name is not None and (total := len(self._model.topics[name].partitions)) < 6:
            self._story.tell("chaos: %s has %d partitions", name, total + 1)
            self._model.add_partitions(name, total + 1)

    async def recreate_topic(self) -> None:
        name = self._topic()
        if name is None:
            return
        self.remember_topics()
        partitions = len(self._model.topics[name].partitions)
        self._story.tell("chaos: %s is deleted", name)
        self._model.delete_topic(name)
        if self._rng.random() < 0.7:
            await self._a_while()
        if name not in self._model.topics:
            self._story.tell("chaos: %s is made again", name)
            self._model.create_topic(name, self._rng.choice((partitions, partitions, 1, partitions + 1)))

    def remember_topics(self) -> None:
        """Record the existing topics before one of them is deleted."""
        for topic in self._model.topics.values():
            if topic not in self.topics:
                self.topics.append(topic)

    async def shrink_isr(self) -> None:
        place = self._partition()
        if place is None:
            return
        partition = self._model.partition(*place)
        if partition.leader < 0 or len(partition.isr) < 2:
            return
        self._story.tell("chaos: %s-%d has one replica in sync, and needs two", *place)
        topic = self._model.topics[place[0]]
        self._model.alter_configs(place[0], {"min.insync.replicas": 2})
        self._model.shrink_isr(*place, [partition.leader])
        await self._a_while()
        partition.catch_up()
        if topic.name in self._model.topics:
            self._model.alter_configs(place[0], {"min.insync.replicas": 1})

    def limit_messages(self) -> None:
        if (name := self._topic()) is not None:
            limit = self._rng.choice((300, 800, 3000))
            self._story.tell("chaos: %s takes batches of %d bytes", name, limit)
            self._model.alter_configs(name, {"max.message.bytes": limit})

    def forget_producers(self) -> None:
        if (place := self._partition()) is not None:
            self._story.tell("chaos: %s-%d forgets its producers", *place)
            self._model.forget_producers(*place)

    def move_addresses(self) -> None:
        """All brokers get new addresses, to which the bootstrap names then resolve."""
        names = self._rng.random() < 0.5
        self._story.tell("chaos: all brokers get new addresses%s", " and names" * names)
        for node_id, broker in list(self._model.brokers.items()):
            host = f"broker{node_id}-{self._rng.randrange(1000)}.invalid" if names else broker.host
            self._model.change_addresses({node_id: (host, broker.port)})
            self._network.place(node_id, host, broker.port)
            for bootstrap in ("bootstrap-a.invalid", "bootstrap-b.invalid"):
                self._network.point(bootstrap, node_id)
            if self._rng.random() < 0.7:
                self._network.reset(node_id)

    # --- the network --------------------------------------------------------------------------------------------------

    def reset_connections(self) -> None:
        node_id = self._node()
        self._story.tell("chaos: the connections to broker %d break", node_id)
        self._network.reset(node_id)

    async def be_slow(self) -> None:
        latency_s = self._rng.choice(((0.01, 0.05), (0.05, 0.2), (0.0001, 0.3)))
        self._story.tell("chaos: latency of %.4f to %.4f s", *latency_s)
        self._network.conditions.latency_s = latency_s
        await self._a_while()
        self._network.conditions.latency_s = Conditions().latency_s

    async def cut_bytes(self) -> None:
        cuts = self._rng.choice(("pieces", "bytes"))
        self._story.tell("chaos: bytes arrive in %s", cuts)
        self._network.conditions.cuts = cuts
        await self._a_while()
        self._network.conditions.cuts = "whole"

    async def no_room(self) -> None:
        room = self._rng.choice((50, 400, 3000))
        self._story.tell("chaos: connections hold %d bytes", room)
        self._network.conditions.room = room
        await self._a_while()
        self._network.conditions.room = Conditions().room
        for link in list(self._network.links):
            link.make_room()

    async def stall(self) -> None:
        node_id = self._node()
        self._story.tell("chaos: broker %d does not read its connections", node_id)
        links = self._network.links_of(node_id)
        for link in links:
            link.stalled = True
        await self._a_while()
        for link in links:
            link.stalled = False
            link.read()

    def swallow_one_direction(self) -> None:
        node_id, up = self._node(), self._rng.random() < 0.5
        self._story.tell("chaos: what goes %s broker %d is lost", "to" if up else "from", node_id)
        for link in self._network.links_of(node_id):
            link.swallows_up = link.swallows_up or up
            link.swallows_down = link.swallows_down or not up

    def swap_answers(self) -> None:
        """Swap two answers of a connection, which no real broker does."""
        node_id = self._node()
        self._story.tell("chaos: broker %d sends two answers in the wrong order", node_id)
        for link in self._network.links_of(node_id):
            link.swaps = True

    async def refuse_connections(self) -> None:
        node_id = self._node()
        self._story.tell("chaos: broker %d refuses connections", node_id)
        self._network.refusing[node_id] = None
        self._network.reset(node_id)
        await self._a_while()
        self._network.refusing.pop(node_id, None)

    async def silent_address(self) -> None:
        node_id = self._node()
        self._story.tell("chaos: broker %d does not react to connection attempts", node_id)
        addresses = [host for (host, _), node in self._network.listeners.items() if node == node_id]
        for address in addresses:
            self._network.silent_addresses[address] = None
        self._network.reset(node_id)
        await self._a_while()
        for address in addresses:
            self._network.silent_addresses.pop(address, None)

    async def no_names(self) -> None:
        self._story.tell("chaos: no names are known")
        self._network.no_names = True
        await self._a_while()
        self._network.no_names = False

    # --- the machine --------------------------------------------------------------------------------------------------

    def set_the_clock(self) -> None:
        self._loop.wall_shift_s = self._rng.choice((-3500.0, -10.0, 0.0, 10.0, 3500.0))
        self._story.tell("chaos: the wall clock is %d s off", self._loop.wall_shift_s)

    def cancel_a_task(self) -> None:
        """Cancel tasks of the producer, which no program should do."""
        tasks = sorted(
            (task for task in asyncio.all_tasks(self._loop) if task.get_name().startswith("aioproducer")),
            key=lambda task: task.get_name(),
        )
        tasks = [task for task in tasks if task.get_name() != "aioproducer close"]
        if not tasks:
            return
        victim = self._rng.choice(tasks)
        self._story.tell("chaos: somebody cancels %s", victim.get_name())
        victim.cancel()
        if victim.get_name() in VITAL and self.dead_s is None:
            self.dead_s = self._loop.time()

    async def slow_workers(self) -> None:
        self._story.tell("chaos: worker threads are slow")
        self._loop.slow_jobs_s = self._rng.choice((0.05, 0.5))
        await self._a_while()
        self._loop.slow_jobs_s = 0.0
