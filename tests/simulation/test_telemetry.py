"""Metrics pushed to a simulated cluster: when, what, and how errors are handled, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, MetricsData

from aioproducer import ConfigError, ProducerClosedError
from aioproducer.compression import codec_by_attribute
from aioproducer.testing.fake.client_metrics import CODECS, MAX_BYTES, Push
from aioproducer.testing.fake.frames import RequestFrame
from tests.simulation import world as simulation
from tests.simulation.link import Link

ASK, PUSH = "GetTelemetrySubscriptions", "PushTelemetry"
INTERVAL_MS = 60_000
INTERVAL_S = INTERVAL_MS / 1000
DEFAULT_INTERVAL_S = 300
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

INVALID_REQUEST, UNSUPPORTED_COMPRESSION, INVALID_RECORD, UNKNOWN_SUBSCRIPTION, TOO_LARGE, THROTTLED = (
    42, 76, 87, 117, 118, 89,
)  # fmt: skip


class World(simulation.World):
    """A cluster that requests metrics, and the times at which its brokers read requests."""

    def __init__(self, seed: int = 1, *, brokers: int = 1, receives_metrics: bool = True, **configs: Any) -> None:
        super().__init__(seed, brokers=brokers, receives_metrics=receives_metrics, **configs)
        self.network.on_request = self._arrived
        self.requests: list[tuple[float, int, RequestFrame]] = []

    def wants(
        self, *names: str, interval_ms: int = INTERVAL_MS, max_bytes: int = MAX_BYTES, delta: bool = True,
        codecs: tuple[int, ...] = CODECS,
    ) -> None:  # fmt: skip
        """Set the cluster's subscription."""
        self.model.client_metrics.subscribe(names, interval_ms, max_bytes, delta, codecs)

    def run(self, work: Callable[[World], Awaitable[None]]) -> None:
        """Start the producer, do the work, and close it."""

        async def main() -> None:
            async with self.producer:
                await work(self)

        self.run_alone(main)

    @property
    def pushes(self) -> list[Push]:
        """The pushes that brokers accepted."""
        return self.model.client_metrics.pushes

    def times(self, api: str) -> list[float]:
        """When brokers read requests of this kind."""
        return [at_s for at_s, _, request in self.requests if request.api_name == api]

    def asked(self) -> list[str]:
        """The telemetry requests, in order."""
        return [request.api_name for _, _, request in self.requests if request.api_name in (ASK, PUSH)]

    def _arrived(self, link: Link, request: RequestFrame) -> None:
        self.requests.append((self.loop.time(), link.node_id, request))


def metrics(push: Push) -> dict[str, Metric]:
    """The metrics by name, without their common prefix."""
    data = MetricsData.FromString(push.metrics)
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "aioproducer"
    return {metric.name.removeprefix("org.apache.kafka.producer."): metric for metric in scope.metrics}


def value(push: Push, name: str) -> float:
    (point,) = (one := metrics(push)[name]).sum.data_points or one.gauge.data_points
    found: float = point.as_double
    return found


# --- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_asks_at_once_and_pushes_at_the_interval(seed: int) -> None:
    """The first push after 0.5 to 1.5 intervals, so that clients that started together do not push together."""

    async def work(world: World) -> None:
        await asyncio.sleep(10.2 * INTERVAL_S)

    world = World(seed)
    world.wants("*")
    world.run(work)
    (asked_s,), pushed_s = world.times(ASK), world.times(PUSH)
    assert asked_s < 1001
    assert 0.5 * INTERVAL_S <= pushed_s[0] - asked_s <= 1.51 * INTERVAL_S
    regular = pushed_s[:-1]
    assert len(regular) in (9, 10)
    for earlier, later in itertools.pairwise(regular):
        assert later - earlier == pytest.approx(INTERVAL_S, abs=0.01)
    assert [push.terminating for push in world.pushes] == [False] * len(regular) + [True]


def test_first_pushes_are_spread() -> None:
    first = set()
    for seed in range(8):
        world = World(seed)
        world.wants("*")
        world.run(lambda world: asyncio.sleep(1.6 * INTERVAL_S))
        first.add(round(world.times(PUSH)[0]))
    assert len(first) > 4


