"""Errors for a client that a broker does not accept: raised at once, only once, with a remedy, without secrets."""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from aioproducer import AuthenticationError, BootstrapError, KafkaError, Producer, TlsError
from aioproducer.errors import IllegalSaslStateError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from aioproducer.net import node
from aioproducer.testing import CertificateAuthority, KafkaCluster, unsecured_token
from tests.broker.fixtures import new_topic
from tests.broker.security.oidc import CLIENT_ID, SigningKey, TokenServer
from tests.web_tokens import pem_of, private_key

pytestmark = [
    pytest.mark.broker,
    pytest.mark.usefixtures("clean_loop"),
    pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning"),
]

SOON_S = 15.0
"""Five times the limit for a refusal."""


async def refusal(**configs: Any) -> KafkaError:
    """The error that start() raises."""
    producer = Producer(**configs)
    began = time.monotonic()
    with pytest.raises(KafkaError) as caught:
        await producer.start()
    assert time.monotonic() - began < SOON_S
    await producer.close()
    assert not caught.value.maybe_written
    return caught.value


TLS_CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "expired": ("EXPIRED", {}, "the broker's certificate, or one that signed it, has expired"),
    "another host": ("OTHER_HOST", {}, "the broker's certificate is not for 127.0.0.1 "),
    "unknown authority": (
        "SSL",
        {"ssl_truststore_certificates": None},
        "name the authority that signed it in ssl_",
    ),
    "no certificate": ("MTLS", {"ssl_keystore_key": None}, "asks clients for a certificate: set ssl_keystore_location"),
    "no cipher": ("SSL", {"ssl_cipher_suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "look at ssl_cipher_suites"),
    "wrong version": (
        "SSL",
        {"ssl_enabled_protocols": "TLSv1.1", "ssl_protocol": "TLSv1.1", "ssl_cipher_suites": "ALL:@SECLEVEL=0"},
        "look at ssl_enabled_protocols",
    ),
    "no TLS there": ("PLAINTEXT", {"security_protocol": "SSL"}, "without TLS: set security_protocol=PLAINTEXT"),
    "TLS there": ("SSL", {"security_protocol": "PLAINTEXT"}, "it speaks TLS, and this client does not: set security_"),
}


def tls_configs(cluster: KafkaCluster, listener: str, changes: dict[str, Any]) -> dict[str, Any]:
    configs = {**cluster.client_configs(listener, user="alice"), **changes}
    if "ssl_truststore_certificates" in changes:
        configs["ssl_truststore_certificates"] = CertificateAuthority().pem
    if "ssl_keystore_key" in changes:
        del configs["ssl_keystore_key"], configs["ssl_keystore_certificate_chain"]
    return configs


@pytest.mark.parametrize("case", TLS_CASES)
async def test_a_handshake_that_fails_says_why(secure_kafka: KafkaCluster, case: str) -> None:
    listener, changes, expected = TLS_CASES[case]
    error = await refusal(**tls_configs(secure_kafka, listener, changes))
    assert type(error) is TlsError
    assert expected in str(error)


@pytest.mark.parametrize("case", ["another authority", "expired", "wrong password"])
async def test_an_own_certificate_that_is_of_no_use(
    secure_kafka: KafkaCluster, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    now = datetime.datetime.now(datetime.UTC)
    begin, end = now - datetime.timedelta(days=9), now + datetime.timedelta(days=-2 if case == "expired" else 2)
    authority = CertificateAuthority() if case == "another authority" else secure_kafka.authority
    own = authority.issue("client.test", common_name="alice", not_before=begin, not_after=end)
    changes = {"ssl_keystore_key": own.key, "ssl_keystore_certificate_chain": own.chain}
    if case == "wrong password":
        changes |= {"ssl_keystore_key": own.encrypted_key("right"), "ssl_key_password": "wr0ng"}
    error = await refusal(**{**secure_kafka.client_configs("MTLS"), **changes})
    assert type(error) is TlsError
    expected = "ssl_key_password does not open" if case == "wrong password" else "does not accept this client's cert"
    assert expected in str(error)
    assert "wr0ng" not in caplog.text + repr(error)


async def test_a_login_that_is_refused_again_and_again_is_no_storm(secure_kafka: KafkaCluster) -> None:
    """However often a program sends, logins are retried with growing back-off; records go through once one succeeds."""
    topic = await new_topic(secure_kafka)
    secure_kafka.allow("frank", "ALL", topic="*", cluster=True)
    secure_kafka.set_scram_user("frank", "one")
    configs = secure_kafka.client_configs("SASL_SSL", user="alice", mechanism="SCRAM-SHA-256")

    def refused() -> int:
        return secure_kafka.log(1).count("Failed authentication")

    async with Producer(**{**configs, "sasl_username": "frank", "sasl_password": "one"}) as producer:
        await producer.send(topic, b"before")
        secure_kafka.set_scram_user("frank", "two")
        before, began = refused(), time.monotonic()
        producer._engine._client.abort_all()  # type: ignore[union-attr]
        while time.monotonic() - began < 3:
            with pytest.raises(AuthenticationError):
                await producer.send(topic, b"refused")
        assert 1 <= refused() - before <= 12, "50 ms, then twice as long each time, up to a second"
        secure_kafka.set_scram_user("frank", "one")
        async with asyncio.timeout(SOON_S):
            while not await accepted(producer, topic):
                pass


async def test_a_refusal_that_passes_costs_no_record(
    secure_kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amazon MSK, for instance, refuses good logins while too many clients come back at once to a new broker."""
    monkeypatch.setattr(node, "REFUSAL_LASTS_MS", 60_000)  # the cluster may take longer to change the password back
    topic = await new_topic(secure_kafka)
    secure_kafka.allow("grace", "ALL", topic="*", cluster=True)
    secure_kafka.set_scram_user("grace", "one")
    configs = secure_kafka.client_configs("SASL_SSL", user="alice", mechanism="SCRAM-SHA-256")
    async with Producer(**{**configs, "sasl_username": "grace", "sasl_password": "one"}) as producer:
        await producer.send(topic, b"before")
        await asyncio.to_thread(secure_kafka.set_scram_user, "grace", "two")
        refused = producer.metrics()["producer-metrics"]["failed-authentication-total"]
        producer._engine._client.abort_all()  # type: ignore[union-attr]
        sending = asyncio.create_task(producer.send(topic, b"meanwhile"))
        async with asyncio.timeout(SOON_S):
            while producer.metrics()["producer-metrics"]["failed-authentication-total"] < refused + 2:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(secure_kafka.set_scram_user, "grace", "one")
        assert (await sending).offset == 1


async def accepted(producer: Producer, topic: str) -> bool:
    try:
        await producer.send(topic, b"after")
    except AuthenticationError:
        return False
    return True


def test_tls_on_uvloop(secure_kafka: KafkaCluster) -> None:
    async def every_case() -> None:
        for listener, changes, expected in TLS_CASES.values():
            error = await refusal(**tls_configs(secure_kafka, listener, changes))
            assert type(error) is TlsError
            assert expected in str(error)

    uvloop.run(every_case())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("wrong", [{"sasl_password": "wr0ng"}, {"sasl_username": "nobody"}])
async def test_wrong_credentials(
    secure_kafka: KafkaCluster, mechanism: str, wrong: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    configs = {**secure_kafka.client_configs("SASL_SSL", user="alice", mechanism=mechanism), **wrong}
    error = await refusal(**configs)
    assert type(error) is SaslAuthenticationFailedError
    assert f"the login of user {configs['sasl_username']!r} by {mechanism} failed" in str(error)
    assert "look at sasl_username and sasl_password" in str(error)
    assert configs["sasl_password"] not in caplog.text + repr(error)


@pytest.mark.parametrize("token", ["garbage", "expired"])
async def test_wrong_tokens(secure_kafka: KafkaCluster, token: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    value = "s3cret-garbage" if token == "garbage" else unsecured_token("alice", now_s=time.time() - 9_999)

    async def provider() -> str:
        return value

    configs = secure_kafka.client_configs("SASL_SSL", mechanism="OAUTHBEARER")
    error = await refusal(**{**configs, "sasl_oauth_token_provider": provider})
    assert type(error) is SaslAuthenticationFailedError
    assert "look at its issuer, audience, scope and end" in str(error)
    assert value not in caplog.text + repr(error)


async def test_a_provider_that_fails(secure_kafka: KafkaCluster) -> None:
    async def provider() -> str:
        raise OSError("s3cret")

    configs = secure_kafka.client_configs("SASL_SSL", mechanism="OAUTHBEARER")
    error = await refusal(**{**configs, "sasl_oauth_token_provider": provider})
    assert type(error) is BootstrapError
    assert "sasl_oauth_token_provider raised OSError" in str(error)
    assert "s3cret" not in str(error)


async def test_a_provider_that_gives_up(secure_kafka: KafkaCluster) -> None:
    """An AuthenticationError of the provider is also the producer's."""

    async def provider() -> str:
        raise AuthenticationError("the vault is closed")

    configs = secure_kafka.client_configs("SASL_SSL", mechanism="OAUTHBEARER")
    error = await refusal(**{**configs, "sasl_oauth_token_provider": provider})
    assert str(error) == "the vault is closed"


async def test_a_token_endpoint_that_refuses(
    secure_kafka: KafkaCluster, signing_key: SigningKey, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    configs = secure_kafka.client_configs("OIDC")
    del configs["sasl_oauth_token_provider"]
    async with TokenServer(signing_key) as server:
        error = await refusal(
            **configs,
            sasl_oauthbearer_token_endpoint_url=server.url,
            sasl_oauthbearer_client_credentials_client_id=CLIENT_ID,
            sasl_oauthbearer_client_credentials_client_secret="wr0ng",
        )
        assert len(server.requests) == 1
    assert type(error) is AuthenticationError
    assert "/token answered HTTP 401 (invalid_client) for client 'alice'" in str(error)
    assert "wr0ng" not in caplog.text + repr(error)


async def test_an_assertion_that_is_refused(
    secure_kafka: KafkaCluster, signing_key: SigningKey, tmp_path: Path
) -> None:
    """Signed with a key that the provider does not know."""
    configs = secure_kafka.client_configs("OIDC")
    del configs["sasl_oauth_token_provider"]
    path = tmp_path / "key.pem"
    path.write_bytes(pem_of(private_key("RS256")))
    async with TokenServer(signing_key, client_key=private_key("RS256").public_key()) as server:
        error = await refusal(
            **configs,
            sasl_oauthbearer_token_endpoint_url=server.url,
            sasl_oauthbearer_assertion_private_key_file=str(path),
            sasl_oauthbearer_assertion_claim_iss="alice",
        )
        assert len(server.requests) == 1
    assert type(error) is AuthenticationError
    assert "/token answered HTTP 401 (invalid_client) for the assertion of 'alice'" in str(error)
    assert "sasl_oauthbearer_assertion_*" in str(error)


async def test_a_token_file_that_is_away(secure_kafka: KafkaCluster, tmp_path: Path) -> None:
    configs = secure_kafka.client_configs("OIDC")
    del configs["sasl_oauth_token_provider"]
    path = tmp_path / "token"
    error = await refusal(**configs, sasl_oauthbearer_token_endpoint_url=path.as_uri())
    assert str(error) == f"sasl_oauthbearer_token_endpoint_url: {path} can't be read: No such file or directory"


async def test_a_token_for_another_audience(secure_kafka: KafkaCluster, signing_key: SigningKey) -> None:
    async def provider() -> str:
        return signing_key.token("alice", lifetime_s=60, audience="others")

    configs = {**secure_kafka.client_configs("OIDC"), "sasl_oauth_token_provider": provider}
    assert type(await refusal(**configs)) is SaslAuthenticationFailedError


async def test_an_unknown_mechanism_names_what_is_offered(secure_kafka: KafkaCluster) -> None:
    configs = secure_kafka.client_configs("ONLY_PLAIN", user="alice")
    error = await refusal(**{**configs, "sasl_mechanism": "SCRAM-SHA-512"})
    assert type(error) is UnsupportedSaslMechanismError
    assert "offers PLAIN, not SCRAM-SHA-512: set sasl_mechanism to one of these" in str(error)


@pytest.mark.parametrize(
    ("listener", "protocol", "kind", "expected"),
    [
        (
            "PLAINTEXT",
            "SASL_PLAINTEXT",
            IllegalSaslStateError,
            "asks for no login at this port: set security_protocol=P",
        ),
        ("SSL", "SASL_SSL", IllegalSaslStateError, "asks for no login at this port: set security_protocol=SSL"),
        ("SASL_PLAINTEXT", "SASL_SSL", TlsError, "without TLS: set security_protocol=PLAINTEXT (or SASL_PLAINTEXT)"),
        ("SASL_SSL", "SASL_PLAINTEXT", TlsError, "it speaks TLS, and this client does not"),
    ],
)
async def test_a_login_at_the_wrong_port(
    secure_kafka: KafkaCluster, listener: str, protocol: str, kind: type[KafkaError], expected: str
) -> None:
    configs = secure_kafka.client_configs(protocol, user="alice", mechanism="PLAIN")
    error = await refusal(**{**configs, "bootstrap_servers": secure_kafka.bootstrap_of(listener)})
    assert type(error) is kind
    assert expected in str(error)


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_no_login_where_one_is_wanted(secure_kafka: KafkaCluster, listener: str) -> None:
    configs = secure_kafka.client_configs(listener, user="alice")
    for name in [name for name in configs if name.startswith("sasl_")]:
        del configs[name]
    error = await refusal(**{**configs, "security_protocol": configs["security_protocol"].removeprefix("SASL_")})
    assert type(error) is AuthenticationError
    assert "asks for a login, by PLAIN" in str(error)
    assert "set security_protocol=SASL_SSL (or SASL_PLAINTEXT) and sasl_mechanism" in str(error)


async def test_after_a_refusal_start_can_be_called_again(secure_kafka: KafkaCluster) -> None:
    """A program may try again; the producer itself does not repeat a refused login."""
    secure_kafka.set_scram_user("dave", "one")
    configs = secure_kafka.client_configs("SASL_SSL", user="alice", mechanism="SCRAM-SHA-256")
    producer = Producer(**{**configs, "sasl_username": "dave", "sasl_password": "two"})
    with pytest.raises(AuthenticationError):
        await producer.start()
    secure_kafka.set_scram_user("dave", "two")
    await producer.start()
    await producer.close()


async def test_a_user_that_is_removed(secure_kafka: KafkaCluster) -> None:
    secure_kafka.set_scram_user("erin", "one")
    configs = secure_kafka.client_configs("SASL_SSL", user="alice", mechanism="SCRAM-SHA-256")
    configs |= {"sasl_username": "erin", "sasl_password": "one"}
    async with Producer(**configs):
        pass
    secure_kafka.remove_scram_user("erin")
    assert isinstance(await refusal(**configs), AuthenticationError)
