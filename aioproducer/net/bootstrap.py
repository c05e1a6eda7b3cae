"""The first contact with the cluster: from the configured addresses to a broker that names all others."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import (
    AuthenticationError,
    BootstrapError,
    ConnectionLostError,
    KafkaError,
    ProtocolError,
    broker_error,
)
from aioproducer.message_text import host_port
from aioproducer.net.connection import Connection, hung_up
from aioproducer.net.dialer import Dialer, Limit, Others
from aioproducer.net.opening import NotAcceptedError
from aioproducer.net.probe import login_wanted, wrong_tls
from aioproducer.net.resolver import canonical_names
from aioproducer.patient_timer import PatientTimeout
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponse

CLOSER_LOOK_MS = 2_000
"""The longest time to find out why a broker hung up."""
LOOK_UP_AGAIN_MS = 200
"""The pause between two lookups of names that are not known yet."""


class Bootstrap:
    """One pass through ``bootstrap_servers``.

    Args:
        deadline_ms: for the whole pass; None leaves only the limits of each address.
        stops_at_refusal: whether a broker that does not accept this client ends the pass; else the others are tried.
    """

    def __init__(
        self,
        config: ProducerConfig,
        dialer: Dialer,
        loop: asyncio.AbstractEventLoop,
        deadline_ms: int | None,
        *,
        stops_at_refusal: bool,
    ) -> None:
        self._config = config
        self._dialer = dialer
        self._loop = loop
        self._deadline_ms = deadline_ms
        self._stops_at_refusal = stops_at_refusal
        self._failures: list[tuple[str, BaseException]] = []

    async def run(self) -> tuple[Connection, MetadataResponse]:
        """Try the addresses in the given order until one lists the brokers; return its connection and that answer.

        The node id of the connection is negative: its broker's id is unknown.

        Raises:
            BootstrapError: none did; it lists each address with its cause.
            AuthenticationError: a broker and this client do not accept each other; if others are tried, none of them
                did better.
        """
        if self._config.bootstrap_resolve_timeout_ms:
            await self._until_a_name_is_known()
        refusal: AuthenticationError | None = None
        servers = [(*server, -1 - index) for index, server in enumerate(await self._servers())]
        rounds: list[Others] = ["left", "done"] if len(servers) > 1 else ["none"]
        for others in rounds:
            slow = []
            for server in servers:
                try:
                    if (found := await self._try(*server, others)) is not None:
                        return found
                except NotAcceptedError:
                    slow.append(server)
                except AuthenticationError as error:
                    if self._stops_at_refusal:
                        raise
                    refusal = refusal or error
            servers = slow
        if refusal is not None:
            raise refusal
        raise BootstrapError(self._failures) from (self._failures[-1][1] if self._failures else None)

    async def _until_a_name_is_known(self) -> None:
        """Look the names up again and again until one is known, or ``bootstrap_resolve_timeout_ms`` is over (KIP-909).

        Raises:
            BootstrapError: no time is left to try the addresses.
        """
        unknown: list[tuple[str, BaseException]] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(self._left_ms(self._config.bootstrap_resolve_timeout_ms) / 1000):
                while True:
                    unknown = await self._unknown_names()
                    if not unknown:
                        return
                    await asyncio.sleep(LOOK_UP_AGAIN_MS / 1000)
        if unknown and self._left_ms(1) <= 0:
            raise BootstrapError(unknown) from unknown[-1][1]

    async def _unknown_names(self) -> list[tuple[str, BaseException]]:
        """The hosts that can't be resolved, with the reason; none if one of them can."""
        unknown: list[tuple[str, BaseException]] = []
        for host, port in self._config.bootstrap_servers:
            try:
                await self._dialer.addresses(host, port, self._limit(), self._deadline_ms)
            except KafkaError as error:
                unknown.append((host_port(host, port), error))
            else:
                return []
        return unknown

    async def _try(
        self, host: str, port: int, node_id: int, others: Others
    ) -> tuple[Connection, MetadataResponse] | None:
        """One address; None if it can't be used, and ``_failures`` says why.

        Raises:
            NotAcceptedError: others are left, and this one may yet accept a connection.
        """
        try:
            if self._left_ms(1) <= 0:
                raise TimeoutError(f"no time was left of max_block_ms={self._config.max_block_ms} to try it")
            return await self._ask(host, port, node_id, others)
        except (AuthenticationError, NotAcceptedError):
            raise
        except (KafkaError, OSError) as error:
            await self._look_closer(host, port, error)
            self._failures.append((host_port(host, port), error))
            return None

    async def _look_closer(self, host: str, port: int, error: BaseException) -> None:
        """Raise the AuthenticationError behind a connection that just broke, if there is one."""
        if not isinstance(error, ConnectionLostError) or not hung_up(error):
            return
        try:
            async with asyncio.timeout(min(self._left_ms(self._limit().ms), CLOSER_LOOK_MS) / 1000):
                found: AuthenticationError | None = await wrong_tls(self._config, host, port)
                if found is None and not self._config.uses_sasl:
                    found = await self._login_wanted(host, port)
        except (KafkaError, OSError):  # TimeoutError is one
            return
        if found is not None:
            raise found from error

    async def _login_wanted(self, host: str, port: int) -> AuthenticationError | None:
        connection = await self._dialer.dial(host, port, node_id=-1, limit=self._limit(), deadline_ms=self._deadline_ms)
        try:
            return await login_wanted(connection)
        finally:
            connection.abort()
            await connection.wait_closed()

    async def _servers(self) -> list[tuple[str, int]]:
        if self._config.client_dns_lookup != "resolve_canonical_bootstrap_servers_only":
            return list(self._config.bootstrap_servers)
        canonical: dict[tuple[str, int], None] = {}
        for host, port in self._config.bootstrap_servers:
            try:
                async with asyncio.timeout(self._left_ms(self._limit().ms) / 1000):
                    names = await canonical_names(self._loop, host, port)
            except OSError as error:  # TimeoutError is one
                self._failures.append((host_port(host, port), error))
            else:
                canonical.update(((name, port), None) for name in names)
        return list(canonical)

    async def _ask(self, host: str, port: int, node_id: int, others: Others) -> tuple[Connection, MetadataResponse]:
        connection = await self._dialer.dial(
            host,
            port,
            node_id=node_id,
            limit=self._limit(),
            deadline_ms=self._deadline_ms,
            stops_at_refusal=self._stops_at_refusal,
            others=others,
        )
        try:
            response = await self._metadata(connection)
            if response.error_code:
                raise broker_error(response.error_code, f"{connection} refused Metadata")
            if not response.brokers:
                raise ProtocolError(f"{connection} knows of no broker")
        except BaseException:
            connection.abort()
            await connection.wait_closed()
            raise
        return connection, response

    async def _metadata(self, connection: Connection) -> MetadataResponse:
        """A broker that throttles has more than ``request_timeout_ms``, but no more than the whole pass."""
        scope = PatientTimeout(self._loop, self._deadline_ms)
        try:
            async with scope:
                return await connection.request(MetadataRequest(topics=[]))
        except TimeoutError as error:
            if not scope.expired():
                raise
            told = f"{connection} did not answer within what was left of max_block_ms={self._config.max_block_ms}"
            raise TimeoutError(told) from error

    def _limit(self) -> Limit:
        setup = Limit(self._config.socket_connection_setup_timeout_ms)
        return min(setup, Limit(self._config.request_timeout_ms, "request_timeout_ms"))

    def _left_ms(self, at_most_ms: int) -> int:
        if self._deadline_ms is None:
            return at_most_ms
        return min(at_most_ms, max(self._deadline_ms - int(self._loop.time() * 1000), 0))