def test_a_cluster_that_wants_nothing_is_asked_again() -> None:
    async def work(world: World) -> None:
        assert await world.producer.client_instance_id(1) is not None
        await asyncio.sleep(2.5 * INTERVAL_S)

    world = World()
    world.wants()
    world.run(work)
    assert world.asked() == [ASK] * 3


def test_brokers_without_a_receiver_are_asked_nothing() -> None:
    async def work(world: World) -> None:
        assert await world.producer.client_instance_id(5) is None
        await asyncio.sleep(10 * INTERVAL_S)
        await world.producer.send("orders", b"value")

    world = World(receives_metrics=False)
    world.run(work)
    assert world.asked() == []


def test_a_producer_that_must_not_asks_nothing() -> None:
    async def work(world: World) -> None:
        with pytest.raises(ConfigError, match="enable_metrics_push=False"):
            await world.producer.client_instance_id(5)
        await asyncio.sleep(INTERVAL_S)

    world = World(enable_metrics_push=False)
    world.wants("*")
    world.run(work)
    assert world.asked() == []


def test_one_broker_gets_it_all_as_long_as_it_is_there() -> None:
    async def work(world: World) -> None:
        for partition in range(3):
            await world.producer.send("orders", b"value", partition=partition)
        await asyncio.sleep(5 * INTERVAL_S)
        sticky = {broker for _, broker, request in world.requests if request.api_name in (ASK, PUSH)}
        assert len(sticky) == 1
        world.model.stop_broker(*sticky)
        await asyncio.sleep(3 * INTERVAL_S)
        brokers = {push.broker for push in world.pushes}
        assert len(brokers) == 2
        assert sticky < brokers

    world = World(brokers=3, connections_max_idle_ms=-1)
    world.wants("*")
    world.run(work)
    assert len({push.client_instance_id for push in world.pushes}) == 1
    assert sum(value(push, "record.send.total") for push in world.pushes) == 3


def test_it_connects_to_nobody() -> None:
    """If all connections were closed as idle, pushes wait until one is opened for something else."""

    async def work(world: World) -> None:
        await asyncio.sleep(10 * INTERVAL_S)
        assert world.producer.metrics()["producer-metrics"]["connection-count"] == 0
        before = len(world.asked())
        await asyncio.sleep(10 * INTERVAL_S)
        assert len(world.asked()) == before
        await world.producer.send("orders", b"value")
        await asyncio.sleep(0.1)
        assert len(world.asked()) == before + 1

    world = World(connections_max_idle_ms=5_000, metadata_max_age_ms=100 * INTERVAL_MS)
    world.wants("*")
    world.run(work)


# --- what -------------------------------------------------------------------------------------------------------------


def test_sums_since_the_last_push() -> None:
    async def work(world: World) -> None:
        for number in (5, 0, 7):
            before = len(world.pushes)
            await world.producer.send_many("orders", [b"value"] * number)
            while len(world.pushes) == before:
                await asyncio.sleep(1)
        await world.producer.send_many("orders", [b"value"] * 2)

    world = World()
    world.wants("*")
    world.run(work)
    assert [value(push, "record.send.total") for push in world.pushes] == [5, 0, 7, 2]
    assert [value(push, "topic.record.send.total") for push in world.pushes] == [5, 0, 7, 2]
    times = []
    for push in world.pushes:
        total = metrics(push)["record.send.total"].sum
        assert total.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        assert total.is_monotonic
        (point,) = total.data_points
        times.append((point.start_time_unix_nano, point.time_unix_nano))
    assert all(start < end for start, end in times)
    assert [start for start, _ in times[1:]] == [end for _, end in times[:-1]]


def test_sums_since_the_start() -> None:
    async def work(world: World) -> None:
        for number in (5, 7):
            before = len(world.pushes)
            await world.producer.send_many("orders", [b"value"] * number)
            while len(world.pushes) == before:
                await asyncio.sleep(1)

    world = World()
    world.wants("*", delta=False)
    world.run(work)
    assert [value(push, "record.send.total") for push in world.pushes] == [5, 12, 12]
    totals = [metrics(push)["record.send.total"].sum for push in world.pushes]
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert {total.aggregation_temporality for total in totals} == {cumulative}
    assert len({total.data_points[0].start_time_unix_nano for total in totals}) == 1


