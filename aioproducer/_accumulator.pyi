"""RecordAccumulator: the open and waiting batches of every partition, and which brokers have something to send.

Times are whole milliseconds of the event loop's monotonic clock; the accumulator reads no clock itself.
"""

import random
from collections.abc import Callable, Collection, Sequence
from typing import final

from typing_extensions import Buffer

from aioproducer._buffer_pool import BufferPool
from aioproducer._delivery import Delivery
from aioproducer._delivery_ledger import DeliveryLedger
from aioproducer._producer_batch import ProducerBatch, TopicQueues

@final
class RecordAccumulator:
    """The buffer of one producer: takes records, hands out batches, and knows when they are due.

    Args:
        random: chooses partitions for keyless records.
        partitioner: how the partition of a record is chosen: ``murmur2_random`` (Java's), another of librdkafka's as in
            ``aioproducer.partitioners``, ``round_robin``, or ``sticky`` as if no record had a key.
        batch_size: bytes of a batch as it goes out, header included; a larger record gets a batch of its own.
        sticky_size: bytes after which keyless records go to another partition.
        buffer_memory: bytes of all batches that have not ended or whose memory is still being read.
        max_request_size: bytes; limits the plain size of a batch filled by compression ratio, and what is being
            compressed for one broker at a time.
        compresses: batches must be sealed before they go out.
        adaptive: keyless records avoid partitions with long queues; else they are spread evenly.
        availability_timeout_ms: they avoid brokers that could not be sent to for this long; 0 disables it.
        mutes: at most one batch in flight per partition.
        longest_linger_ms: for batches of few records while the program submits at full speed; at least ``linger_ms``.
    """

    on_wake: Callable[[], object] | None
    """Called when the sender must act, at most once until the next ``ready``."""
    memory_short: bool
    """A caller waits for memory: open batches linger at most 50 ms, and not at all once nothing is under way."""
    busy_ns: int
    """Total time the program has done little but submit; where that is a twentieth of the time or more, open batches
    that hold few records on average linger longer."""

    def __init__(
        self,
        *,
        ledger: DeliveryLedger,
        random: random.Random,
        batch_size: int,
        sticky_size: int,
        linger_ms: int,
        buffer_memory: int,
        delivery_timeout_ms: int,
        max_request_size: int,
        compresses: bool = False,
        partitioner: str = "murmur2_random",
        adaptive: bool = True,
        availability_timeout_ms: int = 0,
        mutes: bool = False,
        longest_linger_ms: int = 0,
    ) -> None: ...
    @property
    def pool(self) -> BufferPool: ...
    @property
    def outside(self) -> BufferPool:
        """Memory of split batches, outside the budget."""

    @property
    def ledger(self) -> DeliveryLedger: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def linger_ms(self) -> int: ...
    @property
    def longest_linger_ms(self) -> int: ...
    @property
    def delivery_timeout_ms(self) -> int: ...
    @property
    def max_request_size(self) -> int: ...
    @property
    def last_serial(self) -> int:
        """Serial of the newest batch: a flush covers everything up to it."""

    @property
    def appended_records(self) -> int:
        """Records taken since the start."""

    @property
    def in_flight_batches(self) -> int: ...

    # --- topics -------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicQueues | None:
        """The books of a topic, or None if it is not known."""

    def update_topic(self, name: str, topic_id: bytes, leaders: Sequence[tuple[int, int]]) -> None:
        """Apply new metadata of a topic.

        Batches move to their partition's new leader; back-off ends at once if the leader epoch rose (KIP-951).

        Args:
            leaders: (node id or -1, leader epoch) of each partition, by number.
        """

    def holds_topic(self, name: str) -> bool:
        """Whether a batch of the topic is queued or in flight."""

    def forget_topic(self, name: str) -> bool:
        """Close the books of a topic; does nothing and returns False while it has batches that have not ended."""

    # --- records in ---------------------------------------------------------------------------------------------------

    def append(
        self,
        topic: TopicQueues,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]] | None,
        timestamp_ms: int,
        now_ms: int,
        awaited: bool = False,
    ) -> Delivery | None:
        """Put one record in the buffer; returns None, with nothing appended, if there is no memory.

        Args:
            partition: one of the topic's, or -1 to choose: by ``partitioner``.
            timestamp_ms: of the record, not negative.
            awaited: its batch must not linger while its broker owes no answer.
        Source: RecordAccumulator.append; KIP-480, KIP-794 (partition of keyless records).
        """

    # --- batches out --------------------------------------------------------------------------------------------------

    def ready(self, now_ms: int, busy_nodes: Collection[int] = ()) -> tuple[list[int], int]:
        """The brokers with something to send now, and when to look again.

        Args:
            busy_nodes: brokers that owe an answer.
        Returns:
            Node ids (-1 for batches whose partition has no leader), and the next deadline (-1 if there is none).
        """

    def close_all(self) -> None:
        """Close every open batch to make it ready."""

    def prefer(self, node_ids: frozenset[int]) -> None:
        """From now on, keyless records go to these brokers as long as one of them leads a partition and can be reached.

        Source: KIP-1123.
        """

    def node_stalled(self, node_id: int, now_ms: int) -> None:
        """Note that a broker with something ready could not be sent to; ``drain`` clears this."""

    def drain(
        self,
        node_id: int,
        max_bytes: int,
        now_ms: int,
        may_send: Callable[[ProducerBatch], bool],
        inline_limit: int,
    ) -> tuple[list[ProducerBatch], list[ProducerBatch]]:
        """Take batches for one request to a broker: the first one of each ready partition.

        Args:
            max_bytes: of all topics in the request together, fields around the batches included; the first batch goes
                at any size.
            may_send: False for a batch that must not go yet.
            inline_limit: with ``compresses``, a larger unsealed batch is not taken but returned to be compressed
                elsewhere; nothing overtakes it.
        Returns:
            The batches taken, now in flight, and those to compress and pass to ``sealed``.
        """

    def take_unsealed(
        self, node_id: int, now_ms: int, may_send: Callable[[ProducerBatch], bool], inline_limit: int
    ) -> list[ProducerBatch]:
        """Take batches to compress for a broker that takes no request now, in the order in which they would go.

        With those that ``drain`` has returned, they are at most about two requests.

        Args:
            may_send: False for a batch that must not go yet.
            inline_limit: smaller batches are left for ``drain``.
        Returns:
            Batches to compress and pass to ``sealed``; nothing overtakes them.
        """

    def sealed(self, batch: ProducerBatch, compressed: bytes | None, codec_bits: int) -> None:
        """Take back a batch that was to be compressed; None leaves it plain."""

    def handed_over(self, batches: list[ProducerBatch], now_ms: int, touch_every_ms: int) -> list[str]:
        """Count an attempt of each batch; returns the topics of which metadata should hear that they are in use.

        Args:
            touch_every_ms: it should hear of each at most this often.
        """

    # --- after the answer ---------------------------------------------------------------------------------------------

    def requeue(self, batch: ProducerBatch, now_ms: int, retry_at_ms: int) -> None:
        """Put a batch in flight back in its place in the partition; it may be sent again from ``retry_at_ms`` on."""

    def release(self, batch: ProducerBatch) -> None:
        """The batch has ended for good: return its memory, at the latest when the last view of it dies."""

    def split(self, batch: ProducerBatch, plain: Buffer, now_ms: int) -> list[ProducerBatch]:
        """Replace a batch in flight that is too large by two or more smaller ones.

        They continue its sequences, keep its age, and take over its Deliveries. Their memory is outside the pool.

        Args:
            plain: the uncompressed records section of the batch, which holds two or more records.
        """

    # --- ends ---------------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Return the batches older than ``delivery_timeout_ms``, each once, oldest first.

        If the oldest is 0.1 s late, the loop was held up. Then they are returned after another 0.1 s, in which answers
        that have come may be read.
        Those in flight stay there; the others leave their queues and end. The caller fails and releases them.
        """

    def take_all(self) -> list[ProducerBatch]:
        """Like ``expire``, for batches of any age."""

    def take_unsent(self, also_in_doubt: bool) -> list[ProducerBatch]:
        """Like ``take_all``, but only batches that are not in flight.

        Args:
            also_in_doubt: include those an earlier attempt may have written.
        """

    def oldest_live_serial(self) -> int:
        """Serial of the oldest batch whose memory is not back in the pool; -1 if there is none."""

    def has_live_batches(self) -> bool: ...
    def live_record_count(self, last_serial: int) -> int:
        """Records in batches up to ``last_serial`` that are neither acknowledged nor failed."""
