"""aiokafka's producer: ``from aioproducer.compat.aiokafka import AIOKafkaProducer`` in place of ``from aiokafka``.

Constructor, methods, defaults and results are those of aiokafka 0.12 and later; docs/from-aiokafka.md lists the
differences. If a program has imported ``aiokafka.errors``, raised errors are also instances of its classes.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeAlias, cast

from aioproducer import (
    ConsumerGroupMetadata,
    Delivery,
    OAuthToken,
    OffsetAndMetadata,
    PartitionInfo,
    Producer,
    ProducerState,
    TopicPartition,
)
from aioproducer import RecordMetadata as OwnMetadata
from aioproducer.bare_errors import raises_bare
from aioproducer.compat.aiokafka_batch import BatchBuilder, whole
from aioproducer.compat.aiokafka_errors import familiar, raising_familiar
from aioproducer.config.values import ACKS, with_ports
from aioproducer.errors import (
    ConfigError,
    DeliveryErrors,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
    TransactionAbortedError,
)
from aioproducer.transaction.block import Transaction

__all__ = ["AIOKafkaProducer", "BatchBuilder", "RecordMetadata", "TransactionContext"]

UNSET: Any = object()
Partitioner: TypeAlias = Callable[[bytes | None, list[int], list[int]], int]
"""A function of the key's bytes, all partitions, and those that have a leader."""


