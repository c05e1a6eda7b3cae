"""The records that a program tries to send, and what it learns about each."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aioproducer.errors import KafkaError
from aioproducer.records import RecordMetadata


class Look(Enum):
    """Whether, and when, the program observes a record's outcome."""

    AT_ONCE = "a callback from the start"
    LATER = "an await, some time"
    NEVER = "never"
    AS_SEND = "the send itself"


class State(Enum):
    """What the program knows about a record."""

    MADE = "made"
    CALLING = "calling"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    PENDING = "pending"
    ACKED = "acked"
    FAILED = "failed"


@dataclass(slots=True, eq=False)
class Sent:
    """One record.

    ``began`` and ``admitted`` are steps of the run: numbers that grow with each action of the program. A record that
    was admitted before another one's call began is before it in their partition.
    """

    number: int
    task: int
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes | None]] | None
    timestamp_ms: int | None
    look: Look
    began: int
    began_s: float
    state: State = State.MADE
    admitted: int | None = None
    spans: dict[int, list[tuple[int, int]]] | None = None
    admitted_s: float | None = None
    ended_s: float | None = None
    ended: int | None = None
    metadata: RecordMetadata | None = None
    error: BaseException | None = None
    ends: int = 0
    intercepted: int = 0
    acknowledged: int = 0
    closed_off: bool = False
    looked: bool = False

    def __str__(self) -> str:
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        error = "" if self.error is None else f": {type(self.error).__name__}: {self.error}"
        return f"record {self.number} of task {self.task} for {where}, {self.state.value}{error}"


@dataclass(slots=True, eq=False)
class Flush:
    """One flush, or the flush that is a part of close."""

    began: int
    began_s: float
    what: str = "flush"
    ended: int | None = None
    ended_s: float = 0.0
    outcome: str = "running"
    record_count: int = 0


@dataclass(slots=True)
class Books:
    """Everything that the program did and learned."""

    records: list[Sent] = field(default_factory=list)
    flushes: list[Flush] = field(default_factory=list)
    on_error_records: int = 0
    on_error_calls: list[tuple[str, int]] = field(default_factory=list)
    step: int = 0

    def next_step(self) -> int:
        """The number of the next step."""
        self.step += 1
        return self.step

    def heard(self, record: Sent, now_s: float, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """A record ended."""
        record.ends += 1
        record.ended_s = now_s
        record.ended = self.next_step()
        record.metadata, record.error = metadata, error
        record.state = State.ACKED if error is None else State.FAILED

    def forget_tracebacks(self) -> None:
        """Release the frames that errors hold, and the Deliveries in them.

        The collector does not track Deliveries, so the whole run would stay in memory.
        """
        for record in self.records:
            if record.error is not None:
                record.error.__traceback__ = record.error.__cause__ = record.error.__context__ = None

    def on_error(self, error: KafkaError, records: int) -> None:
        """The callback for the producer's on_error."""
        self.on_error_records += records
        self.on_error_calls.append((type(error).__name__, records))


def maybe_written(error: Any) -> bool:
    """Whether an error says that the record may be in the log."""
    return bool(getattr(error, "maybe_written", False))
