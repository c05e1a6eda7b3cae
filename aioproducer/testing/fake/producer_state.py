"""What a partition remembers of each producer: epoch, and the last batches. Pure.

Source: ProducerStateManager, ProducerStateEntry and ProducerAppendInfo of Kafka; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from enum import Enum

from aioproducer.errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError, UnknownProducerIdError
from aioproducer.testing.fake.batches import SEQUENCES, Batch

REMEMBERED_BATCHES = 5
NO_EPOCH = -1
NO_SEQUENCE = -1


class UnknownProducer(Enum):
    """A broker's answer to a batch of an unknown producer that does not begin at sequence 0."""

    ACCEPT = "accept"
    """Since 2.5: it may have forgotten the producer (KIP-360)."""
    UNKNOWN_PRODUCER_ID = "unknown"
    """From 1.0 to 2.4."""
    OUT_OF_ORDER = "out of order"
    """0.11."""


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """One written batch."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp_ms: int
    """The largest of its records in the log."""


@dataclass(slots=True)
class ProducerEntry:
    """One partition's state of one producer."""

    producer_id: int
    epoch: int = NO_EPOCH
    batches: deque[BatchMetadata] = field(default_factory=deque)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last written record; NO_SEQUENCE if there is none in this epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def move_to_epoch(self, epoch: int) -> None:
        """Forget the batches of an older epoch."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


@dataclass(slots=True)
class Verification:
    """A leader's question to the coordinator about a batch that may begin a transaction in this partition.

    Attributes:
        adds: whether the coordinator adds the partition (V2).
    """

    epoch: int
    lowest_sequence: int
    adds: bool


class ProducerStates:
    """The producers of one partition.

    Args:
        unknown: see UnknownProducer.
        remembered_batches: of each producer; 0.11 remembers only the last one.
    """

    def __init__(
        self, unknown: UnknownProducer = UnknownProducer.ACCEPT, remembered_batches: int = REMEMBERED_BATCHES
    ) -> None:
        self._unknown = unknown
        self._remembered_batches = remembered_batches
        self._entries: dict[int, ProducerEntry] = {}
        self._verifying: dict[int, Verification] = {}

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """The state of a producer."""
        return self._entries.get(producer_id)

    def duplicate_of(self, batch: Batch) -> BatchMetadata | None:
        """The earlier write of this batch, if it is among the remembered ones of its producer and epoch."""
        entry = self._entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            return None
        wanted = batch.base_sequence, batch.last_sequence
        return next((one for one in entry.batches if (one.base_sequence, one.last_sequence) == wanted), None)

    def check(self, batch: Batch) -> None:
        """Check that the batch may be appended; transaction rules are not checked.

        Raises:
            InvalidProducerEpochError: the partition has seen a newer epoch.
            OutOfOrderSequenceNumberError, UnknownProducerIdError: it is not its producer's next batch.
        """
        entry = self._entries.get(batch.producer_id)
        who = f"producer {batch.producer_id}"
        if entry is not None and batch.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(f"{who} has epoch {entry.epoch}, the batch {batch.producer_epoch}")
        self._check_verified(batch)
        if entry is None or entry.epoch == NO_EPOCH:
            self._check_unknown(batch)
            return
        if batch.producer_epoch > entry.epoch:
            if batch.base_sequence != 0:
                raise OutOfOrderSequenceNumberError(f"{who} begins epoch {batch.producer_epoch} at sequence "
                                                    f"{batch.base_sequence}, not 0")  # fmt: skip
        elif batch.base_sequence != (entry.last_sequence + 1) % SEQUENCES:
            raise OutOfOrderSequenceNumberError(f"{who} is at sequence {entry.last_sequence}, the batch begins at "
                                                f"{batch.base_sequence}")  # fmt: skip

    def verify(self, producer_id: int, epoch: int, sequence: int, *, adds: bool) -> None:
        """Note that the coordinator is being asked about a batch, before it answers."""
        known = self._verifying.get(producer_id)
        if known is None or epoch > known.epoch:
            self._verifying[producer_id] = Verification(epoch, sequence, adds)
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)

    def verified(self, producer_id: int, *, marker_epoch: int | None = None) -> None:
        """A transaction has begun here, or ended with a marker. A V2 transaction begun meanwhile stays open."""
        known = self._verifying.get(producer_id)
        if known is not None and not (known.adds and known.epoch == marker_epoch):
            del self._verifying[producer_id]

    def _check_verified(self, batch: Batch) -> None:
        """Check that the batch does not overtake an earlier one the coordinator was asked about."""
        known = self._verifying.get(batch.producer_id)
        if known is not None and batch.base_sequence > known.lowest_sequence:
            raise OutOfOrderSequenceNumberError(
                f"producer {batch.producer_id} has tried sequence {known.lowest_sequence} before, the batch begins at "
                f"{batch.base_sequence}"
            )

    def _check_unknown(self, batch: Batch) -> None:
        if batch.base_sequence == 0 or self._unknown is UnknownProducer.ACCEPT:
            return
        message = f"producer {batch.producer_id} is unknown, the batch begins at sequence {batch.base_sequence}"
        if self._unknown is UnknownProducer.UNKNOWN_PRODUCER_ID:
            raise UnknownProducerIdError(message)
        raise OutOfOrderSequenceNumberError(message)

    def update(self, batch: Batch, base_offset: int, timestamp_ms: int) -> ProducerEntry:
        """Note that the batch was appended at an offset, with this largest timestamp."""
        entry = self.at_epoch(batch.producer_id, batch.producer_epoch)
        entry.batches.append(BatchMetadata(batch.base_sequence, batch.last_sequence, base_offset, timestamp_ms))
        return entry

    def at_epoch(self, producer_id: int, epoch: int) -> ProducerEntry:
        """A producer's entry, in this epoch; created if there is none."""
        entry = self._entries.get(producer_id)
        if entry is None:
            batches = deque[BatchMetadata](maxlen=self._remembered_batches)
            entry = self._entries[producer_id] = ProducerEntry(producer_id, batches=batches)
        entry.move_to_epoch(epoch)
        return entry

    def reload(self) -> None:
        """Remember only the last batch of each producer, like a broker that has restarted."""
        for entry in self._entries.values():
            while len(entry.batches) > 1:
                entry.batches.popleft()
        self._verifying.clear()

    def forget(self, producer_id: int | None = None, *, keep: Container[int] = ()) -> None:
        """Drop one producer or all, but those to keep, like a broker after producer.id.expiration.ms."""
        for state in self._entries, self._verifying:
            for known in list(state):
                if (producer_id is None or known == producer_id) and known not in keep:
                    del state[known]
