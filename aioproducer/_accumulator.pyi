"""RecordAccumulator: the open and waiting batches of every partition, and which broker has something to send.

Times are whole milliseconds of one monotonic clock, the event loop's; the accumulator reads none itself.
"""

import random
from collections.abc import Callable, Collection, Sequence
from typing import final

from typing_extensions import Buffer

from aioproducer._buffer_pool import BufferPool
from aioproducer._delivery import Delivery, DeliveryLedger
from aioproducer._producer_batch import ProducerBatch, TopicQueues

@final
class RecordAccumulator:
    """The buffer of one producer: takes records, gives batches, and knows when.

    Args:
        random: chooses partitions for keyless records.
        batch_size: bytes of a batch as it goes out, header included; a larger record has a batch of its own.
        sticky_size: bytes after which keyless records go to another partition.
        buffer_memory: bytes of all batches that have not ended, and of those whose memory is still read.
        max_request_size: bounds a batch of plain bytes while it is filled by the compression ratio, and what is being
            compressed for a broker at a time.
        compresses: batches are to be sealed before they go out.
        adaptive: keyless records avoid partitions with long queues; else they go to each alike.
        availability_timeout_ms: they avoid brokers that could not be sent to for so long; 0: they do not.
        mutes: one batch a partition in flight at a time.
        longest_linger_ms: for batches of few records while the program submits at full speed; at least ``linger_ms``.
    """

    on_wake: Callable[[], object] | None
    """Called when the sender has to look, once until the next ``ready``."""
    memory_short: bool
    """Somebody waits for memory: open batches do not linger once nothing is under way, nor for more than 50 ms."""
    busy_ns: int
    """How long, in sum, the program has done little else than to submit; where that is a twentieth of the time or more,
    open batches that have few records on average linger longer."""

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
        ignore_keys: bool = False,
        adaptive: bool = True,
        round_robin: bool = False,
        availability_timeout_ms: int = 0,
        mutes: bool = False,
        longest_linger_ms: int = 0,
    ) -> None: ...
    @property
    def pool(self) -> BufferPool: ...
    @property
    def outside(self) -> BufferPool:
        """Memory of split batches, which is beside the budget."""

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
        """Take over what the cluster says about a topic.

        Batches go to their partition's new leader; one that backs off goes at once if the leader epoch rose (KIP-951).

        Args:
            leaders: (node id or -1, leader epoch) of each partition, by number.
        """

    def holds_topic(self, name: str) -> bool:
        """Whether a batch of the topic is queued or in flight."""

    def forget_topic(self, name: str) -> bool:
        """Close the books of a topic; False, with nothing done, while it has batches that have not ended."""

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
        """Put one record in the buffer; None, with nothing appended, if there is no memory.

        Args:
            partition: one of the topic's, or -1 to have it chosen: by murmur2 of the key, or for a null key sticky.
            timestamp_ms: of the record, not negative.
            awaited: its batch is not to linger while its broker owes no answer.
        Source: RecordAccumulator.append; KIP-480, KIP-794 (partition of keyless records).
        """

    # --- batches out --------------------------------------------------------------------------------------------------

    def ready(self, now_ms: int, busy_nodes: Collection[int] = ()) -> tuple[list[int], int]:
        """The brokers that something can be sent to now, and when to look again.

        Args:
            busy_nodes: brokers that owe an answer.
        Returns:
            Node ids, -1 for batches whose partition has no leader; and the next deadline, -1 if there is none.
        """

    def close_all(self, now_ms: int) -> None:
        """Close every open batch, so that it is ready."""

    def node_stalled(self, node_id: int, now_ms: int) -> None:
        """Note that a broker had something ready and could not be sent to; ``drain`` ends that."""

    def drain(
        self,
        node_id: int,
        max_bytes: int,
        now_ms: int,
        may_send: Callable[[ProducerBatch], bool],
        inline_limit: int,
    ) -> tuple[list[ProducerBatch], list[ProducerBatch]]:
        """Take batches for one request to a broker: the first of each partition that is ready there.

        Args:
            max_bytes: of all topics in the request together, the fields around the batches included; the first batch
                goes at any size.
            may_send: refuses a batch for now.
            inline_limit: with ``compresses``, a batch of more bytes that is not sealed is not taken but given out to
                be compressed elsewhere; nothing overtakes it.
        Returns:
            The batches taken, which are in flight now; and those to compress and give to ``sealed``.
        """

    def sealed(self, batch: ProducerBatch, compressed: bytes | None, codec_bits: int) -> None:
        """Take back a batch that ``drain`` gave out to be compressed; None leaves it plain."""

    # --- after the answer ---------------------------------------------------------------------------------------------

    def requeue(self, batch: ProducerBatch, now_ms: int, retry_at_ms: int) -> None:
        """Put a batch in flight back to its place in the partition, to go out again from ``retry_at_ms`` on."""

    def release(self, batch: ProducerBatch) -> None:
        """The batch has ended for good: its memory returns, at the latest when the last view of it dies."""

    def split(self, batch: ProducerBatch, plain: Buffer, now_ms: int) -> list[ProducerBatch]:
        """Put smaller batches, two or more, in the place of one in flight that is too large.

        They continue its sequences, keep its age, and take over its Deliveries. Their memory is not the pool's.

        Args:
            plain: the uncompressed records section of the batch, which holds two or more records.
        """

    # --- ends ---------------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Give out the batches older than ``delivery_timeout_ms``, each once, oldest first.

        Those in flight stay there; the others are out of their queues and ended. The caller fails and releases them.
        """

    def take_all(self) -> list[ProducerBatch]:
        """As ``expire``, of any age."""

    def take_unsent(self, in_doubt: bool) -> list[ProducerBatch]:
        """As ``take_all``, but only batches that are not in flight.

        Args:
            in_doubt: also those of which an earlier attempt may have been written.
        """

    def oldest_live_serial(self) -> int:
        """Serial of the oldest batch whose memory has not returned; -1 if there is none."""

    def has_live_batches(self) -> bool: ...
    def live_record_count(self, last_serial: int) -> int:
        """Records in batches up to ``last_serial`` that are neither acknowledged nor failed."""
