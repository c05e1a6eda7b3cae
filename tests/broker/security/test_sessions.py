"""Connections log in again before their session ends (KIP-368), and certificates change, without losing records."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from aioproducer import Producer
from aioproducer.net.sasl.authenticator import LAST_PART
from aioproducer.testing import CertificateAuthority, KafkaCluster, unsecured_token
from tests.broker.fixtures import PATIENCE_S, new_name, new_topic, until
from tests.broker.load import check_exactly_once, check_log, load_on
from tests.broker.readers import read
from tests.broker.security.fixtures import SESSION_MS, SHORT_SESSION_MS

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("clean_loop")]

MECHANISMS = ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER")
PACE = 2
"""Records per turn of the loop, for each of several producers at a time."""
LEAST_LEFT = 1 - LAST_PART
"""How much of a session is left when the latest of logins begins."""


def connections_made(producer: Producer) -> int:
    return int(producer.metrics()["producer-metrics"]["connection-creation-total"])


@asynccontextmanager
async def blocks(least_s: float) -> AsyncIterator[list[float]]:
    """How long the loop was held up, each time that took so long."""
    found: list[float] = []

    async def look() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(least_s / 10)
            if (took_s := time.monotonic() - began) >= least_s:
                found.append(took_s)

    task = asyncio.create_task(look())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])


async def under_load(cluster: KafkaCluster, listener: str, mechanism: str, session_ms: int, seconds: float) -> None:
    """A load of that many seconds succeeds without an error, on connections that outlive their sessions.

    Without new logins each session would end its connection. One may for each time that this process was held up
    between the time of a login and the end of the session before, and one in six if the broker was.
    """
    topic = await new_topic(cluster, 2)
    async with Producer(**cluster.client_configs(listener, user="alice", mechanism=mechanism)) as producer:
        async with load_on(producer, topic, pace=PACE) as load, blocks(LEAST_LEFT * session_ms / 2_000) as held_up:
            await load.advance(10)
            before = connections_made(producer)
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                await load.advance(100)
            made_anew = connections_made(producer) - before
        retries = producer.metrics()["producer-metrics"]["record-retry-total"]
    assert made_anew <= max(1, seconds * 1000 // session_ms // 6) + len(held_up)
    assert made_anew or not retries
    await check_exactly_once(cluster, topic, load)
    await check_log(cluster, topic, 2)


async def sessions(cluster: KafkaCluster, listener: str, session_ms: int, seconds: float) -> None:
    await asyncio.gather(*(under_load(cluster, listener, mechanism, session_ms, seconds) for mechanism in MECHANISMS))


@pytest.mark.slow
async def test_ten_second_sessions(secure_kafka: KafkaCluster) -> None:
    """Two and a half sessions with every mechanism, without errors."""
    await sessions(secure_kafka, "SESSIONS", SESSION_MS, 2.5 * SESSION_MS / 1000)


@pytest.mark.slow
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_ten_second_sessions_for_two_minutes(secure_kafka: KafkaCluster, run: Any) -> None:
    run(sessions(secure_kafka, "SESSIONS", SESSION_MS, 120))


def test_short_sessions_on_uvloop(secure_kafka: KafkaCluster) -> None:
    uvloop.run(sessions(secure_kafka, "SHORT_SESSIONS", SHORT_SESSION_MS, 3 * SHORT_SESSION_MS / 1000))


async def test_a_token_that_can_not_be_renewed_for_a_while(secure_kafka: KafkaCluster) -> None:
    """The connection is used until its session ends, and then replaced; records sent meanwhile wait."""
    topic = await new_topic(secure_kafka)
    down = False

    async def provider() -> str:
        if down:
            raise OSError("no such host: s3cret-host")
        return unsecured_token("alice", now_s=time.time(), lifetime_s=2.0)

    configs = secure_kafka.client_configs("SHORT_SESSIONS", mechanism="OAUTHBEARER")
    async with Producer(**{**configs, "sasl_oauth_token_provider": provider}) as producer:
        await producer.send(topic, b"before")
        down = True
        connections = producer._engine._client  # type: ignore[union-attr]
        await until(lambda: connections.connection_count == 0, "the connection ends with its session")
        waiting = await producer.submit(topic, b"meanwhile")
        down = False
        await waiting


async def test_a_password_that_changes_leaves_connections_until_their_session_ends(
    secure_kafka: KafkaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the records fail with the broker's error within seconds, and no log contains the password."""
    topic = await new_topic(secure_kafka)
    secure_kafka.allow("carol", "ALL", topic="*", cluster=True)
    secure_kafka.set_scram_user("carol", "carol-s3cret")
    configs = secure_kafka.client_configs("SHORT_SESSIONS", user="alice", mechanism="SCRAM-SHA-256")
    producer = Producer(**{**configs, "sasl_username": "carol", "sasl_password": "carol-s3cret"})
    async with producer:
        await producer.send(topic, b"before")
        secure_kafka.set_scram_user("carol", "another-s3cret")
        failure: BaseException | None = None
        began = time.monotonic()
        while failure is None and time.monotonic() - began < 30:
            try:
                await producer.send(topic, b"after")
            except Exception as error:
                failure = error
    assert failure is not None
    assert re.search(r"the login of user 'carol' by SCRAM-SHA-256 failed", str(failure))
    assert "s3cret" not in caplog.text + repr(failure) + repr(producer)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_password_that_changes_goes_unnoticed_with_a_provider(
    secure_kafka: KafkaCluster, mechanism: str
) -> None:
    """Each login, and each renewal of a session, uses the password of the moment."""
    user = f"dave-{mechanism}"
    topic = await new_topic(secure_kafka)
    secure_kafka.allow(user, "ALL", topic="*", cluster=True)
    password = "first-s3cret"
    secure_kafka.set_scram_user(user, password)
    used: list[str] = []

    async def provider() -> tuple[str, str]:
        used.append(password)
        return user, password

    configs = secure_kafka.client_configs("SHORT_SESSIONS", user="alice", mechanism=mechanism)
    del configs["sasl_username"], configs["sasl_password"]
    producer = Producer(**configs, sasl_credentials_provider=provider)
    async with producer, load_on(producer, topic, pace=PACE) as load:
        await load.advance(10)
        secure_kafka.set_scram_user(user, "second-s3cret")
        password = "second-s3cret"
        while used.count(password) < 3:
            await load.advance(10)
    assert "first-s3cret" in used
    await check_exactly_once(secure_kafka, topic, load)


