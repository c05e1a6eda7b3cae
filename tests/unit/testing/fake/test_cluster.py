"""FakeCluster: the model on sockets, with this package's producer as its client."""

from __future__ import annotations

import asyncio
import base64
import math
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Producer as OtherProducer
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from aioproducer import Producer
from aioproducer.errors import (
    BrokerError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    MessageTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from aioproducer.protocol.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from aioproducer.testing import ClusterError, FakeCluster, ports
from aioproducer.testing.fake import cluster as fake_cluster
from tests.unit.testing.fake.talk import model
from tests.unit.testing.test_ports import OfferedPorts

LIMIT_S = 30


def quick(cluster: FakeCluster, **configs: object) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=5, retry_backoff_max_ms=20, **configs)


async def test_records_arrive() -> None:
    async with FakeCluster() as cluster, quick(cluster) as producer:
        cluster.create_topic("orders", 2)
        metadata = await producer.send("orders", b"value", key=b"k", headers=[("trace", b"1")], partition=1)
        (record,) = cluster.records("orders", 1)
        assert (record.offset, record.key, record.value, record.headers) == (
            metadata.offset, b"k", b"value", (("trace", b"1"),)
        )  # fmt: skip
        assert record.producer_id >= 0


@pytest.mark.parametrize("version", ["4.3", "3.9", "2.8", "2.1", "0.11"])
async def test_every_version_of_kafka(version: str) -> None:
    async with FakeCluster(version=version) as cluster, quick(cluster) as producer:
        assert (await producer.send("orders", b"a")).offset == 0
        assert [record.value for record in cluster.records("orders")] == [b"a"]


async def test_faults_strike_the_producer() -> None:
    """It retries, and the record is in the log once."""
    async with FakeCluster(3) as cluster:
        cluster.create_topic("orders", 1)
        refused = cluster.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        lost = cluster.faults.drop("Produce", when="after", skip=2)
        async with quick(cluster) as producer, asyncio.timeout(LIMIT_S):
            await producer.send("orders", b"a")
        assert (refused.struck, lost.struck) == (2, 1)
        assert [record.value for record in cluster.records("orders")] == [b"a"]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
async def test_records_have_their_times_although_an_answer_was_lost(kind: str) -> None:
    async with FakeCluster() as cluster:
        cluster.create_topic("orders", 1, configs={"message.timestamp.type": kind})
        lost = cluster.faults.drop("Produce", when="after")
        async with quick(cluster) as producer, asyncio.timeout(LIMIT_S):
            await producer.partitions_for("orders")
            deliveries = [producer.submit_nowait("orders", b"a", timestamp_ms=at_ms) for at_ms in (5_000, 10_000)]
            told = [(await delivery).timestamp_ms for delivery in deliveries]
        assert lost.struck == 1
        assert told == [record.timestamp_ms for record in cluster.records("orders")]
        assert kind == "LogAppendTime" or told == [5_000, 10_000]


async def test_an_error_that_stays() -> None:
    async with FakeCluster() as cluster, quick(cluster) as producer:
        cluster.faults.fail("Produce", "POLICY_VIOLATION", times=None, message="not on Sundays")
        with pytest.raises(BrokerError, match="not on Sundays"):
            await producer.send("orders", b"a")


async def test_a_limit_of_the_topic() -> None:
    async with FakeCluster() as cluster, quick(cluster) as producer:
        cluster.create_topic("small", 1, configs={"max.message.bytes": 200})
        with pytest.raises(MessageTooLargeError):
            await producer.send("small", b"x" * 1000)


async def test_brokers_stop_start_and_move() -> None:
    async with FakeCluster(3) as cluster:
        cluster.create_topic("orders", 1)
        async with quick(cluster, reconnect_backoff_ms=5) as producer, asyncio.timeout(LIMIT_S):
            await producer.send("orders", b"1")
            leader = cluster.leader_of("orders")
            assert leader is not None
            cluster.stop_broker(leader)
            assert leader not in cluster.running
            await producer.send("orders", b"2")
            cluster.start_broker(leader)
            cluster.change_addresses(leader)
            cluster.move_leader("orders", 0, leader)
            await producer.send("orders", b"3")
            cluster.drop_connections(leader)
            await producer.send("orders", b"4")
        assert [record.value for record in cluster.records("orders")] == [b"1", b"2", b"3", b"4"]


