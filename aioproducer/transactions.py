"""Transactions from outside the producer that wrote them: end prepared ones, inspect them, and clean up.

A producer that has prepared its transaction hands a PreparedTransaction to the process that decides:

    prepared = await producer.prepare_transaction()         # and close the producer, or crash
    ...
    await transactions.commit(prepared, bootstrap_servers="localhost:9092")

Every call may be repeated: a committed transaction stays committed, and another ``commit`` of it just returns. The
functions open and close their own connections; to end many transactions, open a TransactionClient and use its methods.

Source: KIP-98 (EndTxn), KIP-664 (ListTransactions, DescribeTransactions), KIP-890.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Self, Unpack

from aioproducer.bare_errors import raises_bare
from aioproducer.config.keywords import ProducerConfigs
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.coordinator import Coordinators
from aioproducer.errors import (
    AlreadyStartedError,
    ConfigError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    NotStartedError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionalIdNotFoundError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    TransactionTimeoutError,
    UnsupportedVersionError,
    broker_error,
    error_class,
)
from aioproducer.metadata import Metadata
from aioproducer.net.client import NetworkClient
from aioproducer.net.sasl.authenticator import SaslAuthenticator
from aioproducer.patient_timer import PatientTimeout
from aioproducer.protocol.list_transactions import ListTransactionsRequest
from aioproducer.records import PreparedTransaction
from aioproducer.transaction.outcome import (
    TransactionDescription,
    TransactionListing,
    TransactionOutcome,
    outcome_of,
)
from aioproducer.transaction.requests import TransactionRequests

__all__ = [
    "PreparedTransaction",
    "TransactionClient",
    "TransactionDescription",
    "TransactionListing",
    "TransactionOutcome",
    "abort",
    "abort_transactions",
    "commit",
    "describe_transactions",
    "list_transactions",
    "outcome",
]

OPEN_STATES = ("Ongoing",)
LOOK_AGAIN_S = 0.1

_MOVED_ON = (ProducerFencedError, InvalidTxnStateError, InvalidProducerIdMappingError)
"""EndTxn errors that mean the transaction is no longer open."""


class TransactionClient:
    """Connections for inspecting and ending transactions; an async context manager.

    Each call takes at most ``max_block_ms``, then raises TransactionTimeoutError; ``abort_transactions`` takes up to
    that long for the list, and again for each transaction that it aborts.

    Args:
        configs: those of Producer; configs about records have no effect here.
    """

    @raises_bare(ConfigError)
    def __init__(self, **configs: Unpack[ProducerConfigs[Any, Any]]) -> None:
        self._config = ProducerConfig.parse(configs)
        self._client: NetworkClient | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    async def start(self) -> None:
        """Connect to the cluster; at most ``max_block_ms``.

        Raises:
            BootstrapError, AuthenticationError: as for ``Producer.start``.
            ProducerClosedError: it was closed meanwhile.
        """
        if self._client is not None:
            raise AlreadyStartedError("the client was started already")
        self._failure = None
        loop = self._loop = asyncio.get_running_loop()
        rng = self._chance()
        authenticate = None
        if self._config.uses_sasl:
            sasl = SaslAuthenticator(self._config, loop=loop, rng=rng, on_internal_error=self._failed)
            authenticate = sasl.authenticate
        client = self._client = NetworkClient(
            self._config, loop=loop, rng=rng, on_internal_error=self._failed, authenticate=authenticate
        )
        self._metadata = Metadata(self._config, client, loop=loop, rng=rng, on_fatal=self._failed)
        self._coordinators = Coordinators(
            self._config, loop=loop, client=client, rng=rng, request_metadata=self._metadata.request_update
        )
        try:
            await self._metadata.bootstrap(int(loop.time() * 1000) + self._config.max_block_ms)
            if self._client is not client:
                raise ProducerClosedError("the client was closed while it started")
        except BaseException:
            if self._client is client:
                self._client = None
            client.drop()  # the wait for its end may be cancelled
            await client.close()
            raise
        self._task = loop.create_task(self._metadata.run(), name="aioproducer metadata")

    def _chance(self) -> random.Random:
        """The source of randomness: back-off jitter and the order of brokers."""
        return random.Random()

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        if self._client is not None:
            client, self._client = self._client, None
            task, self._task = self._task, None
            # All of this before the first wait, which may be cancelled.
            self._metadata.close()
            client.drop()
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await client.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _failed(self, cause: BaseException) -> None:
        self._failure = cause

    # --- prepared transactions ----------------------------------------------------------------------------------------

    async def outcome(self, prepared: PreparedTransaction) -> TransactionOutcome:
        """How a prepared transaction ended, if it has.

        Raises:
            UnsupportedVersionError: the broker can't tell; Kafka 3.0 or newer can.
        """
        if prepared.is_empty:
            return TransactionOutcome.EMPTY
        async with self._bounded(f"outcome of {prepared.transactional_id!r}") as coordinators:
            return await _outcome(coordinators, prepared)

    async def commit(self, prepared: PreparedTransaction) -> None:
        """Commit a prepared transaction; also returns if it is already committed, or empty.

        Raises:
            TransactionAbortedError: it was aborted; nothing of it is visible.
            TransactionOutcomeUnknownError: it has ended, but its outcome can no longer be known.
            TransactionTimeoutError: it has not ended within ``max_block_ms``; call this again.
        """
        async with self._bounded(f"commit of {prepared.transactional_id!r}", in_doubt=True) as coordinators:
            ended = await _end(coordinators, prepared, committed=True)
        if ended is TransactionOutcome.ABORTED:
            raise TransactionAbortedError(
                f"the transaction of {prepared.transactional_id!r} can't be committed, it was aborted: by abort(), by "
                "a newer producer of the id, or by the coordinator after transaction_timeout_ms"
            )

    async def abort(self, prepared: PreparedTransaction) -> None:
        """Abort a prepared transaction; also returns if it is already aborted, or empty.

        Raises:
            TransactionStateError: it was committed, and stays committed.
            TransactionOutcomeUnknownError: it has ended, but its outcome can no longer be known.
            TransactionTimeoutError: it has not ended within ``max_block_ms``; call this again.
        """
        async with self._bounded(f"abort of {prepared.transactional_id!r}", in_doubt=True) as coordinators:
            ended = await _end(coordinators, prepared, committed=False)
        if ended is TransactionOutcome.COMMITTED:
            raise TransactionStateError(
                f"the transaction of {prepared.transactional_id!r} can't be aborted, it was committed",
                maybe_written=True,
            )

    # --- all of them --------------------------------------------------------------------------------------------------

    async def describe(self, transactional_id: str) -> TransactionDescription | None:
        """The state of a transactional id at its coordinator; None if it is unknown there.

        Raises:
            UnsupportedVersionError: the broker can't tell; Kafka 3.0 or newer can.
        """
        async with self._bounded(f"description of {transactional_id!r}") as coordinators:
            return await _describe(coordinators, transactional_id)

    async def list_transactions(self, prefix: str = "", *, states: Collection[str] = ()) -> list[TransactionListing]:
        """The transactional ids that start with ``prefix``, sorted; asks every broker.

        If one can't answer, or leaves the cluster, all are asked again: another broker may have taken over its ids.

        Args:
            states: only ids in one of these states, by Kafka's names, e.g. ``Ongoing``; all by default.
        Raises:
            ConfigError: no broker knows one of the states.
            TypeError: states is one str.
            UnsupportedVersionError: a broker can't tell; Kafka 3.0 or newer can.
        """
        _check_collection("states", states)
        async with self._bounded("list of transactions") as coordinators:
            while (found := await self._list_everywhere(states, coordinators)) is None:
                self._metadata.request_update()
                await asyncio.sleep(LOOK_AGAIN_S)
        # During a cluster upgrade it is enough if some brokers know a state.
        unknown = set(states).intersection(*(unknown for _, unknown in found))
        if unknown:
            raise ConfigError(
                f"no broker knows the states {', '.join(map(repr, sorted(unknown)))}; Kafka's names look like Ongoing"
            )
        listings = {each.transactional_id: each for part, _ in found for each in part}
        return [listings[name] for name in sorted(listings) if name.startswith(prefix)]

    async def _list_everywhere(
        self, states: Collection[str], coordinators: Coordinators
    ) -> list[tuple[list[TransactionListing], list[str]]] | None:
        """The answers of all brokers; None if one could not answer, but a later list may do without it."""
        asking = [self._list_at(node_id, states) for node_id in sorted(self._metadata.cluster.brokers)]
        ends = await asyncio.gather(*asking, return_exceptions=True)
        errors = [end for end in ends if isinstance(end, BaseException)]
        for error in errors:
            if not isinstance(error, KafkaError) or not error.retriable:
                raise error
            coordinators.last_error = error
        return None if errors else [end for end in ends if not isinstance(end, BaseException)]

    async def _list_at(self, node_id: int, states: Collection[str]) -> tuple[list[TransactionListing], list[str]]:
        """The transactions that a broker coordinates, and the states that it does not know."""
        deadline_ms = int(self._loop.time() * 1000) + self._config.request_timeout_ms
        connection = await self._network.ready_connection(node_id, deadline_ms)
        response = await connection.request(ListTransactionsRequest(state_filters=list(states)))
        if response.error_code:
            kind = error_class(response.error_code)
            raise broker_error(response.error_code, f"node {node_id} answered {kind.name} to ListTransactions")
        listings = [
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node_id)
            for each in response.transaction_states
        ]
        return listings, response.unknown_state_filters

    async def abort_transactions(
        self, prefix: str, *, keep: Collection[PreparedTransaction | str] = ()
    ) -> list[TransactionListing]:
        """Abort every open transaction whose transactional id starts with ``prefix``; returns those aborted.

        Their producers are fenced, if they are still alive.

        Args:
            keep: transactional ids, or prepared transactions, to leave alone.
        Raises:
            TypeError: ``keep`` is a single str.
        """
        _check_collection("keep", keep)
        kept = {each if isinstance(each, str) else each.transactional_id for each in keep}
        found = await self.list_transactions(prefix, states=OPEN_STATES)
        wanted = [each for each in found if each.transactional_id not in kept]
        for each in wanted:
            await self.fence(each.transactional_id)
        return wanted

    async def fence(self, transactional_id: str) -> None:
        """Take over a transactional id: its producer is fenced, and its open transaction aborted when this returns."""
        async with self._bounded(f"fencing of {transactional_id!r}") as coordinators:
            requests = TransactionRequests(coordinators, transactional_id)
            await requests.init_producer_id(self._config.transaction_timeout_ms)

    # --- bounds -------------------------------------------------------------------------------------------------------

    @property
    def _network(self) -> NetworkClient:
        if self._client is None:
            raise NotStartedError("the client was not started, or was closed; use async with")
        if self._failure is not None:
            raise ProducerFailedError(f"the client has failed: {self._failure!r}", cause=self._failure)
        return self._client

    @asynccontextmanager
    async def _bounded(self, what: str, *, in_doubt: bool = False) -> AsyncIterator[Coordinators]:
        """Raise if it takes too long; ``in_doubt``: the transaction may have been committed then."""
        assert self._network
        coordinators = self._coordinators.for_one_call()
        loop = asyncio.get_running_loop()
        timer = PatientTimeout(loop, loop.time() * 1000 + self._config.max_block_ms)
        try:
            async with timer:
                yield coordinators
        except TimeoutError as error:
            if not timer.expired():
                raise
            last = coordinators.last_error
            told = f"; the last error was: {last}" if last is not None else ""
            raise TransactionTimeoutError(
                f"{what} had not ended after max_block_ms={self._config.max_block_ms}{told}", maybe_written=in_doubt
            ) from last or error


async def _end(coordinators: Coordinators, prepared: PreparedTransaction, *, committed: bool) -> TransactionOutcome:
    wanted = TransactionOutcome.COMMITTED if committed else TransactionOutcome.ABORTED
    # Look first: before V2 the epoch stays the same, so EndTxn alone could end a later transaction of the producer.
    known = await _outcome_if_told(coordinators, prepared)
    if known not in (None, TransactionOutcome.OPEN):
        return _known(prepared, known)
    requests = TransactionRequests(coordinators, prepared.transactional_id)
    is_v2 = prepared.transaction_version >= 2
    try:
        await requests.end(prepared.producer_id, prepared.epoch, committed=committed, is_v2=is_v2)
    except _MOVED_ON as error:
        known = await _outcome_if_told(coordinators, prepared)
        if known is None and isinstance(error, InvalidTxnStateError):
            # The same epoch, but the transaction in it ended the other way.
            known = TransactionOutcome.ABORTED if committed else TransactionOutcome.COMMITTED
        if known is TransactionOutcome.OPEN:
            raise
        return _known(prepared, known, error)
    return wanted


async def _outcome(coordinators: Coordinators, prepared: PreparedTransaction) -> TransactionOutcome:
    return outcome_of(prepared, await _describe(coordinators, prepared.transactional_id))


async def _outcome_if_told(coordinators: Coordinators, prepared: PreparedTransaction) -> TransactionOutcome | None:
    """The outcome; None if the brokers can't tell, or could not when it was prepared."""
    if prepared.is_empty:
        return TransactionOutcome.EMPTY
    if prepared.started_ms < 0:
        return None
    try:
        return await _outcome(coordinators, prepared)
    except UnsupportedVersionError:
        return None