async def test_a_wrong_password_for_a_while_does_not_end_a_transaction(secure_kafka: KafkaCluster) -> None:
    """Its commit repeats the login at the coordinator until it is accepted again."""
    topic = await new_topic(secure_kafka)
    configs = secure_kafka.client_configs("SHORT_SESSIONS", user="alice", mechanism="SCRAM-SHA-256")
    user, right = configs.pop("sasl_username"), configs.pop("sasl_password")
    password = right
    refused: list[str] = []

    async def provider() -> tuple[str, str]:
        if password != right:
            refused.append(password)
        return user, password

    producer = Producer(**configs, sasl_credentials_provider=provider, transactional_id=new_name())
    async with producer:
        async with producer.transaction():
            await producer.send(topic, b"in time")
            password = "wr0ng"
            connections = producer._engine._client  # type: ignore[union-attr]
            await until(lambda: connections.connection_count == 0, "the connection ends with its session")
            commit = asyncio.create_task(producer.commit_transaction())
            seen = len(refused)
            await until(lambda: len(refused) >= seen + 2, "the login is tried again")
            password = right
            await commit
        async with producer.transaction():
            await producer.send(topic, b"afterwards")
    records = (await read(secure_kafka, topic))[0]
    assert [record.value for record in records] == [b"in time", b"afterwards"]


async def test_certificates_change_under_load(
    secure_kafka: KafkaCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """New connections use the new certificates; while a file is only half written, the last valid ones stay in use."""
    caplog.set_level(logging.INFO, "aioproducer.tls")
    topic = await new_topic(secure_kafka, 2)
    trust, keys = tmp_path / "trust.pem", tmp_path / "keys.pem"
    authority = secure_kafka.authority
    trust.write_text(authority.pem)
    keys.write_text(authority.issue("client.test", common_name="alice").pem)
    async with Producer(
        bootstrap_servers=secure_kafka.bootstrap_of("MTLS"),
        security_protocol="SSL",
        ssl_truststore_location=str(trust),
        ssl_keystore_location=str(keys),
        reconnect_backoff_ms=1,
    ) as producer:
        client = producer._engine._client  # type: ignore[union-attr]
        async with load_on(producer, topic, pace=PACE) as load:
            for file, text, expected in (
                (keys, authority.issue("client.test", common_name="alice").pem, "use their new contents"),
                (keys, authority.pem[:50], "still using the last"),
                (keys, authority.issue("client.test", common_name="alice").encrypted_key("?"), "still using the last"),
                (keys, authority.issue("client.test", common_name="alice").pem, "use their new contents"),
                (trust, CertificateAuthority().pem + authority.pem, "use their new contents"),
                (trust, "", "still using the last"),
            ):
                await load.advance(50)
                caplog.clear()
                file.write_text(text)
                async with asyncio.timeout(PATIENCE_S):
                    while expected not in caplog.text:  # one that is being set up may use the old one
                        client.abort_all()
                        await load.advance(50)
    await check_exactly_once(secure_kafka, topic, load)
