"""Logins with a scripted broker: the order of requests, errors for refusals, and sessions that expire."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aioproducer import OAuthToken
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import (
    AuthenticationError,
    ConnectionLostError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from aioproducer.metrics import ProducerMetrics
from aioproducer.net.connection import Connection
from aioproducer.net.opening import open_connection
from aioproducer.net.sasl.authenticator import SaslAuthenticator
from aioproducer.protocol.api_versions import ApiVersionsRequest
from aioproducer.protocol.metadata import MetadataRequest
from aioproducer.protocol.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from aioproducer.protocol.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.net.fake_broker import EVERYTHING, FakeBroker, ReceivedRequest, end_with_answer, framed
from tests.unit.shown import shown_by_tools

HANDSHAKE, AUTHENTICATE, VERSIONS, METADATA = 17, 36, 18, 3
TOKEN = b"\0alice\0s3cret"


class Client:
    """One connection that logs in, and the calls to its owner."""

    def __init__(self, broker: FakeBroker, **configs: Any) -> None:
        self.broker = broker
        self.config = ProducerConfig.parse(
            {
                "bootstrap_servers": "unused:1",
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "alice",
                "sasl_password": "s3cret",
                **configs,
            }
        )
        self.closed: list[KafkaError | None] = []
        self.internal: list[BaseException] = []
        self.free = asyncio.Event()
        self.metrics = ProducerMetrics()
        loop = asyncio.get_running_loop()
        self.authenticator = SaslAuthenticator(
            self.config, loop=loop, rng=random.Random(1), on_internal_error=self.internal.append
        )

    @property
    def logins(self) -> tuple[float, float]:
        """The numbers of successful and failed logins, from the metrics."""
        found = self.metrics.snapshot(int(asyncio.get_running_loop().time() * 1000))["producer-metrics"]
        return found["successful-authentication-total"], found["failed-authentication-total"]

    async def open(self, authenticate: Callable[[Connection], Awaitable[None]] | None = None) -> Connection:
        return await open_connection(
            self.broker.host,
            self.broker.port,
            node_id=1,
            config=self.config,
            loop=asyncio.get_running_loop(),
            on_internal_error=self.internal.append,
            on_close=lambda _, error: self.closed.append(error),
            on_capacity=lambda _: self.free.set(),
            authenticate=authenticate or self.authenticator.authenticate,
            metrics=self.metrics,
        )


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as running:
        accept(running)
        yield running


def accept(broker: FakeBroker, lifetime_ms: int = 0) -> None:
    """Accept every login."""
    broker.on(SaslHandshakeRequest, lambda _: SaslHandshakeResponse(mechanisms=["PLAIN"]))
    broker.on(
        SaslAuthenticateRequest, lambda _: SaslAuthenticateResponse(auth_bytes=b"", session_lifetime_ms=lifetime_ms)
    )


BEFORE_1_0 = {api: versions for api, versions in EVERYTHING.items() if api != AUTHENTICATE} | {HANDSHAKE: (0, 0)}
"""What a broker that knows no SaslAuthenticate speaks."""
EMPTY_ANSWER = struct.pack(">i", 0)


def bare_tokens(broker: FakeBroker, answer: Callable[[Any, int], None]) -> list[bytes]:
    """Have ``answer(peer, number)`` called for each token with only its size in front; returns the tokens so far."""
    tokens: list[bytes] = []
    original = broker._handle

    async def handle(peer: Any, frame: bytes) -> None:
        if not frame.startswith(b"\0alice"):
            await original(peer, frame)
            return
        tokens.append(frame)
        answer(peer, len(tokens))

    broker._handle = handle  # type: ignore[method-assign]
    return tokens


async def end(connection: Connection) -> None:
    connection.abort()
    await connection.wait_closed()


def kinds(broker: FakeBroker) -> list[int]:
    return [request.api_key for request in broker.requests]


async def test_a_login_comes_between_two_looks_at_the_versions(broker: FakeBroker) -> None:
    connection = await Client(broker).open()
    assert kinds(broker) == [VERSIONS, HANDSHAKE, AUTHENTICATE, VERSIONS]
    assert [request.version for request in broker.requests] == [0, 1, 2, 5]
    assert broker.requests[1].decode().mechanism == "PLAIN"
    assert broker.requests[2].decode().auth_bytes == TOKEN
    assert connection.can_send(connection._now_ms())
    assert connection.session.timer is None
    await end(connection)


async def test_the_second_look_at_the_versions_is_one_that_the_broker_knows() -> None:
    """Azure Event Hubs hangs up at a version that it does not know."""

    def answer(request: ReceivedRequest) -> Any:
        if request.version <= 3:
            return broker.api_versions()
        request.peer.drop()
        return None

    async with FakeBroker(ranges={**EVERYTHING, VERSIONS: (0, 3)}) as broker:
        accept(broker)
        broker.on(ApiVersionsRequest, answer)
        connection = await Client(broker).open()
        assert [request.version for request in broker.requests] == [0, 1, 2, 3]
        await end(connection)


async def test_a_broker_that_hangs_up_before_the_login_is_asked_once(broker: FakeBroker) -> None:
    """It was asked in the oldest version, which every broker knows."""
    broker.on(ApiVersionsRequest, lambda request: request.peer.drop())
    with pytest.raises(ConnectionLostError):
        await Client(broker).open()
    assert kinds(broker) == [VERSIONS]


def refuse(_: ReceivedRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"")


@pytest.mark.parametrize(
    "answer",
    [refuse, lambda request: request.peer.drop(), lambda _: framed(b"\xff" * 4), lambda _: None],
    ids=["refused", "dropped", "garbage", "silent"],
)
async def test_no_frame_of_an_error_shows_a_token(broker: FakeBroker, answer: Callable[[Any], Any]) -> None:
    """With PLAIN it holds the password."""
    broker.on(SaslAuthenticateRequest, answer)
    with pytest.raises(KafkaError) as caught:
        await Client(broker, request_timeout_ms=200).open()
    assert broker.requests[-1].body.endswith((TOKEN, TOKEN + b"\0"))
    assert not [text for text in shown_by_tools(caught.value) if "s3cret" in text]


@pytest.mark.parametrize("answer", [lambda peer, _: peer.drop(), lambda *_: None], ids=["dropped", "silent"])
async def test_no_frame_of_an_error_shows_a_bare_token(answer: Callable[[Any, int], None]) -> None:
    async with FakeBroker(ranges=BEFORE_1_0) as broker:
        accept(broker)
        tokens = bare_tokens(broker, answer)
        with pytest.raises(KafkaError) as caught:
            await Client(broker, request_timeout_ms=200).open()
        assert tokens == [TOKEN]
    assert not [text for text in shown_by_tools(caught.value) if "s3cret" in text]


async def test_a_broker_before_1_0_gets_bare_tokens() -> None:
    """Handshake version 0, then tokens with only their size in front."""
    async with FakeBroker(ranges=BEFORE_1_0) as broker:
        accept(broker)
        tokens = bare_tokens(broker, lambda peer, _: peer.send(EMPTY_ANSWER))
        connection = await Client(broker).open()
        assert tokens == [TOKEN]
        assert kinds(broker) == [VERSIONS, HANDSHAKE, VERSIONS]
        assert broker.requests[1].version == 0
        await end(connection)


async def test_a_broker_before_1_0_refuses_by_hanging_up() -> None:
    async with FakeBroker(ranges=BEFORE_1_0) as broker:
        accept(broker)
        bare_tokens(broker, lambda peer, _: peer.drop())
        with pytest.raises(AuthenticationError, match=r"user 'alice' by PLAIN failed: .* before Kafka 1\.0"):
            await Client(broker).open()


async def test_a_broker_before_1_0_that_hangs_up_before_the_next_token() -> None:
    """As while a proof is computed: nobody will answer then, and nothing was refused."""
    async with FakeBroker(ranges=BEFORE_1_0) as broker:
        accept(broker)
        client = Client(broker)
        mechanism = await client.authenticator._ready_mechanism()
        begin = mechanism.begin

        async def slow(host: str) -> Any:
            exchange = await begin(host)
            respond = exchange.respond

            async def respond_after_the_end(challenge: bytes | None) -> bytes | None:
                peer = broker.peers[0]
                peer.drop()
                await peer.gone.wait()
                while not connections[0].ended:
                    await asyncio.sleep(0)
                return await respond(challenge)

            exchange.respond = respond_after_the_end  # type: ignore[method-assign]
            return exchange

        async def authenticate(connection: Connection) -> None:
            connections.append(connection)
            await client.authenticator.authenticate(connection)

        connections: list[Connection] = []
        mechanism.begin = slow  # type: ignore[method-assign]
        with pytest.raises(ConnectionLostError, match="node 1"):
            async with asyncio.timeout(5):
                await client.open(authenticate)


async def test_a_broker_before_1_0_does_not_answer_the_last_token_of_kerberos() -> None:
    """Java's server has nothing to return then, and only SaslAuthenticate answers that as well."""

    class Exchange:
        ends_unanswered = False

        async def respond(self, challenge: bytes | None) -> bytes:
            self.ends_unanswered = challenge is not None
            return b"\0alice: layers" if self.ends_unanswered else b"\0alice: ticket"

    async with FakeBroker(ranges=BEFORE_1_0) as broker:
        accept(broker)
        tokens = bare_tokens(broker, lambda peer, number: peer.send(EMPTY_ANSWER) if number == 1 else None)
        client = Client(broker, request_timeout_ms=5_000)
        mechanism = await client.authenticator._ready_mechanism()
        mechanism.begin = lambda _: asyncio.sleep(0, Exchange())  # type: ignore[method-assign]
        connection = await client.open()
        assert tokens == [b"\0alice: ticket", b"\0alice: layers"]
        assert kinds(broker) == [VERSIONS, HANDSHAKE, VERSIONS]
        await end(connection)


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (33, UnsupportedSaslMechanismError, r"offers GSSAPI, not PLAIN: set sasl_mechanism"),
        (34, IllegalSaslStateError, r"asks for no login at this port: set security_protocol=PLAINTEXT"),
        (42, KafkaError, r"refused SaslHandshake"),
    ],
)
async def test_a_refused_handshake(broker: FakeBroker, code: int, kind: type[KafkaError], text: str) -> None:
    broker.on(SaslHandshakeRequest, lambda _: SaslHandshakeResponse(error_code=code, mechanisms=["GSSAPI"]))
    with pytest.raises(kind, match=text) as caught:
        await Client(broker).open()
    assert not caught.value.maybe_written
    await broker.peers[0].gone.wait()