async def _describe(coordinators: Coordinators, transactional_id: str) -> TransactionDescription | None:
    try:
        return await TransactionRequests(coordinators, transactional_id).describe()
    except TransactionalIdNotFoundError:
        return None


def _known(
    prepared: PreparedTransaction, known: TransactionOutcome | None, cause: KafkaError | None = None
) -> TransactionOutcome:
    if known in (None, TransactionOutcome.UNKNOWN):
        raise TransactionOutcomeUnknownError(
            f"the transaction of {prepared.transactional_id!r} (producer id {prepared.producer_id}, epoch "
            f"{prepared.epoch}) is not open any more, and whether it was committed can no longer be known: its "
            "transactional id has been used again since, or was forgotten by the cluster",
            maybe_written=True,
        ) from cause
    assert known is not None
    return known


# --- one call each ----------------------------------------------------------------------------------------------------


async def commit(prepared: PreparedTransaction, **configs: Unpack[ProducerConfigs[Any, Any]]) -> None:
    """Commit a prepared transaction, from any process: ``commit(prepared, bootstrap_servers="localhost:9092")``.

    May be repeated: also returns if it is already committed, or empty.

    Args:
        configs: those of Producer.
    Raises:
        TransactionAbortedError: it was aborted; nothing of it is visible.
        TransactionOutcomeUnknownError: it has ended, but its outcome can no longer be known.
        TransactionTimeoutError: it has not ended within ``max_block_ms``; call this again.
    """
    async with TransactionClient(**configs) as client:
        await client.commit(prepared)


