"""Delivery: the end of one record; ProduceRequestResult: the end of one batch, shared by its Deliveries."""

from collections.abc import Callable, Generator, Sequence
from contextvars import Context
from typing import Any, NoReturn, final

from aioproducer._tally import Tally
from aioproducer.errors import KafkaError
from aioproducer.records import RecordMetadata

@final
class Delivery:
    """The end of one admitted record: pending, then acknowledged or failed, exactly once and for good.

    Awaitable any number of times, by any number of tasks of the producer's event loop, before or after the end.
    Cancelling a task that awaits it cancels only that wait: an admitted record can't be recalled. Truthy and hashable;
    created only by ``submit`` and ``submit_nowait``.

    A failure counts as observed once the Delivery was awaited, asked for its ``result`` or ``exception``, or given a
    callback. A failure dropped unobserved is reported by ``on_error`` and by ``flush`` or ``close``.
    """

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Wait until the record has ended; returns its place in the log.

        Raises:
            KafkaError: the record failed; ``maybe_written`` says whether it may still be in the log. Each call raises
                a new error object.
            DeliveryTimeoutError: it was not acknowledged within ``delivery_timeout_ms`` of its admission.
            WrongLoopError: awaited while pending in a loop other than the producer's.
        """

    @property
    def topic(self) -> str:
        """The topic the record goes to."""

    @property
    def partition(self) -> int:
        """The partition the record goes to."""

    def done(self) -> bool:
        """Whether the record has ended. Does not count as observing a failure."""

    def result(self) -> RecordMetadata:
        """The record's place in the log, as ``await`` gives it, without waiting.

        Raises:
            asyncio.InvalidStateError: the record has not ended.
            KafkaError: the record failed.
        """

    def exception(self) -> KafkaError | None:
        """Why the record failed, or None if it was acknowledged.

        Raises:
            asyncio.InvalidStateError: the record has not ended.
        """

    def peek_exception(self) -> KafkaError | None:
        """Like ``exception``, but None while pending and without observing. For the producer's own use."""

    def cancel(self, msg: object = None) -> bool:
        """Do nothing and return False: an admitted record can't be recalled."""

    def cancelled(self) -> bool:
        """Always False: a record ends as acknowledged or failed."""

    def add_done_callback(self, fn: Callable[[Delivery], object], *, context: Context | None = None) -> None:
        """Call ``fn(delivery)`` from the loop once the record has ended, or soon if it already has.

        As with an asyncio future, it runs in ``context``, or if that is None in a copy of the caller's current context.

        The callbacks of a batch run in admission order, a few hundred per turn of the loop, more if they pile up. An
        exception goes to the loop's exception handler and does not stop the others.

        Raises:
            TypeError: ``fn`` can't be called, or is an async function, which nobody would await.
            WrongLoopError: called outside the producer's loop or thread.
        """

    def remove_done_callback(self, fn: Callable[[Delivery], object]) -> int:
        """Remove ``fn`` from the done callbacks; returns how many times it was attached. For ``asyncio.wait``."""

@final
class DeliveryWaiter:
    """One await of one Delivery; what ``Delivery.__await__`` returns."""

    def __await__(self) -> DeliveryWaiter: ...
    def __iter__(self) -> DeliveryWaiter: ...
    def __next__(self) -> Any: ...
    def send(self, value: object) -> Any: ...
    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> NoReturn: ...
    def close(self) -> None: ...

@final
class ProduceRequestResult:
    """Where and how one batch ended, also if its records ended separately after a split."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def serial(self) -> int:
        """The batch's serial: its place in the order of creation, over all partitions."""

    @property
    def record_count(self) -> int: ...
    @property
    def done(self) -> bool:
        """Whether it ended; a split batch never does, its pieces do."""

    @property
    def error(self) -> KafkaError | None:
        """Why it failed; None while pending and once acknowledged."""

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """End it as acknowledged; no effect if it has already ended.

        Args:
            base_offset, log_append_time_ms: -1 if the broker did not report it.
        """

    def fail(
        self, error: KafkaError, record_errors: dict[int, KafkaError] | None = None, unobserved: bool = True
    ) -> None:
        """End it as failed; no effect if it has already ended.

        Args:
            record_errors: errors of single records by index, where the broker named some (KIP-467).
            unobserved: False keeps a failure the program itself caused out of the ledger.
        """

    def split_into(self, pieces: Sequence[tuple[int, ProduceRequestResult]]) -> None:
        """Hand every record, with its awaits and callbacks, over to smaller results.

        Args:
            pieces: (index of the piece's first record here, result), ascending; together they hold every record.
        """

def count_in(delivery: Delivery, tally: Tally) -> None:
    """Have a Tally count a record, pending or ended, as its next row; this counts as observing it."""

def watch(delivery: Delivery, fn: Callable[[Delivery], object]) -> None:
    """Like ``Delivery.add_done_callback``, but in the ledger's context and without observing."""
