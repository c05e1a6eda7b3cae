"""One broker from the client's view: its address, its connection, and when to try it again."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from aioproducer.backoff import ExponentialBackoff
from aioproducer.cluster import Broker
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, KafkaError, RequestTimedOutError
from aioproducer.message_text import host_port

if TYPE_CHECKING:
    from aioproducer.net.connection import Connection

REFUSAL_LASTS_MS = 5_000
"""A broker's refusals count after so much time without another outcome. One that has just started may refuse a good
login for a moment: Amazon MSK does if too many clients come back at once, others do not know all users yet.
"""


class Refusals:
    """The refusals of one broker, or of ``bootstrap_servers``: how long there has been no other outcome."""

    def __init__(self) -> None:
        self._since_ms: int | None = None

    def have_lasted(self, now_ms: int) -> bool:
        """Note a refusal; returns whether they have lasted for REFUSAL_LASTS_MS."""
        if self._since_ms is None:
            self._since_ms = now_ms
        return now_ms >= self._since_ms + REFUSAL_LASTS_MS

    def end(self) -> None:
        """It has accepted this client."""
        self._since_ms = None


class ReconnectPolicy:
    """The back-off of connection attempts and their growing time limit, the same for all nodes.

    Source: KIP-144 (reconnect back-off), KIP-601 (setup timeout).
    """

    def __init__(self, config: ProducerConfig, rng: random.Random) -> None:
        self._rng = rng
        self._delay = ExponentialBackoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
        self._limit = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
        )

    def delay_ms(self, failed_attempts: int) -> int:
        """How long to leave a node alone after this many consecutive failures (at least 1)."""
        return self._delay.delay_ms(failed_attempts - 1, self._rng)

    def limit_ms(self, failed_attempts: int) -> int:
        """How long the next attempt may take after this many consecutive failures."""
        return self._limit.delay_ms(failed_attempts, self._rng)


class Node:
    """The state of one broker.

    ========== ============ ======= ===================================================================
    state      connection   task    leaves it by
    ========== ============ ======= ===================================================================
    idle       None         None    ``attempted`` once ``retry_at_ms`` has passed
    connecting None         set     ``connected`` or ``failed``
    connected  set          None    ``disconnected``; only after that the node can be tried again
    ========== ============ ======= ===================================================================

    ``gone`` means that the cluster no longer lists the broker; the node stays until its connection has ended.
    """

    def __init__(self, broker: Broker, policy: ReconnectPolicy) -> None:
        self.node_id: int = broker.node_id
        self.host: str = broker.host
        self.port: int = broker.port
        self.gone = False
        self.connection: Connection | None = None
        self.task: asyncio.Task[None] | None = None
        self.error: KafkaError | None = None
        self.out_of_reach = False
        """Whether the latest attempt failed, or the broker was silent. One that ends a connection may take the next:
        brokers end idle ones (``connections.max.idle.ms``).
        """
        self.last_address: str | None = None
        self.attempted_ms: int = -1
        self.retry_at_ms: int = 0
        self.authentication_error: AuthenticationError | None = None
        """Why the broker and this client do not accept each other, if that has lasted for REFUSAL_LASTS_MS."""
        self._refusals = Refusals()
        self._failed_attempts = 0
        self._policy = policy

    def __str__(self) -> str:
        return f"node {self.node_id} ({host_port(self.host, self.port)})"

    @property
    def connecting(self) -> bool:
        """Whether an attempt is under way."""
        return self.task is not None

    @property
    def rests(self) -> bool:
        """Whether its latest connection ended on this side, such as for want of use, and nothing has failed since."""
        return self.last_address is not None and self.connection is None and self.error is None

    def is_at(self, host: str, port: int) -> bool:
        """Whether this is the node's address."""
        return (self.host, self.port) == (host, port)

    def connectable(self, now_ms: int) -> bool:
        """Whether an attempt may start."""
        return self.connection is None and self.task is None and not self.gone and self.retry_at_ms <= now_ms

    def limit_ms(self) -> int:
        """How long the next attempt may take for each address."""
        return self._policy.limit_ms(self._failed_attempts)

    def attempted(self, task: asyncio.Task[None], now_ms: int) -> None:
        """An attempt has started."""
        self.task = task
        self.attempted_ms = now_ms

    def connected(self, connection: Connection) -> None:
        """The attempt produced a connection that is ready for requests; only this resets the back-off."""
        self.task = None
        self.connection = connection
        self.last_address = connection.address
        self.error = None
        self._begin_anew()

    def failed(self, error: KafkaError, now_ms: int) -> None:
        """The attempt produced no connection."""
        self.task = None
        self.out_of_reach = True
        self.authentication_error = None
        if isinstance(error, AuthenticationError) and self._refusals.have_lasted(now_ms):
            self.authentication_error = error
        self._back_off(error, now_ms)

    def disconnected(self, error: KafkaError | None, now_ms: int) -> None:
        """The connection ended; without an error it was on purpose, and it may be made again at once."""
        self.connection = None
        if error is not None:
            self.out_of_reach = isinstance(error, RequestTimedOutError)
            self._back_off(error, now_ms)

    def cancel_attempt(self) -> None:
        """Cancel the attempt under way, if there is one; it then does not touch the node."""
        if self.task is not None:
            self.task.cancel()
            self.task = None

    def give_up(self) -> None:
        """Send nothing more to the address of the attempt or the connection."""
        self.cancel_attempt()
        if self.connection is not None:
            self.connection.close_when_idle()

    def moved(self, broker: Broker) -> None:
        """The broker has a new address, without known failures."""
        self.host, self.port = broker.host, broker.port
        self.error = None
        self.last_address = None
        self.retry_at_ms = 0
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Earlier failures don't count any more."""
        self.out_of_reach = False
        self.authentication_error = None
        self._refusals.end()
        self._failed_attempts = 0

    def _back_off(self, error: KafkaError, now_ms: int) -> None:
        self.error = error
        self._failed_attempts += 1
        self.retry_at_ms = now_ms + self._policy.delay_ms(self._failed_attempts)