async def abort(prepared: PreparedTransaction, **configs: Unpack[ProducerConfigs[Any, Any]]) -> None:
    """Abort a prepared transaction, from any process; also returns if it is already aborted, or empty.

    Args:
        configs: those of Producer.
    Raises:
        TransactionStateError: it was committed, and stays committed.
        TransactionOutcomeUnknownError, TransactionTimeoutError: as for ``commit``.
    """
    async with TransactionClient(**configs) as client:
        await client.abort(prepared)


async def outcome(prepared: PreparedTransaction, **configs: Unpack[ProducerConfigs[Any, Any]]) -> TransactionOutcome:
    """How a prepared transaction ended, if it has; see TransactionClient.outcome."""
    async with TransactionClient(**configs) as client:
        return await client.outcome(prepared)


async def list_transactions(
    prefix: str = "", *, states: Collection[str] = (), **configs: Unpack[ProducerConfigs[Any, Any]]
) -> list[TransactionListing]:
    """The transactional ids that begin with ``prefix``; see TransactionClient."""
    async with TransactionClient(**configs) as client:
        return await client.list_transactions(prefix, states=states)


async def describe_transactions(
    transactional_ids: Collection[str], **configs: Unpack[ProducerConfigs[Any, Any]]
) -> dict[str, TransactionDescription | None]:
    """The states of transactional ids at their coordinators, None for unknown ones; see TransactionClient."""
    _check_collection("transactional_ids", transactional_ids)
    async with TransactionClient(**configs) as client:
        return {each: await client.describe(each) for each in transactional_ids}


async def abort_transactions(
    prefix: str, *, keep: Collection[PreparedTransaction | str] = (), **configs: Unpack[ProducerConfigs[Any, Any]]
) -> list[TransactionListing]:
    """Abort every open transaction whose transactional id begins with ``prefix``; see TransactionClient."""
    async with TransactionClient(**configs) as client:
        return await client.abort_transactions(prefix, keep=keep)


def _check_collection(name: str, given: Collection[object]) -> None:
    if isinstance(given, str):  # its letters would count as names, and the transaction it names would be aborted
        raise TypeError(f"{name} is the str {given!r}; a collection is needed, such as [{given!r}]")
