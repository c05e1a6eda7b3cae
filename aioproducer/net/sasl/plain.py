"""PLAIN: user name and password in clear text. Source: RFC 4616."""

from __future__ import annotations

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.net.sasl.mechanism import Exchange


class Plain:
    """The mechanism PLAIN."""

    name = "PLAIN"
    remedy = "look at sasl_username and sasl_password"

    def __init__(self, config: ProducerConfig) -> None:
        self.who = f"user {config.sasl_username!r}"
        self._token = f"\0{config.sasl_username}\0{config.sasl_password}".encode()

    async def begin(self, host: str) -> Exchange:
        """Nothing is needed."""
        return PlainExchange(self._token)

    def refused(self, exchange: Exchange) -> None:
        """Nothing to renew: the password is fixed."""


class PlainExchange:
    """Sends one token; any answer without an error means success."""

    def __init__(self, token: bytes) -> None:
        self._token = token

    async def respond(self, challenge: bytes | None) -> bytes | None:
        """The token, then nothing."""
        return self._token if challenge is None else None
