"""The transactions that programs began, and what they were told about their outcome."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from aioproducer.records import OffsetAndMetadata, PreparedTransaction, TopicPartition
from tests.simulation.records import Sent

GROUP = "group"
POSITION = TopicPartition("input", 0)
"""Set by every transaction with offsets; each also sets its own position."""


class Fate(enum.Enum):
    """The outcome of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Written:
    """One transaction.

    Attributes:
        number: over all producers, in the order of begin_transaction().
        records: those sent while it was open, admitted or not.
        calls: the program's calls to end it, without repetitions.
        muddled: a call was cancelled, or timed out, so it is unknown which ones have begun.
        has_rivals: another task of the program has called to end it as well.
        spoilt: a call said that it can only be aborted.
    """

    number: int
    owner: str
    records: list[Sent] = field(default_factory=list)
    calls: dict[str, None] = field(default_factory=dict)
    fates: dict[Fate, str] = field(default_factory=dict)
    prepared: PreparedTransaction | None = None
    offsets_sent: bool = False
    offsets_taken: bool = False
    muddled: bool = False
    has_rivals: bool = False
    spoilt: str | None = None

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.owner}"

    @property
    def position(self) -> TopicPartition:
        """The partition whose offset only this transaction commits."""
        return TopicPartition("input", 1 + self.number)

    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that it commits for the group."""
        return {POSITION: OffsetAndMetadata(self.number), self.position: OffsetAndMetadata(self.number)}

    @property
    def may_be_committed(self) -> bool:
        """Whether any call has asked for a commit."""
        return "commit" in self.calls

    def called(self, name: str) -> None:
        """The program, or another process for it, calls ``commit``, ``abort`` or ``prepare``."""
        self.calls[name] = None


class Ledger:
    """All transactions of a run.

    Args:
        broken: called with violated invariants.
        tell: a template and its facts, for the story.
    """

    def __init__(self, broken: Callable[..., None], tell: Callable[..., None]) -> None:
        self._broken = broken
        self._tell = tell
        self.written: list[Written] = []
        self.of_record: dict[int, Written] = {}

    def begin(self, owner: str) -> Written:
        """A transaction was begun."""
        one = Written(len(self.written), owner)
        self.written.append(one)
        self._tell("%s begins transaction %d", owner, one.number)
        return one

    def sent(self, record: Sent, one: Written) -> None:
        """A record is being sent in a transaction."""
        one.records.append(record)
        self.of_record[record.number] = one

    def told(self, one: Written, fate: Fate, by: str) -> None:
        """A caller was told a transaction's outcome."""
        self._tell("%s says that transaction %d is %s", by, one.number, fate.value)
        for other, source in one.fates.items():
            if other is not fate:
                self._broken("%s is %s, says %s, and %s, says %s", one, other.value, source, fate.value, by)
        one.fates.setdefault(fate, by)
        if fate is Fate.COMMITTED and one.spoilt is not None:
            self._broken("%s is committed, says %s, though before it could only be aborted: %s", one, by, one.spoilt)
        if fate is Fate.COMMITTED and not one.may_be_committed:
            self._broken("%s is committed, says %s, and nobody asked for it", one, by)
