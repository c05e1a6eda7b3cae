"""Every way to log in, on a real broker."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from aioproducer import AuthenticationError, BootstrapError, OAuthToken, Producer
from aioproducer.testing import KafkaCluster, unsecured_token
from tests.broker.fixtures import new_topic
from tests.broker.readers import read_values
from tests.broker.security import kdc as kerberos
from tests.broker.security.fixtures import USERS
from tests.broker.security.oidc import CLIENT_ID, CLIENT_SECRET, SigningKey, TokenServer
from tests.unit.net.fake_broker import closed_port
from tests.web_tokens import claims_of, pem_of, private_key

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


async def check(cluster: KafkaCluster, **configs: Any) -> None:
    """Check that a record is acknowledged."""
    topic = await new_topic(cluster)
    async with Producer(**configs) as producer:
        await producer.send(topic, b"value")
    assert await read_values(cluster, topic) == [b"value"]


@pytest.mark.parametrize("listener", ["SSL", "MTLS"])
async def test_records_arrive_over_tls_with_and_without_a_client_certificate(
    secure_kafka: KafkaCluster, listener: str
) -> None:
    await check(secure_kafka, **secure_kafka.client_configs(listener, user="alice"))


@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", [*PASSWORDS, "OAUTHBEARER"])
async def test_records_arrive_after_a_login_by_each_mechanism(
    secure_kafka: KafkaCluster, listener: str, mechanism: str
) -> None:
    await check(secure_kafka, **secure_kafka.client_configs(listener, user="alice", mechanism=mechanism))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_closing_without_acknowledgements_leaves_nothing_in_the_transports(
    secure_kafka: KafkaCluster, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """Under TLS there are two transports, and both have to be empty before the connection may be closed."""

    async def publish() -> None:
        topic = await new_topic(secure_kafka)
        async with Producer(**secure_kafka.client_configs("SSL"), acks=0, send_buffer_bytes=8_192) as producer:
            for _ in range(200):
                await producer.submit(topic, bytes(50_000))
        assert len(await read_values(secure_kafka, topic)) == 200

    run(publish())


async def test_a_ready_context(secure_kafka: KafkaCluster) -> None:
    context = ssl.create_default_context(cadata=secure_kafka.authority.pem)
    own = secure_kafka.bootstrap_of("SSL")
    await check(secure_kafka, bootstrap_servers=own, security_protocol="SSL", ssl_context=context)


async def test_java_properties_with_pem_stores(secure_kafka: KafkaCluster, tmp_path: Any) -> None:
    """A .properties file of a Java client that uses PEM works unchanged."""
    certificate = secure_kafka.authority.issue("client.test", common_name="alice")
    (tmp_path / "trust.pem").write_text(secure_kafka.authority.pem)
    (tmp_path / "keys.pem").write_text(certificate.encrypted_key("open") + certificate.chain)
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"bootstrap.servers={secure_kafka.bootstrap_of('MTLS')}\n"
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\nssl.key.password=open\n"
        f"ssl.truststore.location={tmp_path}/trust.pem\nssl.keystore.location={tmp_path}/keys.pem\n"
    )
    topic = await new_topic(secure_kafka)
    async with Producer.from_properties(properties) as producer:
        await producer.send(topic, b"value")


async def test_java_properties_with_pkcs12_stores(secure_kafka: KafkaCluster, tmp_path: Path) -> None:
    """The stores that keytool makes; the broker asks for the client's certificate."""
    issued = secure_kafka.authority.issue("client.test", common_name="alice")
    key = serialization.load_pem_private_key(issued.key.encode(), None)
    own, *others = x509.load_pem_x509_certificates(issued.chain.encode())
    trusted = x509.load_pem_x509_certificate(secure_kafka.authority.pem.encode())
    encryption = serialization.BestAvailableEncryption(b"changeit")
    (tmp_path / "keys.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(b"alice", key, own, others, encryption)  # type: ignore[arg-type]
    )
    entries = [pkcs12.PKCS12Certificate(trusted, b"ca")]
    (tmp_path / "trust.p12").write_bytes(pkcs12.serialize_java_truststore(entries, encryption))
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"bootstrap.servers={secure_kafka.bootstrap_of('MTLS')}\nsecurity.protocol=SSL\n"
        f"ssl.truststore.type=PKCS12\nssl.truststore.location={tmp_path}/trust.p12\nssl.truststore.password=changeit\n"
        f"ssl.keystore.type=PKCS12\nssl.keystore.location={tmp_path}/keys.p12\nssl.keystore.password=changeit\n"
        "ssl.key.password=changeit\n"
    )
    topic = await new_topic(secure_kafka)
    async with Producer.from_properties(properties) as producer:
        await producer.send(topic, b"value")


