"""The transactions that programs began, and what they were told has become of each."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from aioproducer.records import OffsetAndMetadata, PreparedTransaction, TopicPartition
from tests.simulation.records import Sent

GROUP = "group"
POSITION = TopicPartition("input", 0)
"""What every transaction with offsets sets; each sets one of its own besides."""


class Fate(enum.Enum):
    """What has become of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True, eq=False)
class Written:
    """One transaction.

    Attributes:
        number: over all producers, in the order of begin_transaction().
        records: that were sent while it was open, admitted or not.
        calls: of the program to end it, without repetitions.
        muddled: a call was cancelled, or ran out of time, so nobody knows any more which ones have begun.
        has_rivals: another task of the program has called to end it as well.
        spoilt: a call told that it can only be aborted.
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
        """What nobody else commits an offset of."""
        return TopicPartition("input", 1 + self.number)

    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What it commits for the group."""
        return {POSITION: OffsetAndMetadata(self.number), self.position: OffsetAndMetadata(self.number)}

    @property
    def may_be_committed(self) -> bool:
        """Whether anybody has asked for that."""
        return "commit" in self.calls

    def called(self, name: str) -> None:
        """The program calls ``commit``, ``abort`` or ``prepare``, or somebody else does for it."""
        self.calls[name] = None


class Ledger:
    """See the module.

    Args:
        broken: told what must never happen.
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
        """Somebody was told what has become of it."""
        self._tell("%s says that transaction %d is %s", by, one.number, fate.value)
        for other, source in one.fates.items():
            if other is not fate:
                self._broken("%s is %s, says %s, and %s, says %s", one, other.value, source, fate.value, by)
        one.fates.setdefault(fate, by)
        if fate is Fate.COMMITTED and one.spoilt is not None:
            self._broken("%s is committed, says %s, though before it could only be aborted: %s", one, by, one.spoilt)
        if fate is Fate.COMMITTED and not one.may_be_committed:
            self._broken("%s is committed, says %s, and nobody asked for it", one, by)
