"""ProducerBatch: records of one partition that end together; and the queues it waits in, by partition and topic."""

from typing import final

from aioproducer._delivery import ProduceRequestResult
from aioproducer.errors import KafkaError

@final
class ProducerBatch:
    """Records of one partition that go out and end together."""

    attempts: int
    """How many times it was handed to a connection."""
    retry_at_ms: int
    """End of its back-off; 0 if it has none."""
    last_error: KafkaError | None
    """Why it is sent again; None before that."""
    maybe_written: bool
    """For the user: an attempt ended without a clear answer; sticky."""
    in_doubt: bool
    """For the numbering: an attempt may have written it, and no later answer ruled that out."""
    refused_ms: int
    """When it was first refused as out of order after the attempt that left the doubt; -1: not yet."""
    followed: bool
    """A later one of its partition was acknowledged, so while in doubt it is in the log."""
    failed_early: bool
    """Its Deliveries have failed, whatever happens to the batch."""
    numbered_before: int
    """How many batches of its partition were numbered before it, or before its parent if it is a piece."""

    @property
    def queue(self) -> PartitionQueue: ...
    @property
    def result(self) -> ProduceRequestResult: ...
    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> bytes:
        """16 bytes; zeros if the broker gives topics no ids."""

    @property
    def partition(self) -> int: ...
    @property
    def serial(self) -> int:
        """Order of creation over all partitions; pieces of a split have their parent's serial."""

    @property
    def order(self) -> tuple[int, ...]:
        """Place in its partition: (serial,); for a piece of a split, its parent's order plus the piece's number."""

    @property
    def created_ms(self) -> int:
        """When its first record was admitted; survives retries and splits."""

    @property
    def drained_ms(self) -> int:
        """When it was last drained."""

    @property
    def record_count(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Size of the records section before compression."""

    @property
    def memory_bytes(self) -> int:
        """Memory it now holds from the buffer pool."""

    @property
    def wire_bytes(self) -> int:
        """Size of the whole batch, header included, as it would go out now."""

    @property
    def largest_record_bytes(self) -> int: ...
    @property
    def compressed(self) -> bytes | None:
        """The records section as it goes out; None if it goes out plain."""

    @property
    def attributes(self) -> int:
        """The codec bits of the batch header."""

    @property
    def sealed(self) -> bool:
        """Whether it was compressed, or found no smaller compressed."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int:
        """-1 until it has one."""

    @property
    def has_sequence(self) -> bool: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def parent(self) -> ProducerBatch | None:
        """For a piece of a split: the batch that was split."""

    @property
    def in_flight(self) -> bool:
        """Handed to a connection and not answered."""

    @property
    def ended(self) -> bool:
        """Acknowledged, failed or split."""

    def begin_doubt(self) -> None:
        """An attempt may have written it; refusals before that prove nothing any more."""

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool = False
    ) -> None:
        """Number it, for all headers made from now on; -1 for each value removes the number."""

    def contents(self) -> bytes | memoryview:
        """The uncompressed records section, contiguous; copied only if it lies in several blocks.

        The object keeps the batch's memory in use. Useless once the batch is sealed compressed.
        """

    def seal(self, compressed: bytes | None, codec_bits: int) -> None:
        """Fix what goes out: the compressed records section, or the plain one if that is None or no smaller."""

    def payload(self) -> list[bytes | memoryview]:
        """The records section as it goes out, in order; nothing is copied. Live views keep the memory in use."""

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """End its Deliveries as acknowledged; -1 if the broker did not report it. ``release`` returns the memory."""

    def fail(
        self, error: KafkaError, record_errors: dict[int, KafkaError] | None = None, unobserved: bool = True
    ) -> None:
        """End its Deliveries as failed; see ProduceRequestResult.fail."""

@final
class PartitionQueue:
    """The batches of one partition that are not in flight, oldest first; the last may be open."""

    @property
    def topic(self) -> TopicQueues: ...
    @property
    def partition(self) -> int: ...
    @property
    def leader(self) -> int:
        """Node id; -1 if there is none."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def muted(self) -> bool:
        """Whether its batch in flight must end before the next one goes."""

    def __len__(self) -> int:
        """How many batches wait here."""

@final
class TopicQueues:
    """What the accumulator knows of one topic."""

    touched_ms: int
    """When metadata was told that the topic is in use."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def frame_bytes(self) -> int:
        """What a request takes at most to name the topic and count its partitions."""
    @property
    def partitions(self) -> int:
        """How many partitions the topic has."""

    @property
    def batch_limit(self) -> int:
        """Bytes of a batch as it goes out, learned from brokers' refusals; unbounded before the first."""

    def forget_limit(self) -> None:
        """The topic was recreated, with its own limit."""

    def observe_ratio(self, ratio: float) -> None:
        """Update the topic's compression ratio (compressed to plain), which sets how far later batches are filled."""
