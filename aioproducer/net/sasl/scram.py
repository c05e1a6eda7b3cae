"""SCRAM-SHA-256 and SCRAM-SHA-512: neither side sends the password. Source: RFC 5802, KIP-84, KIP-48.

The package scramp does the exchange. It prepares names and passwords with SASLprep, which Kafka does not: here both are
used as plain UTF-8.
"""

from __future__ import annotations

import asyncio

import scramp

from aioproducer.config.login import jaas_of
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, SaslAuthenticationFailedError
from aioproducer.message_text import excerpt
from aioproducer.net.sasl.credentials import Credentials
from aioproducer.net.sasl.mechanism import Exchange
from aioproducer.net.workers import in_worker

MIN_ITERATIONS = 4_096
"""With fewer, a fake broker could find the password cheaply; Kafka's own client refuses them too."""
MAX_ITERATIONS = 1_000_000
"""The most a broker may ask for. Kafka itself uses 4,096 to 16,384; a million take a worker thread half a second."""

DELEGATION_TOKEN = ",tokenauth=true"


class Scram:
    """The mechanisms SCRAM-SHA-256 and SCRAM-SHA-512; the hash is computed in a worker thread."""

    def __init__(self, config: ProducerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._credentials = Credentials(config)
        self.name = config.sasl_mechanism
        self.who = self._credentials.who
        self.remedy = f"look at {self._credentials.source}, and whether the cluster has this user for this mechanism"
        options = jaas_of(config.sasl_jaas_config, self.name).options
        self._extensions = DELEGATION_TOKEN if options.get("tokenauth", "").lower() == "true" else ""
        self._loop = loop

    async def begin(self, host: str) -> Exchange:
        """Get user name and password."""
        user, password = await self._credentials.get()
        return ScramExchange(self.name, user, password, self._loop, extensions=self._extensions)

    def refused(self, exchange: Exchange) -> None:
        """Nothing is kept that could be renewed."""


class _Verbatim:
    """A name or password that scramp uses without its preparation."""

    def __init__(self, text: str) -> None:
        self._text = text

    def escape(self) -> str:
        return self._text.replace("=", "=3D").replace(",", "=2C")

    def __bytes__(self) -> bytes:
        return self._text.encode()


class ScramExchange:
    """Three steps: who we are, the proof that we know the password, and the broker's that it does too.

    Args:
        extensions: appended to the first message, starting with a comma.
        nonce: the client's, for tests; None for a random one.
    """

    ends_unanswered = False

    def __init__(
        self,
        mechanism: str,
        user: str,
        password: str,
        loop: asyncio.AbstractEventLoop,
        *,
        extensions: str = "",
        nonce: str | None = None,
    ) -> None:
        self._client = scramp.ScramClient([mechanism], "user", "password", c_nonce=nonce)
        self._client.username = _Verbatim(user)
        self._client.password = _Verbatim(password)
        self._loop = loop
        self._extensions = extensions
        self._proved = False

    async def respond(self, challenge: bytes | None) -> bytes | None:
        """The next message; None once the broker has proved that it knows the password."""
        try:
            if challenge is None:
                return self._first()
            message = challenge.decode()
            if message.startswith("e="):
                raise SaslAuthenticationFailedError(f"the broker answered {excerpt(message[2:], 100)}")
            if not self._proved:
                self._proved = True
                return await self._proof(message)
            self._client.set_server_final(message)
        except (scramp.ScramException, UnicodeDecodeError, ValueError, IndexError, KeyError) as error:
            # Its text may quote what the broker sent, which is not secret but no help either.
            raise AuthenticationError(f"the broker's SCRAM message is invalid: {_reason(error)}") from None
        return None

    def _first(self) -> bytes:
        first: str = self._client.get_client_first() + self._extensions
        self._client.client_first_bare += self._extensions
        return first.encode()

    async def _proof(self, message: str) -> bytes:
        self._client.set_server_first(message)
        iterations = int(self._client.iterations)
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise AuthenticationError(
                f"the broker asks for {iterations:,} iterations of SCRAM (allowed: {MIN_ITERATIONS:,} to "
                f"{MAX_ITERATIONS:,})"
            )
        final: str = await in_worker(self._loop, self._client.get_client_final)
        return final.encode()


def _reason(error: Exception) -> str:
    if isinstance(error, scramp.ScramException):
        return excerpt(str(error.args[0]), 200)
    return "it can't be read"
