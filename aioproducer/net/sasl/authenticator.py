"""SaslAuthenticator: logs connections in, and again before their sessions expire.

Theory of operation. A new connection asks for the broker's API versions, names the mechanism (SaslHandshake), and
carries the mechanism's tokens (SaslAuthenticate) until both sides are done. If the broker then says how long the
session lasts (KIP-368), a timer logs the connection in again at 85 to 95 % of that time:

    1. get what the login needs (a fresh token): the connection is in use meanwhile;
    2. pause: accept no other requests. Those in flight stay and are answered first, as a broker answers in order;
    3. handshake and tokens, queued behind them; the broker accepts nothing else in between;
    4. resume, with the end of the new session.

If step 1 fails, it is repeated with back-off until the session ends; then the connection takes no more requests and
ends when those in flight are answered, since the broker would close it at the next one. If the broker refuses step 3,
the connection is lost like any other, with nothing in flight, and a new one shows whether the login itself is refused.

Source: KIP-152, KIP-368, KIP-43.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from aioproducer.backoff import ExponentialBackoff
from aioproducer.client_logger import ClientLogger
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.error_codes import Code
from aioproducer.errors import (
    AuthenticationError,
    ConnectionLostError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    broker_error,
)
from aioproducer.log_limit import WARN_EVERY_MS, LogLimit
from aioproducer.message_text import excerpt
from aioproducer.net.connection import Connection, not_written
from aioproducer.net.sasl import make_mechanism
from aioproducer.net.sasl.mechanism import Exchange, Mechanism
from aioproducer.net.workers import in_worker
from aioproducer.protocol.sasl_authenticate import SaslAuthenticateRequest
from aioproducer.protocol.sasl_handshake import SaslHandshakeRequest

logger: logging.Logger = logging.getLogger("aioproducer.sasl")

MAX_STEPS = 20
"""The most tokens in one login; a real one has at most four."""
FIRST_PART, LAST_PART = 0.85, 0.95
"""The part of a session's time after which it is renewed, at random between these two."""
FIRST_WAIT_MS, BOUND_MS = 20, 1_000
"""Least waits before retrying to get what a login needs, whatever the configs say: the first wait, and the bound
that the waits grow to, as a session may have minutes left.
"""


