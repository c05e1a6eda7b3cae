"""Metadata against scripted brokers on real sockets: waiting for topics, updates, recovery."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from aioproducer import cluster as cluster_module
from aioproducer import metadata as metadata_module
from aioproducer.cluster import Broker, ClusterTopic, LeaderHint
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import (
    BootstrapError,
    ConnectionLostError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    ProducerClosedError,
    ProducerFailedError,
    SaslAuthenticationFailedError,
    TlsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aioproducer.metadata import Metadata
from aioproducer.net import first_answer as first_answer_module
from aioproducer.net import node as node_module
from aioproducer.net import nodes as nodes_module
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection
from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.end_txn import EndTxnRequest, EndTxnResponse
from aioproducer.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.core import messages_of
from tests.unit.net.fake_broker import EVERYTHING, FakeBroker, ReceivedRequest
from tests.unit.waiting import until


class FakeCluster:
    """Brokers that answer Metadata from one shared state.

    ``topics`` maps a name to the leaders of its partitions, as (node id, epoch), or to an error code.
    """

    def __init__(self, *brokers: FakeBroker) -> None:
        self.brokers = list(brokers)
        self.listed = list(brokers)
        self.topics: dict[str, list[tuple[int, int]] | int] = {}
        self.ids: dict[str, bytes] = {}
        self.error_code = 0
        self.cluster_id: str | None = "blue"
        self.throttle_time_ms = 0
        self.leaderless = 5
        """The error of a partition without a leader."""
        self.asked: list[tuple[int, list[str]]] = []
        self.to_create: list[list[str]] = []
        """The topics of each request that allows their creation."""
        for broker in brokers:
            broker.on(MetadataRequest, self.answer)

    def answer(self, request: ReceivedRequest) -> MetadataResponse:
        message = request.decode()
        names = [topic.name for topic in message.topics]
        self.asked.append((request.broker.node_id, names))
        if names and message.allow_auto_topic_creation:
            self.to_create.append(names)
        return MetadataResponse(
            throttle_time_ms=self.throttle_time_ms,
            brokers=[each.address() for each in self.listed],
            topics=[self.topic(name) for name in names],
            error_code=self.error_code,
            cluster_id=self.cluster_id,
        )

    def topic(self, name: str) -> MetadataResponseTopic:
        found = self.topics.get(name, 3)
        if isinstance(found, int):
            return MetadataResponseTopic(error_code=found, name=name, partitions=[])
        partitions = [
            MetadataResponsePartition(
                error_code=self.leaderless if leader < 0 else 0,
                partition_index=number,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[1],
                isr_nodes=[1],
            )
            for number, (leader, epoch) in enumerate(found)
        ]
        return MetadataResponseTopic(name=name, topic_id=self.ids.get(name, b"i" * 16), partitions=partitions)

    @property
    def asked_topics(self) -> list[list[str]]:
        """The topics of each request except that of bootstrap."""
        return [names for _, names in self.asked[1:]]


class Setup:
    """A running Metadata."""

    def __init__(self, cluster: FakeCluster, authenticate: Any = None, **values: object) -> None:
        self.fake = cluster
        self.fatal: list[BaseException] = []
        self.changes: list[tuple[str, ...]] = []
        self.brokers: list[Mapping[int, Broker]] = []
        self.other_clusters: list[tuple[str, str]] = []
        self.changed = asyncio.Event()
        servers = [f"{each.host}:{each.port}" for each in cluster.brokers[:1]]
        config = ProducerConfig.parse({"bootstrap_servers": servers, **values})
        loop = asyncio.get_running_loop()
        self.client = NetworkClient(
            config, loop=loop, rng=random.Random(1), on_internal_error=self.fatal.append, authenticate=authenticate
        )
        self.metadata = Metadata(config, self.client, loop=loop, rng=random.Random(2), on_fatal=self.fatal.append)
        self.metadata.on_cluster_change = self._note
        self.metadata.on_other_cluster = lambda before, now: self.other_clusters.append((before, now))
        self.task: asyncio.Task[None] | None = None

    def _note(self, topics: Collection[str]) -> None:
        self.changes.append(tuple(topics))
        self.brokers.append(self.metadata.cluster.brokers)
        self.changed.set()

    @property
    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def soon(self, ms: int = 10_000) -> int:
        return self.now_ms + ms

    async def start(self) -> None:
        await self.metadata.bootstrap(self.soon())
        self.task = asyncio.ensure_future(self.metadata.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        self.metadata.close()
        await self.client.close()

    async def wait(self, topic: str, partition: int | None = None, *, ms: int = 10_000) -> int:
        """Wait for a topic; returns the number of its partitions."""
        known = await self.metadata.wait_for_topic(topic, partition=partition, deadline_ms=self.soon(ms))
        return len(known.partitions)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until new metadata makes a condition true."""
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def running(cluster: FakeCluster, **values: Any) -> AsyncIterator[Setup]:
    setup = Setup(cluster, **values)
    try:
        await setup.start()
        yield setup
    finally:
        await setup.stop()
    assert setup.fatal == []


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeBroker() as broker:
        yield FakeCluster(broker)


@pytest.fixture
async def two() -> AsyncIterator[FakeCluster]:
    async with FakeBroker() as first, FakeBroker(node_id=2) as second:
        yield FakeCluster(first, second)


# --- waiting for a topic ----------------------------------------------------------------------------------------------


async def test_a_new_topic_is_asked_for_alone_and_known_afterwards(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)], "b": [(1, 0), (1, 0)]}
    async with running(cluster) as setup:
        assert not setup.metadata.cluster.partitions("a")
        assert await setup.wait("a") == 1
        assert await setup.wait("b") == 2
        assert await setup.wait("a") == 1
        assert cluster.asked_topics == [["a"], ["b"]]
        assert setup.metadata.cluster.partitions("a")
        assert setup.metadata.cluster.leader("b", 1) == 1
        assert setup.changes == [(), ("a",), ("b",)]


async def test_an_answer_that_came_while_the_loop_was_held_up_counts(cluster: FakeCluster) -> None:
    """A wait whose time has passed in a block of the loop goes on until what came meanwhile can have been read."""
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster) as setup:
        waiting = asyncio.create_task(setup.wait("a", ms=50))
        await asyncio.sleep(0)
        time.sleep(0.3)  # noqa: ASYNC251 - the block
        assert await waiting == 1


class Unwalkable(dict[str, ClusterTopic]):
    """Topics that can be looked up, but neither listed nor copied."""

    def _refuse(self) -> Any:
        raise AssertionError("something walks over all known topics")

    __iter__ = keys = values = items = _refuse


async def test_a_new_topic_costs_the_same_however_many_are_known(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)], "b": [(1, 0)]}
    async with running(cluster) as setup:
        await setup.wait("a")
        picture = setup.metadata.cluster
        picture._topics = Unwalkable(picture._topics)
        picture.topics = MappingProxyType(picture._topics)
        await setup.wait("b")
        assert setup.metadata.apply_leader_hints([LeaderHint("b", 0, 1, 1)])
        assert setup.metadata.cluster.topics["b"].partitions[0].leader_epoch == 1


