"""The advice about names, addresses, ports, topics and clocks."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.doctor import advice, topics
from aioproducer.doctor.diagnosis import of_config
from aioproducer.doctor.findings import Status
from aioproducer.protocol.metadata import MetadataResponsePartition
from aioproducer.records import RecordMetadata


def config(**values: object) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap_servers": "kafka.test:9092", **values})


# --- the network ------------------------------------------------------------------------------------------------------


def test_what_a_failed_connection_means() -> None:
    assert "refused" in advice.of_connection(ConnectionRefusedError(errno.ECONNREFUSED, ""), "kafka", 9092)[0]
    assert "firewall" in advice.of_connection(TimeoutError(), "kafka", 9092)[1]
    assert "no route" in advice.of_connection(OSError(errno.ENETUNREACH, ""), "kafka", 9092)[0]
    assert "odd" in advice.of_connection(OSError(errno.EIO, "odd"), "kafka", 9092)[0]
    assert "ZooKeeper" in advice.of_connection(ConnectionRefusedError(errno.ECONNREFUSED, ""), "kafka", 2181)[1]


def test_what_a_failed_connection_through_a_proxy_means() -> None:
    for error in (TimeoutError(), OSError("the proxy http://proxy:3128 gave no connection: 502 Bad Gateway")):
        message, remedy = advice.of_connection(error, "kafka", 9092, through_proxy=True)
        assert "proxy" in message
        assert "proxy_url" in remedy
        assert "kafka:9092" in remedy


@pytest.mark.parametrize(
    ("host", "bootstrap", "said"),
    [
        ("localhost", "kafka.test", "localhost is this machine, not the broker's"),
        ("127.0.0.1", "kafka.test", "127.0.0.1 is this machine"),
        ("0.0.0.0", "10.0.0.7", "0.0.0.0 is this machine"),
        ("::1", "kafka.test", "::1 is this machine"),
        ("kafka", "localhost", "or make kafka resolvable here"),
        ("10.1.2.3", "203.0.113.7", "such as 203.0.113.7, or open the network to 10.1.2.3:9092"),
        ("localhost", "127.0.0.1", "or open the network to localhost:9092"),
    ],
)
def test_what_to_do_about_an_advertised_listener(host: str, bootstrap: str, said: str) -> None:
    told = advice.of_advertised(host, 9092, [(bootstrap, 9092)])
    assert "advertised.listeners" in told
    assert said in told


# --- configs ----------------------------------------------------------------------------------------------------------


def warned(**values: object) -> list[str]:
    return [each.where for each in of_config(config(**values))]


def test_configs_that_are_seldom_meant() -> None:
    assert warned() == []
    assert warned(ssl_truststore_location="ca.pem") == ["ssl_truststore_location"]
    login = {"sasl_username": "u", "sasl_password": "p"}
    assert warned(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", **login) == ["security_protocol"]
    assert warned(security_protocol="SASL_SSL", sasl_mechanism="PLAIN", **login) == []
    assert warned(acks=1) == ["acks"]


# --- topics -----------------------------------------------------------------------------------------------------------


def partition(index: int, replicas: list[int], isr: list[int], leader: int | None = None) -> MetadataResponsePartition:
    led = isr[0] if leader is None else leader
    return MetadataResponsePartition(partition_index=index, leader_id=led, replica_nodes=replicas, isr_nodes=isr)


def of_partitions(
    partitions: list[MetadataResponsePartition], configs: Mapping[str, str], **values: object
) -> list[tuple[Status, str, str]]:
    found = topics.of_partitions("orders", partitions, configs, config(**values))
    return [(each.status, each.message, each.advice) for each in found]


def test_too_few_replicas_in_sync() -> None:
    good, short = partition(0, [1, 2, 3], [1, 2, 3]), partition(1, [2, 3, 1], [2])
    ((status, message, remedy),) = of_partitions([good, short], {"min.insync.replicas": "2"})
    assert status is Status.FAILED
    assert message.startswith("partition 1 has fewer in-sync replicas than min.insync.replicas=2")
    assert remedy.endswith("node 1, node 3")


def test_without_acks_of_all_they_are_only_worth_a_warning() -> None:
    short = partition(1, [2, 3, 1], [2])
    ((status, _, _),) = of_partitions([short], {}, acks=1)
    assert status is Status.WARNING


def test_a_limit_that_can_not_be_met() -> None:
    ((status, _, remedy),) = of_partitions([partition(0, [1], [1])], {"min.insync.replicas": "2"})
    assert status is Status.FAILED
    assert remedy.startswith("lower min.insync.replicas")


def test_replicas_that_are_behind() -> None:
    ((status, message, _),) = of_partitions([partition(0, [1, 2, 3], [1, 2])], {"min.insync.replicas": "2"})
    assert status is Status.WARNING
    assert message == "partition 0 has replicas that are not in sync"


def test_many_partitions_are_not_all_named() -> None:
    partitions = [partition(index, [1], [], leader=-1) for index in range(40)]
    ((_, message, remedy),) = of_partitions(partitions, {})
    assert message == "partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 30 more have no leader"
    assert remedy.endswith("node 1")


@pytest.mark.parametrize(
    ("configs", "values", "count"),
    [
        ({"max.message.bytes": "1048588", "compression.type": "producer"}, {}, 0),
        ({"max.message.bytes": "1000"}, {}, 1),
        ({"compression.type": "zstd"}, {"compression_type": "zstd"}, 0),
        ({"compression.type": "zstd"}, {}, 1),
        ({"compression.type": "uncompressed"}, {}, 0),
    ],
)
def test_configs_of_the_topic(configs: dict[str, str], values: dict[str, str], count: int) -> None:
    assert len(topics.of_configs("orders", configs, config(**values))) == count


# --- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker_ms", "status", "said"),
    [
        (100_000, Status.NOTE, "not compared"),
        (100_010, Status.OK, "give or take 11 ms"),
        (160_000, Status.WARNING, "59990 ms ahead of"),
        (40_000, Status.WARNING, "60010 ms behind"),
        (102_015, Status.OK, "ahead of"),
    ],
)
def test_a_clock_far_from_the_brokers_is_a_warning(broker_ms: int, status: Status, said: str) -> None:
    written = RecordMetadata("orders", 0, 7, broker_ms, -1, -1)
    found = topics.of_clocks("orders", written, 100_000, 100_020)
    assert found.status is status
    assert said in found.message
