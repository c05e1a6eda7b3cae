"""Admission: base class of Producer, with the whole fast path of submit in one compiled call."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar, final

from aioproducer._accumulator import RecordAccumulator
from aioproducer._delivery import Delivery
from aioproducer.records import Headers, Key_contra, RecordMetadata, Value_contra

T_co = TypeVar("T_co", covariant=True)

class Admission(Generic[Key_contra, Value_contra]):
    """Turns calls into admitted records, or hands them to the slow path of its subclass."""

    def send(
        self,
        topic: str,
        value: Value_contra | None = None,
        *,
        key: Key_contra | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> Submission[RecordMetadata]:
        """Send one record and wait until the brokers have acknowledged it; returns its place in the log.

        Waits for metadata and memory as ``submit`` does, then for the acknowledgement. Only ``send`` cuts linger short:
        its batch is ready at the end of the loop's turn if its broker owes no answer, else when that answer arrives, so
        many concurrent sends still make few batches. If cancelled before the record is in the buffer, it is not sent;
        after that, delivery goes on.

        Args:
            topic: created by the broker if it does not exist, ``auto.create.topics.enable`` is set there, and
                ``allow_auto_create_topics`` here.
            value, key: bytes-like, str (UTF-8), None, or what the configured serializer takes.
            partition: None chooses by murmur2 of the key, or without a key one partition after the other.
            headers: pairs of (str, bytes | None), or a mapping; order and repeated names are kept.
            timestamp_ms: milliseconds since the epoch; None means the time of its admission.
        Raises:
            BufferExhaustedError, MetadataTimeoutError, and all others that ``submit`` raises: not in the log.
            DeliveryTimeoutError: not acknowledged within ``delivery_timeout_ms``; ``maybe_written`` says whether it
                may still be in the log.
            KafkaError: the record failed for another reason; ``maybe_written`` as above. In a transaction it is
                ``abortable`` or ``fatal``.
        Source: KafkaProducer.send; KIP-91 (timeouts).
        """

    def submit(
        self,
        topic: str,
        value: Value_contra | None = None,
        *,
        key: Key_contra | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> Submission[Delivery]:
        """Put one record in the buffer and return its Delivery.

        Waits for metadata and memory, together at most ``max_block_ms``, not counting the time of the user's serializer
        and partitioner; never for an acknowledgement. Callers that wait for memory are served in order of arrival.
        Records of one task are appended in call order, and copied before this returns. A loop of submits gives the
        event loop a turn at least every millisecond or 256 KiB.

        Args:
            topic, value, key, partition, headers, timestamp_ms: as for ``send``.
        Raises:
            BufferExhaustedError: memory stayed full; the record was not admitted.
            MetadataTimeoutError: the topic, or this partition of it, did not become known; not admitted.
            InvalidTopicError, TopicAuthorizationFailedError: the name is invalid, or the user may not see the topic;
                not admitted.
            RecordTooLargeError: above ``max_request_size`` or ``buffer_memory``; not admitted.
            SerializationError: an argument has a wrong type or value, or a serializer raised; not admitted.
            AuthenticationError: the topic is not known, and no broker accepts this client; not admitted.
            TransactionStateError: with a ``transactional_id``, outside of a transaction; not admitted.
            TransactionAbortedError: the open transaction can only be aborted; not admitted.
            NotStartedError, ProducerClosedError, WrongLoopError: called too early, too late or from elsewhere.
        Source: KafkaProducer.send; KIP-91 (timeouts).
        """

    def submit_nowait(
        self,
        topic: str,
        value: Value_contra | None = None,
        *,
        key: Key_contra | None = None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Put one record in the buffer now, or raise; returns its Delivery.

        A plain call that waits for nothing. The record belongs to the producer, not to the task that submitted it. The
        full-speed pattern is to call it until BufferExhaustedError, then ``await ready()``.

        Args:
            topic, value, key, partition, headers, timestamp_ms: as for ``send``.
        Raises:
            BufferExhaustedError: there is no memory, or other callers are waiting for it; not admitted.
            MetadataUnavailableError: the topic, or this partition of it, is not known yet; not admitted.
            RecordTooLargeError, SerializationError: as for ``submit``.
            TransactionStateError, TransactionAbortedError: as for ``submit``.
            NotStartedError, ProducerClosedError, WrongLoopError: as for ``submit``.
        """

    # --- for the subclass ---------------------------------------------------------------------------------------------

    def _open_admission(
        self,
        accumulator: RecordAccumulator,
        loop: asyncio.AbstractEventLoop,
        *,
        direct: bool,
        max_record_bytes: int,
        serializers: tuple[Callable[[str, Any, Any], Any] | None, Callable[[str, Any, Any], Any] | None] | None = None,
        clocks: tuple[Callable[[], float], Callable[[], float]] | None = None,
    ) -> None:
        """Admit records from now on, called from this thread.

        Args:
            direct: no user code (interceptors, serializers, partitioner) has to run.
            max_record_bytes: largest size of one record, its batch's header included.
            serializers: of keys and of values, ``f(topic, headers, data)``, if there is no other user code. A result
                that is not bytes, str or None leads to the slow path; so does their SerializerNotReadyError in calls
                that may wait.
            clocks: (the loop's seconds, wall seconds), replacing all clocks; for loops in which time stands still.
        """

    def _close_admission(self) -> None:
        """Refuse records from now on, by ``_refuse``."""

    @property
    def _is_open(self) -> bool:
        """Whether the producer is started and not closed."""

    @property
    def _is_admitting(self) -> bool:
        """Whether it is open and takes records now."""

    def _admit_records(self, admit: bool) -> None:
        """Take records from now on, or refuse them by ``_refuse``, while the producer is open."""

    @property
    def _queueing(self) -> bool:
        """Whether a caller waits for memory; later calls then queue behind it."""

    @_queueing.setter
    def _queueing(self, queueing: bool) -> None: ...
    def _turn_taken(self) -> None:
        """A turn of the loop has just begun."""

    @property
    def _wanted_bytes(self) -> int:
        """Upper bound, in bytes, for the latest record that found no memory."""

    @property
    def _turn_is_due(self) -> bool:
        """Whether the loop's last turn is a millisecond or 256 KiB ago."""

    def _look_again(self) -> None:
        """Read topics and clocks again at the next call; a turn of the loop has just begun."""

    def _admit(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
        awaited: bool,
        queued: bool = False,
    ) -> Delivery | None:
        """Append a record whose key and value need no work; None if it has to wait for metadata or memory.

        Args:
            awaited: it comes from ``send``.
            queued: the caller is the first in the queue for memory.
        """

    def _admit_serialized(
        self,
        topic: str | None,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
    ) -> Delivery | None:
        """Serialize and append a record; None leaves it to the slow path."""

    def _refuse(self) -> NoReturn:
        """Raise why nothing is admitted here and now."""

    async def _submit_slow(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
        awaited: bool,
    ) -> Delivery:
        """Admit a record that has to wait, or that user code has to see first."""

    def _submit_now_slow(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Headers | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        """Admit a record that user code has to see first; raise instead of waiting."""

@final
class Submission(Coroutine[Any, Any, T_co], Generic[T_co]):
    """What ``submit`` and ``send`` return: a coroutine in all but type, with a compiled first step.

    As with any coroutine, nothing happens before its first step; if it is never awaited, nothing is sent, and Python
    gives a RuntimeWarning. It may be awaited once, or given to ``create_task``, ``TaskGroup.create_task``, ``gather``,
    ``wait_for``, ``shield``.
    """

    @property
    def __name__(self) -> str: ...
    @property
    def __qualname__(self) -> str: ...
    @property
    def cr_running(self) -> bool: ...
    @property
    def cr_suspended(self) -> bool: ...
    @property
    def cr_frame(self) -> None: ...
    def __await__(self) -> Generator[Any, None, T_co]: ...
    # It is iterable too, but declaring that would make type checkers take it for a generator and lose its result.
    def send(self, value: Any, /) -> Any: ...
    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any: ...
    def close(self) -> None: ...