async def test_many_who_wait_for_one_topic_are_served_by_one_request(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster) as setup:
        order: list[int] = []

        async def one(number: int) -> None:
            await setup.wait("a")
            order.append(number)

        await asyncio.gather(*(one(number) for number in range(50)))
        assert order == list(range(50))
        assert cluster.asked_topics == [["a"]]


async def test_touch_fetches_a_topic_without_anybody_waiting(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster) as setup:
        setup.metadata.touch("a", setup.now_ms)
        await setup.until(lambda: setup.metadata.cluster.partitions("a"))


async def test_a_topic_that_is_being_created_is_waited_for(cluster: FakeCluster) -> None:
    async with running(cluster, retry_backoff_ms=5, retry_backoff_max_ms=5) as setup:
        waiting = asyncio.ensure_future(setup.wait("a"))
        await setup.until(lambda: "a" in setup.metadata.cluster.topics)
        assert not setup.metadata.cluster.partitions("a")
        cluster.topics["a"] = [(1, 0)]
        assert await waiting == 1


async def test_answers_that_do_not_help_wake_nobody(cluster: FakeCluster) -> None:
    """Thousands may wait for a topic that is still missing, and each wake-up costs a turn of their tasks."""
    cluster.topics = {"few": [(1, 0)]}
    async with running(cluster, retry_backoff_ms=1, retry_backoff_max_ms=1) as setup:
        waiting = [asyncio.ensure_future(setup.wait(topic, 1)) for topic in ("missing", "few")]
        await asyncio.sleep(0)
        waiters = [list(setup.metadata._waiters._waiting[topic]) for topic in ("missing", "few")]
        while len(cluster.asked_topics) < 12:
            await cluster.brokers[0].next_request(MetadataRequest)
        assert [list(setup.metadata._waiters._waiting[topic]) for topic in ("missing", "few")] == waiters
        cluster.topics = {"missing": [(1, 0)] * 2, "few": [(1, 0)] * 3}
        assert await asyncio.gather(*waiting) == [2, 3]


async def test_a_topic_that_never_comes_times_out_and_says_why(cluster: FakeCluster) -> None:
    async with running(cluster, max_block_ms=60_000) as setup:
        with pytest.raises(MetadataTimeoutError) as caught:
            await setup.wait("missing", ms=50)
        assert re.fullmatch(
            r"the partitions of topic missing are not known after \d+ ms \(max_block_ms=60000\): "
            r"topic missing: UNKNOWN_TOPIC_OR_PARTITION \(3\), the broker does not know the topic or the partition",
            str(caught.value),
        )
        assert isinstance(caught.value.__cause__, UnknownTopicOrPartitionError)
        assert isinstance(caught.value, TimeoutError)


async def test_a_topic_that_nobody_can_be_asked_for_times_out_and_says_why(cluster: FakeCluster) -> None:
    async with running(cluster) as setup:
        await cluster.brokers[0].stop()
        with pytest.raises(MetadataTimeoutError) as caught:
            await setup.wait("a", ms=300)
        assert str(caught.value.__cause__) in str(caught.value)
        assert f"{cluster.brokers[0].host}:{cluster.brokers[0].port}" in str(caught.value)


async def test_a_topic_without_partitions_is_asked_for_until_it_has_some(cluster: FakeCluster) -> None:
    cluster.topics = {"a": []}
    async with running(cluster, retry_backoff_ms=5, retry_backoff_max_ms=5) as setup:
        waiting = asyncio.ensure_future(setup.wait("a"))
        await setup.until(lambda: "a" in setup.metadata.cluster.topics)
        cluster.topics["a"] = [(1, 0)]
        assert await waiting == 1


async def test_a_partition_that_does_not_exist_yet_is_waited_for(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster, retry_backoff_ms=5, retry_backoff_max_ms=5) as setup:
        assert await setup.wait("a", 0) == 1
        waiting = asyncio.ensure_future(setup.wait("a", 1))
        while len(cluster.asked_topics) < 3:
            await cluster.brokers[0].next_request(MetadataRequest)
        assert not waiting.done()
        assert setup.metadata._schedule.failures("a") >= 1  # so the requests become rarer
        while setup.metadata._schedule.failures("a") <= metadata_module.WARN_FROM_FAILURES:
            await cluster.brokers[0].next_request(MetadataRequest)
        cluster.topics["a"] = [(1, 0), (1, 0)]
        assert await waiting == 2
    assert not caplog.records  # nothing is wrong with the topic


async def test_a_partition_that_never_comes_times_out_and_names_the_count(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster) as setup:
        with pytest.raises(MetadataTimeoutError, match="topic a has 1 partitions and no partition 5"):
            await setup.wait("a", 5, ms=50)
        assert await setup.wait("a", 0) == 1


@pytest.mark.parametrize(("code", "error"), [(17, InvalidTopicError), (29, TopicAuthorizationFailedError)])
async def test_a_refused_topic_raises_at_once_and_is_asked_for_again_later(
    cluster: FakeCluster, code: int, error: type[KafkaError]
) -> None:
    cluster.topics = {"a": code}
    async with running(cluster, retry_backoff_ms=200, retry_backoff_max_ms=200) as setup:
        for _ in range(5):  # in one burst, answered by the remembered error during back-off
            with pytest.raises(error, match="topic a") as caught:
                await setup.wait("a")
            assert not caught.value.maybe_written
        assert len(cluster.asked_topics) <= 2
        cluster.topics["a"] = [(1, 0)]
        while True:
            try:
                assert await setup.wait("a") == 1
                break
            except error:
                await asyncio.sleep(0)


async def test_a_refusal_counts_also_when_it_is_heard_late(cluster: FakeCluster) -> None:
    """Even if the loop was so busy that the back-off ended before the waiter had its turn."""
    cluster.topics = {"a": 29}
    async with running(cluster) as setup:
        setup.metadata._schedule.answered_lately = lambda topic, now_ms: False  # type: ignore[method-assign]
        for count in 1, 2:
            with pytest.raises(TopicAuthorizationFailedError):
                await setup.wait("a")
            assert len(cluster.asked_topics) == count
            while setup.metadata._schedule._asked:  # until the answer is worked in, it counts as new
                await asyncio.sleep(0)


async def test_a_wait_keeps_its_topic_in_use(cluster: FakeCluster) -> None:
    async with running(cluster, retry_backoff_ms=1) as setup:
        waiting = asyncio.ensure_future(setup.wait("a"))
        await setup.until(lambda: "a" in setup.metadata.cluster.topics)
        setup.metadata._schedule._topics["a"].expires_ms = 0
        cluster.topics["a"] = [(1, 0)]
        assert await waiting == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "\ud800", "a\n", "x" * 250])