async def test_a_broker_comes_back_on_its_port() -> None:
    async with FakeCluster() as cluster:
        address = cluster.address_of(1)
        cluster.stop_broker(1)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address).close()
        cluster.start_broker(1)
        assert cluster.address_of(1) == address
        socket.create_connection(address).close()


def test_a_broker_may_stop_without_an_election() -> None:
    with FakeCluster(2) as cluster:
        cluster.create_topic("orders")
        leader = cluster.leader_of("orders")
        assert leader is not None
        cluster.stop_broker(leader, elect=False)
        assert cluster.leader_of("orders") is None
        cluster.elect_leaders()
        assert cluster.leader_of("orders") == 3 - leader


def test_a_broker_whose_port_is_taken_stays_stopped() -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        address = cluster.address_of(1)
        cluster.stop_broker(1)
        with (
            socket.create_server(address),
            pytest.raises(ClusterError, match=rf"broker 1 can't listen on 127\.0\.0\.1:{address[1]}: "),
        ):
            cluster.start_broker(1)
        assert (cluster.running, cluster.leader_of("orders")) == ((), None)
        cluster.start_broker(1)
        assert (cluster.running, cluster.leader_of("orders")) == ((1,), 1)
        socket.create_connection(address).close()


def test_ports_lie_below_those_of_outgoing_connections_and_are_given_back() -> None:
    """A stopped broker keeps its port, even if the whole cluster is started again meanwhile."""

    def taken() -> list[int]:
        return [cluster.address_of(broker)[1] for broker in cluster.brokers]

    cluster = FakeCluster(2)
    with cluster:
        first = taken()
        cluster.stop_broker(2)
        cluster.change_addresses(1)
        second = taken()
        assert first[0] not in second
        assert second[1] == first[1]
        assert all(ports.FIRST <= port <= ports.LAST for port in first + second)
        assert not set(ports.free_ports(1, OfferedPorts(*second))) & set(second)
    with cluster:
        third = taken()
        assert cluster.running == (1,)
        assert not set(ports.free_ports(1, OfferedPorts(*third))) & set(third)
        cluster.start_broker(2)
        assert taken() == third
    assert ports.free_ports(2, OfferedPorts(*third)) == third
    ports.give_back(third)


@pytest.mark.parametrize("broker", [1, 9])
def test_what_a_broker_does_needs_one_that_runs(broker: int) -> None:
    with FakeCluster(2) as cluster:
        address = cluster.address_of(1)
        cluster.stop_broker(1)
        with pytest.raises(ClusterError, match=f"broker {broker} does not run"):
            cluster.drop_connections(broker)
        with pytest.raises(ClusterError, match=f"broker {broker} does not run"):
            cluster.change_addresses(2, broker)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address).close()
        cluster.start_broker(1)
        socket.create_connection(address).close()


