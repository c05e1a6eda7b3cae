"""Coordinators: finds the coordinator of a transactional id or a group, and asks it until it answers.

A request is repeated with back-off as long as its error is transient, at the new coordinator if it has moved. There is
no time limit here: the caller limits the wait, and says when the answer is no longer wanted.

A refused login is a wrong password at first; once a coordinator has answered, one that is being changed.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from aioproducer.backoff import RequestBackoff
from aioproducer.client_logger import ClientLogger
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.error_codes import Code
from aioproducer.errors import (
    AuthenticationError,
    KafkaError,
    ProducerClosedError,
    ProtocolError,
    UnsupportedVersionError,
    broker_error,
    error_class,
)
from aioproducer.log_limit import WARN_EVERY_MS, LogLimit
from aioproducer.net.client import NetworkClient
from aioproducer.net.connection import Connection, not_written
from aioproducer.net.nodes import SLOW_MS
from aioproducer.protocol.find_coordinator import GROUP, TRANSACTION, Coordinator, FindCoordinatorRequest
from aioproducer.protocol.schema import Message, Request
from aioproducer.transaction.errors import Reaction, as_told, reaction

logger: logging.Logger = logging.getLogger("aioproducer.coordinator")

KINDS = {GROUP: "group", TRANSACTION: "transactional id"}
KEYS_SINCE_VERSION = 4
SOON = 5
"""How often a request is repeated because of errors that either pass soon or stay (RETRY_SOON)."""
BUSY_ATTEMPTS = 8
"""How often a coordinator may still be ending the previous transaction before that is told: before transactions V2 it
is for most that follow one another, for a few milliseconds."""
MOST_TOPICS = 5
"""The most topics that a message names."""
IN_DOUBT = frozenset(
    (Code.UNKNOWN_SERVER_ERROR, Code.REQUEST_TIMED_OUT, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
)
"""Codes of a coordinator that could not write its log in time, or lost it; the next one may find the write there."""

M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class _Login:
    """What is known of this client's login, by all calls together."""

    was_right: bool = False
    """Whether a coordinator has answered."""


@dataclass(frozen=True, slots=True)
class Answered(Generic[M]):
    """An answer, and where it came from."""

    response: M
    connection: Connection


def always() -> bool:
    """The answer is wanted whatever happens."""
    return True


def nothing() -> None:
    """Nobody wants to know."""