async def test_a_name_that_no_topic_can_have_fails_without_a_request(cluster: FakeCluster, name: str) -> None:
    async with running(cluster) as setup:
        with pytest.raises(InvalidTopicError, match="is not a valid topic name"):
            await setup.wait(name)
        with pytest.raises(InvalidTopicError):
            setup.metadata.touch(name, setup.now_ms)
        assert cluster.asked_topics == []


async def test_a_broken_topic_delays_no_other(cluster: FakeCluster) -> None:
    cluster.topics = {"good": [(1, 0)]}
    async with running(cluster, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as setup:
        broken = asyncio.ensure_future(setup.wait("broken", ms=60_000))
        await setup.until(lambda: "broken" in setup.metadata.cluster.topics)
        assert await setup.wait("good") == 1
        broken.cancel()
        await asyncio.wait([broken])


async def test_a_cancelled_wait_disturbs_nobody(cluster: FakeCluster) -> None:
    async with running(cluster, retry_backoff_ms=5, retry_backoff_max_ms=5) as setup:
        waiting = [asyncio.ensure_future(setup.wait("a")) for _ in range(3)]
        await setup.until(lambda: "a" in setup.metadata.cluster.topics)
        waiting[1].cancel()
        cluster.topics["a"] = [(1, 0)]
        assert await waiting[0] == await waiting[2] == 1
        with pytest.raises(asyncio.CancelledError):
            await waiting[1]
        assert "a" not in setup.metadata._waiters


async def test_many_broken_topics_are_one_warning(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    refused = [f"refused-{number}" for number in range(1_000)]
    cluster.topics = {**dict.fromkeys(refused, 29), "bad": 17}
    async with running(cluster) as setup:
        with caplog.at_level(logging.WARNING, "aioproducer.metadata"):
            for name in cluster.topics:
                setup.metadata.touch(name, setup.now_ms)
            with pytest.raises(TopicAuthorizationFailedError):
                await setup.wait(refused[-1])
            while setup.metadata._schedule._asked:
                await asyncio.sleep(0)
    one, other = messages_of(caplog)
    assert one.startswith(f"topics {', '.join(refused[:10])} and 990 more: TOPIC_AUTHORIZATION_FAILED (29), ")
    assert other.startswith("topic bad: INVALID_TOPIC_EXCEPTION (17), ")


async def test_a_broken_topic_is_warned_of_once(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.topics = {"secret": 29}
    async with running(cluster, retry_backoff_ms=1, retry_backoff_max_ms=1) as setup:
        with caplog.at_level(logging.WARNING, "aioproducer.metadata"):
            waiting = asyncio.ensure_future(setup.wait("missing"))
            while len(cluster.asked_topics) < 6:
                await cluster.brokers[0].next_request(MetadataRequest)
            waiting.cancel()
            for _ in range(3):
                with pytest.raises(TopicAuthorizationFailedError):
                    await setup.wait("secret")
        told = [text.split(":")[0] for text in messages_of(caplog)]
        assert sorted(told) == ["topic missing", "topic secret"]


async def test_a_leader_that_is_no_broker_is_warned_of(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.topics = {"a": [(99, 0)], "b": [(-1, 0)]}
    async with running(cluster, retry_backoff_ms=1, retry_backoff_max_ms=1) as setup:
        with caplog.at_level(logging.WARNING, "aioproducer.metadata"):
            for name in cluster.topics:
                setup.metadata.touch(name, setup.now_ms)
            while len(messages_of(caplog)) < 2:
                await cluster.brokers[0].next_request(MetadataRequest)
    assert sorted(messages_of(caplog)) == [
        "topic a: partitions have a leader which is not in the cluster's list of brokers",
        "topic b: LEADER_NOT_AVAILABLE (5), the partition has no leader at the moment",
    ]


# --- updates ----------------------------------------------------------------------------------------------------------


async def test_an_update_covers_all_topics_in_use_and_tells_what_changed(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)], "b": [(1, 0)]}
    async with running(cluster) as setup:
        await setup.wait("a")
        await setup.wait("b")
        cluster.topics["b"] = [(1, 1), (1, 0)]
        setup.metadata.request_update()
        await setup.until(lambda: len(setup.metadata.cluster.partitions("b") or ()) == 2)
        assert cluster.asked_topics[-1] == ["a", "b"]
        assert setup.changes[-1] == ("b",)


async def test_metadata_are_refreshed_when_they_are_old(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster, metadata_max_age_ms=30, retry_backoff_ms=1) as setup:
        await setup.wait("a")
        cluster.topics["a"] = [(1, 0), (1, 0)]
        await setup.until(lambda: len(setup.metadata.cluster.partitions("a") or ()) == 2)
        assert setup.metadata.age_ms(setup.now_ms) < 10_000


@pytest.mark.parametrize(
    ("topics", "reason"),
    [
        ({"a": 3}, "topic a: UNKNOWN_TOPIC_OR_PARTITION (3), the broker does not know"),
        ({"a": 29}, "topic a: TOPIC_AUTHORIZATION_FAILED (29), "),
        ({"a": [(1, 1), (-1, 1)]}, "a-1: LEADER_NOT_AVAILABLE (5), the partition has no leader at the moment"),
        ({"a": [(1, 1), (99, 1)]}, "a-1: node 99 leads it, which is not in the cluster's list of brokers"),
    ],
)
async def test_records_that_wait_without_a_leader_can_say_why(
    monkeypatch: pytest.MonkeyPatch, cluster: FakeCluster, topics: dict[str, Any], reason: str
) -> None:
    monkeypatch.setattr(cluster_module, "LONGEST_DOUBT_MS", 0)
    cluster.topics = {"a": [(1, 0), (1, 0)]}
    async with running(cluster, retry_backoff_ms=5, retry_backoff_max_ms=5) as setup:
        await setup.wait("a")
        cluster.topics = topics
        setup.metadata.request_update()
        await setup.until(lambda: setup.metadata.cluster.leader("a", 1) != 1)
        assert str(setup.metadata.why_no_leader("a", 1)).startswith(reason)


@pytest.mark.parametrize("error_code", [5, 0])
async def test_a_partition_without_a_leader_is_asked_for_until_it_has_one(
    cluster: FakeCluster, error_code: int
) -> None:
    """Also if a broker gives no error with it, as Redpanda's do during an election."""
    cluster.leaderless = error_code
    cluster.topics = {"a": [(1, 0), (-1, 0)]}
    async with running(cluster, retry_backoff_ms=5, retry_backoff_max_ms=5) as setup:
        assert await setup.wait("a") == 2
        assert setup.metadata.cluster.leader("a", 1) == -1
        cluster.topics["a"] = [(1, 0), (1, 1)]
        await setup.until(lambda: setup.metadata.cluster.leader("a", 1) == 1)


async def test_a_leader_that_an_answer_about_another_topic_no_longer_lists_is_asked_for(two: FakeCluster) -> None:
    two.topics = {"orders": [(2, 3)], "users": [(1, 1)]}
    async with running(two) as setup:
        await setup.wait("orders")
        two.listed = two.brokers[:1]
        two.topics["orders"] = [(1, 4)]
        await setup.wait("users")  # requests only that topic, without a connection to broker 2 that could be lost
        await setup.until(lambda: setup.metadata.cluster.leader("orders", 0) == 1)


async def test_a_leader_that_no_answer_lists_is_asked_for_until_there_is_one(two: FakeCluster) -> None:
    two.topics = {"orders": [(2, 3), (1, 1)]}
    two.listed = two.brokers[:1]
    async with running(two) as setup:
        await setup.wait("orders")
        assert setup.metadata.cluster.leader("orders", 0) == 2
        two.listed = two.brokers
        await setup.until(lambda: setup.client.knows(2))


async def test_a_topic_made_again_is_a_new_one(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 7), (1, 7)]}
    async with running(cluster) as setup:
        await setup.wait("a")
        cluster.topics["a"] = [(1, 0)]
        cluster.ids["a"] = b"j" * 16
        setup.metadata.request_update()
        await setup.until(lambda: setup.metadata.cluster.topics["a"].topic_id == b"j" * 16)
        assert len(setup.metadata.cluster.topics["a"].partitions) == 1


