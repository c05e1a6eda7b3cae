"""One replica's log: records with their offsets, transaction markers, and the producers known from them. Pure.

What is in a log was created once, by a leader, and is shared by the replicas that copied it. So two logs that share an
entry share everything before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from aioproducer.testing.fake.batches import Batch, Headers
from aioproducer.testing.fake.producer_state import REMEMBERED_BATCHES, ProducerStates, UnknownProducer


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record in the log.

    Attributes:
        log_append_time: whether ``timestamp_ms`` is the broker's, not the producer's.
        producer_id, producer_epoch, sequence: -1 without an idempotent producer.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    log_append_time: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    transactional: bool = False


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """The control record that ends a transaction in one partition; it takes up one offset."""

    offset: int
    producer_id: int
    producer_epoch: int
    committed: bool
    first_offset: int | None
    """Where the transaction began here; None if it wrote nothing here."""

    @property
    def end_offset(self) -> int:
        """The offset of what comes next."""
        return self.offset + 1


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch at its offset. Its records get their offsets only when read."""

    offset: int
    batch: Batch
    log_append_time_ms: int | None

    @property
    def end_offset(self) -> int:
        """The offset of what comes next."""
        return self.offset + len(self.batch.records)

    def records(self) -> Iterator[LogRecord]:
        batch, fixed_ms = self.batch, self.log_append_time_ms
        numbered = batch.has_producer_id
        for index, record in enumerate(batch.records):
            yield LogRecord(
                self.offset + index,
                record.timestamp_ms if fixed_ms is None else fixed_ms,
                record.key,
                record.value,
                record.headers,
                fixed_ms is not None,
                batch.producer_id,
                batch.producer_epoch,
                batch.sequence_of(index) if numbered else -1,
                batch.transactional,
            )


LogEntry = LoggedBatch | TransactionMarker
_offset_of = attrgetter("offset")