@pytest.mark.parametrize(
    ("configs", "told"),
    [
        ({"brokers": 0}, "a cluster of 0 brokers"),
        ({"transaction_version": -1}, "transaction_version=-1: Kafka 4.3 has 0 to 2"),
        ({"transaction_version": 3}, "transaction_version=3: Kafka 4.3 has 0 to 2"),
        ({"version": "3.9", "transaction_version": 1}, "transaction_version=1: Kafka 3.9 has 0 to 0"),
        ({"min_insync_replicas": 0}, "min_insync_replicas=0: Kafka takes 1 to 2147483647"),
        ({"min_insync_replicas": 1 << 31}, "min_insync_replicas=2147483648: Kafka takes 1 to 2147483647"),
        ({"default_partitions": 0}, "default_partitions=0: Kafka takes 1 to 2147483647"),
        ({"default_partitions": -3}, "default_partitions=-3: Kafka takes 1 to 2147483647"),
        ({"message_max_bytes": -1}, "message_max_bytes=-1: Kafka takes 0 to 2147483647"),
    ],
)
def test_numbers_that_no_broker_starts_with_are_refused(configs: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        FakeCluster(**configs)


@pytest.mark.parametrize(
    ("config", "value", "told"),
    [
        ("min.insync.replicas", 0, "Value must be at least 1"),
        ("min.insync.replicas", 1 << 31, "Not a number of type INT"),
        ("max.message.bytes", -1, "Value must be at least 0"),
        ("max.message.bytes", -(1 << 31), "Value must be at least 0"),
        ("max.message.bytes", -(1 << 31) - 1, "Not a number of type INT"),
        ("max.message.bytes", "1_000", "Not a number of type INT"),
        ("max.message.bytes", "1.5", "Not a number of type INT"),
        ("segment.bytes", 0, "Value must be at least 14"),
        ("message.timestamp.before.max.ms", -1, "Value must be at least 0"),
        ("message.timestamp.after.max.ms", 1 << 63, "Not a number of type LONG"),
    ],
)
def test_configs_that_no_topic_has_are_refused(config: str, value: object, told: str) -> None:
    """With the messages of Kafka 4.3.1; but Kafka requires segments of at least a mebibyte."""
    cluster = FakeCluster()
    cluster.create_topic("orders", configs={"max.message.bytes": " +0 ", "message.timestamp.after.max.ms": 1 << 62})
    told = f"Invalid value {value} for configuration {config}: {told}"
    with pytest.raises(InvalidConfigError, match=told):
        cluster.create_topic("bad", configs={config: value})
    with pytest.raises(InvalidConfigError, match=told):
        cluster.alter_configs("orders", {config: value})
    assert cluster.topics() == ("orders",)


def test_two_topics_whose_metrics_would_have_one_name() -> None:
    """As in Kafka 4.3.1, where the error of an existing topic takes precedence."""
    cluster = FakeCluster()
    cluster.create_topic("a.b_c")
    for name in ("a_b.c", "a_b_c", "a.b.c"):
        with pytest.raises(InvalidTopicError, match=f"Topic '{name}' collides with existing topic: a.b_c"):
            cluster.create_topic(name)
    with pytest.raises(TopicAlreadyExistsError):
        cluster.create_topic("a.b_c")
    cluster.create_topic("a-b-c")
    cluster.delete_topic("a.b_c")
    cluster.create_topic("a_b.c")
    assert cluster.topics() == ("a-b-c", "a_b.c")


def test_a_port_that_a_broker_has_left_is_given_back() -> None:
    with FakeCluster() as cluster:
        port = cluster.address_of(1)[1]
        cluster.change_addresses(1)
        assert ports.free_ports(1, OfferedPorts(port)) == [port]
        ports.give_back([port])


def test_brokers_that_are_none_are_refused() -> None:
    with FakeCluster(2) as cluster:
        with pytest.raises(ValueError, match="there is no broker 9"):
            cluster.move_coordinator("mine", 9)
        with pytest.raises(ValueError, match="there is no broker 9"):
            cluster.load_coordinator(9, 100)
        with pytest.raises(ValueError, match="there is no broker 9"):
            cluster.address_of(9)


@pytest.mark.parametrize("assignments", [{}, {0: []}, {0: [9]}, {0: [1, 1]}, {1: [1]}, {0: [1], 2: [1]}])
def test_an_assignment_that_no_cluster_takes_is_refused(assignments: dict[int, list[int]]) -> None:
    with FakeCluster(2) as cluster:
        with pytest.raises(InvalidReplicaAssignmentError):
            cluster.create_topic("orders", assignments=assignments)
        assert cluster.topics() == ()


async def test_nonsense_ends_the_connection() -> None:
    async with FakeCluster() as cluster:
        reader, writer = await asyncio.open_connection(*cluster.address_of(1))
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(LIMIT_S):
            assert await reader.read() == b""
        writer.close()


def test_it_needs_no_loop_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    started = time.monotonic()
    with FakeCluster(3) as cluster:
        assert time.monotonic() - started < LIMIT_S
        assert len(cluster.bootstrap_servers.split(",")) == 3
    assert set(threading.enumerate()) == before
    cluster.stop()  # does nothing


async def test_it_leaves_no_thread_behind_an_asynchronous_block() -> None:
    before = set(threading.enumerate())
    async with FakeCluster():
        pass
    assert set(threading.enumerate()) == before


OWNER = """
import os, signal, socket, struct
from aioproducer.testing import ClusterError, FakeCluster


def tell(*words):
    os.write(1, (" ".join(map(str, words)) + os.linesep).encode())


def fork(cluster):
    for call in (cluster.topics, cluster.start, lambda: cluster.stop_broker(1), lambda: cluster.faults.drop()):
        try:
            call()
        except ClusterError as error:
            tell("fork:", error)
    cluster.stop()
    socket.create_connection(cluster.address_of(2)).close()
    tell("fork: connected")


with FakeCluster(2) as cluster:
    client = socket.create_connection(cluster.address_of(1), 30)
    client.sendall(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    assert client.recv(4)  # so the broker knows the connection
    waiting, go = os.pipe()
    forking, forked = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        os.close(go)
        os.write(forked, b"!")
        fork(cluster)
        os.read(waiting, 1)
        os._exit(0)
    os.read(forking, 1)
    cluster.stop_broker(1)
    while client.recv(1024):
        pass
    tell("owner: the connection has ended")
    try:
        socket.create_connection(cluster.address_of(1))
    except ConnectionRefusedError:
        tell("owner: refused")
    os.close(go)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_fork_can_connect_to_it_and_nothing_else() -> None:
    command = [sys.executable, "-W", "ignore", "-c", OWNER]
    found = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S)
    assert found.stderr == ""
    assert found.returncode == 0
    refusal = "fork: a cluster belongs to the process that started it, and this process is a fork of that one"
    told = found.stdout.splitlines()
    assert [line for line in told if line.startswith("fork")] == [refusal] * 4 + ["fork: connected"]
    assert [line for line in told if line.startswith("owner")] == ["owner: the connection has ended", "owner: refused"]


def test_what_does_not_fit_is_told() -> None:
    cluster = FakeCluster()
    with pytest.raises(ClusterError, match="with block"):
        _ = cluster.bootstrap_servers
    with pytest.raises(ClusterError, match="does not run"):
        cluster.stop_broker(1)
    with pytest.raises(ValueError, match=r"4\.3"):
        FakeCluster(version="1.0")
    with cluster, pytest.raises(ClusterError, match="the fake cluster is running"):
        cluster.start()
    with cluster, pytest.raises(ClusterError, match="broker 1 is running"):
        cluster.start_broker(1)


async def test_another_client_writes_to_it() -> None:
    """librdkafka, idempotent, through a change of the leader."""
    ends: list[object] = []
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders", 1)
        other = OtherProducer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "compression.type": "lz4"}
        )
        refused = cluster.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
        for number in range(100):
            other.produce(
                "orders", b"%d" % number, headers={"a": b"b"}, on_delivery=lambda error, _: ends.append(error)
            )
        assert await asyncio.to_thread(other.flush, LIMIT_S) == 0
        assert ends == [None] * 100
        assert refused.struck == 1
        assert [record.value for record in cluster.records("orders")] == [b"%d" % number for number in range(100)]
        assert {record.headers for record in cluster.records("orders")} == {(("a", b"b"),)}
        del other


async def test_another_client_commits_transactions() -> None:
    """librdkafka, with transactions V1."""
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders", 1)

        def publish() -> None:
            other = OtherProducer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "mine"})
            other.init_transactions(LIMIT_S)
            for value, committed in ((b"a", True), (b"b", False), (b"c", True)):
                other.begin_transaction()
                other.produce("orders", value)
                other.flush(LIMIT_S)
                other.commit_transaction(LIMIT_S) if committed else other.abort_transaction(LIMIT_S)

        await asyncio.to_thread(publish)
        assert [record.value for record in cluster.records("orders")] == [b"a", b"b", b"c"]
        assert [record.value for record in cluster.records("orders", read_committed=True)] == [b"a", b"c"]
        assert cluster.transaction_state("mine") == "CompleteCommit"


async def test_the_end_of_the_log_is_that_of_the_time_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker that became due counts, although no request has come since."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders", 1)
        cluster.delay_markers(60_000)
        async with (
            Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="mine") as producer,
            producer.transaction(),
        ):
            await producer.send("orders", b"a")
        assert cluster.end_offsets("orders") == {0: 1}
        later = fake_cluster.now_ms() + 60_001
        monkeypatch.setattr(fake_cluster, "now_ms", lambda: later)
        assert cluster.end_offsets("orders") == {0: 2}
        cluster.delete_records("orders", 0, before_offset=2)
        assert cluster.records("orders") == []


async def test_coordinators_move() -> None:
    with FakeCluster(3) as cluster:
        node = cluster.coordinator_of("mine")
        assert node is not None
        cluster.move_coordinator("mine", node % 3 + 1)
        assert cluster.coordinator_of("mine") == node % 3 + 1
        cluster.stop_broker(node % 3 + 1)
        assert cluster.coordinator_of("mine") == node
        assert cluster.transaction_state("mine") is None
        assert cluster.committed_offsets("group") == {}


async def test_a_coordinator_that_loads() -> None:
    """It answers so for the given time, counted from the call."""
    async with FakeCluster() as cluster:
        cluster.load_coordinator(1, 60_000)
        asked = cluster.faults.delay("InitProducerId", 0, times=None)
        producer = quick(cluster, transactional_id="mine")
        start = asyncio.create_task(producer.start())
        async with asyncio.timeout(LIMIT_S):
            while asked.struck < 3 and not start.done():
                await asyncio.sleep(0)
            assert not start.done()
            cluster.load_coordinator(1, -1)
            await start
        await producer.close()


async def test_a_transactional_id_that_expires() -> None:
    async with FakeCluster() as cluster:
        async with quick(cluster, transactional_id="mine") as producer, producer.transaction():
            await producer.send("orders", b"a")
            cluster.forget_transactional_id("mine")
            assert cluster.transaction_state("mine") == "Ongoing"
        cluster.forget_transactional_id("mine")
        assert cluster.transaction_state("mine") is None


async def test_a_producer_that_a_partition_forgets() -> None:
    """Its next batch is refused, so the producer gets another epoch and counts from 0."""
    async with FakeCluster(version="2.1") as cluster, quick(cluster) as producer:
        await producer.send("orders", b"a")
        cluster.forget_producers("orders")
        await producer.send("orders", b"b")
        found = [(record.value, record.producer_epoch, record.sequence) for record in cluster.records("orders")]
        assert found == [(b"a", 0, 0), (b"b", 1, 0)]


async def test_replicas_and_leaders_that_clients_see() -> None:
    async with FakeCluster(3) as cluster, quick(cluster) as producer, asyncio.timeout(LIMIT_S):
        cluster.create_topic("orders")
        leader = cluster.leader_of("orders")
        assert leader is not None
        cluster.shrink_isr("orders", 0, [leader])
        (partition,) = await producer.partitions_for("orders")
        assert len(partition.replicas) == 3
        assert partition.in_sync_replicas == (leader,)
        cluster.remove_leader("orders")
        assert cluster.leader_of("orders") is None
        waiting = await producer.submit("orders", b"a")
        cluster.elect_leaders()
        await waiting
        assert cluster.leader_of("orders") == leader


async def test_a_replica_that_lags_and_a_leader_that_is_cut_off() -> None:
    """The producer waits, finds the new leader, and writes there what the former one alone had."""
    async with FakeCluster(3) as cluster, quick(cluster) as producer, asyncio.timeout(LIMIT_S):
        cluster.create_topic("orders", assignments={0: [1, 2, 3]})
        await producer.send("orders", b"a")
        cluster.pause_replication(2)
        waiting = await producer.submit("orders", b"b")
        await producer.partitions_for("orders")
        cluster.cut_off(1)
        assert cluster.leader_of("orders") == 2
        assert [record.value for record in cluster.records("orders")] == [b"a"]
        cluster.drop_connections(1)
        cluster.reconnect(1)
        await waiting
        assert [record.value for record in cluster.records("orders")] == [b"a", b"b"]
        cluster.resume_replication(2)
        cluster.stop_broker(2)
        cluster.stop_broker(3)
        cluster.stop_broker(1)
        cluster.start_broker(2)
        assert cluster.leader_of("orders") is None
        cluster.elect_leaders(unclean=True)
        assert cluster.leader_of("orders") == 2


async def test_a_broker_that_is_cut_off_tells_what_it_knew_until_it_restarts() -> None:
    async with FakeCluster(2) as cluster, quick(cluster) as producer, asyncio.timeout(LIMIT_S):
        cluster.cut_off(1)
        cluster.create_topic("orders", assignments={0: [2, 1]})
        cluster.stop_broker(1)
        with pytest.raises(ClusterError, match="broker 1 does not run"):
            cluster.cut_off(1)
        cluster.start_broker(1)
        cluster.stop_broker(2)
        await producer.send("orders", b"a")
        assert cluster.leader_of("orders") == 1


async def test_an_answer_that_is_delayed() -> None:
    async with FakeCluster() as cluster, quick(cluster) as producer, asyncio.timeout(LIMIT_S):
        await producer.send("orders", b"a")
        delayed = cluster.faults.delay("Produce", 50)
        began = time.monotonic()
        await producer.send("orders", b"b")
        assert time.monotonic() - began >= 0.05
        assert delayed.struck == 1


async def test_metrics_that_clients_push() -> None:
    """The last push comes when the client closes; its sums cover everything that was sent."""
    async with FakeCluster(receives_metrics=True) as cluster:
        cluster.subscribe_metrics("org.apache.kafka.producer.record.", delta=False)
        async with quick(cluster) as producer:
            client = await producer.client_instance_id(LIMIT_S)
            await producer.send_many("orders", [b"a", b"b", b"c"])
        *_, last = cluster.pushed_metrics()
        assert last.terminating
        assert last.client_instance_id.hex() == _hex(client)
        (of_resource,) = MetricsData.FromString(last.metrics).resource_metrics
        told = {metric.name: metric for scope in of_resource.scope_metrics for metric in scope.metrics}
        assert all(name.startswith("org.apache.kafka.producer.record.") for name in told)
        (sent,) = told["org.apache.kafka.producer.record.send.total"].sum.data_points
        assert sent.as_double == 3


async def test_nobody_pushes_what_is_not_wanted() -> None:
    async with FakeCluster(receives_metrics=True) as cluster:
        cluster.subscribe_metrics()
        async with quick(cluster) as producer:
            assert await producer.client_instance_id(LIMIT_S) is not None
            await producer.send("orders", b"a")
            for wrong in (-1.0, math.nan):
                with pytest.raises(ValueError, match="timeout"):
                    await producer.client_instance_id(wrong)
        assert cluster.pushed_metrics() == ()


def test_topics_that_no_cluster_takes_are_refused() -> None:
    cluster = FakeCluster()
    for name in ("", "a b", "..", "x" * 250):
        with pytest.raises(InvalidTopicError):
            cluster.create_topic(name)
    for partitions in (0, -1):
        with pytest.raises(InvalidPartitionsError):
            cluster.create_topic("none", partitions)
    for replicas in (0, 2):
        with pytest.raises(InvalidReplicationFactorError):
            cluster.create_topic("replicated", 1, replicas)
    cluster.create_topic("orders", 3)
    for total in (2, 3):
        with pytest.raises(InvalidPartitionsError):
            cluster.add_partitions("orders", total)
    cluster.add_partitions("orders", 4)
    assert list(cluster.end_offsets("orders")) == [0, 1, 2, 3]
    assert cluster.topics() == ("orders",)


def test_a_topic_or_partition_that_is_not_there() -> None:
    cluster = FakeCluster()
    cluster.create_topic("orders", 2)
    for place in (("none", 0), ("orders", 2), ("orders", -1)):
        for call in (cluster.records, cluster.leader_of, cluster.move_leader, cluster.remove_leader):
            with pytest.raises(UnknownTopicOrPartitionError):
                call(*place)
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.delete_topic("none")


def test_brokers_without_a_receiver_want_nothing() -> None:
    with pytest.raises(ClusterError, match="receives_metrics=True"):
        FakeCluster().subscribe_metrics("*")
    asks = GetTelemetrySubscriptionsRequest.API_KEY
    for receives_metrics in False, True:
        assert (asks in model(receives_metrics=receives_metrics).ranges) == receives_metrics


def _hex(client: str | None) -> str:
    assert client is not None
    return base64.urlsafe_b64decode(client + "==").hex()