async def test_a_broker_that_does_not_know_a_topic_is_not_believed_before_another_agrees(two: FakeCluster) -> None:
    """One that has just started may know no topics for seconds, while the leaders take records."""
    two.topics = {"a": [(2, 0)]}
    async with running(two, retry_backoff_ms=1, retry_backoff_max_ms=1) as setup:
        await setup.wait("a")

        def behind(request: ReceivedRequest) -> MetadataResponse:
            answer = two.answer(request)
            missing = [MetadataResponseTopic(error_code=3, name=each.name, partitions=[]) for each in answer.topics]
            return replace(answer, topics=missing)

        two.brokers[0].on(MetadataRequest, behind)
        asked = len(two.asked)
        setup.metadata.request_update()
        while len(two.asked) < asked + 5:
            await two.brokers[0].next_request(MetadataRequest)
        assert {node_id for node_id, _ in two.asked[asked:]} == {1}
        assert setup.metadata.cluster.topics["a"].error_code == 3
        assert setup.metadata.cluster.partitions("a")
        setup.client.connect_soon(2)
        await setup.until(lambda: not setup.metadata.cluster.topics["a"].error_code)
        two.topics.clear()
        setup.metadata.request_update()
        await setup.until(lambda: not setup.metadata.cluster.partitions("a"))


async def test_a_deleted_topic_that_nobody_needs_does_not_come_back(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker creates what a request asks for: the producer's own refreshes would undo the deletion."""
    monkeypatch.setattr(cluster_module, "LONGEST_DOUBT_MS", 0)
    cluster.topics = {"a": [(1, 0)], "b": [(1, 0)]}
    async with running(cluster, retry_backoff_ms=1, retry_backoff_max_ms=1) as setup:
        await setup.wait("a")
        await setup.wait("b")
        assert cluster.to_create == [["a"], ["b"]]
        cluster.to_create.clear()
        del cluster.topics["a"]
        setup.metadata.request_update()
        await setup.until(lambda: not setup.metadata.cluster.partitions("a"))
        while cluster.asked_topics.count(["a"]) < 5:
            await cluster.brokers[0].next_request(MetadataRequest)
        assert cluster.to_create == []
        setup.metadata.touch("a", setup.now_ms)
        waiting = asyncio.ensure_future(setup.wait("a"))
        while not cluster.to_create:
            await cluster.brokers[0].next_request(MetadataRequest)
        assert cluster.to_create[0] == ["a"]
        cluster.topics["a"] = [(1, 0)]
        await waiting


async def test_a_missing_topic_with_records_or_that_was_asked_for_may_be_created(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "LONGEST_DOUBT_MS", 0)
    cluster.topics = {"a": [(1, 0)], "b": [(1, 0)]}
    async with running(cluster, retry_backoff_ms=1, retry_backoff_max_ms=1) as setup:
        for topic in "ab":
            setup.metadata.need(topic, setup.now_ms)
            await setup.until(lambda topic=topic: setup.metadata.cluster.partitions(topic))
        cluster.to_create.clear()
        setup.metadata.has_records = lambda topic: topic == "b"
        cluster.topics.clear()
        setup.metadata.request_update()
        await setup.until(lambda: not setup.metadata.cluster.partitions("a"))
        while not cluster.to_create:
            await cluster.brokers[0].next_request(MetadataRequest)
        assert cluster.to_create[0] == ["b"]
        setup.metadata.need("a", setup.now_ms)
        while ["a", "b"] not in map(sorted, cluster.to_create):
            await cluster.brokers[0].next_request(MetadataRequest)


async def test_a_missing_topic_is_not_created_if_the_program_forbids_it(cluster: FakeCluster) -> None:
    async with running(cluster, allow_auto_create_topics=False, retry_backoff_ms=1, retry_backoff_max_ms=1) as setup:
        setup.metadata.has_records = lambda _: True
        waiting = asyncio.ensure_future(setup.wait("typo"))
        while cluster.asked_topics.count(["typo"]) < 3:
            await cluster.brokers[0].next_request(MetadataRequest)
        assert cluster.to_create == []
        waiting.cancel()


async def test_topics_that_nobody_uses_are_forgotten(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)], "b": [(1, 0)]}
    async with running(cluster) as setup:
        await setup.wait("a")
        await setup.wait("b")
        for topic in "ab":
            setup.metadata._schedule._topics[topic].expires_ms = 0
        setup.metadata.has_records = lambda topic: topic == "b"
        setup.metadata.request_update()
        await setup.until(lambda: "a" not in setup.metadata.cluster.topics)
        assert setup.changes[-1] == ("a",)
        assert setup.metadata.cluster.partitions("b")


async def test_a_lost_connection_asks_for_an_update(two: FakeCluster) -> None:
    two.topics = {"a": [(2, 0)]}
    async with running(two, retry_backoff_ms=5) as setup:
        await setup.wait("a")
        await setup.client.ready_connection(2, setup.soon())
        two.topics["a"] = [(1, 1)]
        await two.brokers[1].stop()
        await setup.until(lambda: setup.metadata.cluster.leader("a", 0) == 1)


async def test_a_throttled_broker_is_left_alone(two: FakeCluster) -> None:
    two.topics = {"a": [(1, 0)], "b": [(1, 0)]}
    async with running(two) as setup:
        connection = setup.client.least_loaded(setup.now_ms)
        assert connection is not None
        connection.throttle(setup.soon(60_000))
        await setup.wait("a")
        assert two.asked[-1][0] == 2
        two.throttle_time_ms = 50
        await setup.wait("b")
        second = setup.client._nodes.by_id[2].connection
        assert second is not None
        assert second.throttled_until_ms > setup.now_ms


