"""Makes connections: all addresses of a host in turn, each for a limited time.

An address that failed where another one of its host accepted comes last from then on: where packets to it are dropped,
as in a network without IPv6 to which a name has such an address, each new connection would wait for its time to pass.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConnectionLostError, KafkaError
from aioproducer.message_text import host_port
from aioproducer.metrics import ProducerMetrics
from aioproducer.net.connection import Connection, not_written
from aioproducer.net.opening import open_connection
from aioproducer.net.route import addresses_of
from aioproducer.net.tls import Tls
from aioproducer.patient_timer import PatientTimeout


class Limit(NamedTuple):
    """How long a step may take, and the config that says so."""

    ms: int
    config: str = "socket_connection_setup_timeout_ms"


class Dialer:
    """Dials a host; holds what all connections of a client have in common.

    Args:
        on_close, on_capacity, on_internal_error, tls, authenticate: see ``open_connection``.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        on_close: Callable[[Connection, KafkaError | None], None],
        on_capacity: Callable[[Connection], None],
        on_internal_error: Callable[[BaseException], None],
        tls: Tls | None,
        authenticate: Callable[[Connection], Awaitable[None]] | None,
        metrics: ProducerMetrics,
    ) -> None:
        self._config = config
        self._loop = loop
        self._on_close = on_close
        self._on_capacity = on_capacity
        self._on_internal_error = on_internal_error
        self._tls = tls
        self._authenticate = authenticate
        self._metrics = metrics
        self.cluster_id: str | None = None
        """The cluster of the brokers, if they are to refuse connections that are meant for others (KIP-1242)."""
        self._dead: dict[tuple[str, int], set[str]] = {}
        """By host and port: its addresses that failed where another one accepted."""

    async def dial(
        self,
        host: str,
        port: int,
        *,
        node_id: int,
        limit: Limit,
        deadline_ms: int | None = None,
        after: str | None = None,
        stops_at_refusal: bool = True,
    ) -> Connection:
        """Resolve the host's name anew and return a connection to the first address that works.

        Args:
            limit: for resolving the name, and for each address.
            deadline_ms: for everything (``max_block_ms``).
            after: the address of the last try; the one after it comes first, unless it is known to be dead.
            stops_at_refusal: whether no other address is tried after one that does not accept this client. It is the
                same broker, unless the name stands for several.
        Raises:
            AuthenticationError: the broker and this client do not accept each other, and no other address worked.
            ConnectionLostError: no address worked; it names each with its cause.
        """
        failures: list[tuple[str, Exception]] = []
        refusal: AuthenticationError | None = None
        dead = self._dead.get((host, port), set())
        addresses = _rotated(await self._addresses(host, port, limit, deadline_ms), after)
        for address in sorted(addresses, key=dead.__contains__):
            try:
                async with self._in_time(limit, deadline_ms):
                    connection = await self._open(address, port, host, node_id)
            except AuthenticationError as error:
                if stops_at_refusal:
                    raise
                refusal = refusal or error
            except (KafkaError, OSError) as error:
                failures.append((address, error))
            else:
                self._note(host, port, (dead & set(addresses) | {failed for failed, _ in failures}) - {address})
                return connection
        if refusal is not None:
            raise refusal
        self._note(host, port, set())  # nothing tells which is worth trying first
        raise _no_connection(host, port, failures)

    def _note(self, host: str, port: int, dead: set[str]) -> None:
        if dead:
            self._dead[host, port] = dead
        else:
            self._dead.pop((host, port), None)

    async def _addresses(self, host: str, port: int, limit: Limit, deadline_ms: int | None) -> list[str]:
        try:
            async with self._in_time(limit, deadline_ms):
                return await addresses_of(self._config, self._loop, host, port)
        except OSError as error:
            message = f"the host name {host} can't be resolved: {_reason(error)}"
            raise not_written(ConnectionLostError(message)) from error

    @asynccontextmanager
    async def _in_time(self, limit: Limit, deadline_ms: int | None) -> AsyncIterator[None]:
        """Bound the time of the body; the TimeoutError names the config."""
        now_ms = self._loop.time() * 1000
        until_ms, config = now_ms + limit.ms, limit.config
        if deadline_ms is not None and deadline_ms < until_ms:
            until_ms, config = deadline_ms, "what was left of max_block_ms"
        scope = PatientTimeout(self._loop, until_ms)
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise  # the system's own, e.g. of TCP
            raise TimeoutError(f"not ready within {max(until_ms - now_ms, 0):.0f} ms ({config})") from error

    async def _open(self, address: str, port: int, host: str, node_id: int) -> Connection:
        return await open_connection(
            address,
            port,
            host=host,
            node_id=node_id,
            config=self._config,
            loop=self._loop,
            on_close=self._on_close,
            on_capacity=self._on_capacity,
            on_internal_error=self._on_internal_error,
            tls=self._tls,
            authenticate=self._authenticate,
            metrics=self._metrics,
            cluster_id=self.cluster_id if node_id >= 0 else None,
        )


def _rotated(addresses: list[str], after: str | None) -> list[str]:
    if after not in addresses:
        return addresses
    first = addresses.index(after) + 1
    return addresses[first:] + addresses[:first]


def _no_connection(host: str, port: int, failures: list[tuple[str, Exception]]) -> KafkaError:
    reasons = "; ".join(f"{'' if address == host else f'{address}: '}{_reason(error)}" for address, error in failures)
    error = not_written(ConnectionLostError(f"no connection to {host_port(host, port)}: {reasons or 'no address'}"))
    error.__cause__ = failures[-1][1] if failures else None
    return error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno and (error.strerror or "").startswith("Connect call failed"):
        return f"[Errno {error.errno}] {os.strerror(error.errno)}"  # asyncio's own loop has one text for all
    return str(error) or type(error).__name__