def test_a_cluster_that_changes_how_it_counts() -> None:
    """From deltas to sums and back: nothing is reported twice, and metrics start again after the change."""

    async def work(world: World) -> None:
        await world.producer.send_many("orders", [b"value"] * 5)
        for delta in (True, False, True):
            world.wants("*", delta=delta, interval_ms=INTERVAL_MS + int(delta))
            before = len(world.pushes)
            while len(world.pushes) == before:
                await asyncio.sleep(1)

    world = World()
    world.run(work)
    assert [value(push, "record.send.total") for push in world.pushes] == [5, 5, 5, 0]


def test_only_what_is_wanted() -> None:
    world = World()
    world.wants("org.apache.kafka.producer.record.", "org.apache.kafka.producer.node.request.latency.avg")

    async def work(world: World) -> None:
        await world.producer.send("orders", b"value")
        await asyncio.sleep(2 * INTERVAL_S)

    world.run(work)
    for push in world.pushes:
        names = set(metrics(push))
        assert "record.send.total" in names
        assert all(name.startswith("record.") or name == "node.request.latency.avg" for name in names)
    (point,) = metrics(world.pushes[0])["node.request.latency.avg"].gauge.data_points
    assert [(one.key, one.value.string_value) for one in point.attributes] == [("node_id", "node-1")]


def test_averages_of_nothing_are_left_out() -> None:
    world = World()
    world.wants("*")
    world.run(lambda world: asyncio.sleep(2 * INTERVAL_S))
    assert "batch.size.avg" not in metrics(world.pushes[0])
    assert "batch.split.total" in metrics(world.pushes[0])


def test_whose_they_are() -> None:
    async def work(world: World) -> None:
        await asyncio.sleep(2 * INTERVAL_S)

    world = World(transactional_id="billing")
    world.wants("*")
    world.run(work)
    (resource,) = MetricsData.FromString(world.pushes[0].metrics).resource_metrics
    attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert attributes == {"transactional_id": "billing"}


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [((ZSTD, GZIP), "zstd"), ((GZIP, ZSTD), "gzip"), ((LZ4,), "lz4"), ((SNAPPY,), "snappy"), ((), "none"),
     ((99, -1, LZ4), "lz4"), ((99,), "none")],
)  # fmt: skip
def test_what_the_cluster_likes_best(offered: tuple[int, ...], chosen: str) -> None:
    world = World()
    world.wants("*", codecs=offered)
    world.run(lambda world: asyncio.sleep(2 * INTERVAL_S))
    assert {push.codec for push in world.pushes} == {chosen}