async def test_metadata_are_first_out_when_the_only_broker_stops_throttling(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster, max_in_flight_requests_per_connection=1) as setup:
        connection = setup.client.least_loaded(setup.now_ms)
        assert connection is not None
        until_ms = setup.soon(40)
        connection.throttle(until_ms)
        taken: list[int] = []

        def grab() -> None:  # like a sender with a full queue
            if setup.client.free_connection(1, setup.now_ms):
                taken.append(len(cluster.asked_topics))

        setup.client.on_change = grab
        asyncio.get_running_loop().call_at(until_ms / 1000, grab)
        await setup.wait("a")
        assert setup.now_ms >= until_ms
        assert set(taken) == {1}  # never before the request for the topic is answered


async def test_a_slow_broker_is_not_waited_for_when_another_can_answer(
    two: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_answer_module, "SLOW_MS", 20)
    two.topics = {"a": [(1, 0)]}
    async with running(two) as setup:
        two.brokers[0].silent(MetadataRequest)
        assert await setup.wait("a") == 1
        assert [node_id for node_id, _ in two.asked[1:]] == [2]
        connection = setup.client._nodes.by_id[1].connection
        assert connection is not None
        assert connection.in_flight_count == 1  # its late answer is dropped


@pytest.mark.parametrize("in_flight", [1, 5])
async def test_a_broker_that_holds_an_answer_back_still_tells_of_new_topics(
    in_flight: int, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker answers in order, so Metadata would wait behind the request that is not answered."""
    monkeypatch.setattr(first_answer_module, "SLOW_MS", 20)
    monkeypatch.setattr(nodes_module, "SLOW_MS", 20)
    cluster.topics = {"a": [(1, 0)]}
    go_on = asyncio.Event()

    async def hold(_: ReceivedRequest) -> EndTxnResponse:
        await go_on.wait()
        return EndTxnResponse()

    cluster.brokers[0].on(EndTxnRequest, hold)
    async with running(cluster, max_in_flight_requests_per_connection=in_flight) as setup:
        connection = await setup.client.ready_connection(1, setup.soon())
        held = connection.exchange(
            EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True), 3
        )
        assert await setup.wait("a") == 1
        assert not held.done()
        go_on.set()
        await held


async def test_brokers_that_all_hold_answers_back_still_tell_of_new_topics(
    two: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_answer_module, "SLOW_MS", 20)
    monkeypatch.setattr(nodes_module, "SLOW_MS", 20)
    two.topics = {"a": [(1, 0)]}
    go_on = asyncio.Event()

    async def hold(_: ReceivedRequest) -> EndTxnResponse:
        await go_on.wait()
        return EndTxnResponse()

    async with running(two) as setup:
        held = []
        for broker in two.brokers:
            broker.on(EndTxnRequest, hold)
            connection = await setup.client.ready_connection(broker.node_id, setup.soon())
            held.append(
                connection.exchange(
                    EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True), 3
                )
            )
        assert await setup.wait("a") == 1
        assert not any(answer.done() for answer in held)
        go_on.set()
        await asyncio.gather(*held)


async def test_a_lost_request_is_repeated(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster, retry_backoff_ms=1, reconnect_backoff_ms=1) as setup:

        def lose(request: ReceivedRequest) -> None:
            cluster.brokers[0].on(MetadataRequest, cluster.answer)
            request.peer.drop()

        cluster.brokers[0].on(MetadataRequest, lose)
        assert await setup.wait("a") == 1


async def test_a_slow_broker_may_still_be_the_one_that_answers(
    two: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is slow, so the second is asked too; the second disconnects, and the first answers after all."""
    monkeypatch.setattr(first_answer_module, "SLOW_MS", 20)
    two.topics = {"a": [(1, 0)]}
    async with running(two) as setup:
        await setup.client.ready_connection(2, setup.soon())
        for broker in two.brokers:
            broker.silent(MetadataRequest)
        waiting = asyncio.ensure_future(setup.wait("a"))
        asked = [asyncio.ensure_future(broker.next_request(MetadataRequest)) for broker in two.brokers]
        slow = (await asyncio.gather(*asked))[0]
        if slow.decode().topics == []:  # that of bootstrap
            slow = await two.brokers[0].next_request(MetadataRequest)
        two.brokers[1].peers[0].drop()
        while setup.client._nodes.by_id[2].connection is not None:
            await setup.client._changed(setup.now_ms, setup.soon(), None)
        slow.reply(two.answer(slow))
        assert await waiting == 1


async def test_an_answer_that_makes_no_sense_is_asked_for_again(cluster: FakeCluster) -> None:
    broker = cluster.brokers[0]
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster, retry_backoff_ms=1, reconnect_backoff_ms=1) as setup:
        broken = 0

        def answer(request: ReceivedRequest) -> MetadataResponse | bytes:
            nonlocal broken
            if not request.decode().topics:
                return cluster.answer(request)  # a bootstrap
            broken += 1
            if broken == 1:
                return request.answer(cluster.answer(request))[:-1] + b"\x05"
            if broken == 2:
                absurd = cluster.answer(request)
                absurd.topics[0].partitions[0].partition_index = 2**31 - 1
                return absurd
            return cluster.answer(request)

        broker.on(MetadataRequest, answer)
        assert await setup.wait("a") == 1
        assert broken >= 3
        assert len(broker.peers) >= 3  # each time on a new connection


async def test_an_answer_that_leaves_a_topic_out_is_asked_for_again(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster, retry_backoff_ms=1) as setup:

        def forgetful(request: ReceivedRequest) -> MetadataResponse:
            cluster.brokers[0].on(MetadataRequest, cluster.answer)
            return MetadataResponse(brokers=[cluster.brokers[0].address()], topics=[])

        cluster.brokers[0].on(MetadataRequest, forgetful)
        assert await setup.wait("a") == 1


async def test_an_answer_without_brokers_is_asked_for_again(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster, retry_backoff_ms=1) as setup:
        cluster.listed = []
        waiting = asyncio.ensure_future(setup.wait("a"))
        while len(cluster.asked) < 4:  # the bootstrap request, and answers that were handled before the next request
            await cluster.brokers[0].next_request(MetadataRequest)
        assert setup.metadata.cluster.brokers
        cluster.listed = list(cluster.brokers)
        assert await waiting == 1
        assert all(setup.brokers)


async def test_old_brokers_without_ids_and_reliable_epochs(cluster: FakeCluster) -> None:
    cluster.brokers[0].ranges = {**EVERYTHING, MetadataRequest.API_KEY: (0, 8)}
    cluster.topics = {"a": [(1, 7)]}
    async with running(cluster) as setup:
        await setup.wait("a")
        cluster.topics["a"] = [(-1, 3)]
        setup.metadata.request_update()
        await setup.until(lambda: setup.metadata.cluster.leader("a", 0) == -1)
        assert setup.metadata.cluster.topics["a"].topic_id == bytes(16)


