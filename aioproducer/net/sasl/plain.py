"""PLAIN: user name and password in clear text. Source: RFC 4616."""

from __future__ import annotations

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError
from aioproducer.net.sasl.credentials import PROVIDER, Credentials
from aioproducer.net.sasl.mechanism import Exchange


class Plain:
    """The mechanism PLAIN."""

    name = "PLAIN"

    def __init__(self, config: ProducerConfig) -> None:
        self._credentials = Credentials(config)
        self.who = self._credentials.who
        self.remedy = f"look at {self._credentials.source}"

    async def begin(self, host: str) -> Exchange:
        """Get user name and password."""
        user, password = await self._credentials.get()
        if "\0" in user + password:  # of sasl_username and sasl_password that is known already
            del user, password  # the error would keep them, with this frame
            raise AuthenticationError(f"{PROVIDER} returned the character NUL, which PLAIN can't send")
        return PlainExchange(f"\0{user}\0{password}".encode())

    def refused(self, exchange: Exchange) -> None:
        """Nothing is kept that could be renewed."""


class PlainExchange:
    """Sends one token; any answer without an error means success."""

    ends_unanswered = False

    def __init__(self, token: bytes) -> None:
        self._token = token

    async def respond(self, challenge: bytes | None) -> bytes | None:
        """The token, then nothing."""
        return self._token if challenge is None else None
