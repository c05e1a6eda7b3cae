"""The doctor with healthy brokers, with servers that are not brokers, and with misbehaving ones."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import random
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from aioproducer import ConfigError
from aioproducer.audit import Audit
from aioproducer.doctor import Finding, Report, Status, Step, diagnose
from aioproducer.doctor.topics import MARK
from aioproducer.error_codes import Code
from aioproducer.net import resolver
from aioproducer.protocol.describe_configs import (
    BROKER,
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from aioproducer.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from aioproducer.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from aioproducer.testing import CertificateAuthority, FakeCluster
from aioproducer.testing.ports import free_ports
from tests.unit.doctor import hostile

PATIENT_S = 30.0
IMPATIENT_S = 1.0
"""A timeout for servers that never answer; all earlier steps take no more than a millisecond or two."""


async def report_of(port: int, *, timeout_s: float = PATIENT_S, **configs: Any) -> Report:
    """The doctor's report about a loopback port."""
    return await diagnose(bootstrap_servers=f"127.0.0.1:{port}", timeout_s=timeout_s, **configs)


def problem(report: Report) -> Finding:
    """The only problem in the report."""
    (found,) = (each for each in report.findings if each.status is Status.FAILED)
    assert report.status is Status.FAILED
    assert found.advice
    json.dumps(report.as_dict())
    return found


# --- a cluster that is well -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["4.3", "3.9", "2.8", "2.1"])
async def test_a_cluster_that_is_well(version: str) -> None:
    with FakeCluster(3, version=version) as cluster:
        cluster.create_topic("orders", 3)
        seen: list[Finding] = []
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="orders", on_finding=seen.append)
        assert report.status is Status.OK
        assert list(report.findings) == seen
        assert [each.facts["kafka"] for each in report.of(Step.VERSIONS)] == [version] * 3
        assert [each.facts["node"] for each in report.of(Step.LISTENER)] == [1, 2, 3]
        assert cluster.end_offsets("orders") == {0: 0, 1: 0, 2: 0}, "a look writes nothing"
        json.dumps(report.as_dict())


async def test_a_record_on_demand() -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="orders", write=True)
        (written,) = report.of(Step.WRITE)
        assert written.status is Status.OK
        assert written.facts["offset"] == 0
        assert [each.key for each in cluster.records("orders")] == [MARK.encode()]
        (clock,) = report.of(Step.CLOCK)
        assert clock.status is Status.NOTE


async def test_the_clock_by_log_append_time() -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders", configs={"message.timestamp.type": "LogAppendTime"})
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="orders", write=True)
        (clock,) = report.of(Step.CLOCK)
        # Both clocks are this machine's, but the record's two times may fall in the same millisecond.
        assert clock.status in (Status.OK, Status.NOTE)


async def test_the_probe_fences_nobody() -> None:
    """A transactional id in the configs may belong to a running producer."""
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        report = await diagnose(
            bootstrap_servers=cluster.bootstrap_servers, topic="orders", write=True, transactional_id="mine"
        )
        assert report.status is Status.OK
        assert cluster.transaction_state("mine") is None


@pytest.mark.parametrize("name", ["interceptors", "interceptor_classes"])
async def test_the_probe_runs_no_code_of_the_user(name: str, tmp_path: Path) -> None:
    """An audit of a running producer would take the probe for one of its records, and be closed with it."""
    audit = Audit("orders", statements=tmp_path)

    def choose(*_: object) -> int:
        raise AssertionError("the user's partitioner was called")

    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        configs: Any = {"bootstrap_servers": cluster.bootstrap_servers, name: [audit], "partitioner": choose}
        report = await diagnose(topic="orders", write=True, **configs)
        assert report.status is Status.OK
        (record,) = cluster.records("orders")
        assert [key for key, _ in record.headers] == [MARK]
    await audit.written()
    assert os.listdir(tmp_path) == []


