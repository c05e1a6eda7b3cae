"""TokenCache: keeps a token until it is time for the next.

A token is fetched when a connection needs one, and kept for most of its life. Java's ``sasl_login_refresh_*`` configs
say when it is renewed. Nothing runs in between: a connection requests a fresh token when it logs in again, before its
session ends.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from aioproducer.client_logger import ClientLogger
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import ConnectionLostError, KafkaError
from aioproducer.oauth_token import OAuthToken, check_token, jwt_times_ms, refresh_at_ms

logger: logging.Logger = logging.getLogger("aioproducer.sasl")

RETRY_MS = 10_000
"""Wait after a failed renewal, while the last token is valid. Source: Kafka's ExpiringCredentialRefreshingLogin."""
PATIENCE_S = 5.0
"""Limit of a renewal while the last token is valid; otherwise a provider that hangs would hold up every login."""


class TokenCache:
    """The token of a producer; one fetch at a time, for all connections that wait.

    Args:
        fetch: gets a new token.
    """

    def __init__(
        self,
        config: ProducerConfig,
        fetch: Callable[[], Awaitable[OAuthToken]],
        rng: random.Random,
        *,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self._logger = ClientLogger(logger, config.client_id)
        self._config = config
        self._fetch = fetch
        self._rng = rng
        self._wall_s = wall_s
        self._lock = asyncio.Lock()
        self._token: OAuthToken | None = None
        self._refresh_at_ms = 0
        self._ends_ms = 0

    async def get(self) -> OAuthToken:
        """A token that is valid for a login now.

        Raises:
            KafkaError: fetching one failed with this error, and the last one is no longer valid.
        """
        async with self._lock:
            if self._token is not None and self._now_ms() < self._refresh_at_ms:
                return self._token
            self._put_off()  # also if this login is given up meanwhile: the next one must not hang in the same place
            try:
                token = check_token(await self._fetched())
            except KafkaError as error:
                last = self._good_token()
                if last is None:
                    raise
                self._logger.warning(
                    "the token for OAUTHBEARER could not be renewed; still using the last one: %s", str(error)
                )
                self._put_off()
                return last
            self._keep(token)
            return token

    def forget(self, refused: str) -> None:
        """Fetch a new token for the next login, unless the refused one is no longer the latest."""
        if self._token is not None and self._token.value == refused:
            self._token = None

    async def _fetched(self) -> OAuthToken:
        if self._good_token() is None:
            return await self._fetch()
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._fetch()
        except TimeoutError:
            raise ConnectionLostError(f"no token came within {PATIENCE_S:g} s") from None

    def _put_off(self) -> None:
        """Postpone the renewal of the last token, if it stays valid for that long."""
        self._refresh_at_ms = min(self._now_ms() + RETRY_MS, self._ends_ms)

    def _good_token(self) -> OAuthToken | None:
        return self._token if self._now_ms() < self._ends_ms else None

    def _keep(self, token: OAuthToken) -> None:
        now_ms = self._now_ms()
        began_ms, ends_ms = jwt_times_ms(token.value)
        ends_ms = token.expires_at_ms if token.expires_at_ms is not None else ends_ms
        self._token = token if ends_ms is not None and ends_ms > now_ms else None
        if self._token is not None and ends_ms is not None:
            self._ends_ms = ends_ms
            begins_ms = min(began_ms or now_ms, now_ms)
            self._refresh_at_ms = refresh_at_ms(self._config, begins_ms, ends_ms, now_ms, self._rng.random())

    def _now_ms(self) -> int:
        return int(self._wall_s() * 1000)