class RecordMetadata(NamedTuple):
    """Where an acknowledged record stands in the log, with aiokafka's fields."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    timestamp_type: int | None = None
    """Not reported."""
    log_start_offset: int | None = None
    """Not reported."""


Place: TypeAlias = RecordMetadata | Any
"""None with ``acks=0``. Programs made for aiokafka, whose calls have no types, check for that only where it can be."""


class AIOKafkaProducer:
    """aiokafka's producer on ``aioproducer.Producer``, which is ``producer.native``.

    The arguments are aiokafka's. ``loop`` and ``api_version`` are accepted and ignored. Floats are truncated.

    Args:
        interceptor_classes: only here, as instrumentation made for aiokafka's class does not see this one. Objects such
            as ``aioproducer.integrations.opentelemetry.Tracing()``, as for ``aioproducer.Producer``.
    Raises:
        ConfigError: also a ValueError, for an invalid value.
    """

    @raises_bare(ConfigError)
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | Iterable[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: float = 300_000,
        request_timeout_ms: float = 40_000,
        api_version: str | None = None,
        acks: int | str = UNSET,
        key_serializer: Callable[[Any], bytes] | None = None,
        value_serializer: Callable[[Any], bytes] | None = None,
        compression_type: str | None = None,
        max_batch_size: float = 16_384,
        partitioner: Partitioner | None = None,
        max_request_size: float = 1_048_576,
        linger_ms: float = 0,
        retry_backoff_ms: float = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        connections_max_idle_ms: float | None = 540_000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: float = 60_000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
        interceptor_classes: Sequence[Any] = (),
    ) -> None:
        if sasl_kerberos_domain_name is not None:
            raise ValueError("sasl_kerberos_domain_name has no counterpart: the broker's own host name is used")
        idempotent = enable_idempotence or transactional_id is not None
        if acks is UNSET:
            acks = "all" if idempotent else 1
        configs: dict[str, Any] = {
            "bootstrap_servers": _addresses(bootstrap_servers),
            "metadata_max_age_ms": metadata_max_age_ms,
            "request_timeout_ms": request_timeout_ms,
            # One time limit for everything: a request, a record, a call that waits for room.
            "delivery_timeout_ms": request_timeout_ms + linger_ms,
            "max_block_ms": request_timeout_ms,
            "acks": "all" if acks == -1 else acks,
            "compression_type": compression_type or "none",
            "batch_size": max_batch_size,
            "max_request_size": max_request_size,
            # aiokafka has no limit beside the record's: one must fit while another is on its way.
            "buffer_memory": _at_least(33_554_432, max_request_size, factor=2),
            "linger_ms": linger_ms,
            "retry_backoff_ms": retry_backoff_ms,
            "retry_backoff_max_ms": _at_least(1_000, retry_backoff_ms),
            "security_protocol": security_protocol,
            "connections_max_idle_ms": -1 if connections_max_idle_ms is None else connections_max_idle_ms,
            "enable_idempotence": idempotent,
            "interceptor_classes": tuple(interceptor_classes),
        }
        if not idempotent:
            configs["max_in_flight_requests_per_connection"] = 1  # aiokafka keeps the order of each partition
        if client_id is not None:
            configs["client_id"] = client_id
        if transactional_id is not None:
            configs |= {"transactional_id": transactional_id, "transaction_timeout_ms": transaction_timeout_ms}
        if partitioner is not None:
            configs["partitioner_class"] = _partitioner(partitioner)
        protocol = str(security_protocol).upper()
        # aiokafka ignores what the protocol does not need: programs always pass it, and switch by the protocol alone.
        if ssl_context is not None and protocol.endswith("SSL"):
            configs["ssl_context"] = ssl_context
        if protocol.startswith("SASL"):
            configs |= _login(
                sasl_mechanism, sasl_plain_username, sasl_plain_password, sasl_kerberos_service_name,
                sasl_oauth_token_provider,
            )  # fmt: skip
        self.native: Producer = Producer(**{name: whole(value) for name, value in configs.items()})
        self._is_acknowledged = ACKS.parse(whole(acks)) != 0
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._max_batch_size = max_batch_size
        self._partitioner = partitioner

    # --- its life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect to the cluster."""
        with raising_familiar():
            await self.native.start()

    async def stop(self) -> None:
        """Send what is pending and close everything. Failed records do not make it raise: their futures do.

        A producer whose start failed has nothing to close, and may be started again, as in aiokafka.
        """
        if self.native.health().state is ProducerState.NEW:
            return
        with raising_familiar(), suppress(DeliveryErrors):
            await self.native.close()

    async def flush(self) -> None:
        """Wait until every record sent so far has ended. Failed records do not make it raise: their futures do."""
        state = self.native.health().state
        if state is ProducerState.CLOSING:
            # It waits for the same records. A task of its own, as a close that is cancelled drops them.
            closed = asyncio.create_task(self.stop())
            await asyncio.wait([closed])
            closed.result()
        elif state not in (ProducerState.NEW, ProducerState.CLOSED):
            with raising_familiar(), suppress(DeliveryErrors):
                await self.native.flush()
            await asyncio.sleep(0)  # for the callbacks of the futures, which the last turn has ended

    @property
    def _closed(self) -> bool:
        """An attribute of aiokafka's that FastStream's ``ping`` reads: whether the producer can't send any more."""
        return self.native.health().state in (ProducerState.FAILED, ProducerState.CLOSING, ProducerState.CLOSED)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    # --- sending ------------------------------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions."""
        with raising_familiar():
            return {info.partition for info in await self.native.partitions_for(topic)}

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> asyncio.Future[Place]:
        """Put a record in the buffer; waits for metadata and room. The future has its outcome; None with ``acks=0``."""
        record = self._record(value, key, partition, timestamp_ms, headers)
        with raising_familiar():
            delivery = await self.native.submit(topic, **record)
        future: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        if delivery.done():
            self._end(future, delivery)
        else:
            delivery.add_done_callback(lambda delivery: self._end(future, delivery))
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: float | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> Place:
        """Send a record and wait until it has ended, without waiting for linger."""
        record = self._record(value, key, partition, timestamp_ms, headers)
        with raising_familiar():
            own = await self.native.send(topic, **record)
        return _metadata(own) if self._is_acknowledged else None

    def _record(
        self,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: float | None,
        headers: Sequence[tuple[str, bytes]] | None,
    ) -> dict[str, Any]:
        """The arguments of the calls of ``native``."""
        assert not (value is None and key is None), "Need at least one: key or value"
        return {
            "key": key if self._key_serializer is None else self._key_serializer(key),
            "value": value if self._value_serializer is None else self._value_serializer(value),
            "partition": partition,
            "headers": headers,
            "timestamp_ms": whole(timestamp_ms),
        }

    def _end(self, future: asyncio.Future[Place], delivery: Delivery) -> None:
        if future.done():
            return
        error = delivery.exception()
        if error is not None:
            future.set_exception(familiar(error))
            if isinstance(error, TransactionAbortedError):
                future.exception()  # the abort was the program's own, or commit tells: asyncio need not report it
        else:
            future.set_result(_metadata(delivery.result()) if self._is_acknowledged else None)

    # --- batches ------------------------------------------------------------------------------------------------------

    def create_batch(self) -> BatchBuilder:
        """An empty batch, to fill and pass to ``send_batch``."""
        return BatchBuilder(self._max_batch_size, self._key_serializer, self._value_serializer)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int | None) -> asyncio.Future[Place]:
        """Put a batch's records in the buffer; the future ends with the last one and has the first one's place.

        ``partition=None`` sends all to one, which the partitioner chooses for a key of None.
        """
        batch.close()
        if partition is None:
            with raising_familiar():
                partition = _one_of(await self.native.partitions_for(topic), self._partitioner)
        future: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        deliveries: list[Delivery] = []
        refused: list[KafkaError] = []
        with raising_familiar():
            for record in batch.records:
                try:
                    deliveries.append(
                        await self.native.submit(
                            topic,
                            record.value,
                            key=record.key,
                            partition=partition,
                            headers=record.headers,
                            timestamp_ms=record.timestamp,
                        )
                    )
                except (RecordTooLargeError, SerializationError) as error:
                    refused.append(error)  # only this record's: the others are sent anyway

        ended = partial(self._batch_ended, future, deliveries, refused)
        if deliveries:
            deliveries[-1].add_done_callback(ended)  # usually the last to end: all are in one partition
        else:
            ended(None)
        return future

    def _batch_ended(
        self, future: asyncio.Future[Place], deliveries: list[Delivery], refused: list[KafkaError], _: Delivery | None
    ) -> None:
        """End a batch's future, unless records of it have not ended."""
        if (left := next((one for one in deliveries if not one.done()), None)) is not None:
            # An abort drops unsent records before those in flight have ended.
            left.add_done_callback(partial(self._batch_ended, future, deliveries, refused))
            return
        # Looked at even if the future was cancelled, so that they are not logged as failures nobody cared about.
        failed = [error for error in map(Delivery.exception, deliveries) if error is not None]
        if future.done():
            return
        if failed or refused:
            # Others that a broker refused with that record only say that they shared its batch.
            at_fault = [error for error in failed if error.record_refused]
            future.set_exception(familiar((refused + at_fault + failed)[0]))
        elif deliveries:
            self._end(future, deliveries[0])
        else:
            future.set_result(None)

    # --- transactions -------------------------------------------------------------------------------------------------

    async def begin_transaction(self) -> None:
        """Begin a transaction; records sent from now on belong to it."""
        with raising_familiar():
            await self.native.begin_transaction()

    async def commit_transaction(self) -> None:
        """Send what is pending, and commit."""
        with raising_familiar():
            await self.native.commit_transaction()

    async def abort_transaction(self) -> None:
        """Abort; pending records are not sent."""
        with raising_familiar():
            await self.native.abort_transaction()

    def transaction(self) -> TransactionContext:
        """``async with producer.transaction():`` begins, and commits at the end; aborts if body or commit fails."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, int | tuple[int, str]], group_id: str) -> None:
        """Commit a consumer group's positions with the transaction."""
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        with raising_familiar():
            await self.native.send_offsets_to_transaction(_positions(offsets), ConsumerGroupMetadata(group_id))