async def test_the_probe_is_acknowledged_also_where_records_are_not() -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="orders", write=True, acks=0)
        (written,) = report.of(Step.WRITE)
        assert (written.status, written.facts["offset"]) == (Status.OK, 0)
        assert "acks=1" in written.message


async def test_a_write_needs_a_topic() -> None:
    with pytest.raises(ConfigError, match="needs a topic"):
        await diagnose(bootstrap_servers="127.0.0.1:1", write=True)


async def test_configs_that_are_no_configs() -> None:
    with pytest.raises(ConfigError, match="linger_ms"):
        await diagnose(bootstrap_servers="127.0.0.1:1", lingr_ms=1)


# --- addresses --------------------------------------------------------------------------------------------------------


async def test_nobody_listens() -> None:
    (port,) = free_ports(1, random.Random())
    found = problem(await report_of(port))
    assert (found.step, found.where) == (Step.TCP, f"127.0.0.1:{port}")
    assert "refused" in found.message


async def test_a_proxy_that_nobody_runs() -> None:
    """The network between this machine and the broker has nothing to do with it."""
    with FakeCluster() as cluster:
        (port,) = free_ports(1, random.Random())
        report = await diagnose(
            bootstrap_servers=cluster.bootstrap_servers, proxy_url=f"http://user:secret@127.0.0.1:{port}"
        )
    found = problem(report)
    assert found.step is Step.TCP
    assert found.message.startswith(f"the proxy http://127.0.0.1:{port} gave no connection: ")
    assert "proxy_url" in found.advice
    assert cluster.bootstrap_servers in found.advice


async def test_a_name_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("aioproducer.net.route.resolve", unknown)
    found = problem(await diagnose(bootstrap_servers="kafka-1:9092"))
    assert (found.step, found.where) == (Step.DNS, "kafka-1:9092")
    assert "can't be resolved" in found.message
    assert "container" in found.advice