class PartitionLog:
    """See the module.

    Attributes:
        high_watermark: what is before this offset is known to be at all replicas in sync.
    """

    def __init__(
        self,
        unknown_producer: UnknownProducer = UnknownProducer.ACCEPT,
        remembered_batches: int = REMEMBERED_BATCHES,
        start_offset: int = 0,
    ) -> None:
        self.start_offset: int = start_offset
        self.end_offset: int = start_offset
        self.high_watermark: int = start_offset
        self.producers: ProducerStates = ProducerStates(unknown_producer, remembered_batches)
        self._unknown_producer = unknown_producer
        self._remembered_batches = remembered_batches
        self._entries: list[LogEntry] = []
        self._reloaded_at = 0
        self._open_transactions: dict[int, int] = {}
        """First offset of each open transaction, by producer id."""

    @property
    def last_stable_offset(self) -> int:
        """The end for a read_committed reader: where the oldest open transaction begins."""
        return min(self._open_transactions.values(), default=self.end_offset)

    def open_transaction(self, producer_id: int) -> int | None:
        """Where a producer's open transaction begins; None if it has none here."""
        return self._open_transactions.get(producer_id)

    # --- as the leader's

    def append(self, batch: Batch, log_append_time_ms: int | None) -> int:
        """Write a checked batch, and return the offset of its first record."""
        offset = self.end_offset
        self._add(LoggedBatch(offset, batch, log_append_time_ms))
        return offset

    def end_transaction(self, producer_id: int, epoch: int, *, committed: bool) -> TransactionMarker:
        """Write the marker that ends a producer's transaction here."""
        first = self._open_transactions.get(producer_id)
        marker = TransactionMarker(self.end_offset, producer_id, epoch, committed, first)
        self._add(marker)
        return marker

    # --- as a follower's

    def follow(self, leader: PartitionLog) -> None:
        """Become a copy of the leader's log: drop what that does not have, and add what is missing."""
        self.drop_what_is_not_in(leader)
        for entry in leader._entries[leader._place_of(self.end_offset) :]:
            self._add(entry)
        self.high_watermark = min(leader.high_watermark, self.end_offset)

    def drop_what_is_not_in(self, leader: PartitionLog) -> None:
        """Truncate: what only a former leader had is lost, also what its producers had written there."""
        kept = len(self._entries)
        while kept and not leader.holds(self._entries[kept - 1]):
            kept -= 1
        if kept < len(self._entries):
            self._rebuild(self._entries[:kept])

    def holds(self, entry: LogEntry) -> bool:
        """Whether this very entry is in the log."""
        place = self._place_of(entry.offset)
        return place < len(self._entries) and self._entries[place] is entry

    # --- producers

    def reload(self) -> None:
        """The broker restarts: a snapshot of its producers has the last batch of each."""
        self._reloaded_at = self.end_offset
        self.producers.reload()

    def forget_producers(self, producer_id: int | None = None) -> None:
        """Drop what is known of one producer or all; a broker never does while a transaction is open."""
        self.producers.forget(producer_id, keep=self._open_transactions)

    # --- for readers

    def read(self, *, read_committed: bool = False, until: int | None = None) -> list[LogRecord]:
        """The records in offset order; markers are not records.

        Args:
            until: the end for the reader, such as the high watermark; markers behind it end no transaction yet.
        """
        until = self.end_offset if until is None else until
        entries = self._entries[: self._place_of(until)]
        batches = [entry for entry in entries if isinstance(entry, LoggedBatch)]
        records = [record for batch in batches for record in batch.records() if record.offset >= self.start_offset]
        if not read_committed:
            return records
        ended = [
            (one, one.first_offset)
            for one in self._entries
            if isinstance(one, TransactionMarker) and one.first_offset is not None
        ]
        stable = min([self.last_stable_offset, *(first for one, first in ended if one.offset >= until)])
        aborted = [
            (one.producer_id, first, one.offset) for one, first in ended if not one.committed and one.offset < until
        ]

        def was_aborted(record: LogRecord) -> bool:
            return record.transactional and any(
                record.producer_id == producer_id and first <= record.offset < end
                for producer_id, first, end in aborted
            )

        return [record for record in records if record.offset < stable and not was_aborted(record)]

    def delete_before(self, offset: int) -> None:
        """Drop the records before an offset, like retention or DeleteRecords. Producers stay known."""
        if not self.start_offset <= offset <= self.end_offset:
            raise ValueError(f"offset {offset} is outside {self.start_offset} to {self.end_offset}")
        self.start_offset = offset
        self._entries = [entry for entry in self._entries if entry.end_offset > offset]

    # ---

    def _place_of(self, offset: int) -> int:
        """The place in the list of the first entry that begins at this offset, or later."""
        return bisect_left(self._entries, offset, key=_offset_of)

    def _add(self, entry: LogEntry) -> None:
        self._entries.append(entry)
        self.end_offset = entry.end_offset
        if isinstance(entry, TransactionMarker):
            self._open_transactions.pop(entry.producer_id, None)
            self.producers.at_epoch(entry.producer_id, entry.producer_epoch)
            self.producers.verified(entry.producer_id, marker_epoch=entry.producer_epoch)
            return
        batch, fixed_ms = entry.batch, entry.log_append_time_ms
        if batch.has_producer_id:
            self.producers.update(batch, entry.offset, batch.max_timestamp_ms if fixed_ms is None else fixed_ms)
        if batch.transactional:
            self._open_transactions.setdefault(batch.producer_id, entry.offset)
            self.producers.verified(batch.producer_id)

    def _rebuild(self, entries: list[LogEntry]) -> None:
        """Begin again with these entries, of which the producers are known that they name."""
        self._entries = []
        self.end_offset = self.start_offset
        self._open_transactions = {}
        self.producers = ProducerStates(self._unknown_producer, self._remembered_batches)
        reloaded_at = self._reloaded_at if entries and entries[-1].end_offset >= self._reloaded_at else 0
        self._reloaded_at = 0
        for entry in entries:
            self._add(entry)
            if entry.end_offset == reloaded_at:
                self.reload()
        self.high_watermark = min(self.high_watermark, self.end_offset)