class TransactionContext:
    """One transaction, as ``AIOKafkaProducer.transaction()`` makes it."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer
        self._native: Transaction | None = None

    async def __aenter__(self) -> Self:
        with raising_familiar():
            self._native = self._producer.native.transaction()
            await self._native.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._native is not None
        with raising_familiar():
            await self._native.__aexit__(kind, error, traceback)


def _metadata(own: OwnMetadata) -> RecordMetadata:
    return RecordMetadata(
        own.topic, own.partition, TopicPartition(own.topic, own.partition), own.offset, own.timestamp_ms
    )


def _positions(offsets: Mapping[Any, int | tuple[int, str]]) -> dict[TopicPartition, int | OffsetAndMetadata]:
    """Convert to ``native``'s form, which checks each field; a malformed argument is a ValueError, as in aiokafka."""
    if not offsets or not isinstance(offsets, Mapping):
        raise ValueError(f"a mapping of partitions to positions is needed, not {offsets!r}")
    positions: dict[TopicPartition, int | OffsetAndMetadata] = {}
    for partition, position in offsets.items():
        if isinstance(position, int):
            positions[partition] = position
            continue
        try:
            offset, metadata = position
        except (TypeError, ValueError):
            raise ValueError(f"the position of {partition} is an offset, or (offset, metadata)") from None
        positions[partition] = OffsetAndMetadata(offset, metadata)
    return positions