async def test_a_name_with_an_address_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one of a name's addresses answers: a producer works, but loses time with the other."""
    with FakeCluster() as cluster:
        _, port = cluster.address_of(1)

        async def two(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[str]:
            return ["127.0.0.2", "127.0.0.1"] if host == "kafka.test" else await resolver.resolve(loop, host, port)

        monkeypatch.setattr("aioproducer.net.route.resolve", two)
        report = await diagnose(bootstrap_servers=f"kafka.test:{port}")
        assert report.status is Status.WARNING
        (warning,) = report.problems
        assert warning.message.startswith("127.0.0.2: connection refused")
        assert "127.0.0.1" in warning.advice


async def test_each_bootstrap_address_is_looked_at() -> None:
    (port,) = free_ports(1, random.Random())
    with FakeCluster() as cluster:
        servers = f"127.0.0.1:{port},{cluster.bootstrap_servers}"
        report = await diagnose(bootstrap_servers=servers)
        assert problem(report).where == f"127.0.0.1:{port}"
        assert report.of(Step.LISTENER)[0].status is Status.OK


async def test_bootstrap_addresses_of_two_clusters() -> None:
    with FakeCluster(seed=1) as one, FakeCluster(seed=2) as other:
        report = await diagnose(bootstrap_servers=f"{one.bootstrap_servers},{other.bootstrap_servers}")
        assert "different clusters" in problem(report).message


# --- who answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("speak", "said"),
    [
        (hostile.hangs_up, "closed the connection instead of answering"),
        (hostile.reads_and_hangs_up, "closed the connection instead of answering"),
        (hostile.speaks_http, "it speaks HTTP"),
        (hostile.speaks_garbage, "does not speak Kafka's protocol"),
        (hostile.answers_garbage, "does not speak Kafka's protocol"),
        (hostile.answers_nothing, "it ends too soon, after 0 bytes"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
async def test_no_broker(speak: hostile.Speak, said: str, protocol: str) -> None:
    configs = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "s3cret"} if "SASL" in protocol else {}
    with hostile.server(speak) as port:
        report = await report_of(port, security_protocol=protocol, **configs)
        found = problem(report)
        assert found.step is Step.VERSIONS
        assert said in found.message
        assert "s3cret" not in json.dumps(report.as_dict())


async def test_a_black_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproducer.doctor.contact.CLOSER_LOOK_S", 0.1)
    with hostile.server(hostile.is_silent) as port:
        found = problem(await report_of(port, timeout_s=IMPATIENT_S))
        assert found.step is Step.VERSIONS
        assert f"not answered within {IMPATIENT_S:g} s" in found.message


@pytest.mark.parametrize("speak", [hostile.is_silent, hostile.hangs_up, hostile.speaks_http, hostile.speaks_garbage])
async def test_no_tls_at_a_stranger(speak: hostile.Speak, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioproducer.doctor.contact.CLOSER_LOOK_S", 0.1)
    with hostile.server(speak) as port:
        timeout_s = IMPATIENT_S if speak is hostile.is_silent else PATIENT_S
        found = problem(await report_of(port, timeout_s=timeout_s, security_protocol="SSL"))
        assert found.step is Step.TLS


# --- TLS --------------------------------------------------------------------------------------------------------------


async def test_tls_with_a_broker_that_has_none() -> None:
    with FakeCluster() as cluster:
        found = problem(await report_of(cluster.address_of(1)[1], security_protocol="SSL"))
        assert found.step is Step.TLS
        assert "without TLS" in found.message
        assert found.advice.startswith("set security_protocol=PLAINTEXT")


async def test_no_tls_with_a_broker_that_has_it(tmp_path: Path) -> None:
    with FakeCluster() as cluster:
        context = hostile.server_context(CertificateAuthority(), tmp_path, "127.0.0.1", 90)
        with hostile.server(hostile.relay_to(cluster), context) as port:
            found = problem(await report_of(port))
            assert found.step is Step.TLS
            assert found.message == "it speaks TLS, and this client does not"
            assert found.advice.startswith("set security_protocol=SSL")


@pytest.mark.parametrize(
    ("name", "days", "said", "advice"),
    [
        ("127.0.0.1", -2, "has expired", "renew it at the broker"),
        ("other.example", 90, "is not for 127.0.0.1", "use a host name that it has"),
    ],
)
async def test_certificates_that_are_not_accepted(
    name: str, days: float, said: str, advice: str, tmp_path: Path
) -> None:
    authority = CertificateAuthority()
    with FakeCluster() as cluster:
        context = hostile.server_context(authority, tmp_path, name, days)
        with hostile.server(hostile.relay_to(cluster), context) as port:
            configs = {"security_protocol": "SSL", "ssl_truststore_certificates": authority.pem}
            found = problem(await report_of(port, **configs))
            assert found.step is Step.TLS
            assert said in found.message
            assert f"for {name}" in found.message, "what stands in the certificate"
            assert found.advice.startswith(advice)


async def test_an_unknown_authority(tmp_path: Path) -> None:
    with FakeCluster() as cluster:
        context = hostile.server_context(CertificateAuthority(), tmp_path, "127.0.0.1", 90)
        with hostile.server(hostile.relay_to(cluster), context) as port:
            configs = {"security_protocol": "SSL", "ssl_truststore_certificates": CertificateAuthority().pem}
            found = problem(await report_of(port, **configs))
            assert "not trusted" in found.message
            assert "ssl_truststore_location" in found.advice


async def test_tls_that_is_well_and_ends_soon(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    with FakeCluster() as cluster:
        context = hostile.server_context(authority, tmp_path, "127.0.0.1", 5)
        with hostile.server(hostile.relay_to(cluster), context) as port:
            configs = {"security_protocol": "SSL", "ssl_truststore_certificates": authority.pem}
            report = await report_of(port, **configs)
            (first, *_) = report.of(Step.TLS)
            assert first.status is Status.WARNING
            assert first.facts["names"] == ["127.0.0.1"]
            assert "renew the broker's certificate" in first.advice
            assert report.of(Step.CLUSTER)[0].status is Status.OK


@pytest.mark.parametrize(("days", "said"), [(5.5, "expires in 5 days"), (-1, "has expired"), (90, None)])
async def test_this_clients_own_certificate(days: float, said: str | None, tmp_path: Path) -> None:
    """A broker may look at it only after the handshake, or not ask for it now."""
    authority = CertificateAuthority()
    now = datetime.datetime.now(datetime.UTC)
    own = authority.issue(
        "shop.example", not_before=now - datetime.timedelta(days=90), not_after=now + datetime.timedelta(days=days)
    )
    configs = {"ssl_keystore_key": own.key, "ssl_keystore_certificate_chain": own.chain}
    with FakeCluster() as cluster:
        context = hostile.server_context(authority, tmp_path, "127.0.0.1", 90)
        with hostile.server(hostile.relay_to(cluster), context) as port:
            report = await report_of(
                port, security_protocol="SSL", ssl_truststore_certificates=authority.pem, **configs
            )
    warned = [each for each in report.of(Step.TLS) if each.status is Status.WARNING]
    assert [each.message for each in warned] == ([] if said is None else [f"this client's own certificate {said}"])
    assert all("ssl_keystore_location" in each.advice for each in warned)
    assert all(each.facts["names"] == ["shop.example"] for each in warned)


async def test_a_trust_store_that_is_not_there(tmp_path: Path) -> None:
    configs = {"security_protocol": "SSL", "ssl_truststore_location": str(tmp_path / "none.pem")}
    found = problem(await report_of(1, **configs))
    assert "none.pem" in found.message + found.advice


# --- logins -----------------------------------------------------------------------------------------------------------


async def test_a_login_where_none_is_asked_for() -> None:
    """A broker without SASL does not support its requests, and closes the connection."""
    with FakeCluster() as cluster:
        configs = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "s3cret"}
        report = await report_of(cluster.address_of(1)[1], security_protocol="SASL_PLAINTEXT", **configs)
        assert report.status is Status.FAILED
        assert "s3cret" not in json.dumps(report.as_dict())


# --- what brokers advertise -------------------------------------------------------------------------------------------


async def test_an_advertised_listener_that_can_not_be_reached() -> None:
    with FakeCluster(2) as cluster:
        _, port = cluster.address_of(1)
        cluster._model.change_addresses({2: ("kafka-2.internal", 9092)})
        found = problem(await report_of(port))
        assert found.step is Step.LISTENER
        assert found.where == "node 2 at kafka-2.internal:9092"
        assert f"127.0.0.1:{port}, advertises kafka-2.internal:9092, which can't be reached" in found.message
        assert "advertised.listeners" in found.advice
        assert found.facts["failed_step"] == "dns"


@pytest.mark.parametrize("host", ["::1", "[::1]"])
async def test_an_advertised_ipv6_address(host: str) -> None:
    """With brackets or without, as for the producer; and shown as it is written in bootstrap_servers."""
    (down,) = free_ports(1, random.Random())
    with FakeCluster(2) as cluster:
        cluster._model.change_addresses({2: (host, down)})
        found = problem(await report_of(cluster.address_of(1)[1]))
    assert found.where == f"node 2 at [::1]:{down}"
    assert f"advertises [::1]:{down}, which can't be reached" in found.message
    assert f"open the network to [::1]:{down}" in found.advice
    assert (found.facts["failed_step"], found.facts["host"]) == ("tcp", "::1")


async def test_a_broker_that_is_down_but_still_listed() -> None:
    """Its address is the one that the user gave: there is nothing to change about it."""
    (down,) = free_ports(1, random.Random())
    with FakeCluster(2) as cluster:
        _, port = cluster.address_of(1)
        cluster._model.change_addresses({2: ("127.0.0.1", down)})
        report = await diagnose(bootstrap_servers=f"127.0.0.1:{port},127.0.0.1:{down}", timeout_s=PATIENT_S)
    advised = {each.where: each.advice for each in report.findings if each.status is Status.FAILED}
    assert list(advised) == [f"127.0.0.1:{down}", f"node 2 at 127.0.0.1:{down}"]
    for advice in advised.values():
        assert "whether the broker is running" in advice
        assert "advertised.listeners" not in advice


# --- topics -----------------------------------------------------------------------------------------------------------


async def test_a_topic_that_is_not_there() -> None:
    with FakeCluster(auto_create_topics=True) as cluster:
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="ordres", write=True)
        found = problem(report)
        assert (found.step, found.where) == (Step.TOPIC, "ordres")
        assert "does not exist" in found.message
        (not_tried,) = report.of(Step.WRITE)
        assert not_tried.status is Status.NOTE
        again = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="ordres")
        assert "does not exist" in problem(again).message, "a look makes no topic"


@pytest.mark.parametrize(
    ("told", "configs", "status", "said"),
    [
        ({1: "true"}, {}, Status.WARNING, "creates topics when they are first used"),
        ({3: "true"}, {}, Status.WARNING, "creates topics when they are first used"),
        ({1: "true"}, {"allow_auto_create_topics": False}, Status.FAILED, "allow_auto_create_topics=False"),
        ({2: "false"}, {}, Status.FAILED, "auto.create.topics.enable=false"),
        ({}, {}, Status.FAILED, "it does not exist"),
    ],
)
async def test_a_topic_that_might_be_created_when_used(
    told: dict[int, str], configs: Any, status: Status, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each broker knows only its own configs, and which one it is can't be seen from an address."""

    def answer(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        assert {each.resource_type for each in request.resources} == {BROKER}
        return DescribeConfigsResponse(
            results=[config_of_broker(int(each.resource_name), told) for each in request.resources]
        )

    with FakeCluster(3) as cluster:
        hostile.answers(monkeypatch, cluster, DescribeConfigsRequest, answer)
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="ordres", write=True, **configs)
        (found,) = report.of(Step.TOPIC)
        assert (found.status, found.where) == (status, "ordres")
        assert said in found.message
        assert [each.status for each in report.of(Step.WRITE)] == [Status.NOTE]
        again = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="ordres")
        assert "does not exist" in again.of(Step.TOPIC)[0].message, "a look makes no topic"


def config_of_broker(node: int, told: dict[int, str]) -> DescribeConfigsResult:
    """Whether a broker creates topics; an error for other brokers than those who tell."""
    configs = (
        [
            DescribeConfigsResourceResult(
                name="auto.create.topics.enable", value=told[node], read_only=True, is_sensitive=False
            )
        ]
        if node in told
        else []
    )
    return DescribeConfigsResult(
        error_code=0 if configs else Code.INVALID_REQUEST,
        error_message=None if configs else "Unexpected broker id",
        resource_type=BROKER,
        resource_name=str(node),
        configs=configs,
    )


@pytest.mark.parametrize("name", ["a/b", "", "x" * 250, "\udcff"])
async def test_a_topic_that_can_have_no_such_name(name: str) -> None:
    """The last one is what a command line makes of bytes that are not UTF-8; no request can hold it."""
    with FakeCluster() as cluster:
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic=name)
        assert "no topic can have this name" in problem(report).message


