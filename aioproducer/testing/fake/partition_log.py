"""The log of one partition: records with their offsets, transaction markers, and the known producers. Pure.

All replicas share one log, so a new leader loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class _LoggedBatch:
    """A batch at its offset. Its records get their offsets only when read."""

    base_offset: int
    batch: Batch
    log_append_time_ms: int | None

    def records(self) -> Iterator[LogRecord]:
        batch, fixed_ms = self.batch, self.log_append_time_ms
        numbered = batch.has_producer_id
        for index, record in enumerate(batch.records):
            yield LogRecord(
                self.base_offset + index,
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


class PartitionLog:
    """See the module."""

    def __init__(
        self,
        unknown_producer: UnknownProducer = UnknownProducer.ACCEPT,
        remembered_batches: int = REMEMBERED_BATCHES,
    ) -> None:
        self.start_offset: int = 0
        self.end_offset: int = 0
        self.producers: ProducerStates = ProducerStates(unknown_producer, remembered_batches)
        self.markers: list[TransactionMarker] = []
        self._batches: list[_LoggedBatch] = []
        self._open_transactions: dict[int, int] = {}
        """First offset of each open transaction, by producer id."""

    @property
    def last_stable_offset(self) -> int:
        """The end for a read_committed reader: where the oldest open transaction begins."""
        return min(self._open_transactions.values(), default=self.end_offset)

    def open_transaction(self, producer_id: int) -> int | None:
        """Where a producer's open transaction begins; None if it has none here."""
        return self._open_transactions.get(producer_id)

    def append(self, batch: Batch, log_append_time_ms: int | None) -> int:
        """Write a checked batch, and return the offset of its first record."""
        base = self.end_offset
        numbered = batch.has_producer_id
        self._batches.append(_LoggedBatch(base, batch, log_append_time_ms))
        self.end_offset += len(batch.records)
        if numbered:
            newest_ms = batch.max_timestamp_ms if log_append_time_ms is None else log_append_time_ms
            self.producers.update(batch, base, newest_ms)
        if batch.transactional:
            self._open_transactions.setdefault(batch.producer_id, base)
            self.producers.verified(batch.producer_id)
        return base

    def end_transaction(self, producer_id: int, epoch: int, *, committed: bool) -> TransactionMarker:
        """Write the marker that ends a producer's transaction here."""
        first = self._open_transactions.pop(producer_id, None)
        marker = TransactionMarker(self.end_offset, producer_id, epoch, committed, first)
        self.markers.append(marker)
        self.end_offset += 1
        self.producers.at_epoch(producer_id, epoch)
        self.producers.verified(producer_id, marker_epoch=epoch)
        return marker

    def forget_producers(self, producer_id: int | None = None) -> None:
        """Drop what is known of one producer or all; a broker never does while a transaction is open."""
        self.producers.forget(producer_id, keep=self._open_transactions)

    def read(self, *, read_committed: bool = False) -> list[LogRecord]:
        """The records a reader sees, in offset order; markers are not records."""
        records = [
            record for batch in self._batches for record in batch.records() if record.offset >= self.start_offset
        ]
        if not read_committed:
            return records
        stable = self.last_stable_offset
        aborted = [
            (one.producer_id, one.first_offset, one.offset)
            for one in self.markers
            if not one.committed and one.first_offset is not None
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
        self._batches = [one for one in self._batches if one.base_offset + len(one.batch.records) > offset]