class SaslAuthenticator:
    """The logins of all connections of a producer.

    Args:
        config: that of a producer whose ``security_protocol`` is SASL_PLAINTEXT or SASL_SSL.
        on_internal_error: gets errors that must not happen.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        on_internal_error: Callable[[BaseException], None],
    ) -> None:
        self._logger = ClientLogger(logger, config.client_id)
        self._config = config
        self._loop = loop
        self._rng = rng
        self._on_internal_error = on_internal_error
        self._backoff = ExponentialBackoff(
            max(config.sasl_login_retry_backoff_ms, FIRST_WAIT_MS),
            max(config.sasl_login_retry_backoff_max_ms, BOUND_MS),
        )
        self._mechanism: Mechanism | None = None
        self._warnings = LogLimit(WARN_EVERY_MS)

    async def authenticate(self, connection: Connection) -> None:
        """Log a new connection in.

        Raises:
            AuthenticationError: broker and client do not accept each other.
            KafkaError: the connection broke.
        """
        mechanism = await self._ready_mechanism()
        exchange = await mechanism.begin(connection.host)
        await connection.negotiate(first_version=0)
        lifetime_ms = await self._log_in(connection, mechanism, exchange)
        self._watch(connection, lifetime_ms)

    async def _ready_mechanism(self) -> Mechanism:
        """The mechanism, made in a worker thread: some import large packages."""
        if self._mechanism is None:
            made = await in_worker(self._loop, make_mechanism, self._config, self._loop, self._rng)
            self._mechanism = self._mechanism or made  # two connections may have asked at once
        return self._mechanism

    # --- one login ----------------------------------------------------------------------------------------------------

    async def _log_in(self, connection: Connection, mechanism: Mechanism, exchange: Exchange) -> int:
        """Do the handshake and exchange tokens; returns the session's lifetime in ms, 0 for unlimited."""
        framed = await self._handshake(connection, mechanism)
        try:
            return await self._exchange(connection, exchange, framed)
        except AuthenticationError as error:
            mechanism.refused(exchange)
            raise self._refusal(connection, mechanism, error) from error.__cause__
        except ConnectionLostError as error:
            if framed or not error.maybe_written:  # with nothing sent, it is no refusal
                raise
            mechanism.refused(exchange)
            told = AuthenticationError("the broker closed the connection, as those before Kafka 1.0 do for that")
            raise self._refusal(connection, mechanism, told) from error

    async def _handshake(self, connection: Connection, mechanism: Mechanism) -> bool:
        """Choose the mechanism; returns whether its tokens are sent in SaslAuthenticate."""
        known = connection.api_range(SaslAuthenticateRequest.API_KEY) is not None
        version = connection.version(SaslHandshakeRequest) if known else 0
        response = await connection.request(SaslHandshakeRequest(mechanism=mechanism.name), version=version)
        if response.error_code == Code.UNSUPPORTED_SASL_MECHANISM:
            offered = excerpt(", ".join(response.mechanisms)) or "nothing"
            raise not_written(
                UnsupportedSaslMechanismError(
                    f"{connection} offers {offered}, not {mechanism.name}: set sasl_mechanism to one of these"
                )
            )
        if response.error_code == Code.ILLEGAL_SASL_STATE:
            instead = "SSL" if self._config.uses_tls else "PLAINTEXT"
            raise not_written(
                IllegalSaslStateError(
                    f"{connection} asks for no login at this port: set security_protocol={instead}, or use another port"
                )
            )
        if response.error_code:
            raise not_written(broker_error(response.error_code, f"{connection} refused SaslHandshake"))
        return known and version > 0

    async def _exchange(self, connection: Connection, exchange: Exchange, framed: bool) -> int:
        lifetime_ms = 0
        challenge: bytes | None = None
        for _ in range(MAX_STEPS):
            token = await exchange.respond(challenge)
            if token is None:
                return lifetime_ms
            request = SaslAuthenticateRequest(auth_bytes=token)
            # An error keeps the variables of the frames that it passes, and tools that report errors show them. The
            # text of a request does not show its token.
            del token
            if not framed:
                if exchange.ends_unanswered:
                    connection.send_bare(request.auth_bytes)
                    return lifetime_ms
                challenge = await connection.exchange_bare(request.auth_bytes)
                continue
            response = await connection.request(request)
            if response.error_code:
                raise not_written(broker_error(response.error_code, response.error_message))
            challenge, lifetime_ms = response.auth_bytes, response.session_lifetime_ms
        raise AuthenticationError(f"it was not complete after {MAX_STEPS} tokens")

    def _refusal(self, connection: Connection, mechanism: Mechanism, error: AuthenticationError) -> KafkaError:
        """The full error: who, how, where, what the broker said, and what to check."""
        message = f"{connection}: the login of {mechanism.who} by {mechanism.name} failed: {excerpt(str(error))}"
        refused = isinstance(error, SaslAuthenticationFailedError)
        kind = type(error) if refused or isinstance(error, IllegalSaslStateError) else AuthenticationError
        return not_written(kind(f"{message}; {mechanism.remedy}" if refused else message))

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _watch(self, connection: Connection, lifetime_ms: int) -> None:
        """Schedule a login before the connection's session ends."""
        if lifetime_ms <= 0 or connection.ended:  # after its end, nobody would cancel the timer
            connection.logged_in(None)
            return
        now_s = self._loop.time()
        part = FIRST_PART + (LAST_PART - FIRST_PART) * self._rng.random()
        ends_ms = int(now_s * 1000) + lifetime_ms
        renew_s = now_s + lifetime_ms / 1000 * part
        connection.session.timer = self._loop.call_at(renew_s, self._renew, connection, ends_ms)
        connection.logged_in(ends_ms)

    def _renew(self, connection: Connection, ends_ms: int) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():  # perhaps before its first step
                connection.abort(ConnectionLostError(f"{connection}: logging in again was cancelled"))

        if not connection.closed:
            connection.session.task = self._loop.create_task(
                self._renew_session(connection, ends_ms), name=f"aioproducer login at {connection}"
            )
            connection.session.task.add_done_callback(ended)

    async def _renew_session(self, connection: Connection, ends_ms: int) -> None:
        try:
            await self._log_in_again(connection, ends_ms)
        except Exception as error:
            self._on_internal_error(error)

    async def _log_in_again(self, connection: Connection, ends_ms: int) -> None:
        mechanism = await self._ready_mechanism()
        exchange = await self._begin_before(connection, mechanism, ends_ms)
        if exchange is None:
            self._warn(connection, "the session has expired and could not be renewed; closing the connection")
            connection.close_when_idle()
            return
        connection.begin_login()
        began_ms = self._now_ms()
        try:
            lifetime_ms = await self._log_in(connection, mechanism, exchange)
        except KafkaError as error:
            connection.metrics.record_login_again_failed(self._now_ms())
            if not connection.closed:
                self._warn(connection, "re-authentication failed; opening a new connection", error)
                lost = ConnectionLostError(f"{connection}: re-authentication failed: {error}")
                lost.__cause__ = error
                connection.abort(lost)
            return
        connection.metrics.record_login_again(self._now_ms() - began_ms, self._now_ms())
        self._watch(connection, lifetime_ms)

    def _warn(self, connection: Connection, what: str, error: KafkaError | None = None) -> None:
        """Log a trouble of a session, once a minute for each broker: sessions may be as short as a broker likes."""
        if self._warnings.allows(self._now_ms(), (str(connection), what)):
            self._logger.warning("%s: %s%s", str(connection), what, "" if error is None else f": {error}")

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def _begin_before(self, connection: Connection, mechanism: Mechanism, ends_ms: int) -> Exchange | None:
        """Get what a login needs, retrying until the session ends."""
        attempts = 0
        while (left_ms := ends_ms - self._now_ms()) > 0:
            try:
                async with asyncio.timeout(left_ms / 1000):
                    return await mechanism.begin(connection.host)
            except TimeoutError:
                return None
            except KafkaError as error:
                self._warn(connection, "re-authentication has to wait", error)
            await asyncio.sleep(min(self._backoff.delay_ms(attempts, self._rng), left_ms) / 1000)
            attempts += 1
        return None