def test_a_large_report_is_compressed_in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a small one on the loop, as with batches."""
    in_workers: list[int] = []

    async def work(world: World) -> None:
        run = world.loop.run_in_executor

        def noted(executor: Any, function: Any, *arguments: Any) -> Any:
            in_workers.extend(len(argument) for argument in arguments)
            return run(executor, function, *arguments)

        monkeypatch.setattr(world.loop, "run_in_executor", noted)
        while not world.pushes:
            await asyncio.sleep(1)
        for number in range(100):
            world.model.create_topic(f"topic-{number}", 1)
            await world.producer.send(f"topic-{number}", b"value")

    world = World()
    world.wants("*", codecs=(GZIP,))
    world.run(work)
    small, large = (len(push.metrics) for push in world.pushes)
    assert small <= codec_by_attribute(GZIP).inline_limit_bytes < large
    assert in_workers == [large]


def test_what_is_too_large_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """First metrics of topics, then of nodes; sums that were left out are reported once there is room."""

    async def work(world: World) -> None:
        for number in range(40):
            world.model.create_topic(f"topic-{number}", 1)
            await world.producer.send(f"topic-{number}", b"value")
        while len(world.pushes) < 2:
            await asyncio.sleep(1)
        world.wants("*", interval_ms=INTERVAL_MS + 1)
        while len(world.pushes) < 3:
            await asyncio.sleep(1)

    caplog.set_level(logging.INFO, "aioproducer.telemetry")
    world = World()
    world.wants("*", codecs=(), max_bytes=12_000)
    world.run(work)
    small, _, large = world.pushes[:3]
    assert len(small.metrics) <= 12_000
    assert "topic.record.send.total" not in metrics(small)
    assert "node.request.total" in metrics(small)
    sent = metrics(large)["topic.record.send.total"].sum.data_points
    assert len(sent) == 40
    assert {point.as_double for point in sent} == {1.0}
    assert value(small, "record.send.total") == 40
    assert value(large, "record.send.total") == 0
    told = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(told) == 1  # repeated lines would not help anyone


def test_no_room_for_anything() -> None:
    world = World()
    world.wants("*", codecs=(), max_bytes=100)
    world.run(lambda world: asyncio.sleep(2 * INTERVAL_S))
    assert [push.metrics for push in world.pushes] == [b""] * len(world.pushes)


# --- when it does not work --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [UNKNOWN_SUBSCRIPTION, UNSUPPORTED_COMPRESSION])
def test_a_push_that_is_refused_because_of_what_was_agreed(code: int) -> None:
    """The subscription is requested again at once."""

    async def work(world: World) -> None:
        world.model.faults.fail(PUSH, code, times=1)
        await world.producer.send("orders", b"value")
        while PUSH not in world.asked():
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)
        assert world.asked() == [ASK, PUSH, ASK]
        world.model.client_metrics._instances.clear()
        await asyncio.sleep(10 * INTERVAL_S)

    world = World(connections_max_idle_ms=-1)
    world.wants("*")
    world.run(work)
    assert sum(value(push, "record.send.total") for push in world.pushes) == 1
    codec = "lz4" if code == UNSUPPORTED_COMPRESSION else "zstd"
    assert {push.codec for push in world.pushes} == {codec}


@pytest.mark.parametrize("code", [TOO_LARGE, THROTTLED])
def test_a_push_that_has_to_wait(code: int) -> None:
    async def work(world: World) -> None:
        world.model.faults.fail(PUSH, code, times=1)
        await world.producer.send("orders", b"value")
        await asyncio.sleep(5 * INTERVAL_S)

    world = World(connections_max_idle_ms=-1)
    world.wants("*")
    world.run(work)
    assert world.asked()[:4] == [ASK, PUSH, ASK, PUSH]
    assert world.times(ASK)[1] - world.times(PUSH)[0] == pytest.approx(INTERVAL_S, abs=0.01)
    assert sum(value(push, "record.send.total") for push in world.pushes) == 1


def test_the_end_is_told_also_after_a_failure_that_passed(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise the log would end with a push that will be retried."""

    async def work(world: World) -> None:
        world.model.faults.fail(PUSH, THROTTLED, times=1)
        world.model.faults.fail(PUSH, INVALID_REQUEST, times=None)
        await asyncio.sleep(20 * INTERVAL_S)

    caplog.set_level(logging.INFO, "aioproducer.telemetry")
    world = World(connections_max_idle_ms=-1)
    world.wants("*")
    world.run(work)
    _, passed, ended = [record.getMessage() for record in caplog.records]
    assert "a push of metrics was refused with THROTTLING_QUOTA_EXCEEDED and will be retried" in passed
    assert "a push of metrics was refused with INVALID_REQUEST; no more metrics are pushed" in ended


@pytest.mark.parametrize("code", [INVALID_REQUEST, INVALID_RECORD, 35, 29, -1])
@pytest.mark.parametrize("api", [ASK, PUSH])
def test_what_no_repetition_helps_against_ends_it(api: str, code: int, caplog: pytest.LogCaptureFixture) -> None:
    async def work(world: World) -> None:
        world.model.faults.fail(api, code, times=None)
        await asyncio.sleep(20 * INTERVAL_S)
        assert world.asked().count(api) == 1
        await world.producer.send("orders", b"value")

    caplog.set_level(logging.INFO, "aioproducer.telemetry")
    world = World()
    world.wants("*")
    world.run(work)
    assert world.asked().count(api) == 1
    assert [record.levelname for record in caplog.records if "no more metrics" in record.getMessage()] == ["INFO"]