class Coordinators:
    """The coordinators that one client deals with.

    Args:
        request_metadata: called when a coordinator is a broker that the Cluster lacks, or has at another address.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        client: NetworkClient,
        rng: random.Random,
        request_metadata: Callable[[], None],
    ) -> None:
        self.last_error: KafkaError | None = None
        """The error of the latest attempt, if it failed; the cause of a timeout."""
        self._logger = ClientLogger(logger, config.client_id)
        self._request_timeout_ms = config.request_timeout_ms
        self._backoff = RequestBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._loop = loop
        self._client = client
        self._rng = rng
        self._request_metadata = request_metadata
        self._nodes: dict[tuple[int, str], int] = {}
        self._told = LogLimit(WARN_EVERY_MS)
        self._login = _Login()

    def for_one_call(self) -> Self:
        """The same coordinators, with a ``last_error`` that other calls running at the same time don't touch."""
        alike = copy.copy(self)
        alike.last_error = None
        return alike

    async def ask(
        self,
        kind: int,
        key: str,
        request: Request[M],
        *,
        error_of: Callable[[M], int],
        topics_of: Callable[[M, int], Iterable[str]] | None = None,
        max_version: int | None = None,
        min_version: int = 0,
        wanted: Callable[[], bool] = always,
        lost: Callable[[], None] = nothing,
    ) -> Answered[M]:
        """Send a request to the coordinator of a key until the answer has no error, or one that repeating can't cure.

        Args:
            kind: GROUP or TRANSACTION.
            error_of: returns the error code of an answer, 0 for none. It may raise ProtocolError for an impossible one:
                that ends the connection, and the request is repeated as after a lost answer.
            topics_of: returns the topics to which the answer attaches such a code.
            wanted: asked before each repetition; False ends the attempts with the latest error.
            lost: called when an attempt was written but not answered, so it may arrive late, whatever happens to the
                others.
        Raises:
            KafkaError: flagged ``abortable`` or ``fatal`` by what it means for a transaction; ``maybe_written``: an
                attempt may have been carried out, because it was written and never answered, or the answer leaves it
                open.
        """
        attempts = 0
        soon = SOON
        doubtful = False
        maybe_done = False
        while True:
            try:
                connection = await self._connection(kind, key)
                version = _version(connection, type(request), min_version, max_version)
                response = await connection.request(request, version=version)
                self._login.was_right = True
                code = _code(connection, response, error_of)
                if not code:
                    connection.in_charge = True
                    self.last_error = None
                    return Answered(response, connection)
                topics = dict.fromkeys(topics_of(response, code)) if topics_of else {}
                error = _refusal(connection, request, code, _whose(kind, key, list(topics)))
                api_key = request.API_KEY
                maybe_done = maybe_done or code in IN_DOUBT
                if code == Code.NOT_COORDINATOR:
                    connection.doubt(attempts + 1)
            except ProducerClosedError:
                raise
            except _CoordinatorRefused as refused:
                error, api_key = refused.error, FindCoordinatorRequest.API_KEY
            except KafkaError as failure:
                error, api_key = failure, request.API_KEY
                if failure.maybe_written:
                    doubtful = True
                    lost()
            self.last_error = error
            what = reaction(api_key, error)
            if self._login.was_right and isinstance(error, AuthenticationError):
                what = Reaction.FIND
            if what is Reaction.FIND:
                self._nodes.pop((kind, key), None)
            elif what is Reaction.RETRY_SOON:
                what = Reaction.RETRY if soon else Reaction.FATAL
                soon -= 1
            if what > Reaction.FIND or not wanted():
                told = as_told(what, error, getattr(request, "transactional_id", key))
                told.maybe_written = doubtful or maybe_done
                raise told
            self._tell(type(request).__name__, kind, key, error, attempts)
            await asyncio.sleep(self._backoff.delay_ms(attempts, self._rng, error.code) / 1000)
            attempts += 1

    def _tell(self, request: str, kind: int, key: str, error: KafkaError, attempts: int) -> None:
        """Log that a request will be repeated; once a minute for the same error."""
        if error.code == Code.CONCURRENT_TRANSACTIONS and attempts < BUSY_ATTEMPTS:
            return
        if self._told.allows(self._now_ms(), (request, kind, key, error.code)):
            self._logger.info("%s for %s %r will be retried: %s", request, KINDS[kind], key, str(error))

    # --- which broker it is -------------------------------------------------------------------------------------------

    async def _connection(self, kind: int, key: str) -> Connection:
        """A connection to the coordinator that can take a request now."""
        node_id = self._nodes.get((kind, key))
        if node_id is None:
            try:
                coordinator = await self._find(kind, key)
            except KafkaError as error:
                not_written(error)  # FindCoordinator, perhaps, but not the request itself
                raise
            node_id = self._nodes[kind, key] = coordinator.node_id
            if not self._client.knows_at(node_id, coordinator.host, coordinator.port):
                self._request_metadata()
        # Not for long: if the broker can't be reached, another one is the coordinator by now, or soon will be.
        patience_ms = min(SLOW_MS, self._request_timeout_ms)
        return await self._client.ready_connection(node_id, self._now_ms() + patience_ms)

    async def _find(self, kind: int, key: str) -> Coordinator:
        connection = await self._client.any_ready_connection(self._now_ms() + self._request_timeout_ms)
        version = connection.version(FindCoordinatorRequest)
        if version < 1 and kind == TRANSACTION:
            raise UnsupportedVersionError(f"{connection} has no coordinators of transactions: Kafka 0.11 or newer has")
        if version >= KEYS_SINCE_VERSION:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            request = FindCoordinatorRequest(key=key, key_type=kind)
        response = await connection.request(request, version=version)
        if version >= KEYS_SINCE_VERSION:
            if (count := len(response.coordinators)) != 1:
                raise connection.nonsense(
                    f"FindCoordinator for {_whose(kind, key)} was answered with {count} coordinators"
                )
            (found,) = response.coordinators
        else:
            found = Coordinator(
                key=key,
                node_id=response.node_id,
                host=response.host,
                port=response.port,
                error_code=response.error_code,
                error_message=response.error_message,
            )
        if found.error_code:
            raise _CoordinatorRefused(_refusal(connection, request, found.error_code, _whose(kind, key)))
        return found

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


class _CoordinatorRefused(Exception):
    """FindCoordinator returned an error; from a coordinator the same code would mean something else."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error)
        self.error = error


def _code(connection: Connection, response: M, error_of: Callable[[M], int]) -> int:
    try:
        return error_of(response)
    except ProtocolError as error:
        raise connection.nonsense(str(error)) from error


def _version(connection: Connection, request: type[Request[Any]], min_version: int, max_version: int | None) -> int:
    version = connection.version(request)
    if max_version is not None:
        version = min(version, max_version)
    if version < min_version:
        raise UnsupportedVersionError(
            f"{connection} speaks {request.__name__.removesuffix('Request')} up to version {version}, "
            f"{min_version} is needed"
        )
    return version


def _whose(kind: int, key: str, topics: Sequence[str] = ()) -> str:
    named = ", ".join(map(repr, topics[:MOST_TOPICS])) + ", ..." * (len(topics) > MOST_TOPICS)
    return f"{KINDS[kind]} {key!r}" + (f" and topic {named}" if named else "")


def _refusal(connection: Connection, request: Request[Any], code: int, whose: str) -> KafkaError:
    kind = error_class(code)
    api = type(request).__name__.removesuffix("Request")
    return broker_error(code, f"{connection} answered {kind.name} to {api} for {whose}: {kind.meaning}")