async def test_a_huge_answer_gives_the_loop_its_turns(cluster: FakeCluster) -> None:
    cluster.topics = {"huge": [(1, 0)] * 20_000}
    async with running(cluster) as setup:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        waiting = asyncio.ensure_future(setup.wait("huge"))
        counting = asyncio.ensure_future(count())
        assert await waiting == 20_000
        counting.cancel()
        await asyncio.wait([counting])
        assert turns > 150


async def test_an_answer_about_thousands_of_topics_lets_others_have_their_turn(cluster: FakeCluster) -> None:
    names = [f"topic-{number}" for number in range(3_000)]
    cluster.topics = {name: [(1, 0)] for name in names}
    async with running(cluster) as setup:
        turns, turn_of_change = 0, []
        note = setup.metadata.on_cluster_change
        loop = asyncio.get_running_loop()

        def count() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(count)

        def noted(topics: Collection[str]) -> None:
            turn_of_change.append(turns)
            note(topics)

        setup.metadata.on_cluster_change = noted
        for name in names:
            setup.metadata.touch(name, setup.now_ms)
        count()
        await setup.until(lambda: names[-1] in setup.metadata.cluster.topics)
        assert max(len(topics) for topics in setup.changes) < 200
        assert len(set(turn_of_change)) == len(turn_of_change) > 20
        while setup.metadata._schedule._asked:
            await asyncio.sleep(0)
        assert turns - turn_of_change[-1] > 10


# --- hints ------------------------------------------------------------------------------------------------------------


async def test_a_hint_moves_a_leader_and_may_bring_a_new_broker(two: FakeCluster) -> None:
    two.topics = {"a": [(1, 5)]}
    two.listed = two.brokers[:1]
    async with running(two) as setup:
        await setup.wait("a")
        assert not setup.metadata.apply_leader_hints([LeaderHint("a", 0, 2, 6)])  # the hint has no address
        broker = Broker(2, two.brokers[1].host, two.brokers[1].port)
        assert setup.metadata.apply_leader_hints([LeaderHint("a", 0, 2, 6)], [broker])
        assert setup.metadata.cluster.leader("a", 0) == 2
        assert setup.changes[-1] == ("a",)
        assert (await setup.client.ready_connection(2, setup.soon())).port == broker.port
        for leader, epoch in (1, 6), (1, 5), (-1, 9), (1, -1):
            assert not setup.metadata.apply_leader_hints([LeaderHint("a", 0, leader, epoch)])
        assert setup.metadata.cluster.leader("a", 0) == 2