async def test_a_refused_login(broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    """The error has user, mechanism, address, the broker's reason in one line of bounded length, and a remedy."""
    caplog.set_level(logging.DEBUG)
    reason = "wrong\n" + "x" * 10_000
    answer = SaslAuthenticateResponse(error_code=58, error_message=reason, auth_bytes=b"")
    broker.on(SaslAuthenticateRequest, lambda _: answer)
    client = Client(broker)
    with pytest.raises(SaslAuthenticationFailedError) as caught:
        await client.open()
    assert client.logins == (0, 1)
    text = str(caught.value)
    assert text.startswith(f"node 1 (127.0.0.1:{broker.port}): the login of user 'alice' by PLAIN failed: wrong xxx")
    assert text.endswith("; look at sasl_username and sasl_password")
    assert len(text) < 500
    assert "s3cret" not in text + repr(caught.value) + caplog.text


async def test_a_token_that_was_refused_is_not_used_again(broker: FakeBroker) -> None:
    """Even if it has not expired, because it may have been revoked. A token that was accepted is reused."""
    tokens = 0

    async def provider() -> OAuthToken:
        nonlocal tokens
        tokens += 1
        return OAuthToken(f"token-{tokens}", expires_at_ms=4_000_000_000_000)

    login = {"sasl_mechanism": "OAUTHBEARER", "sasl_username": None, "sasl_password": None}
    client = Client(broker, **login, sasl_oauth_token_provider=provider)
    seen: list[bytes] = []

    def answer(request: ReceivedRequest) -> SaslAuthenticateResponse:
        seen.append(request.decode().auth_bytes)
        refused = b"token-1" in seen[-1]
        return SaslAuthenticateResponse(error_code=58 if refused else 0, error_message="no" * refused, auth_bytes=b"")

    broker.on(SaslAuthenticateRequest, answer)
    with pytest.raises(SaslAuthenticationFailedError, match="no"):
        await client.open()
    for _ in range(2):
        await end(await client.open())
    assert [token.split(b"Bearer ")[1][:7] for token in seen] == [b"token-1", b"token-2", b"token-2"]


async def test_a_connection_that_breaks_during_a_login_is_no_refusal(broker: FakeBroker) -> None:
    broker.on(SaslAuthenticateRequest, lambda request: request.peer.drop())
    client = Client(broker)
    with pytest.raises(ConnectionLostError):
        await client.open()
    assert client.logins == (0, 0)


@pytest.mark.parametrize("answer", [b"\xff\xff\xff\xff", b"\x15\x03\x03\x00\x02\x02\x50", framed(b"\0\0\0\x63"), b""])
async def test_nonsense_in_place_of_an_answer(broker: FakeBroker, answer: bytes) -> None:
    def respond(request: ReceivedRequest) -> bytes | None:
        if not answer:
            request.peer.drop()
        return answer or None

    broker.on(SaslAuthenticateRequest, respond)
    with pytest.raises(KafkaError):
        await Client(broker).open()


@pytest.mark.parametrize("seed", range(10))
async def test_mutated_answers_end_the_attempt_and_nothing_else(broker: FakeBroker, seed: int) -> None:
    """Random bytes in the answers to handshake and login cause a KafkaError or a login, never anything else."""
    rng = random.Random(seed)

    def mutated(request: ReceivedRequest, answer: Any) -> bytes:
        data = bytearray(request.answer(answer))
        for _ in range(rng.randint(0, 3)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        return bytes(data)

    shake = SaslHandshakeResponse(mechanisms=["PLAIN", "GSSAPI"])
    login = SaslAuthenticateResponse(auth_bytes=b"abc", error_message="text", session_lifetime_ms=0)
    broker.on(SaslHandshakeRequest, lambda request: mutated(request, shake))
    broker.on(SaslAuthenticateRequest, lambda request: mutated(request, login))
    client = Client(broker)
    for _ in range(15):
        try:
            connection = await client.open()
        except KafkaError:
            continue
        await end(connection)
    assert client.internal == []


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_session_is_renewed_in_line_with_the_requests(broker: FakeBroker) -> None:
    """Requests in flight are answered first; nothing else is sent until the login has succeeded."""
    accept(broker, 60_000)
    client = Client(broker)
    connection = await client.open()
    assert connection.session.timer is not None
    loop = asyncio.get_running_loop()
    left_s = connection.session.timer.when() - loop.time()
    assert 0.8 * 60 < left_s < 0.95 * 60
    broker.silent(MetadataRequest)
    broker.silent(SaslHandshakeRequest)
    answer = asyncio.ensure_future(connection.request(MetadataRequest(topics=[])))
    waiting = await broker.next_request(MetadataRequest)
    client.authenticator._renew(connection, connection._now_ms() + 10_000)
    handshake = await broker.next_request(SaslHandshakeRequest)
    assert handshake.correlation_id == waiting.correlation_id + 1
    assert not connection.can_send(connection._now_ms())
    waiting.reply(broker.metadata())
    assert (await answer).cluster_id == "fake"
    assert not connection.can_send(connection._now_ms())
    client.free.clear()
    handshake.reply(SaslHandshakeResponse(mechanisms=["PLAIN"]))
    while not connection.can_send(connection._now_ms()):
        await client.free.wait()
        client.free.clear()
    assert kinds(broker)[4:] == [METADATA, HANDSHAKE, AUTHENTICATE]
    assert client.closed == []
    await end(connection)


async def test_a_login_during_a_throttle_has_its_time_after_that(broker: FakeBroker) -> None:
    """The broker reads nothing before, for minutes if a quota was far exceeded."""
    accept(broker, 60_000)
    client = Client(broker)
    connection = await client.open()
    broker.silent(SaslHandshakeRequest)
    connection.throttle(connection._now_ms() + 300_000)
    client.authenticator._renew(connection, connection._now_ms() + 10_000)
    async with asyncio.timeout(5):
        await broker.next_request(SaslHandshakeRequest)  # that of the first login
        await broker.next_request(SaslHandshakeRequest)
    deadline_ms = connection._in_flight.next_deadline_ms()
    assert deadline_ms == connection.throttled_until_ms + client.config.request_timeout_ms
    await end(connection)


async def test_a_connection_that_ends_in_the_turn_in_which_it_is_to_log_in_again(broker: FakeBroker) -> None:
    """The login has not begun then, and leaves nothing behind."""
    accept(broker, 60_000)
    client = Client(broker)
    connection = await client.open()
    client.authenticator._renew(connection, connection._now_ms() + 10_000)
    await end(connection)
    gc.collect()  # a coroutine that was never awaited would warn here
    assert kinds(broker).count(HANDSHAKE) == 1
    assert client.internal == []


async def test_a_connection_that_ends_with_the_answer_to_its_login_has_no_timer(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would cancel it, and it would keep the connection for as long as the session should have lasted."""
    accept(broker, 3_600_000)
    end_with_answer(monkeypatch, SaslAuthenticateRequest)
    client = Client(broker)
    connections: list[Connection] = []

    async def authenticate(connection: Connection) -> None:
        connections.append(connection)
        await client.authenticator.authenticate(connection)

    with pytest.raises(ConnectionLostError):
        await client.open(authenticate)
    assert connections[0].session.timer is None


async def test_a_renewed_session_lets_requests_through_again(broker: FakeBroker) -> None:
    accept(broker, 60_000)
    client = Client(broker)
    connection = await client.open()
    client.free.clear()
    used_ms = connection.last_used_ms
    await asyncio.sleep(0.005)
    client.authenticator._renew(connection, connection._now_ms() + 10_000)
    await client.free.wait()
    while not connection.can_send(connection._now_ms()):
        client.free.clear()
        await client.free.wait()
    assert kinds(broker)[4:] == [HANDSHAKE, AUTHENTICATE]
    assert connection.last_used_ms == used_ms  # so that an idle connection is still closed
    found = connection.metrics.snapshot(connection._now_ms())["producer-metrics"]
    assert (found["successful-authentication-total"], found["successful-reauthentication-total"]) == (1, 1)
    assert found["reauthentication-latency-max"] >= 0
    assert client.closed == []
    await end(connection)
    assert connection.session.timer.cancelled()


async def test_a_refused_renewal_costs_the_connection_and_is_no_refusal_of_the_client(broker: FakeBroker) -> None:
    accept(broker, 60_000)
    client = Client(broker)
    connection = await client.open()
    refusal = SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"")
    broker.on(SaslAuthenticateRequest, lambda _: refusal)
    client.authenticator._renew(connection, connection._now_ms() + 10_000)
    await broker.peers[0].gone.wait()
    await connection.wait_closed()
    (error,) = client.closed
    assert type(error) is ConnectionLostError
    assert isinstance(error.__cause__, AuthenticationError)
    found = connection.metrics.snapshot(connection._now_ms())["producer-metrics"]
    assert (found["failed-authentication-total"], found["failed-reauthentication-total"]) == (0, 1)


@pytest.mark.parametrize("backoff_ms", [0, 1])
async def test_a_session_that_can_not_be_renewed_ends_when_idle(broker: FakeBroker, backoff_ms: int) -> None:
    """Until then the connection stays in use, without constant retries."""
    accept(broker, 60_000)
    client = Client(broker, sasl_login_retry_backoff_ms=backoff_ms)
    connection = await client.open()
    mechanism = await client.authenticator._ready_mechanism()
    asked = 0

    async def down(host: str) -> Any:
        nonlocal asked
        asked += 1
        raise ConnectionLostError("no token")

    mechanism.begin = down  # type: ignore[method-assign]
    client.authenticator._renew(connection, connection._now_ms() + 100)
    await asyncio.sleep(0)
    assert connection.can_send(connection._now_ms())
    await broker.peers[0].gone.wait()
    await connection.wait_closed()
    assert 1 < asked < 10
    assert client.closed == [None]


async def test_what_is_in_flight_when_a_session_ends_is_answered_first(broker: FakeBroker) -> None:
    """Nothing else is sent: it would make the broker close the connection before it answers."""
    accept(broker, 60_000)
    broker.silent(MetadataRequest)
    client = Client(broker)
    connection = await client.open()
    mechanism = await client.authenticator._ready_mechanism()

    async def down(host: str) -> Any:
        raise ConnectionLostError("no token")

    mechanism.begin = down  # type: ignore[method-assign]
    asking = asyncio.ensure_future(connection.request(MetadataRequest(topics=[])))
    asked = await broker.next_request(MetadataRequest)
    before = kinds(broker)
    client.authenticator._renew(connection, connection._now_ms() + 20)
    renewing = connection.session.task
    assert renewing is not None
    await asyncio.wait([renewing])
    assert not connection.closed
    assert not connection.can_send(connection._now_ms())
    asked.reply(broker.metadata())
    assert (await asking).brokers
    await connection.wait_closed()
    assert kinds(broker) == before
    assert client.closed == [None]
    assert client.internal == []


@pytest.mark.parametrize("configs", [{"sasl_login_retry_backoff_ms": 0}, {"sasl_login_retry_backoff_max_ms": 0}])
async def test_a_token_endpoint_that_is_down_is_not_asked_all_the_time(
    broker: FakeBroker,
    configs: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Even without a configured back-off: each connection may have nine minutes left of an hour's session.

    Nor does the log fill with it.
    """
    waits_s: list[float] = []
    sleep = asyncio.sleep

    async def at_once(delay_s: float) -> None:
        waits_s.append(delay_s)
        await sleep(0)

    accept(broker, 60_000)
    client = Client(broker, **configs)
    connection = await client.open()
    mechanism = await client.authenticator._ready_mechanism()
    begin = mechanism.begin

    async def down(host: str) -> Any:
        if len(waits_s) < 12:
            raise ConnectionLostError("no token")
        return await begin(host)

    mechanism.begin = down  # type: ignore[method-assign]
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", at_once)
        assert await client.authenticator._begin_before(connection, mechanism, connection._now_ms() + 600_000)
    assert waits_s[0] < 0.2
    assert min(waits_s[8:]) > 0.7
    (warning,) = caplog.messages
    assert "re-authentication has to wait: no token" in warning
    await end(connection)


@pytest.mark.parametrize("step", ["none", "begin", "respond"])
async def test_a_renewal_that_somebody_cancels_ends_the_connection(broker: FakeBroker, step: str) -> None:
    """Otherwise it would never log in again, and its requests would stay paused."""
    accept(broker, 60_000)
    client = Client(broker)
    connection = await client.open()
    mechanism = await client.authenticator._ready_mechanism()
    exchange = await mechanism.begin("host")

    async def stands(_: Any) -> Any:
        await asyncio.Event().wait()

    if step == "begin":
        mechanism.begin = stands  # type: ignore[method-assign]
    else:
        exchange.respond = stands  # type: ignore[method-assign]
        mechanism.begin = lambda _: asyncio.sleep(0, exchange)  # type: ignore[method-assign]
    client.authenticator._renew(connection, connection._now_ms() + 60_000)
    if step != "none":
        await asyncio.sleep(0.05)
    task = connection.session.task
    assert task is not None
    task.cancel()
    async with asyncio.timeout(5):
        await connection.wait_closed()
    (error,) = client.closed
    assert type(error) is ConnectionLostError
    assert "logging in again was cancelled" in str(error)
    assert client.internal == []


async def test_after_its_end_a_session_takes_no_requests(broker: FakeBroker) -> None:
    """The broker would close the connection at the next request; this happens after the loop was blocked."""
    connection = await Client(broker).open()
    now_ms = connection._now_ms()
    connection.logged_in(now_ms + 1_000)
    assert connection.can_send(now_ms)
    assert not connection.can_send(now_ms + 1_000)
    await end(connection)


async def renewed(client: Client, ends_ms: int) -> None:
    """Log a new connection in again, as its timer would do."""
    connection = await client.open()
    assert connection.session.timer is not None
    connection.session.timer.cancel()
    client.authenticator._renew(connection, ends_ms)
    await connection.wait_closed()


async def test_sessions_that_expire_again_and_again_are_told_once(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker may let them last for a millisecond, as with a token that is about to expire."""
    accept(broker, lifetime_ms=60_000)
    client = Client(broker)
    for _ in range(3):
        await renewed(client, ends_ms=0)
    assert caplog.text.count("the session has expired and could not be renewed; closing the connection") == 1


async def test_renewals_that_are_refused_again_and_again_are_told_once(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Some gateways know only the first login of a connection."""
    seen: set[int] = set()

    def answer(request: ReceivedRequest) -> SaslAuthenticateResponse:
        if id(request.peer) in seen:
            return refuse(request)
        seen.add(id(request.peer))
        return SaslAuthenticateResponse(auth_bytes=b"", session_lifetime_ms=60_000)

    broker.on(SaslAuthenticateRequest, answer)
    client = Client(broker)
    for _ in range(3):
        await renewed(client, ends_ms=client.authenticator._now_ms() + 60_000)
    assert len(seen) == 3
    assert caplog.text.count("re-authentication failed; opening a new connection: node 1") == 1
