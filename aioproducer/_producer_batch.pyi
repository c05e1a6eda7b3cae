"""ProducerBatch: records of one partition that end together; the queues that it waits in, by partition and topic."""

from typing import final

from aioproducer._delivery import ProduceRequestResult
from aioproducer._sequences import PartitionSequences
from aioproducer.errors import KafkaError

@final
class ProducerBatch:
    """Records of one partition that go out, and end, together."""

    attempts: int
    """How often it was handed to a connection."""
    retry_at_ms: int
    """Until when it backs off; 0 if it does not."""
    last_error: KafkaError | None
    """Why the latest attempt failed."""
    maybe_written: bool
    """For the user: some attempt ended without a clear answer; sticky."""
    in_doubt: bool
    """For the numbering: some attempt may have written it, and no later answer has ruled that out."""
    refused_ms: int
    """When it was first found out of order after the attempt that left the doubt; -1: not yet."""
    expired: bool
    """Its Deliveries have failed, whatever becomes of it."""
    numbered_before: int
    """How many batches of its partition had got a number before it, or before the batch that it is a piece of."""
    books: PartitionSequences | None
    """The numbers of its partition, once it was asked whether it may go."""

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
        """Order of creation over all partitions; pieces of a split have their parent's."""

    @property
    def order(self) -> tuple[int, ...]:
        """Place in its partition: (serial,), and for pieces of a split their parent's with their number behind it."""

    @property
    def created_ms(self) -> int:
        """When its first record was admitted; survives retries and splits."""

    @property
    def closed_ms(self) -> int: ...
    @property
    def drained_ms(self) -> int:
        """When it was last taken to be sent."""

    @property
    def record_count(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Of the records section before compression."""

    @property
    def memory_bytes(self) -> int:
        """What it has from the buffer pool now."""

    @property
    def wire_bytes(self) -> int:
        """Of the whole batch, header included, as it would go out now."""

    @property
    def largest_record_bytes(self) -> int: ...
    @property
    def compressed(self) -> bytes | None:
        """The records section as it goes out; None if it goes out plain."""

    @property
    def attributes(self) -> int:
        """The codec's bits of the batch header."""

    @property
    def sealed(self) -> bool:
        """Whether it was compressed, or compression was found not to pay."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int:
        """-1 while it has none."""

    @property
    def has_sequence(self) -> bool: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def parent(self) -> ProducerBatch | None:
        """The batch that was split, for one of its pieces."""

    @property
    def in_flight(self) -> bool:
        """Handed to a connection and not back."""

    @property
    def ended(self) -> bool:
        """Acknowledged, failed or split."""

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool = False
    ) -> None:
        """Give it its number, for the headers made from now on; -1 each takes it back."""

    def contents(self) -> bytes | memoryview:
        """The uncompressed records section, contiguous; copied only if it lies in several blocks.

        The memory stays the batch's while the object lives. Of no use once the batch is sealed compressed.
        """

    def seal(self, compressed: bytes | None, codec_bits: int) -> None:
        """Fix what goes out: the compressed records section, or with None, or where it is no smaller, the plain one."""

    def payload(self) -> list[bytes | memoryview]:
        """The records section as it goes out, in order; nothing is copied. Live views keep the memory in use."""

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """End its Deliveries as acknowledged; -1 where the broker did not tell. The memory is ``release``'s matter."""

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
        """Node id, -1 while there is none."""

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
    """When metadata was told that it is in use."""

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
    def used_ms(self) -> int:
        """When its latest batch was opened."""

    @property
    def batch_limit(self) -> int:
        """Bytes of a batch as it goes out, by what a broker has refused; without bound until one has."""

    def forget_limit(self) -> None:
        """The topic is another one by now, with a limit of its own."""

    def observe_ratio(self, ratio: float) -> None:
        """Follow the topic's compression ratio (compressed to plain), by which batches of later records are filled."""
