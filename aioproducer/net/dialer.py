"""Makes connections: all addresses of a host in turn, each for a limited time.

An address to which packets are dropped, such as that of a machine that is off, accepts no connection and refuses none
either. So as long as there are others to try, each has only ACCEPT_MS for accepting the connection. Those that have not
are tried again at the end, with the rest of their time.

An address that failed where another one of its host accepted comes last from then on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple

from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConnectionLostError, KafkaError
from aioproducer.message_text import host_port
from aioproducer.metrics import ProducerMetrics
from aioproducer.net.connection import Connection, not_written
from aioproducer.net.opening import NotAcceptedError, open_connection
from aioproducer.net.route import addresses_of
from aioproducer.net.tls import Tls
from aioproducer.patient_timer import PatientTimeout

ACCEPT_MS = 1_500
"""A broker that can be reached accepts at once. If a packet gets lost, the system sends it again after a second."""


Others = Literal["none", "left", "done"]
"""Whether there are other hosts that will do."""


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
        others: Others = "none",
        cluster_id: str | None = None,
    ) -> Connection:
        """Resolve the host's name anew and return a connection to the first address that works.

        Args:
            limit: for resolving the name, and for each address.
            deadline_ms: for everything (``max_block_ms``).
            after: the address of the last try; the one after it comes first, unless it is known to be dead.
            stops_at_refusal: whether no other address is tried after one that does not accept this client. It is the
                same broker, unless the name stands for several.
            others: if some are ``left``, no address gets more than ACCEPT_MS for accepting the connection. Once they
                are ``done``, addresses have the rest of their time.
            cluster_id: as for ``open_connection``.
        Raises:
            NotAcceptedError: others are left, and an address of this host may yet accept.
            AuthenticationError: the broker and this client do not accept each other, and no other address worked.
            ConnectionLostError: no address worked; it names each with its cause.
        """
        failures: list[tuple[str, Exception]] = []
        refusal: AuthenticationError | None = None
        dead = self._dead.get((host, port), set())
        addresses = _rotated(await self.addresses(host, port, limit, deadline_ms), after)
        addresses.sort(key=dead.__contains__)
        for accept_ms, spent_ms in _rounds(limit, alone=len(addresses) == 1, others=others):
            slow: list[tuple[str, Exception]] = []
            for address in addresses:
                try:
                    async with self._in_time(limit, deadline_ms, spent_ms):
                        connection = await self._open(address, port, host, node_id, accept_ms, cluster_id)
                except AuthenticationError as error:
                    if stops_at_refusal:
                        raise
                    refusal = refusal or error
                except NotAcceptedError as error:
                    slow.append((address, error))
                except (KafkaError, OSError) as error:
                    failures.append((address, error))
                else:
                    failed = {each for each, _ in failures + slow}
                    self._note(host, port, (dead & set(addresses) | failed) - {address})
                    return connection
            addresses = [address for address, _ in slow]
        if slow:
            raise slow[-1][1]
        if refusal is not None:
            raise refusal
        self._note(host, port, set())  # nothing tells which is worth trying first
        raise _no_connection(host, port, failures)

    def _note(self, host: str, port: int, dead: set[str]) -> None:
        if dead:
            self._dead[host, port] = dead
        else:
            self._dead.pop((host, port), None)

    async def addresses(self, host: str, port: int, limit: Limit, deadline_ms: int | None) -> list[str]:
        """The addresses of a host.

        Raises:
            ConnectionLostError: its name can't be resolved in time.
        """
        try:
            async with self._in_time(limit, deadline_ms):
                return await addresses_of(self._config, self._loop, host, port)
        except OSError as error:
            message = f"the host name {host} can't be resolved: {_reason(error)}"
            raise not_written(ConnectionLostError(message)) from error

    @asynccontextmanager
    async def _in_time(self, limit: Limit, deadline_ms: int | None, spent_ms: int = 0) -> AsyncIterator[None]:
        """Bound the time of the body, of whose limit a part may be spent; the TimeoutError names the config."""
        now_ms = self._loop.time() * 1000
        given_ms, until_ms, config = float(limit.ms), now_ms + limit.ms - spent_ms, limit.config
        if deadline_ms is not None and deadline_ms < until_ms:
            given_ms, until_ms, config = max(deadline_ms - now_ms, 0), deadline_ms, "what was left of max_block_ms"
        scope = PatientTimeout(self._loop, until_ms)
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise  # the system's own, e.g. of TCP
            raise TimeoutError(f"not ready within {given_ms:.0f} ms ({config})") from error

    async def _open(
        self, address: str, port: int, host: str, node_id: int, accept_ms: int | None, cluster_id: str | None
    ) -> Connection:
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
            cluster_id=cluster_id,
            accept_ms=accept_ms,
        )


def _rounds(limit: Limit, *, alone: bool, others: Others) -> list[tuple[int | None, int]]:
    """How long addresses have for accepting a connection in each round, and how much of their time is spent by then."""
    hasty: tuple[int | None, int] = (ACCEPT_MS, 0)
    patient: tuple[int | None, int] = (None, ACCEPT_MS)
    if limit.ms <= ACCEPT_MS or (alone and others == "none"):
        return [(None, 0)]
    return {"left": [hasty], "none": [hasty, patient], "done": [patient]}[others]


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