def _addresses(servers: str | Iterable[str]) -> Any:
    """Split addresses: one string may hold several; empty ones and duplicates are dropped. Others are refused later."""
    listed = servers.split(",") if isinstance(servers, str) else servers
    try:
        return list(dict.fromkeys(with_ports(server for server in map(str.strip, listed) if server)))
    except TypeError:
        return servers


def _at_least(default: int, argument: Any, factor: int = 1) -> float:
    """A config that bounds an argument, raised as far as that needs; what is no number is refused elsewhere."""
    return max(default, factor * argument) if isinstance(argument, (int, float)) else default


def _partitioner(
    theirs: Partitioner,
) -> Callable[[str, bytes | None, bytes | None, tuple[PartitionInfo, ...]], int] | None:
    if (type(theirs).__module__, type(theirs).__qualname__) == ("aiokafka.partitioner", "DefaultPartitioner"):
        return None  # the built-in one puts keys into the same partitions, in compiled code

    def choose(topic: str, key: bytes | None, value: bytes | None, partitions: tuple[PartitionInfo, ...]) -> int:
        return theirs(key, *_numbers(partitions))

    return choose


def _one_of(partitions: tuple[PartitionInfo, ...], partitioner: Partitioner | None) -> int:
    everything, available = _numbers(partitions)
    return random.choice(available or everything) if partitioner is None else partitioner(None, everything, available)


def _numbers(partitions: tuple[PartitionInfo, ...]) -> tuple[list[int], list[int]]:
    """All partitions, and those that have a leader."""
    return [info.partition for info in partitions], [info.partition for info in partitions if info.leader is not None]


def _login(mechanism: str, username: str | None, password: str | None, service: str, provider: Any) -> dict[str, Any]:
    configs: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "GSSAPI":
        configs["sasl_kerberos_service_name"] = service
    elif mechanism == "OAUTHBEARER":
        configs["sasl_oauth_token_provider"] = None if provider is None else _token_of(provider)
    else:
        configs |= {"sasl_username": username, "sasl_password": password}
    return configs


def _token_of(provider: Any) -> Callable[[], Awaitable[OAuthToken | str]]:
    """aiokafka's provider has a second, optional method for what a login sends beside the token (KIP-342)."""
    if not callable(getattr(provider, "extensions", None)):
        return cast(Callable[[], Awaitable[str]], provider.token)

    async def token() -> OAuthToken:
        value = await provider.token()
        return OAuthToken(value, extensions={str(name): str(text) for name, text in provider.extensions().items()})

    return token