def test_a_subscription_that_is_refused_is_asked_for_later() -> None:
    """Never at once, whatever the broker says, or there would be endless requests."""

    async def work(world: World) -> None:
        world.model.faults.fail(ASK, UNKNOWN_SUBSCRIPTION, times=2)
        await asyncio.sleep(2.5 * DEFAULT_INTERVAL_S)

    world = World(connections_max_idle_ms=-1)
    world.wants("*")
    world.run(work)
    asked_s = world.times(ASK)
    assert [later - earlier for earlier, later in itertools.pairwise(asked_s)] == pytest.approx(
        [DEFAULT_INTERVAL_S] * 2, abs=0.01
    )


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_push_without_an_answer_is_told_at_most_once(when: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The connection is lost, but no records are, and nothing is pushed twice."""

    async def work(world: World) -> None:
        await world.producer.send("orders", b"value")
        world.model.faults.drop(PUSH, when=when, times=1)
        while PUSH not in world.asked():
            await asyncio.sleep(0.1)
        await world.producer.send("orders", b"value")
        while len(world.pushes) < (3 if when == "after" else 2):
            await asyncio.sleep(0.1)

    caplog.set_level(logging.DEBUG, "aioproducer.telemetry")
    world = World()
    world.wants("*")
    world.run(work)
    sent = sum(value(push, "record.send.total") for push in world.pushes)
    assert sent == (2 if when == "after" else 1)
    assert len([record for record in caplog.records if "will be retried" in record.getMessage()]) == 1


def test_only_the_first_failure_is_told_to_people(caplog: pytest.LogCaptureFixture) -> None:
    async def work(world: World) -> None:
        world.model.faults.fail(PUSH, THROTTLED, times=None)
        await asyncio.sleep(20 * INTERVAL_S)

    caplog.set_level(logging.DEBUG, "aioproducer.telemetry")
    world = World(connections_max_idle_ms=-1)
    world.wants("*")
    world.run(work)
    told = [record.levelname for record in caplog.records if "THROTTLING_QUOTA_EXCEEDED" in record.getMessage()]
    assert told[0] == "INFO"
    assert set(told[1:]) == {"DEBUG"}
    assert len(told) > 3


@pytest.mark.parametrize("how", ["garbage", "correlation_id", "truncated"])
@pytest.mark.parametrize("api", [ASK, PUSH])
def test_answers_that_make_no_sense(api: str, how: Any) -> None:
    """As with other requests they cost the connection, and nothing else."""

    async def work(world: World) -> None:
        world.model.faults.garble(api, how=how, times=1)
        for _ in range(20):
            await world.producer.send("orders", b"value")
            await asyncio.sleep(INTERVAL_S)

    world = World()
    world.wants("*")
    world.run(work)
    assert len(world.pushes) > 5


def test_throttling_is_honoured() -> None:
    """A broker that throttles a push gets no records either during that time."""

    async def work(world: World) -> None:
        await world.producer.send("orders", b"value")
        world.model.faults.throttle(PUSH, 7_000, times=1)
        while not world.times(PUSH):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        await world.producer.send("orders", b"value")

    world = World()
    world.wants("*")
    world.run(work)
    assert world.times("Produce")[1] - world.times(PUSH)[0] >= 7.0


def test_at_full_load_it_gets_its_place() -> None:
    """Although records would take every free place of the only connection."""

    async def load(world: World) -> None:
        while world.loop.time() < 1000 + 4 * INTERVAL_S:
            await world.producer.send("orders", b"value")

    async def work(world: World) -> None:
        world.network.conditions.latency_s = (0.4, 0.5)
        world.network.conditions.work_s = (0.1, 0.2)
        await asyncio.gather(*[load(world) for _ in range(3)])

    world = World(max_in_flight_requests_per_connection=1, linger_ms=0)
    world.wants("*")
    world.run(work)
    assert len(world.pushes) >= 3


# --- the end ----------------------------------------------------------------------------------------------------------


def test_the_last_push_has_the_last_records() -> None:
    async def work(world: World) -> None:
        await world.producer.client_instance_id(1)
        for _ in range(10):
            await world.producer.submit("orders", b"value")

    world = World(linger_ms=1_000)
    world.wants("*")
    world.run(work)
    (push,) = world.pushes
    assert push.terminating
    assert value(push, "record.send.total") == 10


def test_close_does_not_wait_for_a_broker_that_does_not_answer() -> None:
    closed_s: list[float] = []

    async def work(world: World) -> None:
        await world.producer.client_instance_id(1)
        world.model.faults.swallow(PUSH, times=None)
        began_s = world.loop.time()
        await world.producer.close()
        closed_s.append(world.loop.time() - began_s)

    world = World()
    world.wants("*")
    world.run(work)
    assert closed_s[0] < 0.3


def test_close_with_no_time_pushes_nothing() -> None:
    async def work(world: World) -> None:
        await world.producer.client_instance_id(1)
        await world.producer.close(0)

    world = World()
    world.wants("*")
    world.run(work)
    assert world.asked() == [ASK]


def test_close_before_the_cluster_has_said_what_it_wants() -> None:
    async def work(world: World) -> None:
        world.model.faults.swallow(ASK, times=None)
        waiting = asyncio.ensure_future(world.producer.client_instance_id(100))
        await asyncio.sleep(1)
        await world.producer.close()
        with pytest.raises(ProducerClosedError):
            await waiting
        with pytest.raises(ProducerClosedError):
            await world.producer.client_instance_id(1)

    world = World()
    world.wants("*")
    world.run(work)
    assert world.asked() == [ASK]


def test_its_id() -> None:
    """It never changes, and has Kafka's format; it is returned at once if known, and is None if not known in time."""

    async def work(world: World) -> None:
        assert await world.producer.client_instance_id(0) is None
        with pytest.raises(ValueError, match="negative"):
            await world.producer.client_instance_id(-1)
        with pytest.raises(ValueError, match="timeout is not a number; seconds are needed"):
            await world.producer.client_instance_id(math.nan)
        wrong: Any
        for wrong in (None, "5"):
            with pytest.raises(TypeError, match=rf"timeout is a {type(wrong).__name__}; seconds are needed"):
                await world.producer.client_instance_id(wrong)
        first, second = await asyncio.gather(*[world.producer.client_instance_id(each) for each in (5, 10**400)])
        assert first == second == await world.producer.client_instance_id(0)
        assert first is not None
        assert len(first) == 22
        known_s = world.loop.time()
        assert await world.producer.client_instance_id(5) == first
        assert world.loop.time() == known_s
        world.wants("*", interval_ms=INTERVAL_MS + 1)
        await asyncio.sleep(5 * INTERVAL_S)
        assert await world.producer.client_instance_id(0) == first

    world = World()
    world.wants("*")
    world.run(work)
    ids = {request.message.client_instance_id for _, _, request in world.requests if request.api_name in (ASK, PUSH)}
    assert len(ids) == 2  # the first request has no id yet


def test_its_id_comes_while_the_loop_is_blocked() -> None:
    """The answer is there before the time is over, and read afterwards."""

    async def work(world: World) -> None:
        world.model.faults.delay(ASK, 500)
        world.loop.call_later(0.1, world.loop.spend, 60)
        assert await world.producer.client_instance_id(2) is not None

    world = World()
    world.wants("*")
    world.run(work)


def test_an_error_of_its_own_reaches_nobody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Telemetry ends after an internal error; records go on."""

    async def work(world: World) -> None:
        monkeypatch.setattr("aioproducer.telemetry.report.Report.encoded", lambda report: 1 // 0)
        await asyncio.sleep(3 * INTERVAL_S)
        await world.producer.send("orders", b"value")

    world = World()
    world.wants("*")
    world.run(work)
    assert world.asked() == [ASK]
    assert ["internal error" in record.getMessage() for record in caplog.records] == [True]