async def test_java_properties_with_a_login(secure_kafka: KafkaCluster, tmp_path: Any) -> None:
    """PEM text in one line and a JAAS login module, as in Java's .properties files."""
    properties = tmp_path / "client.properties"
    in_one_line = " ".join(secure_kafka.authority.pem.split("\n"))
    properties.write_text(
        f"bootstrap.servers={secure_kafka.bootstrap_of('SASL_SSL')}\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        f"ssl.truststore.certificates={in_one_line}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="alice" password="{USERS["alice"]}";\n'
    )
    topic = await new_topic(secure_kafka)
    async with Producer.from_properties(properties) as producer:
        await producer.send(topic, b"value")


async def test_a_password_that_other_clients_would_change(secure_kafka: KafkaCluster) -> None:
    """Kafka uses passwords as UTF-8; SASLprep would change these."""
    secure_kafka.set_scram_user("alice", "päss,w=rd\u00a0\u2168")
    try:
        configs = secure_kafka.client_configs("SASL_SSL", user="alice", mechanism="SCRAM-SHA-256")
        await check(secure_kafka, **{**configs, "sasl_password": "päss,w=rd\u00a0\u2168"})
    finally:
        secure_kafka.set_scram_user("alice", USERS["alice"])


async def test_a_delegation_token(secure_kafka: KafkaCluster, tmp_path: Path) -> None:
    """A token that Kafka's own tool has created for Alice; the SCRAM login includes the tokenauth extension."""
    token_id, hmac = await asyncio.to_thread(delegation_token, secure_kafka, tmp_path / "admin.properties")
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{token_id}" password="{{}}" '
    configs = secure_kafka.client_configs("SASL_SSL", mechanism="SCRAM-SHA-256")
    del configs["sasl_username"], configs["sasl_password"]
    await check(secure_kafka, **configs, sasl_jaas_config=login.format(hmac) + 'tokenauth="true";')
    for refused in login.format(hmac) + ";", login.format("another") + 'tokenauth="true";':
        with pytest.raises(AuthenticationError):
            await Producer(**configs, sasl_jaas_config=refused).start()


def delegation_token(cluster: KafkaCluster, login: Path) -> tuple[str, str]:
    """The token's id and its HMAC, which serves as the password."""
    servers = cluster.bootstrap_of("SASL_PLAINTEXT")
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="alice" password="{USERS["alice"]}";\n'
    )
    options = {"--bootstrap-server": servers, "--command-config": login, "--max-life-time-period": 3_600_000}
    arguments = ["--create", *(str(word) for option in options.items() for word in option)]
    code, printed = cluster._brokers.run_tool("DelegationTokenCommand", arguments)
    assert code == 0, printed
    token_id, hmac, owner = next(line.split()[:3] for line in printed.splitlines() if "User:alice" in line)
    assert owner == "User:alice"
    return token_id, hmac


async def test_a_token_with_an_end_and_extensions(secure_kafka: KafkaCluster) -> None:
    """The provider is asked once for all connections made while the token is valid."""
    asked = 0

    async def provider() -> OAuthToken:
        nonlocal asked
        asked += 1
        now_s = time.time()
        return OAuthToken(
            unsecured_token("alice", now_s=now_s), expires_at_ms=int(now_s * 1000) + 3_600_000, extensions={"a": "b c"}
        )

    configs = secure_kafka.client_configs("SASL_SSL", mechanism="OAUTHBEARER")
    configs["sasl_oauth_token_provider"] = provider
    topic = await new_topic(secure_kafka)
    async with Producer(**configs) as producer:
        await producer.send(topic, b"value")
        producer._engine._client.abort_all()  # type: ignore[union-attr]
        await producer.send(topic, b"value")
    assert asked == 1


@pytest.mark.parametrize("failures", [0, 2])
async def test_a_token_endpoint_that_fails_for_a_while_is_asked_again(
    secure_kafka: KafkaCluster, signing_key: SigningKey, failures: int
) -> None:
    """Client credentials; temporary failures of the endpoint are retried."""
    async with TokenServer(signing_key, failures=failures) as server:
        configs = secure_kafka.client_configs("OIDC")
        del configs["sasl_oauth_token_provider"]
        await check(
            secure_kafka,
            **configs,
            sasl_oauthbearer_token_endpoint_url=server.url,
            sasl_oauthbearer_client_credentials_client_id=CLIENT_ID,
            sasl_oauthbearer_client_credentials_client_secret=CLIENT_SECRET,
            sasl_oauthbearer_scope="produce",
        )
    assert server.requests[-1] == {"grant_type": "client_credentials", "scope": "produce"}
    assert len(server.requests) == failures + 1


