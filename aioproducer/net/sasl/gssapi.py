"""GSSAPI: Kerberos. Source: RFC 4752.

Tickets come from the system: from the credential cache, or by means of the key table named by ``KRB5_CLIENT_KTNAME`` or
``sasl_jaas_config`` (``Krb5LoginModule`` with keyTab and principal). Every step may ask a KDC or read a file, so all
steps run in worker threads.
"""

from __future__ import annotations

import asyncio
from typing import Any

import gssapi
from gssapi.raw import GSSError

from aioproducer.config.login import jaas_of
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConnectionLostError, KafkaError
from aioproducer.message_text import excerpt
from aioproducer.net.sasl.mechanism import Exchange
from aioproducer.net.workers import in_own_thread, in_worker, no_thread

KDC_UNREACHABLE = 0x96C73A9C
"""KRB5_KDC_UNREACH, in MIT's and Heimdal's Kerberos alike: no KDC answered, which may be transient."""
NO_LAYER = b"\x01\x00\x00\x00"
"""No integrity or confidentiality layer after the login, as TLS provides both; hence no buffer size."""


class Gssapi:
    """The mechanism GSSAPI."""

    name = "GSSAPI"
    remedy = "look at the ticket (klist), at sasl_kerberos_service_name, and at the clocks"

    def __init__(self, config: ProducerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._service = config.sasl_kerberos_service_name
        options = jaas_of(config.sasl_jaas_config, "GSSAPI").options
        self._key_table = options.get("keyTab") if options.get("useKeyTab", "").lower() == "true" else None
        self._principal = options.get("principal")
        self.who = f"principal {self._principal!r}" if self._principal else "the default principal"
        self._loop = loop
        self._given_up: dict[str, asyncio.Future[GssapiExchange]] = {}

    async def begin(self, host: str) -> Exchange:
        """Get a ticket for the broker, and the first token with it.

        In a thread of its own, as a KDC that does not answer is waited for longer than an attempt to connect lasts. The
        next attempt then waits for the same ticket.

        Raises:
            KafkaError: no thread could be started for it.
        """
        job = self._given_up.pop(host, None)
        if job is None or job.done():
            try:
                job = in_own_thread(self._loop, "aioproducer ticket", self._begun, host)
            except RuntimeError as error:
                raise no_thread(error) from error
        try:
            await asyncio.wait([job])
        except asyncio.CancelledError:
            self._given_up[host] = job
            raise
        return job.result()

    def refused(self, exchange: Exchange) -> None:
        """Tickets are looked up for every login."""

    def _begun(self, host: str) -> GssapiExchange:
        target = f"{self._service}@{host}"
        return GssapiExchange(self._context(target), self._loop, target)

    def _context(self, target: str) -> Any:
        try:
            name = gssapi.Name(target, gssapi.NameType.hostbased_service)
            return gssapi.SecurityContext(name=name, usage="initiate", creds=self._credentials())
        except GSSError as error:
            raise _failure(f"{self.who} has no ticket", error) from None
        except NotImplementedError as error:  # other Kerberos implementations have no credential stores
            raise AuthenticationError(f"keyTab of sasl_jaas_config can't be used here: {excerpt(str(error))}") from None

    def _credentials(self) -> Any:
        if self._principal is None and self._key_table is None:
            return None
        name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal) if self._principal else None
        store: dict[bytes | str, bytes | str] | None = None
        if self._key_table:
            store = {"client_keytab": self._key_table, "ccache": f"MEMORY:aioproducer-{id(self)}"}
        return gssapi.Credentials(name=name, usage="initiate", store=store)


class GssapiExchange:
    """Exchanges tokens until both sides are authenticated, then the (empty) choice of a security layer.

    To make one is blocking: with the first token a KDC is asked for the broker's ticket, while a connection that logs
    in again is still in use.
    """

    def __init__(self, context: Any, loop: asyncio.AbstractEventLoop, target: str) -> None:
        self._context = context
        self._loop = loop
        self._target = target
        self.ends_unanswered = False
        self._first = self._respond(None)

    async def respond(self, challenge: bytes | None) -> bytes | None:
        """The next token."""
        return self._first if challenge is None else await in_worker(self._loop, self._respond, challenge)

    def _respond(self, challenge: bytes | None) -> bytes | None:
        try:
            if not self._context.complete:
                return self._context.step(challenge) or b""
            if self.ends_unanswered:
                return None
            assert challenge is not None
            offered = self._context.unwrap(challenge).message
            if len(offered) < 4 or not offered[0] & NO_LAYER[0]:
                raise AuthenticationError(f"{self._target} requires a SASL security layer, which Kafka does not have")
            self.ends_unanswered = True
            token: bytes = self._context.wrap(NO_LAYER, False).message
            return token
        except GSSError as error:
            raise _failure(f"Kerberos refused the login at {self._target}", error) from None


def _failure(what: str, error: Any) -> KafkaError:
    if error.min_code & 0xFFFFFFFF == KDC_UNREACHABLE:
        return ConnectionLostError(f"{what}: {excerpt(str(error))}")
    return AuthenticationError(f"{what}: {excerpt(str(error))}: {Gssapi.remedy}")