async def test_a_partition_without_a_leader() -> None:
    with FakeCluster(2) as cluster:
        cluster.create_topic("orders", 3)
        cluster.remove_leader("orders", 1)
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="orders")
        assert problem(report).message == "partition 1 has no leader"


@pytest.mark.parametrize("count", [0, 2])
async def test_metadata_of_none_or_several_topics(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        hostile.repeats_topics(monkeypatch, cluster, count)
        for where, configs in (("orders", {"topic": "orders"}), ("mine", {"transactional_id": "mine"})):
            report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, **configs)
            (found,) = report.problems
            assert (found.status, found.where) == (Status.FAILED, where)
            assert re.search(rf"Metadata for '.*' got {count} answers", found.message)


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Status.FAILED, "may not use it"),
        (Code.NOT_COORDINATOR, Status.NOTE, "would create __transaction_state"),
        (Code.TRANSACTIONAL_ID_NOT_FOUND, Status.NOTE, "would create __transaction_state"),
    ],
)
async def test_transactions_of_a_user_who_may_not_see_their_topic(
    code: Code, status: Status, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual one. Asked for a coordinator, a cluster without transactions would create the topic, and have none."""

    def describe(request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        return DescribeTransactionsResponse(
            transaction_states=[TransactionState(error_code=code, transactional_id=name)]
        )

    def find(_: FindCoordinatorRequest) -> FindCoordinatorResponse:
        raise AssertionError("the coordinator was asked for")

    with FakeCluster() as cluster:
        hostile.hides_topics(monkeypatch, cluster)
        hostile.answers(monkeypatch, cluster, DescribeTransactionsRequest, describe)
        hostile.answers(monkeypatch, cluster, FindCoordinatorRequest, find)
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, transactional_id="mine")
        (found,) = report.of(Step.TRANSACTIONS)
        assert (found.status, found.where) == (status, "mine")
        assert said in found.message


@pytest.mark.parametrize("count", [0, 2])
async def test_none_or_several_coordinators(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [Coordinator(key="mine", node_id=1, host="", port=0)] * count
    with FakeCluster() as cluster:
        cluster.create_topic("__transaction_state")
        hostile.answers(
            monkeypatch, cluster, FindCoordinatorRequest, lambda _: FindCoordinatorResponse(coordinators=told)
        )
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, transactional_id="mine")
        (found,) = report.problems
        assert (found.status, found.where) == (Status.FAILED, "mine")
        assert f"FindCoordinator for 'mine' got {count} answers" in found.message


def configs_of_topics(count: int, least: str) -> DescribeConfigsResponse:
    """An answer about that many topics, with this min.insync.replicas."""
    config = DescribeConfigsResourceResult(name="min.insync.replicas", value=least, read_only=False, is_sensitive=False)
    result = DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=TOPIC, resource_name="orders", configs=[config]
    )
    return DescribeConfigsResponse(results=[result] * count)


@pytest.mark.parametrize(
    ("count", "least", "said"),
    [
        (0, "1", "DescribeConfigs for 'orders' got 0 answers"),
        (2, "1", "DescribeConfigs for 'orders' got 2 answers"),
        (1, "many", "DescribeConfigs for 'orders' got min.insync.replicas=many"),
    ],
)
async def test_configs_that_make_no_sense(count: int, least: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        hostile.answers(monkeypatch, cluster, DescribeConfigsRequest, lambda _: configs_of_topics(count, least))
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="orders")
        (found,) = report.problems
        assert (found.status, found.step, found.where) == (Status.FAILED, Step.TOPIC, "orders")
        assert said in found.message


async def test_configs_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        hostile.answers(monkeypatch, cluster, DescribeConfigsRequest, lambda _: configs_of_topics(1, "1"))
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="orders")
        assert report.status is Status.OK
        assert report.of(Step.TOPIC)[0].message.endswith("; min.insync.replicas=1")


async def test_a_write_that_is_refused() -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        cluster.faults.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
        report = await diagnose(bootstrap_servers=cluster.bootstrap_servers, topic="orders", write=True)
        found = problem(report)
        assert found.step is Step.WRITE
        assert "allow this user WRITE" in found.advice


async def test_a_write_that_nobody_acknowledges() -> None:
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        cluster.faults.swallow("Produce")
        report = await diagnose(
            bootstrap_servers=cluster.bootstrap_servers, topic="orders", write=True, timeout_s=IMPATIENT_S
        )
        found = problem(report)
        assert found.step is Step.WRITE
        assert "no acknowledgement within 1 s" in found.message
