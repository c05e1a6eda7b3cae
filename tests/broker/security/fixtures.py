"""One broker with a listener for every way to authenticate, for the whole session."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from aioproducer.testing import CertificateAuthority, KafkaCluster, Listener
from aioproducer.testing.ports import HOST
from aioproducer.testing.properties import Node
from tests.broker.security import kdc as kerberos
from tests.broker.security.oidc import AUDIENCE, SigningKey

USERS = {"alice": "alice-s3cret", "bob": "bob-s3cret"}
"""Alice may do everything, Bob nothing until a test allows it."""
FAR, FAR_ADDRESS = "FAR", "kafka-1.invalid:9092"
SESSION_MS, SHORT_SESSION_MS = 10_000, 2_000


@pytest.fixture(scope="session")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kerberos.Kdc]:
    """A running KDC; skips the test where none is available."""
    if reason := kerberos.missing():
        pytest.skip(f"GSSAPI is not tested: {reason}")
    running = kerberos.Kdc(tmp_path_factory.mktemp("kdc"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5_CONFIG", str(running.config))
        yield running
    running.stop()


@pytest.fixture(scope="module")
def kerberos_kafka(kdc: kerberos.Kdc) -> Iterator[KafkaCluster]:
    """A broker that authenticates by Kerberos. It needs a full Java: the one from pip lacks GSSAPI."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIOPRODUCER_JAVA", kerberos.java() or "")
        with KafkaCluster(
            listeners={"KERBEROS": _kerberos_listener(kdc.broker_keys)},
            jvm_options=[f"-Djava.security.krb5.conf={kdc.config}"],
        ) as running:
            yield running


@pytest.fixture(scope="session")
def signing_key() -> SigningKey:
    return SigningKey()


@pytest.fixture(scope="module")
def secure_kafka_v1() -> Iterator[KafkaCluster]:
    """A broker with access rules that only has transactions V1."""
    with KafkaCluster(
        listeners=["SASL_PLAINTEXT"], users=USERS, acls=True, feature_versions={"transaction.version": 1}
    ) as running:
        yield running


@pytest.fixture(scope="module")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory, signing_key: SigningKey) -> Iterator[KafkaCluster]:
    """The broker; clients of its plaintext listener may do everything."""
    keys = tmp_path_factory.mktemp("oidc") / "jwks.json"
    signing_key.write_public(keys)
    options = [
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{what}={where}"
        for what, where in (("urls", keys.as_uri()), ("files", keys))
    ]
    listeners = _listeners(keys)
    authority = CertificateAuthority()
    now = datetime.datetime.now(datetime.UTC)
    expired = authority.issue(
        HOST, not_before=now - datetime.timedelta(days=9), not_after=now - datetime.timedelta(days=2)
    )
    listeners["EXPIRED"] = Listener(protocol="SSL", certificate=expired)
    listeners["OTHER_HOST"] = Listener(protocol="SSL", certificate=authority.issue("other.example"))
    listeners[FAR] = Listener(protocol="PLAINTEXT")
    with _FarCluster(
        listeners=listeners,
        users=USERS,
        acls=True,
        jvm_options=options,
        authority=authority,
        properties={"delegation.token.secret.key": "brokers share it"},
    ) as running:
        running.allow("alice", "ALL", topic="*", group="*", transactional_id="*", cluster=True)
        yield running


class _FarCluster(KafkaCluster):
    """One of its listeners advertises a name that can't be resolved here."""

    def _write_properties(
        self, node: Node, directory: Path, listeners: Mapping[str, str], own: Mapping[str, object]
    ) -> Path:
        if FAR in listeners:
            told = {name: f"{name}://{HOST}:{node.ports[name]}" for name in listeners if name in node.ports}
            told[FAR] = f"{FAR}://{FAR_ADDRESS}"
            own = {**own, "advertised.listeners": ",".join(told.values())}
        return super()._write_properties(node, directory, listeners, own)


def _listeners(keys: Path) -> dict[str, Listener]:
    oidc: dict[str, Any] = {
        "oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer."
        "OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.allow.unverified.issuer": True,  # else Kafka 4.4 needs to know the expected one
    }
    return {
        "SSL": Listener(protocol="SSL"),
        "MTLS": Listener(protocol="SSL", client_certificates=True),
        "SASL_SSL": Listener(protocol="SASL_SSL"),
        "SASL_PLAINTEXT": Listener(protocol="SASL_PLAINTEXT"),
        "ONLY_PLAIN": Listener(protocol="SASL_PLAINTEXT", mechanisms=["PLAIN"]),
        "OIDC": Listener(protocol="SASL_SSL", mechanisms=["OAUTHBEARER"], properties=oidc),
        "SESSIONS": Listener(protocol="SASL_SSL", properties={"connections.max.reauth.ms": SESSION_MS}),
        "SHORT_SESSIONS": Listener(
            protocol="SASL_PLAINTEXT", properties={"connections.max.reauth.ms": SHORT_SESSION_MS}
        ),
    }


def _kerberos_listener(keys: Path) -> Listener:
    login = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{keys}" principal="kafka/{HOST}@{kerberos.REALM}";'
    )
    return Listener(
        protocol="SASL_SSL",
        mechanisms=["GSSAPI"],
        properties={"gssapi.sasl.jaas.config": login, "sasl.kerberos.service.name": "kafka"},
    )
