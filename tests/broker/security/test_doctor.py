"""The doctor with a real broker: a healthy cluster, and each of the problems that keep a client out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aioproducer.doctor import Finding, Report, Status, Step, diagnose
from aioproducer.testing import KafkaCluster
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic
from tests.broker.readers import read
from tests.broker.security.fixtures import FAR, FAR_ADDRESS

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

SCRIPT = Path(sys.executable).with_name("aioproducer")


def the_failure(report: Report) -> Finding:
    """The only step that failed; it says what to do, and contains no secret."""
    (found,) = (each for each in report.findings if each.status is Status.FAILED)
    assert found.advice
    assert "s3cret" not in json.dumps(report.as_dict())
    return found


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("PLAINTEXT", None), ("SSL", None), ("MTLS", None), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", "PLAIN")],
)
async def test_a_broker_that_is_well(secure_kafka: KafkaCluster, listener: str, mechanism: str | None) -> None:
    topic = await new_topic(secure_kafka, 3, min_insync_replicas=1)
    secure_kafka.allow("ANONYMOUS", "WRITE", "DESCRIBE", topic=topic)
    report = await diagnose(**secure_kafka.client_configs(listener, user="alice", mechanism=mechanism), topic=topic)
    assert report.status is (Status.WARNING if mechanism == "PLAIN" else Status.OK), report.problems
    (versions,) = report.of(Step.VERSIONS)
    assert versions.facts["kafka"] == "4.3"
    missing = [name for name, there in versions.facts["features"].items() if not there]
    assert missing == ["metrics push (KIP-714)"], "which a broker offers that has a plugin for it"
    (reached,) = report.of(Step.LISTENER)
    assert reached.status is Status.OK
    if mechanism is not None:
        assert mechanism in report.of(Step.LOGIN)[0].facts["offered"]
    assert set(secure_kafka.end_offsets(topic).values()) == {0}


async def test_the_configs_of_a_topic_and_the_clock(secure_kafka: KafkaCluster) -> None:
    topic = await new_topic(secure_kafka, message_timestamp_type="LogAppendTime")
    configs = secure_kafka.client_configs("SASL_SSL", user="alice", mechanism="SCRAM-SHA-256")
    report = await diagnose(**configs, topic=topic, write=True)
    assert report.status is Status.OK
    assert "message.timestamp.type=LogAppendTime" in report.of(Step.TOPIC)[-1].message
    ((record,),) = (await read(secure_kafka, topic)).values()
    assert record.key == b"aioproducer-doctor"
    (clock,) = report.of(Step.CLOCK)
    # The broker's time may equal the record's own to the millisecond, which looks like no LogAppendTime at all.
    assert clock.status in (Status.OK, Status.NOTE)


async def test_too_few_replicas_for_the_limit(secure_kafka: KafkaCluster) -> None:
    topic = await new_topic(secure_kafka, min_insync_replicas=2)
    configs = secure_kafka.client_configs("SASL_SSL", user="alice", mechanism="SCRAM-SHA-256")
    found = the_failure(await diagnose(**configs, topic=topic))
    assert "min.insync.replicas=2" in found.message


async def test_an_advertised_listener_that_can_not_be_reached(secure_kafka: KafkaCluster) -> None:
    bootstrap = secure_kafka.bootstrap_of(FAR)
    found = the_failure(await diagnose(bootstrap_servers=bootstrap))
    assert (found.step, found.where) == (Step.LISTENER, f"node 1 at {FAR_ADDRESS}")
    assert f"listed by {bootstrap}, advertises {FAR_ADDRESS}, which can't be reached from here" in found.message
    assert "advertised.listeners" in found.advice


CASES: dict[str, tuple[str, dict[str, Any], Step, str, str]] = {
    "wrong password": (
        "SASL_SSL",
        {"sasl_password": "wr0ng-s3cret"},
        Step.LOGIN,
        "the login of user 'alice' by SCRAM-SHA-256 failed",
        "look at sasl_username and sasl_password",
    ),
    "mechanism": ("ONLY_PLAIN", {}, Step.LOGIN, "offers PLAIN, but not SCRAM-SHA-256", "set sasl_mechanism"),
    "expired": ("EXPIRED", {}, Step.TLS, "has expired", "renew it at the broker"),
    "another host": ("OTHER_HOST", {}, Step.TLS, "for other.example", "use a host name that it has"),
    "no certificate": (
        "MTLS",
        {"ssl_keystore_key": None, "ssl_keystore_certificate_chain": None},
        Step.TLS,
        "it asks clients for a certificate",
        "set ssl_keystore_location",
    ),
    "no TLS there": ("PLAINTEXT", {"security_protocol": "SSL"}, Step.TLS, "without TLS", "set security_protocol=PLAIN"),
    "TLS there": ("SSL", {"security_protocol": "PLAINTEXT"}, Step.TLS, "it speaks TLS", "set security_protocol=SSL"),
    "login there": (
        "SASL_PLAINTEXT",
        {"security_protocol": "PLAINTEXT"},
        Step.LOGIN,
        "asks for a login, by PLAIN",
        "set security_protocol=SASL_SSL",
    ),
    "no login there": (
        "PLAINTEXT",
        {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "alice", "sasl_password": "alice-s3cret"}
        | {"sasl_mechanism": "SCRAM-SHA-256"},
        Step.LOGIN,
        "asks for no login at this port",
        "set security_protocol=PLAINTEXT",
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_keeps_a_client_out(secure_kafka: KafkaCluster, case: str) -> None:
    listener, changes, step, said, advice = CASES[case]
    mechanism = "PLAIN" if listener == "ONLY_PLAIN" else "SCRAM-SHA-256"
    configs = secure_kafka.client_configs(listener, user="alice", mechanism=mechanism) | changes
    if listener == "ONLY_PLAIN":
        configs["sasl_mechanism"] = "SCRAM-SHA-256"
    if configs["security_protocol"] == "PLAINTEXT":
        configs = {"bootstrap_servers": configs["bootstrap_servers"]}
    found = the_failure(await diagnose(**configs))
    assert found.step is step
    assert said in found.message
    assert found.advice.startswith(advice)


async def test_what_a_user_may_not_do(secure_kafka: KafkaCluster) -> None:
    configs = secure_kafka.client_configs("SASL_SSL", user="bob", mechanism="SCRAM-SHA-256")
    topic = await new_topic(secure_kafka)
    assert "may not see it" in the_failure(await diagnose(**configs, topic=topic)).message
    secure_kafka.allow("bob", "DESCRIBE", topic=topic)
    report = await diagnose(**configs, topic=topic)
    assert "may see it, but not write to it" in the_failure(report).message
    (note,) = (each for each in report.of(Step.TOPIC) if each.status is Status.NOTE)
    assert "DESCRIBE_CONFIGS" in note.message
    secure_kafka.allow("bob", "WRITE", topic=topic)
    assert (await diagnose(**configs, topic=topic, write=True)).status is Status.OK
    # The doctor only asks for the coordinator if it sees that the cluster has had transactions.
    report = await diagnose(**configs, topic=topic, transactional_id="not-bobs")
    (transactions,) = report.of(Step.TRANSACTIONS)
    assert transactions.status is Status.FAILED
    secure_kafka.allow("bob", "WRITE", "DESCRIBE", transactional_id="bobs")
    report = await diagnose(**configs, topic=topic, transactional_id="bobs")
    (transactions,) = report.of(Step.TRANSACTIONS)
    assert transactions.status is Status.NOTE


def test_the_command(secure_kafka: KafkaCluster, tmp_path: Path) -> None:
    configs = secure_kafka.client_configs("SASL_SSL", user="alice", mechanism="PLAIN")
    trusted = tmp_path / "ca.pem"
    trusted.write_text(configs.pop("ssl_truststore_certificates"))
    properties = tmp_path / "client.properties"
    lines = {**configs, "ssl_truststore_location": trusted}
    properties.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in lines.items()))
    topic = new_name()
    secure_kafka.create_topic(topic)

    def doctor(*options: str) -> subprocess.CompletedProcess[str]:
        command = [SCRIPT, "doctor", "--properties", properties, *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    well = doctor("--topic", topic, "--write")
    assert (well.returncode, well.stderr) == (0, "")
    assert well.stdout.endswith("a producer can work here\n")
    assert secure_kafka.end_offsets(topic) == {0: 1}
    ill = doctor("-X", "sasl.password=wr0ng", "--json")
    assert (ill.returncode, ill.stderr) == (1, "")
    report = json.loads(ill.stdout)
    assert report["status"] == "failed"
    assert "wr0ng" not in ill.stdout
    assert [each["step"] for each in report["findings"] if each["status"] == "failed"] == ["login"]
    unusable = doctor("-X", "lingr.ms=5")
    assert (unusable.returncode, unusable.stdout) == (2, "")
    assert "linger_ms" in unusable.stderr