@pytest.mark.parametrize("retriever", ["ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever"])
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_oidc_by_assertion(
    secure_kafka: KafkaCluster, signing_key: SigningKey, tmp_path: Path, retriever: str, algorithm: str
) -> None:
    """A signed assertion in place of the secret, or as the grant."""
    key = private_key(algorithm)
    path = tmp_path / "key.pem"
    path.write_bytes(pem_of(key, "passphrase"))
    async with TokenServer(signing_key, client_key=key.public_key()) as server:
        configs = secure_kafka.client_configs("OIDC")
        del configs["sasl_oauth_token_provider"]
        await check(
            secure_kafka,
            **configs,
            sasl_oauthbearer_token_endpoint_url=server.url,
            sasl_oauthbearer_jwt_retriever_class=f"org.apache.kafka.common.security.oauthbearer.{retriever}",
            sasl_oauthbearer_client_credentials_client_id=CLIENT_ID,
            sasl_oauthbearer_assertion_algorithm=algorithm,
            sasl_oauthbearer_assertion_private_key_file=str(path),
            sasl_oauthbearer_assertion_private_key_passphrase="passphrase",
            sasl_oauthbearer_assertion_claim_iss=CLIENT_ID,
            sasl_oauthbearer_assertion_claim_sub=CLIENT_ID,
            sasl_oauthbearer_assertion_claim_aud="the provider",
            sasl_oauthbearer_scope="produce",
        )
    (form,) = server.requests
    header, claims = claims_of(form.pop("assertion" if retriever[0] == "J" else "client_assertion"))
    assert header == {"alg": algorithm, "typ": "JWT"}
    assert (claims["iss"], claims["sub"], claims["aud"]) == (CLIENT_ID, CLIENT_ID, "the provider")
    if retriever[0] == "J":
        assert form == {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "scope": "produce"}
    else:
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        assert form == {
            "grant_type": "client_credentials",
            "client_assertion_type": kind,
            "client_id": CLIENT_ID,
            "scope": "produce",
        }


async def test_a_token_in_a_file(secure_kafka: KafkaCluster, signing_key: SigningKey, tmp_path: Path) -> None:
    """Another program renews the token; each login that needs a new one reads the file again."""
    path = tmp_path / "token file"
    path.write_text(signing_key.token("alice", lifetime_s=300) + "\n")
    configs = secure_kafka.client_configs("OIDC")
    del configs["sasl_oauth_token_provider"]
    await check(secure_kafka, **configs, sasl_oauthbearer_token_endpoint_url=path.as_uri())


async def test_a_kdc_that_is_away_may_come_back(
    kerberos_kafka: KafkaCluster, kdc: kerberos.Kdc, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An unreachable KDC is not a refusal: the next attempt may succeed."""
    login = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
        f'keyTab="{kdc.user_keys}" principal="alice@{kerberos.REALM}";'
    )
    configs = {**kerberos_kafka.client_configs("KERBEROS"), "sasl_jaas_config": login}
    elsewhere = tmp_path / "krb5.conf"
    elsewhere.write_text(kdc.config.read_text().replace(f":{kdc.port}", f":{closed_port()}"))
    producer = Producer(**configs, sasl_kerberos_service_name="kafka")
    with monkeypatch.context() as away:
        away.setenv("KRB5_CONFIG", str(elsewhere))
        with pytest.raises(BootstrapError, match=r"principal 'alice@TEST\.LOCAL' has no ticket: "):
            await producer.start()
    await producer.start()
    await producer.close()


async def test_kerberos_needs_the_right_service_and_a_ticket(kerberos_kafka: KafkaCluster, kdc: kerberos.Kdc) -> None:
    login = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true "
        f'keyTab="{kdc.user_keys}" principal="alice@{kerberos.REALM}";'
    )
    configs = {**kerberos_kafka.client_configs("KERBEROS"), "sasl_jaas_config": login}
    await check(kerberos_kafka, **configs, sasl_kerberos_service_name="kafka")
    with pytest.raises(AuthenticationError, match="Kerberos refused the login at nobody@"):
        await check(kerberos_kafka, **configs, sasl_kerberos_service_name="nobody")
    with pytest.raises(AuthenticationError, match="has no ticket"):
        await check(
            kerberos_kafka,
            **{**configs, "sasl_jaas_config": login.replace("alice@", "bob@")},
            sasl_kerberos_service_name="kafka",
        )
