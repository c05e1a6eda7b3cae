"""RecordPreparation: runs user code on a record before it is admitted.

Interceptors see the record first, then serializers turn key and value into bytes, then a custom partitioner may choose
the partition.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import operator
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any

from aioproducer._arguments import bytes_of
from aioproducer.client_logger import ClientLogger
from aioproducer.config.values import INTERCEPTOR_METHODS
from aioproducer.errors import KafkaError, SerializationError, SerializerNotReadyError
from aioproducer.log_limit import WARN_EVERY_MS, LogLimit
from aioproducer.net.cancellation import is_own_cancellation
from aioproducer.partitioners import BUILT_IN, BuiltIn
from aioproducer.records import BatchResult, PartitionInfo, Record, RecordMetadata
from aioproducer.serializers import BindableSerializer, BoundSerializer, as_function

logger: logging.Logger = logging.getLogger("aioproducer.record_preparation")

Bound = Callable[[str, Any, Any], Any]
"""A serializer as ``f(topic, headers, value)``; its result may be an awaitable."""

Use = tuple[str, Bound | None]
"""The word key or value, and its serializer."""


class RecordPreparation:
    """The user's interceptors, serializers and partitioner, behind one interface.

    Args:
        partitioner: ``f(topic, key, value, partitions) -> int`` on serialized bytes, or None. It may return
            BUILT_IN, which leaves the choice to the built-in one.
        max_block_ms: passed to serializers that wait for something themselves.
        max_record_bytes: a key or value with more bytes is refused before it is copied.
        client_id: the producer's, for the log.
    """

    def __init__(
        self,
        *,
        interceptors: Sequence[Any],
        key_serializer: Any,
        value_serializer: Any,
        partitioner: Callable[[str, bytes | None, bytes | None, tuple[PartitionInfo, ...]], int | BuiltIn] | None,
        max_block_ms: int,
        max_record_bytes: int,
        client_id: str,
    ) -> None:
        self._logger = ClientLogger(logger, client_id)
        self._with = {name: [each for each in interceptors if hasattr(each, name)] for name in INTERCEPTOR_METHODS}
        """The interceptors that have a method; none is required to."""
        self.intercepts = bool(interceptors)
        self._warnings = LogLimit(WARN_EVERY_MS)
        self._max_record_bytes = max_record_bytes
        self._bound: list[tuple[str, BoundSerializer]] = []
        self._serializers, self._serializers_nowait = zip(
            self._bind("key", key_serializer, max_block_ms),
            self._bind("value", value_serializer, max_block_ms),
            strict=True,
        )
        self.adds_headers = any(bound.adds_headers for _, bound in self._bound)
        """Whether each record needs its own list of headers, which serializers change."""
        self.partitioner = partitioner

    def _bind(self, what: str, serializer: Any, max_block_ms: int) -> tuple[Use, Use]:
        """A serializer for calls that may wait, and one for calls that may not."""
        if isinstance(serializer, BindableSerializer):
            bound = serializer.bind(is_key=what == "key", max_block_ms=max_block_ms)
            self._bound.append((what, bound))
            return (what, _guarded(what, bound.serialize)), (what, _guarded(what, bound.serialize_nowait))
        use = what, None if serializer is None else _guarded(what, as_function(serializer))
        return use, use

    @property
    def is_trivial(self) -> bool:
        """Whether there is no user code to run."""
        return not self.intercepts and self.partitioner is None and all(f is None for _, f in self._serializers)

    @property
    def serializers_at_once(self) -> tuple[Bound | None, Bound | None] | None:
        """Serializers of keys and values for records that wait for nothing; None if other user code has to run."""
        if self.intercepts or self.partitioner is not None or self.adds_headers:
            return None
        (_, key), (_, value) = self._serializers_nowait
        return key, value

    def intercept(self, record: Record) -> Record:
        """Pass the record through ``on_send`` of each interceptor; one that fails is logged and skipped."""
        record = _lasting(record)
        for interceptor in self._with["on_send"]:
            try:
                changed = interceptor.on_send(record)
                if isinstance(changed, Record):
                    changed = _lasting(changed)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException:  # also a CancelledError, which is then that of a future that it looked at
                self._warn(interceptor, "on_send", "raised", exc_info=True)
                continue
            if not isinstance(changed, Record):
                self._warn(interceptor, "on_send", f"returned a {type(changed).__name__}, not a Record")
            elif changed.topic is None:
                record = replace(changed, topic=record.topic)
            else:
                record = changed
        return record

    def _tell(self, method: str, *arguments: Any) -> None:
        """Call a method of each interceptor that has it; one that fails is logged and skipped."""
        for interceptor in self._with[method]:
            try:
                getattr(interceptor, method)(*arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException:
                self._warn(interceptor, method, "raised", exc_info=True)

    def _warn(self, interceptor: Any, method: str, what: str, *, exc_info: bool = False) -> None:
        """Log what a method did, unless it did so for an earlier record within the last minute."""
        name = f"{type(interceptor).__name__}.{method}"
        if self._warnings.allows(int(time.monotonic() * 1000), (name, what)):
            self._logger.warning("interceptor %s %s", name, what, exc_info=exc_info)

    def ended(self, metadata: RecordMetadata | None, error: KafkaError | None, headers: Any) -> None:
        """Call ``on_acknowledgement`` of each interceptor with the outcome of a record."""
        self._tell("on_acknowledgement", metadata, error, headers)

    def started(self, client_id: str) -> None:
        """Call ``on_start`` of each interceptor with the client id of the producer whose records it will see."""
        self._tell("on_start", client_id)

    def cluster_known(self, cluster_id: str) -> None:
        """Call ``on_cluster`` of each interceptor with the id of the cluster that gets the records from now on."""
        self._tell("on_cluster", cluster_id)

    def transaction_began(self) -> None:
        """Call ``on_transaction_begin`` of each interceptor."""
        self._tell("on_transaction_begin")

    def transaction_ended(self, committed: bool) -> None:
        """Call ``on_transaction_end`` of each interceptor, with whether it was committed."""
        self._tell("on_transaction_end", committed)

    def bulk_began(self, topic: str | None) -> None:
        """Call ``on_bulk_begin`` of each interceptor, in the sending task."""
        self._tell("on_bulk_begin", topic)

    def bulk_ended(self, result: BatchResult | None, error: BaseException | None) -> None:
        """Call ``on_bulk_end`` of each interceptor, in the same task, with the result or the error."""
        self._tell("on_bulk_end", result, error)

    def close(self) -> None:
        """Close each interceptor."""
        self._tell("close")

    def closing_serializers(self) -> dict[str, Coroutine[Any, Any, None]]:
        """A coroutine per bound serializer that closes it, by its name; failures are logged."""
        return {f"{what}_serializer {type(bound).__name__}": self._closing(bound) for what, bound in self._bound}

    async def _closing(self, bound: BoundSerializer) -> None:
        try:
            await bound.close()
        except (Exception, asyncio.CancelledError) as error:
            if is_own_cancellation(error):
                raise
            self._logger.warning("serializer %s.close raised", type(bound).__name__, exc_info=True)

    def serialize_nowait(self, record: Record) -> tuple[bytes | None, bytes | None]:
        """Key and value as bytes, from serializers that need no await.

        Raises:
            SerializationError: a serializer raised, returned no bytes, or has to be awaited.
        """
        return self._serialize_one(record, 0, record.key), self._serialize_one(record, 1, record.value)

    def _serialize_one(self, record: Record, index: int, data: Any) -> bytes | None:
        what, serializer = self._serializers_nowait[index]
        result = self._call(serializer, record, data)
        if result is None or type(result) is bytes:  # as most are; whether it can be awaited takes longer to find out
            return result
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise SerializerNotReadyError(
                f"{what}_serializer for topic {record.topic!r} is asynchronous: "
                "await submit() or send() instead of submit_nowait()"
            )
        return self._as_bytes(what, record, result)

    async def serialize(self, record: Record) -> tuple[bytes | None, bytes | None]:
        """Key and value as bytes, from serializers of either kind.

        Raises:
            SerializationError: a serializer raised, or returned no bytes.
        """
        results = []
        for (what, serializer), data in zip(self._serializers, (record.key, record.value), strict=True):
            result = self._call(serializer, record, data)
            if result is not None and type(result) is not bytes:
                if inspect.isawaitable(result):
                    result = await self._awaited(what, record, result)
                result = self._as_bytes(what, record, result)
            results.append(result)
        return results[0], results[1]

    def _call(self, serializer: Bound | None, record: Record, data: Any) -> Any:
        if serializer is None or data is None:
            return data
        return serializer(record.topic or "", record.headers, data)

    async def _awaited(self, what: str, record: Record, result: Awaitable[Any]) -> Any:
        try:
            return await result
        except SerializationError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if is_own_cancellation(error):
                raise
            raise _failed(what, record.topic, error) from error

    def _as_bytes(self, what: str, record: Record, result: Any) -> bytes | None:
        if result is None or isinstance(result, bytes):
            return result
        if isinstance(result, str):
            try:
                return result.encode()
            except UnicodeEncodeError as error:
                raise SerializationError(
                    f"the {what} of a record for topic {record.topic!r} is a str that can't be encoded as UTF-8 "
                    f"({error.reason})"
                ) from None
        return bytes_of(result, what, record.topic, self._max_record_bytes)

    def choose_partition(
        self,
        record: Record,
        key: bytes | None,
        value: bytes | None,
        partitions_of: Callable[[str], tuple[PartitionInfo, ...]],
    ) -> int | None:
        """The record's own partition, or the custom partitioner's choice; None leaves it to the built-in one.

        Raises:
            SerializationError: the partitioner raised, or returned no partition of the topic.
        """
        if record.partition is not None or self.partitioner is None:
            return record.partition
        assert record.topic is not None
        partitions = partitions_of(record.topic)
        try:
            chosen = self.partitioner(record.topic, key, value, partitions)
        except (Exception, asyncio.CancelledError) as error:  # as in _guarded
            raise SerializationError(
                f"the partitioner raised {type(error).__name__} for a record of topic {record.topic!r}"
            ) from error
        if chosen is BUILT_IN:
            return None
        number = _number(chosen)
        if number is None or not 0 <= number < len(partitions):
            shown = f"a {type(chosen).__name__}" if number is None else number  # it may have returned the key
            raise SerializationError(
                f"the partitioner returned {shown} for topic {record.topic!r}, "
                f"which has partitions 0 to {len(partitions) - 1}"
            )
        return number


def _number(chosen: object) -> int | None:
    """A partitioner's choice as an int; None if it is not an integer."""
    if isinstance(chosen, bool):
        return None
    try:
        return operator.index(chosen)  # type: ignore[arg-type]
    except Exception:  # TypeError, or what its own __index__ raised
        return None


def _lasting(record: Record) -> Record:
    """The record with headers that can be read several times: by interceptors, serializers and the encoder."""
    if record.headers is not None and isinstance(record.headers, Iterator):
        return replace(record, headers=list(record.headers))
    return record


def _guarded(what: str, serializer: Bound) -> Bound:
    """The serializer, with errors that name it and the record's topic."""

    def serialize(topic: str, headers: Any, data: Any) -> Any:
        try:
            return serializer(topic, headers, data)
        except SerializationError:
            raise  # it already says what is wrong
        except (Exception, asyncio.CancelledError) as error:
            # No task can be cancelled within a plain call: a CancelledError is that of a future that it looked at.
            raise _failed(what, topic, error) from error

    return serialize


def _failed(what: str, topic: str | None, error: BaseException) -> SerializationError:
    return SerializationError(f"{what}_serializer raised {type(error).__name__} for a record of topic {topic!r}")
