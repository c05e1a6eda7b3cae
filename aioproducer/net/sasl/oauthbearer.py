"""OAUTHBEARER: login with a token from a third party. Source: RFC 7628, KIP-255, KIP-342, KIP-768."""

from __future__ import annotations

import asyncio
import json
import random
import re
from urllib.parse import urlsplit
from urllib.request import url2pathname

from aioproducer.config.login import jaas_of
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError
from aioproducer.net.sasl.jwt_file import read_jwt
from aioproducer.net.sasl.mechanism import Exchange
from aioproducer.net.sasl.provider import provided
from aioproducer.net.sasl.token_cache import TokenCache
from aioproducer.net.workers import SharedCall
from aioproducer.oauth_token import OAuthToken, check_token

_EXTENSION = "extension_"
"""Prefix of extension names in ``sasl_jaas_config``."""


class OAuthBearer:
    """The mechanism OAUTHBEARER, with the user's token provider, a token in a file, or a token endpoint (OIDC)."""

    name = "OAUTHBEARER"

    def __init__(self, config: ProducerConfig, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self._config = config
        options = jaas_of(config.sasl_jaas_config, "OAUTHBEARER").options
        self._extensions = {
            key.removeprefix(_EXTENSION): value for key, value in options.items() if key.startswith(_EXTENSION)
        }
        if config.sasl_oauth_token_provider is not None:
            self.who = "the token of sasl_oauth_token_provider"
            self.remedy = "look at its issuer, audience, scope and end"
            fetch = self._from_provider
        elif config.sasl_oauthbearer_jwt_retriever_class == "FileJwtRetriever":
            self.who = "the token in the file of sasl_oauthbearer_token_endpoint_url"
            self.remedy = "look at its issuer, audience, scope and end"
            self._file = SharedCall(loop, read_jwt)
            fetch = self._from_file
        else:
            from aioproducer.net.sasl.oidc import TokenEndpoint  # needs httpx

            endpoint = TokenEndpoint(config, loop, rng)
            self.who = endpoint.who
            self.remedy = "look at sasl_oauthbearer_scope, and at what issuer and audience the broker expects"
            fetch = endpoint.fetch
        self._tokens = TokenCache(config, fetch, rng)

    async def begin(self, host: str) -> Exchange:
        """Get a token."""
        token = await self._tokens.get()
        extended = OAuthToken(token.value, token.expires_at_ms, {**self._extensions, **token.extensions})
        return OAuthBearerExchange(check_token(extended))

    def refused(self, exchange: Exchange) -> None:
        """Get another token for the next login."""
        assert isinstance(exchange, OAuthBearerExchange)
        self._tokens.forget(exchange.token)

    async def _from_provider(self) -> OAuthToken:
        provider = self._config.sasl_oauth_token_provider
        assert provider is not None
        answer = await provided("sasl_oauth_token_provider", provider)
        if isinstance(answer, str):
            return OAuthToken(answer)
        if not isinstance(answer, OAuthToken):
            raise AuthenticationError(
                f"sasl_oauth_token_provider returned a {type(answer).__name__}; it has to be a str or an OAuthToken"
            )
        return answer

    async def _from_file(self) -> OAuthToken:
        """The file's current token; its expiry is read from the token."""
        path = url2pathname(urlsplit(self._config.sasl_oauthbearer_token_endpoint_url or "").path)
        return OAuthToken(await self._file.result(path, "sasl_oauthbearer_token_endpoint_url"))


class OAuthBearerExchange:
    """Sends one token; a broker that objects answers in JSON, and wants that acknowledged before it fails the login."""

    ends_unanswered = False

    def __init__(self, token: OAuthToken) -> None:
        # Joined, not formatted: a str that hides itself would be sent as what it shows.
        parts = ["".join(("auth=Bearer ", token.value)), *map("=".join, token.extensions.items())]
        self._first = ("n,,\x01" + "\x01".join(parts) + "\x01\x01").encode()
        self._objection = ""
        self.token = token.value

    async def respond(self, challenge: bytes | None) -> bytes | None:
        """The token; after an objection a single byte."""
        if challenge is None:
            return self._first
        if not challenge:
            return None
        if self._objection:
            raise AuthenticationError(f"the broker does not accept the token ({self._objection})")
        self._objection = objection(challenge)
        return b"\x01"


def objection(challenge: bytes) -> str:
    """The status of a broker's objection to a token."""
    try:
        status = json.loads(challenge).get("status")
    except (ValueError, AttributeError, RecursionError):
        status = None
    return status if isinstance(status, str) and re.fullmatch(r"[\w .-]{1,80}", status) else "no status given"