async def test_a_hint_that_comes_while_an_older_answer_is_worked_in_is_kept(
    two: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_module, "STEP_BYTES", 100)
    two.topics = {"a": [(1, 5)] * 300}
    async with running(two) as setup:
        await setup.wait("a")
        two.topics["a"] = [(1, 5), (2, 6), *two.topics["a"][2:]]
        in_turns = metadata_module._in_turns
        steps = 0

        async def interrupted(generator: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == 2:
                next(generator)  # these partitions have been compared with what was known
                assert setup.metadata.apply_leader_hints([LeaderHint("a", 0, 2, 6)])
            return await in_turns(generator)

        monkeypatch.setattr(metadata_module, "_in_turns", interrupted)
        setup.metadata.request_update()
        await setup.until(lambda: setup.metadata.cluster.leader("a", 1) == 2)
        assert setup.metadata.cluster.leader("a", 0) == 2


# --- recovery ---------------------------------------------------------------------------------------------------------


async def test_when_no_broker_can_be_reached_it_starts_again_from_the_list(cluster: FakeCluster) -> None:
    """All brokers have moved; only the bootstrap address still leads to the cluster."""
    entrance = cluster.brokers[0]
    cluster.topics = {"a": [(2, 0)]}
    async with FakeBroker(node_id=2) as old, FakeBroker(node_id=2) as new:
        for each in old, new:
            each.on(MetadataRequest, cluster.answer)
        cluster.listed = [old]
        async with running(cluster, retry_backoff_ms=1) as setup:
            await setup.wait("a")
            await setup.client.ready_connection(2, setup.soon())
            cluster.listed = [new]
            await old.stop()
            await setup.until(lambda: setup.metadata.cluster.brokers[2].port == new.port)
            assert setup.metadata.cluster.partitions("a")
            assert (await setup.client.ready_connection(2, setup.soon())).port == new.port
            assert len(entrance.peers) >= 2


async def test_a_lone_broker_that_ends_a_connection_is_just_connected_again(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """As brokers do with idle ones (connections.max.idle.ms): that is no reason to believe that it is away."""
    cluster.topics = {"a": [(1, 0)]}
    broker = cluster.brokers[0]
    async with running(cluster) as setup:
        await setup.wait("a")
        for connections in 2, 3, 4:
            broker.peers[-1].drop()
            await until(lambda connections=connections: len(cluster.asked) == connections + 1)
            assert len(broker.peers) == connections
        assert [names for _, names in cluster.asked].count([]) == 1, "only bootstrap asks for no topic"
    assert not caplog.records


async def test_it_goes_on_trying_until_the_cluster_is_back(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    broker = cluster.brokers[0]
    async with running(cluster, retry_backoff_ms=1, retry_backoff_max_ms=5, reconnect_backoff_max_ms=50) as setup:
        await broker.stop()
        waiting = asyncio.ensure_future(setup.wait("a"))
        with pytest.raises(MetadataTimeoutError) as caught:
            await setup.wait("b", ms=50)
        assert isinstance(caught.value.__cause__, BootstrapError | ConnectionLostError)
        await broker.start()
        assert await waiting == 1


async def test_without_rebootstrap_the_known_brokers_are_tried_again(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    broker = cluster.brokers[0]
    async with running(
        cluster, metadata_recovery_strategy="none", retry_backoff_ms=1, reconnect_backoff_max_ms=50
    ) as setup:
        setup.client._config = None  # type: ignore[assignment]  # bootstrap would fail by it
        await broker.stop()
        waiting = asyncio.ensure_future(setup.wait("a"))
        with pytest.raises(MetadataTimeoutError):
            await setup.wait("b", ms=30)
        setup.client._config = setup.metadata._config
        await broker.start()
        assert await waiting == 1


async def test_a_broker_may_ask_for_a_rebootstrap(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster, retry_backoff_ms=1) as setup:

        def once(request: ReceivedRequest) -> MetadataResponse:
            cluster.brokers[0].on(MetadataRequest, cluster.answer)
            return MetadataResponse(brokers=[], topics=[], error_code=129)

        cluster.brokers[0].on(MetadataRequest, once)
        assert await setup.wait("a") == 1
        assert cluster.asked_topics == [[], ["a"]]
        assert len(cluster.brokers[0].peers) == 2
        assert "starting again from bootstrap_servers" in caplog.text


async def test_an_update_that_takes_too_long_starts_again_from_the_list(cluster: FakeCluster) -> None:
    cluster.topics = {"a": [(1, 0)]}
    async with running(cluster, metadata_recovery_rebootstrap_trigger_ms=30, retry_backoff_ms=1) as setup:
        cluster.listed = []  # answers without brokers
        waiting = asyncio.ensure_future(setup.wait("a"))
        while len(cluster.brokers[0].peers) < 2:
            await cluster.brokers[0].connected.get()
        cluster.listed = list(cluster.brokers)
        assert await waiting == 1


async def test_bootstrap_servers_that_can_not_be_used_either_are_told_once_a_minute(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line: what is warned of otherwise are the former addresses of the brokers."""
    broker = cluster.brokers[0]
    at_once = dict.fromkeys(("retry_backoff_ms", "retry_backoff_max_ms", "reconnect_backoff_ms"), 1)
    async with running(cluster, reconnect_backoff_max_ms=1, **at_once) as setup:
        rebootstrap, attempts = setup.client.rebootstrap, 0

        async def counted() -> MetadataResponse:
            nonlocal attempts
            attempts += 1
            return await rebootstrap()

        monkeypatch.setattr(setup.client, "rebootstrap", counted)
        await broker.stop()
        await until(lambda: attempts > 3)
        first, second = messages_of(caplog, "aioproducer.metadata")
        assert first.startswith("starting again from bootstrap_servers: ")
        assert re.fullmatch(
            r"bootstrap_servers can't be used now: no bootstrap server could be used \(bootstrap_servers\): "
            rf"{re.escape(broker.host)}:{broker.port}: .+",
            second,
        )


# --- another cluster --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
async def test_another_cluster_is_adopted_if_bootstrap_servers_lead_there(two: FakeCluster, strategy: str) -> None:
    """Nothing known of the topics but their sizes holds: here epochs would make the new leaders look outdated."""
    two.topics = {"a": [(1, 7), (2, 7)], "b": [(2, 7)]}
    async with running(two, retry_backoff_ms=1, metadata_recovery_strategy=strategy) as setup:
        await setup.wait("a")
        await setup.wait("b")
        connections = [await setup.client.ready_connection(each, setup.soon()) for each in (1, 2)]
        topics: list[Mapping[str, ClusterTopic]] = []

        def replaced(before: str, now: str) -> None:
            setup.other_clusters.append((before, now))
            assert all(each.ended for each in connections)
            assert setup.client.connection_count == 1
            setup.metadata.on_cluster_change = changed

        def changed(names: Collection[str]) -> None:
            topics.append(dict(setup.metadata.cluster.topics))
            setup._note(names)

        setup.metadata.on_other_cluster = replaced
        two.cluster_id = "green"
        two.ids = dict.fromkeys(two.topics, bytes(16))
        two.topics = {"a": [(2, 0), (1, 0)], "b": [(1, 0)]}
        setup.metadata.request_update()
        await setup.until(lambda: setup.metadata.cluster.leader("b", 0) == 1)
        assert setup.other_clusters == [("blue", "green")]
        assert [each.leader for each in topics[0]["a"].partitions] == [-1, -1]
        assert [setup.metadata.cluster.leader("a", number) for number in (0, 1)] == [2, 1]


async def test_a_cluster_that_gets_its_id_later(cluster: FakeCluster) -> None:
    """As Redpanda while it is being set up."""
    cluster.topics = {"a": [(1, 0)]}
    cluster.cluster_id = "redpanda.initializing"
    async with running(cluster) as setup:
        told: list[str] = []
        setup.metadata.on_cluster_id = told.append
        await setup.wait("a")
        assert setup.metadata.cluster_id is None
        cluster.cluster_id = "blue"
        cluster.topics["b"] = cluster.topics["c"] = [(1, 0)]
        await setup.wait("b")
        await setup.wait("c")
        assert (setup.metadata.cluster_id, told) == ("blue", ["blue"])


async def test_the_answer_of_a_single_broker_of_another_cluster_is_not_adopted(
    two: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Its address leads elsewhere. ``bootstrap_servers`` are asked, and say that it is the only one."""
    two.topics = {"a": [(1, 7)]}
    entrance, astray = two.brokers
    answered = asyncio.Event()
    asked_astray = 0

    def at_home(request: ReceivedRequest) -> MetadataResponse:
        answered.set()
        return two.answer(request)

    def elsewhere(_: ReceivedRequest) -> MetadataResponse:
        nonlocal asked_astray
        asked_astray += 1
        answered.set()
        return MetadataResponse(brokers=[astray.address()], topics=[], cluster_id="green")

    entrance.on(MetadataRequest, at_home)
    async with running(two, retry_backoff_ms=1, retry_backoff_max_ms=1) as setup:
        await setup.wait("a")
        connection = await setup.client.ready_connection(2, setup.soon())
        astray.on(MetadataRequest, elsewhere)
        await entrance.connected.get()
        for times in (1, 2):
            async with asyncio.timeout(10):
                while asked_astray < times:
                    await setup.client.ready_connection(2, setup.soon())
                    answered.clear()
                    setup.metadata.request_update()
                    await answered.wait()
                await entrance.connected.get()  # it starts again from bootstrap_servers
        assert connection.ended
        assert setup.other_clusters == []
        assert setup.metadata.cluster.leader("a", 0) == 1
        assert set(setup.metadata.cluster.brokers) == {1, 2}
        warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert [each for each in warnings if "node 2" in each and "its id is green, not blue" in each] == warnings
        assert len(warnings) == 1


@pytest.mark.parametrize("no_id", [None, "", "redpanda.initializing"])
async def test_a_cluster_without_an_id_is_no_other_one(cluster: FakeCluster, no_id: str | None) -> None:
    """Redpanda answers before it has one, and says so in place of it."""
    cluster.topics = {"a": [(1, 0)], "b": [(1, 0)], "c": [(1, 0)]}
    cluster.cluster_id = no_id
    async with running(cluster, retry_backoff_ms=1) as setup:
        await setup.wait("a")
        cluster.cluster_id = "blue"
        await setup.wait("b")
        cluster.cluster_id = no_id
        await setup.wait("c")
        assert len(cluster.brokers[0].peers) == 1
        assert setup.other_clusters == []


async def test_a_refusal_that_passes_reaches_nobody(cluster: FakeCluster) -> None:
    """A broker that has just started may refuse a good login for a moment."""
    refusals = 0
    cluster.topics = {"a": [(1, 0)]}

    async def check(_: Connection) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise SaslAuthenticationFailedError("too many connects")

    async with running(cluster, authenticate=check, retry_backoff_ms=1, reconnect_backoff_ms=1) as setup:
        refusals = 3
        cluster.brokers[0].peers[0].drop()
        await setup.client._changed(setup.now_ms, setup.soon(), None)
        assert await setup.wait("a") == 1
        assert not refusals


@pytest.mark.parametrize("lasts", [False, True])
async def test_a_refusal_by_bootstrap_servers_counts_once_it_lasts(
    cluster: FakeCluster, lasts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only broker restarts: it is out of reach at first, then refuses a good login for a moment."""
    if lasts:
        monkeypatch.setattr(node_module, "REFUSAL_LASTS_MS", 50)
    refusals = 0
    restarting = False
    cluster.topics = {"a": [(1, 0)]}

    async def check(connection: Connection) -> None:
        nonlocal refusals
        if restarting and connection.node_id >= 0:
            raise ConnectionLostError("not there yet")
        if refusals:
            refusals -= 1
            raise SaslAuthenticationFailedError("too many connects")

    async with running(cluster, authenticate=check, retry_backoff_ms=1, reconnect_backoff_ms=1) as setup:
        restarting, refusals = True, 1_000_000 if lasts else 3
        cluster.brokers[0].peers[0].drop()
        await setup.client._changed(setup.now_ms, setup.soon(), None)
        if lasts:
            with pytest.raises(SaslAuthenticationFailedError):
                await setup.wait("a")
        else:
            assert await setup.wait("a") == 1
            assert not refusals


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
async def test_wrong_credentials_reach_those_who_wait(
    cluster: FakeCluster, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "REFUSAL_LASTS_MS", 50)
    wrong = False

    async def check(_: Connection) -> None:
        if wrong:
            raise SaslAuthenticationFailedError("wrong password")

    async with running(cluster, authenticate=check, retry_backoff_ms=1, metadata_recovery_strategy=strategy) as setup:
        wrong = True
        cluster.brokers[0].peers[0].drop()
        await setup.client._changed(setup.now_ms, setup.soon(), None)
        with pytest.raises(SaslAuthenticationFailedError):
            await setup.wait("a")


async def test_bootstrap_servers_that_refuse_for_a_moment_reach_nobody(two: FakeCluster) -> None:
    """All brokers were down, and the first to come back refuses a good login for a moment."""
    first, second = two.brokers
    two.topics = {"a": [(1, 0)]}
    two.listed = [second]
    refusals = 0

    async def check(connection: Connection) -> None:
        nonlocal refusals
        if connection.port == first.port and refusals:
            refusals -= 1
            raise SaslAuthenticationFailedError("too many connects")

    async with running(two, authenticate=check, retry_backoff_ms=1, reconnect_backoff_ms=1) as setup:
        await setup.client.ready_connection(2, setup.soon())
        two.listed = [first]
        refusals = 3
        await second.stop()
        assert await setup.wait("a") == 1
        assert not refusals


async def test_bootstrap_servers_that_go_on_refusing_reach_those_who_wait(
    two: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "REFUSAL_LASTS_MS", 50)
    first, second = two.brokers
    two.listed = [second]
    wrong = False

    async def check(connection: Connection) -> None:
        if wrong and connection.port == first.port:
            raise SaslAuthenticationFailedError("wrong password")

    async with running(two, authenticate=check, retry_backoff_ms=1, reconnect_backoff_ms=1) as setup:
        await setup.client.ready_connection(2, setup.soon())
        wrong = True
        await second.stop()
        with pytest.raises(SaslAuthenticationFailedError):
            await setup.wait("a")


async def test_the_first_of_bootstrap_servers_refuses_and_the_next_accepts(two: FakeCluster) -> None:
    """Once the producer runs: at the first one's former address is somebody else now, or it has only just started."""
    first, second = two.brokers
    two.topics = {"a": [(3, 0)]}
    two.listed = [second]
    wrong = False

    async def check(connection: Connection) -> None:
        if wrong and connection.port == first.port:
            raise TlsError("the broker's certificate is not for this host")

    async with FakeBroker(node_id=3) as third:
        third.on(MetadataRequest, two.answer)
        servers = [f"{each.host}:{each.port}" for each in (first, third)]
        async with running(two, authenticate=check, bootstrap_servers=servers, retry_backoff_ms=1) as setup:
            await setup.client.ready_connection(2, setup.soon())
            two.listed = [third]
            wrong = True
            await second.stop()
            assert await setup.wait("a") == 1


@pytest.mark.parametrize("trigger_ms", [30, 300_000])
async def test_a_stranger_at_a_former_address_is_left_after_the_time_for_that(
    cluster: FakeCluster, trigger_ms: int
) -> None:
    """A load balancer's address now belongs to somebody else's TLS service. Wrong credentials look the same, and more
    logins could lock the account.
    """
    cluster.topics = {"a": [(2, 0)]}
    refused = 0
    again = asyncio.Event()

    async def check(connection: Connection) -> None:
        nonlocal refused
        if connection.port == old.port and cluster.listed == [new]:
            refused += 1
            again.set()
            raise TlsError("the broker's certificate is not for this host")

    async with FakeBroker(node_id=2) as old, FakeBroker(node_id=2) as new:
        for each in old, new:
            each.on(MetadataRequest, cluster.answer)
        cluster.listed = [old]
        async with running(
            cluster,
            authenticate=check,
            retry_backoff_ms=1,
            retry_backoff_max_ms=1,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=5,
            metadata_recovery_rebootstrap_trigger_ms=trigger_ms,
        ) as setup:
            await setup.wait("a")
            connection = await setup.client.ready_connection(2, setup.soon())
            cluster.listed = [new]
            connection.close_when_idle()
            setup.metadata.request_update()
            if trigger_ms < 1_000:
                await setup.until(lambda: setup.metadata.cluster.brokers[2].port == new.port)
                assert refused
            else:
                async with asyncio.timeout(10):
                    while refused < 10:
                        again.clear()
                        await again.wait()
                assert len(cluster.brokers[0].peers) == 1


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_close_turns_away_who_waits_and_who_comes(cluster: FakeCluster) -> None:
    async with running(cluster) as setup:
        waiting = asyncio.ensure_future(setup.wait("a"))
        await setup.until(lambda: "a" in setup.metadata.cluster.topics)
        setup.metadata.close()
        with pytest.raises(ProducerClosedError):
            await waiting
        with pytest.raises(ProducerClosedError):
            await setup.wait("b")


async def test_a_bug_is_told_and_leaves_nobody_waiting(cluster: FakeCluster) -> None:
    setup = Setup(cluster)
    await setup.start()
    cluster.topics = {"a": [(1, 0)]}

    def bug(_: Collection[str]) -> None:
        raise ZeroDivisionError

    setup.metadata.on_cluster_change = bug
    with pytest.raises(ProducerFailedError, match="ZeroDivisionError"):
        await setup.wait("b")
    with pytest.raises(ProducerFailedError, match="internal error"):
        await setup.wait("b")
    assert [type(error) for error in setup.fatal] == [ZeroDivisionError]
    await setup.stop()


async def test_a_failed_bootstrap_can_be_repeated(cluster: FakeCluster) -> None:
    setup = Setup(cluster)
    cluster.brokers[0].silent(ApiVersionsRequest)
    with pytest.raises(BootstrapError):
        await setup.metadata.bootstrap(setup.soon(30))
    cluster.brokers[0].on(ApiVersionsRequest, lambda request: request.broker.api_versions())
    await setup.metadata.bootstrap(setup.soon())
    assert list(setup.metadata.cluster.brokers) == [1]
    await setup.stop()
